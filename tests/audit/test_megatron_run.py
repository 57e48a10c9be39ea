"""`treering audit --megatron-run`, held against what megatron-core's own datasets hand out."""

import json
import re

import megatron_data
import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from treering.audit.megatron.run import AuditedRun
from treering.cli import app
from treering.config.batch_schedule import Rampup
from treering.config.schedule import Schedule
from treering.data.megatron.blend import MegatronBlend
from treering.errors import ConfigError, EvidenceError, NotFoundError, UserError

LENGTHS = {"wiki": [9, 30, 14, 3, 40, 21, 8, 33], "books": [150, 90, 120, 60], "code": [4, 7, 2, 9, 12, 5]}
WEIGHTS = {"wiki": 3.0, "books": 5.0, "code": 2.0}
RUN = {
    "data": [{"prefix": f"data/{name}", "weight": weight} for name, weight in WEIGHTS.items()],
    "split": "100,0,0",
    "seed": 42,
    "sequence_length": 10,
    "train_samples": 90,
    "global_batch_size": 8,
    "rampup": {"start": 2, "increment": 2, "samples": 30},
    "iteration": 9,
    "cache": "cache",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run's folder, as the working directory so that the run names its data as the description does."""
    monkeypatch.chdir(tmp_path)
    first = 0
    for name, lengths in LENGTHS.items():
        first += len(megatron_data.write_pair(tmp_path / "data" / name, lengths, first))
    describe(tmp_path)
    return tmp_path


def describe(folder, **changes):
    said = {name: value for name, value in (RUN | changes).items() if value is not None}
    (folder / "megatron-run.yaml").write_text(yaml.safe_dump(said))
    return folder / "megatron-run.yaml"


@pytest.fixture(scope="module")
def group():
    pytest.importorskip("megatron.core.datasets.gpt_dataset")
    with megatron_data.process_group():
        yield


def train(folder, cache="cache", **changes):
    """The dataset that Megatron trains on, with the cache that it leaves or finds."""
    names = tuple(f"data/{name}" for name in LENGTHS)
    blend = MegatronBlend(names, tuple(WEIGHTS.values()), RUN["seed"], 10, 90, RUN["split"], **changes)
    return megatron_data.build(blend, folder / cache)


def read_by_megatron(dataset, count):
    """Which documents each sample holds, by megatron-core."""
    found = []
    for g in range(count):
        component, part, k = megatron_data.place(dataset, g)
        found.append((list(LENGTHS)[component], part._query_document_sample_shuffle_indices(k)[1].tolist()))
    return found


def call(*arguments):
    return CliRunner().invoke(app, ["audit", "--megatron-run", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("cached", [True, False])
def test_the_answers_are_what_megatron_reads(folder, cached):
    dataset = train(folder)
    if not cached:
        describe(folder, cache=None)
    run = AuditedRun.open(folder, verify=cached)
    schedule = Schedule(10, 900, 8, 1.0, rampup=Rampup(2, 2, 30))
    report, consumed = run.report(), schedule.samples_after(9)
    read = read_by_megatron(dataset, consumed)
    assert report.holds
    assert report.level == "re-derived"
    assert len(report.indices_read) == (4 if cached else 0)
    assert (report.iteration, report.consumed_samples, report.consumed_tokens) == (9, consumed, consumed * 10)
    for usage in report.corpora:
        name = usage.corpus.removeprefix("data/")
        documents = [held for corpus, held in read if corpus == name]
        assert usage.samples == len(documents)
        assert usage.documents_touched == len({each for held in documents for each in held})
        assert usage.num_documents == len(LENGTHS[name])
        assert usage.epochs == pytest.approx(usage.tokens / sum(LENGTHS[name]))
    for step in range(1, 10):
        lo, hi = schedule.sample_range(step)
        told = [(s.corpus.removeprefix("data/"), [part.number for part in s.documents]) for s in run.step(step)]
        assert told == read[lo:hi]
    for name, lengths in LENGTHS.items():
        for document in range(len(lengths)):
            expected = [g for g, (corpus, held) in enumerate(read) if corpus == name and document in held]
            exposures = run.exposures(f"data/{name}:{document}")
            assert [sample.g for sample in exposures] == expected
            assert all(schedule.step_of_sample(sample.g) == sample.step for sample in exposures)
            assert {part.number for sample in exposures for part in sample.documents} <= {document}


@pytest.mark.usefixtures("group")
def test_a_stale_cache_is_used_by_megatron_and_found_by_the_audit(folder):
    before = train(folder)
    megatron_data.write_pair(folder / "data" / "books", [60, 150, 90, 120], 5000)  # other documents at the same place
    stale, fresh = train(folder), train(folder, cache="fresh")
    assert np.array_equal(stale.datasets[1].sample_index, before.datasets[1].sample_index)
    assert not np.array_equal(stale.datasets[1].sample_index, fresh.datasets[1].sample_index)
    result = call(folder, "--json")
    assert result.exit_code == 3
    report = json.loads(result.stdout)
    assert report["level"] == "declared"
    (finding,) = report["findings"]
    assert finding["corpus"] == "data/books"
    assert "this index cache was built from other data or settings, or is damaged: sample " in finding["text"]
    assert "by today's .idx it begins at token" in finding["text"]
    assert "remove the cache" in finding["text"]
    run = AuditedRun.open(folder)
    told = [sample for step in range(1, 10) for sample in run.step(step)]
    assert [
        (sample.corpus.removeprefix("data/"), [part.number for part in sample.documents]) for sample in told
    ] == read_by_megatron(fresh, len(told)), "the answers are by the rebuilt order"


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("lengths", "changes", "told"),
    [
        ([150, 90, 121, 59], {}, "sample .* begins at token"),
        ([150, 90, 120, 60, 1], {}, "document_index has 8 entries, 10 entries follow"),
        ([150, 90, 120], {}, "document_index has 8 entries, 6 entries follow"),
        ([150, 90, 30, 60], {}, "has 8 entries, 8 follow|sample_index has|document_index has"),
        (None, {"extra_token": False}, "sample_index has|sample .* begins at token"),
    ],
)
def test_what_a_cache_was_not_built_from(folder, lengths, changes, told):
    train(folder, **changes)
    if lengths is not None:
        megatron_data.write_pair(folder / "data" / "books", lengths, 5000)
    findings = AuditedRun.open(folder).findings
    assert findings
    assert any(re.search(told, finding.text) for finding in findings)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("name", "index", "told"),
    [
        ("GPTDataset-train-shuffle_index", 0, "shuffle_index is .* seed 42 gives"),
        ("GPTDataset-train-document_index", 0, "document_index is .* seed 42 gives|begins at token"),
        ("BlendedDataset-train-dataset_index", 30, "dataset_index is .* the weights give"),
    ],
)
def test_a_changed_cache_is_found_by_the_rebuild(folder, name, index, told):
    train(folder)
    path = sorted((folder / "cache").glob(f"*-{name}.npy"))[0]
    array = np.load(path)
    other = next(at for at in range(len(array)) if array[at] != array[index])
    array[[index, other]] = array[[other, index]]
    np.save(path, array)
    (finding,) = AuditedRun.open(folder, verify=True).findings
    assert re.search(told, finding.text)


@pytest.mark.usefixtures("group")
def test_a_file_of_the_cache_that_cannot_be_read(folder):
    train(folder)
    path = sorted((folder / "cache").glob("*-GPTDataset-train-sample_index.npy"))[0]
    path.write_bytes(path.read_bytes()[:40])
    (finding,) = AuditedRun.open(folder).findings
    assert "expected an array of whole numbers of Megatron's index cache" in finding.text
    path.unlink()
    assert "No such file" in AuditedRun.open(folder).findings[0].text


def test_the_command_answers_people_and_machines(folder):
    describe(folder, cache=None)
    report = json.loads(call(folder, "--json").stdout)
    assert report["verdict"] == "re-derived: 9 steps"
    assert any("nothing recorded what it read" in text for text in report["not_proven"])
    shown = call(folder).stdout
    for text in ("data/wiki", "consumed     ", "assurance    re-derived", "mixed"):
        assert text in shown
    step = json.loads(call(folder, "--step", 3, "--json").stdout)
    assert [sample["g"] for sample in step["samples"]] == [4, 5]
    exposed = call(folder, "--document", "data/books:2").stdout
    assert "document 2  tokens" in exposed
    assert "step" in exposed


def test_documents_get_their_names_from_a_table_beside_them(built, tmp_path):
    prefixes = [str(built.project.corpus(name) / "corpus") for name in built.corpora]
    data = [{"prefix": prefix, "weight": 1.0} for prefix in prefixes]
    run = AuditedRun.open(describe(tmp_path, data=data, rampup=None, cache=None, train_samples=72))
    for sample in run.step(4):
        name = sample.corpus.split("/")[-2]
        for part in sample.documents:
            row = built.corpora[name].document(part.number)
            assert (part.id, part.source, part.licence, part.num_tokens) == (
                row["id"], row["source"], row["licence"], row["tokens"],
            )  # fmt: skip


def test_progress_is_said_or_read(folder):
    describe(folder, cache=None, iteration=None)
    with pytest.raises(ConfigError, match=r"iteration: found nothing, expected .*latest_checkpointed_iteration\.txt"):
        AuditedRun.open(folder)
    (folder / "latest_checkpointed_iteration.txt").write_text("4\n")
    assert AuditedRun.open(folder).iteration == 4
    (folder / "latest_checkpointed_iteration.txt").write_text("release")
    with pytest.raises(EvidenceError, match="found 'release', expected the number of an iteration"):
        AuditedRun.open(folder)
    consumed = AuditedRun.open(describe(folder, cache=None, iteration=7)).consumed_samples
    by_samples = AuditedRun.open(describe(folder, cache=None, iteration=None, consumed_samples=consumed))
    assert (by_samples.iteration, by_samples.consumed_samples, by_samples.findings) == (7, consumed, ())
    (finding,) = AuditedRun.open(describe(folder, cache=None, iteration=7, consumed_samples=consumed + 1)).findings
    assert f"the batch schedule has consumed {consumed} after step 7" in finding.text


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"seed": None}, ConfigError, "seed: found nothing, expected a value"),
        ({"sed": 1}, ConfigError, "sed: found an unknown key, expected one of data, split, seed"),
        ({"train_iters": 3}, ConfigError, "train_samples and train_iters both or neither"),
        ({"train_samples": None, "train_iters": 3}, ConfigError, "train_iters with a rampup"),
        (
            {"data": [{"prefix": "a"}, {"prefix": "b", "weight": 1}]},
            ConfigError,
            "a weight for every entry or for none",
        ),
        ({"data": [{"prefix": "data/none", "weight": 1.0}]}, EvidenceError, r"data/none\.idx: No such file"),
        ({"iteration": 40}, UserError, "samples consumed, the order ends after"),
        ({"split": "0,1"}, UserError, "gives train none"),
    ],
)
def test_a_description_that_does_not_do(folder, changes, error, message):
    with pytest.raises(error, match=message):
        AuditedRun.open(describe(folder, **changes))


def test_questions_outside_the_run(folder):
    run = AuditedRun.open(describe(folder, cache=None))
    for ask, error, message in (
        (lambda: run.step(10), NotFoundError, "step 10 asked for, the checkpoint did steps 1 to 9"),
        (lambda: run.exposures("3"), UserError, "expected PREFIX:NUMBER"),
        (lambda: run.exposures("data/pile:3"), NotFoundError, "no data path 'data/pile'"),
        (lambda: run.exposures("data/code:6"), NotFoundError, "no document 6, expected 0 to 5"),
        (
            lambda: AuditedRun.open(folder / "none.yaml"),
            NotFoundError,
            r"no such file or folder, .*see docs/megatron\.md",
        ),
    ):
        with pytest.raises(error, match=message):
            ask()
    assert call(folder, "published").exit_code != 0
