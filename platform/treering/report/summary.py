"""The short summary at the end of a pipeline: what `treering summary` prints, as plain values.

A part that is missing names the stage that makes it.
"""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from treering.files import read_text
from treering.project import Project
from treering.report.facts import Facts, Missing, Training
from treering.report.places import next_steps, places
from treering.report.scores import score_rows
from treering.report.write import METRICS
from treering.runlog.records import Evaluation


def summarize(facts: Facts, project: Project) -> dict[str, Any]:
    """The summary as JSON values.

    A missing part is `{"missing": stage, "reason": text}`.
    """
    audit = _audit(facts, project)
    training = facts.training
    return {
        "experiment": facts.experiment.experiment,
        "run": None if isinstance(training, Missing) else training.resolved.run_id,
        "documents": _missing(facts.documents) or _rows(facts.documents),
        "tokens": _missing(facts.tokens) or _rows(facts.tokens),
        "loss": _missing(training) or _loss(training, facts.evaluations),
        "scores": _missing(facts.evaluations) or _scores(facts.evaluations),
        "audit": _missing(audit) or audit,
        "places": []
        if isinstance(training, Missing)
        else [list(place) for place in places(project, training.resolved.run_id)],
        "next": [["go on with the pipeline", _go_on(facts, project)]]
        if isinstance(training, Missing)
        else [list(step) for step in next_steps(project, training)],
    }


def _go_on(facts: Facts, project: Project) -> str:
    """The command that makes what is missing: in a clone, in a project with DVC, or the first missing stage."""
    if (project.root / "Makefile").exists():
        return "make repro"
    if (project.root / "dvc.yaml").exists():
        return "dvc repro"
    return f"treering {facts.missing[0].stage if project.raw.exists() else 'fetch'}"


def _missing(section: Any) -> dict[str, str] | None:
    return {"missing": section.stage, "reason": section.reason} if isinstance(section, Missing) else None


def _rows(section: Any) -> list[dict[str, Any]]:
    return [asdict(row) for row in section]


def _loss(training: Any, evaluations: Any) -> dict[str, Any]:
    rings, validation = training.rings, training.validation
    final: Evaluation | None = None if isinstance(evaluations, Missing) else evaluations[-1]
    return {
        "step": rings[-1].step,
        "tokens": rings[-1].consumed_tokens,
        "training": {"first": rings[0].loss, "last": rings[-1].loss},
        "validation": {"first": validation[0][1], "last": validation[-1][1]} if validation else None,
        "heldout": None if final is None else final.validation_loss,
        "unigram_entropy": None if final is None else final.unigram_entropy,
        "alarms": dict(Counter(alarm.rule for alarm in training.alarms)),
    }


def _scores(evaluations: Any) -> dict[str, Any]:
    final: Evaluation = evaluations[-1]
    return {
        "step": final.step,
        "checkpoints": len(evaluations),
        "rows": [{**asdict(row), "text": {name: row.text(name) for name in row.metrics}} for row in score_rows(final)],
        "perplexity": {corpus: numbers["perplexity"] for corpus, numbers in final.perplexity.items()},
    }


def _audit(facts: Facts, project: Project) -> dict[str, Any] | Missing:
    """The verdict that stage `report` reached over the checkpoint that is published now."""
    path = project.metrics / METRICS
    if isinstance(facts.training, Missing):
        return Missing("report", f"nothing to audit yet: {facts.training.reason}")
    try:
        metrics = json.loads(read_text(path))
        training: Training = facts.training
        if (metrics["run"], metrics["step"]) != (training.resolved.run_id, training.checkpoint.step):
            reason = f"audited was run {metrics['run']}, step {metrics['step']}; `dvc repro report` audits anew"
            return Missing("report", reason)
        audit: dict[str, Any] = metrics["audit"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Missing("report", f"{path.relative_to(project.root)}: not there ({error}); `dvc repro report` makes it")
    return audit
