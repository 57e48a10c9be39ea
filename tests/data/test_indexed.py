import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from treering.data.corpus import index_writer
from treering.data.corpus.index_writer import IndexWriter
from treering.data.corpus.indexed import SequenceIndex, TokenFile, index_bytes, index_document, read_sequence_lengths
from treering.data.corpus.mapped_offsets import MappedOffsets
from treering.errors import EvidenceError

LENGTHS = np.array([5, 1, 7, 3], dtype=np.int32)
TOKENS = np.array([7, 65535, 3, 9, 0, 1, 2, 4, 8, 16, 32, 64, 0, 11, 12, 0], dtype=np.uint16)


def write(folder: Path, lengths: np.ndarray = LENGTHS, tokens: np.ndarray = TOKENS) -> tuple[Path, Path]:
    pair = folder / "a.bin", folder / "a.idx"
    pair[0].write_bytes(tokens.tobytes())
    pair[1].write_bytes(index_bytes(lengths))
    return pair


def test_an_error_names_its_file_and_what_was_found(tmp_path: Path) -> None:
    bin_path, idx_path = write(tmp_path)
    bin_path.write_bytes(bin_path.read_bytes()[:-2])
    with pytest.raises(EvidenceError, match=r"found 30 bytes, expected 32 by a\.idx") as caught:
        TokenFile.open(bin_path, idx_path)
    assert (caught.value.file, caught.value.found, caught.value.expected) == (bin_path, 30, 32)
    idx_path.write_bytes(b"X" + idx_path.read_bytes()[1:])
    with pytest.raises(EvidenceError, match="found header b'XMIDIDX") as caught:
        TokenFile.open(bin_path, idx_path)
    assert (caught.value.file, caught.value.found) == (idx_path, b"XMIDIDX\x00\x00")


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("parts", [[], [0], [1], [3, 0, 4], [8], [9, 7]])
def test_an_index_written_by_blocks_is_the_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[int], width: int
) -> None:
    monkeypatch.setattr(index_writer, "_BLOCK", 4)
    lengths = np.random.default_rng(0).integers(0, 1 << 31, sum(parts), np.int32)
    with IndexWriter(tmp_path / "a.idx", width) as index:
        for part in np.split(lengths, np.cumsum(parts)[:-1]):
            index.add(part)
    assert (tmp_path / "a.idx").read_bytes() == index_bytes(lengths, width)
    assert (index.num_documents, index.num_tokens) == (len(lengths), int(lengths.sum(dtype=np.int64)))


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


def changed(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:at] + new + raw[at + len(new) :]


