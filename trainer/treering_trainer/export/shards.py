"""Writes tensors as safetensors, one tensor in memory at a time.

The format is a length, a JSON header and the bytes (https://github.com/huggingface/safetensors, README "Format"). The
library's writer needs all tensors of a file at once, and the order of its metadata changes from call to call.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from treering.errors import UserError
from treering.files import write_durably
from treering.progress import Progress

INDEX = "model.safetensors.index.json"

_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_ALIGNMENT = 8
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor to write.

    Attributes:
        name: in the file.
        shape: in the file.
        dtype: in the file.
        read: reads the tensor, in this shape and any type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def parse_size(text: str) -> int:
    """Reads a size such as `5GB`, `500MB` or `2GiB`.

    Returns:
        Bytes, at least one.

    Raises:
        UserError: the text is not a size.
    """
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    unit = _UNITS.get(match[2].upper() or "B") if match else None
    if match is None or unit is None or int(match[1]) < 1:
        raise UserError(f"{text!r} is not a size; expected a number with KB, MB, GB, KiB, MiB or GiB, such as 5GB")
    return int(match[1]) * unit


def write_shards(
    directory: Path,
    tensors: Sequence[OutputTensor],
    metadata: dict[str, str],
    max_size: int,
    progress: Progress,
) -> None:
    """Writes `model.safetensors`, or several and their index, named as Hugging Face's loader expects.

    Args:
        directory: the folder to write to.
        tensors: in the order of the files.
        metadata: of each file.
        max_size: largest size of a file's tensors in bytes; a larger tensor is alone in its file.
        progress: called before the first tensor and after each, with `write` and the bytes.

    Raises:
        UserError: a weight does not fit its type.
    """
    shards = _split(tensors, max_size)
    total = sum(tensor.size for tensor in tensors)
    names = ["model.safetensors"]
    if len(shards) > 1:
        names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    done = 0
    progress("write", done, total)
    for name, shard in zip(names, shards, strict=True):
        with (directory / name).open("wb") as file:
            file.write(_header(shard, metadata))
            for tensor in shard:
                file.write(_bytes(tensor))
                done += tensor.size
                progress("write", done, total)
    if len(shards) > 1:
        files = {tensor.name: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        index = {"metadata": {"total_size": total}, "weight_map": files}
        write_durably(directory / INDEX, json.dumps(index, indent=2) + "\n")


def _split(tensors: Sequence[OutputTensor], max_size: int) -> list[list[OutputTensor]]:
    shards: list[list[OutputTensor]] = [[]]
    size = 0
    for tensor in tensors:
        if shards[-1] and size + tensor.size > max_size:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.size
    return shards


def _header(tensors: Sequence[OutputTensor], metadata: dict[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": metadata}
    start = 0
    for tensor in tensors:
        offsets = [start, start + tensor.size]
        entries[tensor.name] = {"dtype": _DTYPES[tensor.dtype], "shape": tensor.shape, "data_offsets": offsets}
        start += tensor.size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: OutputTensor) -> memoryview:
    """A tensor's bytes in its type.

    Raises:
        UserError: a weight does not fit the type.
    """
    value = tensor.read()
    cast = value.to(tensor.dtype)
    if value.isfinite().all() and not cast.isfinite().all():
        raise UserError(
            f"{tensor.name}: a weight of {value.abs().max():g} does not fit {_DTYPES[tensor.dtype].lower()}; export "
            "with --dtype bf16 or fp32"
        )
    return cast.contiguous().flatten().view(torch.uint8).numpy().data
