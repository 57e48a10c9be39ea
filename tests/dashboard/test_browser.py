"""A real server and a real Chromium: numbers of a run are read from the page, and the axis stands in the address."""

import os
import re

import pytest
from audited_project import cut_checkpoint, lay_attempt, start_run

from treering.audit.documents.batch import step_batch
from treering.audit.documents.selection import Selector
from treering.audit.documents.trace import trace_documents
from treering.metrics.path_alarms import alarms_of
from treering.project import Project
from treering.runlog.ancestry import path_left
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs
from treering.runlog.lock import acquire
from treering_dashboard.panels.tables import ROW_HEIGHT
from treering_dashboard.picture import CHROMIUM_NAMES, chromium, find_chromium, serve, take_picture, wait_until_drawn

CHROMIUM = find_chromium()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium on PATH (looked for {', '.join(CHROMIUM_NAMES)})"),
]


def is_foreign(url: str, address: str) -> bool:
    """Whether a page asks another machine: the dashboard works without a network."""
    return url.startswith("http") and not url.startswith(address)


def metric(page, label: str) -> str:
    box = page.locator("[data-testid=stMetric]", has=page.get_by_text(label, exact=True))
    return box.locator("[data-testid=stMetricValue]").inner_text().strip()


def shown(page, label: str) -> str:
    """What a box shows."""
    return page.get_by_role("combobox", name=label).first.input_value()


def test_numbers_axis_and_pages_of_a_real_run(lay_run, tmp_path, request) -> None:
    run = RunDirectory(lay_run(restart_after=100))
    last = list(run.path_rings())[-1]
    alive = RunDirectory(lay_run(seed=2, stop_at=120, status=None))
    held = acquire(alive.lock)
    request.addfinalizer(lambda: os.close(held))
    faults: list[str] = []
    with serve(Project(tmp_path)) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: faults.append(asked.url) if is_foreign(asked.url, address) else None)
        page.goto(f"{address}/run?run={run.path.name}")
        wait_until_drawn(page, panels=8)

        assert metric(page, "Loss") == f"{last.loss:.2f}"
        assert metric(page, "Progress") == "100 %"
        assert page.get_by_text("finished").first.is_visible()
        assert f"training {last.loss:.2f}" in page.locator(".board .panel").first.inner_text()

        # Curves stay inside their columns, and the columns beside each other.
        boxes = [group.locator(".u-over").first.bounding_box() for group in page.locator(".board .group").all()]
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        assert boxes[1]["x"] + boxes[1]["width"] <= boxes[2]["x"]

        # A click on a checkpoint opens its audit; the newest stands first. Back once leads to the run.
        entries = page.evaluate("history.length")
        page.get_by_role("region", name="Checkpoints, newest first").click(position={"x": 40, "y": 45 + ROW_HEIGHT})
        page.wait_for_url(re.compile(r"/audit\?.*checkpoint=step-00000300"))
        page.get_by_text("recorded: 300 of 300 steps").wait_for()
        assert shown(page, "Run") == run.path.name
        assert page.evaluate("history.length") == entries + 1
        page.go_back()
        wait_until_drawn(page, panels=8)
        page.wait_for_url(re.compile(rf"/run\?run={run.path.name}"))

        page.get_by_role("radio", name="samples").click()
        page.wait_for_url(re.compile(r"x=samples"))
        assert f"run={run.path.name}" in page.url

        page.get_by_role("button", name="Documents", exact=True).click()
        page.get_by_role("menuitem", name="Audit").click()
        page.wait_for_url(re.compile(r"/audit\?"))
        wait_until_drawn(page)
        page.get_by_text("recorded: 300 of 300 steps").wait_for()
        assert f"run={run.path.name}" in page.url

        # A run under way looks again by itself.
        page.goto(f"{address}/run?run={alive.path.name}")
        wait_until_drawn(page, panels=8)
        page.get_by_text("step 120 of 306").wait_for()
        rings = alive.path / "attempts" / "0001" / "rings.jsonl"
        rings.write_text("".join(rings.read_text().splitlines(keepends=True)[:110]))
        page.get_by_text("step 110 of 306").wait_for(timeout=30_000)

        page.goto(address)
        wait_until_drawn(page)
        page.get_by_text("2 runs, 1 running").wait_for()

        # A click on a row of the table opens its run; the newest activity stands first.
        table = page.get_by_test_id("stDataFrame")
        table.wait_for()
        page.wait_for_timeout(500)
        box = table.bounding_box()
        page.mouse.click(box["x"] + 250, box["y"] + 50)
        page.wait_for_url(re.compile(rf"/run\?run={alive.path.name}"))
    assert faults == []


