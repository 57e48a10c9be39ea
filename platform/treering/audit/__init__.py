"""From a checkpoint to the data that trained it, with proof.

Reads the run log and the corpora, never the trainer: what the trainer claims is recomputed here.
"""
