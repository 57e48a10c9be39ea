"""Whether a restart changed anything: every border between two attempts of a run, by what the records show.

`border` has the answer's types, `own` reads runs of Treering's trainer, `recorded` those of other trainers, `overlap`
compares steps that an abandoned attempt did and a later one did again, `report` answers for a run.
"""
