"""Your own data: which files a corpus's path means, and the digest that names them together.

Stage `fetch` finds the files here and places them below `data/raw`; `treering.data.sources.own_text` reads them there.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treering.config.canonical import digest_bytes
from treering.config.corpora import CorpusConfig, OwnForm
from treering.errors import NotFoundError, UserError
from treering.files import read_text
from treering.project import Project

ENDINGS: Final[dict[OwnForm, tuple[str, ...]]] = {
    "jsonl": (".jsonl", ".jsonl.gz", ".jsonl.zst"),
    "parquet": (".parquet",),
    "megatron": (".bin", ".idx"),
    "warc": (".warc", ".warc.gz"),
    "wet": (".wet", ".wet.gz"),
}
"""Endings of the files that a folder of each form is searched for, and of the two files of a pair."""

DATASET_STATE: Final = "state.json"
_DATASET_SPLITS: Final = "dataset_dict.json"
_NAMED: Final = {
    "jsonl": "a JSON Lines file, a folder of such files, or a pattern",
    "parquet": "a Parquet file, a folder of such files, or a pattern",
    "dataset": "the folder of a data set that `save_to_disk` wrote",
    "megatron": "the path of a pair of .bin and .idx without the ending",
    "warc": "a WARC file, a folder of such files, or a pattern",
    "wet": "a WET file, a folder of such files, or a pattern",
}
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class OwnFile:
    """One file of your own data.

    Attributes:
        path: where it is.
        name: its path below the folder that the config names, or below the folder before the first `*` of a pattern.
    """

    path: Path
    name: str


def own_files(corpus: CorpusConfig, project: Project, source: Path | None = None) -> list[OwnFile]:
    """The files of a corpus of your own data, by name.

    Args:
        corpus: its config.
        project: whose root the path is relative to.
        source: a folder that is searched for the last part of the path, where the path does not exist.

    Raises:
        NotFoundError: no file is there.
        UserError: the path is in a folder that a stage replaces, or in the folder of a data set with several splits;
            or a name is not UTF-8.
    """
    form, given = corpus.own or ("jsonl", "")
    places = [project.root / given] + ([source / Path(given).name] if source else [])
    for place in places:
        found = _found(corpus, form, place)
        if found:
            for each in found:
                checked_name(corpus, each.name)
            return _outside_outputs(corpus, form, found, project)
    raise NotFoundError(
        f"corpus {corpus.name}: {form}: {places[0]} {_absence(form, places[0])}, expected {_NAMED[form]}"
    )


def joined_digest(files: Sequence[tuple[str, str]]) -> str:
    """The digest that names files together: of one file its own, of several that of their names and digests.

    Args:
        files: name and digest of each file.
    """
    if len(files) == 1:
        return files[0][1]
    return digest_bytes("".join(f"{name}\0{digest}\n" for name, digest in sorted(files)).encode())


def _found(corpus: CorpusConfig, form: OwnForm, place: Path) -> list[OwnFile]:
    if form == "megatron":
        stem = str(place).removesuffix(".bin").removesuffix(".idx")
        pair = [OwnFile(Path(stem + ending), ending) for ending in ENDINGS[form]]
        return pair if all(each.path.is_file() for each in pair) else []
    if form == "dataset":
        return _dataset_files(corpus, place)
    if place.is_file():
        return [OwnFile(place, place.name)]
    if place.is_dir():
        return _named(place, (path for path in _walk(place) if path.name.endswith(ENDINGS[form])))
    base, pattern = _split_pattern(place)
    return _named(base, (path for path in base.glob(pattern) if path.is_file())) if pattern else []


def _named(base: Path, paths: Iterator[Path]) -> list[OwnFile]:
    named = (OwnFile(path, path.relative_to(base).as_posix()) for path in paths)
    return sorted((each for each in named if not hidden(each.name)), key=lambda each: each.name)


def checked_name(corpus: CorpusConfig, name: str) -> str:
    """The name of a file, which records hold as text.

    Raises:
        UserError: its bytes are not UTF-8.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"corpus {corpus.name}: the name of file {os.fsencode(name)!r} is not UTF-8, expected a name in UTF-8; "
            "rename the file"
        ) from None
    return name


