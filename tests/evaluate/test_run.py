"""Evaluation end to end, over the checkpoints of a real run that was trained by two tensor-parallel ranks."""

import csv
import functools
import json
import os
import queue
import shutil
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import text_project
import torch
from signal_states import started_with

from treering.audit.evidence.evaluations import check_evaluations
from treering.audit.evidence.records import read_records
from treering.data.corpus.corpus import Corpus
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.records import Evaluation
from treering_trainer.evaluate import __main__ as evaluation
from treering_trainer.evaluate import harness
from treering_trainer.evaluate import run as scoring_run
from treering_trainer.evaluate.__main__ import main
from treering_trainer.evaluate.parts import PartStore
from treering_trainer.evaluate.tasks import TaskFile, build_task

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


@pytest.fixture(scope="module")
def evaluate(scored_project):
    """Evaluates the scored project in this process."""
    torch.set_num_threads(1)  # the workers are forked from this process
    return functools.partial(text_project.evaluate, scored_project, "scored.yaml")


@pytest.fixture(scope="module")
def evaluated(scored_project, scored_run, evaluate):
    shutil.rmtree(scored_run / "evaluations", ignore_errors=True)  # of other files' tests
    output = evaluate()
    return output, {
        path.name: path.read_bytes()
        for path in (*(scored_run / "evaluations").glob("*.json"), scored_project.metrics / "evaluate.json")
    }


def test_the_loss_is_that_of_the_training_engine(scored_project, scored_run, evaluated):  # noqa: ARG001
    run = RunDirectory(scored_run)
    measured = {ring.step: ring.validation for ring in run.path_rings() if ring.validation}
    records = run.evaluations()
    assert [record.step for record in records] == [5, 10]
    for record in records:
        assert record.validation_loss == pytest.approx(measured[record.step]["loss"], abs=1e-5)
        for corpus, loss in measured[record.step]["by_corpus"].items():
            assert record.perplexity[corpus]["loss"] == pytest.approx(loss, abs=1e-5)
            assert record.perplexity[corpus]["perplexity"] == pytest.approx(np.exp(loss), rel=1e-4)


def test_every_task_has_every_number_of_shots_with_standard_errors(scored_run, evaluated):  # noqa: ARG001
    record = RunDirectory(scored_run).evaluations()[-1]
    assert record.scores.keys() == {"cloze", "lambada"}
    for task, metrics in (("cloze", {"acc", "acc_norm"}), ("lambada", {"acc", "perplexity"})):
        assert record.scores[task].keys() == {"0", "1", "3"}
        for shots, numbers in record.scores[task].items():
            assert numbers.keys() == {
                *metrics, *(f"{name}_stderr" for name in metrics), "items", "examples", "truncated"
            }  # fmt: skip
            assert numbers["items"] == 12
            assert numbers["examples"] <= int(shots)
    # 32 tokens hold an example or two of this text beside the item, and never three.
    assert 0 < record.scores["lambada"]["1"]["examples"] <= 1
    assert record.scores["lambada"]["1"]["examples"] < record.scores["lambada"]["3"]["examples"] < 3


def test_the_command_says_how_many_examples_fitted(scored_run, evaluated):
    output, _ = evaluated
    numbers = RunDirectory(scored_run).evaluations()[-1].scores["lambada"]
    assert f"lambada, 3-shot: {numbers['3']['examples']:.2f} examples a prompt on average, since" in output
    assert "0-shot" not in output


def test_cut_contexts_are_counted_and_what_fits_is_not_said():
    numbers = {"items": 12.0, "examples": 1.0, "truncated": 2.0}
    found = scoring_run.shortfalls(SimpleNamespace(scores={"cloze": {"1": numbers, "0": numbers | {"truncated": 0.0}}}))
    assert found == ["cloze, 1-shot: 2 of 12 contexts were cut on the left, since they are longer than the sequence"]


