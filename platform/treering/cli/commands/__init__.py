"""The commands, one module each: `treering training-summary` is `training_summary.training_summary`.

A module is imported when its command is asked for. `COMMANDS` is what `treering --help` lists without importing one.
"""

COMMANDS = {
    "Pipeline": {
        "plan": "",
        "fetch": "",
        "curate": "",
        "tokenize": "",
        "blend": "",
        "report": "",
        "summary": "",
    },
    "Training": {
        "train": "",
        "launch": "",
        "checkpoint": "",
        "evaluate": "",
        "export": "",
        "generate": "",
    },
    "Runs": {
        "runs": "",
        "show": "",
        "spikes": "",
    },
    "Registry and dashboard": {
        "ship": "",
        "up": "",
    },
    "Audit": {
        "audit": "",
        "batch": "",
        "trace": "",
        "index": "",
        "takedown": "",
        "contamination": "",
        "diff": "",
        "verify": "",
        "find": "",
    },
    "Attestation and disclosure": {
        "keygen": "",
        "attest": "",
        "bom": "",
        "croissant": "",
        "training-summary": "",
    },
}
"""The groups of `treering --help`: each command's name, and the first sentence of its own help."""
