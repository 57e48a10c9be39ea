"""What a run needs of this machine beside code and environment: corpora, devices, kernels, and where it starts."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from treering.audit.corpora.catalog import find_corpora
from treering.audit.dvc.find import Found, find_digest
from treering.collect.devices import node_devices
from treering.config.resolved import ancestor_folder
from treering.errors import NotFoundError, TreeringError
from treering.project import Project
from treering.reproduce.items import CLOSE_NUMBERS, ORDER_ONLY, Item
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader


def data_items(run: RunDirectory, project: Project) -> Iterator[Item]:
    """Each corpus of the blend by its digest: where it is, or what brings it back."""
    blend = run.resolved.blend
    catalog = find_corpora(project, [blend])
    for component in blend.components:
        digest = component.digest or ""
        name = f"corpus {component.corpus}"
        if digest in catalog.corpora:
            yield Item("data", name, "same", f"{catalog.corpora[digest].directory} has the recorded digest")
            continue
        stored = stored_corpus(project, digest)
        if stored is None:
            text = catalog.missing[digest].text if digest in catalog.missing else "its digest is not recorded"
            yield Item("data", name, "cannot", text, f"`treering find {digest}` on a machine that has it", stops=True)
        else:
            yield Item(
                "data", name, "cannot", f"{stored.place} has it, the project does not", stored.command or "", stops=True
            )


def stored_corpus(project: Project, digest: str) -> Found | None:
    """A corpus of that digest in DVC's cache or in a remote, None where neither can bring it back."""
    try:
        found = find_digest(project, digest)
    except NotFoundError:
        return None
    return next((each for each in found if each.command is not None and each.digest == digest), None)


def corpus_folders(run: RunDirectory, project: Project) -> Mapping[str, Path]:
    """The folder of each corpus of the blend by name, as far as they are here."""
    blend = run.resolved.blend
    found = find_corpora(project, [blend]).corpora
    return {each.corpus: found[each.digest].directory for each in blend.components if each.digest in found}


def device_items(header: AttemptHeader, name: str) -> Iterator[Item]:
    """Whether this machine has the devices that the layout needs."""
    layout = header.layout
    needed = f"layout {layout} on {layout.world_size} {layout.device}"
    here = sum(device.kind == "cuda" for device in node_devices())
    named = f"devices{name}"
    if layout.device == "cpu":
        beside = f"; the {here} GPUs of this machine are not used" if here else ""
        yield Item("devices", named, "same", f"{needed}: ranks of processors run anywhere{beside}")
        wanted, has = header.environment.get("threads_per_rank"), max((os.cpu_count() or 1) // layout.world_size, 1)
        if wanted not in {None, has}:
            yield Item(
                "devices",
                f"threads of a rank{name}",
                "rebuilt",
                f"{wanted} as recorded, instead of {has} for this machine",
            )
    elif here >= layout.world_size:
        yield Item("devices", named, "same", f"{needed}: this machine has {here}")
    elif here:
        yield Item(
            "devices", named, "cannot", f"{needed}, this machine has {here}",
            f"a machine with {layout.world_size} GPUs", stops=True,
        )  # fmt: skip
    else:
        yield Item(
            "devices", named, "cannot", f"{needed}, this machine has none: the ranks run on its processors",
            f"a machine with {layout.world_size} GPUs", CLOSE_NUMBERS,
        )  # fmt: skip


def kernel_items(header: AttemptHeader, name: str) -> Iterator[Item]:
    """Each kernel that ran: the recorded config asks for it again."""
    for kernel in header.kernels:
        gpus = header.layout.device == "cuda" and not any(device.kind == "cuda" for device in node_devices())
        asked = f"{kernel.requested} is asked for again"
        named = f"kernel {kernel.operation} {kernel.used}{name}"
        if gpus:
            yield Item("kernels", named, "cannot", f"{asked}, on processors instead of GPUs", "", CLOSE_NUMBERS)
        else:
            yield Item("kernels", named, "same", f"{asked}; what runs is recorded and compared")


def start_items(run: RunDirectory, base: CheckpointDirectory | None) -> Iterator[Item]:
    """Where the reproduction starts."""
    start = run.resolved.recipe.start_from
    if base is not None:
        yield Item("start", f"checkpoint {base.path.name}", "same", "it is copied, the original stays as it is")
        return
    if start is None:
        yield Item("start", "weights", "same", f"from the seed {run.resolved.recipe.seed}")
        return
    folder = ancestor_folder(run.path, start.run)
    ancestor = RunDirectory(folder)
    named = f"checkpoint of step {start.step} of run {folder.name}"
    try:
        found = ancestor.checkpoint_folder(start.step).is_dir() and ancestor.resolved.recipe.digest == start.run
    except TreeringError:
        found = False
    if found:
        yield Item("start", named, "same", f"{folder} has it")
    else:
        yield Item(
            "start", named, "cannot", f"the run starts from it, and {folder} does not have it",
            "bring that run's folder back, or give --from-checkpoint", ORDER_ONLY, stops=True,
        )  # fmt: skip
