"""The checkpoints that Megatron left in a folder, and the launch arguments inside each.

    iter_0001000/mp_rank_00/model_optim_rng.pt            Megatron-LM; mp_rank_00_000 and more with further parallelism
    iter_0001000/mp_rank_00/model_rng.pt                  with a distributed optimizer, about 2022
    iter_0001000/common.pt                                Megatron-LM, distributed checkpoints (torch_dist, zarr)
    iter_0001000/.metadata                                Megatron-LM, torch's own sharded checkpoints (torch_dcp)
    global_step1000/mp_rank_00_model_states.pt            Megatron-DeepSpeed; of GPT-NeoX the samples and the batch
    global_step1000/configs/*.yml                         GPT-NeoX, the rest

Files of torch are read in its zip format and in the one before it. Of `torch_dcp` the shard that `.metadata` names has
the arguments.

Source: Megatron-LM, megatron/training/checkpointing.py; Megatron-DeepSpeed, megatron/checkpointing.py; DeepSpeed,
runtime/engine.py, save_checkpoint.
"""

import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from treering.audit.megatron.pickled import read_saved, read_sharded, sharded_names
from treering.audit.megatron.unpickle import Inert
from treering.audit.megatron.weights import weight_names
from treering.errors import EvidenceError, NotFoundError
from treering.files import read_text

LATEST: Final = "latest_checkpointed_iteration.txt"
_DEEPSPEED_LATEST: Final = "latest"
_NUMBERED: Final = re.compile(r"(?:iter_|global_step)(\d{1,15})")
_LONGEST_NAME: Final = 255
_SHOWN_OF_TRACKER: Final = 40
_MOST_ITERATIONS: Final = 10**15
_FILES: Final = (
    "common.pt",
    "mp_rank_00*/model_optim_rng.pt",
    "mp_rank_00*/model_rng.pt",
    "mp_rank_00*model_states.pt",
    "zero_pp_rank_0_mp_rank_00*model_states.pt",
    ".metadata",
)
"""Files with the arguments, by the first rank's names."""
_NEOX_ARGUMENTS: Final = frozenset({"padded_vocab_size", "num_attention_heads", "model_parallel_size"})
"""Keys of the plain dictionary that GPT-NeoX saves as `args`. Source: its megatron/checkpointing.py."""
_STATE: Final = ("ds_config", "dp_world_size", "global_samples")
"""What DeepSpeed saves of a run. Source: its runtime/engine.py, save_checkpoint."""


@dataclass(frozen=True, slots=True)
class SavedRun:
    """The launch arguments in one checkpoint.

    Attributes:
        file: the file that holds them.
        folder: the checkpoint's folder.
        iteration: steps done.
        arguments: the launch arguments, by name.
        deepspeed: whether DeepSpeed wrote it.
        weights: names of the weights in the same file; empty if it holds no weights.
        neox: whether GPT-NeoX wrote it: then `arguments` holds the model's shape, and YAML files beside it the rest.
        state: DeepSpeed's values beside the arguments: its config, replicas and samples.
    """

    file: Path
    folder: Path
    iteration: int
    arguments: Mapping[str, Any]
    deepspeed: bool
    weights: tuple[str, ...]
    neox: bool = False
    state: Mapping[str, Any] = field(default_factory=dict)


