"""Finds things by digest: corpora in the project, in DVC's cache and in its remotes; runs, rings and checkpoints."""

import contextlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treering.audit.dvc.remotes import RemoteStore, open_remotes
from treering.audit.dvc.stores import Store, find_stores, named_trees, tracked
from treering.config.canonical import DIGEST_PREFIX, parse_json
from treering.data.corpus.corpus import MANIFEST
from treering.data.corpus.manifest import manifest_digest, read_manifest
from treering.errors import EvidenceError, NotFoundError, StoreError, UserError
from treering.progress import Say
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering.runlog.ring import Ring
from treering.runlog.ring_log import RingLog

Copies = Mapping[str, tuple[Store | RemoteStore, str]]
"""Of each file of a corpus the store that has it, and its md5."""

_PREFIX = re.compile(r"^(?:sha256:|md5:)?([0-9a-f]{4,64})$")


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that a digest names.

    Attributes:
        what: what it is, in words.
        digest: the whole digest.
        place: `project`, or the store.
        path: where it is; of a corpus in a store, the path that it had in the tracked folder.
        command: what brings it back; None if it is where it belongs.
    """

    what: str
    digest: str
    place: str
    path: str
    command: str | None = None


def find_digest(project: Project, digest: str, say: Say = lambda _: None) -> list[Found]:
    """Everything whose digest begins with the given characters.

    Remotes that are no folders are asked only for what neither the project nor a folder can bring back.

    Args:
        project: where to look.
        digest: at least 4 hex characters, with or without `sha256:`; of a corpus's file its md5 by DVC is taken too.
        say: is called for each remote that is asked, and for each that cannot be, with the reason.

    Raises:
        UserError: that is not a digest.
        NotFoundError: nothing has it; the text names the remotes that could not be searched.
    """
    match = _PREFIX.match(digest.strip().lower())
    if match is None:
        raise UserError(f"{digest!r}: expected at least 4 hex characters of a digest, like sha256:0123…")
    prefix = match[1]

    def fits(value: str | None) -> bool:
        return value is not None and value.removeprefix(DIGEST_PREFIX).startswith(prefix)

    stores, elsewhere = find_stores(project.root)
    found = [*_corpora(project, fits), *_runs(project, prefix, fits)]
    at_hand = {each.digest for each in found}
    for store in stores:
        corpora = _stored_corpora(project, store, store.trees(), stores, fits)
        found += [each for each, _copies in corpora if each.digest not in at_hand]
    unsearched: list[str] = []
    remotes: list[RemoteStore] = []
    if all(each.place != "project" and each.command is None for each in found):
        remotes, unsearched = open_remotes(project.root, elsewhere)
        trees = named_trees(project.root) if remotes else set()
        for remote in remotes:
            say(f"asking {remote.name} ({remote.path})")
            try:
                found += [each for each, _copies in _in_remote(project, remote, trees, stores, fits)]
            except StoreError as error:
                unsearched.append(str(error))
    for text in unsearched:
        say(f"not searched: {text}")
    if not found:
        places: list[Store | RemoteStore] = [*stores, *remotes]
        searched = ", ".join(["the project", *(f"{each.name} ({each.path})" for each in places)])
        others = f"; not searched: {'; '.join(unsearched)}" if unsearched else ""
        raise NotFoundError(f"{digest}: nothing has that digest in {searched}{others}")
    return found


@dataclass(frozen=True, slots=True)
class StoredCorpus:
    """A corpus that is in DVC's stores, and not in the project.

    Attributes:
        place: the store.
        copies: of each file the store that has it, and its md5.
    """

    place: str
    copies: Copies

    def bring(self, folder: Path) -> None:
        """Copies the files of the corpus into a folder.

        Raises:
            StoreError: a remote does not answer.
            OSError: a file cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for name, (store, md5) in self.copies.items():
            store.fetch(md5, folder / name)


