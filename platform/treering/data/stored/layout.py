"""Names in the store of data, and the record of a project's data there."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from treering.config.canonical import DIGEST_PREFIX, parse_json
from treering.data.stored import DATA_VARIABLE
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.objects import ObjectStore
from treering.progress import Progress
from treering.project import Project

CURATED_FILES: Final = "files.json"

_ATTEMPTS: Final = 6
_PLACE: Final = re.compile(r"(?:train|heldout)/[a-z0-9][a-z0-9_-]{0,63}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NO_DIGEST: Final = f"sha256:{'0' * 64}"


@dataclass(frozen=True, slots=True)
class Moved:
    """One thing that is at both ends now.

    Attributes:
        what: what it is, in words.
        digest: its digest.
        num_bytes: its size.
        moved: bytes that were sent or brought; 0 where it was there.
    """

    what: str
    digest: str
    num_bytes: int
    moved: int


class Meter:
    """Counts the bytes of one thing for a `Progress`.

    Args:
        progress: told the sum.
        what: name of the thing.
        size: its bytes.
    """

    def __init__(self, progress: Progress, what: str, size: int) -> None:
        self._progress, self._what, self._size = progress, what, size
        self._done = 0

    def __call__(self, num_bytes: int) -> None:
        """Adds bytes that are done."""
        self._done += num_bytes
        self._progress(self._what, self._done, self._size)


def total_size(files: Mapping[str, Mapping[str, Any]]) -> int:
    """Bytes of some files, by their descriptions."""
    return sum(int(each["size"]) for each in files.values())


def data_store(url: str | None, command: str) -> ObjectStore:
    """The store of data.

    Args:
        url: as given; None for the variable.
        command: that needs it, for the error.

    Raises:
        UserError: none is named, or it cannot be opened.
    """
    place = url or os.environ.get(DATA_VARIABLE)
    if not place:
        raise UserError(f"{command}: found no store, expected URL or {DATA_VARIABLE}: {command} s3://BUCKET/PREFIX")
    return ObjectStore(place, attempts=_ATTEMPTS)


def corpus_base(digest: str) -> str:
    """Where a corpus is."""
    return f"corpora/{digest.removeprefix(DIGEST_PREFIX)}"


def tokenizer_name(digest: str) -> str:
    """Where a tokenizer is."""
    return f"tokenizers/{digest.removeprefix(DIGEST_PREFIX)}.json"


def curated_base(digest: str) -> str:
    """Where curated documents are."""
    return f"curated/{digest.removeprefix(DIGEST_PREFIX)}"


def project_name(project: Project) -> str:
    """Where the record of a project's data is."""
    return f"projects/{project.name}.json"


def read_record(store: ObjectStore, project: Project) -> dict[str, Any]:
    """What the data of a project was when it was last pushed.

    Raises:
        NotFoundError: it never was.
        EvidenceError: the record cannot be read.
        StoreError: the store does not answer.
    """
    content = store.get(project_name(project))
    if content is None:
        raise NotFoundError(
            f"{store.place}: has no data of project {project.name}, expected {project_name(project)}; run `treering "
            "push` where the data is, or name the project by TREERING_PROJECT"
        )
    problem = None
    try:
        record = parse_json(content)
        digests = [*record["corpora"].values(), record["tokenizer"], record["curated"] or _NO_DIGEST]
        wrong = [place for place in record["corpora"] if not _PLACE.fullmatch(place)]
        wrong += [digest for digest in digests if not _DIGEST.fullmatch(digest)]
        if wrong:
            problem = f"found {wrong[0]!r}, expected places of corpora and digests"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        problem = str(error)
    if problem is not None:
        raise EvidenceError(
            f"{store.place}: {project_name(project)} cannot be read ({problem}); `treering push` writes it again",
            remedy="`treering push`",
        )
    found: dict[str, Any] = record
    return found
