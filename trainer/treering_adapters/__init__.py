"""Records the runs of other frameworks: each module here puts `treering.start` into one framework.

A module imports its framework, so this package is not a part of `treering`, which imports no torch.
"""
