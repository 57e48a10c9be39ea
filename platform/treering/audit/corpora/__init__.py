"""Corpora under audit: found by content, digested again, and what a path read of each."""
