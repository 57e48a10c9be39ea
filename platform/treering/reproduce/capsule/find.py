"""Finds the files of a capsule's corpora by their content, whatever they are called: size first, then digest."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from treering.config.canonical import digest_file
from treering.errors import NotFoundError
from treering.progress import Progress, quiet
from treering.reproduce.capsule.contents import Capsule, NeededCorpus, Packed


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What a folder has of the files that a capsule needs.

    Attributes:
        files: path by digest.
        missing: the corpora of which a file is missing; those without known files are among them.
        tokenizer_missing: whether the tokenizer is known and missing.
    """

    files: Mapping[str, Path]
    missing: tuple[NeededCorpus, ...]
    tokenizer_missing: bool


def find_files(capsule: Capsule, folder: Path, progress: Progress = quiet) -> FoundFiles:
    """Looks through a folder, with all folders below it, for the files of a capsule's corpora.

    Args:
        capsule: says which files.
        folder: where to look.
        progress: is called with the number of files digested.

    Raises:
        NotFoundError: there is no such folder.
        OSError: a file cannot be read.
    """
    if not folder.is_dir():
        raise NotFoundError(f"--corpora: found no folder {folder}, expected the folder with the files of the corpora")
    wanted = {packed.digest: packed for packed in _wanted(capsule)}
    sizes = {packed.size for packed in wanted.values()}
    candidates = [path for path in _files_below(folder) if path.stat().st_size in sizes]
    found: dict[str, Path] = {}
    for done, path in enumerate(candidates, 1):
        if len(found) == len(wanted):
            break
        digest = digest_file(path)
        if digest in wanted:
            found.setdefault(digest, path)
        progress("corpora", done, len(candidates))
    missing = tuple(
        each
        for each in capsule.corpora
        if not each.files or any(file.digest not in found for file in each.files.values())
    )
    tokenizer = capsule.tokenizer
    return FoundFiles(found, missing, tokenizer is not None and tokenizer.digest not in found)


def missing_text(capsule: Capsule, found: FoundFiles) -> str:
    """What is missing, a corpus a line, with what a person needs to ask for it."""
    lines = []
    for each in found.missing:
        absent = [name for name, file in each.files.items() if file.digest not in found.files]
        what = ", ".join(f"{name} {each.files[name].digest} ({each.files[name].size:,} bytes)" for name in absent)
        lines.append(
            f"corpus {each.name} ({each.split}): {each.digest}, {each.size:,} bytes, {each.tokens} tokens, licence "
            f"{each.licence}, source {', '.join(each.source) or 'unknown'}; missing {what or 'a corpus of that digest'}"
        )
    if found.tokenizer_missing and capsule.tokenizer:
        lines.append(f"tokenizer: {capsule.tokenizer.digest}, {capsule.tokenizer.size:,} bytes")
    return "\n  ".join(lines)


def _wanted(capsule: Capsule) -> Iterator[Packed]:
    for each in capsule.corpora:
        yield from each.files.values()
    if capsule.tokenizer:
        yield capsule.tokenizer


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file():
                yield path