def test_each_item_has_the_log_likelihood_of_its_right_answer(scored_run, evaluated):  # noqa: ARG001
    record = RunDirectory(scored_run).evaluations()[-1]
    for task, metrics in (("cloze", {"acc", "acc_norm"}), ("lambada", {"acc"})):
        for shots, items in record.items[task].items():
            assert items.keys() == {*metrics, "log_likelihood"}
            assert items["log_likelihood"].keys() == items["acc"].keys()
            assert all(value < 0 for value in items["log_likelihood"].values())
            if task == "lambada":
                mean = np.mean(list(items["log_likelihood"].values()))
                assert record.scores[task][shots]["perplexity"] == pytest.approx(np.exp(-mean), rel=1e-9)


def test_a_log_likelihood_is_that_of_the_right_choice():
    items = tuple({"context": "a", "choices": ["b", "c"], "gold": gold, "document": f"d{gold}"} for gold in (0, 1))
    task = build_task(TaskFile("task", "choice", items, ""), 0, count=len, room=100)
    answers = [(-1.0, True), (-2.0, False)]
    found = [harness.log_likelihood(task, {"doc": item, "filtered_resps": answers}) for item in items]
    assert found == [-1.0, -2.0]


def test_an_item_that_does_not_give_its_perplexity_is_found(scored_project, scored_run, evaluated, tmp_path):  # noqa: ARG001
    run = RunDirectory(shutil.copytree(scored_run, tmp_path / scored_run.name))
    run.evaluation_journal_file.unlink()
    path = run.evaluations_folder / "step-00000010.json"
    record, _ = Evaluation.read(path)
    check = lambda: list(check_evaluations(read_records(run, scored_project, str), str))  # noqa: E731
    assert not any("log_likelihood" in finding.text for finding in check())
    values = record.items["lambada"]["1"]["log_likelihood"]
    values[next(iter(values))] -= 1e-3
    record.write(path)
    (text,) = [finding.text for finding in check() if "log_likelihood" in finding.text]
    assert "scores.lambada.1.perplexity is " in text
    assert "exp of minus the mean of log_likelihood of its 12 items" in text


def entropy(frequencies):
    return -sum(share * np.log(share) for share in frequencies if share > 0)


def test_unigram_entropy_is_that_of_the_weighted_held_out_tokens(scored_project, scored_run, evaluated):  # noqa: ARG001
    record = RunDirectory(scored_run).evaluations()[-1]
    frequencies = np.zeros(512)
    for corpus, weight in (("letters", 0.7), ("numbers", 0.3)):
        tokens = np.asarray(Corpus.open(scored_project.corpus(corpus, "heldout")).tokens(1, 3 * 32 + 1))
        share = np.bincount(tokens, minlength=512) / len(tokens)
        assert record.perplexity[corpus]["unigram_entropy"] == pytest.approx(entropy(share))
        assert record.perplexity[corpus]["tokens"] == 96
        frequencies += weight * share
    assert record.unigram_entropy == pytest.approx(entropy(frequencies))