def stored_corpus(project: Project, digest: str) -> StoredCorpus | None:
    """A whole corpus in DVC's cache or in one of its remotes, None where none of them has all its files.

    Args:
        project: whose stores are searched.
        digest: of the corpus.
    """

    def fits(value: str | None) -> bool:
        return value == digest

    stores, elsewhere = find_stores(project.root)
    for store in stores:
        for found, copies in _stored_corpora(project, store, store.trees(), stores, fits):
            if copies is not None:
                return StoredCorpus(found.place, copies)
    remotes, _closed = open_remotes(project.root, elsewhere)
    trees = named_trees(project.root) if remotes else set()
    for remote in remotes:
        with contextlib.suppress(StoreError):
            for found, copies in _in_remote(project, remote, trees, stores, fits):
                if copies is not None:
                    return StoredCorpus(found.place, copies)
    return None


def _in_remote(
    project: Project,
    remote: RemoteStore,
    trees: set[str],
    stores: Sequence[Store],
    fits: Callable[[str | None], bool],
) -> list[tuple[Found, Copies | None]]:
    """Corpora in a remote: first in the tracked folders that the project names, then in all others.

    Raises:
        StoreError: the remote does not answer.
    """
    everywhere: list[Store | RemoteStore] = [*stores, remote]
    there = list(_stored_corpora(project, remote, remote.trees(trees), everywhere, fits))
    return there or list(_stored_corpora(project, remote, remote.other_trees(trees), everywhere, fits))


def _corpora(project: Project, fits: Callable[[str | None], bool]) -> Iterator[Found]:
    tokenizers: set[str] = set()
    for path in sorted(project.corpora.glob(f"*/*/{MANIFEST}")):
        try:
            manifest = read_manifest(path)
        except EvidenceError:
            continue
        folder, name = path.parent, _name(manifest)
        missing = [file for file in manifest["files"] if not (folder / file).exists()]
        if fits(manifest["digest"]):
            what = f"{name} without {', '.join(missing)}" if missing else name
            command = f"dvc checkout {project.corpora.relative_to(project.root)}" if missing else None
            yield Found(what, manifest["digest"], "project", str(folder), command)
        for file, entry in manifest["files"].items():
            for digest in (entry["sha256"], entry["dvc_md5"]):
                if fits(digest):
                    yield Found(f"{file} of {name}", digest, "project", str(folder / file))
        tokenizer = manifest["tokenizer"]["digest"]
        if fits(tokenizer) and tokenizer not in tokenizers:
            tokenizers.add(tokenizer)
            yield Found(f"tokenizer of {name}", tokenizer, "project", str(project.tokenizer))


def _name(manifest: dict[str, Any]) -> str:
    return f"corpus {manifest['name']} ({manifest['split']})"


def _runs(project: Project, prefix: str, fits: Callable[[str | None], bool]) -> Iterator[Found]:
    published = RunDirectory(project.published)
    for run in (*find_runs(project.runs), *([published] if published.config_file.exists() else [])):
        for what, digest, path in _readable(_recorded(run)):
            if fits(digest):
                yield Found(what, digest, "project", str(path))
        for attempt in run.attempts():
            yield from _rings(attempt.ring_log, prefix, f"attempt {attempt.number} of run {run.path.name}")


def _recorded(run: RunDirectory) -> Iterator[tuple[str, str, Path]]:
    """What the records of a run are or name, by digest.

    Raises:
        EvidenceError: one cannot be read.
    """
    yield f"run {run.id}", run.resolved.recipe.digest, run.path
    yield f"blend of run {run.id}", run.resolved.blend.digest, run.path
    for attempt in run.attempts():
        yield f"attempt {attempt.number} of run {run.id}", attempt.header_digest, attempt.path
    for checkpoint in (*run.checkpoints(), *run.superseded()):
        what = f"checkpoint of step {checkpoint.step} of run {run.id}"
        yield what, checkpoint.digest, checkpoint.path
        for file in checkpoint.manifest.files:
            yield f"{file.path} of {what}", file.digest, checkpoint.path / file.path


