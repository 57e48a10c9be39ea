"""A real PostgreSQL server for tests, on a free port of 127.0.0.1, which ends by its process id."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import sqlalchemy
from ports import free_port


def binaries():
    """The folder of PostgreSQL's programs, None where it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return folders[0] if folders else None


class Server:
    """A server that runs, and its process.

    Args:
        folder: with its data; its log is made there.
        run_as: whom its processes belong to, as arguments of `Popen`.
    """

    def __init__(self, folder, run_as):
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._log, self._run_as = folder / "log", run_as
        self._command = [
            binaries() / "postgres", "-D", folder / "data", "-p", str(port), "-c", "listen_addresses=127.0.0.1",
            "-c", "fsync=off", "-c", f"unix_socket_directories={folder}",
        ]  # fmt: skip

    def start(self):
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._log.parent, **self._run_as)
        deadline = time.monotonic() + 300
        while "ready to accept connections" not in self._log.read_text():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def send(self, number):
        """Sends a signal to all processes of the server."""
        server = psutil.Process(self.process.pid)
        for process in (server, *server.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self):
        """Ends all processes of the server at once, as a crash would."""
        server = psutil.Process(self.process.pid)
        processes = [server, *server.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(processes, timeout=30)


@contextmanager
def postgresql_server(user, password):
    """Starts a server with one user who may do everything; skips the test without PostgreSQL.

    Its folder is not below pytest's, which every start of pytest closes for other users.
    """
    folder = Path(tempfile.mkdtemp(prefix="treering-postgresql-"))
    try:
        with _served(folder, user, password) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _served(folder, user, password):
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    data, secret = folder / "data", folder / "password"
    data.mkdir(mode=0o700)
    secret.write_text(password)
    # PostgreSQL refuses to run as root, and its own user must reach its folder.
    run_as = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    if run_as:
        for each in (folder, data, secret):
            shutil.chown(each, "postgres", "postgres")
    begin = [programs / "initdb", "-D", data, "-U", user, "-A", "scram-sha-256", "--pwfile", secret, "--no-sync"]
    subprocess.run(begin, check=True, capture_output=True, timeout=300, **run_as)
    server = Server(folder, run_as)
    server.start()
    try:
        yield server
    finally:
        server.send(signal.SIGCONT)
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait(timeout=30)


def create_database(address, name):
    """Makes an empty database; `address` has user and password. Returns its URL."""
    admin = sqlalchemy.create_engine(f"{address}/postgres", isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(sqlalchemy.text(f'CREATE DATABASE "{name}"'))
    admin.dispose()
    return f"{address}/{name}"
