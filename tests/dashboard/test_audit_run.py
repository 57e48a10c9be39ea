"""The Audit page of runs without corpora: what records alone show."""

from damaged_run import edit_ring
from dashboard_page import page, texts

from treering.runlog.directory import RunDirectory


def test_audit_shows_what_each_corpus_gave(lay_run) -> None:
    run = RunDirectory(lay_run(restart_after=100))
    manifest = run.checkpoints()[-1].manifest
    app = page("audit", run=run.path.name, checkpoint="step-00000306")
    assert "recorded: 306 of 306 steps" in texts(app)
    assert "batch digests were not recomputed; --verify does it." in texts(app)
    table = next(frame.value for frame in app.dataframe if "Epochs planned" in frame.value)
    assert table["Corpus"].tolist() == ["pubmed", "factbook", "python"]
    assert sum(int(text.replace("\u2009", "")) for text in table["Samples"]) == manifest.consumed_samples
    path = next(frame.value for frame in app.dataframe if "Changed" in frame.value)
    assert path["Steps"].tolist() == ["1 to 100", "101 to 306"]
    assert f"treering audit runs/{run.path.name}/checkpoints/step-00000306 --verify" in texts(app)


def test_audit_of_a_damaged_run_does_not_hold(lay_run) -> None:
    run = lay_run()
    edit_ring(run, 150)
    app = page("audit", run=run.name, checkpoint="step-00000306")
    assert "does not hold" in texts(app)
    assert "step 150" in texts(app)


def test_audit_without_a_checkpoint_says_so(lay_run) -> None:
    app = page("audit", run=lay_run(stop_at=50, status=None).name)
    assert "no complete checkpoint yet" in texts(app)
