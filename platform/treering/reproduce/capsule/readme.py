"""The instructions in a capsule, for people."""

from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH
from treering.foreign import markdown
from treering.reproduce.capsule.contents import Capsule

_TEXT = """\
# Capsule of run {run}

Experiment {experiment}, {steps:,} steps, {kind}, {state}. It holds the records of the run, to make the run again. It
does not hold: {left_out}.

## Make the run again

```
pip install 'treering[trainer]=={version}'
mkdir again && cd again
treering reproduce CAPSULE.zip --corpora FOLDER
```

FOLDER has the corpora below, under any names: files are found by size and sha256. The command checks the data order,
trains, and compares every step with the records. It runs no code of this capsule without `--trust`.

The code had the digest {code}{commit}.

## Corpora

| corpus | part | tokens | documents | bytes | licence | digest |
|---|---|---|---|---|---|---|
{corpora}

Tokenizer: {tokenizer}.

## Parts

| path | content |
|---|---|
| `{record}` | digest and size of every file, the corpora, golden vectors of the data order |
| `run/` | the folder of the run: config, headers with environment and code, rings, journals, evaluations |
| `corpora/` | manifests of the corpora: digests, sizes, licences, sources; no text |
| `code/` | changes against the commit, and the sources of the commit, where they are known |
| `experiment.yaml` | the experiment as a person wrote it, where a file of the project still gives this run |
| `ro-crate-metadata.json` | the same as RO-Crate |
"""


def readme_text(capsule: Capsule) -> str:
    """The text of `README.md`."""
    commit = capsule.code.get("commit")
    rows = [
        f"| {markdown(each.name)} | {each.split} | {each.tokens} | {each.documents} | {each.size or 'unknown'} | "
        f"{markdown(each.licence)} | `{each.digest}` |"
        for each in capsule.corpora
    ]
    tokenizer = capsule.tokenizer
    return _TEXT.format(
        run=short(capsule.run, RUN_ID_LENGTH),
        experiment=markdown(capsule.experiment),
        steps=capsule.steps,
        kind="trained by Treering" if capsule.kind == "trained" else "recorded of another trainer",
        state=capsule.state,
        left_out=", ".join(capsule.left_out),
        version=capsule.treering,
        code=capsule.code.get("digest", "unknown"),
        commit=f", commit {markdown(commit)}" if commit else "",
        corpora="\n".join(rows) or "| none is known: the run reports no data order | | | | | | |",
        tokenizer=f"{tokenizer.size} bytes, `{tokenizer.digest}`" if tokenizer else "unknown",
        record="capsule.json",
    )
