"""Measures where the time of a step goes: on this rank by its own clock, and the pipeline's waiting over all ranks.

Nothing here changes a number of the training. Two places are wrapped: the calls of torch's process groups, from
DeepSpeed, megatron-core and tied embeddings alike, while a step runs; and the pipeline engine's table of instructions.

On a CPU a collective blocks, and the host's clock measures it. With an accelerator the host runs ahead: there, events
are recorded on the compute stream, so that communication which overlaps with computation does not count.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.distributed
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.pipe import schedule
from deepspeed.runtime.pipe.engine import PipelineEngine
from numpy.typing import NDArray

from treering.config.layout import RankCoordinates
from treering_trainer.core.topology import all_gather
from treering_trainer.monitor.heartbeat import HeartbeatWriter

Phase = Literal["forward_backward", "optimizer"]

_CALLS = (
    "_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_to_all_single", "allgather",
    "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base", "barrier",
    "broadcast", "gather", "recv", "recv_anysource", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip
_PASSES = (schedule.LoadMicroBatch, schedule.ForwardPass, schedule.BackwardPass)


@dataclass(frozen=True, slots=True)
class StepTiming:
    """One rank's seconds in one step of the engine.

    Attributes:
        forward_backward_s: until the update, without communication.
        optimizer_s: norm, clipping and update, without communication.
        communication_s: blocked in collectives and transfers between stages, waiting for the other ranks included.
            The three add up to the whole.
        passes_s: in the forward and backward passes of this rank's stage, with the exchanges between its tensor ranks;
            0 without a pipeline.
        pipeline_s: from the step's begin to the end of this stage's last pass; 0 without a pipeline.
    """

    forward_backward_s: float
    optimizer_s: float
    communication_s: float
    passes_s: float
    pipeline_s: float

    @property
    def compute_s(self) -> float:
        """Seconds in which the rank computed: the others wait for the rank with the most."""
        return self.forward_backward_s + self.optimizer_s


class StepTimer:
    """Splits the steps of one engine on one rank.

    Args:
        engine: DeepSpeed's engine; its instructions are timed where there is more than one stage.
    """

    _running: ClassVar["StepTimer | None"] = None

    def __init__(self, engine: PipelineEngine) -> None:
        self._on_accelerator = get_accelerator().device_name() != "cpu"
        self._phase: Phase = "forward_backward"
        self._spans: dict[Phase, list[tuple[Any, Any]]] = {}
        self._passes: list[tuple[Any, Any]] = []
        self._phase_s: dict[Phase, float] = {}
        self._phase_began = 0.0
        self._began: Any = None
        _watch_process_groups()
        if engine.num_stages > 1:
            engine._INSTRUCTION_MAP = {  # noqa: SLF001 - replaces the class's table for this engine
                kind: self._timed(run) if kind in _PASSES else run
                for kind, run in engine._INSTRUCTION_MAP.items()  # noqa: SLF001
            }

    def start(self) -> None:
        """Begins a step, with its forward and backward phase."""
        self._spans, self._phase_s, self._passes = {"forward_backward": [], "optimizer": []}, {}, []
        self._enter("forward_backward")
        self._began = self._now()
        StepTimer._running = self

    def optimizer_begins(self) -> None:
        """The gradients are complete; what follows is the update."""
        self._leave()
        self._enter("optimizer")

    def optimizer_ends(self) -> None:
        """The weights are updated; what follows counts as forward and backward again."""
        self._leave()
        self._enter("forward_backward")

    def stop(self) -> StepTiming:
        """Ends the step."""
        self._leave()
        StepTimer._running = None
        waited = {phase: sum(self._seconds(*span) for span in spans) for phase, spans in self._spans.items()}
        return StepTiming(
            forward_backward_s=self._phase_s["forward_backward"] - waited["forward_backward"],
            optimizer_s=self._phase_s.get("optimizer", 0.0) - waited["optimizer"],
            communication_s=sum(waited.values()),
            passes_s=sum(self._seconds(*span) for span in self._passes),
            pipeline_s=self._seconds(self._began, self._passes[-1][1]) if self._passes else 0.0,
        )

    def _enter(self, phase: Phase) -> None:
        self._phase, self._phase_began = phase, time.perf_counter()

    def _leave(self) -> None:
        if self._on_accelerator:
            get_accelerator().synchronize()
        seconds = time.perf_counter() - self._phase_began
        self._phase_s[self._phase] = self._phase_s.get(self._phase, 0.0) + seconds

    def _now(self) -> Any:
        if not self._on_accelerator:
            return time.perf_counter()
        event = get_accelerator().Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1e3 if self._on_accelerator else float(end - begin)

    def _timed(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if StepTimer._running is not self:
                return run(*args, **kwargs)
            begin = self._now()
            result = run(*args, **kwargs)
            self._passes.append((begin, self._now()))
            return result

        return timed

    @classmethod
    def watch(cls, owner: type, name: str) -> None:
        """Wraps a method of torch's communication classes: times it in a step, and marks the rank as waiting."""
        call = getattr(owner, name)

        @wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            timer, marker = cls._running, HeartbeatWriter.current
            begin = timer._now() if timer else None  # noqa: SLF001 - its own
            if marker:
                marker.waits(True)
            try:
                return call(*args, **kwargs)
            finally:
                if marker:
                    marker.waits(False)
                if timer:
                    timer._spans[timer._phase].append((begin, timer._now()))  # noqa: SLF001

        watched.__treering__ = True  # type: ignore[attr-defined]
        setattr(owner, name, watched)


