"""A checkpoint of one layout goes on in another: the same losses, the same batches, one audited path."""

import json
import os
import shutil
import signal

import psutil
import pytest
import torch
from trained import eventually, numbers, rings, run_of
from typer.testing import CliRunner

from treering.audit.checkpoint import audit_checkpoint
from treering.cli import app
from treering.metrics.lines.read import run_line
from treering.metrics.run_summary import run_page
from treering.runlog.find import find_runs
from treering.runlog.records import CheckpointManifest, ConversionManifest
from treering_trainer.checkpointing import checkpoint, cleanup, convert
from treering_trainer.checkpointing.weights import open_state, read_weights

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

TOLERANCE = 5e-6


def layout(name):
    """Options of a layout like `2x2x2` or `1x2x1 dualpipev`."""
    sizes, _, schedule = name.partition(" ")
    tensor, pipeline, data = sizes.split("x")
    values = {"tensor": tensor, "pipeline": pipeline, "data": data, "micro_batch_size": 1}
    values |= {"pipeline_schedule": schedule} if schedule else {}
    return [f"--set=parallel.{field}={value}" for field, value in values.items()]


def assert_close(run, reference, tolerance=TOLERANCE):
    """The same batches to the last bit; losses, norms and held-out losses but for rounding."""
    ours, theirs = (rings(each) for each in (run, reference))
    read = [[(ring.step, ring.consumed_samples, ring.batch_digest) for ring in each] for each in (ours, theirs)]
    assert read[0] == read[1]
    assert [ring.loss for ring in ours] == pytest.approx([ring.loss for ring in theirs], abs=tolerance)
    for left, right in zip(ours, theirs, strict=True):
        if right.validation is not None:
            assert left.validation_loss == pytest.approx(right.validation_loss, abs=tolerance)


def assert_gone_on(run, project, before, after):
    """What is on record of the change, and that the audit follows it."""
    first, second = (attempt.header for attempt in run.attempts())
    assert (str(first.layout), str(second.layout)) == (before, after)
    assert (second.origin, second.parent.step, second.continue_changed) == ("resume", 8, True)
    assert f"layout ({before} to {after}, TP x PP x DP, or its micro-batch or device)" in second.changed
    parent = run.checkpoints()[1]
    assert second.parent.checkpoint == parent.digest
    manifest, digest = ConversionManifest.read(parent.conversion / "manifest.json")
    assert (second.converted, first.converted) == (digest, None)
    assert (manifest.source, manifest.step, str(manifest.layout)) == (parent.digest, 8, before)
    report = audit_checkpoint(run.checkpoints()[-1], project, verify=True)
    assert report.findings == ()
    assert [(each.attempt, each.last_step) for each in report.path] == [(1, 8), (2, 15)]
    assert run_line(run).state == "finished"
    assert [attempt["layout"] for attempt in run_page(run)["attempts"]] == [before, after]


@pytest.fixture(scope="module")
def cut(zygote, project, tmp_path_factory):
    """Runs by layout and options, each killed after step 10, with a checkpoint of step 8."""
    made = {}

    def run(*options):
        if options not in made:
            runs = tmp_path_factory.mktemp("cut")
            zygote.train(project, runs, *options, expect=-signal.SIGKILL, kill_after_ring={"step": 10})
            made[options] = runs
        return made[options]

    return run


@pytest.fixture
def cut_copy(cut, tmp_path):
    def copied(*options):
        return shutil.copytree(cut(*options), tmp_path / "runs")

    return copied


@pytest.mark.parametrize("after", ["1x1x1", "1x2x2"])
def test_goes_on_in_another_layout(after, cut_copy, zygote, project, reference):
    runs = cut_copy(*layout("2x2x2"))
    printed = zygote.train(project, runs, *layout(after), "--continue-changed")
    assert "the checkpoint of step 8 of layout 2x2x2 (TP x PP x DP) converted: " in printed
    assert "attempt 2 goes on from the checkpoint of step 8" in printed
    assert_gone_on(run_of(runs), project, "2x2x2", after)
    assert_close(run_of(runs), reference)


