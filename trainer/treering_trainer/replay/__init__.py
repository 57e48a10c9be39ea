"""Trains steps of a finished path again and compares; reads runs, and moves no number of a training."""
