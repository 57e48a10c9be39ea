"""Hooks around the steps of a training: progress on the terminal, telemetry, and hooks of users.

A hook fails open: it may lose what it shows, and never ends a training. Provenance is not a hook (see `core.loop`).
`installed_hooks` finds the hooks that a config names.

Rules of a hook's life:

- Options are the keyword arguments of the hook. An unknown name, an unknown or missing option, or a refused value is an
  error of the config: exit 2 before anything starts, with the names that exist.
- Every rank has the hook; rings, checkpoints and incidents reach rank 0 only.
- The state of rank 0 is saved with every checkpoint in `hooks.json`, which the manifest lists. Every rank loads it when
  the run resumes, in another layout too. A hook without state in the checkpoint starts without state, and each rank's
  log says so. A run that starts from another run's checkpoint takes no state.
- A hook that raises is left out for the rest of the attempt, and later checkpoints lack its state; the rank's log gives
  the reason once. It is closed at the end like the others.
- Hooks are not part of a recipe, and a run may resume with others. The attempt's header records options, package and
  version. A hook's code is not in the code digest.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

from treering.collect.devices import node_devices, visible_index
from treering.collect.telemetry import RankTelemetry
from treering.foreign import say, shown
from treering.runlog.incidents import Incident
from treering.runlog.ring import Ring
from treering_trainer.monitor.terminal import Terminal

_WINDOW = 20
_PLAIN_INTERVAL_S = 10.0


class Hook:
    """The moments of a training, in the order in which they come; a hook overrides what it needs.

    Training waits for every call. A hook may read its arguments, write files and keep state. It must not change
    weights, gradients, random streams or torch's settings, and it must not communicate with other ranks: they may call
    the hook at another moment. An exception of a hook is logged, and training continues without the hook.

    Every rank makes its own hook from the options in the config. The launcher makes one as well, to find errors in the
    config. So `__init__` checks its arguments and does nothing else.
    """

    def before_training(self, start_step: int, num_steps: int) -> None:
        """On every rank, once, before the first step of the attempt: open files, start threads.

        Args:
            start_step: the last step that is done, 0 at the beginning of a run.
            num_steps: the last step of the schedule.
        """

    def before_step(self, step: int) -> None:
        """On every rank, before a step's samples are read; if training stops here, the step does not follow."""

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """On every rank, when a step is done and its ring is not appended yet: the place to read the rank's numbers.

        Args:
            step: the step.
            values: the rank's own numbers by their keys of the metric catalog.
        """

    def after_ring(self, ring: Ring) -> None:
        """On rank 0, when a step's ring is appended: the place to show or export the numbers of a step."""

    def after_checkpoint(self, step: int, seconds: float) -> None:
        """On rank 0, when a checkpoint is complete: copy it or announce it, and never change it.

        Args:
            step: the checkpoint's step; a later step may be done already.
            seconds: how long training waited for the checkpoint.
        """

    def after_incident(self, incident: Incident) -> None:
        """On rank 0, when something went wrong that does not end the training."""

    def on_error(self, error: Exception) -> None:
        """On every living rank, when an error ends the training: a hook can report the error, not change it."""

    def close(self) -> None:
        """On every rank, at the end in all cases, even if the hook failed: close files, end threads."""

    def state(self) -> Mapping[str, Any]:
        """On rank 0, when a checkpoint begins: what the hook needs to continue from it, as JSON values; empty for none.

        The hook has been called for all steps up to the checkpoint's.
        """
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """On every rank, before `before_training`, if the run continues from a checkpoint with the hook's state."""


