"""Corpora: tokenized documents in Megatron's `.bin/.idx` under a manifest, with a table of their documents."""
