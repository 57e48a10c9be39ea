"""Judgements about a run, computed from its run log: throughput, loss spikes.

Stands after the run log on the data's way. Nothing here is stored as truth: every number can be computed again from
the rings, under another formula or another threshold.
"""
