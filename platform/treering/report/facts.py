"""What a project's stages have made, section by section; a missing section names the stage that makes it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from treering.config.resolved import Resolved
from treering.config.resolved_blend import ResolvedBlend
from treering.config.schema import Experiment
from treering.data.blend.continuation import resolve_run
from treering.data.blend.shares import component_shares
from treering.data.corpus.corpus import Corpus
from treering.data.curate.decisions import QUALITY, steps_of
from treering.errors import ConfigError, NotFoundError, TreeringError
from treering.files import read_text
from treering.metrics.alarms import Alarm
from treering.metrics.path_alarms import alarms_of
from treering.project import Project
from treering.runlog.ancestry import path_left
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import Evaluation
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class Missing:
    """A section that cannot be written yet.

    Attributes:
        stage: the stage that makes what is missing.
        reason: what was found and the command that helps.
    """

    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class CorpusDocuments:
    """Documents of one corpus on their way through curation.

    Attributes:
        corpus: its name; `total` for the sum.
        taken: documents that came in.
        dropped: by each step, in their order.
        rules: the same by step and rule.
        train: kept to train on.
        heldout: kept out of training.
    """

    corpus: str
    taken: int
    dropped: dict[str, int]
    rules: dict[str, dict[str, int]]
    train: int
    heldout: int


@dataclass(frozen=True, slots=True)
class CorpusTokens:
    """Tokens of one corpus of the blend.

    Attributes:
        corpus: its name.
        licence: of its documents.
        documents: to train on.
        train: tokens to train on.
        heldout: tokens held out.
        weight: share of the samples.
        samples: samples that the whole training takes, by the data order.
        planned_epochs: epochs that the weight asks for.
        epochs: epochs that the order reads.
    """

    corpus: str
    licence: str
    documents: int
    train: int
    heldout: int
    weight: str
    samples: int
    planned_epochs: float
    epochs: float


@dataclass(frozen=True, slots=True)
class Training:
    """The published training.

    Attributes:
        resolved: its config.
        checkpoint: the published checkpoint.
        rings: of its ancestry, one a step.
        alarms: of the rules of health, on loss and gradient norm.
        missing: what is missing of the path, empty where it is whole.
    """

    resolved: Resolved
    checkpoint: CheckpointDirectory
    rings: tuple[Ring, ...]
    alarms: tuple[Alarm, ...]
    missing: str

    @property
    def validation(self) -> list[tuple[Ring, float]]:
        """The rings after which held-out loss was measured, with it."""
        return [(ring, loss) for ring in self.rings if (loss := ring.validation_loss) is not None]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the report and the summary say, the audit aside; no `quality` where no classifier judged."""

    experiment: Experiment
    documents: tuple[CorpusDocuments, ...] | Missing
    quality: Mapping[str, Any] | None
    tokens: tuple[CorpusTokens, ...] | Missing
    training: Training | Missing
    evaluations: tuple[Evaluation, ...] | Missing

    @property
    def missing(self) -> list[Missing]:
        """The sections that cannot be written, in the pipeline's order."""
        sections = (self.documents, self.tokens, self.training, self.evaluations)
        return [section for section in sections if isinstance(section, Missing)]


_T = TypeVar("_T")


def read_facts(project: Project, experiment: Experiment, source: str) -> Facts:
    """Reads every section that exists.

    Args:
        project: where to look.
        experiment: whose pipeline it is.
        source: the experiment's file, for errors.
    """
    training = _section("train", lambda: _training(project, experiment, source))
    return Facts(
        experiment=experiment,
        documents=_section("curate", lambda: _documents(_curated(project))),
        quality=_judged(project),
        tokens=_section("tokenize", lambda: _tokens(project, experiment, source)),
        training=training,
        evaluations=_section("evaluate", lambda: _evaluations(project, training)),
    )


def _section(stage: str, read: Callable[[], _T]) -> _T | Missing:
    try:
        return read()
    except TreeringError as error:
        return Missing(stage, str(error))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Missing(stage, f"unreadable ({type(error).__name__}: {error}); `dvc repro -f {stage}` makes it anew")


