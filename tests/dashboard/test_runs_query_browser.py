"""The query of the page Runs in a real Chromium: typed, kept in the address, refused, and on a phone."""

import re

import pytest
from playwright.sync_api import expect

from treering.project import Project
from treering_dashboard.picture import CHROMIUM_NAMES, chromium, find_chromium, serve

CHROMIUM = find_chromium()

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
        page.get_by_text("2 runs, none running").wait_for()
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
