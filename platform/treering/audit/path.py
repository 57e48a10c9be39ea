"""The way from a run's root to a checkpoint: attempts, rings against the schedule, records against each other.

Nothing here reads a token. It finds what the rings *say*; `treering.audit.content` holds that against the corpora.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from treering.audit.report import AttemptOnPath, Finding, PassedOver
from treering.config.canonical import short
from treering.config.resolve import RUN_ID_LENGTH, ResolvedBlend
from treering.config.schedule import Schedule
from treering.errors import ConfigError, EvidenceError
from treering.runlog.directory import CheckpointDirectory, PathSegment
from treering.runlog.ring import Ring


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps that one attempt did on the path.

    Attributes:
        segment: the attempt.
        first_step: first step of the stretch.
        last_step: last step of the stretch.
        schedule: which samples each step reads.
        blend: which tokens each sample is.
    """

    segment: PathSegment
    first_step: int
    last_step: int
    schedule: Schedule
    blend: ResolvedBlend

    @property
    def sample_range(self) -> tuple[int, int]:
        """The samples [lo, hi) that the stretch reads, by the schedule."""
        return self.schedule.samples_of(self.first_step, self.last_step)

    def describe(self) -> AttemptOnPath:
        """The stretch for a report."""
        header = self.segment.attempt.header
        return AttemptOnPath(
            run=self.segment.run.id,
            attempt=header.attempt,
            first_step=self.first_step,
            last_step=self.last_step,
            code=str(header.code["digest"]),
            environment=str(header.environment["digest"]),
            changed=header.changed,
            path=str(self.segment.attempt.path),
        )


def stretches_to(checkpoint: CheckpointDirectory) -> list[Stretch]:
    """The attempts that led to a checkpoint, each with the steps that count.

    Raises:
        EvidenceError: a manifest, header or config on the way is missing or was changed.
    """
    return stretches_of(checkpoint.run.path_to(checkpoint))


def stretches_of(path: Sequence[PathSegment]) -> list[Stretch]:
    """The same of a path whose last attempt counts to its `last_step`, or to its last ring.

    Raises:
        EvidenceError: as `stretches_to`.
    """
    found: list[Stretch] = []
    done = 0
    for segment in path:
        last = segment.attempt.last_step() if segment.last_step is None else segment.last_step
        if last <= done:
            raise EvidenceError(
                f"{segment.attempt.path}: goes on after step {done} but ends on the path at step {last}"
            )
        resolved = segment.run.resolved
        try:
            schedule = resolved.schedule
        except ConfigError as error:
            raise EvidenceError(
                f"{segment.run.path / 'resolved.json'}: no schedule can be made of it ({error})"
            ) from error
        _check_start(segment, found[-1] if found else None)
        found.append(Stretch(segment, done + 1, last, schedule, resolved.blend))
        done = last
    return found


def passed_over(stretches: Sequence[Stretch]) -> Iterator[PassedOver]:
    """The samples that runs on a path passed over where they started, by their recipes."""
    for before, stretch in pairwise(stretches):
        run, start = stretch.segment.run, stretch.segment.run.resolved.recipe.start_from
        if start is None or run.path == before.segment.run.path:
            continue
        lo, _ = stretch.sample_range
        expected = before.sample_range[1] if start.schedule == "continue" else 0
        if expected < lo:
            yield PassedOver(run.id, stretch.first_step, expected, lo)


def _check_start(segment: PathSegment, before: Stretch | None) -> None:
    """Holds where a run starts, by its recipe, against what stands before its first attempt on the path."""
    recipe, start = segment.run.resolved.recipe, segment.run.resolved.recipe.start_from
    came_from = None if before is None else (before.segment.run.resolved.recipe.digest, before.last_step)
    if came_from is not None and came_from[0] == recipe.digest:
        return
    expected = None if start is None else (start.run, start.step)
    if came_from != expected:
        raise EvidenceError(
            f"{segment.attempt.path / 'header.json'}: the path comes from {_place(came_from)}, expected "
            f"{_place(expected)} by start_from in {segment.run.path / 'resolved.json'}"
        )


def _place(place: tuple[str, int] | None) -> str:
    return "nothing" if place is None else f"step {place[1]} of run {short(place[0], RUN_ID_LENGTH)}"


@dataclass(slots=True)
class Recorded:
    """What the rings of a path say.

    Attributes:
        stretches: the attempts of the path.
        steps: rings that stand in the chain with the schedule's range.
        applied_steps: rings whose step moved the weights.
        validation_loss: newest held-out loss that the checkpoint's own run measured.
        last: the last ring that stands in the chain.
        batch_digests: the digest of each step's batch, as laid, from step 1 on.
        findings: what does not hold.
    """

    stretches: list[Stretch]
    steps: int = 0
    applied_steps: int = 0
    validation_loss: float | None = None
    last: Ring | None = None
    batch_digests: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def where(self, step: int) -> tuple[Path, int]:
        """File and line (from 1) of the ring of a step on the path."""
        stretch = next(each for each in self.stretches if each.last_step >= step)
        return stretch.segment.attempt.rings_file, step - stretch.first_step + 1