class FailOpen(Hook):
    """Several hooks as one that never raises: a hook that fails is not called again, and the log has the reason.

    Args:
        hooks: in the order in which they are called.
        named: hooks of the config by name, called after those; their state is saved.
    """

    def __init__(self, hooks: Sequence[Hook], named: Mapping[str, Hook] = MappingProxyType({})) -> None:
        self._named = dict(named)
        self._all = [*hooks, *self._named.values()]
        self._failed: list[Hook] = []

    def before_training(self, start_step: int, num_steps: int) -> None:
        """Calls every hook."""
        self._call_all(lambda hook: hook.before_training(start_step, num_steps))

    def before_step(self, step: int) -> None:
        """Calls every hook."""
        self._call_all(lambda hook: hook.before_step(step))

    def after_step(self, step: int, values: Mapping[str, float]) -> None:
        """Calls every hook."""
        self._call_all(lambda hook: hook.after_step(step, values))

    def after_ring(self, ring: Ring) -> None:
        """Calls every hook."""
        self._call_all(lambda hook: hook.after_ring(ring))

    def after_checkpoint(self, step: int, seconds: float) -> None:
        """Calls every hook."""
        self._call_all(lambda hook: hook.after_checkpoint(step, seconds))

    def after_incident(self, incident: Incident) -> None:
        """Calls every hook."""
        self._call_all(lambda hook: hook.after_incident(incident))

    def on_error(self, error: Exception) -> None:
        """Calls every hook."""
        self._call_all(lambda hook: hook.on_error(error))

    def close(self) -> None:
        """Closes every hook, the last one first; a hook that failed before as well."""
        for hook in reversed(self._all):
            self._try(hook, lambda each: each.close())

    def state(self) -> dict[str, dict[str, Any]]:
        """The state of each named hook that has one, by name, as JSON values."""
        states: dict[str, dict[str, Any]] = {}
        for name, hook in self._named.items():
            if hook not in self._failed:

                def keep(each: Hook, name: str = name) -> None:
                    states[name] = _json_values(each.state())

                self._try(hook, keep)
        return {name: state for name, state in states.items() if state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Gives each named hook its state, and prints which hooks start without one.

        Args:
            state: the result of `state` when the checkpoint was saved.
        """
        for name, hook in self._named.items():
            if name in state:

                def load(each: Hook, name: str = name) -> None:
                    each.load_state(state[name])

                self._try(hook, load)
            elif type(hook).load_state is not Hook.load_state:
                say(f"hook {name} starts without state: the checkpoint has none of it")
        for name in state.keys() - self._named.keys():
            say(f"hook {name} is not in the config: its state in the checkpoint is not used")

    def _call_all(self, moment: Callable[[Hook], None]) -> None:
        for hook in self._all:
            if hook not in self._failed:
                self._try(hook, moment)

    def _try(self, hook: Hook, moment: Callable[[Hook], None]) -> None:
        try:
            moment(hook)
        except Exception as error:  # noqa: BLE001 - no error of a hook may end a training
            if hook not in self._failed:
                self._failed.append(hook)
                say(f"{type(hook).__name__} failed and is left out: {error!r}")


def _json_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a hook's state as it will be read from the checkpoint.

    Raises:
        TypeError: the state is not a mapping, or has a value without a JSON form.
        ValueError: the state has a number that is not finite.
    """
    values: dict[str, Any] = json.loads(json.dumps(dict(state), allow_nan=False))
    return values


class ProgressLine(Hook):
    """One line of progress: rewritten in place on a terminal, printed every ten seconds elsewhere.

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
        """Prints which steps will be trained."""
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
        """Prints that a checkpoint is complete."""
        self._say(f"step {step}  checkpoint saved in {seconds:.1f} s")

    def after_incident(self, incident: Incident) -> None:
        """Prints what went wrong."""
        self._say(f"step {incident.step}  {incident.title}: {incident.text}")

    def close(self) -> None:
        """Ends the line of progress and waits for the terminal."""
        if self._width:
            self._terminal.write("\n")
        self._terminal.close()

    def _say(self, text: str) -> None:
        text = shown(text)
        self._terminal.write(f"\r{text:<{self._width}}\n" if self._terminal.live else f"{text}\n")
        self._width = 0


class Telemetry(Hook):
    """Sends this rank's readings to the collector of its node, which the first rank of a node starts.

    Args:
        folder: the attempt's `telemetry/`.
        rank: global rank.
        local_rank: rank on this node, which names the device.
        ranks_here: ranks on this node.
        on_accelerator: whether ranks compute on accelerators.
        interval_s: seconds between two samples.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        local_rank: int,
        ranks_here: int,
        on_accelerator: bool,
        interval_s: float,
    ) -> None:
        index = None
        if on_accelerator:
            index = visible_index(node_devices(), local_rank, os.environ.get("CUDA_VISIBLE_DEVICES"))
        devices = () if index is None else (index,)
        self._telemetry = RankTelemetry(
            folder,
            rank=rank,
            devices=devices,
            first=local_rank == 0,
            interval_s=interval_s,
            ranks_here=ranks_here,
        )

    def before_training(self, start_step: int, num_steps: int) -> None:  # noqa: ARG002 - the hook's signature
        """Starts the telemetry's thread."""
        self._telemetry.start()

    def after_step(self, step: int, values: Mapping[str, float]) -> None:  # noqa: ARG002 - the hook's signature
        """Gives the rank's own numbers to the telemetry's thread."""
        self._telemetry.add(values)

    def close(self) -> None:
        """Takes a last sample and ends the thread."""
        self._telemetry.stop()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