def find_checkpoint(path: Path) -> Path | None:
    """The file with the arguments of the checkpoint that a path names, None for a folder without a checkpoint.

    Args:
        path: such a file, a checkpoint's folder, or a save folder, which stands for the checkpoint that its tracker
            file names, or else the newest one.

    Raises:
        NotFoundError: the path or the checkpoint that the tracker names is missing, or the checkpoint lacks a file with
            arguments.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a file cannot have this name
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotFoundError(
            f"{str(path)[:200]}: {reason}; expected a checkpoint of Megatron or its description"
        ) from None
    if not stat.S_ISDIR(mode):
        return path
    own = _file_of(path)
    if own is not None:
        return own
    tracked = _tracked(path)
    if tracked is not None:
        return _needed_file(path / tracked, f"named by {path / LATEST}")
    numbered = sorted(_numbered(path), reverse=True)
    if numbered:
        return _needed_file(numbered[0][1], "the newest one there")
    if _NUMBERED.fullmatch(path.name):
        return _needed_file(path, "as named")
    return None


def read_checkpoint(file: Path) -> SavedRun:
    """Reads the arguments of a checkpoint.

    Raises:
        EvidenceError: the file cannot be read or holds no arguments.
    """
    sharded = file.name == ".metadata"
    held = read_sharded(file, {"args", "iteration"}) if sharded else read_saved(file)
    folder = file.parent.parent if file.name.endswith("rng.pt") else file.parent
    arguments = held.get("args")
    neox = isinstance(arguments, dict) and bool(arguments.keys() & _NEOX_ARGUMENTS)
    said = arguments if neox else arguments.state if isinstance(arguments, Inert) else None
    if not isinstance(said, dict):
        there = ", ".join(map(str, list(held)[:8])) or "nothing"
        remedy = "describe the launch in megatron-run.yaml (docs/megatron.md)"
        raise EvidenceError(
            f"{file}: found no launch arguments (`args`) among {there}: another program saved this file, or it holds "
            f"weights alone; {remedy}",
            file=file,
            found=there,
            expected="args",
            remedy=remedy,
        )
    iteration = held.get("iteration")
    if not isinstance(iteration, int) or isinstance(iteration, bool) or not 1 <= iteration <= _MOST_ITERATIONS:
        expected = "the number of a step that was trained"
        raise EvidenceError(
            f"{file}: iteration {iteration!r}, expected {expected}", file=file, found=iteration, expected=expected
        )
    deepspeed = file.name.endswith("model_states.pt")
    state: dict[str, Any] = {name: held[name] for name in _STATE if name in held}
    return SavedRun(file, folder, iteration, said, deepspeed, tuple(weight_names(held)), neox, state)


def named_weights(saved: SavedRun) -> tuple[str, ...]:
    """The names of a checkpoint's weights: in its file, in the metadata beside it, or as folders of a zarr checkpoint.

    Empty if the metadata cannot be read.
    """
    if saved.weights:
        return saved.weights
    metadata = saved.folder / ".metadata"
    try:
        if metadata.exists():
            return tuple(sharded_names(metadata))
        return tuple(each.name for each in saved.folder.iterdir() if each.is_dir() and "." in each.name)
    except (OSError, EvidenceError):
        return ()


def earlier_checkpoints(saved: SavedRun) -> Iterator[Path]:
    """The files of the checkpoints before this one in the same save folder, oldest first."""
    for number, folder in sorted(_numbered(saved.folder.parent)):
        file = _file_of(folder)
        if number < saved.iteration and folder != saved.folder and file is not None:
            yield file


def checkpoint_times(folder: Path) -> Iterator[tuple[int, float]]:
    """Steps of each checkpoint in a save folder, by its name, and when its file with the arguments was written."""
    for number, place in _numbered(folder):
        file = _file_of(place)
        if file is not None:
            yield number, file.stat().st_mtime


def tracked_iteration(folder: Path) -> int | None:
    """The steps of the checkpoint that a save folder's tracker names, None without a tracker."""
    match = _NUMBERED.fullmatch(f"iter_{_line(folder / LATEST)}") or _NUMBERED.fullmatch(
        _line(folder / _DEEPSPEED_LATEST) or ""
    )
    return None if match is None else int(match[1])


def named_iteration(folder: Path) -> int | None:
    """The step in a checkpoint's name, None for a name without a step (`release`)."""
    match = _NUMBERED.fullmatch(folder.name)
    return None if match is None else int(match[1])


def latest_iteration(folder: Path) -> int | None:
    """The number in the tracker file of a save folder, None without a tracker.

    Raises:
        EvidenceError: the file does not hold a number.
    """
    text = _line(folder / LATEST)
    if text is None:
        return None
    if not (text.isdecimal() and len(text) <= len(str(_MOST_ITERATIONS)) and int(text) >= 1):
        _refuse_tracker(folder / LATEST, text, "the number of an iteration")
    return int(text)


def _tracked(folder: Path) -> str | None:
    """The folder's name of the checkpoint that a save folder's tracker names.

    Raises:
        EvidenceError: the tracker holds no name of a checkpoint.
    """
    text = _line(folder / LATEST)
    if text is None:
        named = _line(folder / _DEEPSPEED_LATEST)
        if named is not None and (not named or len(named) > _LONGEST_NAME or Path(named).name != named):
            _refuse_tracker(folder / _DEEPSPEED_LATEST, named, "the name of a checkpoint")
        return named
    if text == "release":
        return text
    number = latest_iteration(folder)
    names = (f"iter_{number:07d}", f"global_step{number}")
    return next((name for name in names if (folder / name).is_dir()), names[0])


def _refuse_tracker(file: Path, text: str, expected: str) -> NoReturn:
    """Ends with the error of a tracker file with another content.

    Raises:
        EvidenceError: always.
    """
    found = text[:_SHOWN_OF_TRACKER]
    raise EvidenceError(f"{file}: found {found!r}, expected {expected}", file=file, found=found, expected=expected)


def _line(path: Path) -> str | None:
    try:
        return read_text(path).strip()
    except (OSError, UnicodeDecodeError):
        return None


def _numbered(folder: Path) -> Iterator[tuple[int, Path]]:
    for path in folder.iterdir():
        number = named_iteration(path)
        if number is not None and path.is_dir():
            yield number, path


def _file_of(folder: Path) -> Path | None:
    return next((path for pattern in _FILES for path in sorted(folder.glob(pattern))), None)


def _needed_file(folder: Path, why: str) -> Path:
    file = _file_of(folder)
    if file is not None:
        return file
    if not folder.is_dir():
        raise NotFoundError(f"{folder}: no such checkpoint, {why}; name another one of its folder")
    raise NotFoundError(f"{folder}: found none of {', '.join(_FILES)}, expected the file of the first rank")