def test_runs_typed_as_an_address_leads_to_the_table_of_runs(lay_run, tmp_path) -> None:
    lay_run(steps=60)
    with serve(Project(tmp_path)) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(f"{address}/runs")
        page.get_by_text("1 run, none running").wait_for()
        page.wait_for_url(f"{address}/")
        assert not page.get_by_text("Page not found").is_visible()
        assert page.get_by_role("link", name="Runs", exact=True).count() == 1


def click_first_row(page, alt: str) -> None:
    """Clicks the first cell of text in a table's first row."""
    table = page.get_by_test_id("stDataFrame").filter(has=page.get_by_label(alt))
    table.wait_for()
    page.wait_for_timeout(500)
    box = table.bounding_box()
    page.mouse.click(box["x"] + 40, box["y"] + 50)


def test_from_a_spike_to_its_documents_and_what_else_read_them(audited) -> None:
    """Clicks alone lead from the run page to a batch, on to the trace of a document, and to a batch and an audit."""
    run = start_run(audited, "seed=8", "spikes.window=8", "spikes.min_points=8")
    lay_attempt(audited, run, 1, range(1, 16), step_12={"loss": 60.0})
    (spiked,) = (each.step for each in alarms_of(run, path_left(run)))
    faults: list[str] = []
    with serve(audited) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 1400})
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{address}/run?run={run.path.name}")
        wait_until_drawn(page)
        click_first_row(page, "Alarms, newest first")
        page.wait_for_url(re.compile(rf"/batch\?.*step={spiked}"))
        page.get_by_text("Step 12 and 5 steps before").wait_for()

        page.get_by_role("button", name="Batch of step 12, with its text").click()
        page.get_by_text("the corpora give the ring's batch digest").wait_for()
        assert page.get_by_label("Step", exact=True).input_value() == "12"
        first = step_batch(run, 12, audited).samples[0].documents[0]

        page.get_by_role("link", name="Trace").first.click()
        page.wait_for_url(re.compile(rf"/trace\?.*document={first.corpus}"))
        page.get_by_text("1 document;").wait_for()
        (document,) = trace_documents(audited, [Selector("document", first.document, first.corpus)]).documents
        exposure = document.exposures[0]
        click_first_row(page, "Every sample that held a part of the document")
        page.wait_for_url(re.compile(r"/batch\?"))
        page.get_by_text("the corpora give the ring's batch digest").wait_for()
        place = {"Step": exposure.step, "Replica": exposure.replica, "Micro-batch": exposure.micro_batch}
        assert {name: int(page.get_by_label(name, exact=True).input_value()) for name in place} == place
        for name, value in (("run", exposure.run), ("step", exposure.step), ("replica", exposure.replica)):
            assert f"{name}={value}" in page.url

        page.goto(f"{address}/trace?document={first.corpus}:{first.document}")
        wait_until_drawn(page)
        click_first_row(page, "What every checkpoint saw")
        page.wait_for_url(re.compile(r"/audit\?.*checkpoint=step-00000006"))
    assert faults == []


