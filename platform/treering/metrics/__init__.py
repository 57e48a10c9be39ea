"""Metrics of a run, computed from its run log: FLOPs, utilisation, alarms, slow ranks, states, comparisons.

Nothing here is stored as truth: every number can be computed again from the rings, under another formula or another
threshold.
"""