def test_without_the_option_another_layout_starts_over(cut_copy, zygote, project, reference):
    runs = cut_copy(*layout("2x2x2"))
    zygote.train(project, runs, *layout("1x1x1"))
    header = run_of(runs).attempts()[1].header
    assert (header.origin, header.parent, header.converted) == ("restart", None, None)
    assert not (run_of(runs).path / "universal").exists()
    assert_close(run_of(runs), reference)


def test_fewer_processes_go_on(zygote, project, reference, cut_copy):
    """`parallel.data: auto` takes what is there."""
    runs = cut_copy()
    zygote.train(project, runs, "--set=parallel.cpu_processes=1", "--continue-changed")
    assert_gone_on(run_of(runs), project, "1x1x2", "1x1x1")
    assert_close(run_of(runs), reference)


def test_a_run_starts_from_another_layout(zygote, project, reference, tmp_path):
    """Where a new run starts from another one's checkpoint, its layout is its own."""
    shutil.copytree(reference.path, tmp_path / reference.path.name)
    start = (f"--set=start_from.run='{reference.id}'", "--set=start_from.step=8", "--set=start_from.schedule=continue")
    zygote.train(project, tmp_path, "--no-publish", *start, *layout("1x2x1"))
    (run,) = (each for each in find_runs(tmp_path) if each.id != reference.id)
    header = run.attempts()[0].header
    assert (header.origin, header.changed, header.parent.step) == ("start", (), 8)
    conversion = tmp_path / reference.path.name / "universal" / "step-00000008" / "manifest.json"
    assert header.converted == ConversionManifest.read(conversion)[1]
    assert audit_checkpoint(run.checkpoints()[-1], project, verify=True).findings == ()
    assert_close(run, reference)


def test_another_micro_batch_needs_no_conversion(zygote, project, reference, cut_copy):
    runs = cut_copy()
    zygote.train(project, runs, "--set=parallel.micro_batch_size=1", "--continue-changed")
    header = run_of(runs).attempts()[1].header
    assert (header.origin, header.parent.step, header.converted) == ("resume", 8, None)
    assert not (run_of(runs).path / "universal").exists()
    assert_close(run_of(runs), reference)


@pytest.mark.parametrize(
    ("options", "begins", "goes_on", "tolerance"),
    [
        (("--set=model.tied_embeddings=false",), "2x1x1", "1x2x1", TOLERANCE),
        (("--set=precision=bf16",), "2x1x1", "1x2x1", 5e-3),
        (("--set=model.num_layers=4",), "1x2x1 dualpipev", "1x2x1", TOLERANCE),
        (("--set=model.num_layers=4",), "2x1x1", "1x2x1 dualpipev", TOLERANCE),
    ],
    ids=["untied", "bf16", "from DualPipeV", "to DualPipeV"],
)
def test_other_models_go_on(  # noqa: PLR0917 - four are the case
    options, begins, goes_on, tolerance, cut_copy, zygote, project, tmp_path
):
    runs = cut_copy(*options, *layout(begins))
    zygote.train(project, runs, *options, *layout(goes_on), "--continue-changed")
    zygote.train(project, tmp_path / "whole", *options, *layout("1x1x1"))
    assert_gone_on(run_of(runs), project, begins, goes_on)
    assert_close(run_of(runs), run_of(tmp_path / "whole"), tolerance)


@pytest.fixture
def converted(cut_copy):
    """A run of 2x2x2 whose checkpoint of step 8 is converted, and the checkpoint."""
    runs = cut_copy(*layout("2x2x2"))
    source = run_of(runs).checkpoints()[-1]
    assert source.step == 8
    assert convert.main([str(source.path)]) == 0
    return runs, source


