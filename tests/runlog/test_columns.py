"""Columns against the rings that they are derived from, value by value, whatever happens to either."""

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_records import ring_values

from treering.config.canonical import canonical_json, digest_bytes, digest_json
from treering.errors import EvidenceError
from treering.runlog.columns import blocks, build, parts, reading
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.blocks import metrics_of, tokens_of
from treering.runlog.columns.head import read_head
from treering.runlog.recorded_ring import RecordedRing
from treering.runlog.ring import Ring
from treering.runlog.ring_log import Place, RingLog

BEGIN = digest_bytes(b"header")


@dataclass(frozen=True)
class Attempt:
    """An attempt's folder with rings of one kind, whose header has the digest `BEGIN`."""

    path: Path
    kind: type = RecordedRing
    header_digest: str = BEGIN

    @property
    def ring_log(self):
        return RingLog(self.path / "rings.jsonl", self.kind)

    def append(self, *values):
        last = self.ring_log.last()
        prev = last.digest if last else BEGIN
        with self.ring_log.path.open("ab") as file:
            for each in values:
                ring, line = self.kind.sealed(**each, prev=prev)
                file.write(f"{line}\n".encode())
                prev = ring.digest


def reported(step, metrics, tokens=None):
    fingerprints = None if tokens is None else "0123456789abcdef" * 2
    return {
        "step": step,
        "metrics": metrics,
        "samples": None if tokens is None else 2,
        "tokens": tokens,
        "batch_digest": None if tokens is None else BEGIN,
        "fingerprints": fingerprints,
        "ended_at": 1.5 * step,
    }


def same(found, expected):
    return (np.isnan(found) & np.isnan(expected)) | (found == expected)


def check(columns, attempt, last_step=None):
    """Every answer of the columns against all rings, read one by one."""
    rings = [ring for ring in attempt.ring_log.rings(BEGIN) if last_step is None or ring.step <= last_step]
    names = dict.fromkeys(name for ring in rings for name in metrics_of(ring))
    for name in names:
        points = [(ring.step, float(metrics_of(ring)[name])) for ring in rings if name in metrics_of(ring)]
        history = columns.history(name, last_step)
        assert history.steps.tolist() == [step for step, _ in points]
        assert same(history.values, np.array([value for _, value in points])).all()
        numbers = [value for _, value in points if not math.isnan(value)]
        for count in (1, 3, 1000):
            chart = columns.chart(name, count, last_step)
            assert len(chart) <= count
            assert chart.count.sum() == len(points)
            assert chart.nans.sum() == len(points) - len(numbers)
            if not numbers:
                assert np.isnan(chart.minimum).all()
                continue
            assert (np.nanmin(chart.minimum), np.nanmax(chart.maximum)) == (min(numbers), max(numbers))
            for bucket in range(len(chart)):
                inside = [(v, s) for s, v in points if chart.first_step[bucket] <= s <= chart.last_step[bucket]]
                known = [pair for pair in inside if not math.isnan(pair[0])]
                assert len(inside) == chart.count[bucket]
                if known:
                    assert min(known) == (chart.minimum[bucket], chart.min_step[bucket])
                    assert max(known, key=lambda pair: (pair[0], -pair[1])) == (
                        chart.maximum[bucket],
                        chart.max_step[bucket],
                    )
                if inside:
                    assert same(chart.last[bucket], inside[-1][0])
    tokens = [tokens_of(ring) for ring in rings if tokens_of(ring) is not None]
    whole = (tokens[-1] if attempt.kind is Ring else sum(tokens)) if tokens else None
    assert columns.tokens(last_step) == whole
    return rings


values = st.one_of(st.floats(), st.floats(-10, 10), st.integers(-(2**53), 2**53))
names = st.sampled_from(["loss", "step", "a.b", "train/été", "NaN", "digest", "tokens", 'quote"x'])
series = st.lists(
    st.tuples(st.integers(1, 3), st.dictionaries(names, values), st.none() | st.integers(0, 10**6)), max_size=40
)