def read_path(checkpoint: CheckpointDirectory, stretches: list[Stretch]) -> Recorded:
    """Walks the rings to a checkpoint, checks chain and seams, and holds each ring against the schedule."""
    recorded = Recorded(stretches)
    consumed_samples = consumed_tokens = 0
    try:
        for stretch, ring in _with_stretch(checkpoint, stretches):
            lo, hi = stretch.schedule.sample_range(ring.step)
            consumed_samples += hi - lo
            consumed_tokens += (hi - lo) * stretch.blend.sequence_length
            expected = {
                "sample_start": lo,
                "sample_end": hi,
                "global_batch_size": hi - lo,
                "consumed_samples": consumed_samples,
                "consumed_tokens": consumed_tokens,
                "learning_rate": stretch.schedule.step_learning_rate(ring.step),
            }
            wrong = [name for name, value in expected.items() if getattr(ring, name) != value]
            if wrong:
                file, line = recorded.where(ring.step)
                said = ", ".join(f"{name} {getattr(ring, name)}, expected {expected[name]}" for name in wrong)
                recorded.findings.append(
                    Finding(
                        "ring",
                        f"{file} line {line}: ring of step {ring.step} says {said} by the run's schedule",
                        file=str(file),
                        line=line,
                        step=ring.step,
                    )
                )
            recorded.steps += not wrong
            recorded.applied_steps += ring.applied
            if ring.validation_loss is not None and stretch.segment.run.path == checkpoint.run.path:
                recorded.validation_loss = ring.validation_loss
            recorded.batch_digests.append(ring.batch_digest)
            recorded.last = ring
    except EvidenceError as error:
        # The chain broke after the rings that were read: the next one on the path is the one that does not hold.
        step = len(recorded.batch_digests) + 1
        if step <= stretches[-1].last_step:
            file, line = recorded.where(step)
            recorded.findings.append(Finding("ring", str(error), file=str(file), line=line, step=step))
        else:
            recorded.findings.append(Finding("ring", str(error), file=str(checkpoint.path / "manifest.json")))
    return recorded


def _with_stretch(checkpoint: CheckpointDirectory, stretches: list[Stretch]) -> Iterator[tuple[Stretch, Ring]]:
    remaining = iter(stretches)
    stretch = next(remaining)
    for ring in checkpoint.run.path_rings(checkpoint):
        while ring.step > stretch.last_step:
            stretch = next(remaining)
        yield stretch, ring


def check_records(checkpoint: CheckpointDirectory, recorded: Recorded) -> list[Finding]:
    """Holds config, headers and manifest against each other and against the rings.

    Each of these carries its own digest; this finds the one that was rewritten consistently in itself, but not with the
    others.
    """
    findings: list[Finding] = []

    def expect(file: Path, name: str, found: object, expected: object, by: str) -> None:
        finding = Finding(
            "record", f"{file}: {name} is {_shown(found)}, expected {_shown(expected)} by {by}", file=str(file)
        )
        if found != expected and finding not in findings:  # attempts of one run share its config
            findings.append(finding)

    for stretch in recorded.stretches:
        resolved = stretch.segment.run.resolved
        config = stretch.segment.run.path / "resolved.json"
        expect(config, "recipe.blend", resolved.recipe.blend, resolved.blend.digest, "the blend in the same file")
        expect(config, "recipe.tokenizer", resolved.recipe.tokenizer, resolved.blend.tokenizer, "the blend's tokenizer")
        header, file = stretch.segment.attempt.header, stretch.segment.attempt.path / "header.json"
        expect(file, "attempt", header.attempt, stretch.segment.attempt.number, "its folder")
        expect(file, "run", header.run, resolved.recipe.digest, config.name)
        expect(file, "blend", header.blend, resolved.recipe.blend, config.name)
        for component in resolved.blend.components:
            opened = header.corpora.get(component.corpus)
            if component.digest is not None and component.digest != opened:
                text = (
                    f"{file}: as corpus {component.corpus} {opened or 'nothing'} was opened, expected "
                    f"{component.digest} by the blend in {config}"
                )
                findings.append(Finding("record", text, file=str(file), corpus=component.corpus))

    manifest, file = checkpoint.manifest, checkpoint.path / "manifest.json"
    resolved, header = checkpoint.run.resolved, recorded.stretches[-1].segment.attempt.header
    expect(file, "run", manifest.run, resolved.recipe.digest, "resolved.json")
    expect(file, "blend", manifest.blend, resolved.recipe.blend, "resolved.json")
    expect(file, "tokenizer", manifest.tokenizer, resolved.recipe.tokenizer, "resolved.json")
    expect(file, "step", manifest.step, checkpoint.step, "its folder")
    expect(file, "code", manifest.code, header.code["digest"], f"the header of attempt {header.attempt}")
    expect(
        file,
        "environment",
        manifest.environment,
        header.environment["digest"],
        f"the header of attempt {header.attempt}",
    )
    expect(file, "upstream", manifest.upstream, header.upstream, f"the header of attempt {header.attempt}")
    expect(file, "layout", manifest.layout, header.layout, f"the header of attempt {header.attempt}")
    if recorded.last is not None and recorded.last.step == manifest.step:
        last = recorded.last
        expect(
            file, "consumed_samples", manifest.consumed_samples, last.consumed_samples, f"the ring of step {last.step}"
        )
        expect(file, "consumed_tokens", manifest.consumed_tokens, last.consumed_tokens, f"the ring of step {last.step}")
        expect(file, "applied_steps", manifest.applied_steps, recorded.applied_steps, "the rings on the path")
        if manifest.validation_loss is not None:  # None as well in what was saved before there was such a field
            expect(file, "validation_loss", manifest.validation_loss, recorded.validation_loss, "the rings on the path")
    return findings


def _shown(value: object) -> str:
    return short(value) + "…" if isinstance(value, str) and value.startswith("sha256:") else str(value)