def _curated(project: Project) -> dict[str, Any]:
    path = project.curated / "summary.json"
    if not path.exists():
        raise NotFoundError(f"{path.relative_to(project.root)}: not there; `dvc repro curate` makes it")
    summary: dict[str, Any] = json.loads(read_text(path))
    return summary


def _judged(project: Project) -> Mapping[str, Any] | None:
    """What the quality classifier did; None where there was none, or where the summary of curation is missing."""
    found = _section("curate", lambda: _curated(project).get(QUALITY))
    return None if isinstance(found, Missing) else found


def _documents(summary: dict[str, Any]) -> tuple[CorpusDocuments, ...]:
    steps = steps_of({step for corpus in summary["corpora"].values() for step in corpus["dropped"]})
    rows = [
        CorpusDocuments(
            corpus=name,
            taken=int(corpus["taken"]["documents"]),
            dropped={step: sum(corpus["dropped"].get(step, {}).values()) for step in steps},
            rules=corpus["dropped"],
            train=int(corpus["documents"].get("train", 0)),
            heldout=int(corpus["documents"].get("heldout", 0)),
        )
        for name, corpus in summary["corpora"].items()
    ]
    return (*rows, _total(rows, steps))


def _total(rows: list[CorpusDocuments], steps: Sequence[str]) -> CorpusDocuments:
    rules: dict[str, dict[str, int]] = {step: {} for step in steps}
    for row in rows:
        for step, by_rule in row.rules.items():
            for rule, count in by_rule.items():
                rules[step][rule] = rules[step].get(rule, 0) + count
    return CorpusDocuments(
        corpus="total",
        taken=sum(row.taken for row in rows),
        dropped={step: sum(row.dropped[step] for row in rows) for step in steps},
        rules=rules,
        train=sum(row.train for row in rows),
        heldout=sum(row.heldout for row in rows),
    )


def _tokens(project: Project, experiment: Experiment, source: str) -> tuple[CorpusTokens, ...]:
    blend = ResolvedBlend.read(project.blend)
    resolved = resolve_run(experiment, blend, source, runs=project.runs)
    schedule = resolved.schedule
    shares = component_shares(resolved.blend, *schedule.samples_of(resolved.first_step, schedule.num_steps))
    rows = []
    for share in shares:
        corpus = Corpus.open(project.corpus(share.corpus))
        heldout = project.corpus(share.corpus, "heldout")
        rows.append(
            CorpusTokens(
                corpus=share.corpus,
                licence=str(corpus.manifest["licence"]),
                documents=corpus.num_documents,
                train=corpus.num_tokens,
                heldout=Corpus.open(heldout).num_tokens if heldout.exists() else 0,
                weight=share.weight,
                samples=share.samples,
                planned_epochs=share.planned_epochs,
                epochs=share.epochs,
            )
        )
    return tuple(rows)


def _training(project: Project, experiment: Experiment, source: str) -> Training:
    folder = project.published.relative_to(project.root)
    run = RunDirectory(project.published)
    wanted = resolve_run(experiment, ResolvedBlend.read(project.blend), source, runs=project.runs).run_id
    if not run.config_file.exists() or not run.checkpoints():
        state = RunDirectory(project.run(wanted)).state()
        raise NotFoundError(
            f"{folder}: no published checkpoint, run {wanted} is {state}; `dvc repro train` trains it from where it is"
        )
    if run.id != wanted:
        raise ConfigError(
            str(folder), "", f"run {run.id}", f"run {wanted}, which {source} resolves to; `dvc repro train` trains it"
        )
    checkpoint = run.checkpoints()[-1]
    path = path_left(run, checkpoint)
    return Training(run.resolved, checkpoint, path.rings, tuple(alarms_of(run, path)), path.missing)


def _evaluations(project: Project, training: Training | Missing) -> tuple[Evaluation, ...]:
    if isinstance(training, Missing):
        raise NotFoundError(f"nothing to evaluate yet: {training.reason}")
    records = tuple(RunDirectory(project.run(training.resolved.run_id)).evaluations())
    if not records or records[-1].checkpoint != training.checkpoint.digest:
        raise NotFoundError(
            f"runs/{training.resolved.run_id}/evaluations: no scores of the published checkpoint; "
            "`treering evaluate` makes them"
        )
    return records
