"""What the records of runs say, checked by themselves and against each other; reads no corpus.

`path` is a checkpoint's ancestry with its rings, `recovery` the same as far as damaged records reach, `step` who did a
step. `run_log`, `agreement`, `presence` and `config_edits` find what was changed, contradicted, or removed: `agreement`
compares the `records` of a run with each other, by `attempts`, `checkpoints`, `evaluations` and `copies`.
"""
