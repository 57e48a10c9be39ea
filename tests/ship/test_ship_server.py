"""Shipping to a real `mlflow server`: the same values arrive, and an outage costs only delay."""

import os
import signal
import subprocess
import sys
import threading
import time

import mlflow
import psutil
import pytest

from treering.errors import StoreError
from treering.runlog.journal import Promoted
from treering.ship.follow import follow, ship_once
from treering.ship.shipper import MlflowShipper
from treering.store.registry import Registry, default_uri

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def tracking_uri(server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    if server.process.poll() is not None:
        server.start()


@pytest.fixture
def client(server):
    return mlflow.MlflowClient(server.uri)


def current(client, writer):
    experiments = [e.experiment_id for e in client.search_experiments() if e.name == "tiny"]
    return experiments and client.search_runs(experiments, f"tags.`treering.run` = '{writer.resolved.recipe.digest}'")


def losses(client, run):
    metrics = client.get_metric_history(run.info.run_id, "train/loss")
    return sorted((metric.step, metric.value) for metric in metrics)


def wait_for(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def test_the_tracking_uri_of_the_environment_wins(project, server):
    assert default_uri(project) == server.uri


def test_values_arrive(project, write_run, client):
    writer = write_run(1).start().lay(120).save().evaluate(120).end()
    (report,) = ship_once(project)
    (run,) = current(client, writer)
    assert report.stored_as == run.info.run_id
    assert run.info.status == "FINISHED"
    assert losses(client, run) == [(ring.step, ring.loss) for ring in writer.rings]
    assert run.data.params["recipe.seed"] == "1"
    assert {item.dataset.name for item in run.inputs.dataset_inputs} == {"books", "code", "cloze"}
    (model,) = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")
    assert {m.key: m.value for m in client.get_logged_model(model.model_id).metrics}[
        "eval/cloze/0-shot/accuracy"
    ] == 0.5


def test_a_server_killed_in_mid_ship_costs_only_delay(project, write_run, server, client):
    writer = write_run(2).start().lay(1500).save().end()
    registry = Registry(server.uri)
    sent, log = [], registry.log

    def log_and_kill(run_id, points=(), tags=None):
        if len(sent) == 5:
            server.kill()
        log(run_id, points, tags)
        sent.append(len(points))

    registry.log = log_and_kill
    with pytest.raises(
        StoreError, match=r"registry http://127.0.0.1:\d+: .*; nothing is lost, `treering ship` goes on"
    ):
        MlflowShipper(writer.run, registry).ship()
    server.start()
    (half,) = current(client, writer)
    arrived = len(losses(client, half))
    assert 0 < arrived < 1500
    (report,) = ship_once(project)
    assert report.sent["ring"] == 1500 - arrived
    (run,) = current(client, writer)
    assert run.info.run_id == half.info.run_id
    assert losses(client, run) == [(ring.step, ring.loss) for ring in writer.rings]
    assert len(client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")) == 1
    assert (run.info.status, len(run.outputs.model_outputs)) == ("FINISHED", 1)


def test_a_call_whose_answer_was_lost_is_not_stored_twice(project, write_run, server, client):
    writer = write_run(3).start().lay(100)
    registry = Registry(server.uri)
    log = registry.log

    def log_and_lose_the_answer(run_id, points=(), tags=None):
        log(run_id, points, {key: value for key, value in (tags or {}).items() if key != "treering.shipped"})
        if points:
            raise StoreError("the answer was lost")

    registry.log = log_and_lose_the_answer
    with pytest.raises(StoreError, match="the answer was lost"):
        MlflowShipper(writer.run, registry).ship()
    assert ship_once(project)[0].sent["ring"] == 100
    (run,) = current(client, writer)
    assert losses(client, run) == [(ring.step, ring.loss) for ring in writer.rings]


def test_the_follower_waits_for_a_server_and_ships_a_living_run(project, write_run, server, client):
    server.kill()
    writer = write_run(4).hold().start().lay(20)
    thread = threading.Thread(target=follow, args=(project,), kwargs={"interval_s": 0.1, "grace_s": 0.5}, daemon=True)
    thread.start()
    time.sleep(1.0)
    assert thread.is_alive(), "an outage must not end the follower"
    server.start()
    wait_for(lambda: current(client, writer) and len(losses(client, current(client, writer)[0])) == 20)
    assert current(client, writer)[0].info.status == "RUNNING"
    writer.lay(5).end().die()
    thread.join(timeout=90)
    assert not thread.is_alive()
    (run,) = current(client, writer)
    assert len(losses(client, run)) == 25
    assert run.info.status == "FINISHED"


def test_patience_ends_after_the_training_has(project, write_run, monkeypatch):
    write_run(5).start().lay(1).end()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"registry http://127.0.0.1:9"):
        follow(project, interval_s=0.1, grace_s=0.0, patience_s=0.5)


def test_the_companion_outlives_the_training_it_was_started_by(project, write_run, client):
    """The process that holds the run is killed with -9; the follower ships its last ring, says KILLED, and ends."""
    writer = write_run(6).start().lay(3)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, pathlib\n"
            "from treering.project import Project\n"
            "from treering.runlog.lock import acquire\n"
            "from treering.ship.launch import start_companion\n"
            "root, run = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
            "lock = acquire(root / 'runs' / run / 'lock')\n"
            "assert start_companion(Project(root), os.getpid())\n"
            "try:\n"
            "    print(os.waitpid(-1, os.WNOHANG), flush=True)\n"
            "except ChildProcessError:\n"
            "    print('no child', flush=True)\n"
            "sys.stdin.read()\n",
            str(project.root),
            writer.run.path.name,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert holder.stdout.readline() == "no child\n"
        wait_for(lambda: current(client, writer) and current(client, writer)[0].info.status == "RUNNING")
        wait_for(lambda: len(losses(client, current(client, writer)[0])) == 3)
        (follower,) = followers_of(project)
        writer.lay(2)
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        wait_for(lambda: current(client, writer)[0].info.status == "KILLED")
        assert len(losses(client, current(client, writer)[0])) == 5
        assert "running: 3 rings" in (project.root / ".treering" / "ship.log").read_text()
        wait_for(lambda: not follower.is_running() or follower.status() == psutil.STATUS_ZOMBIE)
    finally:
        for process in followers_of(project):
            process.kill()
        holder.stdin.close()
        holder.stdout.close()


def followers_of(project):
    """The followers of this test's own project, by their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "treering.ship.follow" in line and str(project.root) in line:
            found.append(process)
    return found


def test_a_follower_of_its_own_ends_when_nothing_trains(project, write_run, client):
    writer = write_run(7).start().lay(2).end()
    script = (
        "import sys, pathlib\n"
        "from treering.project import Project\n"
        "from treering.ship.follow import follow\n"
        "follow(Project(pathlib.Path(sys.argv[1])), interval_s=0.1, grace_s=0.2)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(project.root)], timeout=300, check=False)
    assert done.returncode == 0
    assert current(client, writer)[0].info.status == "FINISHED"


@pytest.mark.slow
def test_a_server_takes_the_alias_of_a_promoted_checkpoint(project, write_run, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    writer = write_run(seed=77).start().lay(10).save().end()
    (checkpoint,) = writer.run.checkpoints()
    common = {"by": "ada", "level": "recorded", "required": "recorded"}
    entry = Promoted(at=1.0, alias="production", step=10, checkpoint=checkpoint.digest, **common)
    writer.run.journal.append(entry)
    ship_once(project)
    ship_once(project)
    client = mlflow.MlflowClient(server.uri)
    assert client.get_model_version_by_alias("tiny", "production").tags["treering.checkpoint"] == checkpoint.digest
    assert len(client.search_model_versions("name = 'tiny'")) == 1