def test_metrics_and_plots_hold_the_scores(scored_project, scored_run, evaluated):  # noqa: ARG001
    records = RunDirectory(scored_run).evaluations()
    metrics = json.loads((scored_project.metrics / "evaluate.json").read_text())
    assert metrics["step"] == 10
    assert metrics["tasks"]["cloze"]["0-shot"]["acc"] == records[-1].scores["cloze"]["0"]["acc"]
    assert "items" not in metrics["tasks"]["cloze"]["0-shot"]
    with (scored_project.plots / "evaluate.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [5, 10]
    assert [float(row["validation_loss"]) for row in rows] == [record.validation_loss for record in records]
    assert float(rows[0]["lambada_3shot_perplexity"]) == records[0].scores["lambada"]["3"]["perplexity"]


def test_scored_checkpoints_are_kept_and_a_second_evaluation_is_identical(
    scored_project, scored_run, evaluate, evaluated
):
    output, files = evaluated
    assert "already scored" not in output
    records = scored_run / "evaluations"
    (records / "step-00000005.json").unlink()
    (records / "step-00000010.json").write_text("{}")  # damaged: does not count
    output = evaluate()
    assert "already scored" not in output
    again = {
        path.name: path.read_bytes() for path in (*records.glob("*.json"), scored_project.metrics / "evaluate.json")
    }
    assert again == files
    assert evaluate().count("already scored") == 2


def test_json_is_alone_on_standard_output(scored_project, scored_run, evaluated, monkeypatch, capsys):  # noqa: ARG001
    monkeypatch.chdir(scored_project.root)
    assert main(["scored.yaml", "--json"]) == 0
    output, progress = capsys.readouterr()
    records = RunDirectory(scored_run).evaluations()
    assert [record["scores"] for record in json.loads(output)] == [record.scores for record in records]
    assert progress.count("already scored") == 2


def test_errors_leave_standard_output_alone(scored_project, scored_run, monkeypatch, capsys):  # noqa: ARG001
    monkeypatch.chdir(scored_project.root)
    assert main(["scored.yaml", "--run", "beef"]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert "no run starts with 'beef'" in errors


def test_other_items_are_scored_anew(scored_project, scored_run, evaluate, evaluated):  # noqa: ARG001
    path = scored_project.tasks / "lambada.jsonl"
    original = path.read_bytes()
    before = RunDirectory(scored_run).evaluations()
    try:
        path.write_bytes(b"".join(reversed(original.splitlines(keepends=True))))
        assert "already scored" not in evaluate()
        after = RunDirectory(scored_run).evaluations()
        assert after[0].tasks["lambada"] != before[0].tasks["lambada"]
        assert after[0].scores["cloze"] == before[0].scores["cloze"]
    finally:
        path.write_bytes(original)
        evaluate()


def test_a_published_checkpoint_is_scored_without_its_run(scored_run, evaluate, evaluated):
    _, files = evaluated
    hidden = scored_run.with_name("hidden")
    scored_run.rename(hidden)
    try:
        assert "1 checkpoints" in evaluate()
        assert (scored_run / "evaluations" / "step-00000010.json").read_bytes() == files["step-00000010.json"]
        for path in (scored_run / "evaluations").iterdir():
            path.unlink()
        (scored_run / "evaluations").rmdir()
        scored_run.rmdir()
    finally:
        hidden.rename(scored_run)
        evaluate()


def test_a_changed_weight_file_is_refused(scored_run, evaluate, evaluated):  # noqa: ARG001
    checkpoint = scored_run / "checkpoints" / "step-00000005"
    path = next((checkpoint / "state").glob("layer_02-*.pt"))
    original = path.read_bytes()
    for name in ("step-00000005.json", "step-00000010.json"):
        (scored_run / "evaluations" / name).unlink()
    try:
        path.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        assert path.name in evaluate(code=3)
        assert [record.step for record in RunDirectory(scored_run).evaluations()] == [10], "the others are scored"
    finally:
        path.write_bytes(original)
        evaluate()


@pytest.mark.parametrize(
    ("ignored", "number"),
    [
        ((), signal.SIGKILL),
        ((), signal.SIGTERM),
        ((), signal.SIGINT),
        ((signal.SIGINT,), signal.SIGTERM),
    ],
)
def test_workers_end_with_their_evaluation(ignored, number, monkeypatch):
    monkeypatch.setattr(scoring_run, "load_model", lambda *_: time.sleep(300))
    evaluation = os.fork()
    if evaluation == 0:
        try:
            started_with(*ignored)
            one = {1: CheckpointDirectory(Path("step-00000001"))}
            stores = {1: SimpleNamespace(read=lambda _: None)}
            list(scoring_run._scored_parts(one, stores, SimpleNamespace(tasks=()), str, "cpu"))
        finally:
            os._exit(1)
    until = time.monotonic() + 300
    while not (workers := psutil.Process(evaluation).children()):
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.5)
    for each in ignored:
        os.kill(evaluation, each)
        time.sleep(0.5)
        assert os.waitpid(evaluation, os.WNOHANG) == (0, 0), "what was ignored at the start stays ignored"
    os.kill(evaluation, number)
    os.waitpid(evaluation, 0)
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive


def test_a_killed_evaluation_goes_on_where_it_was(scored_project, scored_run, evaluate, evaluated):
    _, files = evaluated
    for path in (scored_run / "evaluations").glob("step-*.json"):
        path.unlink()
    killed = os.fork()
    if killed == 0:
        write, written = PartStore.write, []

        def write_and_die(store, *part):
            write(store, *part)
            written.append(part)
            if len(written) == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        PartStore.write = write_and_die
        try:
            evaluate()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(killed, 0)[1]) == signal.SIGKILL
    unfinished = scored_project.unfinished_evaluations / scored_run.name
    parts = list(unfinished.glob("*/*/*.json"))
    assert len(parts) == 2
    parts[1].write_text(parts[1].read_text()[:-9])  # a damaged part is scored again
    assert not list((scored_run / "evaluations").glob("step-*.json"))
    assert evaluate().count("goes on; 1 of 3 parts were scored before") == 1
    assert {name: (scored_run / "evaluations" / name).read_bytes() for name in files if "step" in name} == {
        name: content for name, content in files.items() if "step" in name
    }
    assert [path.name for path in unfinished.iterdir()] == ["lock"]


