"""The tokenizer of a run: a path leads to a file, and the digest decides whether that file is the run's tokenizer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from treering.config.canonical import digest_file, short
from treering.config.model import Digest
from treering.data.corpus.corpus import MANIFEST
from treering.data.corpus.manifest import read_manifest
from treering.data.corpus.sentencepiece_model import without_model
from treering.errors import EvidenceError, UserError
from treering.files import read_bytes, read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TextTokenizer(Protocol):
    """What is asked of a tokenizer that cuts text; encodings have their tokens in `ids`."""

    def encode(self, text: str, /) -> Any:
        """The tokens of a text."""

    def encode_batch_fast(self, texts: Sequence[str], /) -> Sequence[Any]:
        """The tokens of several texts."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of tokens; special tokens have none."""

    def get_vocab_size(self) -> int:
        """Number of entries."""

    def token_to_id(self, token: str, /) -> int | None:
        """The number of a token, None if there is no such token."""


def check_tokenizer(path: Path, digest: Digest | None, run: str) -> None:
    """Refuses a tokenizer that is not the one that a run was trained with.

    Args:
        path: `tokenizer.json`.
        digest: digest of the tokenizer that the run records.
        run: the run's id, for the error.

    Raises:
        EvidenceError: the tokenizer is missing, or is another one.
    """
    found = digest_file(path) if path.is_file() else None
    if found is None or found != digest:
        raise EvidenceError(
            f"{path}: tokenizer {short(found) if found else 'missing'}, but run {run} was trained with "
            f"{short(digest or 'none')}; `dvc checkout` or `dvc repro tokenize`",
            file=path,
            found=found,
            expected=digest,
            remedy="`dvc checkout` or `dvc repro tokenize`",
        )


def open_tokenizer(path: Path) -> "Tokenizer":
    """Reads a tokenizer, to turn tokens into text; `text_tokenizer.load_tokenizer` cuts text.

    Raises:
        EvidenceError: it is not a readable `tokenizer.json`.
    """
    return parse_tokenizer(read_text(path), path)


def parse_tokenizer(text: str, path: Path) -> "Tokenizer":
    """Reads the text of a tokenizer; `path` names it in errors.

    Raises:
        EvidenceError: it is not that of a `tokenizer.json`.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - heavy, and only needed for text

    try:
        return Tokenizer.from_str(without_model(text))
    except Exception as error:  # noqa: BLE001 - the library raises plain exceptions
        raise EvidenceError(
            f"{path}: not a readable tokenizer ({error}), expected a tokenizer.json; `treering tokenize` makes it anew",
            file=path,
            found=str(error),
            expected="a tokenizer.json",
            remedy="`treering tokenize`",
        ) from None


def num_entries(tokenizer: "Tokenizer") -> int:
    """What `vocabulary_size` must be: one more than the highest number of a token, of which some may be no token's."""
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    return max(tokenizer.get_vocab_size(), highest + 1)


def end_of_document(path: Path) -> tuple[str, int]:
    """Text and number of the token that ends every document.

    It is the tokenizer's only special token. Among several, the corpora beside the tokenizer say which one it is.

    Raises:
        UserError: the tokenizer has no special token, or several, and no corpus is beside it.
        EvidenceError: a corpus's manifest does not hold.
    """
    special = [token for token in json.loads(read_bytes(path))["added_tokens"] if token["special"]]
    if len(special) > 1:
        manifests = (read_manifest(manifest) for manifest in sorted(path.parent.glob(f"*/*/{MANIFEST}")))
        ends = {manifest["tokenizer"]["end_of_document"] for manifest in manifests}
        special = [token for token in special if token["id"] in ends] or special
    if len(special) != 1:
        found = ", ".join(repr(token["content"]) for token in special[:4]) or "none"
        raise UserError(
            f"{path}: found special tokens {found}, expected one, which ends a document, or the corpora of the run "
            "beside the file; use the project's own data/corpora/tokenizer.json"
        )
    return special[0]["content"], special[0]["id"]
