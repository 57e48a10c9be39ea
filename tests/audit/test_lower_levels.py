"""What is missing is named, with what helps, and what can be known without it is answered, at the level that it has."""

import json
import shutil

import pytest
import run_records
import yaml
from typer.testing import CliRunner

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.difference import compare_checkpoints
from treering.audit.documents.selection import Selector
from treering.audit.documents.spike import spike_data
from treering.audit.documents.takedown import takedown
from treering.audit.documents.trace import trace_documents
from treering.audit.report import Level
from treering.cli import app
from treering.errors import EvidenceError, NotFoundError
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.find import find_checkpoint, named_checkpoint


@pytest.fixture
def annealed(built):
    """A second run: from step 6 of the first one on a blend of its own, whose schedule begins there."""
    options = ("start_from.step=6", "schedule.rampup=null", "blend.seed=11")
    run = built.start_run(f"start_from.run='{built.run.id}'", *options)
    rings = built.lay_attempt(run, 1, range(7, 11), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    return run


def attempt(built, number, name=""):
    return built.run.path / "attempts" / f"{number:04d}" / name


def keep_lines(path, lines):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[lines]))


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


FAULTS = {
    "tail of the rings": (lambda b: keep_lines(attempt(b, 2, "rings.jsonl"), slice(0, 5)), 11, Level.REDERIVED),
    "rings emptied": (lambda b: attempt(b, 2, "rings.jsonl").write_text(""), 6, Level.REDERIVED),
    "rings gone": (lambda b: remove(attempt(b, 2, "rings.jsonl")), 6, Level.REDERIVED),
    "first rings of all": (lambda b: keep_lines(attempt(b, 1, "rings.jsonl"), slice(3, None)), 12, Level.REDERIVED),
    "first rings of an attempt": (
        lambda b: keep_lines(attempt(b, 2, "rings.jsonl"), slice(2, None)),
        13,
        Level.REDERIVED,
    ),
    "rings before the seam": (lambda b: keep_lines(attempt(b, 1, "rings.jsonl"), slice(0, 4)), 13, Level.REDERIVED),
    "header of the first": (lambda b: remove(attempt(b, 1, "header.json")), 15, Level.RECORDED),
    "header of the last": (lambda b: remove(attempt(b, 2, "header.json")), 9, Level.REDERIVED),
    "first attempt": (lambda b: remove(attempt(b, 1)), 9, Level.REDERIVED),
    "last attempt": (lambda b: remove(attempt(b, 2)), 0, Level.REDERIVED),
    "all attempts": (lambda b: remove(b.run.path / "attempts"), 0, Level.REDERIVED),
    "manifest": (lambda b: remove(b.last.path / "manifest.json"), 15, Level.REDERIVED),
    "manifest, damaged": (lambda b: (b.last.path / "manifest.json").write_text("{}"), 15, Level.REDERIVED),
}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_audit_goes_on_without_it(built, fault, verify):
    whole = audit_checkpoint(built.last, built.project)
    damage, recorded, level = FAULTS[fault]
    damage(built)
    report = audit_checkpoint(CheckpointDirectory(built.last.path), built.project, verify=verify)
    assert (report.holds, report.level, report.steps_recorded) == (False, level, recorded)
    assert report.corpora == whole.corpora
    assert (report.step, report.consumed_samples, report.consumed_tokens) == (15, 168, 2688)
    [gap] = report.gaps
    assert gap.level is level
    assert gap.missing in {finding.text for finding in report.findings}
    assert str(built.run.path) in gap.missing
    assert report.steps_content_bound == (recorded if verify else None)
    assert json.loads(json.dumps(report.to_json()))["shortfalls"][0]["answered"] == gap.answered


def test_what_rings_prove_and_what_is_derived_is_told_apart(built):
    keep_lines(attempt(built, 2, "rings.jsonl"), slice(0, 5))
    [gap] = audit_checkpoint(built.last, built.project).gaps
    assert "recorded are the steps 1 to 11; the others as schedule and blend" in gap.answered
    keep_lines(attempt(built, 1, "rings.jsonl"), slice(2, None))
    report = audit_checkpoint(built.last, built.project)
    assert "recorded are the steps 3 to 11;" in report.gaps[0].answered
    assert [(finding.line, finding.step) for finding in report.findings] == [(1, 1), (6, 12)]


def test_rings_after_lost_ones_are_still_held_against_the_schedule_and_the_corpora(built):
    keep_lines(attempt(built, 1, "rings.jsonl"), slice(2, None))
    path = built.corpora["red"].directory / "corpus.bin"
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
    report = audit_checkpoint(built.last, built.project, verify=True)
    assert {finding.kind for finding in report.findings} == {"ring", "corpus", "batch"}
    assert report.steps_content_bound < 13
    batch = next(finding for finding in report.findings if finding.kind == "batch")
    assert batch.line == batch.step - 2
    line = json.loads((attempt(built, 1, "rings.jsonl")).read_text().splitlines()[batch.line - 1])
    assert line["step"] == batch.step


