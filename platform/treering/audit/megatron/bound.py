"""Confirms a file of data paths, of which a checkpoint holds the name alone, by Megatron's index cache.

megatron-core describes a cached blend by its data paths, their samples, and its weights. A description with the data
paths and weights of the file binds the file. Descriptions with the run's settings and other data paths are a finding.

Source: megatron-core 0.4 to 0.19, megatron/core/datasets/blended_dataset.py.

Inputs that nothing confirms, why, and what binds them:

- A file of data paths (`--data-args-path`, `--per-split-data-args-path`): the checkpoint holds the file's name, not its
  content; a file newer than the checkpoint is named as such. megatron-core's index cache in `--data-cache-path` binds
  it, whose description of the blend has the same data paths and weights; or `data` in `megatron-run.yaml`.
- `--load` of another folder than `--save`: the steps before were launched by arguments that this folder does not show.
  The audit of that folder binds them.
- The version of Python, where its `sum` changes the weights of GPT-NeoX's `weight_by_num_documents`: the weights differ
  in the last bit, and near ties of the blend break otherwise. `--lineage gpt-neox-python3.12`, or `-python3.11`.
- Fill-in-the-middle (`--fim-data`, `--fim-rate`): tokens were moved within documents by random numbers; which documents
  were read holds. Nothing binds it.
- `--per-dataset-sequences-path`: the numbers of sequences came from a file. `data` in `megatron-run.yaml`.
- `--override-ckpt-iteration`: the run continued from another iteration than its checkpoint's. `iteration` or
  `consumed_samples`.
- An argument that no lineage has, that is set, and whose name can touch data: the order may depend on it; it is named
  with its value. A description without `checkpoint:`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treering.audit.megatron.report import Unbound
from treering.audit.report import Finding
from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.cache import CacheRead
from treering.data.megatron.cache_files import DescribedBlend, described_blends

_FEW: Final = 4
_EXACT: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Binding:
    """The inputs that a checkpoint only names, after a comparison with a cache.

    Attributes:
        unbound: inputs that remain unbound.
        bound: in words, each input that the cache binds.
        findings: inputs that the cache contradicts.
    """

    unbound: tuple[Unbound, ...]
    bound: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def bind_by_cache(unbound: Sequence[Unbound], cache: CacheRead, folder: Path | None) -> Binding:
    """Compares the files of data paths of a launch with its cache.

    Args:
        unbound: the inputs of the launch that are not bound.
        cache: the order of the launch, with the indices that were read.
        folder: today's place of `--data-cache-path`.
    """
    files = [each for each in unbound if each.field == "data"]
    if not files:
        return Binding(tuple(unbound))
    blend = cache.order.blend
    rest = tuple(each for each in unbound if each.field != "data")
    if not blend.blended:
        own = next((index for index in cache.read if index.component == 0), None)
        if own is None:
            return Binding(tuple(unbound))
        return Binding(rest, tuple(f"{each.what}: its data path is the one of {own.description}" for each in files))
    described = described_blends(blend, folder)
    for cached in described:
        if _agrees(cached, blend):
            return Binding(
                rest, tuple(f"{each.what}: its data paths and weights are those of {cached.path}" for each in files)
            )
    findings = [_contradiction(each, described, blend) for each in files if described]
    return Binding(tuple(unbound), (), tuple(findings))


def _agrees(cached: DescribedBlend, blend: MegatronBlend) -> bool:
    """Whether a description has the data paths of a blend, and its weights where it has any."""
    if cached.prefixes != blend.prefixes or (cached.requested != blend.requested()):
        return False
    shares = blend.shares
    return (
        shares is None
        or cached.weights is None
        or all(math.isclose(a, b, rel_tol=_EXACT) for a, b in zip(cached.weights, shares, strict=False))
    )


def _contradiction(file: Unbound, described: Sequence[DescribedBlend], blend: MegatronBlend) -> Finding:
    now = _shown(blend.prefixes, blend.shares)
    then = "; or ".join(_shown(each.prefixes, each.weights) for each in described[:_FEW])
    more = f", and {len(described) - _FEW} more" if len(described) > _FEW else ""
    return Finding(
        "record",
        f"{file.what}: it says {now}, the index cache of a run with this seed, sequence length and split says {then} "
        f"({', '.join(str(each.path) for each in described[:_FEW])}{more}): the file was changed since the launch, or "
        "the cache is another run's; the answers are by the file as it is. Give `data` in megatron-run.yaml",
        file=file.what.partition(": ")[0],
    )


def _shown(prefixes: Sequence[str], weights: Sequence[float] | None) -> str:
    named = [f"{weight:.6g} {prefix}" for weight, prefix in zip(weights or (), prefixes, strict=False)] or list(
        prefixes
    )
    return " ".join(named[:_FEW]) + (f" and {len(named) - _FEW} more" if len(named) > _FEW else "")
