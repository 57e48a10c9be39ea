"""The arguments in a launch script: the words that a shell script gives to Megatron's training program.

Source: Megatron-LM, megatron/training/arguments.py, and the forks' megatron/arguments.py, for flags of several words.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from treering.audit.megatron.launch_arguments import Launch, launch_of
from treering.audit.megatron.report import Unbound
from treering.audit.megatron.saved import SavedRun
from treering.audit.megatron.shell import Command, Unresolved, Word, commands_of
from treering.data.megatron.lineage import LINEAGES
from treering.errors import UserError

_LISTS: Final = frozenset({
    "data_path", "train_data_path", "valid_data_path", "test_data_path", "rampup_batch_size", "iterations_to_skip",
    "train_weighted_split_paths", "valid_weighted_split_paths", "test_weighted_split_paths",
    "skip_train_iteration_range", "train_range_to_skip", "phase_transition_iterations",
})  # fmt: skip
"""Flags of several words."""
_TEXTS: Final = frozenset({"split", "blend", "step_batch_size_schedule", "load", "save", "data_cache_path"})
"""Flags whose one word is a text, even if it looks like a number."""
_TELLING: Final = frozenset({
    "data_path", "data_args_path", "per_split_data_args_path", "train_data_path", "train_weighted_split_paths",
    "train_weighted_split_paths_path", "mock_data", "seq_length", "train_iters", "train_samples", "yaml_cfg",
})  # fmt: skip
"""Flags of which every training of Megatron has at least one."""
_NEOX: Final = frozenset({"deepy.py"})
_DEEPSPEED: Final = ("megatron-deepspeed", "bigscience")
_ANY: Final = tuple(name for name in LINEAGES if name != "gpt-neox")
"""Lineages of a script without a decisive argument: it holds only arguments that differ from the defaults."""
_DEFAULTS: Final = {"seed": 1234}
"""Megatron's defaults of flags on which the order depends."""


@dataclass(frozen=True, slots=True)
class LaunchScript:
    """The launch in a script.

    Attributes:
        file: the script.
        line: where the command begins.
        arguments: by name with underscores, as in argparse; a word that needs a shell is `Unresolved`.
        unseen: words that may hold further arguments.
    """

    file: Path
    line: int
    arguments: dict[str, Any]
    unseen: tuple[Unresolved, ...]


def read_script(file: Path, text: str) -> LaunchScript:
    """Reads the one launch of a script.

    Raises:
        UserError: the script launches Megatron never or several times, or inside a condition or a loop.
    """
    try:
        launches = [found for command in commands_of(text) if (found := _launch(file, command)) is not None]
    except OverflowError as error:
        raise UserError(f"{file}: {error}; describe the run in megatron-run.yaml (docs/megatron.md)") from None
    if len(launches) != 1:
        lines = ", ".join(str(command.line) for command, _, _ in launches)
        number = f"found {len(launches)} launches (lines {lines})" if launches else "found no launch"
        raise UserError(
            f"{file}: {number} of a training program of Megatron (PROGRAM.py with --seq-length and data paths),"
            " expected one; describe the run in megatron-run.yaml (docs/megatron.md)"
        )
    command, arguments, unseen = launches[0]
    if command.depth:
        raise UserError(
            f"{file}: line {command.line}: the launch is in a condition, a loop, a function or a subshell, expected a"
            " plain command; describe the run in megatron-run.yaml (docs/megatron.md)"
        )
    return LaunchScript(file, command.line, {**_DEFAULTS, **arguments}, unseen)


