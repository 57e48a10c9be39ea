"""What a run looks like in the ledger: its rows, as pure functions of its folder.

Inside: `own` reads runs of Treering's trainer, `recorded` those of other trainers, `shared` what both have, `corpora`
counts the licences of a corpus, `position` tells whether a folder has changed.
"""
