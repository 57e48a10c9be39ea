"""`treering search`: what it finds, what it says when the query is wrong, and what it admits not to know."""

import json
import re

import pytest
from ledger_world import World, fill
from recorded_project import unpack

from treering.audit.checkpoint import audit_checkpoint
from treering.errors import StoreError, UserError
from treering.project import Project
from treering.runlog.find import find_runs
from treering.runlog.journal import Noted, Tagged
from treering.ship.ledger import LedgerTarget
from treering.store.ledger.database import Database
from treering.store.ledger.search.fields import FIELDS
from treering.store.ledger.search.find import search
from treering.store.ledger.search.query import parse


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A project that the real trainer recorded, with its corpora, in a ledger of its own."""
    project = Project(unpack("journals", tmp_path_factory.mktemp("search")))
    url = f"sqlite:///{project.root / 'treering.db'}"
    target = LedgerTarget(project, url)
    (run,) = find_runs(project.runs)
    run.journal.append(Noted(at=1.0, by="ada", text="Der Anstieg bei 7 kam aus letters"))
    run.journal.append(Tagged(at=2.0, by="ada", added=("owner=Ada", "keep")))
    target.shipper(run).ship()
    return project, url, run


@pytest.fixture
def found(shipped):
    database = Database(shipped[1])
    return lambda query, **options: search(database, query, **options)


def steps(answer):
    return [row.checkpoint["step"] for row in answer.found]


def test_what_a_checkpoint_read_is_what_the_audit_says(shipped, found):
    project, _, run = shipped
    answer = found("checkpoint:saved", sort="step")
    assert steps(answer) == [checkpoint.step for checkpoint in run.checkpoints()]
    for row, checkpoint in zip(answer.found, run.checkpoints(), strict=True):
        audit = audit_checkpoint(checkpoint, project)
        assert {each["name"]: (each["corpus"], each["samples"], each["tokens"]) for each in row.corpora} == {
            usage.corpus: (usage.digest, usage.samples, usage.tokens) for usage in audit.corpora
        }
        for each in row.corpora:
            (usage,) = [usage for usage in audit.corpora if usage.corpus == each["name"]]
            assert each["epochs"] == usage.realised_epochs
            assert sum(part["documents"] for part in each["licences"].values()) == usage.num_documents
            assert set(usage.licences) <= set(each["licences"])
        assert row.checkpoint["tokens"] == audit.consumed_tokens
        assert row.checkpoint["digest"] == checkpoint.digest


def test_terms_are_about_one_checkpoint(found):
    everything = found("")
    assert (everything.count, everything.each_checkpoint, everything.undecided) == (1, False, 0)
    newest = everything.found[0].checkpoint["step"]
    every = steps(found("step>0", sort="step"))
    assert every[-1] == newest
    assert len(every) > 1
    assert steps(found(f"step>{newest - 1}")) == [newest]
    assert steps(found(f"step>={every[0]} step<{newest}", sort="-step")) == every[:-1][::-1]
    assert steps(found(f"step={every[0]},{newest}", sort="step")) == [every[0], newest]
    assert found("corpus:letters corpus:NUM* licence:CC0* Anstieg owner state:finished").count == len(every)
    assert found("corpus:letters -tag:keep").count == 0
    assert found("tag.owner:ada").count == 1
    assert found("-licence:GPL*").count == 1 * len(every)
    assert found("note:anstieg*LETTERS").count == 1
    assert found('"Anstieg bei"').count == 1
    assert found("updated>2000 started<3000-01-02").count == 1


def test_a_limit_shows_less_and_counts_all(found):
    answer = found("step>0", limit=1, sort="-step")
    assert (len(answer.found), answer.count > 1) == (1, True)


def test_a_pattern_that_fits_nothing_is_named_with_what_there_is(found):
    assert found("corpus:cod").doubt == ["corpus:cod: fits nothing in the ledger; it has letters, numbers"]
    (doubt,) = found("score.nothing>0").doubt
    assert re.match(r"score.nothing>0: no such score is in the ledger; it has ", doubt)


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        ("corpus:", 8, "found nothing, expected a text"),
        ("corpus:a, b", 10, "found nothing, expected a text"),
        ("colour:red", 1, "found 'colour:red', expected one of the fields project, experiment, run, "),
        ("step>0 nope>3", 8, "found 'nope>3', expected one of the fields"),
        ("step>many", 6, "found 'many', expected a number such as 0.7 or 1e9"),
        ("step>nan", 6, "found 'nan', expected a number"),
        ("score>0.7", 6, r"found '>0.7', expected \. and task, task.metric or task.metric@shots, as score.hellaswag"),
        ("score.x", 8, "found nothing, expected an operator: one of : = != > >= < <="),
        ("project.x:1", 8, r"found '.x:1', expected an operator: project has no parts"),
        ("corpus>code", 7, "found '>code', expected : or !=, since corpus is a text"),
        ('note:"open', 6, "found '\"open', expected a \" that ends the text"),
        ("updated>yesterday", 9, "found 'yesterday', expected a date such as 2026-11-05"),
        ("updated>2026-13", 9, "found '2026-13', expected a date"),
        ("- corpus:a", 2, "found nothing, expected a field or a word behind the -"),
        ('corpus:"a"b', 11, "found 'b', expected a blank or a comma behind the value"),
    ],
)
def test_a_query_that_is_wrong_is_pointed_at(query, column, message):
    with pytest.raises(UserError, match=f"^query, column {column}: {message}") as caught:
        parse(query)
    *_, line, pointer = str(caught.value).splitlines()
    assert (line, pointer) == (f"  {query}", f"  {' ' * (column - 1)}^")


def test_a_query_is_read_as_it_is_described():
    first, second, third, fourth = parse('-corpus:a*,"b, ""c""" score."my task.x">=0.5 -word tag!=x')
    assert (first.field, first.negated, first.values, first.column) == ("corpus", True, ("a*", 'b, "c"'), 1)
    assert (second.field, second.part, second.operator, second.spans) == ("score", "my task.x", ">=", ((0.5, 0.5),))
    assert (third.field, third.negated, third.values) == ("word", True, ("word",))
    assert (fourth.field, fourth.negated, fourth.text) == ("tag", True, "tag!=x")
    assert [term.field for term in parse("license:MIT")] == ["licence"]
    (day,) = parse("updated:1970-01-02")
    ((low, high),) = day.spans
    assert low == 86400.0
    assert 172799.9 < high < 172800.0
    assert parse("  ") == ()


