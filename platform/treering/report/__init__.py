"""The report: one page, one chart and a few metrics that say what was made of what, and the summary of a pipeline.

Reads what the stages left on disk; the only thing that it computes itself is the audit of the published checkpoint.
"""
