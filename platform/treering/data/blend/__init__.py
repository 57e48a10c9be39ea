"""Blends: made from corpora, continued where another run stopped reading, and counted before anything is trained."""
