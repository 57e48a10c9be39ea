"""The Run page: state, incidents, damaged evidence, facts, on what reaches the browser."""

import os
import shutil

import pytest
from damaged_run import befall, edit_ring
from dashboard_charts import boards, panel
from dashboard_page import metrics, page, table, texts

from treering.runlog.directory import RunDirectory
from treering.runlog.lock import acquire
from treering_dashboard.frames import cached


@pytest.mark.slow
def test_a_finished_run_shows_its_numbers(lay_run) -> None:
    run = RunDirectory(lay_run())
    last = list(run.path_rings())[-1]
    app = page("run", run=run.path.name)
    shown = metrics(app)
    assert shown["Loss"] == f"{last.loss:.2f}"
    assert shown["Work at risk"] == "0 s"
    assert shown["Progress"] == "100 %"
    assert shown["Last step"].endswith(" ago")
    assert ":material/check_circle: finished" in texts(app)
    ((head, panels),) = boards(app)
    assert [group["title"] for group in head["groups"]] == ["Training health", "Evaluation over training", "Throughput"]
    firsts = [panels[group["panels"][0]].title for group in head["groups"]]
    assert firsts == ["Loss", "cloze: acc", "Tokens per second"]
    assert "3.40 M parameters: 4 layers, hidden 192, 6 heads, fp32  ·  blend pubmed 0.5, factbook 0.3" in texts(app)
    assert "in 306 steps, batch 4 to 16, learning rate to 0.00100  ·  seed 1" in texts(app)


def test_pages_hold_the_scores_of_every_checkpoint_and_the_items_of_the_newest_alone(lay_run) -> None:
    run = RunDirectory(lay_run())
    records = run.evaluations()
    by_item = {"cloze": {"0": {"acc": {"item": 1.0}}}}
    records[-1].model_copy(update={"items": by_item}).write(run.evaluation_files()[-1])
    found, problem = cached.evaluations(run)
    assert problem is None
    assert [(each.step, each.scores, each.items) for each in found] == [
        (each.step, each.scores, None) for each in records
    ]
    newest, _ = cached.newest_evaluation(run)
    assert newest is not None
    assert newest.items == by_item
    run.evaluation_files()[-1].write_text("{}")
    assert cached.evaluations(run)[0] == []
    assert str(run.evaluation_files()[-1]) in str(cached.newest_evaluation(run)[1])


@pytest.mark.slow
def test_incidents_are_a_table_and_marks(lay_run) -> None:
    run = lay_run(restart_after=100, lost_steps=17)
    befall(run, 50, "checkpoint_failed", "rank 0: No space left on device")
    befall(run, 117, "rank_killed", "rank 1 (process 7) was killed by SIGKILL", rank=1, host="node-9")
    rings = list(RunDirectory(run).path_rings())
    app = page("run", run=run.name)
    table = next(frame.value for frame in app.dataframe if "In its words" in frame.value)
    assert table.to_dict("records") == [
        {
            "Step": "117",
            "Attempt": "1",
            "What": "a rank was killed",
            "Node": "node-9",
            "In its words": "rank 1 (process 7) was killed by SIGKILL",
        },
        {
            "Step": "50",
            "Attempt": "1",
            "What": "no checkpoint, training goes on",
            "Node": "\u2013",
            "In its words": "rank 0: No space left on device",
        },
    ]
    ((head, _),) = boards(app)
    assert [x for x, _ in head["incidents"]] == [rings[49].consumed_tokens, rings[116].consumed_tokens]
    assert head["incidents"][1][1] == "a rank was killed after step 117: rank 1 (process 7) was killed by SIGKILL"
    ((head, _),) = boards(page("run", run=run.name, steps="last 100"))
    assert head["incidents"] == []


@pytest.mark.slow
def test_a_damaged_incident_is_named(lay_run) -> None:
    run = lay_run()
    (run / "attempts" / "0001" / "incidents.jsonl").write_text('{"step":1}\n')
    app = page("run", run=run.name)
    assert "incidents.jsonl line 1: not an incident" in texts(app)
    panel(app, "Loss")


def test_a_running_run_looks_again(lay_run) -> None:
    run = RunDirectory(lay_run(stop_at=120, status=None, ended_ago_s=5))
    held = acquire(run.lock)
    try:
        app = page("run", run=run.path.name)
    finally:
        os.close(held)
    assert ":material/play_circle: running" in texts(app)
    assert metrics(app)["Work at risk"].endswith(" s")
    assert "20 steps" in [metric.proto.delta_description for metric in app.metric]


