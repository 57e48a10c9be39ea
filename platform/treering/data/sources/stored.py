"""Your own data in S3: which objects a URL means, and an object's file while it is read.

Stage `fetch` lists the objects and puts the list into `data/raw`: it copies none of them. Stage `curate` brings an
object into a temporary file, digests it on the way, reads it like a file of `data/raw`, and removes it.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treering.config.canonical import digest_json, parse_json
from treering.config.corpora import CorpusConfig
from treering.data.sources.documents import Intake
from treering.data.sources.own_files import ENDINGS, hidden
from treering.errors import NotFoundError, UserError
from treering.files import read_bytes, reason, write_durably

if TYPE_CHECKING:
    from treering.data.sources.pieces import Piece
    from treering.objects import ObjectStore, StoredObject

LISTING: Final = "objects.json"
"""The list of a corpus's objects in its folder below `data/raw`."""

_LISTING_BYTES: Final = 1 << 30
_ATTEMPTS: Final = 6
_REMEDY: Final = "`treering fetch` lists the objects again"


def list_objects(corpus: CorpusConfig) -> "list[StoredObject]":
    """The objects of a corpus whose data is in S3, by name.

    Raises:
        NotFoundError: there is none.
        UserError: S3 needs a package that is missing.
        StoreError: the server does not answer, or refuses.
    """
    form, url = corpus.own or ("jsonl", "")
    base, pattern = _split(url)
    found = _store(base).listed(pattern)
    if not pattern:
        found = [each for each in found if each.name.endswith(ENDINGS.get(form, ()))]
    found = [each for each in found if not hidden(each.name)]
    if not found:
        what = "matches no object" if pattern else f"holds no object with the ending {', '.join(ENDINGS[form])}"
        raise NotFoundError(
            f"corpus {corpus.name}: {form}: {url} {what}, expected an object, a prefix or a pattern such as "
            "s3://BUCKET/texts/**/*.jsonl.zst; correct the URL"
        )
    return found


def listing_digest(objects: "Sequence[StoredObject]") -> str:
    """The digest that names a list: of names, sizes, and what the store says of the contents."""
    return digest_json([asdict(each) for each in objects])


def write_listing(corpus: CorpusConfig, objects: "Sequence[StoredObject]", directory: Path) -> Path:
    """Writes the list of a corpus's objects into its folder."""
    url = (corpus.own or ("", ""))[1]
    document = {"url": url, "objects": [asdict(each) for each in objects]}
    write_durably(directory / LISTING, json.dumps(document, indent=1, sort_keys=True) + "\n")
    return directory / LISTING


def stored_pieces(corpus: CorpusConfig, directory: Path) -> "list[Piece]":
    """The objects of a corpus as pieces, by its list; an object is never cut.

    Raises:
        UserError: the list is missing, or of another URL.
    """
    from treering.data.sources.pieces import Piece  # noqa: PLC0415 - it needs the extra `data`

    path, url = directory / LISTING, (corpus.own or ("", ""))[1]
    try:
        document = parse_json(read_bytes(path, _LISTING_BYTES))
        if document["url"] == url:
            return [Piece(each["name"], None, each["size"], state=each["state"]) for each in document["objects"]]
        problem = f"lists {document['url']}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        problem = f"cannot be read ({error})"
    raise UserError(
        f"corpus {corpus.name}: {path} {problem}, expected the objects of {url}; run `treering fetch` first"
    )


class StoredFiles:
    """The objects of a corpus, one at a time as a file.

    Args:
        corpus: the corpus.

    Raises:
        UserError: S3 needs a package that is missing.
    """

    def __init__(self, corpus: CorpusConfig) -> None:
        self._store = _store(_split((corpus.own or ("", ""))[1])[0])

    @contextmanager
    def file(self, piece: "Piece", intake: Intake) -> Iterator[tuple[Path, str]]:
        """A temporary file with an object's content, and the sha256 of what was read.

        Args:
            piece: the object.
            intake: notes what was read.

        Raises:
            EvidenceError: the object was changed since it was listed.
            StoreError: the server does not answer, or refuses.
            UserError: the file cannot be written.
        """
        from treering.objects import StoredObject  # noqa: PLC0415 - an extra

        wanted = StoredObject(piece.name, piece.num_bytes, piece.state or "")
        with tempfile.TemporaryDirectory(prefix="treering-object-") as folder:
            path = Path(folder, piece.name.rpartition("/")[2])
            try:
                digest = self._store.bring(wanted, path, _REMEDY)
            except OSError as error:
                raise UserError(
                    f"{intake.file}: {path}: {reason(error)}, expected space for {wanted.size:,} bytes; name a folder "
                    "with space for an object of each worker by TMPDIR"
                ) from None
            intake.objects.append({**asdict(wanted), "digest": digest})
            yield path, digest


def _store(base: str) -> "ObjectStore":
    from treering.objects import ObjectStore  # noqa: PLC0415 - an extra

    return ObjectStore(base, attempts=_ATTEMPTS)


def _split(url: str) -> tuple[str, str]:
    """The URL of a folder, and the pattern from there on: all of it, one object, or what has a wildcard."""
    parts = url.rstrip("/").split("/")
    first = next((number for number, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
    endings = tuple(ending for form in ENDINGS.values() for ending in form)
    if first == len(parts) and url.endswith(endings):
        first -= 1
    return "/".join(parts[:first]), "/".join(parts[first:])
