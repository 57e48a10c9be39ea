"""Records of WARC files: where a file may be cut, and what an error names when a file is damaged."""

import gzip
import io
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from web_archive import Record, archive, record_id, write

from treering.data.sources import warc_records
from treering.data.sources.warc_records import read_records, record_borders
from treering.errors import UserError

CHANCE = random.Random(7)
CONTENTS = [CHANCE.randbytes(CHANCE.choice((0, 10, 300, 5_000))) for _ in range(60)]
RECORDS = [Record(content, "resource", media_type="image/png") for content in CONTENTS]


def read(path: Path, begin: int = 0, end: int | None = None) -> list[tuple[int, str]]:
    found = read_records(
        path,
        begin,
        end,
        lambda byte: f"{path.name}, record at byte {byte}",
        lambda record: record.rec_headers.get_header("WARC-Record-ID"),
    )
    return list(found)


@pytest.mark.parametrize("compressed", [True, False])
def test_every_cut_gives_the_same_records(tmp_path: Path, compressed: bool) -> None:
    path = write(tmp_path / "a", archive(RECORDS, compressed=compressed))
    expected = read(path)
    assert [name for _, name in expected] == [f"<{record_id(number)}>" for number in range(60)]
    positions = [position for position, _ in expected]
    for most_bytes in (1, 700, 4_000, 30_000, 90_000, 1 << 40):
        starts = record_borders(path, most_bytes)
        assert set(starts) <= set(positions)
        assert all(
            following == next(place for place in positions if place >= begin + most_bytes)
            for begin, following in pairwise(starts)
        )
        assert (most_bytes == 1) == (starts == positions)
        pieces = zip(starts, [*starts[1:], None], strict=True)
        assert [each for begin, end in pieces for each in read(path, begin, end)] == expected


def test_a_border_between_two_blocks_of_reading_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc_records, "READ_BYTES", 2)
    path = write(tmp_path / "a.warc.gz", archive(RECORDS[:8]))
    assert record_borders(path, 1) == [position for position, _ in read(path)]


def test_an_archive_in_a_record_is_never_taken_for_the_file_itself(tmp_path: Path) -> None:
    inner = archive(RECORDS)
    assert len(inner) > 70_000
    holder = gzip.compress(archive([Record(inner, "resource")], compressed=False), compresslevel=0)
    assert gzip.decompress(inner[: inner.index(b"\x1f\x8b\x08", 1)]).startswith(b"WARC/1.0")
    assert inner[:60_000] in holder
    path = write(tmp_path / "a.warc.gz", holder + archive(RECORDS[:3]) + holder)
    positions = [position for position, _ in read(path)]
    assert len(positions) == 5
    assert record_borders(path, 1) == positions


def test_a_cut_that_is_no_border_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", archive(RECORDS))
    with pytest.raises(
        UserError, match=r"record at byte 0: the record ends at byte \d+, and another .* at byte 9, ins"
    ):
        read(path, 0, 9)


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


SECOND = len(archive(RECORDS[3:4]))
SECOND_PLAIN = len(archive(RECORDS[3:4], compressed=False))


@pytest.mark.parametrize(
    ("damage", "compressed", "message"),
    [
        (lambda data: data[:-1], True, r"record at byte \d{3,}: damaged or cut off \(the file ends inside the record"),
        (lambda data: data[:-9], False, r"record at byte \d{3,}: damaged or cut off \(the file ends inside the record"),
        (lambda data: changed(data, SECOND + 60), True, rf"record at byte {SECOND}: damaged or cut off \(Error -3"),
        (lambda data: changed(data, SECOND), True, rf"record at byte {SECOND}: damaged .*incorrect header check"),
        (
            lambda data: changed(data, SECOND_PLAIN),
            False,
            rf"byte {SECOND_PLAIN}: damaged .*Invalid WARC record, first",
        ),
        (lambda data: data + b"\0", True, r"record at byte \d{4,}: damaged or cut off \(the file ends inside"),
        (
            lambda _: b"no archive\n",
            True,
            r"byte 0: damaged .*Invalid WARC record, first line: 'no archive'\), expected a",
        ),
        (
            lambda data: data.replace(b"Length: 5000\r", b"Length: 4999\r"),
            False,
            r"damaged .*Invalid WARC record, first",
        ),
        (lambda data: data.replace(b"Content-Length", b"Content-Leng"), False, r"byte 0: .*it has no Content-Length"),
    ],
)
def test_damage_is_named_with_its_place(
    tmp_path: Path, damage: Callable[[bytes], bytes], compressed: bool, message: str
) -> None:
    records = [RECORDS[3], Record(CHANCE.randbytes(5_000), "resource"), Record(CHANCE.randbytes(400), "resource")]
    path = write(tmp_path / "a.warc", damage(archive(records, compressed=compressed)))
    with pytest.raises(UserError, match=rf"a\.warc, {message}" if message[0] == "r" else message):
        read(path)
    assert record_borders(path, 1)[0] == 0


