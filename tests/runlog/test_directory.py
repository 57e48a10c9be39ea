"""Reading runs: states, the path across attempts, and what breaks it."""

import os
from pathlib import Path

import pytest
import run_records

from treering.config.canonical import digest_bytes
from treering.config.resolve import resolve
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.config.schema import Experiment
from treering.errors import EvidenceError, NotFoundError
from treering.runlog.directory import RunDirectory, checkpoint_name
from treering.runlog.find import find_checkpoint, find_run, find_runs, named_checkpoint
from treering.runlog.lock import acquire
from treering.runlog.records import AttemptEnd, Parent
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter

DIGEST = digest_bytes(b"anything")


def make_run(root: Path, seed: int = 1) -> RunDirectory:
    experiment = Experiment.model_validate(
        {
            "experiment": "tiny",
            "seed": seed,
            "corpora": [{"name": "mine", "licence": "MIT", "jsonl": "mine.jsonl"}],
            "tokenizer": {"vocabulary_size": 512},
            "blend": {"seed": 7, "sequence_length": 32, "components": [{"corpus": "mine", "weight": "1"}]},
            "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "padded_vocab_size": 512},
            "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
            "schedule": {"train_tokens": 1280, "global_batch_size": 4},
            "parallel": {"micro_batch_size": 2},
            "checkpoint": {"every_steps": 2},
        }
    )
    component = ResolvedComponent(corpus="mine", weight="1", digest=DIGEST, num_tokens=4096, num_documents=8)
    blend = ResolvedBlend(algorithm="treering-1", seed=7, sequence_length=32, components=(component,), tokenizer=DIGEST)
    resolved = resolve(experiment, blend, "test")
    run = RunDirectory(root / resolved.run_id)
    run.path.mkdir(parents=True)
    resolved.write(run.path / "resolved.json")
    return run


def lay_attempt(run: RunDirectory, number: int, steps: range, parent: Parent | None = None, loss: float = 6.0):
    directory = run.path / "attempts" / f"{number:04d}"
    directory.mkdir(parents=True)
    digest = run_records.header(run.resolved, number, parent=parent).write(directory / "header.json")
    with RingWriter(directory / "rings.jsonl", Ring, digest) as writer:
        return [
            writer.append(**run_records.ring_values(step, (4 * (step - 1), 4 * step), 32, loss=loss - step / 10))
            for step in steps
        ]


def cut_checkpoint(run: RunDirectory, attempt: int, ring) -> None:
    directory = run.path / "checkpoints" / checkpoint_name(ring.step)
    directory.mkdir(parents=True)
    run_records.manifest(run.resolved, attempt, ring).write(directory / "manifest.json")


@pytest.fixture
def restarted(tmp_path):
    """Attempt 1 lays rings 1..5 and a checkpoint at 4; attempt 2 goes on from there to 7 with another loss."""
    run = make_run(tmp_path)
    first = lay_attempt(run, 1, range(1, 6))
    cut_checkpoint(run, 1, first[3])
    second = lay_attempt(run, 2, range(5, 8), run_records.parent(run.checkpoints()[0]), loss=5.0)
    cut_checkpoint(run, 2, second[-1])
    return RunDirectory(run.path)


def test_the_path_leaves_out_what_an_abandoned_attempt_did(restarted):
    rings = list(restarted.path_rings())
    assert [ring.step for ring in rings] == [1, 2, 3, 4, 5, 6, 7]
    assert [round(ring.loss, 1) for ring in rings] == [5.9, 5.8, 5.7, 5.6, 4.5, 4.4, 4.3]
    assert [(segment.attempt.number, segment.last_step) for segment in restarted.path_to()] == [(1, 4), (2, None)]


def test_the_path_to_a_checkpoint_ends_at_its_ring(restarted):
    early, late = restarted.checkpoints()
    assert [ring.step for ring in restarted.path_rings(early)] == [1, 2, 3, 4]
    assert [ring.step for ring in restarted.path_rings(late)] == [1, 2, 3, 4, 5, 6, 7]
    assert find_checkpoint(restarted.path).step == 7
    assert late.run.id == restarted.id


def test_a_checkpoint_is_named_by_folder_or_by_a_run(restarted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    early, late = restarted.checkpoints()
    assert named_checkpoint(tmp_path, str(early.path)).digest == early.digest
    assert named_checkpoint(tmp_path, restarted.id[:5]).digest == late.digest
    restarted.path.rename(tmp_path / "published")
    assert named_checkpoint(tmp_path / "runs", "published").digest == late.digest
    with pytest.raises(NotFoundError, match=r"runs/ is missing, and 'beef' is not a folder here"):
        named_checkpoint(tmp_path / "runs", "beef")
    with pytest.raises(NotFoundError, match=r"runs/beef: no checkpoint there"):
        named_checkpoint(tmp_path / "runs", "runs/beef")


def test_a_checkpoint_that_was_cut_elsewhere_is_refused(restarted):
    early = restarted.checkpoints()[0]
    content = early.manifest.model_copy(update={"ring": DIGEST})
    content.write(early.path / "manifest.json")
    early = restarted.checkpoints()[0]
    with pytest.raises(EvidenceError, match=r"was cut at ring .*, but the path ends at"):
        list(restarted.path_rings(early))


def test_an_edited_header_is_named(restarted):
    header = restarted.path / "attempts" / "0001" / "header.json"
    header.write_text(header.read_text().replace('"host": "node"', '"host": "other"'))
    with pytest.raises(EvidenceError, match=r"0001/header.json: digest .* the file was changed"):
        list(restarted.path_rings())


def test_missing_rings_are_named(restarted):
    rings = restarted.path / "attempts" / "0001" / "rings.jsonl"
    rings.write_text("".join(rings.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(EvidenceError, match=r"the rings end at step 2, the path needs them to step 4"):
        list(restarted.path_rings())


def test_states(tmp_path):
    run = make_run(tmp_path)
    assert run.state() == "empty"
    descriptor = acquire(run.lock)
    assert run.state() == "running"
    lay_attempt(run, 1, range(1, 3))
    os.close(descriptor)
    assert run.state() == "broken"
    AttemptEnd(status="finished", reason="", step=2, ended_at=3.0).write(run.path / "attempts/0001/end.json")
    assert run.state() == "finished"


def test_a_run_is_found_by_any_unique_prefix(tmp_path):
    runs = [make_run(tmp_path, seed) for seed in (1, 2, 3)]
    assert len(find_runs(tmp_path)) == 3
    for run in runs:
        assert find_run(tmp_path, run.path.name[:10]).path == run.path
        assert find_run(tmp_path, run.resolved.recipe.digest).path == run.path
    with pytest.raises(NotFoundError, match="fits several runs"):
        find_run(tmp_path, "")
    with pytest.raises(NotFoundError, match="'zz' is not a folder here and not a run's id"):
        find_run(tmp_path, "zz")
    with pytest.raises(NotFoundError, match=" is a folder without a run and not a run's id"):
        find_run(tmp_path, f"{tmp_path}")


def test_an_edited_resolved_config_is_refused(tmp_path):
    run = make_run(tmp_path)
    path = run.path / "resolved.json"
    path.write_text(path.read_text().replace('"num_layers": 2', '"num_layers": 4'))
    with pytest.raises(EvidenceError, match=r"recipe digest .* the file was edited"):
        _ = RunDirectory(run.path).resolved
