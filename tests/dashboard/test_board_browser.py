"""The board in a real Chromium, by real mouse events: crosshair, zoom, brush, click, scale, live run, phone, dark."""

import os
import re
from urllib.parse import parse_qs, urlparse

import pytest

from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.lock import acquire
from treering_dashboard.picture import CHROMIUM_NAMES, chromium, find_chromium, serve, wait_until_drawn

CHROMIUM = find_chromium()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium on PATH (looked for {', '.join(CHROMIUM_NAMES)})"),
]


def over(page, title: str) -> dict[str, float]:
    """Where the curves of a panel are on the screen."""
    panel = page.locator(".board .panel").filter(has=page.get_by_text(title, exact=True)).first
    return panel.locator(".u-over").bounding_box()


def text_of(page, title: str) -> str:
    panel = page.locator(".board .panel").filter(has=page.get_by_text(title, exact=True)).first
    return panel.inner_text()


def point_at(page, title: str, share: float) -> None:
    box = over(page, title)
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


def drag(page, box: dict[str, float], first: float, last: float) -> None:
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + first * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (first + last) / 2 * box["width"], y, steps=3)
    page.mouse.move(box["x"] + last * box["width"], y, steps=3)
    page.mouse.up()


def wait_for_steps(page, fits) -> tuple[int, int]:
    """The steps in the address, once they fit."""

    def steps(url: str) -> tuple[int, int]:
        query = parse_qs(urlparse(url).query)
        return tuple(int(query.get(name, ["0"])[0]) for name in ("from", "to"))

    page.wait_for_url(lambda url: fits(*steps(url)))
    return steps(page.url)


def test_crosshair_zoom_brush_click_and_scale(lay_run, tmp_path) -> None:
    run = RunDirectory(lay_run(restart_after=100, nan_at=77))
    rings = {ring.step: ring for ring in run.path_rings()}
    faults: list[str] = []
    with serve(Project(tmp_path)) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 1100})
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{address}/run?run={run.path.name}&x=step")
        wait_until_drawn(page, panels=11)
        here = page.locator(".board .here")

        # The pointer in one panel shows the values of all panels at its step.
        point_at(page, "Gradient norm", (191 - 1) / 305)
        here.filter(has_text="step 191").wait_for()
        assert "spike at step 191" in here.inner_text()
        assert f"training {rings[191].loss:.4g}" in text_of(page, "Loss")
        assert f"{rings[191].grad_norm:.4g}" in text_of(page, "Gradient norm")
        assert "16" in text_of(page, "Batch size")
        assert f"{rings[191].tokens_per_second / 1000:.4g} k" in text_of(page, "Tokens per second")
        assert "at step 200" in text_of(page, "cloze: acc"), "a score is of its checkpoint's step"
        point_at(page, "cloze: acc", (77 - 1) / 305)
        here.filter(has_text="step 77").wait_for()
        assert "1 not drawable" in text_of(page, "Loss")

        # A drag zooms all panels; the address keeps the steps, and a reload shows the same.
        drag(page, over(page, "Loss"), (150 - 1) / 305, (250 - 1) / 305)
        first, last = wait_for_steps(page, lambda first, last: abs(first - 150) <= 2 and abs(last - 250) <= 2)
        point_at(page, "Tokens per second", 0.5)
        here.filter(has_text=re.compile("step (199|200|201)")).wait_for()
        page.reload()
        wait_until_drawn(page, panels=11)
        here.filter(has_text=f"Steps {first} to {last}").wait_for()
        point_at(page, "Loss", 0)
        here.filter(has_text=re.compile(f"step ({first}|{first + 1})")).wait_for()

        # The brush over the overview moves and sets the window; a double click and the button reset it.
        overview = page.locator(".board .overview .u-over").bounding_box()
        drag(page, overview, (200 - 1) / 305, (100 - 1) / 305)
        wait_for_steps(page, lambda low, high: 0 < low < 60 and abs(high - low - (last - first)) <= 3)
        drag(page, overview, 0.8, 0.95)
        wait_for_steps(page, lambda low, high: 235 < low < 255 and 280 < high < 300)
        page.get_by_role("button", name="Reset zoom").click()
        page.wait_for_url(lambda url: "from=" not in url)

        # A scale is named and switched; the address keeps it.
        page.get_by_role("button", name="Loss: linear scale, switch").click()
        page.wait_for_url(re.compile("log=Loss"))
        page.get_by_role("button", name="Loss: logarithmic scale, switch").wait_for()

        # A click opens the step: numbers, documents, checkpoints, the command that trains it again.
        box = over(page, "Loss")
        page.mouse.click(box["x"] + (191 - 1) / 305 * box["width"], box["y"] + 20)
        page.wait_for_url(re.compile("at=191"))
        page.get_by_text("Nearest checkpoints: step 100 (before it), step 200 (with it)").wait_for()
        page.get_by_text(f"treering reproduce runs/{run.path.name} --steps 191:191").wait_for()
        page.get_by_role("button", name="Documents of step 191").click()
        page.wait_for_url(re.compile("/batch.*step=191"))
    assert faults == []


def test_a_live_run_grows_without_fading_and_keeps_the_crosshair(lay_run, tmp_path, request) -> None:
    # Stalled from the beginning: a state that changes meanwhile moves the panels away from the pointer.
    run = RunDirectory(lay_run(stop_at=120, status=None, ended_ago_s=100))
    held = acquire(run.lock)
    request.addfinalizer(lambda: os.close(held))
    rings = run.path / "attempts" / "0001" / "rings.jsonl"
    lines = rings.read_text().splitlines(keepends=True)
    rings.write_text("".join(lines[:110]))
    with serve(Project(tmp_path)) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
        page.set_default_timeout(30_000)
        page.goto(f"{address}/run?run={run.path.name}&x=step")
        wait_until_drawn(page, panels=8)
        assert page.get_by_text(re.compile("running|stalled")).first.bounding_box()["y"] < 844, (
            "on a phone the state is above the fold"
        )
        loss = page.locator("[data-testid=stMetric]", has=page.get_by_text("Loss", exact=True)).bounding_box()
        assert loss["y"] + loss["height"] < 844
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_text("step 110 of 306").wait_for()
        page.locator(".board .panel").first.scroll_into_view_if_needed()
        point_at(page, "Loss", 0.5)
        page.locator(".board .here").filter(has_text="step 55").wait_for()
        page.evaluate(
            "(function look() {"
            "  const parts = [...document.querySelectorAll('[data-testid=stElementContainer]')];"
            "  const least = Math.min(...parts.map((part) => Number(getComputedStyle(part).opacity)));"
            "  window.least = Math.min(window.least ?? 1, least);"
            "  requestAnimationFrame(look);"
            "})()"
        )
        with rings.open("a") as file:
            file.writelines(lines[110:])
        page.get_by_text("step 120 of 306").wait_for()
        page.locator(".board .here").filter(has_text="step 60").wait_for()
        assert page.evaluate("window.least") == 1

        # Another page and back: the browser has nothing left of what it had, and gets all of it.
        page.set_viewport_size({"width": 1440, "height": 900})
        before = page.url
        page.get_by_role("link", name="Compare", exact=True).first.click()
        page.wait_for_url(re.compile(r"/compare\?.*runs="))
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
        page.go_back()
        page.locator('.board[data-last="120"]').wait_for()
        page.wait_for_url(before)