def test_a_choice_goes_along_to_another_page(audited) -> None:
    """Pages whose boxes have one name, and a page that was left as it was opened, after a single run of its script."""
    other = start_run(audited, "blend.seed=4")
    steps = range(1, other.resolved.schedule.num_steps + 1)
    cut_checkpoint(other, 1, lay_attempt(audited, other, 1, steps)[-1])
    newest, before = (run.path.name for run in reversed(find_runs(audited.runs)))
    with serve(audited) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/audit?run={before}")
        wait_until_drawn(page)
        assert shown(page, "Checkpoint") == "step-00000015"
        page.get_by_role("button", name="Documents", exact=True).click()
        page.get_by_role("menuitem", name="Differences").click()
        page.wait_for_url(re.compile("/differences"))
        page.get_by_text("differ from step 1").wait_for()
        assert shown(page, "Run") == before
        page.wait_for_url(re.compile(f"/differences.*[?&]run={before}"))
        page.get_by_role("button", name="Documents", exact=True).click()
        page.get_by_role("menuitem", name="Contamination").click()
        page.wait_for_url(re.compile(f"/contamination.*[?&]run={before}"))
        page.wait_for_url(re.compile("/contamination.*[?&]checkpoint=step-00000015"))
        page.goto(f"{address}/differences?run={before}&other_run={newest}")
        page.get_by_role("button", name="Batch of B").click()
        page.wait_for_url(re.compile("/batch"))
        page.get_by_text(f"treering batch {newest} 1").wait_for()
        assert shown(page, "Run") == newest
        page.wait_for_url(re.compile(f"/batch.*[?&]run={newest}"))
        page.goto(f"{address}/compare?runs={before}&runs={newest}")
        page.get_by_role("link", name="What only one of").click()
        page.wait_for_url(f"{address}/differences?run={before}&*&other_run={newest}&*")


HOSTILE = "**bold** <b>tag</b> $x^2$ :red[red] `code` [link](http://x.example) :material/home: :smile:"


def test_foreign_text_unknown_names_and_stalls_in_a_browser(lay_run, tmp_path, request) -> None:
    """Text is read as it is written; an address with an unknown name says so; a stall is on every page."""
    run = RunDirectory(lay_run(status="failed", stop_at=50, reason=HOSTILE, overrides=(HOSTILE,)))
    stalled = RunDirectory(lay_run(seed=2, stop_at=120, status=None, ended_ago_s=500))
    held = acquire(stalled.lock)
    request.addfinalizer(lambda: os.close(held))
    with serve(Project(tmp_path)) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/run?run={run.path.name}")
        wait_until_drawn(page)
        page.get_by_text(f"failed after step 50: {HOSTILE}", exact=True).first.wait_for()
        for markup in ("main strong", "main b", ".katex", "main a[href*='x.example']"):
            assert page.locator(markup).count() == 0, markup
        page.get_by_text(f"Run {stalled.path.name[:8]} demo: no step for").first.wait_for()

        for path, said in (
            ("run?run=zzz", "No such run"),
            (f"audit?run={stalled.path.name}&checkpoint=step-00000001", "No such checkpoint"),
            (f"batch?run={stalled.path.name}&step=-5", "No such step"),
        ):
            page.goto(f"{address}/{path}")
            page.get_by_text(said).first.wait_for()
            assert page.locator(".board").count() == 0

        page.goto(f"{address}/takedown")
        page.get_by_text(f"Run {stalled.path.name[:8]} demo: no step for").first.wait_for()
        assert "stalled" in page.locator("main").inner_text()
        page.goto(f"{address}/run?run={stalled.path.name}")
        wait_until_drawn(page)
        page.get_by_text("after step 120, expected one within").first.wait_for()
        assert page.get_by_text("to go").count() == 0


def test_the_picture_is_taken(lay_run, tmp_path) -> None:
    run = lay_run()
    out = tmp_path / "docs" / "dashboard.png"
    take_picture(Project(tmp_path), f"/run?run={run.name}", out, panels=8)
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(out.read_bytes()[16:20], "big") == 1440
