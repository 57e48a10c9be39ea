"""Each lineage of Megatron against golden answers, which that lineage's own index builder gave.

`experiments/golden/megatron_lineages.py` makes the answers; each file names the builder's release or commit. A case is
a blend over token files in which every token is different, so that the tokens of a sample say which documents it holds.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.lineage import LINEAGES as ALL_LINEAGES
from treering.data.megatron.lineage import lineage_named
from treering.data.megatron.order import MegatronOrder
from treering.errors import UserError

GOLDEN = Path(__file__).parent / "golden_megatron"
ASKED = json.loads((GOLDEN / "cases.json").read_text(encoding="utf-8"))
LENGTHS = {name: np.array(held, dtype=np.int32) for name, held in ASKED["lengths"].items()}
FIRST_TOKENS = dict(zip(LENGTHS, np.cumsum([0, *(held.sum() for held in LENGTHS.values())]).tolist(), strict=False))
PROGRAMS = sorted(path.stem for path in GOLDEN.glob("*.json") if path.stem != "cases")
LINEAGES = {
    "megatron-lm-2.5": "megatron-lm-legacy",
    "megatron-lm-23.06": "megatron-lm-legacy",
}
"""Lineages of programs whose name is not one of theirs."""
ACCEPTED = {("megatron-lm-2.5", "one path, a sample more than the last epoch has alone")}
"""What one program of a lineage refuses and another one of it reads."""
REFUSED = (
    r"weight 0 of \w+, which programs of|data paths without weights, which programs of"
    r"|programs of the lineage [\w-]+ end with an error there|the split holds 8 tokens, expected at least 17"
)
"""The reasons for which a case is refused."""


def order_of(lineage, case):
    blend = MegatronBlend(
        prefixes=tuple(case["paths"]),
        weights=None if case["weights"] is None else tuple(case["weights"]),
        seed=case["seed"],
        sequence_length=case["sequence_length"],
        num_samples=case["num_samples"],
        split=case["split"],
        lineage=lineage_named(lineage),
        ranges=tuple(map(tuple, case["ranges"])) if "ranges" in case else None,
        renormalized=case.get("renormalized", False),
        exact_epochs=case.get("exact_epochs"),
    )
    return MegatronOrder.build(blend, [LENGTHS[name] for name in case["paths"]])


def tokens_of(order, count):
    """The tokens of the first samples, from the documents that the order names: [count, sequence length + 1]."""
    starts = {name: FIRST_TOKENS[name] + np.cumsum([0, *held]) for name, held in LENGTHS.items()}
    rows = []
    for sample in order.samples_with_spans(0, count):
        begins = starts[order.components[sample.component].corpus]
        rows.append(
            [
                token
                for span in sample.spans
                for token in range(begins[span.document] + span.start, begins[span.document] + span.end)
            ]
        )
    return np.array(rows)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_sample_is_that_of_the_lineages_own_builder(program):
    golden = json.loads((GOLDEN / f"{program}.json").read_text(encoding="utf-8"))
    lineage = LINEAGES.get(program, program)
    answered = 0
    for name, answer in golden["cases"].items():
        case = ASKED["cases"][name]
        if "refused" in answer and (program, name) not in ACCEPTED:
            with pytest.raises(UserError, match=REFUSED):
                order_of(lineage, case)
        if "num_read" not in answer:
            continue
        order = order_of(lineage, case)
        assert min(order.num_samples, case["num_samples"] or order.num_samples) == answer["num_read"], name
        tokens = tokens_of(order, answer["num_read"])
        assert tokens[:8, 0].tolist() == answer["first_tokens"], name
        assert "sha256:" + hashlib.sha256(tokens.astype("<u4").tobytes()).hexdigest() == answer["digest"], name
        answered += 1
    assert answered >= 20


@pytest.mark.parametrize(
    ("name", "lineages", "message"),
    [
        ("renormalized weights", {"megatron-core-0.7"}, "--renormalize-blend-weights|several data paths with a split"),
        ("an exact number of epochs, the last one apart", {"megatron-deepspeed"}, "--train-data-exact-num-epochs"),
        ("parts of the sequences", {"bigscience"}, "parts of the data paths, which programs of the lineage"),
        (
            "the split's own paths without weights",
            {"megatron-core-0.13", "megatron-core-0.11", "megatron-core-0.7", "gpt-neox"},
            "3 data paths without weights",
        ),
    ],
)
def test_what_only_some_lineages_have(name, lineages, message):
    for lineage in ALL_LINEAGES:
        if lineage in lineages:
            order_of(lineage, ASKED["cases"][name])
        else:
            with pytest.raises(UserError, match=message):
                order_of(lineage, ASKED["cases"][name])


def test_every_lineage_has_golden_answers():
    assert {lineage_named(LINEAGES.get(program, program)).name for program in PROGRAMS} == set(ALL_LINEAGES)
