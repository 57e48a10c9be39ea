"""Decides where an attempt begins: at the first step, at a checkpoint, or not at all because the run is finished.

If code, environment and layout are unchanged, the run continues from the newest complete checkpoint. If one of them
changed, the run starts over unless the user asked to continue; the attempt's header records which. A finished run stays
finished, whatever changed, until the user asks to start it over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from treering.collect.code import code_difference
from treering.config.ancestry import ResolvedStart
from treering.errors import EvidenceError, UserError
from treering.runlog.chronicle import record_left
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader, AttemptLayout, CheckpointManifest, Parent
from treering_trainer.checkpointing import cleanup, relayout
from treering_trainer.checkpointing.plan import Plan
from treering_trainer.checkpointing.publish import check_provenance

_SHOWN = 6


def plan_attempt(
    run: RunDirectory,
    *,
    start: ResolvedStart | None,
    code: Mapping[str, Any],
    environment: Mapping[str, Any],
    layout: AttemptLayout,
    continue_changed: bool,
    start_over: bool,
) -> Plan:
    """Decides from what earlier attempts left where the next attempt begins; the caller holds the run's lock.

    Sets checkpoints aside that are not on the new path, and removes unfinished saves.

    Args:
        run: the run's directory.
        start: the checkpoint of another run that this run starts from, None for a new model.
        code: the code now, in its recorded form with `digest`.
        environment: the environment now, in its recorded form with `digest`.
        layout: the layout to train in.
        continue_changed: continue although code, environment or layout changed.
        start_over: train from the first step again, whatever earlier attempts left.

    Raises:
        UserError: the checkpoint to start from is missing, or too old to be loaded in another layout.
        EvidenceError: the checkpoint to start from does not hold.
        TrainingError: the checkpoint could not be converted for another layout.
    """
    messages = [f"removed the unfinished save {name}" for name in cleanup.remove_unfinished(run)]
    relayout.remove_unfinished(run)
    record_left(run)
    found, damaged = _newest_complete(run, messages)
    before = _attempt_before(run, found[0] if found else None)
    changed = differences(before, code, environment, layout) if before else ()
    if changed:
        messages.append(f"changed since attempt {before.attempt if before else 0}: {'; '.join(changed)}")
    resume = found is not None and not start_over and (not changed or continue_changed)
    number = _next_number(run)
    over = changed or (start_over and before is not None)
    origin: Literal["start", "resume", "restart"] = "resume" if resume else "restart" if over else "start"
    if not resume:
        found = None if start is None else _start_checkpoint(run, start)
    conversion = None
    if found and relayout.is_needed(found[0].layout, layout):
        conversion = relayout.convert(found[1])  # may fail, so before any checkpoint is set aside
        messages.append(conversion.message)
    _retire(run, found[1] if resume and found else None, damaged, messages)
    again = " again" if before and not resume else ""
    plan = Plan(attempt=number, origin=origin, changed=changed, continue_changed=continue_changed)
    if found is None:
        return replace(plan, messages=(*messages, f"attempt {number} starts from nothing{again}"))
    manifest, directory = found
    verb, whose = ("goes on", "") if resume else ("starts", f" of run {directory.run.id}{again}")
    messages.append(f"attempt {number} {verb} from the checkpoint of step {manifest.step}{whose}")
    return replace(_plan_from(plan, manifest, directory, conversion), messages=tuple(messages))


def _plan_from(
    plan: Plan,
    manifest: CheckpointManifest,
    directory: CheckpointDirectory,
    conversion: relayout.Conversion | None,
) -> Plan:
    """The plan of an attempt that begins at a checkpoint, or at its conversion."""
    resume = plan.origin == "resume"
    return replace(
        plan,
        checkpoint=conversion.path if conversion else directory.path,
        converted=conversion.digest if conversion else None,
        parent=Parent(
            run=manifest.run,
            attempt=manifest.attempt,
            step=manifest.step,
            ring=manifest.ring,
            checkpoint=directory.digest,
        ),
        start_step=manifest.step,
        applied_steps=manifest.applied_steps,
        validation_loss=manifest.validation_loss if resume else None,  # another run may measure on another blend
        random_states=manifest.random_states if resume else None,
        hooks=directory.hooks_file if resume and _lists(manifest, directory.hooks_file.name) else None,
    )


def _lists(manifest: CheckpointManifest, path: str) -> bool:
    return any(record.path == path for record in manifest.files)


@dataclass(frozen=True, slots=True)
class Finished:
    """A run with nothing left to train.

    Attributes:
        checkpoint: the checked checkpoint of its last step.
        changed: what changed since that checkpoint was made, in words.
    """

    checkpoint: CheckpointDirectory
    changed: tuple[str, ...]


def find_finished(
    run: RunDirectory,
    num_steps: int,
    *,
    code: Mapping[str, Any],
    environment: Mapping[str, Any],
    layout: AttemptLayout,
    continue_changed: bool,
) -> Finished | None:
    """The final checkpoint of a finished run; None where steps are left to train.

    A run stays finished when code, environment or layout change. If its final checkpoint does not hold, unchanged code
    trains the last steps again; changed code does so only if the user asks for it.

    Args:
        run: the run's directory.
        num_steps: steps of its schedule.
        code: the code now, in its recorded form with `digest`.
        environment: the environment now, in its recorded form with `digest`.
        layout: the layout to train in.
        continue_changed: continue although code, environment or layout changed.

    Raises:
        EvidenceError: the run is finished, its final checkpoint does not hold, and something changed.
    """
    attempts = run.attempts()
    if not attempts:
        return None
    end = attempts[-1].end
    finished = end is not None and end.status == "finished"
    final = None
    folder = run.checkpoint_folder(num_steps)
    problem = EvidenceError("it is missing", file=folder, found="no checkpoint", expected=f"step {num_steps}")
    for each in run.checkpoints():
        if each.step == num_steps:
            try:
                final = (check_provenance(run, each), each)
            except EvidenceError as error:
                problem = error
    header = attempts[-1].header if final is None else run.attempt(final[0].attempt).header
    changed = differences(header, code, environment, layout)
    if final is not None:
        # An unchanged run that was killed after its last checkpoint still has to record its end.
        return Finished(final[1], changed) if finished or (changed and not continue_changed) else None
    if finished and changed and not continue_changed:
        remedy = (
            "`--continue-changed` trains the missing steps again from the newest checkpoint that holds, "
            "`--start-over` all of them"
        )
        raise EvidenceError(
            f"{run.path}: the run is finished, and its checkpoint of step {num_steps} does not hold: {problem}. "
            f"Changed since: {'; '.join(changed)}. {remedy}",
            file=problem.file or folder,
            line=problem.line,
            step=problem.step,
            found=problem.found,
            expected=problem.expected,
            remedy=remedy,
        ) from problem
    return None


def final_checkpoint(run: RunDirectory, num_steps: int) -> CheckpointDirectory:
    """The checkpoint of the schedule's last step.

    Raises:
        EvidenceError: the checkpoint is missing.
    """
    for each in run.checkpoints():
        if each.step == num_steps:
            return each
    raise EvidenceError(
        f"{run.path}: training ended at step {num_steps} without its checkpoint; `treering train` goes on",
        file=run.checkpoint_folder(num_steps),
        found="no checkpoint",
        expected=f"step {num_steps}",
        remedy="`treering train` goes on",
    )


def differences(
    before: AttemptHeader, code: Mapping[str, Any], environment: Mapping[str, Any], layout: AttemptLayout
) -> tuple[str, ...]:
    """What changed and could change numbers, in words."""
    found: list[str] = []
    if text := code_difference(before.code, code):
        found.append(f"code ({text})")
    if before.environment["digest"] != environment["digest"]:
        parts = [
            f"{title} {name}"
            for key, title in (("numeric_packages", "package"), ("variables", "variable"))
            for name in _different(before.environment.get(key, {}), environment.get(key, {}))
        ]
        parts += [key for key in ("python", "device_kinds") if before.environment.get(key) != environment.get(key)]
        found.append(f"environment ({_listed(parts)})")
    if before.environment.get("threads_per_rank") != environment.get("threads_per_rank"):
        found.append(
            f"threads of a rank ({before.environment.get('threads_per_rank')} to {environment.get('threads_per_rank')})"
        )
    if before.layout != layout:
        found.append(f"layout ({before.layout} to {layout}, TP x PP x DP, or its micro-batch or device)")
    return tuple(found)


def _different(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _newest_complete(
    run: RunDirectory, messages: list[str]
) -> tuple[tuple[CheckpointManifest, CheckpointDirectory] | None, list[CheckpointDirectory]]:
    damaged: list[CheckpointDirectory] = []
    for each in reversed(run.checkpoints()):
        try:
            return (check_provenance(run, each), each), damaged
        except EvidenceError as error:
            messages.append(f"skipped checkpoint {each.path.name}: {error}")
            damaged.append(each)
    return None, damaged


def _start_checkpoint(run: RunDirectory, start: ResolvedStart) -> tuple[CheckpointManifest, CheckpointDirectory]:
    """The checkpoint of another run that a recipe starts from, checked.

    Raises:
        UserError: that run has no checkpoint of the step.
        EvidenceError: the checkpoint does not hold, or is another one than the recipe names.
    """
    other = run.ancestor(start.run)
    found = next((each for each in other.checkpoints() if each.step == start.step), None)
    if found is None:
        steps = ", ".join(str(each.step) for each in other.checkpoints()) or "none"
        raise UserError(
            f"{other.path}: no checkpoint of step {start.step}, where start_from starts; its steps are {steps}"
        )
    manifest = check_provenance(other, found)
    if manifest.run != start.run or manifest.consumed_samples != start.consumed_samples:
        raise EvidenceError(
            f"{found.path}: of run {manifest.run} after {manifest.consumed_samples} samples, expected "
            f"{start.run} after {start.consumed_samples} by start_from",
            file=found.path,
            found=(manifest.run, manifest.consumed_samples),
            expected=(start.run, start.consumed_samples),
        )
    return manifest, found


def _attempt_before(run: RunDirectory, manifest: CheckpointManifest | None) -> AttemptHeader | None:
    """The attempt to compare with: that of the checkpoint, or the last attempt without a checkpoint."""
    if manifest is not None:
        return run.attempt(manifest.attempt).header
    attempts = run.attempts()
    return attempts[-1].header if attempts else None


def _next_number(run: RunDirectory) -> int:
    numbers = [int(path.name) for path in run.attempts_folder.glob("[0-9]*") if path.name.isdecimal()]
    return max(numbers, default=0) + 1


def _retire(
    run: RunDirectory, kept: CheckpointDirectory | None, damaged: list[CheckpointDirectory], messages: list[str]
) -> None:
    """Sets every checkpoint aside that is damaged, or that the new attempt would write again."""
    for each in run.checkpoints():
        is_damaged = any(each.path == other.path for other in damaged)
        if not is_damaged and kept is not None and each.step <= kept.step:
            continue
        try:
            attempt = each.manifest.attempt
        except EvidenceError:
            attempt = 0
        target = cleanup.set_aside(run, each, attempt)
        messages.append(f"checkpoint {each.path.name} was set aside as {target.relative_to(run.path)}")
