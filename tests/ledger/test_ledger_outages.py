"""PostgreSQL is killed, or hangs, under a follower: the ledger says so, other targets go on, and all arrives later."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from postgresql_server import create_database, postgresql_server

from treering.errors import StoreError
from treering.ship import follow as following
from treering.ship.copy_target import Copies
from treering.ship.ledger import LedgerTarget
from treering.store.ledger.patient_connection import PatientConnection

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    """A server of this file's own, since its tests kill it."""
    with postgresql_server("ledger", "secret") as server:
        yield server


@pytest.fixture
def url(server, request):
    return create_database(f"postgresql://ledger:secret@{server.address}", request.node.name[-60:])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr("treering.store.ledger.database.PATIENCE_S", 4)
    monkeypatch.setattr(PatientConnection, "silence_s", 1.5)


class Reports(list):
    """What a follower reported."""

    def wait(self, target, since=0, seconds=300):
        deadline = time.monotonic() + seconds
        while target not in {report.target for report in self[since:]}:
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)


class Watched(LedgerTarget):
    """The ledger, with the errors that its shippers raised."""

    def shipper(self, run):
        shipper, self.errors = super().shipper(run), []
        ship = shipper.ship

        def watched():
            try:
                return ship()
            except StoreError as error:
                self.errors.append(str(error))
                raise

        shipper.ship = watched
        return shipper


@pytest.fixture
def ledger(project, url, monkeypatch):
    """The ledger, as a target beside copies in a folder."""
    ledger = Watched(project, url)
    monkeypatch.setattr(following, "targets", lambda _: [ledger, Copies(str(project.root / "store"), "tiny")])
    return ledger


@pytest.mark.parametrize("outage", ["killed", "hung"])
def test_the_ledger_alone_waits_and_then_has_all(project, write_run, server, ledger, outage):
    reports = Reports()
    writer = write_run().hold().start().lay(5).save()
    follower = threading.Thread(
        target=following.follow,
        args=(project,),
        kwargs={"interval_s": 0.05, "grace_s": 0.3, "retry_s": 0.2, "report": reports.append},
        daemon=True,
    )
    follower.start()
    reports.wait("ledger")
    reports.wait("copies")
    for _ in range(2):
        server.kill() if outage == "killed" else server.send(signal.SIGSTOP)
        try:
            errors, seen = len(ledger.errors), sys.maxsize
            deadline = time.monotonic() + 300
            while len(ledger.errors) < errors + 2:
                if seen == sys.maxsize and len(ledger.errors) > errors:
                    seen = len(reports)  # until the first error, a pass from before the outage may report
                writer.lay(5).save()
                before = len(reports)
                reports.wait("copies", before)
                assert time.monotonic() < deadline
            meanwhile = {report.target for report in reports[seen:]}
        finally:
            server.start() if outage == "killed" else server.send(signal.SIGCONT)
        assert "ledger" not in meanwhile
        assert f"expected a server that answers at {server.address}" in ledger.errors[-1]
        seen = len(reports)
        writer.lay(5)
        reports.wait("ledger", seen)
    if outage == "hung":
        assert any("the server was silent for 1.5 s" in error for error in ledger.errors)
    writer.end().die()
    follower.join(60)
    assert not follower.is_alive()
    assert ledger.difference(writer.run) is None


def unread(address):
    """Whether a server has received bytes that it has not read."""
    port = f"{int(address.split(':')[1]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(line[1].endswith(f":{port}") and line[3] == "01" and line[4].split(":")[1] != "0" * 8 for line in lines)


def test_a_ledger_that_hangs_does_not_hold_up_the_end_of_ship(project, write_run, server, url):
    writer = write_run().hold().start().lay(5)
    environment = {**os.environ, "TREERING_DATABASE_URL": url, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "treering", "ship", "--follow"]
    process = subprocess.Popen(command, cwd=project.root, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert any(line.startswith("ledger: ") for line in process.stdout)
        server.send(signal.SIGSTOP)
        writer.lay(5).save()
        deadline = time.monotonic() + 300
        while not unread(server.address):
            assert time.monotonic() < deadline, "it does not ask"
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) != 0
    finally:
        server.send(signal.SIGCONT)
        process.kill()
        process.wait()
