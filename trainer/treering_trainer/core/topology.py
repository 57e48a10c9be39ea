"""Ranks and their groups: DeepSpeed's pipeline topology and Megatron's tensor-parallel groups over the same ranks.

`treering.config.layout` orders the ranks (pipeline, data, tensor), tensor fastest. DeepSpeed's
`PipeModelDataParallelTopology` and megatron-core's default order agree on it, which is checked at start.
"""

import os
from datetime import timedelta
from typing import Any

import deepspeed
import torch
import torch.distributed
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from megatron.core import parallel_state
from numpy.typing import NDArray
from torch.distributed import distributed_c10d

from treering.config.layout import Layout, RankCoordinates
from treering_trainer.monitor.watchdog import START_TIMEOUT_S

_CONTACT_LOST = ("gloo/transport/", "NCCL communicator was aborted", "remote process exited", "Watchdog caught")
"""In what gloo's connections and NCCL say when another rank is gone or does not come."""


def pipe_topology(layout: Layout) -> PipeModelDataParallelTopology:
    """DeepSpeed's topology of a layout."""
    return PipeModelDataParallelTopology(num_pp=layout.pipeline, num_mp=layout.tensor, num_dp=layout.data)


def connect(local_rank: int) -> None:
    """Joins the default process group, on the device that fits the rank; does nothing if that has been done."""
    if torch.distributed.is_initialized():
        return
    # The shared-memory collective is inference only, and on a CPU it would be compiled here, for a minute or more.
    if "deepspeed_shm_comm" in deepspeed.ops.__compatible_ops__:
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.get_accelerator().set_device(local_rank)
    deepspeed.init_distributed(timeout=timedelta(seconds=START_TIMEOUT_S), verbose=False)


def join(layout: Layout) -> RankCoordinates:
    """Joins the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name and builds every group.

    Raises:
        RuntimeError: WORLD_SIZE is not the layout's, or the two libraries would order ranks differently.
    """
    rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    if world_size != layout.world_size:
        raise RuntimeError(
            f"WORLD_SIZE is {world_size}, but layout {layout} (TP x PP x DP) has {layout.world_size} ranks"
        )
    connect(local_rank)
    coordinate = pipe_topology(layout).get_coord(rank)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor, pipeline_model_parallel_size=layout.pipeline
    )
    coordinates = layout.coordinates(rank, local_rank)
    deepspeeds = (coordinate.model, coordinate.pipe, coordinate.data)
    megatrons = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_pipeline_model_parallel_rank(),
        parallel_state.get_data_parallel_rank(),
    )
    expected = (coordinates.tensor, coordinates.pipeline, coordinates.data)
    if not deepspeeds == megatrons == expected:
        raise RuntimeError(
            f"rank {rank}: (tensor, pipeline, data) are {megatrons} in megatron-core, {deepspeeds} in DeepSpeed, "
            f"expected {expected} in layout {layout}"
        )
    return coordinates


def limit_waiting(seconds: float) -> None:
    """Sets how long collectives wait for another rank, in every group that exists.

    DeepSpeed and megatron-core make groups of their own, with torch's default. gloo's point-to-point operations keep
    the timeout that their group was made with.

    Args:
        seconds: of one collective.
    """
    for group in list(distributed_c10d._world.pg_map):  # noqa: SLF001 - torch has no public way to all groups
        distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)  # noqa: SLF001


def is_contact_lost(error: BaseException) -> bool:
    """Whether an error only says that another rank is gone or does not come."""
    if isinstance(error, torch.distributed.DistNetworkError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _CONTACT_LOST)


def leave() -> None:
    """Takes the process group down."""
    parallel_state.destroy_model_parallel()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def join_alone(micro_batch_size: int = 1) -> RankCoordinates:
    """A process group of this process alone, for evaluation; a group that is there already is kept."""
    os.environ.setdefault("LOCAL_RANK", "0")
    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]  # torch imports it, outside its `__all__`
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(1, 1)
    return Layout(tensor=1, pipeline=1, data=1, micro_batch_size=micro_batch_size).coordinates(0)


def broadcast(value: Any) -> Any:
    """Rank 0's value on every rank; collective."""
    box = [value]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


def all_gather(tensor: torch.Tensor, size: int, group: torch.distributed.ProcessGroup | None = None) -> NDArray[Any]:
    """The tensors [...] of a group's ranks (None: of all) as one array [size, ...]; collective over the group."""
    parts = [torch.empty_like(tensor) for _ in range(size)]
    torch.distributed.all_gather(parts, tensor.contiguous(), group=group)
    stacked: NDArray[Any] = torch.stack(parts).cpu().numpy()
    return stacked
