"""The commands, one module each: `treering training-summary` is `training_summary.training_summary`.

A module is imported when its command is asked for. `COMMANDS` is what `treering --help` lists without importing one.
"""

COMMANDS = {
    "Project": {
        "init": "Make this folder a project of your own: write an experiment on your data, and the pipeline around it.",
        "doctor": "Show what this machine has of what Treering needs, and what helps where something is missing.",
        "version": "Show the installed version of Treering, and the digest of the code behind each stage.",
    },
    "Pipeline": {
        "plan": "Show what an experiment will do: digests, size, schedule, and what it reads of each corpus.",
        "fetch": "Download the files of the corpora to `data/raw`, and check each one against its pinned hash.",
        "curate": "Clean the fetched text: filter, judge, deduplicate, hold out, make tasks, decontaminate, shuffle.",
        "tokenize": "Train the tokenizer on the curated text, and write the corpora in Megatron's format.",
        "push": "Send the corpora and the curated documents of this project to a store, for machines without a clone.",
        "pull": "Bring the corpora of this project from a store, every byte compared with its digest.",
        "blend": "Resolve the blend: write the tokenized corpora and their weights to `data/blend.json`.",
        "report": "Audit the published checkpoint; write report.md, plots/loss.svg and metrics/report.json.",
        "summary": "Show in short what the pipeline has made so far, and what is missing.",
    },
    "Training": {
        "train": "Train the run of an experiment, or continue it from its newest checkpoint.",
        "rewind": "Go back to a checkpoint of a run, skip batches, and train on as a branch, around a loss spike.",
        "launch": "Start a training on several nodes: over a hostfile, or as a batch job of Slurm.",
        "checkpoint": "Show the checkpoints of a run, or convert a checkpoint for another layout.",
        "evaluate": "Score checkpoints of a run on the held-out tasks and corpora; existing scores are kept.",
        "continuations": "Show what each checkpoint of a run made of the kept prompts, side by side.",
        "bias": "Measure how a checkpoint speaks of groups of people: gender, ethnicity, religion, or your own lists.",
        "hans": "Show the answers to HANS by heuristic, number of examples, order of examples, and balance of their "
        "labels.",
        "export": "Write the weights of a checkpoint for other programs, with a record that names the checkpoint.",
        "generate": "Continue a text with the model of a checkpoint; the same seed gives the same text.",
    },
    "Runs": {
        "record": "Run any command as an attempt of a run: record its code, devices, output, metrics and end.",
        "runs": "List the runs of this project by their run logs; the run that needs most attention is last.",
        "show": "Show one run: state, progress, loss, checkpoint, alarms, energy; with `--full`, everything on record.",
        "logbook": "List what happened to a run: starts, ends, incidents, alarms, stalls, notes, and the work lost.",
        "diff-runs": "Compare two runs bit by bit: data, numbers, config, code, environment, layout.",
        "compare": "Compare runs by the noise of seeds, or two checkpoints item by item.",
        "spikes": "List the alarms of a run (spikes and the other health rules), or what was read before a step.",
        "reproduce": "Make a recorded run again from its record, and say whether it came out the same.",
        "search": "Find runs and checkpoints of all projects in the ledger, which `treering ship` fills.",
        "note": "Add a note to a run, or change its tags; nothing that was written is changed.",
        "gc": "Delete what no answer needs, and say before what is lost with it.",
        "archive": "Leave a run out of lists and compress its rings; `--undo` lists it again.",
    },
    "Registry and dashboard": {
        "promote": "Give a checkpoint an alias, if its audit reaches the level that the project asks for.",
        "migrate": "Bring the tables of the ledger up to date with this version of Treering.",
        "ship": "Bring MLflow, the ledger and the copies up to date with the run logs; nothing is sent twice.",
        "mirror": "Bring the runs of a project here from a store, to look at and to audit; fetch only what is new.",
        "rebuild": "Make again what MLflow, other targets and the columns hold otherwise than the run logs give.",
        "up": "Serve the dashboard and MLflow on 127.0.0.1 until Ctrl-C, and keep MLflow up to date meanwhile.",
    },
    "Audit": {
        "audit": "Show which data trained a checkpoint, and how much of that is proven.",
        "batch": "Show the documents that a step read, with their text; with `--rank`, those of one replica.",
        "trace": "Show every step of every run that read a document or a text, and which checkpoints saw it.",
        "index": "Index the n-grams of the training corpora, for `trace --text` and `contamination`.",
        "decision": "Show what curation decided about documents: kept, cut or dropped, and which document was kept "
        "instead.",
        "takedown": "Show which checkpoints saw a document of a list, or a near-duplicate, and which are clean.",
        "contamination": "Show which evaluation examples a checkpoint had read, when, and its scores without them.",
        "diff": "Show what two checkpoints read differently: shares, samples of only one, the first different step.",
        "verify": "Digest corpora, indexes, checkpoints and run logs again, and name everything that changed.",
        "capsule": "Pack the records of a run into a zip file, for people elsewhere who make the run again.",
        "find": "Find what a digest names, in the project, in DVC's cache and in DVC's remotes.",
    },
    "Attestation and disclosure": {
        "keygen": "Make an ed25519 key pair for `treering attest`, as `openssl genpkey -algorithm ed25519` does.",
        "attest": "Audit a checkpoint, digest its files again, and sign what was found.",
        "bom": "Write a CycloneDX 1.6 ML-BOM: the model, its corpora with licences and digests, and what was read.",
        "croissant": "Write Croissant JSON-LD for corpora: files by digest, licences, the document table as records.",
        "training-summary": "Write a summary of the training content by the template of the EU AI Act.",
    },
}
"""The groups of `treering --help`: each command's name, and the first sentence of its own help."""