def test_a_line_that_is_no_header_is_shown_by_its_beginning(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc", b"\x1b[2J{" + b"x" * 900_000)
    with pytest.raises(UserError, match=r"Invalid WARC record, first line: '\\x1b\[2J\{x{55}'\), expected a whole"):
        read(path)


TOO_LONG = r"record at byte 0: damaged .*\(its header is longer than 1 MiB\), expected a whole WARC record"


@pytest.mark.parametrize("compressed", [True, False])
def test_a_header_without_end_is_refused(tmp_path: Path, compressed: bool) -> None:
    data = b"WARC/1.0\r\n" + b"a: b\r\n" * 200_000 + b"Content-Length: 0\r\n\r\n\r\n\r\n"
    with pytest.raises(UserError, match=TOO_LONG):
        read(write(tmp_path / "a.warc", gzip.compress(data, 1) if compressed else data))


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    data = b"WARC/1.0\r\nX: " + bytes(70_000_000) + b"\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
    path = write(tmp_path / "a.warc.gz", gzip.compress(data, 1))
    del data
    tracemalloc.start()
    with pytest.raises(UserError, match=TOO_LONG):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_the_first_byte_decides_whether_a_file_is_compressed(tmp_path: Path) -> None:
    plain = archive(RECORDS[:2], compressed=False)
    path = write(tmp_path / "a.warc", plain + archive(RECORDS[2:3]))
    assert len(read(path, 0, len(plain))) == 2
    for begin in (0, len(plain)):
        with pytest.raises(UserError, match=rf"record at byte {len(plain)}: damaged .*Invalid WARC record, first"):
            read(path, begin)


@pytest.mark.parametrize(("said", "message"), [(4_999, "more bytes than"), (5_001, "1 bytes fewer than")])
def test_a_wrong_length_is_noticed(tmp_path: Path, said: int, message: str) -> None:
    plain = gzip.decompress(archive([Record(b"x" * 5_000)]))
    path = write(tmp_path / "a", gzip.compress(plain.replace(b"h: 5000", b"h: %d" % said).rstrip(b"\r\n")))
    with pytest.raises(UserError, match=rf"record at byte 0: damaged or cut off \({message} its Content-Length says"):
        read(path)


def test_a_file_that_is_compressed_as_a_whole_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", gzip.compress(archive(RECORDS, compressed=False)))
    with pytest.raises(UserError, match=r"holds several records, .*; run `warcio recompress OLD NEW`"):
        read(path)
    assert record_borders(path, 1) == [0]
    subprocess.run(
        [sys.executable, "-m", "warcio.cli", "recompress", str(path), str(tmp_path / "b.warc.gz")],
        check=True, capture_output=True,
    )  # fmt: skip
    assert [name for _, name in read(tmp_path / "b.warc.gz")] == [f"<{record_id(number)}>" for number in range(60)]


def test_files_and_members_without_a_record(tmp_path: Path) -> None:
    assert read(write(tmp_path / "empty", b"")) == []
    empty = io.BytesIO()
    gzip.GzipFile(fileobj=empty, mode="wb").close()
    data = empty.getvalue() + archive(RECORDS[:1])
    assert read(write(tmp_path / "member", data)) == [(len(empty.getvalue()), f"<{record_id(0)}>")]
