"""What a run needs of this machine beside code and environment: corpora, devices, kernels, and where it starts."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treering.audit.corpora.catalog import find_corpora
from treering.audit.dvc.find import stored_corpus
from treering.collect.devices import node_devices
from treering.config.resolved import ancestor_folder
from treering.errors import EvidenceError, TreeringError
from treering.project import Project
from treering.reproduce.items import CLOSE_NUMBERS, ORDER_ONLY, Item
from treering.reproduce.numbers import path_columns
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import AttemptHeader


def data_items(run: RunDirectory, project: Project) -> Iterator[Item]:
    """The corpora of the blend by their digests: where they are, or what brings one back."""
    blend = run.resolved.blend
    catalog = find_corpora(project, [blend])
    in_place = []
    for component in blend.components:
        digest = component.digest or ""
        name = f"corpus {component.corpus}"
        if digest in catalog.corpora:
            folder = catalog.corpora[digest].directory
            if folder == project.corpus(component.corpus):
                in_place.append(component.corpus)
            else:
                yield Item("data", name, "same", f"{folder} has the recorded digest")
        elif (stored := stored_corpus(project, digest)) is not None:
            yield Item("data", name, "rebuilt", f"{stored.place} has it: it is copied from there")
        else:
            text = catalog.missing[digest].text if digest in catalog.missing else "its digest is not recorded"
            yield Item("data", name, "cannot", text, f"`treering find {digest}` on a machine that has it", stops=True)
    if in_place:
        where = project.corpus(in_place[0]).parent.relative_to(project.root)
        yield Item("data", "corpora", "same", f"{', '.join(in_place)}: {where} has the recorded digests")


def heldout_items(run: RunDirectory, project: Project) -> Iterator[Item]:
    """The held-out corpora whose loss the run measured and that are missing: training leaves them out silently."""
    try:
        metrics = {name for columns, _ in path_columns(run).stretches for name in columns.head().metrics}
    except EvidenceError:  # rings that do not hold are named with the time that the steps took
        return
    for component in run.resolved.blend.components:
        folder = project.corpus(component.corpus, "heldout")
        if f"validation/loss/{component.corpus}" in metrics and not folder.exists():
            name, without = f"held-out corpus {component.corpus}", "everything but its held-out losses"
            remedy = "`treering curate` and `treering tokenize` make it"
            yield Item("data", name, "cannot", f"{folder} is missing", remedy, without)


@contextmanager
def project_view(run: RunDirectory, project: Project, root: Path) -> Iterator[Project]:
    """A project with the run's corpora under the names of its blend, wherever they are; removed after success.

    Args:
        run: the run.
        project: where its corpora are looked for.
        root: the folder of the new project; what an interrupted call copied into it stays.

    Raises:
        StoreError: a remote does not answer.
        EvidenceError: the new project's folders lead elsewhere.
    """
    view = Project(root)
    blend = run.resolved.blend
    here = find_corpora(project, [blend]).corpora
    copied = find_corpora(view, [blend]).corpora
    for component in blend.components:
        digest, folder = component.digest or "", view.corpus(component.corpus)
        if digest in here:
            _free(folder, root)
            folder.symlink_to(here[digest].directory.resolve(), target_is_directory=True)
        elif digest not in copied and (stored := stored_corpus(project, digest)) is not None:
            _free(folder, root)
            stored.bring(folder)
    heldout = project.corpus("", "heldout")
    for path in sorted(heldout.iterdir()) if heldout.is_dir() else ():
        copy = view.corpus(path.name, "heldout")
        _free(copy, root)
        copy.symlink_to(path.resolve(), target_is_directory=True)
    yield view
    shutil.rmtree(root)


def _free(place: Path, root: Path) -> None:
    """Frees a place in the new project, where an interrupted call may have left a link or a folder.

    Raises:
        EvidenceError: the place is outside the new project, where nothing is removed.
    """
    if not place.parent.resolve().is_relative_to(root.resolve()):
        raise EvidenceError(
            f"{root}: {place} leads out of the reproduction's own folder, expected a place inside; remove {root}",
            file=root,
            found=str(place),
            expected="a place inside",
            remedy=f"remove {root}",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    else:
        shutil.rmtree(place, ignore_errors=True)


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
    """The kernels that ran: the recorded config asks for them again."""
    ran = [f"{kernel.operation} {kernel.used}" for kernel in header.kernels]
    if header.layout.device == "cuda" and not any(device.kind == "cuda" for device in node_devices()):
        for each in ran:
            yield Item(
                "kernels", f"kernel {each}{name}", "cannot", "asked for again, on processors instead of GPUs",
                "a machine with GPUs", CLOSE_NUMBERS,
            )  # fmt: skip
    elif ran:
        yield Item(
            "kernels",
            f"kernels{name}",
            "same",
            f"{', '.join(ran)}: asked for again; what runs is compared",
        )


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
