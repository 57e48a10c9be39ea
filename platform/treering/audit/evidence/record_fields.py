"""The fields of config, headers and manifest, compared with each other and with the rings."""

from collections.abc import Iterator
from pathlib import Path

from treering.audit.evidence.rings import Recorded
from treering.audit.evidence.segments import Piece, RecordedSegment
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.resolved import CONFIG_FILE
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader


def check_records(checkpoint: CheckpointDirectory, recorded: Recorded) -> list[Finding]:
    """Compares config, headers and manifest with each other and with the rings.

    Each of these carries its own digest; this finds the one that was rewritten consistently in itself, but not with the
    others.
    """
    findings = [finding for piece in recorded.pieces for finding in _check_piece(piece)]
    if checkpoint.has_manifest:
        findings += _check_manifest(checkpoint, recorded)
    return list(dict.fromkeys(findings))  # attempts of one run share its config


def differs(file: Path, name: str, found: object, expected: object, by: str) -> Iterator[Finding]:
    """A finding where a field of a record is not what another record says."""
    if found != expected:
        text = f"{file}: {name} is {_shown(found)}, expected {_shown(expected)} by {by}"
        yield Finding("record", text, file=str(file))


def check_config(run: RunDirectory) -> Iterator[Finding]:
    """A run's config against itself: its blend against the recipe, which the run's id covers.

    Raises:
        EvidenceError: it cannot be read, or does not give its own digests.
    """
    config, recipe, blend = run.config_file, run.resolved.recipe, run.resolved.blend
    by = "{} in the same file, which the run's id covers"
    yield from differs(config, "blend", blend.digest, recipe.blend, by.format("recipe.blend"))
    yield from differs(config, "blend.tokenizer", blend.tokenizer, recipe.tokenizer, by.format("recipe.tokenizer"))


def _check_piece(piece: Piece) -> Iterator[Finding]:
    """A run's config against itself, and against the header of an attempt."""
    yield from check_config(piece.run)
    if isinstance(piece, RecordedSegment):
        yield from check_header(piece.run, piece.attempt, piece.attempt.header)


def check_header(run: RunDirectory, attempt: AttemptDirectory, header: AttemptHeader) -> Iterator[Finding]:
    """An attempt's header against its folder and the run's config.

    Raises:
        EvidenceError: the config cannot be read.
    """
    recipe, blend, config = run.resolved.recipe, run.resolved.blend, run.config_file
    file = attempt.header_file
    yield from differs(file, "attempt", header.attempt, attempt.number, "its folder")
    yield from differs(file, "run", header.run, recipe.digest, config.name)
    yield from differs(file, "blend", header.blend, recipe.blend, config.name)
    names = {digest: name for name, digest in header.corpora.items()}
    for number, component in enumerate(blend.components):
        opened = header.corpora.get(component.corpus)
        if component.digest in names and opened is None:
            field, by = f"blend.components.{number}.corpus", f"{file}, which opened that digest as it"
            yield from differs(config, field, component.corpus, names[component.digest], by)
        elif component.digest is not None and component.digest != opened:
            text = (
                f"{file}: as corpus {component.corpus} {opened or 'nothing'} was opened, expected "
                f"{component.digest} by the blend in {config}"
            )
            yield Finding("record", text, file=str(file), corpus=component.corpus)


def _check_manifest(checkpoint: CheckpointDirectory, recorded: Recorded) -> Iterator[Finding]:
    """The manifest against the run's config, the last attempt's header, and the rings."""
    manifest, file = checkpoint.manifest, checkpoint.manifest_file
    recipe, end, last = checkpoint.run.resolved.recipe, recorded.pieces[-1], recorded.last
    said: list[tuple[str, object, str]] = [
        ("run", recipe.digest, CONFIG_FILE),
        ("blend", recipe.blend, CONFIG_FILE),
        ("tokenizer", recipe.tokenizer, CONFIG_FILE),
        ("step", checkpoint.step, "its folder"),
    ]
    if isinstance(end, RecordedSegment):
        header = end.attempt.header
        by = f"the header of attempt {header.attempt}"
        said += [("code", header.code["digest"], by), ("environment", header.environment["digest"], by)]
        said += [("upstream", header.upstream, by), ("layout", header.layout, by)]
    if last is not None and last.step == manifest.step:
        by = f"the ring of step {last.step}"
        said += [("consumed_samples", last.consumed_samples, by), ("consumed_tokens", last.consumed_tokens, by)]
    if recorded.whole:
        said.append(("applied_steps", recorded.applied_steps, "the rings on the path"))
        if manifest.validation_loss is not None:  # None as well in what was saved before there was such a field
            said.append(("validation_loss", recorded.validation_loss, "the rings on the path"))
    for name, expected, by in said:
        yield from differs(file, name, getattr(manifest, name), expected, by)


def _shown(value: object) -> str:
    return short(value) + "…" if isinstance(value, str) and value.startswith("sha256:") else str(value)