def test_without_a_config_the_manifest_is_told(built):
    remove(built.run.path / "resolved.json")
    report = audit_checkpoint(built.last, built.project, verify=True)
    assert (report.level, report.corpora, report.path, report.steps_recorded) == (Level.DECLARED, (), (), 0)
    assert (report.run, report.step, report.consumed_samples, report.applied_steps) == (
        built.run.path.name,
        15,
        168,
        14,
    )
    assert report.digests["blend"] == built.last.manifest.blend
    [gap] = report.gaps
    assert gap.file == str(built.run.path / "resolved.json")
    assert "`treering find`" in gap.missing
    assert f"blend {built.last.manifest.blend}" in gap.answered


def publish(built):
    published = built.project.published
    (published / "checkpoints").mkdir(parents=True)
    shutil.copy(built.run.path / "resolved.json", published)
    shutil.copytree(built.last.path, published / "checkpoints" / built.last.path.name)
    shutil.copytree(built.run.path / "attempts", published / "attempts")


def test_the_published_run_log_stands_in_for_one_without_its_config(built):
    publish(built)
    whole = audit_checkpoint(built.last, built.project)
    remove(built.run.path / "resolved.json")
    report = audit_checkpoint(CheckpointDirectory(built.last.path), built.project)
    assert (report.level, report.steps_recorded, report.holds) == (Level.RECORDED, 15, False)
    assert report.corpora == whole.corpora
    assert f"by the run log in {built.project.published}" in report.gaps[0].answered


def test_a_run_without_its_config_beside_a_published_copy_that_dvc_tracks(built):
    publish(built)
    lock = {"stages": {"train": {"cmd": "train", "outs": [{"path": "published", "md5": "0123456789abcdef.dir"}]}}}
    (built.project.root / "dvc.lock").write_text(yaml.safe_dump(lock))
    remove(built.run.path / "resolved.json")
    report = audit_checkpoint(CheckpointDirectory(built.last.path), built.project)
    assert (report.level, report.steps_recorded) == (Level.RECORDED, 15)
    assert [finding.kind for finding in report.findings] == ["record"]


def test_a_checkpoint_of_another_run_is_audited_against_that_run(built, annealed):
    own = annealed.checkpoints()[0]
    moved = built.run.path / "checkpoints" / own.path.name
    shutil.copytree(own.path, moved)
    report = audit_checkpoint(find_checkpoint(moved), built.project, verify=True)
    expected = audit_checkpoint(own, built.project, verify=True)
    assert expected.holds
    assert (report.run, report.corpora, report.steps_content_bound) == (annealed.id, expected.corpora, 10)
    assert (report.level, report.holds) == (Level.RECORDED, False)
    [finding] = report.findings
    assert f"lies in the folder of run {built.run.id}, but is step 10 of run {annealed.id}" in finding.text
    assert str(annealed.path) in finding.text


def test_a_checkpoint_of_a_run_that_is_nowhere(built, annealed):
    own = annealed.checkpoints()[0]
    moved = built.run.path / "checkpoints" / own.path.name
    shutil.move(own.path, moved)
    remove(annealed.path)
    report = audit_checkpoint(find_checkpoint(moved), built.project)
    assert (report.level, report.holds) == (Level.DECLARED, False)
    assert any(finding.text.startswith(f"{moved / 'manifest.json'}: run is ") for finding in report.findings)


def test_a_checkpoint_that_was_moved_out_of_its_run(built, tmp_path):
    moved = shutil.move(built.last.path, tmp_path / "elsewhere" / built.last.path.name)
    report = audit_checkpoint(find_checkpoint(type(built.last.path)(moved)), built.project, verify=True)
    assert (report.run, report.level, report.steps_content_bound) == (built.run.id, Level.RECORDED, 15)
    assert "has no run around it" in report.findings[0].text


def test_a_run_whose_ancestor_is_gone(built, annealed):
    checkpoint = annealed.checkpoints()[0]
    before = built.schedule.samples_after(6)
    whole = audit_checkpoint(checkpoint, built.project)
    remove(built.run.path)
    report = audit_checkpoint(CheckpointDirectory(checkpoint.path), built.project)
    assert (report.level, report.steps_recorded, report.step) == (Level.DECLARED, 4, 10)
    assert sum(usage.samples for usage in report.corpora) == whole.consumed_samples - before
    assert "still" not in report.gaps[0].answered
    assert report.gaps[0].answered.startswith("steps 7 to 10; of steps 1 to 6 only that they were done")


def test_a_run_whose_ancestor_has_lost_its_attempts(built, annealed):
    checkpoint = annealed.checkpoints()[0]
    whole = audit_checkpoint(checkpoint, built.project)
    remove(built.run.path / "attempts")
    report = audit_checkpoint(CheckpointDirectory(checkpoint.path), built.project)
    assert (report.level, report.steps_recorded, report.corpora) == (Level.REDERIVED, 4, whole.corpora)


