"""A run in a line: state with its reason and step, work at risk, pace, curve; and which run needs attention first."""

import json
import math
import os
from dataclasses import replace

import pytest
import run_records
from audited_project import cut_checkpoint, lay_project

from treering.cli.numbers import plain_numbers
from treering.metrics.lines.attention import LEVELS, OLD_S, level_of, neediest_first
from treering.metrics.lines.curve import POINTS, bars, curve_of
from treering.metrics.lines.line import STATES, RunLine
from treering.metrics.lines.read import run_line
from treering.metrics.lines.settings import set_apart, settings_of
from treering.record.start import start
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs, run_is_archived
from treering.runlog.incidents import Incident, append_incident
from treering.runlog.journal import Archived, Noted, Tagged
from treering.runlog.lock import acquire
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.records import AttemptEnd
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter

AT = 1_000_000.0


@pytest.fixture
def lay(tmp_path, request):
    """Lays a third attempt from the root: a step a second, losses and gradient norms as said; `held`: it runs."""
    lay_project(tmp_path)
    (run,) = find_runs(tmp_path / "runs")

    def lay(steps, *, losses=None, norms=None, held=False, status=None, saved=(), first=1, parent=None) -> RunDirectory:
        folder = run.path / "attempts" / "0003"
        folder.mkdir(exist_ok=True)
        header = run_records.header(run.resolved, 3, started_at=AT, parent=parent)
        digest = header.write(folder / "header.json")
        for checkpoint in run.checkpoints():
            checkpoint.path.rename(run.path / checkpoint.path.name)
        with RingWriter(folder / "rings.jsonl", Ring, digest) as writer:
            for step in range(first, steps + 1):
                changed = {
                    "loss": (losses or {}).get(step, 3.0 + math.sin(step) / 100),
                    "grad_norm": (norms or {}).get(step, 1.0 + math.sin(step) / 20),
                    "time_s": {"step": 0.8, "validation": 0.2},
                    "ended_at": AT + step,
                }
                ring = writer.append(**run_records.ring_values(step, (16 * step - 16, 16 * step), 16, **changed))
                if step in saved:
                    cut_checkpoint(run, 3, ring)
        if status:
            AttemptEnd(status=status, reason="the disk is full", step=steps, ended_at=AT).write(folder / "end.json")
        if held:
            lock = acquire(run.lock)
            request.addfinalizer(lambda: os.close(lock))
        return RunDirectory(run.path)

    return lay


def test_a_run_whose_gradient_norm_left_its_band_is_diverging_before_its_loss_is(lay):
    run = lay(100, norms=dict.fromkeys(range(90, 101), 5.0), held=True)
    line = run_line(run, now=AT + 101)
    assert (line.state, line.reason_step, line.level.name) == ("diverging", 90, "diverging")
    assert line.reason == (
        "gradient norm left its band at step 90 (5, usually 1); 11 of the newest 16 steps are outside; the loss has "
        "not left its own yet"
    )
    assert line.alarms == {"spike": 11}


def test_a_spike_of_a_few_steps_is_an_alarm_and_no_divergence(lay):
    norms = dict.fromkeys(range(90, 97), 5.0)
    line = run_line(lay(100, norms=norms, held=True, saved=(90,)), now=AT + 101)
    assert (line.state, line.level.name, line.reason_step) == ("running", "alarmed", 96)
    assert line.reason == "spike of the gradient norm at step 96: 5, usually 1"


def test_a_loss_that_rose_is_diverging_with_its_lowest_level(lay):
    losses = {step: (3.0 + math.sin(step) / 7) * 1.0009 ** max(0, step - 99) for step in range(1, 361)}
    line = run_line(lay(360, losses=losses, held=True), now=AT + 361)
    assert (line.state, line.alarms) == ("diverging", {"divergence": 1})
    level = 3.0 * 1.0009 ** (360 - 99 - 31.5)
    words = line.reason.partition(" of step ")[0].split()
    assert words[:6] == ["loss", "rose", "to", "a", "level", "of"]
    assert float(words[6].rstrip(",")) == pytest.approx(level, rel=0.01)
    assert float(words[7]) == pytest.approx(100 * (level / 3 - 1), abs=2)
    assert line.reason.endswith(f"; alarm divergence at step {line.reason_step}")


