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
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final

from treering.errors import EvidenceError

_PICKLE: Final = "data.pkl"
_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
MAX_WORK: Final = 10_000_000
"""Items that the containers of a pickle may be asked for beyond those that its bytes name."""
MAX_DEPTH: Final = 100
"""Levels of tuples within tuples."""
MAX_PICKLE_BYTES: Final = 1 << 29
"""A longer pickle is not read: tensors stand beside it."""
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


class _Reader(pickle._Unpickler):  # noqa: SLF001 - the one whose work can be counted
    """An unpickler that looks nothing up, and whose time is in proportion to the bytes that it reads.

    It is the interpreter's own in Python, not the faster one in C, since only here the work can be counted: a hash of a
    tuple that holds a tuple twice doubles its time with every level, and 200 bytes name 60 levels.
    """

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(pickle._Unpickler.dispatch)  # noqa: SLF001

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._kinds: dict[tuple[str, str], type] = {}
        self._work = 0
        self._nested: dict[int, tuple[Any, int, int]] = {}

    def find_class(self, module: str, name: str) -> Any:
        key = (module, name)
        if key in _PLAIN:
            return partial(self._built, _PLAIN[key])
        if key not in self._kinds:
            self._kinds[key] = type(name, (Inert,), {"kind": f"{module}.{name}"})
        return self._kinds[key]

    def persistent_load(self, pid: Any) -> Any:
        """A tensor's storage: not read."""
        return Inert(pid)

    def _built(self, kind: type, *arguments: Any) -> Any:
        """A container of our own; its items may have been named many times."""
        for argument in arguments:
            if isinstance(argument, Sized):
                self.count(sum(map(self._weight, argument)) if isinstance(argument, Iterable) else len(argument))
        return kind(*arguments)

    def count(self, work: int) -> None:
        """Counts work that no byte of the file stands for."""
        self._work += work
        if self._work > MAX_WORK:
            raise ValueError(f"tuples and containers that are named again and again, more than {MAX_WORK:,} items")

    def _weight(self, item: Any) -> int:
        """The items that a hash of an object visits."""
        return self._nested[id(item)][1] if id(item) in self._nested else len(item) if type(item) is tuple else 1

    def count_hashes(self, keys: Iterable[Any]) -> None:
        self.count(sum(self._weight(key) for key in keys if type(key) is tuple))

    def note_tuple(self) -> None:
        """Notes a tuple that holds tuples."""
        made = self.stack[-1]
        inner = [item for item in made if type(item) is tuple]
        if inner:
            depth = 1 + max(self._nested[id(item)][2] if id(item) in self._nested else 1 for item in inner)
            if depth > MAX_DEPTH:
                raise ValueError(f"tuples within tuples, more than {MAX_DEPTH} levels")
            self._nested[id(made)] = (made, len(made) + sum(map(self._weight, inner)), depth)


def _tuple_load(load: Callable[[_Reader], None]) -> Callable[[_Reader], None]:
    def loaded(reader: _Reader) -> None:
        load(reader)
        reader.note_tuple()

    return loaded


def _hashing_load(load: Callable[[_Reader], None], keys: Callable[[list[Any]], list[Any]]) -> Callable[[_Reader], None]:
    def loaded(reader: _Reader) -> None:
        reader.count_hashes(keys(reader.stack))
        load(reader)

    return loaded


def _build_load(load: Callable[[_Reader], None]) -> Callable[[_Reader], None]:
    def loaded(reader: _Reader) -> None:
        state = reader.stack[-1] if reader.stack else None
        reader.count(len(state) if isinstance(state, Sized) else 1)
        load(reader)

    return loaded


for _code in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3):
    _Reader.dispatch[_code[0]] = _tuple_load(_Reader.dispatch[_code[0]])
for _code, _keys in (
    (pickle.SETITEM, lambda stack: stack[-2:-1]),
    (pickle.SETITEMS, lambda stack: stack[::2]),
    (pickle.DICT, lambda stack: stack[::2]),
    (pickle.ADDITEMS, lambda stack: stack),
    (pickle.FROZENSET, lambda stack: stack),
):
    _Reader.dispatch[_code[0]] = _hashing_load(_Reader.dispatch[_code[0]], _keys)
_Reader.dispatch[pickle.BUILD[0]] = _build_load(_Reader.dispatch[pickle.BUILD[0]])


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
        size = archive.getinfo(names[0]).file_size
        if size > MAX_PICKLE_BYTES:
            raise ValueError(f"{_PICKLE} of {size:,} bytes, expected at most {MAX_PICKLE_BYTES:,}")
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
