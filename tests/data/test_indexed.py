from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from treering.data.indexed import MappedOffsets, TokenFile, index_bytes, index_document
from treering.errors import EvidenceError

LENGTHS = np.array([5, 1, 7, 3], dtype=np.int32)
TOKENS = np.array([7, 65535, 3, 9, 0, 1, 2, 4, 8, 16, 32, 64, 0, 11, 12, 0], dtype=np.uint16)


def write(folder: Path, lengths: np.ndarray = LENGTHS, tokens: np.ndarray = TOKENS) -> tuple[Path, Path]:
    pair = folder / "a.bin", folder / "a.idx"
    pair[0].write_bytes(tokens.tobytes())
    pair[1].write_bytes(index_bytes(lengths))
    return pair


def test_round_trip(tmp_path: Path) -> None:
    file = TokenFile.open(*write(tmp_path))
    assert file.tokens.tolist() == TOKENS.tolist()
    assert file.document_offsets.tolist() == [0, 5, 6, 13, 16]
    assert file.document_offsets.flags.aligned


def test_megatron_reads_ours(tmp_path: Path) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    write(tmp_path)
    theirs = indexed.IndexedDataset(str(tmp_path / "a"), multimodal=False, mmap=True)
    assert theirs.index.dtype is np.uint16
    assert theirs.sequence_lengths.tolist() == LENGTHS.tolist()
    assert theirs.document_indices.tolist() == [0, 1, 2, 3, 4]
    assert np.concatenate([theirs[i] for i in range(len(theirs))]).tolist() == TOKENS.tolist()


def test_we_read_megatrons(tmp_path: Path) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    torch = pytest.importorskip("torch")
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "b.bin"), dtype=np.int32)
    builder.add_document(torch.tensor([1, 2, 3, 4, 5]), [2, 3])  # a document of two sequences
    builder.add_document(torch.tensor([70000, 8]), [2])
    builder.finalize(str(tmp_path / "b.idx"))
    file = TokenFile.open(tmp_path / "b.bin", tmp_path / "b.idx")
    assert file.tokens.tolist() == [1, 2, 3, 4, 5, 70000, 8]
    assert file.sequence_lengths.tolist() == [2, 3, 2]
    assert file.document_offsets.tolist() == [0, 5, 7]


def test_our_index_is_megatrons_byte_for_byte(tmp_path: Path) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    torch = pytest.importorskip("torch")
    builder = indexed.IndexedDatasetBuilder(str(tmp_path / "c.bin"), dtype=np.uint16)
    starts = np.concatenate(([0], np.cumsum(LENGTHS)))
    for start, length in zip(starts, LENGTHS, strict=False):
        builder.add_document(torch.tensor(TOKENS[start : start + length].astype(np.int64)), [int(length)])
    builder.finalize(str(tmp_path / "c.idx"))
    assert (tmp_path / "c.idx").read_bytes() == index_bytes(LENGTHS)
    assert (tmp_path / "c.bin").read_bytes() == TOKENS.tobytes()


@pytest.mark.parametrize("position", [34, 34 + 3, 34 + 16, 34 + 16 + 31, 34 + 48, 34 + 48 + 31])
def test_a_byte_of_the_index_belongs_to_a_document(position: int) -> None:
    expected = {34: 0, 37: 0, 50: 0, 81: 3, 82: 0, 113: 3}
    assert index_document(position, 4) == expected[position]


def test_header_and_end_belong_to_no_document() -> None:
    assert index_document(33, 4) is None
    assert index_document(34 + 48 + 32, 4) is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:20], "found 20 bytes, expected a header of 34"),
        (lambda raw: b"X" + raw[1:], "found header"),
        (lambda raw: raw[:9] + b"\x02" + raw[10:], "version 2"),
        (lambda raw: raw[:-8], "expected 122 for 4 sequences"),
        (lambda raw: raw[:34] + b"\x06" + raw[35:], "do not lie one after the other"),
        (lambda raw: raw[:-8] + b"\x02" + raw[-7:], "do not ascend"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path: Path, damage: object, message: str) -> None:
    bin_path, idx_path = write(tmp_path)
    idx_path.write_bytes(damage(idx_path.read_bytes()))
    with pytest.raises(EvidenceError, match=message):
        TokenFile.open(bin_path, idx_path)


