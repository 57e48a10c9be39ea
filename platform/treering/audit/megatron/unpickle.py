"""Runs the program of a pickle inside bounds, and without calling what it names.

A pickle is a program: it names functions and calls them. Here nothing that it names is looked up. Plain containers are
built by our own code. Every other name becomes an inert object that keeps its arguments and attributes. A program that
is deep, large, or made to take forever ends in an error that states the bound: 256 MiB; 2,500,000 operations and copied
items, about 60,000 tensors; in a key tuples within tuples up to 4 levels and 64 values; whole numbers of 64 bytes. In
an argument whole numbers go up to 10^15, texts and paths to 10,000 characters.

Source: CPython 3.11, Lib/pickletools.py (the operations and their arguments).
"""

import pickletools
import warnings
from collections.abc import Callable, Iterable
from typing import IO, Any, Final

MOST_OPERATIONS: Final = 2_500_000
"""Operations of one program; a checkpoint of Megatron has about 40 for each tensor that it names."""
DEEPEST_KEY: Final = 4
"""Levels of tuples in a key. Python hashes every level again, so a tuple that repeats doubles the time per level."""
LARGEST_KEY: Final = 64
"""Values in all tuples of one key."""
LONGEST_NUMBER: Final = 64
"""Bytes of a whole number."""

_DICTIONARY: Final = "collections.OrderedDict"
_SETS: Final = frozenset(
    {f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "frozenset")}
)
_CONSTANTS: Final = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "FLOAT", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip


