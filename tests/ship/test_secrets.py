"""One secret goes in by every door, and is looked for in all that comes out: text, errors, logs, records and files."""

import json
import os
import subprocess
import sys
import time
import traceback

import pytest

from treering.audit.dvc.remotes import open_remotes
from treering.collect.environment import collect_environment
from treering.collect.launcher import SCRIPT_VARIABLE, launch_record
from treering.errors import StoreError, TreeringError, UserError
from treering.store.registry import Registry

SENTINEL = "SENTINEL"
TREERING = "import sys; from treering.cli import main; sys.argv[0] = 'treering'; main()"


@pytest.mark.slow
def test_no_output_of_shipping_holds_it(project, write_run):
    write_run().start().lay(2).end()
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": f"http://mlflow:{SENTINEL}@127.0.0.1:9",
        "MLFLOW_TRACKING_TOKEN": f"{SENTINEL}-token",
        "AWS_SECRET_ACCESS_KEY": f"{SENTINEL}-aws",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "TREERING_DEBUG": "1",
    }
    commands = [
        ["-c", TREERING, "ship", "--json"],
        ["-m", "treering.ship.follow", str(project.root), str(os.getpid())],
        ["-c", TREERING, "runs", "--json"],
    ]
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=project.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    ship, follower, runs = started
    said = [ship.communicate(timeout=300)[0], runs.communicate(timeout=300)[0]]
    time.sleep(1.0)
    assert follower.poll() is None, "a server that does not answer ends no follower"
    follower.terminate()
    said.append(follower.communicate(timeout=300)[0])
    assert ship.returncode == StoreError.exit_code
    assert "registry http://mlflow:***@127.0.0.1:9" in said[0]
    assert "Traceback" in said[0], "TREERING_DEBUG prints even the errors behind the error"
    said += [each.read_text(errors="replace") for each in project.root.rglob("*") if each.is_file()]
    assert not [text for text in said if SENTINEL in text]


@pytest.mark.parametrize(
    ("uri", "kind", "message"),
    [
        (f"postgresql+psycopg2://u:{SENTINEL}@127.0.0.1:9/d", UserError, "the driver psycopg2 is not installed"),
        (f"postgres://u:{SENTINEL}%40@127.0.0.1:9/d", UserError, "found the database 'postgres', which"),
        (f"postgresql://u:{SENTINEL}@127.0.0.1:port/d", UserError, "cannot be parsed, expected DIALECT"),
        (
            f"mysql://u@127.0.0.1/d?password={SENTINEL}&sslpassword={SENTINEL}",
            UserError,
            "the driver MySQLdb is not installed",
        ),
        (f"http://{SENTINEL}@127.0.0.1:9", StoreError, "127.0.0.1:9: API request to"),
        (f"http://127.0.0.1:9/?access_token={SENTINEL}", StoreError, "API request to http://127.0.0.1:9"),
    ],
)
def test_no_error_of_the_registry_holds_it(uri, kind, message, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(kind, match=message) as caught:
        Registry(uri).experiment("tiny")
    assert SENTINEL not in "".join(traceback.format_exception(caught.value))


def test_no_record_of_an_attempt_holds_it(tmp_path, monkeypatch):
    script = tmp_path / "job.sh"
    uri = f"postgresql://u:{SENTINEL}@db/runs"
    script.write_text(f"export MLFLOW_TRACKING_URI={uri}\nexport AWS_SESSION_TOKEN={SENTINEL}\n")
    for name, value in {
        "MLFLOW_TRACKING_URI": uri,
        "AWS_SECRET_ACCESS_KEY": SENTINEL,
        "TORCH_HUB_TOKEN": SENTINEL,
        "NCCL_NET_PLUGIN": f"https://u:{SENTINEL}@host/plugin",
    }.items():
        monkeypatch.setenv(name, value)
    recorded = json.dumps([collect_environment([]), launch_record({SCRIPT_VARIABLE: str(script)})])
    assert '"TORCH_HUB_TOKEN": "***"' in recorded
    assert SENTINEL not in recorded


def test_no_text_about_a_remote_holds_it(tmp_path):
    remotes = {"far": f"https://u:{SENTINEL}@host.invalid/store", "odd": f"nosuch://u:{SENTINEL}@host/store"}
    opened, closed = open_remotes(tmp_path, remotes)
    assert closed
    assert SENTINEL not in f"{[each.path for each in opened]} {closed}"


def test_no_error_of_ours_holds_it():
    error = TreeringError(f"git clone https://{SENTINEL}@host/a failed")
    assert str(error) == "git clone https://***@host/a failed"
    assert SENTINEL not in repr(error)
