"""Where the description of a Megatron run comes from: a checkpoint's own arguments, a YAML file, or both.

What a YAML file says goes before what a checkpoint says. The order of the steps up to a checkpoint is that of its
arguments alone where all checkpoints before it were launched alike; where not, that is a finding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from treering.audit.megatron.arguments import Launch, launch_of
from treering.audit.megatron.moved import moved_path
from treering.audit.megatron.report import Setting
from treering.audit.megatron.saved import (
    LATEST,
    SavedRun,
    earlier_checkpoints,
    find_checkpoint,
    latest_iteration,
    named_iteration,
    read_checkpoint,
)
from treering.audit.report import Finding
from treering.config.load import read_mapping, validate_section
from treering.config.megatron import MegatronRun
from treering.data.megatron.blend import Generation
from treering.errors import ConfigError, NotFoundError, TreeringError

DESCRIPTION: Final = "megatron-run.yaml"
_EXPECTED: Final = (
    "a checkpoint or save folder of Megatron, or the description of a run (a YAML file, or a folder with "
    f"{DESCRIPTION}); see docs/audit.md"
)
_ALTERNATIVES: Final = (
    {"train_samples", "train_iters"},
    {"rampup", "batch_steps"},
    {"iteration", "consumed_samples"},
    {"data", "split"},
)
"""Fields that say one thing: where the YAML file has one, the checkpoint's others do not count."""
_ORDER: Final = (
    "data", "split", "seed", "sequence_length", "train_samples", "train_iters", "global_batch_size", "rampup",
    "batch_steps", "generation", "surplus", "extra_token",
)  # fmt: skip
"""Fields by which the data order or the steps differ."""


@dataclass(frozen=True, slots=True)
class RunSource:
    """A run that was described.

    Attributes:
        path: the file that describes it, the YAML file where there is one.
        run: what they say.
        settings: each value, with who said so.
        places: where the data of each entry lie, without `.bin` and `.idx`.
        cache: where Megatron's index cache lies, None where the run named none.
        findings: where a checkpoint contradicts itself or others.
        generations: other generations of Megatron that may have launched the run.
        open_ends: what the arguments leave open.
    """

    path: Path
    run: MegatronRun
    settings: tuple[Setting, ...]
    places: tuple[Path, ...]
    cache: Path | None
    findings: tuple[Finding, ...]
    generations: tuple[Generation, ...]
    open_ends: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, moved: Mapping[str, str]) -> "RunSource":
        """Reads what there is.

        Args:
            path: a YAML file, a folder with `megatron-run.yaml`, a save folder, a checkpoint, or the file in it.
            moved: where folders lie today, by where the run saw them.

        Raises:
            ConfigError: what is said does not suffice, or contradicts itself.
            NotFoundError: there is neither a description nor a checkpoint.
            UserError: the run's data order cannot be rebuilt.
            EvidenceError: the checkpoint cannot be read or holds no arguments.
        """
        description = path / DESCRIPTION if path.is_dir() else path
        described = description.is_file() if path.is_dir() else path.suffix in (".yaml", ".yml")
        if described:
            document = read_mapping(description, _EXPECTED)
            named = document.get("checkpoint")
            saved = _checkpoint(description.parent / named) if isinstance(named, str) and named else None
        else:
            document, saved = {}, _checkpoint(path)
        source = description if described or saved is None else saved.file
        launch = None if saved is None else launch_of(saved, moved)
        completed = _completed(document, saved, launch)
        run = validate_section(source, MegatronRun, completed)
        if run.iteration is None and run.consumed_samples is None:
            run = run.model_copy(update={"iteration": _tracked(source)})
        folder = source.parent

        def place(field: str, name: str) -> Path:
            return moved_path(name, moved, folder if field in document else None)

        return cls(
            path=source,
            run=run,
            settings=tuple(_settings(run, document, saved, launch)),
            places=tuple(place("data", entry.prefix) for entry in run.data),
            cache=None if run.cache is None else place("cache", run.cache),
            findings=() if saved is None or launch is None else tuple(_findings(saved, launch, moved)),
            generations=() if launch is None or "generation" in document else launch.generations,
            open_ends=() if launch is None else launch.open_ends,
        )


def _checkpoint(path: Path) -> SavedRun:
    file = find_checkpoint(path)
    if file is None:
        raise NotFoundError(f"{path}: found neither {DESCRIPTION} nor a checkpoint, expected {_EXPECTED}")
    return read_checkpoint(file)


def _completed(document: Mapping[str, Any], saved: SavedRun | None, launch: Launch | None) -> dict[str, Any]:
    """The document, with what it leaves out from the checkpoint."""
    if saved is None or launch is None:
        return dict(document)
    held = {**launch.values, "iteration": saved.iteration}
    for group in _ALTERNATIVES:
        if group & document.keys():
            held = {name: value for name, value in held.items() if name not in group}
    return {**held, **document}


def _settings(
    run: MegatronRun, document: Mapping[str, Any], saved: SavedRun | None, launch: Launch | None
) -> list[Setting]:
    told = {} if launch is None else launch.arguments
    found = []
    for name, value in run.model_dump(mode="json").items():
        if name == "checkpoint" or value in (None, []):
            continue
        argument = told.get(name)
        if name in document:
            found.append(Setting(name, value, "description", None))
        elif saved is not None and (argument is not None or name in ("iteration", "generation")):
            found.append(Setting(name, value, "checkpoint", argument))
        else:
            found.append(Setting(name, value, "default" if name != "iteration" else "tracker", None))
    if launch is not None:
        found += [
            Setting(name, value, "checkpoint", f"--{name.replace('_', '-')}") for name, value in launch.told.items()
        ]
    return found


def _findings(saved: SavedRun, launch: Launch, moved: Mapping[str, str]) -> list[Finding]:
    """Where the checkpoint's name, or a checkpoint before it, says something else."""
    found = []
    named = named_iteration(saved.folder)
    if named is not None and named != saved.iteration:
        text = (
            f"{saved.file}: iteration {saved.iteration}, expected {named} by its folder's name: one of the two was "
            f"changed; the answers are for {saved.iteration}"
        )
        found.append(Finding("record", text, file=str(saved.file), step=saved.iteration))
    for file in earlier_checkpoints(saved):
        try:
            before = read_checkpoint(file)
            differences = _differences(launch_of(before, moved), launch)
        except TreeringError as error:
            found.append(
                Finding("record", f"an earlier checkpoint does not tell how it was launched: {error}", file=str(file))
            )
            continue
        if differences:
            text = (
                f"{file}: launched otherwise than {saved.folder.name}: {'; '.join(differences)}. The run was resumed "
                f"with other arguments: its steps up to {before.iteration} were read by those of that checkpoint "
                "(audit it), not as told here"
            )
            found.append(Finding("record", text, file=str(file), step=before.iteration))
    return found


def _differences(before: Launch, now: Launch) -> list[str]:
    return [
        f"{name} was {_shown(before.values.get(name))}, is {_shown(now.values.get(name))}"
        for name in _ORDER
        if before.values.get(name) != now.values.get(name)
    ]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(f"{entry.get('weight', '')} {entry['prefix']}".strip() for entry in value)
    return "none" if value is None else str(value)


def _tracked(source: Path) -> int:
    found = latest_iteration(source.parent)
    if found is None:
        raise ConfigError(
            str(source), "iteration", "nothing", f"iteration or consumed_samples, or {LATEST} in the same folder"
        )
    return found