def test_a_wrong_sort_names_the_right_ones(found):
    with pytest.raises(UserError, match=r"--sort: found 'size', expected one of updated, started, .* score\.NAME"):
        found("", sort="size")


@pytest.fixture
def here(shipped, monkeypatch):
    monkeypatch.delenv("TREERING_DATABASE_URL", raising=False)
    monkeypatch.chdir(shipped[0].root)


@pytest.mark.usefixtures("here")
def test_the_command_prints_a_table_and_how_fresh_the_ledger_is(shipped, treering):
    code, out, err = treering("search", "corpus:letters", "step>0", "--sort", "-step", "--limit", "1")
    assert (code, err) == (0, "")
    head, row, _, count, freshness = out.splitlines()
    assert head.split() == ["project", "experiment", "run", "state", "step", "checkpoint", "tokens", "promoted", "tags"]
    assert row.split()[:4] == ["journals", "earlier", shipped[2].id[:8], "finished"]
    assert re.fullmatch(r"\d+ checkpoints, \d+ of them not shown; --limit shows more", count)
    assert re.fullmatch(r"ledger sqlite:.*treering\.db: a shipper reported \d+[sm] ago", freshness)
    code, out, _ = treering("search", "--json", "tag.owner:ada", "--limit", "0")
    answer = json.loads(out)
    assert (code, answer["count"], answer["found"], answer["doubt"]) == (0, 1, [], [])
    code, out, _ = treering("search", "--", "-corpus:letters")
    assert out.splitlines()[0] == "0 checkpoints"


@pytest.mark.usefixtures("here")
def test_scores_are_shown_by_the_names_that_a_query_gives_them(treering, found):
    (task, metric) = next((score["task"], score["metric"]) for row in found("step>0").found for score in row.scores)
    out = treering("search", f"score.{task}.{metric}>-1e9", "--json")[1]
    best = [
        max(score["value"] for score in row["scores"] if (score["task"], score["metric"]) == (task, metric))
        for row in json.loads(out)["found"]
    ]
    assert len(best) > 1
    shown = treering("search", f"score.{task}.{metric}>-1e9", "--sort", f"score.{task}.{metric}")[1]
    assert f"{task}.{metric}" in shown.splitlines()[0]
    assert f"{min(best):.4g}" in shown.splitlines()[1]


@pytest.mark.usefixtures("here")
def test_runs_that_were_not_shipped_are_named(shipped, treering, monkeypatch, tmp_path):
    monkeypatch.setenv("TREERING_DATABASE_URL", f"sqlite:///{tmp_path}/other.db")
    code, _, err = treering("search")
    assert code == 4
    assert "other.db: missing; `treering ship` makes it from the run logs" in err
    Database(f"sqlite:///{tmp_path}/other.db").migrate()
    out = treering("search")[1]
    assert f"doubt: 1 run of {shipped[0].root} ({shipped[2].id[:8]}) not in the ledger yet; `treering ship`" in out
    assert "nothing was shipped to it yet" in out


def test_what_a_run_read_may_be_unknown(database):
    checkpoint = {"step": 50, "status": "saved", "tokens": None, "reads": ["code"], "scores": {}}
    run = {
        "key": "a" * 16, "id": "b" * 16, "project": "p", "experiment": "e", "state": "running", "host": "h",
        "corpora": True, "updated_at": 0.0, "checkpoints": [checkpoint], "notes": [], "tags": [], "promotions": [],
    }  # fmt: skip
    database.migrate()
    with database.writing() as connection:
        fill(connection, World({"sha256:code": None}, [run]))
    for query, count, undecided in (
        ("corpus:code", 1, 0), ("corpus:prose", 0, 0), ("licence:GPL*", 0, 1), ("-licence:GPL*", 0, 1),
        ("-licence:GPL* -corpus:code", 0, 0), ("licence:MIT step>60", 0, 0),
    ):  # fmt: skip
        answer = search(database, query)
        assert (answer.count, answer.undecided) == (count, undecided), query
    (more, silent) = search(database, "-licence:GPL*").doubt[1:] + search(database, "state:running").doubt
    assert "1 more may fit: what they read, or the licences of its documents, is not in the ledger" in more
    assert "is said to be running, but nothing was heard from project p on h for more than 5 minutes" in silent


def test_a_ledger_that_is_down_is_an_error_that_says_so():
    with pytest.raises(StoreError, match=r"a server that answers at 127\.0\.0\.1:9"):
        search(Database("postgresql://u@127.0.0.1:9/d"), "")


def test_the_help_names_every_field(treering):
    out = treering("search", "--help")[1]
    assert [name for name in FIELDS if name not in out] == []
