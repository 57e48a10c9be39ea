"""The chain of rings: what is laid is read back, and any change is found and named."""

import errno
import json
import math
import os
import subprocess
import sys
import threading

import pytest
import run_records
from hypothesis import given
from hypothesis import strategies as st

from treering.config.canonical import canonical_json, digest_json
from treering.errors import EvidenceError, RunLockedError
from treering.runlog.chained_line import seal
from treering.runlog.lock import acquire, is_held
from treering.runlog.ring import Ring
from treering.runlog.ring_log import RingLog
from treering.runlog.writer import RingWriter

HEADER = "sha256:" + "0" * 64


def ring_values(step: int, **changes):
    return run_records.ring_values(step, ((step - 1) * 4, step * 4), 32, **({"loss": 6.5 - step / 10} | changes))


def lay(directory, steps=range(1, 4), **changes):
    with RingWriter(directory / "rings.jsonl", Ring, HEADER) as writer:
        return [writer.append(**ring_values(step, **changes)) for step in steps]


def test_rings_come_back_equal_and_chained(tmp_path):
    laid = lay(tmp_path)
    assert list(RingLog(tmp_path / "rings.jsonl", Ring).rings(HEADER)) == laid
    assert laid[0].prev == HEADER
    assert [ring.prev for ring in laid[1:]] == [ring.digest for ring in laid[:-1]]


def test_a_rings_digest_is_over_its_line_without_digest(tmp_path):
    lay(tmp_path)
    line = (tmp_path / "rings.jsonl").read_text().splitlines()[0]
    content = json.loads(line)
    claimed = content.pop("digest")
    assert claimed == digest_json(content)
    assert line == canonical_json({**content, "digest": claimed})


def test_non_finite_numbers_survive(tmp_path):
    lay(tmp_path, steps=[1], loss=math.inf, grad_norm=math.nan)
    (ring,) = RingLog(tmp_path / "rings.jsonl", Ring).rings(HEADER)
    assert ring.loss == math.inf
    assert math.isnan(ring.grad_norm)
    assert '"loss":"Infinity"' in (tmp_path / "rings.jsonl").read_text()


def test_a_torn_last_line_was_never_acknowledged(tmp_path):
    laid = lay(tmp_path)
    path = tmp_path / "rings.jsonl"
    path.write_text(path.read_text() + '{"step":4,"los')
    assert list(RingLog(path, Ring).rings(HEADER)) == laid


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (2, '"loss":6.3', '"loss":6.2', r"rings.jsonl line 2: ring of step 2: digest .* the ring was changed"),
        (1, '"applied":true', '"applied":false', r"line 1: ring of step 1"),
        (3, '"sample_end":12', '"sample_end":13', r"line 3: ring of step 3"),
    ],
)
def test_a_changed_number_names_the_ring(tmp_path, line, old, new, message):
    lay(tmp_path)
    path = tmp_path / "rings.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    path.write_text("".join(lines))
    with pytest.raises(EvidenceError, match=message):
        list(RingLog(path, Ring).rings(HEADER))


def test_a_removed_ring_is_found_at_the_next(tmp_path):
    lay(tmp_path)
    path = tmp_path / "rings.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[2]]))
    with pytest.raises(EvidenceError, match=r"line 2: ring of step 3 follows .* a ring was removed"):
        list(RingLog(path, Ring).rings(HEADER))


def test_a_ring_changed_together_with_its_digest_breaks_the_chain_after_it(tmp_path):
    laid = lay(tmp_path)
    path = tmp_path / "rings.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    forged = Ring.sealed(**ring_values(1, loss=1.0), prev=laid[0].prev)[0]
    path.write_text("".join([forged.to_line() + "\n", *lines[1:]]))
    with pytest.raises(EvidenceError, match=r"line 2: ring of step 2 follows"):
        list(RingLog(path, Ring).rings(HEADER))


def test_a_second_writer_cannot_open_the_same_rings(tmp_path):
    lay(tmp_path)
    with pytest.raises(FileExistsError, match=r"rings\.jsonl"):
        RingWriter(tmp_path / "rings.jsonl", Ring, HEADER)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda values: st.lists(values) | st.dictionaries(st.text(), values),
        max_leaves=20,
    )
)
def test_canonical_json_is_a_fixed_point(value):
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


