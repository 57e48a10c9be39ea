"""The training loop: read, compare batches, train, append the ring. A step begins after the ring before is appended."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from treering.config.layout import RankCoordinates
from treering.config.resolved import Resolved
from treering.config.schedule import Schedule
from treering.errors import EvidenceError, NonFiniteLossError
from treering.metrics.flops import ModelShape, tflops_per_device
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter
from treering_trainer.core.batch_reader import BatchReader
from treering_trainer.core.engine import Engine, StepResult
from treering_trainer.core.evidence import Agreement, verify_batch
from treering_trainer.core.overflow import Overflows
from treering_trainer.core.timing import step_seconds
from treering_trainer.core.topology import limit_waiting
from treering_trainer.core.validation import Validator
from treering_trainer.monitor.heartbeat import HeartbeatWriter, Part
from treering_trainer.monitor.hooks import Hook

FLOPS_FORMULA = "megatron-2023"
"""The formula counts model FLOPs, without recomputation."""

_LAUNCHER_FIRST = 1.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the loop ended.

    Attributes:
        status: `finished` or `interrupted`.
        step: last step with a ring.
    """

    status: str
    step: int


class CheckpointSaver(Protocol):
    """How the loop saves checkpoints; `checkpointing.saver.Saver` writes them. Calls are collective."""

    @property
    def ready(self) -> bool:
        """Whether a checkpoint is being saved and this rank has done its part of it."""

    def start(self, step: int, applied_steps: int, validation_loss: float | None) -> None:
        """Begins to save the newest step, whose ring is appended."""

    def finish(self) -> None:
        """Finishes the checkpoint that is being saved, if any."""

    def take_waited_s(self) -> float | None:
        """Seconds that training has waited for saves since the last call; None where nothing was saved."""


