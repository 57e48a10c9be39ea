"""Run logs written with the run log's own writers, and an MLflow server that ends by its pid."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import mlflow
import pytest
from ports import free_port
from run_writer import run_writers

from treering.project import Project
from treering.ship import target


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture
def write_run(project):
    """Starts writing a run; at the end its lock is dropped."""
    with run_writers(project) as write:
        yield write


@pytest.fixture(autouse=True)
def _without_ledger(monkeypatch):
    """The tests here are about MLflow and copies; those of the ledger are in `tests/ledger`."""
    others = tuple(each for each in target._TARGETS if each[0] != "treering.ship.ledger")
    monkeypatch.setattr(target, "_TARGETS", others)


class Server:
    """A real `mlflow server` on 127.0.0.1 over a database that outlives it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = free_port()
        self.process = None

    @property
    def uri(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}",
            "--artifacts-destination", str(self.folder / "artifacts"),
        ]  # fmt: skip
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self.folder, start_new_session=True
            )
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:  # noqa: S310  (our own server)
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError((self.folder / "server.log").read_text()[-3000:])

    def kill(self):
        """Ends the server and its workers at once, as a crash would: its process group, by its own id."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for all tests of a module."""
    server = Server(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A migrated, empty MLflow database: made once, since the migrations take seconds."""
    from treering.store.registry import Registry

    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Registry(f"sqlite:///{path}").experiment("Default")
    return path


@pytest.fixture
def uri(project, empty_database, monkeypatch):
    """The embedded default of the project, migrated."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (project.root / "mlflow.db").write_bytes(empty_database.read_bytes())
    return f"sqlite:///{project.root / 'mlflow.db'}"


@pytest.fixture
def client(uri):
    return mlflow.MlflowClient(uri)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def url(request, tmp_path):
    """The URL of an empty store."""
    if request.param == "folder":
        return str(tmp_path / "store")
    place: str = request.getfixturevalue("s3_url")
    return place


@pytest.fixture
def folder_url(tmp_path):
    return str(tmp_path / "store")


@pytest.fixture
def here(tmp_path):
    """Where the mirror is."""
    return Project(tmp_path / "elsewhere")
