"""Recognises the form of a file or folder that describes a Megatron run, by its content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from treering.audit.megatron.launch_arguments import Launch, launch_of
from treering.audit.megatron.neox import CONFIGS, MARKS, is_neox_config, neox_launch, read_neox_configs, saved_configs
from treering.audit.megatron.saved import SavedRun
from treering.audit.megatron.script import read_script, script_launch
from treering.config.load import read_mapping
from treering.config.megatron import MegatronRun
from treering.errors import ConfigError, NotFoundError, UserError
from treering.files import read_text

DESCRIPTION: Final = "megatron-run.yaml"
MAX_SCRIPT_BYTES: Final = 1 << 22
"""Bytes of the longest launch script that is read."""
EXPECTED: Final = (
    "a checkpoint or save folder of Megatron-LM, Megatron-DeepSpeed or GPT-NeoX; the description of a run (a YAML "
    f"file, or a folder with {DESCRIPTION}); a YAML file of GPT-NeoX; or a launch script for bash; see docs/megatron.md"
)
_YAML: Final = (".yaml", ".yml")
_SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch")
_OURS: Final = frozenset({"data", "checkpoint", "launch", "sequence_length", "global_batch_size", "lineage"})
"""Keys of a description that GPT-NeoX does not have."""
Kind = Literal["description", "neox", "script", "checkpoint"]


@dataclass(frozen=True, slots=True)
class Form:
    """A file or folder of a known form.

    Attributes:
        kind: the form.
        path: the file; for a checkpoint the file or folder that was named.
        document: of a description, by key.
    """

    kind: Kind
    path: Path
    document: Mapping[str, Any] = field(default_factory=dict)


def form_of(path: Path) -> Form:
    """The form of a file or folder.

    Raises:
        NotFoundError: the path is missing.
        ConfigError: a YAML file cannot be read.
        UserError: the form is not one of those that are accepted.
    """
    try:
        if path.is_dir():
            own = path / DESCRIPTION
            if own.is_file():
                return Form("description", own, read_mapping(own, EXPECTED))
            return Form("checkpoint", path)
        if not path.exists():
            raise NotFoundError(f"{path}: no such file or folder, expected {EXPECTED}")
        if not path.is_file():
            raise UserError(f"{path}: not a regular file, expected {EXPECTED}")
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; expected {EXPECTED}") from None
    if head.startswith((b"PK", b"\x80")) or path.name == ".metadata" or path.suffix in (".pt", ".pth"):
        return Form("checkpoint", path)
    if path.suffix in _YAML:
        return _yaml(path)
    if path.suffix in _SCRIPTS or (head.startswith(b"#!") and b"sh" in head.split(b"\n", 1)[0]):
        return Form("script", path)
    found = "a JSON file" if head.lstrip().startswith(b"{") else "a file of another form"
    found = "a Python program" if path.suffix == ".py" else found
    raise UserError(f"{path}: found {found}, expected {EXPECTED}")


def _yaml(path: Path) -> Form:
    document = read_mapping(path, EXPECTED)
    if not _OURS & document.keys():
        if is_neox_config(document):
            return Form("neox", path)
        if document and not document.keys() & MegatronRun.model_fields.keys():
            keys = ", ".join(str(key)[:40] for key in list(document)[:6])
            raise UserError(f"{path}: found a YAML file with keys {keys}, expected {EXPECTED}")
    return Form("description", path, document)


def saved_launch(saved: SavedRun, moved: Mapping[str, str], stated: Mapping[str, Any]) -> Launch:
    """The launch in a checkpoint; of GPT-NeoX, in the YAML files beside it.

    Args:
        saved: the checkpoint.
        moved: today's place of each folder that moved, by its name in the run.
        stated: fields of a description, which are not read in the checkpoint.

    Raises:
        UserError: the run's data order cannot be rebuilt, or a file that it needs is missing.
        ConfigError: a YAML file of GPT-NeoX cannot be read.
        EvidenceError: an argument or key is missing or has a wrong value.
    """
    if not saved.neox:
        return launch_of(saved, moved, stated)
    files = saved_configs(saved.folder)
    if not files:
        raise UserError(
            f"{saved.file}: a checkpoint of GPT-NeoX, whose `args` hold the shape of the model alone; the YAML files "
            f"of the launch are missing in {saved.folder / CONFIGS}: give one to --megatron-run, or name them under "
            f"`launch:` in {DESCRIPTION}, with `checkpoint:` (docs/megatron.md)"
        )
    return neox_launch(read_neox_configs(files), saved, moved, stated)


def launch_in(
    files: Sequence[Path], saved: SavedRun | None, moved: Mapping[str, str], stated: Mapping[str, Any]
) -> Launch:
    """The launch in a launch script or in YAML files of GPT-NeoX.

    Args:
        files: one launch script, or YAML files that were given to GPT-NeoX together.
        saved: a checkpoint of the run, or None.
        moved: today's place of each folder that moved, by its name in the run.
        stated: fields of a description, which are not read in the files.

    Raises:
        UserError: the files are of another form, or the run's data order cannot be rebuilt.
        ConfigError: a YAML file cannot be read, or two have the same key.
        EvidenceError: an argument or key is missing or has a wrong value.
    """
    if all(file.suffix in _YAML for file in files):  # one file alone may lack the keys that show the form
        keys = read_neox_configs(files)
        if keys.names & MARKS:
            return neox_launch(keys, saved, moved, stated)
    kinds = [form_of(file).kind for file in files]
    if kinds == ["script"]:
        return script_launch(read_script(files[0], _text(files[0])), moved, stated)
    raise ConfigError(
        ", ".join(map(str, files)), "launch", f"files of the forms {', '.join(kinds)}",
        "one launch script for bash, or YAML files of GPT-NeoX",
    )  # fmt: skip


def _text(path: Path) -> str:
    try:
        return read_text(path, MAX_SCRIPT_BYTES)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); expected a launch script") from None
