"""The pipeline as a user runs it, in order: each test goes on from where the one before left the project."""

import json
import shutil

import numpy as np
import pytest

from treering.data.corpus.corpus import Corpus
from treering.data.order.treering1 import DataOrder
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]

STAGES = ["fetch", "curate", "tokenize", "blend", "train", "evaluate", "report"]
AUDIT = ("treering", "audit", "published", "--verify")


def ran(output: str) -> list[str]:
    """The stages that a `dvc repro` ran."""
    return [stage for stage in STAGES if f"Running stage '{stage}'" in output]


def changed(status: dict) -> list[str]:
    return [stage for stage in STAGES if stage in status]


def test_one_command_runs_every_stage(project):
    assert ran(project.repro()) == STAGES
    assert project.status() == {}
    train = json.loads((project.root / "metrics/train.json").read_text())
    evaluate = json.loads((project.root / "metrics/evaluate.json").read_text())
    assert train["steps"] == 29, "10 steps of 4 samples and 19 of 8 reach 12,288 tokens"
    assert train["validation_loss"]["last"] < train["validation_loss"]["first"]
    assert evaluate["step"] == 29
    assert {task: set(shots) for task, shots in evaluate["tasks"].items()} == {
        "cloze": {"0-shot", "1-shot"},
        "lambada": {"0-shot", "1-shot"},
    }
    assert "content-bound: 29 of 29 steps" in (project.root / "report.md").read_text()


def test_a_second_run_does_nothing(project):
    assert ran(project.repro()) == []