def test_the_lock_is_shared_with_forked_children_and_dies_with_the_last(tmp_path):
    path = tmp_path / "run" / "lock"
    script = (
        "import os, sys, time; from pathlib import Path; from treering.runlog.lock import acquire\n"
        "acquire(Path(sys.argv[1]))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.stdin.read(); os._exit(0)\n"
        "print(child, flush=True); os._exit(0)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child = int(holder.stdout.readline())
    holder.wait()
    assert is_held(path), "the orphaned rank still holds the run"
    with pytest.raises(RunLockedError, match="another process group trains this run"):
        acquire(path)
    holder.stdin.close()
    holder.stdout.read()  # the child's copy of stdout closes when it is gone
    assert not is_held(path)
    os.close(acquire(path))
    assert child > 0


def test_a_file_system_without_locks_is_not_called_a_holder(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("treering.runlog.lock.fcntl.fcntl", refuse)
    with pytest.raises(OSError, match="No locks available"):
        acquire(tmp_path / "lock")


def test_asking_who_holds_the_lock_takes_nothing(tmp_path):
    path = tmp_path / "lock"
    assert not is_held(path)
    descriptor = acquire(path)
    os.close(descriptor)
    assert not is_held(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff\xfe", "line 2: not a ring"),
        (b"[" * 100_000, "line 2: not a ring .nested too deeply"),
        (b'{"digest":1,"digest":2}', "line 2: not a ring .a key occurs twice"),
        (b"9" * 5000, "line 2: not a ring"),
    ],
)
def test_a_line_that_no_parser_takes(tmp_path, line, message):
    lay(tmp_path)
    path = tmp_path / "rings.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], line, lines[2], b""]))
    with pytest.raises(EvidenceError, match=message):
        list(RingLog(path, Ring).rings(HEADER))


def test_a_carriage_return_inside_a_ring_ends_no_line(tmp_path):
    lay(tmp_path)
    path = tmp_path / "rings.jsonl"
    path.write_bytes(path.read_bytes().replace(b',"loss"', b'\r,"loss"', 1))
    assert [ring.step for ring in RingLog(path, Ring).rings(HEADER)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("field", "value"), [("sample_end", 2.0), ("loss", True), ("batch_digest", None), ("applied", 0)]
)
def test_a_sealed_ring_of_a_wrong_type_is_none(field, value):
    ring = Ring.sealed(**ring_values(1, **{field: value}), prev=HEADER)[0]
    with pytest.raises(EvidenceError, match=rf"{field} is {value}, expected "):
        Ring.from_line(ring.to_line(), "here")


def test_a_step_that_is_left_out_is_found(tmp_path):
    lay(tmp_path, steps=(1, 2, 4))
    with pytest.raises(EvidenceError, match="line 3: step 4 follows step 2"):
        list(RingLog(tmp_path / "rings.jsonl", Ring).rings(HEADER))


@given(count=st.integers(0, 30), torn=st.booleans(), padding=st.integers(0, 40_000))
def test_the_last_ring_is_read_from_the_end(tmp_path_factory, count, torn, padding):
    """However long lines are, and with a torn write behind them."""
    directory = tmp_path_factory.mktemp("attempt")
    rings = lay(directory, range(1, count + 1), flops_formula="x" * padding)
    path = directory / "rings.jsonl"
    if torn:
        path.write_bytes((path.read_bytes() if path.exists() else b"") + b'{"step": 99')
    assert RingLog(path, Ring).last() == (rings[-1] if rings else None)


def test_a_line_is_the_canonical_json_of_its_ring():
    values = ring_values(1, loss=float("nan"))
    ring, line = Ring.sealed(**values, prev=HEADER)
    assert line == ring.to_line() == canonical_json({**values, "prev": HEADER, "digest": ring.digest})
    assert ring.digest == digest_json({**values, "prev": HEADER})


@given(
    st.dictionaries(st.text(st.characters(codec="ascii", categories=("Ll",)), min_size=1), st.integers() | st.text())
)
def test_the_digest_is_inserted_where_its_key_belongs(content):
    content.pop("digest", None)
    line, digest = seal(content)
    assert digest == digest_json(content)
    assert line == canonical_json({**content, "digest": digest})


def test_rings_are_synced_within_seconds_and_an_error_ends_the_training(tmp_path, monkeypatch):
    synced = threading.Event()
    real = os.fsync

    def failing(_descriptor):
        synced.set()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("treering.runlog.writer.SYNC_SECONDS", 0.01)
    monkeypatch.setattr(os, "fsync", failing)
    writer = RingWriter(tmp_path / "rings.jsonl", Ring, HEADER)
    writer.append(**ring_values(1))
    assert synced.wait(60)
    writer._thread.join(60)
    with pytest.raises(OSError, match=r"Input/output error: '.*rings\.jsonl'"):
        writer.append(**ring_values(2))
    monkeypatch.setattr(os, "fsync", real)
    writer.close()
    assert [ring.step for ring in RingLog(tmp_path / "rings.jsonl", Ring).rings(HEADER)] == [1]
