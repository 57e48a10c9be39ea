"""What a file of `torch.save` says, read without torch, without tensors, and without running what it may hold.

A pickle is a program: it names functions and calls them. Here nothing that it names is looked up. A short list of plain
containers is built by our own code; every other name becomes an inert class, whose instances keep what the pickle hands
them and do nothing. Tensors become such a thing as well: of a checkpoint of any size only its `data.pkl` is read.

Source: torch 2.13.0, torch/serialization.py (the zip format since 1.6, the legacy format before) and
torch/distributed/checkpoint/metadata.py and filesystem.py.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from treering.errors import EvidenceError

_PICKLE: Final = "data.pkl"
_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_PLAIN: Final[dict[tuple[str, str], type]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("__builtin__", "frozenset"): frozenset,
}
"""All that a pickle may build: containers of the interpreter itself, which do nothing and which nothing can change."""


class Inert:
    """Stands for an object of a class, or a call of a function, that a pickle names.

    Attributes:
        kind: module and name, as the pickle has them.
        arguments: what it was made or called with.
        state: what it was filled with afterwards, for most objects their attributes.
    """

    kind = ""
    arguments: tuple[Any, ...]
    state: Any

    def __new__(cls, *arguments: Any, **_named: Any) -> "Inert":
        """Takes whatever the pickle calls it with."""
        made = object.__new__(cls)
        made.arguments = arguments
        made.state = None
        return made

    def __init__(self, *_arguments: Any, **_named: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, _item: Any) -> None:
        """A list's; its items are not asked for."""

    def extend(self, _items: Any) -> None:
        """A list's."""

    def add(self, _item: Any) -> None:
        """A set's."""

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    def __repr__(self) -> str:
        return f"<{self.kind}>"


class _Reader(pickle.Unpickler):
    """An unpickler that looks nothing up."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._kinds: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        key = (module, name)
        if key in _PLAIN:
            return _PLAIN[key]
        if key not in self._kinds:
            self._kinds[key] = type(name, (Inert,), {"kind": f"{module}.{name}"})
        return self._kinds[key]

    def persistent_load(self, pid: Any) -> Any:
        """A tensor's storage: not read."""
        return Inert(pid)


def read_saved(path: Path) -> dict[str, Any]:
    """The dictionary that `torch.save` wrote, with inert things for tensors and for objects.

    Raises:
        EvidenceError: the file cannot be read, is none of torch's, or holds no dictionary.
    """
    with _damage(path, "a whole file of torch.save"), path.open("rb") as file:
        found = _read(file)
    if not isinstance(found, dict):
        raise EvidenceError(f"{path}: found {type(found).__name__}, expected the dictionary of a checkpoint")
    return found


def read_sharded(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Some objects that `torch.distributed.checkpoint` wrote beside the tensors; those that are there.

    Args:
        path: the `.metadata` of the checkpoint, which says in which file and where each of them stands.
        names: of the objects.

    Raises:
        EvidenceError: that file or one that it names cannot be read.
    """
    found = {}
    with _damage(path, "the metadata of a sharded checkpoint"), path.open("rb") as file:
        places = {key.state["fqn"]: place.state for key, place in _Reader(file).load().state["storage_data"].items()}
    for name in names & places.keys():
        shard = path.with_name(Path(places[name]["relative_path"]).name)
        with _damage(shard, f"{name} where {path.name} says"), shard.open("rb") as file:
            file.seek(places[name]["offset"])
            found[name] = _read(io.BytesIO(file.read(places[name]["length"])))
    return found


@contextmanager
def _damage(path: Path, expected: str) -> Iterator[None]:
    """Whatever a damaged or hostile file ends in, as our error."""
    try:
        yield
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror or error}; expected {expected}") from None
    except Exception as error:  # noqa: BLE001 - a pickle may raise anything
        raise EvidenceError(f"{path}: cannot be read ({type(error).__name__}: {error}); expected {expected}") from None


def _read(file: BinaryIO) -> Any:
    return _read_zip(file) if zipfile.is_zipfile(file) else _read_legacy(file)


def _read_zip(file: BinaryIO) -> Any:
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.rpartition("/")[2] == _PICKLE]
        if len(names) != 1:
            raise ValueError(f"{len(names)} entries named {_PICKLE}")
        with archive.open(names[0]) as member:
            return _Reader(member).load()  # type: ignore[arg-type]


def _read_legacy(file: BinaryIO) -> Any:
    """The format before zip: a magic number, a version and the machine's sizes, each a pickle, then the object."""
    file.seek(0)
    if _Reader(file).load() != _LEGACY_MAGIC:
        raise ValueError("no magic number of torch.save")
    for _ in ("version", "sizes"):
        _Reader(file).load()
    return _Reader(file).load()
