"""What a checkpoint's files may hold: pickle runs the code that a file names, unless it knows what to expect."""

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address

from treering.errors import EvidenceError

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def _enum_member(kind: Any, name: str) -> Enum:
    """What Python before 3.11.4 writes as `getattr(kind, name)` for a member of an enumeration, and nothing else.

    Raises:
        pickle.UnpicklingError: the name is another attribute.
    """
    if not (isinstance(kind, type) and issubclass(kind, Enum) and name in kind.__members__):
        raise pickle.UnpicklingError(f"attribute {name!r} of {kind!r}. ")
    return kind[name]


# What DeepSpeed 0.19.8 puts into the optimizer's files beside tensors and plain values.
_STATE: list[Any] = [
    DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address, (_enum_member, "builtins.getattr"),
]  # fmt: skip


@contextmanager
def only_state(folder: Path) -> Iterator[None]:
    """Makes every `torch.load` inside, of any library, accept only tensors, plain values and DeepSpeed's state.

    DeepSpeed 0.19.8 passes `weights_only=False`, which only an environment variable overrides.

    Args:
        folder: the folder that is loaded, for the error.

    Raises:
        EvidenceError: a file holds something else; none of its code was run.
    """
    before = os.environ.get(_FORCE)
    os.environ[_FORCE] = "1"
    try:
        with torch.serialization.safe_globals(_STATE):
            yield
    except pickle.UnpicklingError as error:
        found = str(error).partition("WeightsUnpickler error: ")[2].partition(". ")[0].strip()
        raise EvidenceError(
            f"{folder}: holds more than training state, of which nothing was run ({found})",
            file=folder,
            found=found,
            expected="tensors, plain values and DeepSpeed's state",
        ) from error
    finally:
        if before is None:
            del os.environ[_FORCE]
        else:
            os.environ[_FORCE] = before
