"""Corpora: from pinned sources over curation and tokenizing to the data order of a blend.

Stages fetch, curate, tokenize and blend live here. The trainer reads the corpora, the audit re-digests them.

Inside: `sources/`, `curate/`, `corpus/`, `tokenize/`, `order/`, `megatron/` (Megatron's order), `ngram_index/`,
`blend/`.
"""
