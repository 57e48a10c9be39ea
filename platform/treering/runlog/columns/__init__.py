"""Columns of an attempt's rings: derived from `rings.jsonl`, extended as it grows, deleted without loss.

`rings.jsonl` is the evidence. Lists, charts and histories read the columns, which hold the same numbers by metric.
"""