def hidden(name: str) -> bool:
    """Whether a part of a name begins with a dot: such files are not data."""
    return any(part.startswith(".") for part in name.split("/"))


def _walk(folder: Path) -> Iterator[Path]:
    """The files below a folder and below the folders that it links to, each folder once."""
    seen: set[str] = set()
    for directory, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(directory, name) for name in names)


def _split_pattern(place: Path) -> tuple[Path, str]:
    """The folder before the first part with a wildcard, and the pattern from there on; no pattern without one."""
    parts = place.parts
    first = next((number for number, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
    return Path(*parts[:first]), "/".join(parts[first:])


def _dataset_files(corpus: CorpusConfig, folder: Path) -> list[OwnFile]:
    if (folder / _DATASET_SPLITS).is_file():
        splits = sorted(path.parent.name for path in folder.glob(f"*/{DATASET_STATE}"))
        raise UserError(
            f"corpus {corpus.name}: dataset: {folder} holds the splits {', '.join(splits)}, expected one split; write "
            f"the path of the split: {corpus.dataset}/{splits[0] if splits else 'SPLIT'}"
        )
    if not (folder / DATASET_STATE).is_file():
        return []
    return _named(folder, (folder / name for name in (DATASET_STATE, *dataset_shards(folder))))


def dataset_shards(folder: Path) -> list[str]:
    """Names of the Arrow files of a data set on disk, in the order of its rows.

    Source: `datasets` 5.2.0, `Dataset.save_to_disk`.

    Raises:
        UserError: the state of the data set cannot be read, or names a file that is missing.
    """
    state = folder / DATASET_STATE
    try:
        names = [str(each["filename"]) for each in json.loads(read_text(state))["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{state}: unreadable ({error}), expected the state of a data set on disk; save it again"
        ) from None
    missing = next((name for name in names if Path(name).name != name or not (folder / name).is_file()), None)
    if missing is not None:
        raise UserError(
            f"{state}: names {missing}, which is not in the folder, expected all files; save the data again"
        )
    return names


def _absence(form: OwnForm, place: Path) -> str:
    """What is there instead, for an error."""
    if form == "megatron":
        missing = [f"{place}{ending}" for ending in ENDINGS[form] if not Path(f"{place}{ending}").is_file()]
        return f"is no pair: {' and '.join(missing)} is missing"
    if place.is_file():
        return "is a file"
    base, pattern = (place, "") if place.is_dir() else _split_pattern(place)
    if not base.is_dir():
        return "does not exist"
    if not pattern and not place.is_dir():
        return "does not exist"
    names = sorted(path.name + "/" * path.is_dir() for path in base.iterdir() if not path.name.startswith("."))
    held = f"{', '.join(names[:_SHOWN])}{', …' * (len(names) > _SHOWN)}" if names else "nothing"
    wanted = f" with the ending {', '.join(ENDINGS[form])}" if form in ENDINGS and not pattern else ""
    return f"{'matches' if pattern else 'holds'} no file{wanted} ({base} holds {held})"


def _outside_outputs(corpus: CorpusConfig, form: OwnForm, files: list[OwnFile], project: Project) -> list[OwnFile]:
    """The files that are in no folder that a stage empties: what a stage made of the data is not the data.

    Raises:
        UserError: all are in one.
    """
    outputs = [
        each.resolve() for each in (project.raw, project.curated, project.corpora, project.published, project.runs)
    ]
    outside = [each for each in files if not any(each.path.resolve().is_relative_to(output) for output in outputs)]
    if not outside:
        raise UserError(
            f"corpus {corpus.name}: {form}: {files[0].path} is in a folder that Treering replaces; move your data to "
            "another folder"
        )
    return outside