def _launch(file: Path, command: Command) -> tuple[Command, dict[str, Any], tuple[Unresolved, ...]] | None:
    """The command with its arguments, None if it does not launch a training of Megatron.

    Raises:
        UserError: it launches GPT-NeoX, whose arguments are in YAML files.
    """
    words = [word for each in command.words for word in _unfolded(each)]
    programs = [at for at, word in enumerate(words) if isinstance(word, str) and word.endswith(".py")]
    if not programs:
        return None
    if any(Path(str(words[at])).name in _NEOX for at in programs):
        configs = [word for word in words if isinstance(word, str) and word.endswith((".yml", ".yaml"))]
        raise UserError(
            f"{file}: line {command.line} launches GPT-NeoX with {' '.join(configs) or 'its YAML files'}; expected"
            " these files themselves: give one, or name several under `launch:` in megatron-run.yaml (docs/megatron.md)"
        )
    arguments, unseen = _parsed(words[programs[0] + 1 :])
    return (command, arguments, unseen) if _TELLING & arguments.keys() else None


def _unfolded(word: Word) -> Iterator[Word]:
    """A word, or the words of a command that a script passes as one word (`bash -c "..."`)."""
    text, line = (word.text, word.line) if isinstance(word, Unresolved) else (word, 0)
    if ".py" not in text or not any(each.isspace() for each in text):
        yield word
        return
    try:
        pieces = shlex.split(text)
    except ValueError:
        yield word
        return
    for piece in pieces:
        yield Unresolved(piece, line, "a shell decides it") if "$" in piece or "`" in piece else piece


def _parsed(words: list[Word]) -> tuple[dict[str, Any], tuple[Unresolved, ...]]:
    """Flags with their words, and words that may hold more flags."""
    held: dict[str, list[Word]] = {}
    unseen: list[Unresolved] = []
    name: str | None = None
    for word in words:
        text = word.text if isinstance(word, Unresolved) else word
        if text.startswith("--") and len(text) > 2:
            flag, equals, value = text[2:].partition("=")
            name = flag.replace("-", "_")
            held[name] = []  # argparse takes the last one
            if equals:
                held[name].append(replace(word, text=value) if isinstance(word, Unresolved) else value)
        elif isinstance(word, Unresolved) and (name is None or (held[name] and name not in _LISTS)):
            unseen.append(word)
        elif name is not None:
            held[name].append(word)
    return {name: _value(name, values) for name, values in held.items()}, tuple(unseen)


def _value(name: str, words: list[Word]) -> Any:
    if name in _LISTS:
        unresolved = next((word for word in words if isinstance(word, Unresolved)), None)
        return words if unresolved is None else unresolved
    if not words:
        return True
    if isinstance(words[0], Unresolved) or name in _TEXTS:
        return words[0]
    return _number(words[0])


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def script_launch(script: LaunchScript, moved: Mapping[str, str], stated: Mapping[str, Any]) -> Launch:
    """The arguments in a script as a launch.

    Args:
        script: by `read_script`.
        moved: today's place of each folder that moved, by its name in the run.
        stated: fields of a description, which are not read in the script.

    Raises:
        UserError: the run's data order cannot be rebuilt, or a file of its data paths is missing.
        EvidenceError: an argument is missing, needs a shell, or has a wrong value.
    """
    deepspeed = bool({"deepspeed", "deepspeed_config", "zero_stage"} & script.arguments.keys())
    saved = SavedRun(script.file, script.file.parent, 0, script.arguments, deepspeed=deepspeed, weights=())
    launch = launch_of(saved, moved, stated)
    unbound = tuple(
        Unbound(
            what=f"{script.file}: line {word.line}: `{word.text}`",
            why=f"It may hold more arguments, which are not known: {word.reason}.",
            remedy="Write its words into a copy of the script, and audit with that.",
        )
        for word in script.unseen
    )
    if launch.arguments.get("lineage") is None:
        parts = any(name.startswith("train_weighted_split_paths") for name in script.arguments)
        launch = replace(launch, lineages=_DEEPSPEED[1:] if parts else _DEEPSPEED if deepspeed else _ANY)
    return replace(
        launch,
        open_ends=(f"That {script.file} is the script that was run.", *launch.open_ends),
        unbound=(*unbound, *launch.unbound),
    )
