"""A real PostgreSQL server for tests, on a free port of 127.0.0.1, which ends by its process id."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy


def binaries():
    """The folder of PostgreSQL's programs, None where it is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return folders[0] if folders else None


class Server:
    """A server that runs, and its process."""

    def __init__(self, process, port):
        self.process = process
        self.address = f"127.0.0.1:{port}"


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
    subprocess.run(begin, check=True, capture_output=True, timeout=120, **run_as)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        programs / "postgres", "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
        "-c", f"unix_socket_directories={folder}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **run_as)
    try:
        deadline = time.monotonic() + 60
        while "ready to accept connections" not in (folder / "log").read_text():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield Server(process, port)
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGQUIT)
        process.wait(timeout=30)


def create_database(address, name):
    """Makes an empty database; `address` has user and password. Returns its URL."""
    admin = sqlalchemy.create_engine(f"{address}/postgres", isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(sqlalchemy.text(f'CREATE DATABASE "{name}"'))
    admin.dispose()
    return f"{address}/{name}"
