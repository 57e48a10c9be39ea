"""Compares the weights of pairs of checkpoints tensor by tensor, whatever layouts they were trained in.

    python -m treering_trainer.checkpointing.compare CHECKPOINT CHECKPOINT [CHECKPOINT CHECKPOINT …]

Prints one JSON document, with an entry for each pair. One tensor of each checkpoint is in memory at a time. Of the
optimizer's state the bytes are compared, where both checkpoints hold it in the same parts.
"""

import argparse
import contextlib
import json
import math
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from treering.ending import run_command
from treering.errors import TrainingError

with contextlib.redirect_stdout(sys.stderr):  # DeepSpeed prints when it is imported
    from treering_trainer.checkpointing.weights import Weight, open_weights
    from treering_trainer.core.engine import STATE_TAG

_CHUNK = 1 << 20
_DATA = "data/"
"""Folder of the tensors in a file that torch saved: a zip archive, whose other entries are pickled and not read."""


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


def compare_optimizers(first: Path, second: Path) -> tuple[int, int] | None:
    """Compares the optimizer's tensors of two checkpoints by their bytes.

    Args:
        first: folder of one checkpoint.
        second: folder of the other.

    Returns:
        How many tensors there are, and how many differ. None where the parts are others, as in another layout.
    """
    files = [{path.name: path for path in (each / STATE_TAG).glob("*optim_states.pt")} for each in (first, second)]
    if not files[0] or files[0].keys() != files[1].keys():
        return None
    count = unequal = 0
    for name, path in files[0].items():
        if not all(map(zipfile.is_zipfile, (path, files[1][name]))):
            return None
        with zipfile.ZipFile(path) as one, zipfile.ZipFile(files[1][name]) as other:
            stored = _stored(one), _stored(other)
            sizes = [{key: info.file_size for key, info in each.items()} for each in stored]
            if sizes[0] != sizes[1]:
                return None
            count += len(stored[0])
            unequal += sum(not _same(one, stored[0][key], other, stored[1][key]) for key in stored[0])
    return count, unequal


def _stored(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries with tensors, by their name below the archive's folder."""
    named = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    return {name: info for name, info in named.items() if name.startswith(_DATA)}


def _same(one: zipfile.ZipFile, info: zipfile.ZipInfo, other: zipfile.ZipFile, other_info: zipfile.ZipInfo) -> bool:
    with one.open(info) as left, other.open(other_info) as right:
        while chunk := left.read(_CHUNK):
            if chunk != right.read(_CHUNK):
                return False
    return True


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
    pairs = []
    for pair in zip(checkpoints[::2], checkpoints[1::2], strict=True):
        count, found = compare_weights(*pair)
        differences = [asdict(each) for each in found]
        pairs.append({"weights": count, "differences": differences, "optimizer": compare_optimizers(*pair)})
    sys.stdout.write(json.dumps(pairs) + "\n")


if __name__ == "__main__":
    sys.exit(main())