def test_nothing_is_left_to_answer_from(built):
    remove(built.last.path / "manifest.json")
    remove(built.run.path / "resolved.json")
    with pytest.raises(EvidenceError, match="no record is left to answer from"):
        audit_checkpoint(built.last, built.project)


def test_checkpoints_that_do_not_exist(built):
    with pytest.raises(NotFoundError, match=r"has those of the steps 6, 15; `treering batch RUN STEP` shows any step"):
        find_checkpoint(built.run.path / "checkpoints" / "step-00000012")
    remove(built.run.path / "resolved.json")
    assert named_checkpoint(built.project.runs, built.run.path.name[:5]).step == 15


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_the_command_says_what_is_missing_and_answers(built):
    remove(attempt(built, 2, "header.json"))
    result = command("audit", built.last.path)
    assert result.exit_code == 3
    assert "recorded: 9 of 15 steps" in result.stdout
    assert "168 samples, 2,688 tokens" in result.stdout
    assert "`treering verify` names what else is damaged" in result.stdout
    assert "answered     steps 7 to 15 by the rings that are left" in result.stdout
    document = json.loads(command("audit", built.last.path, "--json").stdout)
    assert (document["level"], document["shortfalls"][0]["level"]) == ("re-derived", "re-derived")


@pytest.mark.parametrize("ask", [trace_documents, takedown])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_record_makes_no_document_look_unread(built, fault, ask):
    selectors = [Selector.parse("licence=MIT"), Selector.parse("red:red-3")]
    whole = ask(built.project, selectors)
    assert whole.gaps == ()
    FAULTS[fault][0](built)
    found = ask(built.project, selectors)
    (first, last), (first_before, last_before) = found.checkpoints, whole.checkpoints
    assert (last.documents, last.exposures, last.first_step, last.last_step) == (
        last_before.documents, last_before.exposures, last_before.first_step, last_before.last_step
    )  # fmt: skip
    assert (first.documents, first.exposures) == (first_before.documents, first_before.exposures)
    silent = fault in {"first rings of all", "first rings of an attempt"}  # an attempt's ends tell which steps it did
    assert bool(found.gaps) is not silent
    assert set(found.unanswered) >= {each.text for each in found.gaps}


def test_a_document_of_a_corpus_that_is_gone(built):
    remove(built.project.corpus("red"))
    samples = {each.corpus: each.samples for each in audit_checkpoint(built.last, built.project).corpora}
    with pytest.raises(EvidenceError, match=f"step 15 of run {built.run.id[:8]} {samples['red']} samples"):
        trace_documents(built.project, [Selector.parse("red:red-3")])
    found = takedown(built.project, [Selector.parse("licence=MIT")])
    assert not found.checkpoints[-1].clean
    assert [each.corpus for each in found.gaps] == ["red"]


def test_documents_need_no_tokens(built):
    selectors = [Selector.parse("red:red-3")]
    whole = trace_documents(built.project, selectors)
    remove(built.project.corpus("red") / "corpus.bin")
    found = trace_documents(built.project, selectors)
    assert (found.documents, found.checkpoints) == (whole.documents, whole.checkpoints)
    assert "corpus.bin is missing" in found.gaps[0].missing


def test_a_run_without_a_config_is_not_passed_over(built):
    remove(built.run.path / "resolved.json")
    found = takedown(built.project, [Selector.parse("licence=MIT")])
    assert found.checkpoints == ()
    assert found.gaps[0].file == str(built.run.path / "resolved.json")


@pytest.mark.parametrize("fault", FAULTS)
def test_checkpoints_are_compared_by_the_recipe_where_rings_are_gone(built, annealed, fault):
    other = annealed.checkpoints()[0]
    whole = compare_checkpoints(built.last, other, built.project)
    FAULTS[fault][0](built)
    found = compare_checkpoints(CheckpointDirectory(built.last.path), other, built.project)
    assert (found.corpora, found.first_step) == (whole.corpora, whole.first_step)
    assert found.gaps
    assert found.level is not Level.CONTENT_BOUND


def test_a_spike_without_rings_and_without_a_corpus(built):
    whole = spike_data(built.run, 10, built.project)
    attempt(built, 2, "rings.jsonl").unlink()
    remove(built.project.corpus("red"))
    found = spike_data(built.run, 10, built.project)
    assert found.level is Level.REDERIVED
    assert [each.step for each in found.steps] == [each.step for each in whole.steps]
    assert found.steps[-1].loss is None
    for each, other in zip(found.steps, whole.steps, strict=True):
        assert [(one.sample, one.corpus, one.index) for one in each.samples] == [
            (one.sample, one.corpus, one.index) for one in other.samples
        ]
        assert all(not one.documents for one in each.samples if one.corpus == "red")