def _watch_process_groups() -> None:
    """Wraps the calls of process groups, and the waiting for their results, once in a process."""
    if hasattr(torch.distributed.Work.wait, "__treering__"):
        return
    StepTimer.watch(torch.distributed.Work, "wait")
    for name in _CALLS:
        if hasattr(torch.distributed.ProcessGroup, name):
            StepTimer.watch(torch.distributed.ProcessGroup, name)


def step_seconds(
    coordinates: RankCoordinates, device: torch.device, step_s: float, data_wait_s: float, timing: StepTiming
) -> dict[str, float]:
    """The seconds of a step as its ring holds them; collective over all ranks.

    `step` and its parts `data_wait`, `forward_backward`, `communication` and `optimizer` are this rank's own. With
    several ranks, `compute_fastest` and `compute_slowest` are the least and the most seconds that a rank computed. With
    a pipeline, `pipeline` and `pipeline_bubble` are the results of `pipeline_wait`.

    Args:
        coordinates: of this rank in the layout.
        device: where its collectives run.
        step_s: the whole step.
        data_wait_s: seconds of it until the batch was read and compared with the other ranks.
        timing: of the engine.
    """
    times = {
        "step": step_s,
        "data_wait": data_wait_s,
        "forward_backward": timing.forward_backward_s,
        "communication": timing.communication_s,
        "optimizer": timing.optimizer_s,
    }
    if coordinates.layout.world_size == 1:
        return times
    own = torch.tensor([timing.compute_s, timing.passes_s, timing.pipeline_s], dtype=torch.float64, device=device)
    compute_s, passes_s, pipeline_s = all_gather(own, coordinates.layout.world_size).T
    times |= {"compute_fastest": float(compute_s.min()), "compute_slowest": float(compute_s.max())}
    if coordinates.layout.pipeline > 1:
        times["pipeline"], times["pipeline_bubble"] = pipeline_wait(passes_s, pipeline_s)
    return times


def pipeline_wait(passes_s: NDArray[np.float64], pipeline_s: NDArray[np.float64]) -> tuple[float, float]:
    """Seconds of a step's pipeline, and how many of them a stage waited, as the mean over ranks.

    All ranks begin a step together, so their clocks need not agree. The pipeline ends with the last pass of all ranks.
    A rank waits whenever it is not in a pass: for other stages, and while tensors travel. So the result includes the
    waiting of lighter stages for the heaviest stage, which the ideal bubble leaves out.

    Args:
        passes_s: seconds of each rank in passes, [R].
        pipeline_s: seconds of each rank until its last pass ended, [R].

    Returns:
        The pipeline's seconds, and the mean over ranks of the seconds in which a rank waited.
    """
    whole = float(pipeline_s.max())
    return whole, whole - float(passes_s.mean())
