"""Pictures for the docs: a real project's page, from a real server, in a real Chromium.

    python -m treering_dashboard.picture [--run ID] [--out docs/dashboard.png]
    python -m treering_dashboard.picture --address '/compare?runs=…' --out docs/pictures/compare.png

Takes the page of the run with the most evaluated steps if no other is named. Needs `playwright` (extra `test`) and a
Chromium on PATH.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from treering.errors import NotFoundError, StoreError
from treering.project import Project
from treering.runlog.find import find_run, find_runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTH, HEIGHT = 1440, 950

_START_S = 60.0
_PANELS = 8
_SERVER = Path(__file__).parent / "site" / "server.py"


def find_chromium() -> str | None:
    """Path of the first Chromium on PATH."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


@contextmanager
def serve(project: Project) -> Iterator[str]:
    """Serves the dashboard of a project on a free port of this machine, and ends the server afterwards.

    Yields:
        The address.

    Raises:
        StoreError: the server ended or did not answer in time.
    """
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(_SERVER), "--server.port", str(port)]
    command += ["--server.address", "127.0.0.1", "--server.headless", "true"]
    environment = {**os.environ, "TREERING_ROOT": str(project.root)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_healthy(address, server)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_healthy(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise StoreError(f"dashboard: the server ended with code {server.returncode}; try `treering up` to see why")
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2):  # noqa: S310 - our own address
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise StoreError(f"dashboard: no answer from {address} within {_START_S:.0f} s; try `treering up` to see why")


@contextmanager
def chromium(executable: str) -> Iterator["Browser"]:
    """A headless browser with a fresh profile."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only the picture and its tests need a browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def wait_until_drawn(page: "Page", panels: int = 0) -> None:
    """Waits until the script has run and so many panels are drawn."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000)
    if panels:
        page.locator(".board .panel .u-over").nth(panels - 1).wait_for(timeout=60_000)


def take_picture(project: Project, page_address: str, out: Path, *, panels: int = 0) -> None:
    """Writes the picture of a page.

    Args:
        project: whose runs are shown.
        page_address: path and query of the page.
        out: the file.
        panels: how many panels of curves must be drawn before.

    Raises:
        NotFoundError: Chromium is missing.
        StoreError: the server does not start.
    """
    executable = find_chromium()
    if executable is None:
        raise NotFoundError(
            f"picture: no Chromium on PATH (looked for {', '.join(CHROMIUM_NAMES)}); install `chromium`"
        )
    with serve(project) as address, chromium(executable) as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(address + page_address)
        wait_until_drawn(page, panels)
        page.wait_for_timeout(2000)  # fonts, tables and the first layout settle
        out.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(out))


def main() -> None:
    """Parses the arguments and takes the picture.

    Raises:
        NotFoundError: the project has no run.
    """
    parser = argparse.ArgumentParser(prog="python -m treering_dashboard.picture", description=__doc__)
    parser.add_argument("--run", help="id of the run, or its beginning; default: the one with the most evaluations")
    parser.add_argument("--address", help="path and query of another page, as the browser shows it")
    parser.add_argument("--out", type=Path, default=Path("docs/dashboard.png"))
    arguments = parser.parse_args()
    project = Project(Path.cwd())
    if arguments.address:
        take_picture(project, arguments.address, arguments.out)
        sys.stdout.write(f"{arguments.out}: {arguments.address}\n")
        return
    runs = find_runs(project.runs)
    if not runs:
        raise NotFoundError(f"{project.runs}: no runs to take a picture of; `make repro` makes one")
    run = (
        find_run(project.runs, arguments.run) if arguments.run else max(runs, key=lambda each: len(each.evaluations()))
    )
    take_picture(project, f"/run?run={run.path.name}", arguments.out, panels=_PANELS)
    sys.stdout.write(f"{arguments.out}: run {run.path.name}\n")


if __name__ == "__main__":
    main()