class Loop:
    """One rank's loop over the steps of a run; collective, every rank runs it.

    Args:
        resolved: the run's config.
        coordinates: of this rank in the layout.
        engine: model and optimizer.
        batch_reader: reads and digests samples.
        validator: measures the held-out loss, None for no validation.
        rings: the attempt's ring writer on rank 0, None elsewhere.
        saver: saves checkpoints.
        hooks: all hooks as one hook that never raises.
        stop_requested: whether this process is asked to stop before a step.
        beat: sends heartbeats.
    """

    def __init__(
        self,
        *,
        resolved: Resolved,
        coordinates: RankCoordinates,
        engine: Engine,
        batch_reader: BatchReader,
        validator: Validator | None,
        rings: RingWriter[Ring] | None,
        saver: CheckpointSaver,
        hooks: Hook,
        stop_requested: Callable[[int], bool],
        beat: HeartbeatWriter,
    ) -> None:
        self._resolved = resolved
        self._coordinates = coordinates
        self._engine = engine
        self._batch_reader = batch_reader
        self._validator = validator
        self._rings = rings
        self._saver = saver
        self._hooks = hooks
        self._stop_requested = stop_requested
        self._beat = beat
        self._schedule: Schedule = resolved.schedule
        self._shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
        self._overflows = Overflows(resolved.recipe.optimizer.loss_scale)
        self._applied_steps = 0
        self._validation_loss: float | None = None
        self._record_s: float | None = None
        """Seconds in which the newest ring was made, which no other number contains; None before the first ring."""

    def run(self, start_step: int, applied_steps: int, validation_loss: float | None = None) -> Outcome:
        """Trains from the step after `start_step` to the end of the schedule, or until asked to stop.

        If training stops, the last step is saved as a checkpoint.

        Args:
            start_step: last step that is done.
            applied_steps: how many steps up to there changed the weights.
            validation_loss: the newest held-out loss up to there.

        Returns:
            How the loop ended.

        Raises:
            EvidenceError: ranks were fed different batches.
            NonFiniteLossError: loss or gradient norm is not finite, and `Overflows` ends the run; the ring is appended.
            OSError: a ring could not be written.
            TrainingError: the last step's checkpoint could not be written.
        """
        self._applied_steps = applied_steps
        self._validation_loss = validation_loss
        try:
            return self._train(start_step)
        except Exception as error:
            self._hooks.on_error(error)
            raise

    def _train(self, start_step: int) -> Outcome:
        self._hooks.before_training(start_step, self._schedule.num_steps)
        for step in range(start_step + 1, self._schedule.num_steps + 1):
            try:
                goes_on = self._step(step)
            except (EvidenceError, NonFiniteLossError):  # raised on every rank; an earlier checkpoint is still finished
                self._saver.finish()
                raise
            if not goes_on:
                # Saves the steps since the last scheduled checkpoint.
                if step - 1 > start_step and not self._saves(step - 1):
                    self._save(step - 1)
                self._saver.finish()
                return Outcome("interrupted", step - 1)
            if step == start_step + 1:  # what takes long once, such as compiling, is done
                timeout_s = self._resolved.attempt.parallel.rank_timeout_s
                # A launcher that reads heartbeats can name the stuck rank, so its limit comes first.
                limit_waiting(timeout_s * _LAUNCHER_FIRST if self._beat.shared else timeout_s)
        return Outcome("finished", self._schedule.num_steps)

    def _step(self, step: int) -> bool:
        """Trains one step; False if all ranks agreed to stop before it.

        Raises:
            NonFiniteLossError: the step's numbers end the run.
        """
        started = time.perf_counter()
        self._hooks.before_step(step)
        if self._record_s is not None:
            self._record_s += time.perf_counter() - started
        self._beat(Part.READ, step)
        started = time.perf_counter()
        lo, hi = self._schedule.sample_range(step)
        batch = self._batch_reader.read(lo, hi)
        self._beat(Part.AGREE, step)
        agreement = verify_batch(
            self._coordinates,
            self._engine.device,
            batch.digests,
            stop=self._stop_requested(step),
            ready=self._saver.ready,
        )
        if agreement.stop:
            return False
        data_wait_s = time.perf_counter() - started
        learning_rate = self._schedule.step_learning_rate(step)
        self._beat(Part.TRAIN, step)
        result = self._engine.train(step, batch.micro_batches, hi - lo, learning_rate)
        step_s = time.perf_counter() - started
        self._applied_steps += result.applied
        ended = time.perf_counter()
        times = step_seconds(self._coordinates, self._engine.device, step_s, data_wait_s, result.timing)
        self._report_own_step(step, step_s, hi - lo, result)
        record_s = time.perf_counter() - ended
        fatal = self._overflows.fatal(result)
        self._beat(Part.VALIDATE, step)
        validation = None
        if fatal is None and self._validates(step) and self._validator:
            started = time.perf_counter()
            validation = self._validator.run(self._engine)
            times["validation"] = time.perf_counter() - started
            loss = validation["loss"] if validation else math.nan
            self._validation_loss = loss if math.isfinite(loss) else None
        self._beat(Part.RECORD, step)
        if self._rings is not None:
            started = time.perf_counter()
            self._append_ring(
                self._rings,
                step,
                agreement=agreement,
                result=result,
                learning_rate=learning_rate,
                times=times,
                validation=validation,
            )
            self._record_s = record_s + time.perf_counter() - started
        if fatal is not None:
            raise NonFiniteLossError(
                f"run {self._resolved.run_id}: step {step}: {fatal}; the ring is appended, "
                f"`treering batch {self._resolved.run_id} {step}` shows what was read"
            )
        if agreement.ready:
            self._saver.finish()
        if self._saves(step):
            self._save(step)
        return True

    def _append_ring(
        self,
        rings: RingWriter[Ring],
        step: int,
        *,
        agreement: Agreement,
        result: StepResult,
        learning_rate: float,
        times: dict[str, float],
        validation: dict[str, Any] | None,
    ) -> Ring:
        lo, hi = self._schedule.sample_range(step)
        length = self._resolved.blend.sequence_length
        between_s = {"record": self._record_s, "checkpoint": self._saver.take_waited_s()}
        ring = rings.append(
            step=step,
            sample_start=lo,
            sample_end=hi,
            consumed_samples=self._resolved.consumed_samples(step),
            consumed_tokens=self._resolved.consumed_tokens(step),
            applied=result.applied,
            loss=result.loss,
            grad_norm=result.grad_norm,
            learning_rate=learning_rate,
            global_batch_size=hi - lo,
            loss_scale=result.loss_scale,
            time_s=times | {key: seconds for key, seconds in between_s.items() if seconds is not None},
            tokens_per_second=(hi - lo) * length / times["step"],
            tflops_per_device=self._tflops(hi - lo, times["step"]),
            flops_formula=FLOPS_FORMULA,
            validation=validation,
            batch_digest=agreement.batch_digest,
            ended_at=time.time(),
        )
        self._hooks.after_ring(ring)
        return ring

    def _report_own_step(self, step: int, step_s: float, batch_size: int, result: StepResult) -> None:
        """Gives the hooks this rank's own numbers of a step, by their keys of the metric catalog."""
        values = {
            "rank/step": step_s,
            "rank/compute": result.timing.compute_s,
            "rank/communication": result.timing.communication_s,
            "rank/tflops": self._tflops(batch_size, step_s),
        }
        self._hooks.after_step(step, values)

    def _tflops(self, batch_size: int, step_s: float) -> float:
        return tflops_per_device(
            FLOPS_FORMULA,
            self._shape,
            batch_size=batch_size,
            step_time_s=step_s,
            num_devices=self._coordinates.layout.world_size,
            recompute=self._resolved.attempt.parallel.activation_recompute == "full",
        )

    def _save(self, step: int) -> None:
        self._saver.start(step, self._applied_steps, self._validation_loss)

    def _validates(self, step: int) -> bool:
        config = self._resolved.attempt.validation
        return config is not None and (
            step % config.every_steps == 0 or step in (self._resolved.first_step, self._schedule.num_steps)
        )

    def _saves(self, step: int) -> bool:
        return step % self._resolved.attempt.checkpoint.every_steps == 0 or step == self._schedule.num_steps