def test_convert_twice_makes_it_once(converted, capsys):
    _runs, source = converted
    capsys.readouterr()
    written = (source.conversion / "manifest.json").stat().st_mtime_ns
    assert convert.main([str(source.path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["made"], document["replaced"], document["step"]) == (False, "", 8)
    assert document["source"] == source.digest
    assert document["digest"] == ConversionManifest.read(source.conversion / "manifest.json")[1]
    assert document["bytes"] == sum(
        file.stat().st_size for file in source.conversion.rglob("*") if file.is_file() and file.name != "manifest.json"
    )
    assert convert.main([str(source.run.path)]) == 0
    assert "is converted already, every file holds" in capsys.readouterr().out
    assert (source.conversion / "manifest.json").stat().st_mtime_ns == written


def test_whole_tensors_are_those_of_the_checkpoint(converted):
    _runs, source = converted
    weights = read_weights(source.path)
    for name, tensor in weights.items():
        layer, parameter = name.split(".", 1)
        folder = "tied_modules.embed.word.weight" if parameter == "word.weight" else f"{layer}.{parameter}"
        whole = open_state(source.conversion / "state/zero" / folder / "fp32.pt")["param"]
        assert torch.equal(whole, tensor), name


def test_a_conversion_that_is_there_is_taken(converted, zygote, project, reference):
    runs, _source = converted
    printed = zygote.train(project, runs, *layout("1x1x1"), "--continue-changed")
    assert "is converted already, every file holds" in printed
    assert_gone_on(run_of(runs), project, "2x2x2", "1x1x1")
    assert_close(run_of(runs), reference)


def test_the_list_shows_what_is_converted_and_why_it_stays(converted, monkeypatch):
    runs, source = converted
    monkeypatch.chdir(runs.parent)  # a project's folder, as far as this command looks
    shown = CliRunner().invoke(app, ["checkpoint", "list", source.run.id[:6], "--json"], catch_exceptions=False)
    listed = json.loads(shown.stdout)
    assert [(each["step"], each["layout"], each["kept_by"], each["problem"]) for each in listed] == [
        (4, "2x2x2", ["all"], ""),
        (8, "2x2x2", ["all"], ""),
    ]
    digest = ConversionManifest.read(source.conversion / "manifest.json")[1]
    assert [each["converted"] for each in listed] == [None, digest]
    assert listed[1]["bytes"] == sum(file.size for file in source.manifest.files)
    measured = [ring.validation_loss for ring in source.run.path_rings(source) if ring.validation]
    assert [each["validation_loss"] for each in listed] == measured
    (source.path / "manifest.json").write_text("{}")
    people = CliRunner().invoke(app, ["checkpoint", "list", str(source.run.path)], env={"COLUMNS": "200"})
    assert people.exit_code == 0
    assert "2x2x2" in people.stdout
    assert "missing or no digested document" in people.stdout


@pytest.mark.parametrize("damage", ["a file", "the manifest", "another source"])
def test_a_damaged_conversion_is_made_again(damage, converted, capsys):
    _runs, source = converted
    before = ConversionManifest.read(source.conversion / "manifest.json")[0]
    if damage == "a file":
        victim = source.conversion / "state/zero/1.position/exp_avg.pt"
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    elif damage == "the manifest":
        (source.conversion / "manifest.json").write_text("{}")
    else:
        before.model_copy(update={"source": before.run}).write(source.conversion / "manifest.json")
    capsys.readouterr()
    assert convert.main([str(source.path)]) == 0
    assert "made again, since " in capsys.readouterr().out
    after = ConversionManifest.read(source.conversion / "manifest.json")[0]
    assert after.source == source.digest
    assert {file.path for file in after.files} == {file.path for file in before.files}
    checkpoint.check_files(source.conversion, after.files)


def test_a_kill_in_a_conversion_leaves_nothing_that_looks_whole(cut_copy, zygote, project, reference):
    runs = cut_copy(*layout("2x2x2"))
    another = (*layout("1x1x1"), "--continue-changed")
    zygote.train(project, runs, *another, expect=-signal.SIGKILL, kill_in_conversion={})
    folder = run_of(runs).path / "universal"
    assert [path.name for path in folder.glob("*-*")] == [".converting-step-00000008"]
    assert len(run_of(runs).attempts()) == 1
    zygote.train(project, runs, *another)
    assert [path.name for path in folder.glob("*-*")] == ["step-00000008"]
    assert_gone_on(run_of(runs), project, "2x2x2", "1x1x1")
    assert_close(run_of(runs), reference)


def test_the_next_start_cleans_up_a_half_done_conversion(cut_copy, zygote, project):
    runs = cut_copy()
    half = run_of(runs).path / "universal" / ".converting-step-00000008"
    (half / "state").mkdir(parents=True)
    zygote.train(project, runs)
    assert not half.exists()
    assert run_of(runs).attempts()[1].header.parent.step == 8


def test_workers_of_a_killed_conversion_end(cut_copy, zygote, project):
    runs = cut_copy(*layout("2x2x2"))
    training = zygote.start(project, runs, *layout("1x1x1"), "--continue-changed", slow_conversion={"seconds": 3600})
    launcher = psutil.Process(training.pid)
    assert eventually(launcher.children)
    workers = launcher.children()
    os.kill(training.pid, signal.SIGKILL)
    assert training.wait() == -signal.SIGKILL
    assert eventually(lambda: not any(each.is_running() and each.status() != "zombie" for each in workers))


def test_a_conversion_that_does_not_fit_leaves_everything_as_it_was(cut_copy, zygote, project):
    runs = cut_copy(*layout("2x2x2"))
    printed = zygote.train(project, runs, *layout("1x1x1"), "--continue-changed", expect=5, limit_conversion={})
    assert "step-00000008: not converted: " in printed
    assert "bytes were free in " in printed
    run = run_of(runs)
    assert [path.name for path in (run.path / "universal").iterdir()] == [".lock"]
    assert [each.step for each in run.checkpoints()] == [4, 8]
    assert len(run.attempts()) == 1


def write_without_info(source):
    """The checkpoint as it would have been saved before checkpoints could be converted."""
    for path in (source.path / "state").glob("mp_rank_*.pt"):
        state = open_state(path)
        del state["universal_checkpoint_info"]
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
    manifest = CheckpointManifest.read(source.path / "manifest.json")[0]
    files = tuple(checkpoint.record_file(source.path / file.path, source.path) for file in manifest.files)
    manifest.model_copy(update={"files": files}).write(source.path / "manifest.json")


def test_a_checkpoint_from_before_is_refused(cut_copy, zygote, project, reference, capsys):
    runs = cut_copy()
    source = run_of(runs).checkpoints()[-1]
    write_without_info(source)
    assert convert.main([str(source.path)]) == 2
    expected = "saved before checkpoints could be converted"
    assert expected in capsys.readouterr().err
    printed = zygote.train(project, runs, "--set=parallel.data=1", "--continue-changed", expect=2)
    assert expected in printed
    assert [each.step for each in run_of(runs).checkpoints()] == [4, 8]
    zygote.train(project, runs)
    assert numbers(rings(run_of(runs))) == numbers(rings(reference))


def test_convert_says_what_is_wrong(cut_copy, project, reference, capsys, monkeypatch, tmp_path):  # noqa: PLR0917
    runs = cut_copy(*layout("2x2x2"))
    run = run_of(runs)

    def refused(path, code):
        assert convert.main([str(path)]) == code
        return capsys.readouterr().err

    assert "no checkpoint there" in refused(tmp_path, 2)
    damaged = run.checkpoints()[-1]
    next(damaged.path.rglob("layer_00*")).write_bytes(b"")
    assert "0 bytes, expected " in refused(damaged.path, 3)
    aside = cleanup.set_aside(run, run.checkpoints()[0], 1)
    assert "was set aside and is not used any more" in refused(aside, 2)
    monkeypatch.chdir(project.root)
    assert reference.checkpoints()[-1].step == 15
    assert "is the published copy" in refused(project.published, 2)
    assert not (project.published / "universal").exists()
    assert not (run.path / "universal").exists()


def test_a_conversion_goes_with_its_checkpoint(converted, zygote, project):
    runs, source = converted
    zygote.train(project, runs, *layout("1x1x1"), "--continue-changed", "--set=checkpoint.keep_last=1")
    assert [each.step for each in run_of(runs).checkpoints()] == [15]
    assert [path.name for path in (source.run.path / "universal").iterdir()] == [".lock"]
    assert audit_checkpoint(run_of(runs).checkpoints()[-1], project, verify=True).findings == ()