def test_a_run_is_scored_by_the_file_of_its_experiment(
    scored_project,
    scored_run,
    evaluated,  # noqa: ARG001
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(scored_project.root)
    name = scored_run.name[:6]
    assert main([name]) == 2
    assert f"found no file with experiment 'scored' in {scored_project.experiments}" in capsys.readouterr().err
    scored_project.experiments.mkdir()
    shutil.copyfile("scored.yaml", scored_project.experiments / "scored.yaml")
    (scored_project.experiments / "broken.yaml").write_text("{")
    branch = "experiment: scored\nstart_from: {run: abcd, step: 5}\n"  # has the experiment of the run that it left
    (scored_project.experiments / "scored-rewind-5.yaml").write_text(branch)
    try:
        assert main([name, "--device", "cpu"]) == 0
        assert "1 checkpoints" in capsys.readouterr().out
        assert main([str(scored_run), "--all", "--json"]) == 0
        output, progress = capsys.readouterr()
        assert [(record["step"], record["device"]) for record in json.loads(output)] == [(5, "cpu"), (10, "cpu")]
        assert progress.count("already scored") == 2
    finally:
        shutil.rmtree(scored_project.experiments)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "--device: found 'gpu', expected cpu, cuda or cuda:N"),
        ("cpu:1", "--device: found 'cpu:1', expected cpu, cuda or cuda:N"),
        ("cuda:x", "--device: found 'cuda:x', expected"),
        ("cuda:99", "--device: found cuda:99, expected one of this node: cpu"),
    ],
)
def test_a_device_that_this_node_does_not_have(name, message, evaluate, evaluated):  # noqa: ARG001
    assert message in evaluate("--device", name, code=2)


def test_two_evaluations_of_a_run_take_turns(tmp_path):
    said, done = queue.Queue(), queue.Queue()

    def second():
        with evaluation._alone(tmp_path, said.put):
            done.put("second")

    with evaluation._alone(tmp_path, str):
        other = threading.Thread(target=second)
        other.start()
        assert "this one waits for it" in said.get(timeout=300)
        done.put("first")
    other.join(timeout=300)
    assert [done.get(timeout=300), done.get(timeout=300)] == ["first", "second"]


def test_a_broken_task_file_is_named_with_line_and_field(scored_project, evaluate, evaluated):  # noqa: ARG001
    path = scored_project.tasks / "cloze.jsonl"
    original = path.read_text()
    try:
        path.write_text(original.replace('"gold": 1', '"gold": 7', 1))
        output = evaluate(code=2)
        assert "cloze.jsonl line 1: gold: found 7, expected a number from 0 to 2" in output
        assert "Traceback" not in output
    finally:
        path.write_text(original)
