"""Reads a file of `torch.save` without torch, without its tensors, and without running its pickle.

Of a checkpoint of any size only `data.pkl` is read, by `treering.audit.megatron.unpickle`, which calls nothing that the
pickle names. Tensors become inert objects.

Source: torch 2.13.0, torch/serialization.py (the zip format since 1.6, the legacy format before) and
torch/distributed/checkpoint/metadata.py and filesystem.py.
"""

import io
import mmap
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

from treering.audit.megatron.unpickle import run_pickle
from treering.errors import EvidenceError
from treering.files import open_regular

_PICKLE: Final = "data.pkl"
_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
MOST_BYTES: Final = 1 << 28
"""Bytes of one pickle in a checkpoint."""
_LONGEST_TEXT: Final = 300


def read_saved(path: Path) -> dict[str, Any]:
    """The dictionary that `torch.save` wrote, with inert things for tensors and for objects.

    Raises:
        EvidenceError: the file cannot be read, torch did not write it, or it does not hold a dictionary.
    """
    with _damage(path, "a whole file of torch.save"), open_regular(path) as file:
        found = _read(file)
    if not isinstance(found, dict):
        kind, expected = type(found).__name__, "the dictionary of a checkpoint"
        raise EvidenceError(f"{path}: found {kind}, expected {expected}", file=path, found=kind, expected=expected)
    return found


def read_sharded(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Some objects that `torch.distributed.checkpoint` wrote beside the tensors; missing ones are left out.

    Args:
        path: the `.metadata` of the checkpoint, which holds file and position of each object.
        names: of the objects.

    Raises:
        EvidenceError: that file or one that it names cannot be read.
    """
    found = {}
    with _damage(path, "the metadata of a sharded checkpoint"), open_regular(path) as file:
        stored = run_pickle(io.BytesIO(_bounded(file))).state["storage_data"]
        places = {key.state["fqn"]: place.state for key, place in stored.items()}
    for name in names & places.keys():
        with _damage(path, f"the place of {name}"):
            shard = path.with_name(Path(places[name]["relative_path"]).name)
        with _damage(shard, f"{name} where {path.name} says"), open_regular(shard) as file:
            file.seek(places[name]["offset"])
            found[name] = _read(io.BytesIO(_bounded(file, places[name]["length"])))
    return found


def sharded_names(path: Path) -> Iterator[str]:
    """The names of the tensors and objects of a sharded checkpoint.

    Raises:
        EvidenceError: the metadata cannot be read.
    """
    with _damage(path, "the metadata of a sharded checkpoint"), open_regular(path) as file:
        held = run_pickle(io.BytesIO(_bounded(file))).state["state_dict_metadata"]
        names = [name for name in held if isinstance(name, str)]
    yield from names


@contextmanager
def _damage(path: Path, expected: str) -> Iterator[None]:
    """Turns every error of a damaged or hostile file into ours.

    Raises:
        EvidenceError: any error was raised inside.
    """
    try:
        yield
    except OSError as error:
        raise EvidenceError(
            f"{path}: {error.strerror or error}; expected {expected}", file=path, expected=expected
        ) from None
    except Exception as error:  # noqa: BLE001 - a damaged archive may raise anything
        found = f"{type(error).__name__}: {str(error)[:_LONGEST_TEXT]}"
        raise EvidenceError(
            f"{path}: cannot be read ({found}); expected {expected}", file=path, found=found, expected=expected
        ) from None


def _bounded(file: IO[bytes], size: int = -1) -> bytes:
    """The rest of a file, or so many bytes of it.

    Raises:
        ValueError: that is more than `MOST_BYTES`.
    """
    read = file.read(MOST_BYTES + 1 if size < 0 else min(size, MOST_BYTES + 1))
    if len(read) > MOST_BYTES:
        raise ValueError(f"a pickle of more than {MOST_BYTES:,} bytes")
    return read


def _read(file: BinaryIO) -> Any:
    return _read_zip(file) if zipfile.is_zipfile(file) else _read_legacy(file)


def _read_zip(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.rpartition("/")[2] == _PICKLE]
        if len(names) != 1:
            raise ValueError(f"{len(names)} entries named {_PICKLE}")
        with archive.open(names[0]) as member:
            return run_pickle(io.BytesIO(_bounded(member)))


def _read_legacy(file: BinaryIO) -> Any:
    """The format before zip: a magic number, a version and the machine's sizes, each a pickle, then the object."""
    file.seek(0)
    if isinstance(file, io.BytesIO):
        return _legacy_object(file)
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return _legacy_object(cast("IO[bytes]", mapped))


def _legacy_object(file: IO[bytes]) -> Any:
    if run_pickle(file) != _LEGACY_MAGIC:
        raise ValueError("no magic number of torch.save")
    for _ in ("version", "sizes"):
        run_pickle(file)
    return run_pickle(file)
