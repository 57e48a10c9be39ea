"""A built wheel is enough without the clone: `treering up` serves, help is there, the code digest is the clone's."""

import json
import os
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import built_wheel
import psutil
import pytest

from treering.collect.code import code_digest
from treering.store.ledger.schema import REVISIONS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SENTINEL = "SENTINEL"
TREERING = "import sys; from treering.cli import main; sys.argv[0] = 'treering'; main()"
PAGES = (
    "import treering_dashboard, treering\n"
    "from pathlib import Path\n"
    "from streamlit.testing.v1 import AppTest\n"
    "folder = Path(treering_dashboard.__file__).parent\n"
    "page = AppTest.from_file(str(folder / 'site' / 'app.py'), default_timeout=60).run()\n"
    "print(folder, Path(treering.__file__).parent, [each.value for each in page.exception], page.markdown[0].value)\n"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The unpacked wheel."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(built_wheel.build(tmp_path_factory.mktemp("built"))).extractall(folder)
    return folder


@pytest.fixture
def start(installed, tmp_path):
    """Starts Python in an empty folder with the wheel's packages before those of the clone."""
    started = []

    def run(*arguments):
        environment = {
            **os.environ,
            "PYTHONPATH": str(installed),
            "MLFLOW_TRACKING_URI": f"http://mlflow:{SENTINEL}@127.0.0.1:9",
            "TREERING_ROOT": str(tmp_path),
        }
        started.append(
            subprocess.Popen(
                [sys.executable, *arguments],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.terminate()
        process.communicate(timeout=300)


def test_the_dashboard_is_served_from_a_wheel_and_nothing_holds_a_password(start, installed, tmp_path):
    pages = start("-c", PAGES)
    up = start("-c", TREERING, "up", "--json")
    served = json.loads("".join(iter(up.stdout.readline, "}\n")) + "}")
    with urllib.request.urlopen(served["dashboard"], timeout=30) as answer:  # noqa: S310  (our own server)
        assert "<title>Streamlit</title>" in answer.read().decode()
    printed, errors = pages.communicate(timeout=300)
    assert printed == f"{installed / 'treering_dashboard'} {installed / 'treering'} [] #### No runs yet\n", errors
    lines = [" ".join(each.cmdline()) for each in psutil.Process(up.pid).children(recursive=True)]
    up.terminate()
    output, errors = up.communicate(timeout=300)
    logs = [each.read_text(errors="replace") for each in (tmp_path / ".treering").rglob("*.log")]
    assert len(lines) >= 3, "the follower, the dashboard and their guard"
    assert SENTINEL not in " ".join([json.dumps(served), output, errors, *lines, *logs])
    settings = "treering_dashboard/site/.streamlit/config.toml"
    assert (installed / settings).read_text() == (ROOT / "dashboard" / settings).read_text()


def test_a_wheel_has_the_migrations_and_makes_the_ledger(start, installed, tmp_path, monkeypatch):
    monkeypatch.delenv("TREERING_DATABASE_URL", raising=False)
    folder = Path("treering/store/ledger/migrations/versions")
    of_wheel, of_clone = (
        sorted(path.name for path in (root / folder).glob("*.py")) for root in (installed, ROOT / "platform")
    )
    assert [name[:4] for name in of_wheel] == list(REVISIONS)
    assert of_wheel == of_clone
    for done in ("made", "current"):
        printed, error = start("-c", TREERING, "migrate", "--json").communicate(timeout=300)
        answer = {"ledger": f"ledger sqlite:///{tmp_path}/treering.db", "schema": REVISIONS[-1], "done": done}
        assert json.loads(printed) == answer, error


def test_a_wheel_has_help_and_the_code_digest_of_the_clone(start, installed):
    asked = start("-c", TREERING, "train", "--help")
    digested = start(
        "-c",
        "from treering.collect.code import collect_code\n"
        "from treering_trainer.launch.prepare import CODE_ROOT\n"
        "code = collect_code(CODE_ROOT)\n"
        "print(CODE_ROOT, code['digest'], code['commit'], 'trainer/treering_trainer/core/loop.py' in code['sources'])",
    )
    assert "--continue-changed" in asked.communicate(timeout=300)[0]
    printed, error = digested.communicate(timeout=300)
    assert printed == f"{installed} {code_digest(ROOT)} None True\n", error