def test_metrics_and_plots_are_dvcs(project):
    project.command("git", "add", "dvc.lock", "metrics", "plots", "report.md")
    project.command("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "results")
    shown = json.loads(project.command("dvc", "metrics", "show", "--json").stdout)[""]["data"]
    assert shown["metrics/train.json"]["data"]["steps"] == 29
    plots = json.loads(project.command("dvc", "plots", "show", "--json").stdout)["data"]
    points = plots["Loss"][0]["content"]["data"]["values"]
    assert [point["tokens"] for point in points if point["field"] == "loss"][-1] == "12288"
    assert "Held-out loss by checkpoint" in plots
    assert json.loads(project.command("dvc", "metrics", "diff", "--json").stdout) == {}


def test_the_audit_binds_every_step(project):
    assert "content-bound: 29 of 29 steps" in project.command(*AUDIT).stdout


def test_a_dashboard_file_reruns_nothing(project):
    file = project.root / "dashboard" / "treering_dashboard" / "__init__.py"
    file.write_text(file.read_text() + "\n# changed\n")
    assert project.status() == {}


def first_step(run, corpus, document):
    """The first step that read a token of a document of the first component, None for none; sample by sample."""
    start, end = corpus.document_offsets[document : document + 2].tolist()
    order = DataOrder(run.resolved.blend)
    for ring in run.path_rings(run.checkpoints()[-1]):
        components, firsts = order.token_ranges(ring.sample_start, ring.sample_end)
        if np.any((components == 0) & (firsts < end) & (firsts + order.sequence_length >= start)):
            return ring.step
    return None


def test_one_changed_byte_is_traced_to_file_corpus_document_and_step(project):
    (folder,) = project.runs()
    path = project.root / "data/corpora/train/docs/corpus.bin"
    corpus = Corpus.open(path.parent)
    token = 2000 // corpus.manifest["token_width_bytes"]
    document = int(np.searchsorted(corpus.document_offsets, token, side="right")) - 1
    step = first_step(RunDirectory(folder), corpus, document)
    read = "unread by this checkpoint" if step is None else f"first read by step {step}"
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
    failed = project.command(*AUDIT, check=False)
    path.write_bytes(whole)
    assert failed.returncode == 3
    place = f"corpus docs, document {corpus.document(document)['id']} (number {document}): {read}"
    assert f"{path.relative_to(project.root)}: {place}" in failed.stdout + failed.stderr


def test_one_changed_number_in_a_ring_is_named(project):
    (run,) = project.runs()
    rings = run / "attempts/0001/rings.jsonl"
    whole = rings.read_text()
    lines = whole.splitlines(keepends=True)
    lines[6] = lines[6].replace('"learning_rate":0.00', '"learning_rate":0.01')
    assert lines[6] not in whole
    rings.write_text("".join(lines))
    failed = project.command("treering", "audit", str(run / "checkpoints/step-00000029"), check=False)
    rings.write_text(whole)
    assert failed.returncode == 3
    assert "rings.jsonl line 7: ring of step 7" in failed.stderr + failed.stdout


def test_another_blend_trains_another_run(project):
    (old,) = project.runs()
    components = [{"corpus": "docs", "weight": "0.3"}, {"corpus": "code", "weight": "0.7"}]
    project.configure(blend={"seed": 5, "sequence_length": 64, "components": components})
    assert changed(project.status())[0] == "blend"
    assert ran(project.repro()) == ["blend", "train", "evaluate", "report"]
    difference = json.loads(project.command("dvc", "metrics", "diff", "--json").stdout)
    loss = difference["metrics/train.json"]["loss.last"]
    assert loss["diff"] == pytest.approx(loss["new"] - loss["old"])
    assert loss["diff"] != 0
    new = next(run for run in project.runs() if run != old)
    header = json.loads((new / "attempts/0001/header.json").read_text())
    assert header["parent"] is None
    for run, weight in ((old, "0.6"), (new, "0.3")):
        audit = project.command("treering", "audit", str(run / "checkpoints/step-00000029"), "--verify", "--json")
        report = json.loads(audit.stdout)
        shares = {corpus["corpus"]: corpus for corpus in report["corpora"]}
        assert shares["docs"]["weight"] == weight
    shutil.rmtree(old)


def test_a_comment_in_trainer_code_reruns_stage_train_which_trains_nothing(project):
    (run,) = project.runs()
    file = project.root / "trainer/treering_trainer/core/optim.py"
    file.write_text("# a comment\n" + file.read_text() + "\n# another\n")
    assert changed(project.status()) == ["train"]
    result = project.command("dvc", "repro")
    assert ran(result.stdout) == ["train"], "its outputs are the same"
    printed = result.stdout + result.stderr
    assert "finished at step 29; nothing to train" in printed
    assert "changed since" not in printed
    assert project.status() == {}
    assert [path.name for path in run.glob("attempts/*")] == ["0001"]


def test_a_changed_number_leaves_a_finished_run_until_it_is_started_over(project):
    (run,) = project.runs()
    file = project.root / "trainer/treering_trainer/core/optim.py"
    text = file.read_text()
    file.write_text(text.replace('"weight_decay": 0.0}', '"weight_decay": 0.001}'))
    assert file.read_text() != text
    assert changed(project.status())[0] == "train"
    (checkpoint,) = run.glob("checkpoints/step-00000029/manifest.json")
    before = checkpoint.read_text()
    result = project.command("dvc", "repro")
    assert ran(result.stdout)[0] == "train"
    assert "changed since: code (trainer/treering_trainer/core/optim.py)" in result.stdout + result.stderr
    assert (len(list(run.glob("attempts/*"))), checkpoint.read_text()) == (1, before)
    project.command("treering", "train", "experiments/demo.yaml", "--start-over")
    assert ran(project.repro())[0] == "train", "its outputs are others now"
    headers = [json.loads(path.read_text()) for path in sorted(run.glob("attempts/*/header.json"))]
    assert [header["origin"] for header in headers] == ["start", "restart"]
    assert headers[1]["parent"] is None
    assert headers[0]["code"]["digest"] != headers[1]["code"]["digest"]
    assert any("optim.py" in change for change in headers[1]["changed"])
    assert "content-bound: 29 of 29 steps" in project.command(*AUDIT).stdout
