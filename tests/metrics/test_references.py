"""Published scores stand beside own ones only where task, number of examples and metric are the same."""

from pathlib import Path

import pytest

from treering.errors import ConfigError
from treering.metrics.compare import Score
from treering.metrics.references import beside, read_references

PUBLISHED = Path(__file__).parents[2] / "experiments" / "references"


def own(task, shots, metric):
    return Score(task, shots, metric, 0.25, 0.01, 100)


def test_the_project_holds_the_published_tables():
    found = {each.model: each for each in read_references(PUBLISHED)}
    assert list(found) == ["Gopher 280B", "GPT-3 175B", "Megatron-LM 8.3B", "MT-NLG 530B", "PTD-P"]
    mt_nlg = {(each.task, each.shots): each.value for each in found["MT-NLG 530B"].scores}
    assert (mt_nlg["lambada_openai", 15], mt_nlg["hellaswag", 20], mt_nlg["race", 1]) == (0.872, 0.824, 0.4842)
    assert found["GPT-3 175B"].citation.startswith("arXiv 2005.14165")
    assert all(score.value <= 1 for each in found.values() for score in each.scores if score.metric == "acc")
    assert read_references(PUBLISHED / "none") == []


def test_a_score_stands_beside_the_same_task_shots_and_metric_alone():
    references = read_references(PUBLISHED)
    scores = [own("hellaswag", 0, "acc,none"), own("hellaswag", 0, "acc_norm"), own("hellaswag", 5, "acc")]
    found = beside([*scores, own("cloze", 0, "acc"), own("lambada_standard", 0, "acc")], references)
    assert [(each.reference.model, each.own.task, each.published) for each in found] == [
        ("Gopher 280B", "hellaswag", 0.792),
        ("GPT-3 175B", "hellaswag", 0.789),
        ("MT-NLG 530B", "hellaswag", 0.802),
        ("Megatron-LM 8.3B", "lambada_standard", 0.665),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: A\ncitation: B\nscores: []\n", r"mine\.yaml: .*caveat"),
        ("model: A\ncitation: B\ncaveat: C\nspeeds: [{model: X, devices: 0}]\n", r"mine\.yaml: speeds\.0\.devices"),
        (
            "model: A\ncitation: B\ncaveat: C\nscores: [{task: x, shots: -1, metric: acc, value: 0.1}]\n",
            r"mine\.yaml: scores\.0\.shots",
        ),
        (
            "model: A\ncitation: B\ncaveat: C\nscores: [{task: x, shots: 0, metric: acc, value: .nan}]\n",
            r"mine\.yaml: scores\.0\.value",
        ),
    ],
)
def test_a_wrong_file_is_named_with_its_field(tmp_path, text, message):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_references(tmp_path)
