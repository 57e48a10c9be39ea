"""Rings are the same rings after their file was compressed, whenever that happens and whoever reads."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import pyzstd

import treering
from treering.config.canonical import digest_bytes
from treering.errors import EvidenceError
from treering.runlog import ring_file
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.blocks import BlockReader
from treering.runlog.recorded_directory import RecordedAttempt
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.ring_file import compress, compress_long, open_rings, state_of
from treering.runlog.ring_log import Place, RingLog
from treering.runlog.writer import RingWriter

BEGIN = digest_bytes(b"header")
NO_SAMPLES = {"samples": None, "tokens": None, "batch_digest": None, "fingerprints": None}


def write(path, steps):
    with RingWriter(path, RecordedRing, BEGIN) as writer:
        for step in range(1, steps + 1):
            writer.append(step=step, metrics={"loss": 1 / step}, ended_at=float(step), **NO_SAMPLES)
    return RingLog(path, RecordedRing)


@pytest.fixture
def rings(tmp_path):
    """20,000 rings, which are 2.3 frames."""
    return write(tmp_path / "rings.jsonl", 20_000)


class Columned:
    """An attempt's folder, for its columns."""

    header_digest = BEGIN

    def __init__(self, log):
        self.path = log.path.parent
        self.ring_log = log


def answers(log):
    return {
        "rings": list(log.rings(BEGIN)),
        "places": [place for _ring, place in log.after(Place(BEGIN))][-1],
        "first": log.first(),
        "last": log.last(),
        "newest": log.newest(30),
        "lines": log.num_lines(),
        "texts": list(log.texts())[-2:],
        "unfinished": log.unfinished(),
        "state": state_of(log.path),
        "blocks": [block.place for block in BlockReader(log).after(Place(BEGIN))],
    }


