"""`treering up` with the real servers: both answer, Ctrl-C ends both, a taken port is a clear error."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import mlflow
import psutil
import pytest
from ports import free_port
from signal_states import started_with

from treering.cli.commands.up import dashboard_environment, training_runs_page
from treering.cli.serving import Service, choose_port
from treering.errors import TreeringError, UserError

UP = "import typer; from treering.cli.commands.up import up; typer.run(up)"


@pytest.fixture
def taken():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  (our own server)
            return answer.status == 200
    except OSError:
        return False


def test_ports(taken):
    free = free_port()
    assert choose_port(free, 1, "--port") == free
    assert choose_port(None, free, "--port") == free
    assert choose_port(None, taken, "--port") not in {taken, 0}
    with pytest.raises(UserError, match=rf"port {taken} of 127.0.0.1 taken, expected a free port; leave --port out"):
        choose_port(taken, free, "--port")


def test_a_service_that_ends_by_itself_is_an_error_with_its_words(tmp_path):
    command = [sys.executable, "-c", "import sys; print('no database'); sys.exit(3)"]
    with Service("mlflow", command, log=tmp_path / "logs" / "mlflow.log", cwd=tmp_path) as service:  # noqa: SIM117
        with pytest.raises(
            TreeringError, match=r"(?s)mlflow ended with exit code 3; the end of .*mlflow.log:\nno database"
        ):
            service.wait_until_healthy(f"http://127.0.0.1:{free_port()}/health", timeout_s=20)


def test_a_service_that_never_answers_is_an_error(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Service("mlflow", command, log=tmp_path / "mlflow.log", cwd=tmp_path) as service:  # noqa: SIM117
        with pytest.raises(TreeringError, match=r"mlflow did not answer at .* within 0 s"):
            service.wait_until_healthy(f"http://127.0.0.1:{free_port()}/health", timeout_s=0.3)


@pytest.mark.slow
def test_stopping_ends_grandchildren_and_the_stubborn(tmp_path):
    script = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    log = tmp_path / "stubborn.log"
    service = Service("stubborn", [sys.executable, "-c", script], log=log, cwd=tmp_path)
    deadline = time.monotonic() + 20
    while not log.read_text().strip() and time.monotonic() < deadline:
        time.sleep(0.05)
    grandchild = int(log.read_text())
    service.stop()
    with pytest.raises(TreeringError, match="exit code -9"):
        service.check()
    while _lives(grandchild):
        assert time.monotonic() < deadline, "the grandchild outlived its service"
        time.sleep(0.05)


@pytest.mark.slow
def test_services_end_though_their_owner_was_killed(tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from treering.cli.serving import Guard, Service\n"
        "here = Path(sys.argv[1]); sleep = [sys.executable, '-c', 'import time; time.sleep(300)']\n"
        "guard = Guard()\n"
        "kept, ended = (Service(n, sleep, log=here / n, cwd=here, guard=guard) for n in ('kept', 'ended'))\n"
        "ended.stop()\n"
        "print(kept._process.pid, guard._process, flush=True); time.sleep(300)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    left = [int(number) for number in owner.stdout.readline().split()]
    owner.kill()
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 20
    while any(_lives(pid) for pid in left):
        assert time.monotonic() < deadline, "a service or its guard outlived the owner"
        time.sleep(0.05)


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ignored", "stop"),
    [(signal.SIGHUP, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)],
    ids=["nohup", "background job"],
)
def test_up_serves_both_ships_and_ends_both(ignored, stop, project, write_run, uri):
    writer = write_run().start().lay(5).end()
    ports = {free_port(), free_port(), free_port()}
    dashboard_port, mlflow_port = sorted(ports)[:2]
    process = subprocess.Popen(
        [sys.executable, "-c", UP, "--json", "--port", str(dashboard_port), "--mlflow-port", str(mlflow_port)],
        cwd=project.root,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: started_with(ignored),  # noqa: PLW1509 - no thread holds a lock of these modules
    )
    try:
        text = "".join(iter(process.stdout.readline, "}\n")) + "}"
        urls = json.loads(text)
        assert urls == {"dashboard": f"http://127.0.0.1:{dashboard_port}", "mlflow": f"http://127.0.0.1:{mlflow_port}"}
        assert answers(urls["dashboard"])
        client = mlflow.MlflowClient(urls["mlflow"])
        deadline = time.monotonic() + 300
        found = []
        while not (found and found[0].info.status == "FINISHED") and time.monotonic() < deadline:
            time.sleep(0.2)
            experiments = [e.experiment_id for e in client.search_experiments()]
            found = client.search_runs(experiments, f"tags.`treering.run` = '{writer.resolved.recipe.digest}'")
        assert found[0].data.metrics["train/loss"] == 4.0 - 0.001 * 5
        page = f"{urls['mlflow']}/#/experiments/{found[0].info.experiment_id}?workflowType=machine_learning"
        assert training_runs_page(urls["mlflow"], project) == page
        nowhere = f"http://127.0.0.1:{max(ports)}"
        assert training_runs_page(nowhere, project) == nowhere
        everything = psutil.Process(process.pid).children(recursive=True)
        assert len(everything) >= 4, "MLflow, the follower, the dashboard and their guard"
        os.kill(process.pid, ignored)
        time.sleep(1.5)
        assert process.poll() is None, "what was ignored at the start stays ignored"
        assert answers(urls["dashboard"])
        os.kill(process.pid, stop)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGINT)  # impatience changes nothing
        assert process.wait(60) == 0
        _, left = psutil.wait_procs(everything, timeout=30)
        assert [each.cmdline() for each in left if _lives(each.pid)] == []
        assert not answers(urls["dashboard"])
        assert not answers(f"{urls['mlflow']}/health")
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
    assert uri.endswith("mlflow.db")


def test_up_says_which_port_is_taken(project, taken):
    done = subprocess.run(
        [sys.executable, "-c", UP, "--port", str(taken)],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode != 0
    assert f"port {taken} of 127.0.0.1 taken" in done.stderr
    assert not (project.root / ".treering" / "up").exists(), "nothing was started"


@pytest.mark.slow
def test_up_says_which_key_is_none(project):
    done = subprocess.run(
        [sys.executable, "-c", UP, "--public-key", "none.pem"],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode != 0
    assert "none.pem: no key there" in done.stderr
    assert not (project.root / ".treering" / "up").exists(), "nothing was started"


def test_the_dashboard_is_told_whose_signatures_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "http://127.0.0.1:5000"
    assert dashboard_environment(page, ()) == {"TREERING_MLFLOW_URL": page}, "what is set already stays"
    keys = dashboard_environment(page, (Path("a.pem"), tmp_path / "b.pem"))["TREERING_PUBLIC_KEYS"]
    assert keys == f"{tmp_path / 'a.pem'}{os.pathsep}{tmp_path / 'b.pem'}"