def int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda raw: raw[:0], "a.idx: found 0 bytes, expected a header of 34"),
    (lambda raw: raw[:20], "a.idx: found 20 bytes, expected a header of 34"),
    (changed(0, b"X"), "found header b'XMIDIDX.* at byte 0, expected b'MMIDIDX"),
    (
        changed(0, b"TNTIDX\0\0"),
        r"an index of fairseq's format \(`--data-impl lazy` or `cached`\), expected Megatron's",
    ),
    (changed(9, b"\2"), "found version 2 at byte 9, expected 1"),
    (changed(17, b"\0"), r"found token type 0 at byte 17, expected one of 1 \(uint8\)"),
    (changed(17, b"\x09"), "found token type 9 at byte 17"),
    (changed(17, b"\6"), r"found token type 6 \(floating point\) at byte 17: rewards or features, not tokens"),
    (changed(17, b"\5"), r"sequence 1 begins at byte 10 .*, expected 40, .* \(tokens of 8 bytes\)"),
    (changed(18, int64(2**60)), "found 122 bytes, expected 13835058055282163786 for 1152921504606846976 sequences"),
    (changed(26, int64(-1)), "for 4 sequences and 18446744073709551615 document offsets"),
    (lambda raw: raw[:-8], "found 114 bytes, expected 122 for 4 sequences"),
    (lambda raw: raw + b"\0", "found 123 bytes, expected 122 for 4 sequences"),
    (changed(38, b"\xfd\xff\xff\xff"), r"sequence 1 has length -3 \(byte 38\), expected at least 0"),
    (changed(38, b"\2"), r"sequence 2 begins at byte 12 .*\(byte 66 of the index\), expected 14"),
    (changed(46, b"\x0b"), "a.bin: found 32 bytes, expected 48 by a.idx"),  # the last length: no pointer follows
    (changed(50, int64(2)), r"sequence 0 begins at byte 2 .*\(byte 50 of the index\), expected 0"),
    (changed(50, int64(0) * 4), "sequence 1 begins at byte 0 .*, expected 10"),
    (changed(58, int64(12) + int64(10)), "sequence 1 begins at byte 12 .*, expected 10"),
    (changed(74, int64(2**40)), "sequence 3 begins at byte 1099511627776 .*, expected 26"),
    (changed(82, int64(1)), r"document 0 begins at sequence 1 \(byte 82\), expected 0 to 0"),
    (changed(82, int64(-1)), "document 0 begins at sequence -1 .*, expected 0 to 0"),
    (changed(90, int64(3)), r"document 2 begins at sequence 2 \(byte 98\), expected 3 to 4"),
    (changed(98, int64(5)), "document 2 begins at sequence 5 .*, expected 1 to 4"),
    (changed(114, int64(3)), r"the documents end at sequence 3 \(byte 114\), expected 4, the number of sequences"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_index_is_refused_with_its_field_and_place(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    bin_path, idx_path = write(tmp_path)
    idx_path.write_bytes(damage(idx_path.read_bytes()))
    for ask in (partial(TokenFile.open, bin_path, idx_path), partial(SequenceIndex.open, idx_path, bin_path)):
        with pytest.raises(EvidenceError, match=message):
            ask()


def test_damage_is_found_in_every_part_of_a_long_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.random.default_rng(0).integers(0, 9, 100).astype(np.int32)
    whole, path = index_bytes(lengths), tmp_path / "a.idx"
    monkeypatch.setattr("treering.data.corpus.indexed._CHUNK", 7)
    for document in (0, 6, 7, 8, 13, 14, 98, 99):
        pointer, offset = 34 + 4 * 100 + 8 * document, 34 + 12 * 100 + 8 * (document + 1)
        for at, message in ((pointer, f"sequence {document} begins"), (offset, "document|documents")):
            path.write_bytes(changed(at, int64(10**6))(whole))
            with pytest.raises(EvidenceError, match=message):
                read_sequence_lengths(path)
    path.write_bytes(whole)
    assert read_sequence_lengths(path).tolist() == lengths.tolist()


@pytest.mark.slow
def test_a_changed_byte_is_an_error_or_changes_no_answer(tmp_path: Path) -> None:
    bin_path, idx_path = write(tmp_path)
    whole, random = idx_path.read_bytes(), np.random.default_rng(0)
    changes = [(at, whole[at] ^ (1 << bit)) for at in range(len(whole)) for bit in range(8)]
    changes += [(int(at), int(value)) for at, value in random.integers(0, [len(whole), 256], (500, 2))]
    missed = []
    for at, value in changes:
        idx_path.write_bytes(changed(at, bytes([value]))(whole))
        with suppress(EvidenceError):
            assert SequenceIndex.open(idx_path, bin_path).lengths.tolist() == LENGTHS.tolist()
            if value != whole[at]:
                missed.append(at)
        with suppress(EvidenceError):  # without a token file the last length has nothing that it must fit
            found = SequenceIndex.open(idx_path, tmp_path / "none.bin")
            assert found.lengths[:-1].tolist() == LENGTHS[:-1].tolist()
            assert found.lengths[-1] == LENGTHS[-1] or 46 <= at < 50
    assert missed
    assert {17 if at == 17 else (at - 82) // 8 for at in missed} <= {17, 1, 2, 3}, (
        "a type of the same width, or documents"
    )


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    bin_path, idx_path = write(tmp_path)
    whole = idx_path.read_bytes()
    idx_path.unlink()
    opens = (partial(TokenFile.open, bin_path), read_sequence_lengths, MappedOffsets.open)
    for make, message in (
        (idx_path.mkdir, "Is a directory; expected"),
        (lambda: (idx_path.rmdir(), os.mkfifo(idx_path)), "is a pipe, expected a regular file; expected"),
        (
            lambda: (idx_path.unlink(), idx_path.symlink_to("/dev/zero")),
            "is a device, expected a regular file; expected",
        ),
        (lambda: (idx_path.unlink(), idx_path.symlink_to(idx_path)), "symbolic links; expected"),
    ):
        make()
        for ask in opens:
            with pytest.raises(EvidenceError, match=rf"a\.idx: .*{message}"):
                ask(idx_path)
    idx_path.unlink()
    idx_path.write_bytes(whole)
    bin_path.unlink()
    os.mkfifo(bin_path)
    with pytest.raises(EvidenceError, match=r"a\.bin: not a regular file, expected a token file"):
        read_sequence_lengths(idx_path)


@pytest.mark.parametrize(("code", "width"), [(1, 1), (2, 1), (3, 2), (4, 4), (5, 8), (8, 2)])
def test_every_type_of_whole_numbers_and_empty_sequences_are_read(tmp_path: Path, code: int, width: int) -> None:
    lengths = np.array([0, 5, 0, 0, 7, 3, 0], dtype=np.int32)
    raw = changed(17, bytes([code]))(index_bytes(lengths))
    pointers = (np.cumsum(lengths) - lengths).astype("<i8") * width
    (tmp_path / "a.idx").write_bytes(changed(34 + 28, pointers.tobytes())(raw))
    (tmp_path / "a.bin").write_bytes(bytes(15 * width))
    found = SequenceIndex.open(tmp_path / "a.idx", tmp_path / "a.bin")
    assert (found.lengths.tolist(), found.num_bytes, found.bin_found) == (lengths.tolist(), 15 * width, True)


def test_documents_of_several_sequences_and_none_at_all(tmp_path: Path) -> None:
    def index(documents: list[int]) -> SequenceIndex:
        raw = bytearray(index_bytes(LENGTHS)[:82]) + b"".join(map(int64, documents))
        raw[26:34] = int64(len(documents))
        (tmp_path / "b.idx").write_bytes(raw)
        return SequenceIndex.open(tmp_path / "b.idx", tmp_path / "b.bin")

    for documents, count in (([0, 2, 2, 4], 3), ([0, 4], 1), ([0], 0)):  # the last one: merged by GPT-NeoX
        found = index(documents)
        assert (found.num_documents, found.bin_found, found.lengths.tolist()) == (count, False, LENGTHS.tolist())
    (tmp_path / "c.idx").write_bytes(index_bytes(np.zeros(0, dtype=np.int32)))
    with pytest.raises(EvidenceError, match="found 0 sequences"):
        read_sequence_lengths(tmp_path / "c.idx")


def test_modes_are_read_where_all_are_text(tmp_path: Path) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    torch = pytest.importorskip("torch")
    for name, modes in (("text", [0, 0]), ("images", [0, 1])):
        builder = indexed.IndexedDatasetBuilder(str(tmp_path / f"{name}.bin"), dtype=np.uint16, multimodal=True)
        for mode in modes:
            builder.add_document(torch.tensor([1, 2, 3]), [3], [mode])
        builder.finalize(str(tmp_path / f"{name}.idx"))
    assert read_sequence_lengths(tmp_path / "text.idx").tolist() == [3, 3]
    with pytest.raises(EvidenceError, match=r"modes \(a multimodal data set\): sequence 1 has another mode than 0"):
        read_sequence_lengths(tmp_path / "images.idx")
    with pytest.raises(EvidenceError, match="found 2 sequences of 2 documents with modes, expected one for each"):
        MappedOffsets.open(tmp_path / "text.idx")


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