def test_a_run_that_never_left_a_uniform_guess_downwards_is_diverging(lay):
    run = lay(40, losses={step: 4.0 if step < 5 else 9.0 for step in range(1, 41)}, held=True)
    guess = math.log(run.resolved.recipe.model.padded_vocab_size)
    line = run_line(run, now=AT + 41)
    assert (line.state, line.reason_step) == ("diverging", 16)
    above = 100 * (9.0 / guess - 1)
    assert line.reason == (
        f"loss rose to a level of 9, {above:,.0f} % above {guess:.3g}, a uniform guess; alarm divergence at step 16"
    )


def test_a_loss_that_is_not_finite_is_diverging_at_once(lay):
    line = run_line(lay(60, losses={59: math.nan, 60: math.nan}, held=True), now=AT + 61)
    assert (line.state, line.reason_step) == ("diverging", 59)
    assert line.reason == "the loss is not finite since step 59, and the weights moved"
    values = json.loads(json.dumps(plain_numbers(line.to_json()), allow_nan=False))
    assert (values["loss"], values["attention"]) == ("NaN", "diverging")


def test_a_stalled_run_names_the_step_and_has_no_time_to_go(lay):
    line = run_line(lay(8, held=True), now=AT + 108)
    assert (line.state, line.reason_step, line.remaining_s) == ("stalled", 8, None)
    assert line.reason == line.stall
    assert line.reason.startswith("no step for 100 s after step 8")


def test_a_broken_run_says_what_is_lost(lay):
    line = run_line(lay(40, saved=(30,)), now=AT + 60)
    assert (line.state, line.reason_step, line.level.name) == ("broken", 40, "broken")
    assert line.reason == "its processes died after step 40 without a record of it; 10 steps are trained again"
    assert (line.checkpoint_step, line.at_risk_steps, line.at_risk_s) == (30, 10, pytest.approx(8))
    assert level_of(replace(line, now=AT + 41 + OLD_S)).name == "ended long ago"


def test_a_failed_run_has_the_words_of_its_end_and_what_came_before(lay):
    norms = dict.fromkeys(range(90, 101), 5.0)
    line = run_line(lay(100, norms=norms, status="failed"), now=AT + 101)
    assert (line.state, line.reason_step) == ("failed", 90)
    assert line.reason.startswith(
        "failed after step 100: the disk is full; it was diverging: gradient norm left its band"
    )


def test_work_at_risk_is_named_where_a_save_was_missed(lay):
    line = run_line(lay(46, saved=(15,), held=True), now=AT + 47)
    assert (line.state, line.level.name, line.at_risk_steps, line.checkpoint_every) == ("running", "at risk", 31, 15)
    assert line.reason == ("no checkpoint since step 15, one is due every 15 steps: a crash now costs 31 steps")


def test_pace_gives_the_time_to_go_with_its_share_of_validations(lay):
    line = run_line(lay(4, held=True), now=AT + 5)
    samples = line.train_tokens / 16 - 4 * 16
    assert line.remaining_s == pytest.approx(samples * 0.8 / 16 * 1.25)
    assert (line.state, line.progress) == ("running", 4 * 16 * 16 / line.train_tokens)
    assert (line.devices, line.device, line.mfu) == (2, "CPU", None)


def test_a_finished_run_needs_nothing(lay):
    run = lay(10, saved=(10,), status="finished")
    run.journal.append(Noted(at=1.0, by="ada", text="it learned"))
    run.journal.append(Tagged(at=2.0, by="ada", added=("keep",)))
    append_incident(run.path / "attempts/0003", Incident(step=3, kind="contact_lost", text="rank 1", at=3.0))
    line = run_line(run, now=AT + 20)
    assert (line.state, line.reason, line.level.name, line.at_risk_steps) == ("finished", "", "finished", 0)
    assert (line.tags, line.notes[0].text, line.incidents, line.archived) == (("keep",), "it learned", 1, False)
    assert line.age_s == 10
    run.journal.append(Archived(at=4.0, by="ada", archived=True))
    assert run_line(run).archived
    assert run_is_archived(run)


