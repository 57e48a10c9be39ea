"""Deterministic mode: the variables that it sets, and the operations that are known not to be deterministic without it.

What is said of GPUs is from documentation and was never run on one:

- NVIDIA, Megatron Core developer guide 0.20.0, "Deterministic Training" and "Determinism Operation Catalog": a ring's
  order of summation is fixed by the topology, cuBLAS needs a fixed workspace, `F.embedding` adds up with atomics.
- PyTorch, `torch.use_deterministic_algorithms` and `scaled_dot_product_attention`: operations with a deterministic form
  take it, the others raise an error.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from treering.runlog.records import Kernel, KnownNondeterminism, NondeterministicOperation

DETERMINISTIC_VARIABLES: Final = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring"}
"""What deterministic mode sets before a rank starts, where the variable is not set."""

_ATTENTION: Final = {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient"}


def known_nondeterminism(
    device: str, world_size: int, kernels: Iterable[Kernel], *, deterministic: bool
) -> KnownNondeterminism:
    """The operations of a training that are known to give other bits when they are repeated.

    Args:
        device: `cpu` or `cuda`.
        world_size: number of ranks.
        kernels: the operators that ran.
        deterministic: whether the attempt is in deterministic mode.
    """
    if device == "cpu":
        reason = (
            "none is known on processors: gloo and torch's kernels add up in a fixed order at one number of threads"
        )
        return KnownNondeterminism(reason=reason)
    if deterministic:
        reason = (
            "none is known in deterministic mode, by the documentation of torch, cuBLAS and NCCL; not tried on a GPU"
        )
        return KnownNondeterminism(reason=reason)
    found = tuple(_on_gpu(world_size, kernels))
    return KnownNondeterminism(operations=found, reason="by the documentation of torch, cuBLAS and NCCL; not tried")


def _on_gpu(world_size: int, kernels: Iterable[Kernel]) -> Iterator[NondeterministicOperation]:
    for kernel in kernels:
        if kernel.operation == "attention" and kernel.used in _ATTENTION:
            why = "its backward pass adds up with atomics"
            yield NondeterministicOperation(operation=f"attention ({kernel.used})", why=why)
    why = "its backward pass adds up with atomics, where a token occurs twice"
    yield NondeterministicOperation(operation="embedding", why=why)
    why = "cuBLAS may take another algorithm without CUBLAS_WORKSPACE_CONFIG"
    yield NondeterministicOperation(operation="matrix product", why=why)
    if world_size > 1:
        why = "NCCL may choose another algorithm without NCCL_ALGO=Ring"
        yield NondeterministicOperation(operation="all-reduce", why=why)
