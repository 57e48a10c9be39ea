"""Continues text with a checkpoint's model, in one process: token by token, drawn from a seed.

Reads a checkpoint after checking its digests, and the run's tokenizer; prints the text and writes no files.
"""