@pytest.fixture
def small_parts(monkeypatch):
    for module in (parts, reading):
        monkeypatch.setattr(module, "LEVELS", (8, 2))
    monkeypatch.setattr(build, "PART_ROWS", 7)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(series, st.lists(st.integers(0, 40), max_size=4))
@pytest.mark.usefixtures("small_parts")
def test_columns_equal_the_rings_however_often_they_were_extended(tmp_path, series, cuts):
    folder = tmp_path / "attempt"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    attempt = Attempt(folder)
    step, steps = 0, []
    for gap, metrics, tokens in series:
        step += gap
        steps.append(reported(step, metrics, tokens))
    bounds = sorted({0, *(cut for cut in cuts if cut < len(steps)), len(steps)})
    for start, end in pairwise(bounds):
        attempt.append(*steps[start:end])
        check(AttemptColumns(attempt), attempt)
    if step:
        columns = AttemptColumns(attempt)
        assert (columns.newest(1, 0), columns.ring(0)) == ([], None), "there is no step 0"
        rings = check(columns, attempt, last_step=step // 2)
        for count in (1, 7, 8, 100):
            assert not rings or [r.digest for r in columns.newest(count, rings[-1].step)] == [
                ring.digest for ring in rings[-count:]
            ]
        check(AttemptColumns(attempt, keep=False), attempt)


def test_the_rings_of_treerings_trainer_have_the_metrics_of_the_catalog(tmp_path, monkeypatch):
    attempt = Attempt(tmp_path, Ring)
    held_out = {"loss": 2.5, "by_corpus": {"code": 2.0, "text": math.nan}}
    for step in range(1, 200):
        changes = {
            "validation": held_out if step % 50 == 0 else None,
            "grad_norm": math.inf if step % 30 == 0 else step / 7,
            "applied": step % 30 != 0,
            "loss": 7 if step == 9 else 1 / step,
            "loss_scale": 65536.0 if step > 100 else None,
            "time_s": {"step": 0.25} if step < 20 else {"step": 0.25, "checkpoint": step / 3},
        }
        attempt.append(ring_values(step, (step * 4 - 4, step * 4), 16, **changes))
    monkeypatch.delattr(blocks.BlockReader, "_exact")  # numbers that are not finite need no slow reader
    columns = AttemptColumns(attempt)
    rings = check(columns, attempt)
    head = columns.head()
    assert head.rings == head.last_step == 199
    assert head.metrics["train/grad_norm"].maximum == math.inf
    assert head.metrics["train/grad_norm"].max_step == 30
    assert math.isnan(head.metrics["validation/loss/text"].last)
    assert head.metrics["validation/loss"].last_step == 150
    assert head.metrics["train/applied"].minimum == 0.0
    assert read_head(tmp_path / "columns").to_text() == head.to_text()
    assert all(columns.ring(ring.step).digest == ring.digest for ring in rings)
    assert columns.ring(200) is None


def test_a_spike_of_one_step_is_in_every_chart(tmp_path):
    attempt = Attempt(tmp_path)
    attempt.append(*(reported(step, {"loss": 42.0 if step == 7_777 else 2.0}) for step in range(1, 20_001)))
    columns = AttemptColumns(attempt)
    for count in (1, 10, 100, 1000, 30_000):
        chart = columns.chart("loss", count)
        assert chart.maximum.max() == 42.0
        assert chart.max_step[chart.maximum.argmax()] == 7_777
        assert (chart.maximum == 42.0).sum() == 1


def fill(attempt, count, first=1):
    attempt.append(*(reported(step, {"loss": 1 / step}, 64) for step in range(first, first + count)))


def error_of(action):
    with pytest.raises(EvidenceError, match=r"rings\.jsonl line") as caught:
        action()
    return str(caught.value)


def removed(lines):
    return lines[:40] + lines[41:]


def changed(lines):
    return [*lines[:40], lines[40].replace(b'"loss":0.0', b'"loss":0.1'), *lines[41:]]


def resealed(lines):
    ring = RecordedRing.from_line(lines[40].decode(), "")
    _, line = RecordedRing.sealed(**reported(ring.step, {"loss": 9.0}, 64), prev=ring.prev)
    return [*lines[:40], line.encode(), *lines[41:]]


def no_json(lines):
    return [*lines[:40], b"{", *lines[41:]]


def twice(lines):
    """A key stands twice, under the digest of exactly these bytes."""
    content = lines[40].replace(b'"tokens":64', b'"tokens":1,"tokens":64')
    at = content.index(b',"digest"')
    bare = content[:at] + content[at + 83 :]
    return [*lines[:40], content[:at] + f',"digest":"{digest_bytes(bare)}"'.encode() + bare[at:], *lines[41:]]


def another_kind(lines):
    """A value of the wrong kind, under its right digest."""
    ring = RecordedRing.from_line(lines[40].decode(), "")
    _, line = RecordedRing.sealed(**{**reported(ring.step, {"loss": 0.5}), "samples": 1.5}, prev=ring.prev)
    return [*lines[:40], line.encode(), *lines[41:]]


@pytest.mark.parametrize("damage", [removed, changed, resealed, no_json, twice, another_kind])
@pytest.mark.parametrize("before", [False, True], ids=["fresh", "extended"])
def test_damaged_rings_give_the_error_of_the_ring_log(tmp_path, damage, before):
    attempt = Attempt(tmp_path)
    fill(attempt, 100)
    if before:
        AttemptColumns(attempt).head()
    path = attempt.ring_log.path
    path.write_bytes(b"\n".join(damage(path.read_bytes().splitlines())) + b"\n")
    expected = error_of(lambda: list(attempt.ring_log.rings(BEGIN)))
    assert "line 41" in expected or "line 42" in expected
    assert error_of(AttemptColumns(attempt).head) == expected
    assert error_of(AttemptColumns(attempt).head) == expected


def test_a_line_in_another_spelling_is_read_as_the_ring_log_reads_it(tmp_path):
    attempt = Attempt(tmp_path)
    fill(attempt, 50)
    path = attempt.ring_log.path
    path.write_bytes(path.read_bytes().replace(b'"samples":2', b'"samples": 2', 1))
    check(AttemptColumns(attempt), attempt)


@pytest.mark.parametrize("change", ["replaced", "shorter", "touched", "longer", "missing"])
def test_columns_of_other_rings_are_built_again(tmp_path, change):
    attempt = Attempt(tmp_path / "attempt")
    attempt.path.mkdir()
    fill(attempt, 60)
    AttemptColumns(attempt).head()
    path = attempt.ring_log.path
    lines = path.read_bytes().splitlines(keepends=True)
    if change == "shorter":
        path.write_bytes(b"".join(lines[:30]))
    elif change == "touched":
        os.utime(path, ns=(1, 1))
    else:
        path.unlink()
        if change != "missing":
            other = {"replaced": 60, "longer": 90}[change]
            attempt.append(*(reported(step, {"other": float(step)}) for step in range(1, other + 1)))
    rings = check(AttemptColumns(attempt), attempt)
    assert AttemptColumns(attempt).head().rings == len(rings)


def test_a_torn_last_line_is_no_ring_and_is_read_when_it_is_whole(tmp_path):
    attempt = Attempt(tmp_path)
    fill(attempt, 20)
    whole = attempt.ring_log.path.read_bytes()
    attempt.ring_log.path.write_bytes(whole[:-10])
    assert AttemptColumns(attempt).head().rings == 19
    assert AttemptColumns(attempt).head().rings == 19
    with attempt.ring_log.path.open("ab") as file:
        file.write(whole[-10:])
    assert len(check(AttemptColumns(attempt), attempt)) == 20


def test_extending_reads_only_what_is_new(tmp_path, monkeypatch):
    attempt = Attempt(tmp_path)
    fill(attempt, 300)
    AttemptColumns(attempt).head()
    places = []
    after = blocks.BlockReader.after
    monkeypatch.setattr(blocks.BlockReader, "after", lambda self, place: places.append(place) or after(self, place))
    AttemptColumns(attempt).head()
    assert places == []
    end = attempt.ring_log.path.stat().st_size
    fill(attempt, 5, first=301)
    check(AttemptColumns(attempt), attempt)
    assert places == [Place(attempt.ring_log.newest(6)[0].digest, 300, 300, end)]


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "head"])
def test_damaged_columns_are_built_again(tmp_path, damage):
    attempt = Attempt(tmp_path)
    fill(attempt, 300)
    AttemptColumns(attempt).head()
    for file in (tmp_path / "columns").iterdir():
        if damage == "head" and file.name == "head.json":
            file.write_text('{"version":1}')
        elif damage != "head" and file.suffix == ".parquet":
            content = file.read_bytes()
            file.unlink()
            if damage != "missing":
                file.write_bytes(b"" if damage == "empty" else content[:200] + bytes(50) + content[250:])
    check(AttemptColumns(attempt), attempt)


