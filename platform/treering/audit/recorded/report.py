"""The audit of a recorded run: its record checked, what its steps were fed, and what its restarts did to that."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Final

from treering.audit.recorded.content import Content
from treering.audit.recorded.feed import Feeds, StepFeed, reporting_ranks
from treering.audit.recorded.records import damaged_files, incomplete_ranks, lost_rings
from treering.audit.recorded.restart import Restart, judge_restart
from treering.audit.report import Finding, Judged, Level
from treering.errors import EvidenceError
from treering.runlog.mirror import NOT_MIRRORED
from treering.runlog.recorded_directory import RecordedRunDirectory, RecordedSegment
from treering.runlog.recorded_records import RecordedCheckpoint

_NOT_PROVEN: Final = (
    "Which documents the samples are from: the run reported digests of its tokens, and no data order.",
    "That the model was trained on these samples: the record is the trainer's own report.",
    "That nobody trained outside the record or rewrote all of it consistently: the record is not signed.",
)


Recompute = Callable[[Sequence[RecordedSegment], Sequence[Sequence[StepFeed]]], Content]


@dataclass(frozen=True, slots=True)
class RecordedAudit(Judged):
    """What the record of another trainer's run shows.

    Attributes:
        run: the run's id.
        experiment: of the run.
        state: of the run.
        checkpoint: the checkpoint that was asked about; None: the run as a whole.
        step: the last step of the path.
        level: `content-bound` where every sample was recomputed from the corpora, `recorded` where every step on the
            path reported its samples, else `declared`.
        steps: steps on the path.
        steps_without_samples: those of them that reported no tokens.
        steps_content_bound: steps whose samples were all recomputed from the corpora; None: not asked for.
        order: the data order that they were recomputed by; None: not asked for.
        samples: samples fed on the path.
        ranks: whose these are, in words; empty where no ring holds.
        different_samples: distinct samples among these.
        restarts: what each restart on the path did.
        findings: what does not hold; a restart that harmed the training is one.
        not_proven: what stays open.
    """

    run: str
    experiment: str
    state: str
    checkpoint: str | None
    step: int
    level: Level
    steps: int
    steps_without_samples: int
    steps_content_bound: int | None
    order: str | None
    samples: int
    ranks: str
    different_samples: int
    restarts: tuple[Restart, ...]
    findings: tuple[Finding, ...]
    not_proven: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line: `recorded: samples of 300 of 300 steps`, or `FAILED with 1 finding; …`."""
        bound = self.steps_content_bound
        reported = self.steps - self.steps_without_samples if bound is None else bound
        counted = f"{self.level}: samples of {reported:,} of {self.steps:,} steps"
        if self.holds:
            return counted
        return self.failed(counted)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {"verdict": self.verdict, "holds": self.holds, **asdict(self)}


def audit_recorded(
    run: RecordedRunDirectory,
    checkpoint: RecordedCheckpoint | None = None,
    content: Recompute | None = None,
) -> RecordedAudit:
    """Checks the record of a run, and compares what its attempts were fed.

    Args:
        run: the run.
        checkpoint: end of the path; default the newest step.
        content: recomputes the samples of a path, given its segments and what their steps were fed, from the corpora;
            None: not asked for.

    Raises:
        EvidenceError: the run's own document is missing or was changed.
    """
    record = run.record
    findings: list[Finding] = []
    feeds: list[StepFeed] = []
    found: Content | None = None
    ranks = ""
    restarts: list[Restart] = []
    try:
        segments = _path(run, checkpoint)
        ranks = reporting_ranks(segments)
        read = Feeds()
        by_segment = list(read.along(segments))
        feeds = list(chain.from_iterable(by_segment))
        restarts = list(_restarts(run, segments, by_segment, read))
        if content is not None:
            found = content(segments, by_segment)
            findings += found.findings
    except EvidenceError as error:
        findings.append(Finding.from_error(error, "ring"))
    findings += lost_rings(run)
    findings += incomplete_ranks(run)
    findings += [Finding("batch", each.text, step=each.after_step + 1) for each in restarts if each.fault]
    if checkpoint is not None:
        findings += damaged_files(checkpoint)
    bound, order = (None, None) if found is None else (found.steps, found.order)
    fed = Counter(sample for feed in feeds for sample in feed.samples)
    without = sum(not feed.samples for feed in feeds)
    return RecordedAudit(
        run=run.id,
        experiment=record.experiment,
        state=run.state(),
        checkpoint=None if checkpoint is None else checkpoint.path,
        step=feeds[-1].step if feeds else 0,
        level=_level(len(feeds), without, bound, findings),
        steps=len(feeds),
        steps_without_samples=without,
        steps_content_bound=bound,
        order=order,
        samples=fed.total(),
        ranks=ranks,
        different_samples=len(fed),
        restarts=tuple(restarts),
        findings=tuple(findings),
        not_proven=(
            *(_NOT_PROVEN if bound is None else _NOT_PROVEN[1:]),
            *([NOT_MIRRORED.format(run.mirror_doubt)] if run.mirror_doubt else ()),
        ),
    )


def _level(steps: int, without: int, bound: int | None, findings: Sequence[Finding]) -> Level:
    if not steps or without or findings:
        return Level.DECLARED
    return Level.RECORDED if bound is None else Level.CONTENT_BOUND


def _path(run: RecordedRunDirectory, checkpoint: RecordedCheckpoint | None) -> list[RecordedSegment]:
    if checkpoint is None:
        return run.path_to_end()
    return run.path_to(checkpoint.attempt, checkpoint.step)


def _restarts(
    run: RecordedRunDirectory,
    segments: Sequence[RecordedSegment],
    by_segment: Sequence[Sequence[StepFeed]],
    read: Feeds,
) -> Iterator[Restart]:
    """The restarts on a path, each with the path before it."""
    before: list[StepFeed] = []
    attempts = run.attempts()
    for segment, resumed in zip(segments, by_segment, strict=True):
        attempt = segment.attempt
        lost = read.abandoned(attempts, attempt)
        if (before or lost) and resumed:
            yield judge_restart(attempt.number, attempt.header.resumed_step, before, resumed, lost)
        before += resumed
