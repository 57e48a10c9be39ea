"""Checkpoints: saved, resumed from, converted to other layouts, published, and loaded into one process."""
