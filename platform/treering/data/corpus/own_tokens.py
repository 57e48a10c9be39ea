"""Your own Megatron pair becomes a corpus: its documents, as they are, with a digest each, and some of them held out.

Nothing is extracted, filtered or deduplicated. A document is held out by the hash of its number, keyed by the seed of
curation, so that validation and evaluation have tokens that no step reads.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from treering.config.canonical import DIGEST_PREFIX, digest_file
from treering.config.corpora import CorpusConfig, CurationConfig, TokenizerConfig
from treering.data.corpus.indexed import TokenFile
from treering.data.corpus.write import write_tokens
from treering.errors import EvidenceError, UserError
from treering.files import read_bytes
from treering.project import Project

SPLITS: Final = ("train", "heldout")


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """A pair of your own, opened: its index fits the tokens, and no document is empty.

    Attributes:
        corpus: name of the corpus.
        bin_path: the tokens.
        file: the pair.
        digest: of the tokens, as stage `fetch` recorded it.
    """

    corpus: str
    bin_path: Path
    file: TokenFile
    digest: str

    @classmethod
    def open(cls, corpus: CorpusConfig, project: Project) -> "OwnTokens":
        """Opens the pair that stage `fetch` recorded.

        Raises:
            UserError: it was not fetched, or its documents cannot be told apart, or one of them is empty.
            EvidenceError: the index is another one than was fetched, is damaged, or does not fit the tokens.
        """
        record = _record(corpus, project)
        stem = str(project.root / str(record["path"])).removesuffix(".bin").removesuffix(".idx")
        bin_path, idx_path = Path(stem + ".bin"), Path(stem + ".idx")
        if not idx_path.is_file() or digest_file(idx_path) != record["digests"][".idx"]:
            _changed(corpus.name, idx_path)
        file = TokenFile.open(bin_path, idx_path)
        lengths = np.diff(file.document_offsets)
        if len(lengths) < 2:
            raise UserError(
                f"corpus {corpus.name}: {idx_path}: found {len(lengths)} documents, expected at least 2, one of which "
                "is held out; write the pair again with one document for each text"
            )
        empty = np.flatnonzero(lengths < 1)
        if len(empty):
            raise UserError(
                f"corpus {corpus.name}: {idx_path}: document {empty[0]} has no token, expected at least one; write the "
                "pair again without empty documents"
            )
        return cls(corpus.name, bin_path, file, record["digests"][".bin"])

    def split(self, curation: CurationConfig) -> npt.NDArray[np.bool_]:
        """Whether each document is held out, at least one and not all: bool [num_documents]."""
        count = len(self.file.document_offsets) - 1
        seed = f"own-tokens:{curation.seed}".encode()
        hashes = (hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8, key=seed) for number in range(count))
        ranks = np.fromiter((int.from_bytes(each.digest(), "little") for each in hashes), np.uint64, count)
        heldout: npt.NDArray[np.bool_] = ranks < np.uint64(curation.heldout.fraction * 2**64)
        heldout[int(ranks.argmin())] = True
        heldout[int(ranks.argmax())] = False
        return heldout

    def documents(self, vocabulary_size: int) -> Iterator[tuple[int, npt.NDArray[np.generic]]]:
        """Number and tokens of every document; at the end the digest of the file is compared with the recorded one.

        Args:
            vocabulary_size: tokens must be smaller.

        Raises:
            UserError: a token is outside the vocabulary.
            EvidenceError: the tokens are others than those that were fetched.
        """
        state, tokens, offsets = hashlib.sha256(), self.file.tokens, self.file.document_offsets
        for number in range(len(offsets) - 1):
            document = np.asarray(tokens[offsets[number] : offsets[number + 1]])
            state.update(document.tobytes())
            if document.max() >= vocabulary_size or document.min() < 0:
                wrong = int(document.max() if document.max() >= vocabulary_size else document.min())
                raise UserError(
                    f"corpus {self.corpus}: {self.bin_path}: document {number} holds token {wrong}, expected tokens "
                    f"from 0 to {vocabulary_size - 1} by tokenizer.vocabulary_size; name the tokenizer that made them"
                )
            yield number, document
        if DIGEST_PREFIX + state.hexdigest() != self.digest:
            _changed(self.corpus, self.bin_path)


def write_own_tokens(
    corpus: CorpusConfig,
    directories: dict[str, Path],
    config: TokenizerConfig,
    curation: CurationConfig,
    project: Project,
    *,
    tokenizer: dict[str, Any],
) -> dict[str, dict[str, Any]]:
    """Writes both splits of a corpus of your own tokens, and returns their manifests.

    Args:
        corpus: its config.
        directories: folder of each split, which must not exist yet.
        config: of the tokenizer that made the tokens.
        curation: seed and fraction of the held-out documents.
        project: where the pair and its record are.
        tokenizer: the field `tokenizer` of the manifests.

    Raises:
        UserError: see `OwnTokens`.
        EvidenceError: see `OwnTokens`.
    """
    own = OwnTokens.open(corpus, project)
    heldout = own.split(curation)
    step = {
        "step": "split",
        "input": own.digest,
        "parameters": {"fraction": curation.heldout.fraction, "seed": curation.seed},
        "kept": int((~heldout).sum()),
        "dropped": 0,
    }

    def documents(wanted: bool) -> Iterator[tuple[dict[str, Any], npt.NDArray[Any]]]:
        for number, tokens in own.documents(config.vocabulary_size):
            if heldout[number] == wanted:
                row = {"id": str(number), "source": own.digest, "offset": number, "licence": corpus.licence}
                yield row, tokens

    manifests = {}
    for split, wanted in zip(SPLITS, (False, True), strict=True):
        about = {
            "name": corpus.name,
            "split": split,
            "licence": corpus.licence,
            "source": [own.digest],
            "tokenizer": tokenizer,
            "curation": [step],
        }
        manifests[split] = write_tokens(directories[split], documents(wanted), about, width=config.token_width_bytes)
    return manifests


def _record(corpus: CorpusConfig, project: Project) -> dict[str, Any]:
    path = project.tokens_record(corpus.name)
    try:
        record: dict[str, Any] = json.loads(read_bytes(path))
        whole = record["path"] == corpus.megatron and {".bin", ".idx"} <= set(record["digests"])
    except (OSError, ValueError, LookupError, TypeError):
        whole = False
    if not whole:
        raise UserError(f"corpus {corpus.name}: {path} does not describe {corpus.megatron}; run `treering fetch` first")
    return record


def _changed(corpus: str, path: Path) -> NoReturn:
    raise EvidenceError(
        f"corpus {corpus}: {path} is missing, or was changed after `treering fetch` digested it; fetch again",
        file=path,
        remedy="`treering fetch`",
    )
