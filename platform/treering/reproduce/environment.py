"""The environment of a run: compared with the one that is here, or made again as a virtual environment."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from treering.collect.devices import node_devices
from treering.collect.environment import collect_environment
from treering.errors import EvidenceError, UserError
from treering.foreign import say
from treering.metrics.environments import EnvironmentDifference, compare_environments
from treering.reproduce.items import CLOSE_NUMBERS, Item
from treering.runlog.document import read_document, write_document

_MADE_FILE: Final = "made.json"
_OWN: Final = frozenset({"pip", "setuptools", "wheel"})
_FIRST: Final = ("torch",)
"""Installed first and alone, as `make setup` does: a later range must not replace it."""

_REMEDY: Final[Mapping[str, str]] = {
    "python": "--environment, where that Python is installed",
    "package": "--environment",
    "device": "a machine with that device",
    "driver": "that driver",
}


def environment_items(recorded: Mapping[str, Any], name: str, *, recorded_python: bool = False) -> Iterator[Item]:
    """What of a recorded environment is the same here.

    Args:
        recorded: the environment of an attempt's header.
        name: which attempt, in words; empty for all.
        recorded_python: whether its Python and packages are installed again.
    """
    found = compare_environments(recorded, collect_environment(node_devices()))
    numeric = [each for each in found.differences if each.numeric or each.kind == "driver"]
    others = len(found.differences) - len(numeric)
    variables = [each for each in numeric if each.kind == "variable"]
    if variables:
        words = ", ".join(f"{each.name} (here {each.second or 'unset'})" for each in variables)
        yield Item("environment", f"variables{name}", "rebuilt", f"set as recorded: {words}")
    for each in numeric:
        if each.kind != "variable":
            yield _item(each, name, installs=recorded_python)
    for doubt in found.doubts:
        yield Item("environment", f"environment{name}", "cannot", doubt, "", CLOSE_NUMBERS)
    if not found.doubts and len(variables) == len(numeric):
        beside = f"; {others} things that move no number differ" if others else ""
        yield Item(
            "environment",
            f"environment{name}",
            "same",
            f"Python, packages and devices that can move numbers are equal{beside}",
        )


def _item(difference: EnvironmentDifference, name: str, *, installs: bool) -> Item:
    kind, what = difference.kind, difference.name
    words = f"recorded {difference.first or 'none'}, here {difference.second or 'none'}"
    named = f"{kind} {what}{name}" if kind != what else f"{what}{name}"
    if installs and kind in {"package", "python"}:
        return Item("environment", named, "rebuilt", f"{words}: installed as recorded")
    return Item("environment", named, "cannot", words, _REMEDY[kind], CLOSE_NUMBERS)


def recorded_variables(recorded: Mapping[str, Any]) -> dict[str, str | None]:
    """The variables that make the recorded ones of what is set here; None removes one.

    A value that was hidden in the record is left as it is here.
    """
    wanted: Mapping[str, str] = recorded.get("variables", {})
    differences = compare_environments(recorded, collect_environment(())).differences
    changed = [each for each in differences if each.kind == "variable" and each.numeric]
    return {each.name: wanted.get(each.name) for each in changed if "***" not in wanted.get(each.name, "")}


def make_environment(recorded: Mapping[str, Any], target: Path, *, treering: bool = False) -> Path:
    """Makes a virtual environment from recorded versions; one that is complete is used again.

    Args:
        recorded: the environment of an attempt's header.
        target: the folder of the environment.
        treering: whether Treering is installed too; else its sources are given to the interpreter.

    Returns:
        Its interpreter.

    Raises:
        UserError: the Python is not installed here, or a version cannot be installed.
    """
    wanted = _wanted(recorded, treering=treering)
    python = target / "bin" / "python"
    if _is_made(target, wanted):
        return python
    shutil.rmtree(target, ignore_errors=True)
    found = find_python(recorded)
    say(f"environment: {len(wanted)} packages of the record, in {target}")
    done = subprocess.run(
        [found, "-m", "venv", "--without-pip", str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        printed = f"{done.stdout.strip()} {done.stderr.strip()}"
        raise UserError(f"{target}: {found} -m venv failed: {printed}; install that Python's module venv")
    first = [name for name in _FIRST if name in wanted]
    for names in (first, [name for name in wanted if name not in first]):
        if names:
            _install(python, {name: wanted[name] for name in names})
    write_document(target / _MADE_FILE, {"packages": wanted})
    return python


def made_before(recorded: Mapping[str, Any], folders: Iterable[Path], *, treering: bool) -> Path | None:
    """The interpreter of an environment that was made from recorded versions; None where no folder has it.

    Args:
        recorded: the environment of an attempt's header.
        folders: where environments were made.
        treering: whether Treering must be installed in it.
    """
    wanted = _wanted(recorded, treering=treering)
    for folder in folders:
        python = folder / "bin" / "python"
        if python.exists() and _is_made(folder, wanted) and _version_of(str(python)) == _version_in(recorded):
            return python
    return None


def _is_made(folder: Path, wanted: Mapping[str, str]) -> bool:
    """Whether a folder has a complete environment of these versions; a changed record of it does not count."""
    made = folder / _MADE_FILE
    try:
        return made.exists() and read_document(made)[0] == {"packages": wanted}
    except EvidenceError:
        return False


def _version_in(recorded: Mapping[str, Any]) -> str:
    return str(recorded.get("python", {}).get("version", ""))


def find_python(recorded: Mapping[str, Any]) -> str:
    """The interpreter of the recorded version.

    Raises:
        UserError: it is not installed here.
    """
    version = _version_in(recorded)
    short = ".".join(version.split(".")[:2])
    for each in dict.fromkeys((sys.executable, *(shutil.which(f"python{name}") for name in (version, short)))):
        if each is not None and _version_of(each) == version:
            return each
    raise UserError(
        f"--environment: found no Python {version or '(not recorded)'} here, expected the recorded one: python{short} "
        "in PATH; install it, or leave --environment out and compare with the Python that is here"
    )


def _version_of(python: str) -> str:
    done = subprocess.run(
        [python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _wanted(recorded: Mapping[str, Any], *, treering: bool) -> dict[str, str]:
    """The packages to install."""
    packages: Mapping[str, str] = recorded.get("packages", {})
    left_out = _OWN if treering else _OWN | {"treering"}
    return {name: version for name, version in packages.items() if name not in left_out}


def _install(python: Path, packages: Mapping[str, str]) -> None:
    """Installs exact versions with pip, which reads its own settings (`PIP_FIND_LINKS`, `PIP_INDEX_URL`).

    Raises:
        UserError: pip cannot install one; the text names it.
    """
    words = [f"{name}=={version}" for name, version in packages.items()]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    command = [*pip, "--quiet", "--disable-pip-version-check", "--no-deps", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing = re.search(r"No matching distribution found for (\S+)", done.stderr)
        what = missing[1] if missing else done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed"
        raise UserError(
            f"--environment: found no wheel of {what} for this machine, expected every recorded version; give pip the "
            "place of the wheels (PIP_FIND_LINKS=DIR or PIP_INDEX_URL), or leave --environment out"
        )
