"""What happens around the steps without being part of them: progress for people, sensors for later.

A hook fails open: it may lose what it shows, it never ends a training. Provenance is no hook (see `loop`).
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from treering.collect.devices import collect_devices, visible_index
from treering.collect.nvml import open_nvml
from treering.collect.telemetry import StepReadings, TelemetrySampler, rank_sensors
from treering.foreign import say, shown
from treering.runlog.incidents import Incident
from treering.runlog.ring import Ring
from treering_trainer.monitor.terminal import Terminal

_WINDOW = 20
_PLAIN_INTERVAL_S = 10.0


class Hook:
    """The moments of a training, in the order in which they come; a hook overrides what it needs."""

    def before_training(self, start_step: int, num_steps: int) -> None:
        """Once, before the first step of this attempt."""

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """On every rank, when a step is done: the rank's own numbers by their keys of the metric catalog."""

    def after_ring(self, ring: Ring) -> None:
        """On rank 0, when a ring was laid."""

    def after_checkpoint(self, step: int, seconds: float) -> None:
        """On rank 0, when a checkpoint is complete."""

    def after_incident(self, incident: Incident) -> None:
        """On rank 0, when something went wrong that does not end the training."""

    def close(self) -> None:
        """Always, on the way out."""


class FailOpen(Hook):
    """Several hooks as one that never raises: a hook that fails is left out from then on, the reason is in the log.

    Args:
        hooks: in the order in which they are told.
    """

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = list(hooks)

    def before_training(self, start_step: int, num_steps: int) -> None:
        """Tells every hook."""
        self._tell(lambda hook: hook.before_training(start_step, num_steps))

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """Tells every hook."""
        self._tell(lambda hook: hook.after_step(step, values))

    def after_ring(self, ring: Ring) -> None:
        """Tells every hook."""
        self._tell(lambda hook: hook.after_ring(ring))

    def after_checkpoint(self, step: int, seconds: float) -> None:
        """Tells every hook."""
        self._tell(lambda hook: hook.after_checkpoint(step, seconds))

    def after_incident(self, incident: Incident) -> None:
        """Tells every hook."""
        self._tell(lambda hook: hook.after_incident(incident))

    def close(self) -> None:
        """Closes every hook, the last one first."""
        self._hooks.reverse()
        self._tell(lambda hook: hook.close())

    def _tell(self, moment: Callable[[Hook], None]) -> None:
        for hook in list(self._hooks):
            try:
                moment(hook)
            except Exception as error:  # noqa: BLE001 - whatever a terminal or a sensor does, training goes on
                self._hooks.remove(hook)
                say(f"{type(hook).__name__} failed and is left out: {error!r}")


class Progress(Hook):
    """One line of progress: rewritten in place on a terminal, printed now and then elsewhere.

    Args:
        stream: where to print.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._terminal = Terminal(stream or sys.stderr)
        self._times: deque[float] = deque(maxlen=_WINDOW)
        self._num_steps = 0
        self._printed_at = 0.0
        self._width = 0

    def before_training(self, start_step: int, num_steps: int) -> None:
        """Remembers the end, for the time that is left."""
        self._num_steps = num_steps
        self._say(
            f"training steps {start_step + 1} to {num_steps}" if start_step < num_steps else "nothing left to train"
        )

    def after_ring(self, ring: Ring) -> None:
        """Shows step, loss, rate, speed and the time that is left."""
        self._times.append(ring.time_s["step"])
        left_s = (self._num_steps - ring.step) * sum(self._times) / len(self._times)
        text = (
            f"step {ring.step}/{self._num_steps}  loss {ring.loss:.4f}  grad norm {ring.grad_norm:.2f}  "
            f"lr {ring.learning_rate:.2e}  batch {ring.global_batch_size}  {ring.tokens_per_second:,.0f} tokens/s  "
            f"{_clock(left_s)} left"
        )
        if ring.validation is not None:
            self._say(f"step {ring.step}  validation loss {ring.validation['loss']:.4f}")
        if self._terminal.live:
            self._terminal.write(f"\r{text:<{self._width}}")
            self._width = len(text)
        elif ring.step == self._num_steps or time.monotonic() - self._printed_at > _PLAIN_INTERVAL_S:
            self._printed_at = time.monotonic()
            self._say(text)

    def after_checkpoint(self, step: int, seconds: float) -> None:
        """Says that a checkpoint is complete."""
        self._say(f"step {step}  checkpoint saved in {seconds:.1f} s")

    def after_incident(self, incident: Incident) -> None:
        """Says what went wrong."""
        self._say(f"step {incident.step}  {incident.title}: {incident.text}")

    def close(self) -> None:
        """Leaves the terminal on a fresh line."""
        if self._width:
            self._terminal.write("\n")
        self._terminal.close()

    def _say(self, text: str) -> None:
        text = shown(text)
        self._terminal.write(f"\r{text:<{self._width}}\n" if self._terminal.live else f"{text}\n")
        self._width = 0


class Telemetry(Hook):
    """Samples this rank's node, device and steps beside the training thread.

    Args:
        folder: the attempt's `telemetry/`.
        rank: global rank.
        local_rank: rank on this node, which names the device.
        on_accelerator: whether ranks compute on accelerators.
        interval_s: seconds between two samples.
    """

    def __init__(self, folder: Path, *, rank: int, local_rank: int, on_accelerator: bool, interval_s: float) -> None:
        index = None
        if on_accelerator:
            nvml, _reason = open_nvml()
            index = visible_index(collect_devices(nvml), local_rank, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._steps = StepReadings()
        self._sampler = TelemetrySampler(
            folder / f"rank-{rank}.jsonl",
            rank=rank,
            interval_s=interval_s,
            sensors=(*rank_sensors(index), self._steps),
        )

    def before_training(self, start_step: int, num_steps: int) -> None:  # noqa: ARG002 - the hook's signature
        """Starts the sampler's thread."""
        self._sampler.start()

    def after_step(self, step: int, values: Mapping[str, float]) -> None:  # noqa: ARG002 - the hook's signature
        """Hands the rank's own numbers to the sampler's thread."""
        self._steps.add(values)

    def close(self) -> None:
        """Takes a last sample and ends the thread."""
        self._sampler.stop()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