def test_a_folder_that_cannot_be_written_works_in_memory_and_says_so_once(tmp_path, caplog):
    attempt = Attempt(tmp_path)
    fill(attempt, 20)
    (tmp_path / "columns").write_text("a file in the folder's place")
    for _ in range(2):
        check(AttemptColumns(attempt), attempt)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"{tmp_path}/columns: cannot be written (File exists), so the columns are built in memory each time; "
        "make the folder writable"
    ]
    check(AttemptColumns(attempt, keep=False), attempt)


@pytest.mark.slow
def test_a_run_that_grows_step_by_step_keeps_few_parts(tmp_path):
    attempt = Attempt(tmp_path)
    for step in range(1, 130):
        fill(attempt, 1, first=step)
        AttemptColumns(attempt).head()
    head = AttemptColumns(attempt).head()
    assert len(head.parts) <= 7
    assert sum(part.rows for part in head.parts) == 129
    kept = {path.name for path in (tmp_path / "columns").iterdir()} - {".lock", "head.json"}
    assert kept == {name for part in head.parts for name in (part.name, part.pyramid)}
    check(AttemptColumns(attempt), attempt)


EXTENDER = """
import sys
from pathlib import Path
sys.path[:0] = [{here!r}]
from treering.runlog.columns import build
build.PART_ROWS = 200
import test_columns
print("ready", flush=True)
test_columns.AttemptColumns(test_columns.Attempt(Path(sys.argv[1]))).head()
"""


