"""The public interface for trainers that are not Treering's: they report their steps, and Treering keeps the record.

`treering.start` begins an attempt of a run. This package needs no torch.
"""
