"""`treering runs QUERY`: the language of the ledger over run folders, without a database."""

import json
import re
import socket

import pytest

import treering as api
from treering.errors import UserError
from treering.runlog.journal import Scored
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.store.ledger.search.folders import folder_query
from treering.store.ledger.search.query import parse


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


def test_a_query_finds_runs_by_score_host_project_and_time(tmp_path, found, treering):
    (large,) = (path.parent for path in tmp_path.glob("runs/*/recorded.json") if '"large"' in path.read_text())
    RecordedRunDirectory(large).journal.append(Scored(at=1.0, step=1, task="hellaswag", metrics={"acc": 0.75}))
    assert found("score.hellaswag>0.7") == found("score.hellaswag.acc>=0.75") == ["large"]
    assert found("-score.hellaswag>0.7") == ["small", "wide"]
    assert found(f"host:{socket.gethostname()} project:{tmp_path.name}") == ["large", "small", "wide"]
    assert found("-host:elsewhere started>=2026 updated>=2026") == ["large", "small", "wide"]
    assert found("updated<2026") == []
    assert found("attention:finished tokens=2") == ["large", "small", "wide"]
    text = " ".join(treering("runs", "score.lambada>0")[1].split())
    assert "no run has the score lambada; there are hellaswag, hellaswag.acc" in text


@pytest.mark.usefixtures("found")
def test_runs_are_folded_by_a_key(treering):
    folds = json.loads(treering("runs", "--by", "tag.owner", "--json")[1])
    assert {fold["group"]: (fold["states"], len(fold["runs"])) for fold in folds} == {
        "none": ({"finished": 2}, 2),
        "Ada": ({"finished": 1}, 1),
    }
    said = "experiment=large lr=0.0003 norm=large num_layers=24     1  1 finished   2.4"
    assert said in treering("runs", "--by", "configuration")[1]
    code, _, error = treering("runs", "--by", "nothing")
    assert code == 2
    assert "found 'nothing', expected one of configuration, experiment, tags, tag.KEY" in error


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("model.num_layers>3", "model is not in the ledger; `treering runs QUERY` asks the run folders"),
        ("loss<2", "loss is not in the ledger"),
        ("state:running,stalled", "the state of this moment is not in the ledger; `treering runs QUERY`"),
    ],
)
def test_what_the_ledger_cannot_answer_names_who_can(query, said):
    with pytest.raises(UserError, match=re.escape(said)):
        parse(query)


@pytest.mark.parametrize("query", ["corpus:code", "licence:MIT", "license:MIT", "promoted:production"])
def test_what_folders_cannot_answer_names_who_can(query):
    with pytest.raises(UserError, match="is in the ledger alone; `treering search QUERY` asks it"):
        folder_query(query)


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
