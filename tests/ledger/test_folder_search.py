"""`treering runs QUERY`: the language of the ledger over run folders, without a database."""

import json

import pytest

import treering as api
from treering.errors import UserError
from treering.store.ledger.search.folders import folder_query


@pytest.fixture
def found(tmp_path, monkeypatch, treering):
    monkeypatch.chdir(tmp_path)
    names = {}
    for name, layers, rate in (("small", 12, 6e-4), ("large", 24, 3e-4), ("wide", 32, 1e-4)):
        config = {"model": {"num_layers": layers, "norm": name}, "lr": rate}
        with api.start(name, config=config) as run:
            run.step(loss=layers / 10, tokens=[[layers, 1]])
        names[run.id] = name
    large = next(key for key, value in names.items() if value == "large")
    assert treering("note", large, "the loss jumps", "--tag", "ablation", "--tag", "owner=Ada")[0] == 0

    def search(*words):
        code, out, _ = treering("runs", "--json", "--", *words)
        assert code == 0
        return sorted(names[each["id"]] for each in json.loads(out))

    return search


def test_a_query_finds_runs_by_config_tag_note_and_state(found):
    assert found() == ["large", "small", "wide"]
    assert found("model.num_layers>=24") == ["large", "wide"]
    assert found("model.num_layers>24") == ["wide"]
    assert found("model.num_layers:12,32") == ["small", "wide"]
    assert found("model.num_layers>=24", "tag:ablation") == ["large"]
    assert found("-tag:abl*") == ["small", "wide"]
    assert found("tag.owner:ada") == ["large"]
    assert found("config.lr:0.0006") == found("config.lr=6e-4") == ["small"]
    assert found("config.lr<=3e-4 model.norm!=w*") == ["large"]
    assert found('"loss jumps"') == found("note:jumps") == ["large"]
    assert found("loss<2 experiment:S*") == ["small"]
    assert found("state:finished trainer:recorded step:1") == ["large", "small", "wide"]
    assert found("trainer:treering") == []


def test_a_config_value_that_no_run_has_is_said_with_the_nearest(found, treering):
    assert found("model.num_layer>2") == []
    text = treering("runs", "model.num_layer>2")[1]
    assert "no run has the config value model.num_layer; did you mean model.num_layers?" in " ".join(text.split())


@pytest.mark.parametrize(
    ("query", "column", "expected"),
    [
        ("tag:a modl.x>2", 7, "one of the fields experiment"),
        ("model.num_layers>many", 18, "a number such as 0.7"),
        ("config>3", 7, "[.] and its name"),
        ("state>3", 6, ": or !=, since state is a text"),
    ],
)
def test_an_error_points_at_the_wrong_word(query, column, expected):
    with pytest.raises(UserError, match=rf"column {column}: .*expected {expected}.*`treering runs --help`"):
        folder_query(query)
