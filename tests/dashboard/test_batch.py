"""The Batch page, held against `step_batch` and `spike_data`."""

import shutil

import pytest
from audited_project import lay_attempt, start_run
from dashboard_page import page, table, texts

from treering.audit.documents.batch import step_batch
from treering.audit.documents.spike import spike_data
from treering.data.corpus.corpus import Corpus
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering_dashboard.panels.samples import PAGE_SIZE


@pytest.fixture
def run(audited):
    return find_runs(audited.runs)[0]


def number(text):
    return int(text.replace("\u2009", ""))


def shown(app):
    """Numbers of the samples in the table."""
    return [number(text) for text in table(app, "Parts")["Sample"]]


def test_the_newest_batch_stands_there_with_its_text(audited, run):
    last = run.checkpoints()[-1].step
    found = step_batch(run, last, audited)
    app = page("batch", run=run.path.name)
    assert app.query_params["step"] == str(last)
    assert "content-bound" in texts(app)
    assert f"attempt 2; the corpora give the ring's batch digest, {found.recorded_digest}" in texts(app)
    samples = table(app, "Parts")
    for row, each in zip(samples.to_dict("records"), found.samples, strict=True):
        assert row["Corpus"] == each.corpus
        assert [number(row[name]) for name in ("Sample", "Index", "Epoch", "Replica", "Micro-batch")] == [
            each.g,
            each.index,
            each.epoch,
            each.replica,
            each.micro_batch,
        ]
    assert samples["Documents"].tolist() == [
        ", ".join(part.document for part in each.documents) for each in found.samples
    ]
    first = found.samples[0]
    assert [code.value for code in app.code] == [
        *(part.text for part in first.documents),
        f"treering batch {run.id} {last}",
    ]
    for part in first.documents:
        row = Corpus.open(audited.corpus(part.corpus)).document(part.number)
        assert f"{part.corpus}:{row['id']}" in texts(app)
        assert f"{row['source']}\n{row['licence']}" in texts(app)
        assert f"tokens {part.start} to {part.end} of {part.num_tokens}" in texts(app)
    links = [(link.proto.label, link.proto.query_string) for link in app.get("page_link")]
    assert len(links) == len(first.documents)
    assert f"document={first.corpus}%3A{first.documents[0].document}" in links[0][1]


def test_text_of_documents_is_never_markdown(audited, run):
    texts_of_batch = [part.text for each in step_batch(run, 3, audited).samples for part in each.documents]
    app = page("batch", run=run.path.name, step="3")
    labels = [expander.label for expander in app.expander]
    words = " ".join(str(element.value) for element in (*app.markdown, *app.caption)) + " ".join(labels)
    assert labels
    assert not any(text.strip()[:12] in words for text in texts_of_batch if len(text.strip()) > 12)


def test_another_sample_is_chosen(audited, run):
    found = step_batch(run, 9, audited)
    app = page("batch", run=run.path.name, step="9")
    app.session_state[f"samples from {found.samples[0].g}"] = {"selection": {"rows": [5]}}
    app.run()
    assert [code.value for code in app.code][:-1] == [part.text for part in found.samples[5].documents]


@pytest.mark.slow
def test_of_one_rank_one_replica_one_micro_batch(audited, run):
    found = step_batch(run, 9, audited)
    by_rank = page("batch", run=run.path.name, step="9", rank="1")
    assert shown(by_rank) == [each.g for each in step_batch(run, 9, audited, rank=1).samples]
    assert f"treering batch {run.id} 9 --rank 1" in texts(by_rank)
    by_place = page("batch", run=run.path.name, step="9", replica="1", micro_batch="0")
    assert shown(by_place) == [each.g for each in found.samples if (each.replica, each.micro_batch) == (1, 0)] != []
    nowhere = page("batch", run=run.path.name, step="9", replica="7")
    assert "None there: replicas 0 to 1, micro-batches 0 to 3." in texts(nowhere)
    assert "no rank 2, layout" in texts(page("batch", run=run.path.name, step="9", rank="2"))


@pytest.mark.slow
def test_a_large_batch_is_drawn_by_pages(audited):
    run = start_run(audited, "schedule.global_batch_size=40", "schedule.rampup=null")
    lay_attempt(audited, run, 1, range(1, 3))
    samples = step_batch(run, 2, audited).samples
    assert len(samples) == 40 > PAGE_SIZE
    app = page("batch", run=run.path.name, step="2")
    assert shown(app) == [each.g for each in samples[:PAGE_SIZE]]
    assert f"1 to {PAGE_SIZE} of 40 samples" in texts(app)
    assert shown(page("batch", run=run.path.name, step="2", page="2")) == [each.g for each in samples[PAGE_SIZE:]]


@pytest.mark.slow
def test_a_batch_that_the_corpora_do_not_give(audited):
    run = start_run(audited, "seed=8")
    false = f"sha256:{'0' * 64}"
    lay_attempt(audited, run, 1, range(1, 4), step_3={"batch_digest": false})
    app = page("batch", run=run.path.name, step="3")
    assert "the corpora give another batch digest than the ring's" in texts(app)
    true = step_batch(run, 3, audited).recomputed_digest
    digests = next(code.value for code in app.code if "in the ring" in code.value)
    assert digests.split() == [*["in", "the", "ring"], false, *["from", "the", "corpora"], true]
    assert "content-bound" in texts(page("batch", run=run.path.name, step="2"))


