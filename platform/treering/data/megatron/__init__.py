"""Megatron's own data order, GPTDataset and BlendedDataset of megatron-core, for runs that were trained with it.

Rebuilt in numpy from the seed and the `.idx` files, or read from the index cache that Megatron left. Nothing here
imports megatron-core or torch: an auditor's machine needs neither.
"""