def test_tokens_of_another_size_are_refused(tmp_path: Path) -> None:
    bin_path, idx_path = write(tmp_path, tokens=TOKENS[:-1])
    with pytest.raises(EvidenceError, match="found 30 bytes, expected 32"):
        TokenFile.open(bin_path, idx_path)
    bin_path.unlink()
    with pytest.raises(EvidenceError, match="No such file"):
        TokenFile.open(bin_path, idx_path)


def test_mapped_offsets_answer_like_an_array(tmp_path: Path) -> None:
    lengths = np.random.default_rng(0).integers(1, 9, 1000).astype(np.int32)
    (tmp_path / "a.idx").write_bytes(index_bytes(lengths))
    mapped, offsets = MappedOffsets.open(tmp_path / "a.idx"), np.concatenate(([0], np.cumsum(lengths)))
    assert len(mapped) == 1001
    assert (mapped[0], mapped[7], mapped[1000], mapped[-1]) == (0, offsets[7], offsets[1000], offsets[1000])
    bounds = ((None,), (None, -1), (1, None), (5, 9), (990, 2000), (9, 5), (0, 9, 2))
    for key in (slice(*each) for each in bounds):
        assert mapped[key].tolist() == offsets[key].tolist()
    some = np.array([1000, 0, 3, 3, 999])
    assert mapped[some].tolist() == offsets[some].tolist()
    for side in ("left", "right"):
        wanted = np.arange(-1, offsets[-1] + 2)
        assert np.array_equal(mapped.searchsorted(wanted, side), np.searchsorted(offsets, wanted, side))


def test_mapped_offsets_refuse_what_is_no_index_of_single_sequences(tmp_path: Path) -> None:
    whole, path = index_bytes(LENGTHS), tmp_path / "a.idx"
    with pytest.raises(EvidenceError, match=r"a\.idx: No such file or directory; expected an index"):
        MappedOffsets.open(path)
    for raw, message in (
        (whole[:-1], "found 121 bytes, expected 122 for 4 sequences"),
        (b"X" + whole[1:], "found header"),
        (whole[:26] + bytes([4]) + whole[27:-8], "found 4 sequences of 3 documents, expected one for each"),
    ):
        path.write_bytes(raw)
        with pytest.raises(EvidenceError, match=message):
            MappedOffsets.open(path)


@pytest.mark.parametrize("byte", [34 + 4 * 500, 34 + 4 * 1000 + 8 * 500, 34 + 4 * 1000 + 8 * 500 + 6])
def test_mapped_offsets_contradict_themselves_about_a_changed_document_alone(tmp_path: Path, byte: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 9, 1000).astype(np.int32)
    raw, offsets = bytearray(index_bytes(lengths)), np.concatenate(([0], np.cumsum(lengths)))
    raw[byte] ^= 0x20
    (tmp_path / "a.idx").write_bytes(raw)
    mapped = MappedOffsets.open(tmp_path / "a.idx")
    others = np.array([0, 498, 501, 1000])
    assert mapped[others].tolist() == offsets[others].tolist()
    assert np.array_equal(mapped[:500], offsets[:500])
    assert np.array_equal(mapped[501:], offsets[501:])
    for token in range(0, int(offsets[-1]), 7):  # a search may end at what was changed, wherever it was to go
        with suppress(EvidenceError):
            assert mapped.searchsorted(token, "right") == np.searchsorted(offsets, token, "right")
    search = partial(mapped.searchsorted, offsets[500], "right")
    for ask in (lambda: mapped[np.array([7, 500])], lambda: mapped[490:510], search):
        with pytest.raises(EvidenceError, match=r"a\.idx: document (499|500) begins at token .* the index was changed"):
            ask()