@pytest.mark.slow
def test_an_extender_that_is_killed_leaves_no_wrong_answer(tmp_path):
    attempt = Attempt(tmp_path)
    fill(attempt, 10_000)
    chance = random.Random(5)
    killed = 0
    script = EXTENDER.format(here=str(Path(__file__).parent))
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), os.environ.get("PYTHONPATH", "")])
    for round_number in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        ) as process:
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.4))
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
        if round_number % 3 == 2:
            fill(attempt, 500, first=attempt.ring_log.last().step + 1)
    assert killed > 0
    columns, fresh = AttemptColumns(attempt), AttemptColumns(attempt, keep=False)
    found, expected = columns.history("loss"), fresh.history("loss")
    assert found.steps.tolist() == expected.steps.tolist() == [ring.step for ring in attempt.ring_log.rings(BEGIN)]
    assert found.values.tolist() == expected.values.tolist()
    assert columns.head().metrics == fresh.head().metrics
    assert columns.head().tokens == fresh.head().tokens
    kept = {path.name for path in (tmp_path / "columns").iterdir()}
    assert kept == {".lock", "head.json"} | {n for part in columns.head().parts for n in (part.name, part.pyramid)}


def test_the_digest_of_a_ring_is_that_of_its_bytes(tmp_path):
    """What the fast reader cuts out of a line is what the exact one leaves out."""
    attempt = Attempt(tmp_path)
    fill(attempt, 3)
    ring = attempt.ring_log.last()
    line = attempt.ring_log.path.read_bytes().splitlines()[-1].decode()
    content = {name: getattr(ring, name) for name in ring.__slots__ if name != "digest"}
    assert digest_json(content) == ring.digest
    assert line.replace(f'"digest":"{ring.digest}",', "") == canonical_json(content)
