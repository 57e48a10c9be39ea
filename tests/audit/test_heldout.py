"""Digests of held-out documents, looked up among those of training documents."""

import shutil

import pyarrow as pa
import pytest

from treering.audit.corpora.heldout import HeldOutDocuments, digest_words
from treering.errors import EvidenceError


def digests(corpus):
    return [row["digest"] for row in corpus.documents(range(corpus.num_documents), ["digest"])]


def test_held_out_documents_are_found_among_others(built):
    assert HeldOutDocuments.of(built.project) is None
    for name in ("green", "red"):
        shutil.copytree(built.corpora[name].directory, built.project.corpus(name, "heldout"))
    held_out = HeldOutDocuments.of(built.project)
    green, red, blue = (digests(built.corpora[name]) for name in ("green", "red", "blue"))
    assert len(held_out) == len({*green, *red})
    alike = green[3][:30] + "0" * 41  # begins like one of them
    mixed = [blue[0], green[3], alike, *blue[1:50], red[5], red[5]]
    assert held_out.among(pa.array(mixed)).tolist() == [
        position for position, digest in enumerate(mixed) if digest in {*green, *red}
    ]
    assert held_out.name_of(green[3]) == "green:green-3"


def test_digests_that_begin_alike_are_told_apart(built):
    shutil.copytree(built.corpora["green"].directory, built.project.corpus("green", "heldout"))
    held_out = HeldOutDocuments.of(built.project)
    first = sorted(digests(built.corpora["green"]))
    held_out._first[:] = held_out._first[0]  # as if all began with the same 64 bits
    asked = [digest[:7] + first[0][7:23] + digest[23:] for digest in first]
    assert held_out.among(pa.array([first[0], "sha256:" + "0" * 64])).tolist() == [0]
    held_out._words[:, 0] = held_out._first
    assert held_out.among(pa.array(asked)).tolist() == list(range(len(asked)))


@pytest.mark.parametrize("text", ["sha256:" + "0" * 63, "sha256:" + "g" * 64, "sha512:" + "0" * 64, ""])
def test_what_is_no_digest_is_refused(text):
    with pytest.raises(EvidenceError, match="digests of documents: found one that is not sha256:"):
        digest_words(pa.array(["sha256:" + "0" * 64, text]), 1)


def test_words_are_those_of_the_digest():
    text = "0123456789abcdef" * 4
    column = pa.array(["sha256:" + "f" * 64, f"sha256:{text}"]).slice(1)
    assert digest_words(column, 4).tolist() == [[0x0123456789ABCDEF] * 4]