def test_a_damaged_run_shows_the_steps_before_the_fault(lay):
    run = lay(40, status="finished")
    rings = run.path / "attempts/0003/rings.jsonl"
    lines = rings.read_text().splitlines(keepends=True)
    lines[19] = lines[19].replace('"applied":true', '"applied":false')
    rings.write_text("".join(lines))
    line = run_line(run, now=AT + 41)
    assert (line.state, line.step, line.reason_step) == ("damaged", 19, 20)
    assert "line 20" in line.reason


def test_a_recorded_run_is_judged_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = start("loop")
    for step in range(1, 61):
        run.step(loss=2.0 + math.sin(step) / 100, grad_norm=9.0 if step > 50 else 1.0 + math.sin(step) / 20)
    line = run_line(RecordedRunDirectory(run.path))
    assert (line.state, line.reason_step, line.recorded, line.num_steps) == ("diverging", 51, True, None)
    run.finish()
    line = run_line(RecordedRunDirectory(run.path))
    assert (line.state, line.reason, line.grad_norm) == ("finished", "", 9.0)


def line_of(name, state="running", **values):
    return RunLine(name, name, AT, state=state, ended_at=AT - 10, **values)


def test_the_run_that_needs_attention_comes_first_by_cost():
    lines = [
        line_of("finished", "finished"),
        line_of("running"),
        line_of("archived", "stalled", archived=True),
        line_of("old", "broken"),
        line_of("risk", step=100, at_risk_steps=21, checkpoint_every=10),
        line_of("alarmed", step=100, last_alarm_step=1),
        line_of("calm", step=100, last_alarm_step=0),
        line_of("interrupted", "interrupted"),
        line_of("failed", "failed"),
        line_of("broken", "broken"),
        line_of("diverging", "diverging"),
        line_of("stalled", "stalled"),
        line_of("damaged", "damaged"),
        line_of("empty", "empty"),
    ]
    lines[3] = replace(lines[3], ended_at=AT - OLD_S)
    assert [line.folder for line in neediest_first(lines)] == [
        "stalled", "diverging", "broken", "failed", "damaged", "interrupted", "risk", "alarmed", "calm", "running",
        "old", "empty", "finished", "archived",
    ]  # fmt: skip
    assert len({level.name for level in LEVELS}) == len(LEVELS)
    assert all(level_of(line_of(state, state)) in LEVELS for state in STATES)


def test_a_curve_has_the_largest_loss_of_each_stretch():
    losses = [float(each) for each in range(100, 0, -1)]
    losses[50] = 500.0
    curve = curve_of(losses)
    assert (len(curve), curve[0], max(curve)) == (POINTS, 100.0, 500.0)
    assert curve_of([1.0, math.nan, 3.0])[::2] == (1.0, 3.0)
    assert math.isnan(curve_of([math.inf])[0])
    assert curve_of([]) == ()
    assert bars((4.0, math.nan, 2.0, 1.0)) == "█·▃▁"
    assert bars((2.0, 2.0)) == "▁▁"
    assert bars(()) == ""
    assert len(bars(curve, 10)) == 10


def test_what_was_set_names_the_values_that_differ_in_short(lay):
    run = lay(1)
    settings = settings_of(run)
    assert settings["model.num_layers"] == 2
    assert settings["blend.components.red.weight"] == "0.5"
    other = {**settings, "model.num_layers": 4, "optimizer.peak_learning_rate": 3e-4}
    assert set_apart([settings, other, {}]) == [
        "num_layers=2 peak_learning_rate=0.001", "num_layers=4 peak_learning_rate=0.0003", ""
    ]  # fmt: skip
    assert set_apart([settings, settings]) == ["", ""]
    seeds = [{"seed": seed, "blend.seed": seed} for seed in (1, 2)]
    assert set_apart(seeds) == ["seed=1 blend.seed=1", "seed=2 blend.seed=2"]
    many = {f"a.{each}": each for each in range(7)}
    assert set_apart([many, dict.fromkeys(many, 9)])[0] == "0=0 1=1 2=2 3=3 and 3 more"
    assert set_apart([{"a.x": 1, "b.x": 2}, {"a.x": 3, "b.x": 4}])[0] == "a.x=1 b.x=2"
