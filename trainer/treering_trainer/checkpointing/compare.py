"""Compares the weights of pairs of checkpoints tensor by tensor, whatever layouts they were trained in.

    python -m treering_trainer.checkpointing.compare CHECKPOINT CHECKPOINT [CHECKPOINT CHECKPOINT …]

Prints one JSON document, with an entry for each pair. One tensor of each checkpoint is in memory at a time. The
optimizer's state is not compared.
"""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from treering.ending import run_command
from treering.errors import TrainingError

with contextlib.redirect_stdout(sys.stderr):  # DeepSpeed prints when it is imported
    from treering_trainer.checkpointing.weights import Weight, open_weights


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """One weight that is not the same in two checkpoints.

    Attributes:
        name: `<layer>.<parameter>`, as in `Weight`.
        first: shape and type in the first checkpoint; empty where it has no such weight.
        second: the same of the second.
        relative: norm of the difference over the norm of the first weight; None where shapes differ or a weight is
            missing.
        elements: how many elements differ; None likewise.
    """

    name: str
    first: str
    second: str
    relative: float | None
    elements: int | None


def compare_weights(first: Path, second: Path) -> tuple[int, list[WeightDifference]]:
    """Compares two checkpoints.

    Args:
        first: folder of one checkpoint.
        second: folder of the other.

    Returns:
        How many weights there are in both together, and those that differ in any bit.

    Raises:
        EvidenceError: a folder has no layer files.
    """
    one, other = ({weight.name: weight for weight in open_weights(each)} for each in (first, second))
    names = dict.fromkeys([*one, *other])
    return len(names), list(_differences({name: (one.get(name), other.get(name)) for name in names}))


def _differences(pairs: dict[str, tuple[Weight | None, Weight | None]]) -> Iterator[WeightDifference]:
    for name, pair in pairs.items():
        one, other = (None if weight is None else weight.full() for weight in pair)
        forms = _form(one), _form(other)
        if one is None or other is None or forms[0] != forms[1]:
            yield WeightDifference(name, forms[0], forms[1], None, None)
        elif unequal := int(torch.count_nonzero(_bits(one) != _bits(other))):
            norm = float(one.double().norm())
            change = float((one.double() - other.double()).norm())
            yield WeightDifference(name, forms[0], forms[1], change / norm if norm else math.inf, unequal)


def _form(tensor: torch.Tensor | None) -> str:
    return "" if tensor is None else f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the same width: NaN equals NaN, and 0 differs from -0."""
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(width[tensor.element_size()]) if tensor.element_size() in width else tensor


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and compares.

    Returns:
        0, or the exit code of the error; the document says whether weights differ.
    """
    parser = argparse.ArgumentParser(prog="compare", description="Compare the weights of pairs of checkpoints.")
    parser.add_argument("checkpoints", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _print(options.checkpoints),
        trouble="the comparison cannot read: {}; nothing was changed",
        trouble_code=TrainingError.exit_code,
        interrupted="; nothing was changed",
    )


def _print(checkpoints: Sequence[Path]) -> None:
    compared = [compare_weights(*pair) for pair in zip(checkpoints[::2], checkpoints[1::2], strict=True)]
    pairs = [{"weights": count, "differences": [asdict(each) for each in found]} for count, found in compared]
    sys.stdout.write(json.dumps(pairs) + "\n")


if __name__ == "__main__":
    sys.exit(main())
