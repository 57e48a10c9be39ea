"""Continues text with a checkpoint's model, in one process: token by token, drawn from a seed.

Reads a checkpoint after its digests have held, and the run's tokenizer; prints, writes nothing.
"""
