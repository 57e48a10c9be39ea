"""What curation records for people (the summary) and for the corpus's manifest (its parents)."""

from collections.abc import Sequence
from typing import Any

from treering.config.canonical import digest_json
from treering.config.corpora import CorpusConfig, CurationConfig
from treering.data.curate import cuts
from treering.data.curate.decisions import QUALITY, steps_of
from treering.data.curate.finalize import Written
from treering.data.curate.intake import Taken
from treering.data.curate.quality import Quality


def summary(
    names: Sequence[str],
    taken: Sequence[Taken],
    written: Sequence[Written],
    items: dict[str, int],
    *,
    num_ignored: int | None = None,
    quality: Quality | None = None,
) -> dict[str, Any]:
    """Counts by corpus and in total: documents that came in, dropped by step and rule, kept by split. No clock.

    Where decontamination cuts also what was cut, and how many n-grams were ignored.
    """
    corpora: dict[str, Any] = {}
    every = steps_of({QUALITY} if quality else ())
    total = {"documents": 0, "train": 0, "heldout": 0, **{f"dropped_by_{step}": 0 for step in every}}
    for name, before, after in zip(names, taken, written, strict=True):
        dropped: dict[str, dict[str, int]] = {step: {} for step in steps_of(before.digests)}
        for (step, rule), count in sorted({**before.dropped, **after.dropped}.items()):
            dropped[step][rule] = count
        corpora[name] = {
            "taken": {
                **before.intake,
                **({"skipped": before.skipped} if before.skipped else {}),
                **({"noted": before.noted} if before.noted else {}),
            },
            "dropped": dropped,
            "documents": after.documents,
            "characters": after.characters,
            **({} if after.cut is None else {"cut": after.cut}),
        }
        total["documents"] += int(before.intake["documents"] or 0)
        for split, count in after.documents.items():
            total[split] += count
        for step, rules in dropped.items():
            total[f"dropped_by_{step}"] += sum(rules.values())
    ignored = {} if num_ignored is None else {"ignored_ngrams": num_ignored}
    judged = {} if quality is None else {QUALITY: quality.summary}
    return {"corpora": corpora, "tasks": items, "total": total, **ignored, **judged}


def parents(
    corpora: Sequence[CorpusConfig],
    config: CurationConfig,
    taken: Sequence[Taken],
    written: Sequence[Written],
    *,
    tasks: str,
    num_ignored: int | None,
    quality: Quality | None,
) -> list[list[dict[str, Any]]]:
    """For each corpus the steps that made it: digest of the input, parameters, documents kept and dropped.

    The input of deduplication, and so of all that follows, is every corpus in order of priority. No name of a corpus or
    a file enters: the same text under another name has the same parents.
    """
    everything = digest_json([before.digests["dedup"] for before in taken])
    result = []
    for corpus, before, after in zip(corpora, taken, written, strict=True):
        rules = config.rules(corpus).model_dump(mode="json")
        parameters: dict[str, Any] = {
            "extract": {
                "kind": corpus.kind,
                "reader": corpus.reader or (corpus.own or ("jsonl",))[0],
                "cap_bytes": before.intake["cap_bytes"],
                **({} if corpus.html_extraction == "plain" else {"extraction": corpus.html_extraction}),
            },
            "filter": rules,
            QUALITY: None if quality is None else quality.parameters,
            "dedup": config.dedup.model_dump(mode="json"),
            "heldout": {**config.heldout.model_dump(mode="json"), "seed": config.seed},
            "decontaminate": {
                "ngram_words": config.decontamination.ngram_words,
                "tasks": tasks,
                **({} if after.cut is None else {**cuts.PARAMETERS, "ignored": num_ignored, "cut": after.cut}),
            },
        }
        inputs = {**before.digests, "dedup": everything, "heldout": everything, "decontaminate": everything}
        left, steps = int(before.intake["documents"] or 0), []
        for step in steps_of(before.digests):
            lost = sum(count for (at, _), count in {**before.dropped, **after.dropped}.items() if at == step)
            left -= lost
            steps.append(
                {"step": step, "input": inputs[step], "parameters": parameters[step], "kept": left, "dropped": lost}
            )
        steps.append(
            {"step": "shuffle", "input": everything, "parameters": {"seed": config.seed}, "kept": left, "dropped": 0}
        )
        result.append(steps)
    return result
