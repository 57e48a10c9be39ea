"""Runs whose data order depends on the Python that trained: since 3.12 its `sum` of floats is compensated."""

import json
import sys
from pathlib import Path

import megatron_data
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from treering.audit.megatron.neox import document_weights
from treering.audit.megatron.run import AuditedRun
from treering.data.megatron.blend import MegatronBlend, compensated_sum, sum_in_turn
from treering.data.megatron.lineage import LINEAGE_NAMES, LINEAGES, lineage_named
from treering.errors import UserError

LENGTHS = {"wiki": [9, 30, 14, 3, 40, 21, 8, 33], "books": [150, 90, 120, 60], "code": [4, 7, 2, 9, 12, 5]}
RUN = {
    "data": [
        {"prefix": f"data/{name}", "weight": weight} for name, weight in zip(LENGTHS, (0.1, 0.4, 0.1), strict=True)
    ],
    "seed": 42,
    "sequence_length": 10,
    "train_iters": 25,
    "global_batch_size": 8,
    "iteration": 20,
    "lineage": "gpt-neox",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with three token files."""
    monkeypatch.chdir(tmp_path)
    for name, lengths in LENGTHS.items():
        megatron_data.write_pair(Path("data") / name, lengths)


def described(**changes):
    whole = {name: value for name, value in (RUN | changes).items() if value is not None}
    Path("megatron-run.yaml").write_text(yaml.safe_dump(whole))
    return AuditedRun.open(Path())


def datasets(weights, shares):
    """The greedy rule of GPT-NeoX's blend, sample by sample."""
    shares = np.array(shares) / np.sum(shares)
    counts, found = np.zeros(len(weights)), []
    for g in range(160):
        found.append(int(np.argmax(shares * max(g, 1) - counts)))
        counts[found[-1]] += 1
    return found


# The shares as get_normalized_weights_and_num_samples of EleutherAI/gpt-neox gives them, megatron/data/data_utils.py.
OLDER = [float.fromhex(text) for text in ("0x1.5555555555556p-3", "0x1.5555555555556p-1", "0x1.5555555555556p-3")]
NEWER = [float.fromhex(text) for text in ("0x1.5555555555555p-3", "0x1.5555555555555p-1", "0x1.5555555555555p-3")]


def test_a_blend_whose_order_depends_on_python_names_both_until_one_is_stated():
    weights = [entry["weight"] for entry in RUN["data"]]
    older, newer = datasets(weights, OLDER), datasets(weights, NEWER)
    differ = sum(a != b for a, b in zip(older, newer, strict=True))
    assert differ > 0
    run = described()
    assert run.order.datasets(0, 160).tolist() == older
    report = run.report()
    (other,) = report.alternatives
    assert (report.lineage, other.lineages, other.rules) == (
        "gpt-neox", ("gpt-neox-python3.12",), ("weights are added by Python 3.12 or later",),
    )  # fmt: skip
    assert other.differ >= differ
    assert report.level == "declared"
    for name, expected in (("gpt-neox-python3.12", newer), ("gpt-neox-python3.11", older)):
        stated = AuditedRun.open(Path(), lineage=name)
        assert stated.order.datasets(0, 160).tolist() == expected
        assert (stated.lineage, stated.level(), stated.alternatives()) == (name, "re-derived", ())


def test_a_split_whose_bounds_depend_on_python():
    # The three shares sum to 0.9999999999999999 up to Python 3.11, and to 1.0 later; 25 is one of 5 % of all sizes.
    bounds = {}
    for minor in (11, 12):
        lineage = lineage_named(f"megatron-lm-legacy-python3.{minor}")
        blend = MegatronBlend(("a",), None, 1, 10, 5, "0.7,0.2,0.1", lineage=lineage)
        bounds[minor] = blend.sequences(25)
    parts = (0.7, 0.2, 0.1)
    for minor, total in ((11, 0.7 + 0.2 + 0.1), (12, 1.0)):
        sizes = [round(part / total * 25.0) for part in parts]
        assert bounds[minor] == (0, sizes[0] - (sum(sizes) - 25))
    assert bounds[11] != bounds[12]
    core = MegatronBlend(("a",), None, 1, 10, 5, "0.7,0.2,0.1", lineage=LINEAGES["megatron-core-0.4"])
    assert core.sequences(25) == bounds[11], "numpy adds three numbers one after the other"


def test_where_both_sums_agree_there_is_no_doubt():
    run = described(data=[{"prefix": f"data/{name}", "weight": 1.5} for name in LENGTHS])
    assert [lineage.name for lineage in run.launches[0].launched.lineages] == ["gpt-neox"]
    assert run.level() == "re-derived"


def test_weights_by_documents_name_the_python_until_it_is_stated():
    counts = (2, 2, 3, 8)
    for name, count in zip("abcd", counts, strict=True):
        megatron_data.write_pair(Path("data") / name, [40] * count)
    older, newer = document_weights(counts, 1.0), document_weights(counts, 1.0, compensated_sum)
    assert older != newer
    keys = {"train_data_paths": [f"data/{name}" for name in "abcd"], "weight_by_num_documents": True}
    keys |= {"seq_length": 10, "train_iters": 20, "train_batch_size": 8, "num_layers": 2}
    Path("run.yml").write_text(json.dumps(keys))
    run = AuditedRun.open(Path("run.yml"))
    assert [entry.weight for entry in run.run.data] == older
    assert "The version of Python that trained" in [each.what for each in run.unbound]
    stated = AuditedRun.open(Path("run.yml"), lineage="gpt-neox-python3.12")
    assert [entry.weight for entry in stated.run.data] == newer
    assert "The version of Python that trained" not in [each.what for each in stated.unbound]


def test_names_of_lineages_with_a_python():
    assert set(LINEAGE_NAMES) - set(LINEAGES) == {
        f"{name}-python3.{minor}"
        for name in ("megatron-lm-legacy", "megatron-deepspeed", "bigscience", "gpt-neox")
        for minor in (11, 12)
    }
    assert all(lineage_named(name).name == name for name in LINEAGE_NAMES)
    assert lineage_named("gpt-neox-python3.8").name == "gpt-neox-python3.11"
    assert lineage_named("gpt-neox-python3.14").name == "gpt-neox-python3.12"
    with pytest.raises(UserError, match=r"lineage 'megatron-core-0\.13-python3\.12', expected one of megatron-core"):
        lineage_named("megatron-core-0.13-python3.12")


def test_both_sums_are_pythons_to_the_last_bit():
    # By `sum` of CPython 3.11.7 and of CPython 3.12.1.
    for numbers, older, newer in (
        ((0.1, 0.4, 0.1), "0x1.3333333333333p-1", "0x1.3333333333334p-1"),
        ((0.1,) * 10, "0x1.fffffffffffffp-1", "0x1.0000000000000p+0"),
        ((1e16, 1.0, -1e16), "0x0.0p+0", "0x1.0000000000000p+0"),
    ):
        assert (sum_in_turn(numbers).hex(), compensated_sum(numbers).hex()) == (older, newer)


@given(numbers=st.lists(st.floats(0, 1e9), max_size=20))
def test_one_of_the_sums_is_that_of_the_python_that_runs_this(numbers):
    assert sum(numbers, 0.0) == (compensated_sum if sys.version_info >= (3, 12) else sum_in_turn)(numbers)