def _readable(entries: Iterator[tuple[str, str, Path]]) -> Iterator[tuple[str, str, Path]]:
    """The entries up to a record that cannot be read: what that is, is `treering verify`'s matter."""
    with contextlib.suppress(EvidenceError):
        yield from entries


def _rings(log: RingLog[Ring], prefix: str, what: str) -> Iterator[Found]:
    """Rings by their own digest, from the text of their lines: the chain is the audit's matter."""
    pattern = re.compile(rf'"digest":"({DIGEST_PREFIX}{prefix}[0-9a-f]*)"')
    step = re.compile(r'"step":(\d+)[,}]')
    for number, line in log.texts():
        match = pattern.search(line)
        if match:
            ring = f"ring of step {', '.join(step.findall(line))}, {what}"
            yield Found(ring, match[1], "project", f"{log.path}:{number}")


def _stored_corpora(
    project: Project,
    store: Store | RemoteStore,
    trees: Iterable[tuple[str, dict[str, str]]],
    stores: Sequence[Store | RemoteStore],
    fits: Callable[[str | None], bool],
) -> Iterator[tuple[Found, Copies | None]]:
    """Corpora in tracked folders of a store, by the manifests that it holds; None where a file of one is lost.

    Args:
        project: where they belong.
        store: the store.
        trees: its tracked folders.
        stores: all that may hold a file of them.
        fits: whether a digest is asked for.

    Raises:
        StoreError: a remote does not answer.
    """
    seen: set[str] = set()
    for tree, entries in trees:
        for path in sorted(path for path in entries if Path(path).name == MANIFEST):
            manifest = _stored_manifest(entries[path], stores)
            if manifest is None or manifest["digest"] in seen or not fits(manifest["digest"]):
                continue
            seen.add(manifest["digest"])
            needed = {MANIFEST: entries[path], **{name: file["dvc_md5"] for name, file in manifest["files"].items()}}
            holders = {name: next((each for each in stores if each.holds(md5)), None) for name, md5 in needed.items()}
            lost = [name for name, holder in holders.items() if holder is None]
            what = f"{_name(manifest)} without {', '.join(lost)}" if lost else _name(manifest)
            copies = {name: (holder, needed[name]) for name, holder in holders.items() if holder is not None}
            command = None if lost else _command(project, store, tree, manifest, copies)
            place = f"{store.path}: {Path(path).parent} of {tree}"
            yield Found(what, manifest["digest"], store.name, place, command), None if lost else copies


def _stored_manifest(md5: str, stores: Sequence[Store | RemoteStore]) -> dict[str, Any] | None:
    content = next((content for store in stores if (content := store.read(md5)) is not None), None)
    try:
        manifest = parse_json(content or b"")
        whole = isinstance(manifest, dict) and manifest["digest"] == manifest_digest(manifest)
        return manifest if whole and {"name", "split", "files"} <= manifest.keys() else None
    except (ValueError, KeyError):
        return None


def _command(
    project: Project,
    store: Store | RemoteStore,
    tree: str,
    manifest: dict[str, Any],
    copies: Copies,
) -> str:
    """What brings a corpus back: DVC where a lock file names the tracked folder, else plain copies."""
    place = tracked(project.root, tree)
    if place is None:
        folder = project.corpus(manifest["name"], manifest["split"]).relative_to(project.root)
        target = shlex.quote(folder.as_posix())
        files = " && ".join(holder.bring(md5, f"{target}/{name}") for name, (holder, md5) in copies.items())
        return f"mkdir -p {target} && {files}"
    first = f"git checkout {place.commit} -- {place.file} && " if place.commit else ""
    fetch = f"dvc fetch -r {store.remote} {place.out} && " if store.remote else ""
    return f"{first}{fetch}dvc checkout {place.out}"
