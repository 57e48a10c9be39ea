"""Reads the tensors of a checkpoint: its weights as full tensors, whatever layout it was trained in.

The only module that calls `torch.load`, and it runs no code from a file.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from treering.errors import EvidenceError
from treering_trainer.core.engine import STATE_TAG

_LAYER_FILE = re.compile(r"^layer_(\d+)-model_(\d+)-model_states\.pt$")
_SPLIT_ROWS = re.compile(r"(word\.weight|linear_qkv\.(weight|bias)|linear_fc1\.(weight|bias))$")
_SPLIT_COLUMNS = re.compile(r"(linear_proj|linear_fc2)\.weight$")


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of a checkpoint, mapped from its files: nothing is read until it is used.

    Attributes:
        name: `<layer>.<parameter>`, where layer is the position in `model.build_layers`.
        parts: the part of each tensor rank, in order.
    """

    name: str
    parts: tuple[torch.Tensor, ...]

    def full(self, device: str = "cpu") -> torch.Tensor:
        """A copy of the whole tensor; on device `meta` only its shape and type, without reading."""
        parts = [part.to(device) for part in self.parts]
        if len(parts) > 1 and _SPLIT_ROWS.search(self.name):
            return torch.cat(parts, dim=0)
        if len(parts) > 1 and _SPLIT_COLUMNS.search(self.name):
            return torch.cat(parts, dim=1)
        return parts[0].clone()


def open_weights(directory: Path) -> list[Weight]:
    """All weights of a checkpoint in the order of its layers, for any layout that it was trained in.

    Args:
        directory: a checkpoint's folder; its files must not be changed while a weight is in use.

    Raises:
        EvidenceError: the folder has no layer files.
    """
    files: dict[int, dict[int, Path]] = {}
    for path in (directory / STATE_TAG).glob("layer_*.pt"):
        if match := _LAYER_FILE.match(path.name):
            files.setdefault(int(match[1]), {})[int(match[2])] = path
    if not files:
        expected = "layer_NN-model_NN-model_states.pt"
        raise EvidenceError(
            f"{directory / STATE_TAG}: no layer files, expected {expected}",
            file=directory / STATE_TAG,
            found="no layer files",
            expected=expected,
        )
    weights = []
    for layer, by_rank in sorted(files.items()):
        states = [open_state(by_rank[rank]) for rank in sorted(by_rank)]
        # Beside tensors, megatron-core's layers put an empty `_extra_state` into their state.
        names = [name for name, value in states[0].items() if isinstance(value, torch.Tensor)]
        weights += [Weight(f"{layer}.{name}", tuple(state[name] for state in states)) for name in names]
    return weights


def read_weights(directory: Path) -> dict[str, torch.Tensor]:
    """All weights of a checkpoint as full tensors on the CPU, by name: see `open_weights`."""
    return {weight.name: weight.full() for weight in open_weights(directory)}


def open_state(path: Path) -> dict[str, Any]:
    """The content of a checkpoint's file, with its tensors mapped; no code from the file is run."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)  # noqa: TID251 - the only call
    return state
