"""The query of the page Runs in a real Chromium: typed, kept in the address, refused, and on a phone."""

import os
import re

import pytest
from playwright.sync_api import expect

from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.lock import acquire
from treering_dashboard.picture import CHROMIUM_NAMES, chromium, find_chromium, serve

CHROMIUM = find_chromium()

_HEADER, _ROW = 34, 32  # pixels of the table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium on PATH (looked for {', '.join(CHROMIUM_NAMES)})"),
]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_a_typed_query_filters_and_is_in_the_address(lay_run, tmp_path, width, scheme) -> None:
    lay_run(seed=1)
    lay_run(seed=2, status="interrupted", stop_at=240)
    with serve(Project(tmp_path)) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.goto(address)
        page.get_by_text("2 runs, none running; 1 interrupted").wait_for()
        box = page.get_by_role("textbox", name="Query")
        box.fill("seed>1 state:interrupted")
        box.press("Enter")
        page.get_by_text("1 run of 2, none running").wait_for()
        page.wait_for_url(re.compile(r"q=seed%3E1[+%20]+state%3Ainterrupted"))
        page.reload()
        page.get_by_text("1 run of 2, none running").wait_for()
        expect(box).to_have_value("seed>1 state:interrupted")
        expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible()
        box.fill("modl.x>2")
        box.press("Enter")
        page.get_by_text("The query does not say what to list.").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_click_on_why_opens_the_run_at_the_step(lay_run, tmp_path, request) -> None:
    """The unwell run is in the first row, its reason above the table, and a click on the reason leads to the step."""
    lay_run(seed=1)
    stalled = RunDirectory(lay_run(seed=2, stop_at=120, status=None, ended_ago_s=500))
    held = acquire(stalled.lock)
    request.addfinalizer(lambda: os.close(held))
    with serve(Project(tmp_path)) as address, chromium(CHROMIUM) as browser:
        phone = browser.new_page(viewport={"width": 390, "height": 844})
        phone.goto(address)
        phone.get_by_text(f"{stalled.path.name[:8]} demo, stalled: no step for").wait_for()
        canvas = phone.locator("[data-testid=stDataFrame] canvas").first
        canvas.wait_for()
        box = canvas.bounding_box()
        assert box["y"] + _HEADER + 2 * _ROW < 844, "state and loss are above the fold"
        titles = phone.locator("[data-testid=stDataFrame] [role=columnheader]")
        titles.first.wait_for(state="attached")
        assert [name for name in titles.all_inner_texts() if name.strip()][:3] == ["State", "Loss", "Run"]

        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address)
        canvas = page.locator("[data-testid=stDataFrame] canvas").first
        canvas.wait_for()
        page.get_by_text("2 runs, 1 running; 1 stalled").wait_for()
        box = canvas.bounding_box()
        page.mouse.click(box["x"] + 500, box["y"] + _HEADER + _ROW / 2)
        page.wait_for_url(
            re.compile(rf"/run\?.*run={stalled.path.name}.*at=120|/run\?.*at=120.*run={stalled.path.name}")
        )
        page.get_by_text("after step 120, expected one within").first.wait_for()
