"""Trains steps of a run again and compares the numbers with the recorded ones; changes nothing of the run."""
