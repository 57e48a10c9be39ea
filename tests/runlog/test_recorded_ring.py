"""A recorded ring is encoded fast, to the bytes that canonical JSON gives."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treering.config.canonical import canonical_json, digest_json
from treering.runlog.recorded_ring import RecordedRing

DIGEST = "sha256:" + "0123456789abcdef" * 4
VALUES = {"step": 7, "samples": None, "tokens": None, "batch_digest": None, "fingerprints": None, "ended_at": 1.7e9}

NUMBERS = st.floats() | st.floats(1e-7, 1e-3) | st.floats(1e14, 1e18) | st.floats(width=32)
NAMES = st.text(st.characters(codec="utf-8"), max_size=8)


def canonical(values):
    content = {**values, "digest": digest_json(values)}
    return canonical_json(content)


@given(st.dictionaries(NAMES, NUMBERS, max_size=6), st.floats(allow_nan=False, allow_infinity=False))
@example({"b": 1e-05, "a": 0.00001234, 'é\n"': 1e16, "c": 123456789.0, "z": -0.0}, 0.0)
@example({"loss": math.nan, "norm": -math.inf}, 1.5)
def test_the_line_is_canonical_json(metrics, ended_at):
    values = {**VALUES, "metrics": metrics, "ended_at": ended_at, "prev": DIGEST}
    ring, line = RecordedRing.sealed(**values)
    assert line == canonical(values)
    assert RecordedRing.from_line(line, "").digest == ring.digest


@pytest.mark.parametrize(
    "other",
    [
        {"samples": 2, "tokens": 34, "batch_digest": DIGEST, "fingerprints": "0123456789abcdef" * 2},
        {"metrics": {"count": 3, "loss": 2.5}},  # a whole number stays one
        {"metrics": {"huge": 10**30}},
        {"prev": 'a"b\\'},
        {"fingerprints": ""},
    ],
)
def test_other_fields_are_canonical_as_well(other):
    values = {**VALUES, "metrics": {"loss": 0.1}, "prev": DIGEST, **other}
    assert RecordedRing.sealed(**values)[1] == canonical(values)
