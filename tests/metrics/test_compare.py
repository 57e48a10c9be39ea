"""Config differences, the first step whose data differ, differences of scores against their errors."""

import math

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from treering.metrics.compare import ABSENT, Difference, Score, differences, flatten, headline, scores
from treering.metrics.same_data import DataDifference, compare_batches, compare_data
from treering.runlog.columns.fed import Fed
from treering.runlog.records import Evaluation


def reads(blend: str, sizes: list[int]) -> Fed:
    ends = np.cumsum(sizes)
    starts = ends - sizes
    digests = [f"{blend} {start} {end}" for start, end in zip(starts, ends, strict=True)]
    return Fed(np.arange(1, len(sizes) + 1), starts, ends, pa.array(digests))


def test_only_differences_are_named_by_dotted_path_and_list_items_by_name() -> None:
    a = {"seed": 1, "blend": {"components": [{"corpus": "wiki", "weight": "0.5"}, {"corpus": "code", "weight": "0.5"}]}}
    b = {"seed": 1, "blend": {"components": [{"corpus": "code", "weight": "0.3"}, {"corpus": "wiki", "weight": "0.7"}]}}
    assert differences([a, b]) == [
        Difference("blend.components.wiki.weight", ("0.5", "0.7")),
        Difference("blend.components.code.weight", ("0.5", "0.3")),
    ]


def test_a_path_that_one_document_lacks_is_absent_there() -> None:
    found = differences([{"rampup": {"start": 4}}, {"rampup": None}, {"rampup": {"start": 4}}])
    assert found == [Difference("rampup.start", (4, ABSENT, 4)), Difference("rampup", (ABSENT, None, ABSENT))]


def test_plain_lists_are_told_by_index() -> None:
    assert differences([{"shots": [0, 1]}, {"shots": [0, 4]}]) == [Difference("shots.1", (1, 4))]


@given(
    st.recursive(
        st.integers() | st.text(),
        lambda v: st.dictionaries(st.text(min_size=1, max_size=3), v, max_size=3) | st.lists(v, max_size=3),
        max_leaves=8,
    )
)
def test_a_document_never_differs_from_itself(document: object) -> None:
    assert differences([{"root": document}, {"root": document}]) == []


def test_an_empty_section_is_a_leaf() -> None:
    assert dict(flatten({"a": {}, "b": {"c": []}})) == {"a": {}, "b.c": []}


def test_equal_runs_read_the_same_to_the_end_of_the_shorter() -> None:
    found = compare_data(reads("x", [4, 4, 8]), reads("x", [4, 4, 8, 8]))
    assert (found.equal_steps, found.first) == (3, None)


def test_another_blend_differs_in_tokens_at_the_first_step() -> None:
    found = compare_data(reads("x", [4, 4]), reads("y", [4, 4]))
    assert (found.equal_steps, found.first) == (0, DataDifference(1, "tokens", (0, 4), (0, 4)))


def test_another_batch_schedule_differs_in_samples_where_the_ramp_parts() -> None:
    found = compare_data(reads("x", [4, 4, 8]), reads("x", [4, 4, 4]))
    assert (found.equal_steps, found.first) == (2, DataDifference(3, "samples", (8, 16), (8, 12)))


def test_runs_of_two_trainers_are_compared_where_both_say_what_they_read() -> None:
    every = Fed(np.arange(1, 5), np.zeros(4, int), np.zeros(4, int), pa.array(["a", "b", "c", "d"]))
    some = Fed(np.array([2, 3, 4, 9]), np.zeros(4, int), np.zeros(4, int), pa.array(["b", None, "x", "y"]))
    found = compare_batches(every, some)
    assert (found.common_steps, found.first) == (2, 4)


def test_scores_pair_each_metric_with_its_error_and_leave_counts_out() -> None:
    digest = "sha256:" + "0" * 64
    evaluation = Evaluation(
        run=digest,
        step=3,
        consumed_tokens=30,
        checkpoint=digest,
        harness="lm-eval 0.4.13",
        tasks={"cloze": digest},
        scores={
            "cloze": {
                "4": {
                    "acc,none": 0.5,
                    "acc_stderr,none": 0.1,
                    "ppl": 9.0,
                    "items": 20.0,
                    "examples": 3.2,
                    "truncated": 1.0,
                }
            }
        },
        perplexity={},
        validation_loss=4.0,
        unigram_entropy=7.0,
    )
    assert headline(["bits_per_byte", "word_perplexity"]) == "word_perplexity"
    assert headline(["exact_match.strict-match", "acc_norm"]) == "acc_norm"
    assert headline(["brier_score", "exact_match.strict-match"]) == "exact_match.strict-match"
    assert headline(["likelihood", "brier_score"]) == "brier_score"
    first, second = scores(evaluation)
    assert first == Score("cloze", 4, "acc,none", 0.5, 0.1, 20)
    assert (second.metric, second.value) == ("ppl", 9.0)
    assert math.isnan(second.stderr)