def test_answers_are_the_same_after_compression(rings, tmp_path):
    with rings.path.open("ab") as file:
        file.write(b'{"torn')
    before = answers(rings)
    assert before["lines"] == 20_000
    assert before["unfinished"] == b'{"torn'
    plain = rings.path.read_bytes()

    assert compress(rings.path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rings.jsonl.zst"]
    assert answers(rings) == before
    assert (tmp_path / "rings.jsonl.zst").stat().st_size < len(plain) / 3
    assert pyzstd.decompress((tmp_path / "rings.jsonl.zst").read_bytes().split(b"\x5e\x2a\x4d\x18")[0]) == plain
    assert answers(RingLog(tmp_path / "rings.jsonl.zst", RecordedRing)) == before


def test_columns_that_were_built_before_stay(rings, monkeypatch):
    columns = AttemptColumns(Columned(rings))
    before, series = columns.head(), columns.history("loss")
    compress(rings.path)
    monkeypatch.setattr(BlockReader, "after", None)  # rings that are read again would end here
    again = AttemptColumns(Columned(rings))
    assert again.head() == before
    assert again.history("loss").values.tolist() == series.values.tolist()
    assert [ring.step for ring in again.newest(3, 15_000)] == [14_998, 14_999, 15_000]
    assert again.ring(1).metrics == {"loss": 1.0}


@pytest.mark.usefixtures("rings")
def test_an_attempt_names_the_file_that_is_there(tmp_path):
    attempt = RecordedAttempt(tmp_path.rename(tmp_path.with_name("0001")))
    (attempt.path / "ranks").mkdir()
    write(attempt.rank_file(1), 3)
    assert attempt.rings_file.name == "rings.jsonl"
    assert compress(attempt.rings_file)
    assert compress(attempt.rank_file(1))
    assert attempt.rings_file.name == "rings.jsonl.zst"
    assert not compress(attempt.rings_file)  # it is compressed, and stays readable
    assert not compress(attempt.rank_file(1))
    assert attempt.ranks() == [0, 1]
    assert attempt.last_step(1) == 3
    with pytest.raises(FileExistsError, match=r"rank-00001\.jsonl\.zst"):  # a second process with this rank
        RingWriter(attempt.rank_file(1), RecordedRing, BEGIN)


def test_a_file_that_a_process_writes_is_left_alone(tmp_path):
    path = tmp_path / "rings.jsonl"
    writer = RingWriter(path, RecordedRing, BEGIN)
    writer.append(step=1, metrics={}, ended_at=0.0, **NO_SAMPLES)
    assert not compress(path)
    writer.append(step=2, metrics={}, ended_at=0.0, **NO_SAMPLES)
    writer.close()
    assert compress(path)
    assert RingLog(path, RecordedRing).last().step == 2
    assert not compress(path)  # nothing is left to do
    assert not compress(tmp_path / "other.jsonl")


def test_of_both_files_the_plain_one_is_read(rings, tmp_path):
    packed = tmp_path / "rings.jsonl.zst"
    packed.write_bytes(b"half of a compressed file")
    assert rings.last().step == 20_000
    assert compress(rings.path)  # a process was killed between both
    assert rings.last().step == 20_000


def test_two_processes_at_once(rings):
    before = list(rings.rings(BEGIN))
    done = []
    threads = [threading.Thread(target=lambda: done.append(compress(rings.path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]
    assert list(rings.rings(BEGIN)) == before


def test_what_is_read_back_different_keeps_the_plain_file(rings, tmp_path, monkeypatch):
    monkeypatch.setattr(ring_file, "replace_durably", lambda _temporary, packed: packed.write_bytes(b"lost" * 10))
    with pytest.raises(OSError, match=r"read back different from rings\.jsonl, which stays"):
        compress(rings.path)
    assert not (tmp_path / "rings.jsonl.zst").exists()
    assert rings.num_lines() == 20_000


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda _data: b"", lambda data: data[:9_000] + bytes(50) + data[9_050:]]
)
def test_a_damaged_file_is_named(rings, tmp_path, damage):
    compress(rings.path)
    packed = tmp_path / "rings.jsonl.zst"
    packed.write_bytes(damage(packed.read_bytes()))
    with pytest.raises(EvidenceError, match=r"rings\.jsonl\.zst: damaged \(.*\); restore the file from a copy"):
        list(rings.rings(BEGIN))


def test_a_changed_line_in_a_compressed_file_is_named(rings, tmp_path):
    text = rings.path.read_bytes()
    rings.path.write_bytes(text.replace(b'"loss":0.001}', b'"loss":0.002}'))
    compress(rings.path)
    with pytest.raises(EvidenceError, match=r"line 1000: ring of step 1000: digest .* is written") as raised:
        list(RingLog(tmp_path / "rings.jsonl.zst", RecordedRing).rings(BEGIN))
    assert raised.value.line == 1000


def test_a_reader_goes_on_while_the_file_is_replaced(rings):
    reader = rings.rings(BEGIN)
    steps = [next(reader).step for _ in range(5)]
    compress(rings.path)
    steps += [ring.step for ring in reader]
    assert steps == list(range(1, 20_001))


def test_one_line_costs_one_frame(rings, monkeypatch):
    compress(rings.path)
    end = state_of(rings.path)[0]
    with open_rings(rings.path) as file:
        read = []
        step = pyzstd.ZstdDecompressor.decompress
        monkeypatch.setattr(
            "pyzstd._seekable_zstdfile.ZstdDecompressor",
            lambda *given: Counting(step, pyzstd.ZstdDecompressor(*given), read),
        )
        file.seek(end - 1000)
        assert file.readline().endswith(b"\n")
    assert sum(read) <= 3 << 20


class Counting:
    def __init__(self, step, inner, read):
        self._step, self._inner, self._read = step, inner, read

    def decompress(self, *given):
        found = self._inner.decompress(*given)
        self._read.append(len(found))
        return found

    def __getattr__(self, name):
        return getattr(self._inner, name)


@pytest.mark.slow
def test_a_killed_compression_leaves_all_rings(tmp_path):
    path = tmp_path / "rings.jsonl"
    write(path, 40_000)
    content = path.read_bytes()
    code = (
        "from pathlib import Path; from treering.runlog.ring_file import compress; import pyzstd; print(flush=True); "
        f"compress(Path({str(path)!r}))"
    )
    for number in range(12):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(number * 0.02)  # about 0.15 s are needed
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with open_rings(path) as file:
            assert file.read() == content
        if not path.exists():
            path.write_bytes(content)
            (tmp_path / "rings.jsonl.zst").unlink()
    assert compress(path)
    with open_rings(path) as file:
        assert file.read() == content
    assert [each.name for each in tmp_path.iterdir()] == ["rings.jsonl.zst"]


def test_long_files_of_a_finished_run_are_compressed(tmp_path, monkeypatch):
    monkeypatch.setattr(ring_file, "_LONG_BYTES", 2000)
    for experiment, steps in (("long", 20), ("short", 1)):
        run = treering.start(experiment, folder=tmp_path, resume="never")
        for _ in range(steps):
            run.step(loss=1.0)
        run.finish()
        names = sorted(path.name for path in (run.path / "attempts/0001").glob("rings*"))
        assert names == (["rings.jsonl.zst"] if experiment == "long" else ["rings.jsonl"])
        assert RecordedAttempt(run.path / "attempts/0001").last_step() == steps


def test_a_full_disk_leaves_the_plain_file_and_says_so(rings, monkeypatch, caplog):
    def full(_temporary, _packed):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ring_file, "replace_durably", full)
    monkeypatch.setattr(ring_file, "_LONG_BYTES", 1)
    compress_long([rings.path, rings.path.with_name("missing.jsonl")])
    assert [path.name for path in rings.path.parent.iterdir()] == ["rings.jsonl"]
    assert "not compressed (No space left on device); the rings are whole" in caplog.text
