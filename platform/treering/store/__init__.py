"""Stores that hold projections of the run log: each can be deleted and filled again from it."""
