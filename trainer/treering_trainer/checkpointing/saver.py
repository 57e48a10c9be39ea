"""Saves checkpoints for the loop: when a save begins and ends, how long training waits for it, what a failure does.

Implements the loop's protocol `core.loop.CheckpointSaver`; `checkpoint` writes the files.

DeepSpeed 0.19.8's own writers (`checkpoint.writer` of its config) were tried under its pipeline engine and are not
offered:

- `decoupled` hands the tensors that training changes to another process and relies on a commit before the next update.
  Only `DeepSpeedEngine.step` commits; `PipelineEngine` does not. In bf16 with ZeRO-1 the commit was still open four
  steps after the save, and the saved master weights were not those of the save. In fp32 it fails at once
  (`Cowardly refusing to serialize non-leaf tensor which requires_grad`).
- `fast` needs pinned memory and libaio: `Cannot access accelerator device when none is available` on a processor. Not
  tried on a GPU. By its source it names files `….pt-0.1`, which DeepSpeed's loading does not find.
- The `load` of both leaves `weights_only` at torch's default and refuses the optimizer's state
  (`Weights only load failed`, seen with the writer of type `python`).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treering.config.canonical import canonical_json
from treering.config.resolved import Resolved
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
    """What rank 0 needs to write the run log.

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
        hooks: all hooks as one hook that never raises; called for checkpoints, incidents and its state.
        beat: sends heartbeats.
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
        """Whether a checkpoint is being saved and this rank has done its part of it."""
        return self._saving is not None and self._saving.ready

    def start(self, step: int, applied_steps: int, validation_loss: float | None) -> None:
        """Begins to save the newest step; finishes the save before it, and this one where the config asks for it.

        Args:
            step: the step, whose ring is appended.
            applied_steps: how many steps up to there changed the weights.
            validation_loss: the newest held-out loss up to there.

        Raises:
            OSError: the rings could not be synced.
            TrainingError: the last step's checkpoint could not be written.
        """
        self._beat(Part.SAVE, step)
        facts: dict[str, Any] = {}
        states_after = self._engine.random_states(step + 1)
        documents: dict[str, str] = {}
        if self._record is not None:
            facts = {
                **self._record.facts,
                "consumed_samples": self._resolved.consumed_samples(step),
                "consumed_tokens": self._resolved.consumed_tokens(step),
                "applied_steps": applied_steps,
                "validation_loss": validation_loss,
                "random_states": states_after,
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
        """Finishes the checkpoint that is being saved, if any.

        Raises:
            TrainingError: the last step's checkpoint could not be written.
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
            self._record_failure(saving.step, failure)
        elif self._record is not None:
            self._hooks.after_checkpoint(saving.step, self._saving_s)

    def take_waited_s(self) -> float | None:
        """Seconds that training has waited for saves since the last call; None where nothing was saved."""
        waited_s, self._waited_s = self._waited_s, None
        return waited_s

    @contextmanager
    def _counted(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        self._saving_s += seconds
        self._waited_s = (self._waited_s or 0.0) + seconds

    def _record_failure(self, step: int, failure: str) -> None:
        """Records that a checkpoint could not be saved; training continues unless it was the last step's.

        Raises:
            TrainingError: it was the last step's.
        """
        if self._record is not None:
            incident = Incident(step=step, kind="checkpoint_failed", text=failure, at=time.time())
            with suppress(OSError):  # a full disk; the hooks report the incident as well
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
