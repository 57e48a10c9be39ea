"""The Megatron page, held against `AuditedRun`."""

import shutil
from pathlib import Path

import megatron_data
import pytest
import yaml
from dashboard_page import metrics, page, table, texts

from treering.audit.megatron.run import AuditedRun

LENGTHS = {"wiki": [9, 30, 14, 3, 40, 21, 8, 33], "books": [150, 90, 120, 60]}
RUN = {
    "data": [{"prefix": "text/wiki", "weight": 3.0}, {"prefix": "text/books", "weight": 5.0}],
    "split": "100,0,0",
    "seed": 42,
    "sequence_length": 10,
    "train_samples": 90,
    "global_batch_size": 8,
    "iteration": 9,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A described run in a project's folder `gpt`."""
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    for name, lengths in LENGTHS.items():
        megatron_data.write_pair(tmp_path / "gpt" / "text" / name, lengths)
    describe(tmp_path / "gpt")
    return tmp_path / "gpt"


def describe(folder, **changes):
    (folder / "megatron-run.yaml").write_text(yaml.safe_dump(RUN | changes))


def audit(**query):
    """The page once its button was pressed."""
    app = page("megatron", **query)
    app.button[0].click().run()
    assert not app.exception
    return app


def number(text):
    return int(text.replace("\u2009", ""))


@pytest.mark.slow
def test_what_was_read_is_what_the_audit_says(folder):
    report = AuditedRun.open(folder).report()
    app = page("megatron")
    assert app.selectbox(key="path").value == "gpt"
    assert not app.dataframe, "the order is made when asked for"
    app.button[0].click().run()
    assert report.verdict in texts(app)
    usage = table(app, "Weight")
    assert usage["Data path"].tolist() == ["text/wiki", "text/books"]
    assert usage["Weight"].tolist() == [100 * each.weight for each in report.corpora]
    for column, field in (
        ("Samples", "samples"),
        ("Tokens", "tokens"),
        ("Documents touched", "documents_touched"),
        ("Documents held", "num_documents"),
    ):
        assert [number(text) for text in usage[column]] == [getattr(each, field) for each in report.corpora]
    settings = table(app, "Said by").set_index("Setting")
    assert settings.loc["seed"].tolist() == ["42", "the description"]
    assert settings.loc["data"].tolist() == ["2 data paths", "the description"]
    assert metrics(app)["Steps"] == "9"
    for text in report.not_proven:
        assert text.replace("`", "") in texts(app)
    assert app.code[-1].value == "treering audit --megatron-run gpt"


def test_a_step_and_a_document(folder):
    run = AuditedRun.open(folder)
    app = audit(path="gpt", megatron_step="3", megatron_document="text/books:2")
    step, document = (frame.value for frame in app.dataframe if "Of" in frame.value)
    for shown, samples in ((step, run.step(3)), (document, run.exposures("text/books:2"))):
        told = [
            (sample.g, sample.step, sample.corpus, part.number, f"{part.start} to {part.end}", part.num_tokens)
            for sample in samples
            for part in sample.documents
        ]
        columns = ("Sample", "Step", "Data path", "Document", "Tokens", "Of")
        found = [tuple(row[name] for name in columns) for row in shown.to_dict("records")]
        assert found == [tuple(map(str, row)) for row in told]
    assert app.code[-1].value == "treering audit --megatron-run gpt --step 3 --document text/books:2"
    app.number_input(key="megatron_step").set_value(10).run()
    assert "step 10 asked for, the checkpoint did steps 1 to 9" in texts(app)
    app.text_input(key="megatron_document").set_value("books").run()
    assert "expected PREFIX:NUMBER" in texts(app)


@pytest.mark.slow
def test_what_contradicts_itself_is_a_finding(folder):
    describe(folder, consumed_samples=40)
    app = audit()
    (finding,) = AuditedRun.open(folder).findings
    assert "does not hold" in texts(app)
    assert finding.text in texts(app)
    assert table(app, "Kind").iloc[0][["Kind", "File", "Step"]].tolist() == ["record", "gpt/megatron-run.yaml", "9"]


@pytest.mark.slow
def test_changed_data_are_read_again(folder):
    app = audit()
    assert table(app, "Weight")["Documents held"].tolist() == ["8", "4"]
    megatron_data.write_pair(folder / "text" / "books", [*LENGTHS["books"], 500])
    app.run()
    assert table(app, "Weight")["Documents held"].tolist() == ["8", "5"]


@pytest.mark.slow
def test_a_path_is_typed_and_data_lie_elsewhere(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(folder / "text", elsewhere)
    describe(folder, data=[{"prefix": f"/there/{name}", "weight": 1.0} for name in LENGTHS])
    missing = audit(path=str(folder))
    assert "This run cannot be audited." in texts(missing)
    assert "/there/wiki.idx" in texts(missing)
    app = audit(path=str(folder), moved=f"/there={elsewhere}")
    assert table(app, "Weight")["Documents held"].tolist() == ["8", "4"]
    assert f"--data-root /there={elsewhere}" in app.code[-1].value
    bad = audit(path=str(folder), moved="/there;x")
    assert "expected OLD=NEW" in texts(bad)
    assert bad.code[-1].value == f"treering audit --megatron-run {folder} --data-root '/there;x'"


@pytest.mark.slow
def test_another_lineage_is_named_first_until_one_is_stated(folder):
    describe(folder, data=[{"prefix": "text/books"}], train_samples=110)
    app = audit(path="gpt", megatron_step="3")
    (other,) = AuditedRun.open(folder).alternatives()
    assert (other.lineages, other.differ) == (("gpt-neox",), 71)
    assert "The lineage of the program that trained" in texts(app)
    assert other.text in texts(app)
    assert "gpt-neox (8 of 8 samples of step 3 differ" in texts(app)
    app = audit(path="gpt", lineage="gpt-neox")
    assert "The lineage of the program that trained" not in texts(app)
    assert AuditedRun.open(folder, lineage="gpt-neox").report().verdict in texts(app)
    assert app.code[-1].value == "treering audit --megatron-run gpt --lineage gpt-neox"


@pytest.mark.usefixtures("folder")
def test_a_rebuild_is_asked_for_as_verify():
    assert audit(rebuild="true").code[-1].value == "treering audit --megatron-run gpt --verify"


@pytest.mark.slow
def test_a_checkpoint_says_how_it_was_launched(folder):
    megatron_run = pytest.importorskip("megatron_run")
    pytest.importorskip("megatron.core")
    args = megatron_run.arguments(
        data_path=["3", str(folder / "text" / "wiki"), "5", str(folder / "text" / "books")],
        split="100,0,0",
        train_samples=90,
    )
    megatron_run.save(folder / "ckpt", args, 9)
    app = page("megatron")
    assert app.selectbox(key="path").options == ["gpt", "gpt/ckpt"]
    app = audit(path="gpt/ckpt")
    report = AuditedRun.open(folder / "ckpt").report()
    assert report.verdict in texts(app)
    said = table(app, "Said by").set_index("Setting")
    (seed,) = (each for each in report.settings if each.name == "seed")
    assert said.loc["seed"].tolist() == [str(seed.value), seed.argument]
    megatron_run.save(folder / "ckpt", args, 10)
    app.run()
    assert metrics(app)["Steps"] == "10", "the save folder's newest"


def test_without_a_run_it_says_how_to_describe_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path))
    for pruned in ("data/x", ".venv/x", "runs/x", "a/b/c/d"):
        (tmp_path / pruned).mkdir(parents=True)
        (tmp_path / pruned / "megatron-run.yaml").write_text("")
    app = page("megatron")
    assert app.selectbox(key="path").options == []
    assert "The project's folders do not hold a run of Megatron" in texts(app)
    assert set(yaml.safe_load(app.code[0].value)) <= set(RUN)


def test_a_path_that_is_nothing(folder):
    assert "no such file or folder" in texts(audit(path=str(Path(folder) / "none")))
