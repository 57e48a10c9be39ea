"""What a person gives `treering init`: paths of data, whose form, size and first documents are looked at."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

from treering.config.corpora import FORMS_WITH_FIELDS, CorpusConfig, OwnForm
from treering.data.sources.documents import Intake
from treering.data.sources.own_files import DATASET_STATE, ENDINGS, own_files
from treering.data.sources.own_text import read_own
from treering.data.sources.pieces import Piece
from treering.data.sources.stored import list_objects
from treering.errors import NotFoundError, UserError
from treering.project import Project

UNKNOWN_LICENCE: Final = "unknown"
_LOOKED_AT: Final = 20
_PACKED: Final = {".gz": 3, ".zst": 3, ".parquet": 2}
"""About how much larger the text is than the file that holds it."""
_HTML_OF_TEXT: Final = 10
"""About how much larger the pages of a crawl are than their main text."""
_BYTES_OF_A_TOKEN: Final = 4
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class GivenCorpus:
    """One corpus of a new project.

    Attributes:
        config: its entry in the experiment.
        tokens: about how many tokens it holds.
    """

    config: CorpusConfig
    tokens: int


def look_at(paths: Sequence[str], text_field: str, licence: str, project: Project) -> list[GivenCorpus]:
    """The corpora that some paths mean; the first documents of each are read.

    Args:
        paths: as a person writes them: files, folders, patterns, or a pair of tokens without its ending.
        text_field: field of the text.
        licence: of all documents that do not name one.
        project: whose root the paths are relative to.

    Raises:
        NotFoundError: a path names no data.
        StoreError: the S3 server does not answer.
        UserError: its form is unknown, it is damaged, or the first documents are not what was expected.
    """
    found: dict[str, GivenCorpus] = {}
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UserError(f"--data {path}: given twice, expected each path once; a corpus needs text of its own")
        form = form_of(path, project.root)
        name = _name(path, form, found)
        fields: dict[str, str] = {form: path.rstrip("/")}
        if form in FORMS_WITH_FIELDS and text_field != "text":
            fields["text_field"] = text_field
        if form == "warc":
            fields["kind"] = "html"
        config = CorpusConfig(name=name, licence=licence, **fields)
        if config.stored:
            found[name] = _look_at_stored(config)
            continue
        files = own_files(config, project)
        sizes = [(each.name, each.path.stat().st_size) for each in files]
        if form == "megatron":
            found[name] = GivenCorpus(config, sum(size for _, size in sizes) // 2)
            continue
        folder = files[0].path.parents[files[0].name.count("/")]
        pieces = [Piece(each.name, "", 0) for each in files]
        _read_first(config, folder, pieces)
        found[name] = GivenCorpus(config, _num_tokens(config, sizes))
    return list(found.values())


def _look_at_stored(config: CorpusConfig) -> GivenCorpus:
    objects = list_objects(config)
    _read_first(config, Path(), [Piece(each.name, None, each.size, state=each.state) for each in objects])
    return GivenCorpus(config, _num_tokens(config, [(each.name, each.size) for each in objects]))


def _num_tokens(config: CorpusConfig, files: Sequence[tuple[str, int]]) -> int:
    """About how many tokens files hold, by their names and sizes."""
    num_bytes = sum(size * _PACKED.get(PurePath(name).suffix, 1) for name, size in files)
    return num_bytes // (_HTML_OF_TEXT if config.warc else 1) // _BYTES_OF_A_TOKEN


def _read_first(config: CorpusConfig, folder: Path, pieces: Sequence[Piece]) -> None:
    """Reads the first documents of a corpus.

    Raises:
        UserError: there is none, or one is not what was expected.
    """
    if not any(islice(read_own(config, folder, pieces, Intake()), _LOOKED_AT)):
        raise UserError(f"corpus {config.name}: {(config.own or ('', ''))[1]} holds no document, expected at least one")


def form_of(given: str, root: Path) -> OwnForm:
    """The form of the data at a path, by its ending or by what the folder holds.

    Raises:
        NotFoundError: there is nothing.
        UserError: the form is unknown, or the folder holds several.
    """
    if given.startswith("s3://"):
        return _form_of_objects(given)
    path = root / given
    if path.resolve() == root.resolve():
        raise UserError(
            f"--data {given}: this is the folder of the project, expected one of the data alone; name a folder in it, "
            "or files by a pattern in quotes"
        )
    if path.is_dir():
        return _form_of_folder(path, given)
    for form, endings in ENDINGS.items():
        if given.endswith(endings):
            return form
    if path.with_name(path.name + ".idx").is_file():
        return "megatron"
    if path.is_file() or any(sign in given for sign in "*?["):
        raise UserError(
            f"--data {given}: the form is unknown by the ending, expected {_known()}; rename the files, or write the "
            "entry under `corpora` by hand"
        )
    raise NotFoundError(
        f"--data {given}: {path} does not exist, expected a file, a folder, a pattern in quotes, or the path of a pair "
        "of .bin and .idx"
    )


def _form_of_objects(given: str) -> OwnForm:
    """The form of objects in S3, by the ending that is given.

    Raises:
        UserError: it has none.
    """
    forms: tuple[OwnForm, ...] = ("jsonl", "parquet")
    form = next((form for form in forms if given.endswith(ENDINGS[form])), None)
    if form is None:
        raise UserError(
            f"--data {given}: the form is unknown by the ending, expected {_known()}; name the objects by a pattern in "
            f"quotes, such as '{given.rstrip('/')}/**/*.jsonl'"
        )
    return form


def data_here(root: Path) -> list[str]:
    """Paths in a folder that look like data, for a question or an error."""
    endings = tuple(ending for form in ENDINGS for ending in ENDINGS[form] if ending != ".bin")
    names = [path.name for path in sorted(root.iterdir()) if path.name.endswith(endings) and path.is_file()]
    folders = [
        path.name
        for path in sorted(root.iterdir())
        if path.is_dir()
        and any(child.name.endswith(endings) or child.name == DATASET_STATE for child in path.iterdir())
    ]
    return [*names, *folders][:_SHOWN]


def _form_of_folder(path: Path, given: str) -> OwnForm:
    if any((path / name).is_file() for name in (DATASET_STATE, "dataset_dict.json")):
        return "dataset"
    names = [child.name for child in path.rglob("*") if child.is_file() and not child.name.startswith(".")]
    forms = [form for form in ENDINGS if any(name.endswith(ENDINGS[form]) for name in names)]
    if len(forms) == 1 and forms != ["megatron"]:
        return forms[0]
    if forms == ["megatron"]:
        pairs = sorted(name.removesuffix(".idx") for name in names if name.endswith(".idx"))
        first = f"{given.rstrip('/')}/{pairs[0] if pairs else 'NAME'}"
        raise UserError(f"--data {given}: the folder holds pairs of tokens, expected one pair: `--data {first}`")
    found = f"holds {' and '.join(forms)}" if forms else f"holds no data ({_listed(names)})"
    raise UserError(f"--data {given}: the folder {found}, expected {_known()}; name the files by a pattern in quotes")


def _listed(names: Iterable[str]) -> str:
    held = sorted(names)
    return ", ".join(held[:_SHOWN]) + ", …" * (len(held) > _SHOWN) or "nothing"


def _known() -> str:
    return "one of " + ", ".join(ending for form in ENDINGS if form != "megatron" for ending in ENDINGS[form])


def _name(path: str, form: OwnForm, taken: Iterable[str]) -> str:
    """A name for a corpus by its path, that no other one has."""
    plain = [part for part in Path(path).parts if not any(sign in part for sign in "*?[/")]
    last = plain[-1] if plain else form
    for ending in ENDINGS.get(form, ()):
        last = last.removesuffix(ending)
    word = re.sub(r"[^a-z0-9_-]+", "-", last.lower()).strip("-_")[:60] or form
    names = {*taken}
    return next(name for name in (word, *(f"{word}-{number}" for number in range(2, 1000))) if name not in names)
