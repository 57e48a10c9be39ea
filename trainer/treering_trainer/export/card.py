"""The model card of an export: what the model is, where it comes from, and how to audit it."""

from treering.foreign import code, markdown
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.export import EXPORT_RECORD
from treering.runlog.export_format import ExportDtype


def model_card(checkpoint: CheckpointDirectory, dtype: ExportDtype, known: int, end: str, note: str) -> str:
    """The text of `README.md`.

    Args:
        checkpoint: what was exported.
        dtype: of the written weights.
        known: entries of the tokenizer.
        end: the token that ends a document.
        note: how the tokenizer here differs from the run's, empty if it does not.
    """
    resolved, manifest = checkpoint.run.resolved, checkpoint.manifest
    model = resolved.recipe.model
    components = "\n".join(
        f"| {markdown(component.corpus)} | {markdown(component.weight)} | {code(component.digest or 'declared')} |"
        for component in resolved.blend.components
    )
    vocabulary = f"The embedding has {model.padded_vocab_size:,} rows, the tokenizer knows {known:,} of them."
    if known < model.padded_vocab_size:
        vocabulary += (
            " The others are padding that training never read. They stay, since the softmax that was trained runs over"
            " them; `generation_config.json` suppresses them."
        )
    vocabulary += f" {code(end)} ends a document and comes before the next; spelled out in a text it is ordinary text."
    vocabulary += f" {note}" if note else ""
    path = "\n".join(
        f"- run `{segment.run.id}`, attempt {segment.attempt.number}, to step {segment.last_step:,}"
        for segment in checkpoint.run.path_to(checkpoint)
    )
    place = code(f"runs/{resolved.run_id}/{checkpoint.path.parent.name}/{checkpoint.path.name}")
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags:
- gpt2
- treering
---

# {markdown(resolved.experiment)}, step {manifest.step:,}

{markdown(" ".join(resolved.description.split()))}

A GPT in the layout of GPT-2: {model.num_layers} layers, hidden size {model.hidden_size}, \
{model.num_attention_heads} heads, {resolved.blend.sequence_length} positions, \
{"tied" if model.tied_embeddings else "untied"} embeddings, weights in {dtype}.

{vocabulary}

## Where it comes from

| | |
| --- | --- |
| run | `{resolved.run_id}` (recipe `{manifest.run}`) |
| step | {manifest.step:,}, of which {manifest.applied_steps:,} applied |
| consumed | {manifest.consumed_samples:,} samples, {manifest.consumed_tokens:,} tokens |
| checkpoint | `{checkpoint.digest}` |
| ring | `{manifest.ring}` |
| blend | `{manifest.blend}` |
| tokenizer | `{manifest.tokenizer}` |
| code | `{manifest.code}` |

Its path, from the first step on:

{path}

The blend of this run:

| corpus | weight | digest |
| --- | --- | --- |
{components}

## How to audit it

`{EXPORT_RECORD}` names the checkpoint and the digest of every file here. In the project that trained it,

```
treering audit FOLDER --verify
```

on this folder checks these digests, finds the checkpoint by its own
({place}), reports which documents trained it, and \
recomputes every batch from the corpora's bytes. An export of that checkpoint by the same version of Treering has the \
same bytes as this folder.
"""
