"""Every page in a real Chromium: title, place in the menu, contrast in both themes, and what a phone shows first."""

import re

import pytest
from fleet_telemetry import write_fleet

from treering.runlog.directory import RunDirectory
from treering_dashboard import links
from treering_dashboard.panels.heat_maps import RAMP
from treering_dashboard.panels.palette import INK, PALETTE, QUIET
from treering_dashboard.picture import CHROMIUM_NAMES, chromium, find_chromium, serve, wait_until_drawn

CHROMIUM = find_chromium()
PAGES = {"light": "#FFFFFF", "dark": "#0E1117"}
"""Background of the pages, see `.streamlit/config.toml`."""

SVG_TEXT = """() => [...document.querySelectorAll('svg text')].filter(text => text.textContent.trim()).map(text => {
    const style = getComputedStyle(text);
    let opacity = parseFloat(style.fillOpacity);
    for (let each = text; each && each.getAttribute; each = each.parentElement)
        opacity *= parseFloat(getComputedStyle(each).opacity);
    return [text.textContent, style.fill, opacity];
}).filter(([text, fill, opacity]) => opacity > 0.05)"""
"""Texts of charts with colour and opacity, hidden ones left out; axe does not judge them."""

FIRST = {
    "cluster": "canvas",
    "logbook": "[data-testid=stVegaLiteChart] svg",
    "data": "[data-testid=stVegaLiteChart] svg",
    "scaling": "[data-testid=stVegaLiteChart] svg",
    "audit": "text=of 15 steps",
    "differences": "text=differ",
}
"""What a page is for, which a phone must show without scrolling, by address."""


def luminance(colour: tuple[float, float, float]) -> float:
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """WCAG 2.1, relative luminances."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def rgb(colour: str) -> tuple[float, float, float]:
    if colour.startswith("#"):
        return tuple(int(colour[start : start + 2], 16) for start in (1, 3, 5))  # type: ignore[return-value]
    return tuple(map(float, re.findall(r"[\d.]+", colour)[:3]))  # type: ignore[return-value]


@pytest.mark.parametrize("theme", list(PAGES))
def test_marks_differ_from_the_page_by_3_to_1_and_text_by_4_5(theme) -> None:
    page = rgb(PAGES[theme])
    for colour in (*PALETTE[theme], *RAMP[theme]):
        assert contrast(rgb(colour), page) >= 3, colour
    for colour in (INK[theme], QUIET[theme]):
        assert contrast(rgb(colour), page) >= 4.5, colour


def test_contrast_is_that_of_wcag() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast(rgb("#777777"), rgb("#FFFFFF")) == pytest.approx(4.48, abs=0.01)


def faint(page, axe, theme: str) -> list[str]:
    """Texts with less contrast than 4.5 to 1 (3 to 1 for large ones)."""
    found = axe.run(page, context={"exclude": [["svg"]]}, options={"runOnly": ["color-contrast"]}).response
    texts = [node["html"][:120] for each in found["violations"] for node in each["nodes"]]
    behind = rgb(PAGES[theme])
    for text, fill, opacity in page.evaluate(SVG_TEXT):
        seen = tuple(opacity * part + (1 - opacity) * back for part, back in zip(rgb(fill), behind, strict=True))
        if contrast(seen, behind) < 4.5:
            texts.append(f"chart: {text} {fill} {opacity}")
    return texts


def marked(page, title: str) -> bool:
    """Whether the menu marks a page; it marks one of a section while that is open, so the heading names the section."""
    link = page.locator("[aria-current=page]")
    if link.count():
        return link.first.inner_text().strip().endswith(title)
    section = page.get_by_role("heading", name=title).first.inner_text().split(":")[0]
    return section in page.get_by_test_id("stTopNavSection").all_inner_texts()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium on PATH (looked for {', '.join(CHROMIUM_NAMES)})")
def test_every_page_has_title_place_contrast_and_fits_a_phone(audited, lay_run) -> None:
    from axe_playwright_python.sync_playwright import Axe

    fleet = RunDirectory(lay_run(stop_at=110, ranks=2240, step_s=2.4))
    ended_at = [ring.ended_at for ring in fleet.path_rings()]
    write_fleet(fleet.attempts()[0].telemetry.path, [at + 0.01 for at in ended_at[-20:]], nodes=280, slow=1234)
    fleet.path.rename(audited.runs / fleet.path.name)
    (own,) = (path.name for path in audited.runs.iterdir() if path.name != fleet.path.name)
    queries = {"cluster": f"run={fleet.path.name}", "scaling": "", "": "", "trace": "", "takedown": "", "megatron": ""}
    axe, faults = Axe(), []
    every = [each for each in vars(links).values() if isinstance(each, links.Address) and not each.hidden]
    with serve(audited) as address, chromium(CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        for each in every:
            path = "" if each.first else each.path
            if each is links.SEARCH:  # in the menu where there is a ledger
                continue
            page.goto(f"{address}/{path}?{queries.get(path, f'run={own}')}")
            page.get_by_role("heading", name=re.compile(rf"^(\w+: )?{each.title}$")).first.wait_for()
            wait_until_drawn(page)
            assert page.title() == f"{each.title} · Treering"
            assert marked(page, each.title), path
            if path == "cluster":
                page.get_by_text("Rank 1234 (dgx154 device 2) computes").wait_for()
            for theme, colour in PAGES.items():
                page.emulate_media(color_scheme=theme)
                if theme == "dark":  # charts and styles are of the theme that a page was opened in
                    page.reload()
                shade = "rgb({:.0f}, {:.0f}, {:.0f})".format(*rgb(colour))
                page.wait_for_function(
                    f"getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor == '{shade}'"
                )
                page.get_by_role("heading", name=each.title).first.wait_for()
                wait_until_drawn(page)
                faults += [f"{path} {theme}: {text}" for text in faint(page, axe, theme)]
            page.set_viewport_size({"width": 390, "height": 844})
            if path in FIRST:
                box = page.locator(FIRST[path]).first.bounding_box()
                assert box is not None, path
                assert box["y"] < 844 - 100, path
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
            page.set_viewport_size({"width": 1440, "height": 900})
            page.emulate_media(color_scheme="light")
    assert faults == []