class Inert:
    """Stands for an object of a class, a call of a function, or the name of either; it does nothing.

    Attributes:
        kind: module and name, as in the pickle.
        arguments: of the call.
        state: what the pickle set afterwards, for most objects their attributes.
    """

    __slots__ = ("arguments", "kind", "state")

    def __init__(self, kind: str, arguments: tuple[Any, ...] = ()) -> None:
        """Keeps a name and the arguments of its call."""
        self.kind = kind
        self.arguments = arguments
        self.state: Any = None

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def run_pickle(file: IO[bytes]) -> Any:
    """Runs the program that begins at a file's position, which then is after the program; returns its result.

    Raises:
        ValueError: the program is damaged, or exceeds a bound.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of escapes in texts of old pickles
        return _run(file)


def _run(file: IO[bytes]) -> Any:
    machine = _Machine()
    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(file)):
            if operation.name in _CONSTANTS:
                machine.push(argument)
            elif operation.name == "STOP":
                break
            else:
                machine.run(operation.name, argument)
            if count + machine.copied >= MOST_OPERATIONS:
                raise ValueError(f"a pickle of more than {MOST_OPERATIONS:,} operations and copied items")
        return machine.pop()
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged pickle ({type(error).__name__}: {error})") from None


class _Machine:
    """The stack of a pickle's program, with its memory.

    Attributes:
        copied: items that calls copied: a list that is copied again and again costs time but no bytes.
    """

    def __init__(self) -> None:
        self.copied = 0
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memory: dict[int, Any] = {}
        self._kinds: dict[str, Inert] = {}
        self._operations: dict[str, Callable[[Any], None]] = {
            "NONE": lambda _: self.push(None),
            "NEWTRUE": lambda _: self.push(True),
            "NEWFALSE": lambda _: self.push(False),
            "EMPTY_LIST": lambda _: self.push([]),
            "EMPTY_TUPLE": lambda _: self.push(()),
            "EMPTY_DICT": lambda _: self.push({}),
            "EMPTY_SET": lambda _: self.push(set()),
            "MARK": self._mark,
            "POP": self._drop,
            "POP_MARK": lambda _: self._drop_marked(),
            "DUP": lambda _: self.push(self._stack[-1]),
            "LIST": lambda _: self.push(self._marked()),
            "TUPLE": lambda _: self.push(tuple(self._marked())),
            "TUPLE1": lambda _: self.push((self.pop(),)),
            "TUPLE2": lambda _: self._tuple(2),
            "TUPLE3": lambda _: self._tuple(3),
            "DICT": lambda _: self.push(_filled({}, self._marked())),
            "FROZENSET": lambda _: self.push(_set_of(self._marked())),
            "APPEND": lambda _: self._append([self.pop()]),
            "APPENDS": lambda _: self._append(self._marked()),
            "ADDITEMS": lambda _: self._add(self._marked()),
            "SETITEM": lambda _: self._set_items([self.pop(), self.pop()][::-1]),
            "SETITEMS": lambda _: self._set_items(self._marked()),
            "MEMOIZE": lambda _: self._remember(len(self._memory)),
            "GLOBAL": lambda name: self._named(*name.split(" ", 1)),
            "STACK_GLOBAL": self._stack_global,
            "REDUCE": lambda _: self._call(),
            "NEWOBJ": lambda _: self._call(),
            "NEWOBJ_EX": self._new_with_names,
            "INST": lambda name: self.push(Inert(name.replace(" ", ".", 1), tuple(self._marked()))),
            "OBJ": self._object,
            "BUILD": self._build,
            "PERSID": lambda pid: self.push(Inert("storage", (pid,))),
            "BINPERSID": lambda _: self.push(Inert("storage", (self.pop(),))),
            "PROTO": lambda _: None,
            "FRAME": lambda _: None,
        }
        for name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._operations[name] = self._remember
        for name in ("GET", "BINGET", "LONG_BINGET"):
            self._operations[name] = lambda place: self.push(self._memory[place])

    def run(self, name: str, argument: Any) -> None:
        """One operation that does more than push a constant.

        Raises:
            ValueError: no checkpoint has this operation, or it asks for more than a bound allows.
        """
        operation = self._operations.get(name)
        if operation is None:
            raise ValueError(f"the operation {name}, which no checkpoint has")
        operation(argument)

    def push(self, value: Any) -> None:
        """Puts a value on the stack.

        Raises:
            ValueError: a whole number of more than `LONGEST_NUMBER` bytes.
        """
        if type(value) is int and value.bit_length() > 8 * LONGEST_NUMBER:
            raise ValueError(f"a number of {value.bit_length():,} bits, expected at most {8 * LONGEST_NUMBER}")
        self._stack.append(value)

    def pop(self) -> Any:
        """Takes the last value from the stack."""
        return self._stack.pop()

    def _mark(self, _: Any) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _marked(self) -> list[Any]:
        found, self._stack = self._stack, self._marks.pop()
        return found

    def _drop(self, _: Any) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._stack = self._marks.pop()

    def _drop_marked(self) -> None:
        self._marked()

    def _tuple(self, size: int) -> None:
        self._stack[-size:] = [tuple(self._stack[-size:])]

    def _remember(self, place: int) -> None:
        self._memory[place] = self._stack[-1]

    def _append(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Inert):
            raise TypeError(f"items for {type(target).__name__}")

    def _add(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, set):
            target.update(map(_key, items))
        elif not isinstance(target, Inert):
            raise TypeError(f"items for {type(target).__name__}")

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, dict):
            _filled(target, pairs)
        elif not isinstance(target, Inert):
            raise TypeError(f"entries for {type(target).__name__}")

    def _named(self, module: str, name: str) -> None:
        kind = f"{module}.{name}"
        self.push(self._kinds.setdefault(kind, Inert(kind)))

    def _stack_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise TypeError(f"a name of type {type(name).__name__}")
        self._named(module, name)

    def _call(self) -> None:
        arguments, named = self.pop(), self.pop()
        if not (isinstance(named, Inert) and isinstance(arguments, tuple)):
            raise TypeError(f"a call of {type(named).__name__}")
        self._push_called(named.kind, arguments)

    def _new_with_names(self, _: Any) -> None:
        self.pop()  # arguments by name
        self._call()

    def _object(self, _: Any) -> None:
        named, *arguments = self._marked()
        if not isinstance(named, Inert):
            raise TypeError(f"an object of {type(named).__name__}")
        self._push_called(named.kind, tuple(arguments))

    def _push_called(self, kind: str, arguments: tuple[Any, ...]) -> None:
        if (kind == _DICTIONARY or kind in _SETS) and arguments:
            self.copied += len(arguments[0])
        self.push(_called(kind, arguments))

    def _build(self, _: Any) -> None:
        state, target = self.pop(), self._stack[-1]
        if isinstance(target, Inert) and target is not self._kinds.get(target.kind):
            target.state = state
        elif not isinstance(target, dict):  # nothing here reads the attributes of a dictionary
            raise ValueError(f"attributes for {target!r}" if isinstance(target, Inert) else "attributes for a value")


def _called(kind: str, arguments: tuple[Any, ...]) -> Any:
    if kind == _DICTIONARY:
        pairs = arguments[0] if arguments else []
        return _filled({}, [each for pair in pairs for each in (pair[0], pair[1])])
    if kind in _SETS:
        items = _set_of(arguments[0] if arguments else [])
        return items if kind.endswith("frozenset") else set(items)
    return Inert(kind, arguments)


def _filled(target: dict[Any, Any], pairs: list[Any]) -> dict[Any, Any]:
    if len(pairs) % 2:
        raise ValueError("a key without a value")
    target.update(zip(map(_key, pairs[::2]), pairs[1::2], strict=True))
    return target


def _set_of(items: Iterable[Any]) -> frozenset[Any]:
    return frozenset(map(_key, items))


def _key(value: Any) -> Any:
    """A value that can be hashed in a bounded time.

    Raises:
        ValueError: tuples that are nested too deeply, or hold too many values.
        TypeError: a value that cannot be a key.
    """
    if value is None or isinstance(value, str | int | float | bytes | Inert):
        return value
    level, left = [value], LARGEST_KEY
    for _ in range(DEEPEST_KEY):
        below: list[Any] = []
        for each in level:
            if not isinstance(each, tuple):
                continue
            left -= len(each)
            if left < 0:
                raise ValueError(f"a key of more than {LARGEST_KEY:,} values")
            below += each
        if not below:
            break
        level = below
    if any(isinstance(each, tuple) and each for each in level):
        raise ValueError(f"a key of tuples that are nested deeper than {DEEPEST_KEY} levels")
    hash(value)
    return value