@pytest.mark.slow
def test_what_cannot_be_shown_says_why(audited, run):
    app = page("batch", run=run.path.name, step="99")
    assert "No such step." in [warning.value for warning in app.warning]
    assert "no attempt did step 99" in app.code[0].value
    assert "no attempt did step 99" in texts(page("batch", run=run.path.name, step="99", view="steps before"))
    shutil.rmtree(audited.corpus("green"))
    shown = texts(page("batch", run=run.path.name, step="3"))
    assert "corpus green" in shown
    assert "still answered (recorded): which samples of corpus green were read" in shown


@pytest.mark.slow
def test_a_changed_corpus_is_seen_although_answers_are_kept(audited, run):
    assert "content-bound" in texts(page("batch", run=run.path.name, step="3"))
    tokens = audited.corpus("red") / "corpus.bin"
    content = bytearray(tokens.read_bytes())
    for place in range(0, len(content), 2):
        content[place] ^= 1
    tokens.write_bytes(content)
    assert "another batch digest" in texts(page("batch", run=run.path.name, step="3"))


@pytest.mark.slow
def test_without_runs_or_steps(tmp_path, monkeypatch, lay_run):
    run = lay_run()
    for part in ("attempts", "checkpoints", "evaluations"):
        shutil.rmtree(run / part)
    assert "No step yet" in texts(page("batch", run=run.name))
    monkeypatch.setenv("TREERING_ROOT", str(tmp_path / "nothing"))
    assert "No runs yet" in texts(page("batch"))


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("key", ["run", "view", "rank", "page", "step"])
def test_an_address_that_makes_no_sense_shows_no_batch(key):
    app = page("batch", **{key: "99" if key == "page" else "none"})
    assert [error.value for error in app.error] == [f"No such {key}"]
    assert key in ("page",) or not app.dataframe


def test_the_steps_before_and_what_else_read_their_samples(audited, run):
    data = spike_data(run, 9, audited, 3)
    app = page("batch", run=run.path.name, step="9", view="steps before", before="3")
    steps = table(app, "Read elsewhere")
    assert [int(text) for text in steps["Step"]] == [6, 7, 8, 9] == [each.step for each in data.steps]
    assert [int(text) for text in steps["Attempt"]] == [each.attempt for each in data.steps]
    assert [float(text) for text in steps["Loss"]] == [round(each.loss, 2) for each in data.steps]
    assert [int(text) for text in steps["Read elsewhere"]] == [
        sum(bool(sample.elsewhere) for sample in each.samples) for each in data.steps
    ]
    samples, last = table(app, "Also read at step"), data.steps[-1].samples
    assert [number(text) for text in samples["Sample"]] == [each.sample for each in last]
    again = next(place for place, each in enumerate(last) if len(each.elsewhere) == 1)
    (reading,) = last[again].elsewhere
    assert (reading.step, reading.attempt) == (9, 1)  # before attempt 2 did the step again
    assert samples["Also read at step"][again] == "9 (attempt 1)"
    assert f"treering spikes {run.id} 9 --before 3" in texts(app)

    app.session_state["steps before 9"] = {"selection": {"rows": [1]}}
    app.run()
    samples = table(app, "Also read at step")
    assert [number(text) for text in samples["Sample"]] == [each.sample for each in data.steps[1].samples]
    assert app.button[0].label == "Batch of step 7, with its text"
    app.button[0].click().run()
    assert shown(app) == [each.sample for each in data.steps[1].samples]


@pytest.mark.slow
def test_what_only_one_step_read(audited, run):
    data = spike_data(run, 3, audited)
    alone = [each.sample for each in data.steps[-1].samples if not each.elsewhere]
    assert 0 < len(alone) < len(data.steps[-1].samples)
    app = page("batch", run=run.path.name, step="3", view="steps before", alone="true")
    assert [number(text) for text in table(app, "Also read at step")["Sample"]] == alone
    every = spike_data(run, 9, audited).steps[-1].samples
    assert all(each.elsewhere for each in every)  # attempt 1 did this step, too
    app = page("batch", run=run.path.name, step="9", view="steps before", alone="true")
    assert "Every sample was read elsewhere as well." in texts(app)


@pytest.mark.slow
def test_a_spike_is_told(lay_run):
    run = RunDirectory(lay_run(spike_at=190))
    ring = list(run.path_rings())[190]
    app = page("batch", run=run.path.name, step=str(ring.step), view="steps before")
    assert "spike" in app.markdown[0].value
    assert any(text.value.startswith(f"Gradient norm {ring.grad_norm:.2f} over ") for text in app.text)
    assert "corpus pubmed" in texts(app)  # its corpora are not available
    assert "Gradient norm" not in texts(page("batch", run=run.path.name, step="100"))