def test_a_broken_run_says_how_to_go_on(lay_run) -> None:
    app = page("run", run=lay_run(stop_at=120, status=None).name)
    assert "broken" in texts(app)
    assert "goes on from the newest checkpoint" in texts(app)


@pytest.mark.slow
@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_run_that_ended_early_gives_its_reason(lay_run, status) -> None:
    app = page("run", run=lay_run(stop_at=120, status=status).name)
    assert f"{status} by the test" in texts(app)
    assert ("goes on from its newest checkpoint" in texts(app)) == (status == "interrupted")


def test_an_empty_run_says_what_to_do(lay_run) -> None:
    run = lay_run()
    for part in ("attempts", "checkpoints", "evaluations"):
        shutil.rmtree(run / part)
    app = page("run", run=run.name)
    assert "No step yet" in texts(app)
    assert boards(app) == []


@pytest.mark.slow
def test_damaged_evidence_is_named_and_what_stands_before_it_is_drawn(lay_run) -> None:
    run = lay_run()
    edit_ring(run, 150)
    app = page("run", run=run.name)
    assert "evidence damaged" in texts(app)
    assert "rings.jsonl line 150: ring of step 150" in texts(app)
    assert panel(app, "Loss").lines[0]["step"].max() == 149


def test_a_missing_header_is_a_state_and_no_crash(lay_run) -> None:
    run = lay_run()
    (run / "attempts" / "0001" / "header.json").unlink()
    app = page("run", run=run.name)
    assert "there is no header.json beside it" in texts(app)


def test_a_damaged_evaluation_leaves_the_curves(lay_run) -> None:
    run = lay_run()
    path = run / "evaluations" / "step-00000200.json"
    path.write_text(path.read_text().replace("lm-eval", "lm-evil"))
    app = page("run", run=run.name)
    assert "step-00000200.json" in texts(app)
    panel(app, "Loss")


@pytest.mark.slow
def test_a_run_without_evaluation_names_the_command(lay_run) -> None:
    run = lay_run()
    shutil.rmtree(run / "evaluations")
    app = page("run", run=run.name)
    assert f"treering evaluate --run {run.name[:8]}" in texts(app)


@pytest.mark.slow
def test_kernels_and_layout_are_facts_of_the_newest_attempt(lay_run) -> None:
    app = page("run", run=lay_run(restart_after=100).name)
    kernels = next(frame.value for frame in app.dataframe if "Kernel" in frame.value)
    assert kernels.iloc[0].tolist() == ["attention", "sdpa_auto", "sdpa_math", "no fused kernel on CPU"]
    assert kernels.iloc[1].tolist()[:3] == ["optimizer", "torch_fused", "as asked"]
    facts = next(frame.value for frame in app.dataframe if "of the newest attempt" in frame.value)
    assert "TP 1 x PP 1 x DP 2" in facts["of the newest attempt"].tolist()
    assert "2 (resume) on node-17" in facts["of the newest attempt"].tolist()
    assert "megatron-2023" in facts["of the newest attempt"].tolist()


def test_foreign_text_is_never_read_as_markdown(lay_run) -> None:
    run = lay_run(status="failed", stop_at=50, reason="**bold** <script>alert(1)</script> [x](http://x)")
    app = page("run", run=run.name)
    assert any("<script>" in element.value for element in app.text)
    assert not any("<script>" in element.value for element in (*app.markdown, *app.caption))


@pytest.mark.slow
def test_a_change_on_disk_is_seen_although_readers_are_cached(lay_run) -> None:
    run = lay_run(stop_at=50, status=None)

    def last_step() -> int:
        return panel(page("run", run=run.name), "Loss").lines[0]["step"].max()

    assert last_step() == 50
    edit_ring(run, 40)
    assert last_step() == 39


def test_the_newest_scores_have_the_versions_of_their_tasks_and_the_digests_of_the_prompts(lay_run) -> None:
    run = RunDirectory(lay_run(steps=100))
    rows = table(page("run"), "Prompts").set_index(["Task", "Shots"])
    evaluation = run.evaluations()[-1]
    assert len(rows) == sum(len(by_shots) for by_shots in evaluation.scores.values())
    assert rows.loc[("cloze", "4"), "Prompts"] == evaluation.definitions["cloze"].prompts["4"]
    assert set(rows["Version"]) == {"2.0"}
    assert set(rows["Harness"]) == {"lm-eval 0.4.13"}
    assert "Run" not in rows
