"""Saves checkpoints for the loop: when a save begins and ends, how long training waits for it, what a failure means.

The loop knows this by its protocol `core.loop.CheckpointSaver`; `checkpoint` has the files.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treering.config.canonical import canonical_json
from treering.config.resolve import Resolved
from treering.errors import TrainingError
from treering.runlog.directory import HOOKS_FILE, RunDirectory
from treering.runlog.incidents import Incident, append_incident
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter
from treering_trainer.checkpointing import checkpoint, cleanup
from treering_trainer.core.engine import Engine
from treering_trainer.monitor.heartbeat import HeartbeatWriter, Part
from treering_trainer.monitor.hooks import Hook


@dataclass(frozen=True, slots=True)
class Record:
    """What rank 0 writes the run log with.

    Attributes:
        attempt: the attempt's directory.
        rings: the attempt's ring writer.
        facts: fields of a checkpoint's manifest that do not change during an attempt.
    """

    attempt: Path
    rings: RingWriter[Ring]
    facts: dict[str, Any]


class Saver:
    """Saves the checkpoints of an attempt, one at a time; every rank has one, and its calls are collective.

    Args:
        resolved: the run's config.
        run: the run's directory.
        engine: what to save.
        record: the run log on rank 0, None elsewhere.
        hooks: all hooks as one that never raises; told of checkpoints and incidents, asked for its state.
        beat: says what this rank is at.
    """

    def __init__(
        self,
        *,
        resolved: Resolved,
        run: RunDirectory,
        engine: Engine,
        record: Record | None,
        hooks: Hook,
        beat: HeartbeatWriter,
    ) -> None:
        self._resolved = resolved
        self._run = run
        self._engine = engine
        self._record = record
        self._hooks = hooks
        self._beat = beat
        self._saving: checkpoint.Saving | None = None
        self._saving_s = 0.0
        """Seconds that training has waited for it."""
        self._waited_s: float | None = None

    @property
    def ready(self) -> bool:
        """Whether a save is on its way and this rank has done its part of it."""
        return self._saving is not None and self._saving.ready

    def start(self, step: int, applied_steps: int, validation_loss: float | None) -> None:
        """Begins to save the step that was just recorded; ends the save before it, and this one where it must.

        Args:
            step: the step.
            applied_steps: how many steps moved the weights up to there.
            validation_loss: the newest held-out loss up to there.

        Raises:
            OSError: the rings could not be synced.
            TrainingError: the last step's checkpoint could not be written.
        """
        self._beat(Part.SAVE, step)
        facts: dict[str, Any] = {}
        documents: dict[str, str] = {}
        if self._record is not None:
            facts = {
                **self._record.facts,
                "consumed_samples": self._resolved.consumed_samples(step),
                "consumed_tokens": self._resolved.consumed_tokens(step),
                "applied_steps": applied_steps,
                "validation_loss": validation_loss,
            }
            states = self._hooks.state()
            documents = {HOOKS_FILE: f"{canonical_json(states)}\n"} if states else {}
        rings = self._record.rings if self._record is not None else None
        self.finish()
        self._saving_s = 0.0
        with self._counted():
            self._saving = checkpoint.Saving(self._engine, self._run, step, rings, facts, documents=documents)
        if self._resolved.attempt.checkpoint.finish == "before_next_step" or self._is_last(step):
            self.finish()

    def finish(self) -> None:
        """Ends the save that is on its way, if there is one.

        Raises:
            TrainingError: it was the last step's, and the checkpoint could not be written.
        """
        saving, self._saving = self._saving, None
        if saving is None:
            return
        self._beat(Part.SAVE, saving.step)
        with self._counted():
            failure = saving.finish()
            if failure is None and self._record is not None:
                cleanup.remove_old(self._run, self._resolved.attempt.checkpoint)
        if failure is not None:
            self._go_on_without(saving.step, failure)
        elif self._record is not None:
            self._hooks.after_checkpoint(saving.step, self._saving_s)

    def take_waited_s(self) -> float | None:
        """Seconds that training has waited for saves since this was last asked; None where nothing was saved."""
        waited_s, self._waited_s = self._waited_s, None
        return waited_s

    @contextmanager
    def _counted(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self._saving_s += seconds
        self._waited_s = (self._waited_s or 0.0) + seconds

    def _go_on_without(self, step: int, failure: str) -> None:
        """A checkpoint could not be saved: on record; only the last one is worth an end."""
        if self._record is not None:
            incident = Incident(step=step, kind="checkpoint_failed", text=failure, at=time.time())
            with suppress(OSError):  # the disk may be full to the last byte; the terminal is told as well
                append_incident(self._record.attempt, incident)
            self._hooks.after_incident(incident)
        if self._is_last(step):
            raise TrainingError(
                f"run {self._resolved.run_id}: the last step's checkpoint could not be saved: {failure}; expected "
                f"{self._run.checkpoints_folder} to be writable, with free space; the same command goes on from the "
                "newest checkpoint"
            )

    def _is_last(self, step: int) -> bool:
        return step == self._resolved.schedule.num_steps
