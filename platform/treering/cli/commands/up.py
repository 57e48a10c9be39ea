"""`treering up`: serves MLflow and the dashboard on this machine until Ctrl-C."""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.options import JsonOption, PublicKeyOption, project, trusted_keys
from treering.cli.output import console, print_json
from treering.ending import heeded
from treering.foreign import say

if TYPE_CHECKING:
    from treering.cli.access import Access
    from treering.cli.serving import Service, Services
    from treering.project import Project

MLFLOW_PORT = 5000
DASHBOARD_PORT = 8501

MlflowPort = Annotated[
    int | None,
    typer.Option(
        "--mlflow-port",
        metavar="PORT",
        min=1,
        max=65_535,
        help=f"Port of MLflow; default: {MLFLOW_PORT}, or any free port if {MLFLOW_PORT} is taken.",
    ),
]
DashboardPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        min=1,
        max=65_535,
        help=f"Port of the dashboard; default: {DASHBOARD_PORT}, or any free port if {DASHBOARD_PORT} is taken.",
    ),
]

HostOption = Annotated[
    str, typer.Option("--host", metavar="NAME", help="Name or address of this machine that the dashboard listens on.")
]
PublicUrl = Annotated[
    str | None,
    typer.Option("--public-url", metavar="URL", help="What people open, where a proxy stands before the dashboard."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Serve others without a sign-in.")]


def up(
    port: DashboardPort = None,
    mlflow_port: MlflowPort = None,
    public_key: PublicKeyOption = None,
    *,
    host: HostOption = "127.0.0.1",
    public_url: PublicUrl = None,
    insecure: Insecure = False,
    json: JsonOption = False,
) -> None:
    """Serve the dashboard and MLflow on 127.0.0.1 until Ctrl-C, and keep MLflow up to date meanwhile.

    `--host` and `--public-url` serve the dashboard to others, who sign in by an identity provider (OpenID Connect) and
    must be on the project's list; without a provider that is refused unless `--insecure` is said. MLflow stays on
    127.0.0.1.

    SIGTERM and a closed terminal end it as well. In a background job of a script, Ctrl-C has no effect; after `nohup`,
    a closed terminal has no effect. Use `kill PID` there.

    If `MLFLOW_TRACKING_URI` names a server, that server is used and no other is started. If it names a database, MLflow
    is served over that database. The dashboard checks attestations with the keys of `--public-key`.

    Exit codes:
        0: ended by Ctrl-C or a signal
        1: a server ended by itself; the error shows the end of its log
        2: others could reach the dashboard without a sign-in, or an option is wrong
        4: the database does not answer

    Examples:
        treering up
        treering up --port 8600 --public-key signer.pub.pem
        treering up --public-url https://runs.example.org
    """
    from treering.cli.access import access
    from treering.cli.serving import Services

    here = project()
    trusted_keys(public_key)
    reached = access(here, host, public_url, insecure=insecure)
    for sign in heeded(signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
        signal.signal(sign, _interrupt)
    with Services(here.root) as services:
        try:
            _serve(services, here, (port, mlflow_port), public_key or (), reached, json=json)
        except KeyboardInterrupt:
            _say("ending …", json)
        finally:
            # A second Ctrl-C must not interrupt the end, which takes seconds: servers would keep running.
            for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(sign, signal.SIG_IGN)


def _serve(
    services: "Services",
    here: "Project",
    ports: tuple[int | None, int | None],
    public_keys: Sequence[Path],
    reached: "Access",
    *,
    json: bool,
) -> None:
    """Starts MLflow, shipping and the dashboard, prints their addresses, and watches them until a server ends."""
    from treering.cli.serving import HOST, choose_port
    from treering.redact import without_user_info

    port, mlflow_port = ports
    dashboard_port = choose_port(port, DASHBOARD_PORT, "--port", reached.address)
    listens = HOST if reached.address == "0.0.0.0" else reached.address  # noqa: S104 - looked for, not listened on
    local_url = f"http://{f'[{listens}]' if ':' in listens else listens}:{dashboard_port}"
    dashboard_url = reached.public_url or local_url
    for note in reached.notes:
        say(f"note: {note}")
    external = os.environ.get("MLFLOW_TRACKING_URI", "")
    if external.startswith(("http://", "https://")):
        mlflow_url = without_user_info(external)
    else:
        mlflow_url = _start_mlflow(services, here, mlflow_port, json=json)
    shipping = services.start("ship", [sys.executable, "-m", "treering.ship.follow", str(here.root)])
    mlflow_page = training_runs_page(mlflow_url, here)
    _say("starting the dashboard …", json)
    services.start(
        "dashboard",
        _dashboard_command(here, reached, dashboard_port),
        health=f"{local_url}/_stcore/health",
        # Others cannot open an MLflow that only this machine reaches.
        environment=dashboard_environment(mlflow_page if external or reached.is_local else "", public_keys),
    )
    if json:
        print_json({"dashboard": dashboard_url, "mlflow": mlflow_url})
        sys.stdout.flush()
    else:
        console.print(f"dashboard  {dashboard_url}", f"MLflow     {mlflow_page}", "Ctrl-C ends both.")
    _watch(services, shipping)


def _start_mlflow(services: "Services", here: "Project", port: int | None, *, json: bool) -> str:
    """Serves MLflow over the database of the project or of `MLFLOW_TRACKING_URI`; returns the URL."""
    from treering.cli.serving import HOST, choose_port
    from treering.store.database import prepare_database
    from treering.store.registry import default_uri

    backend = default_uri(here)
    note = prepare_database(backend)
    if note:
        _say(note, json)
    chosen = choose_port(port, MLFLOW_PORT, "--mlflow-port")
    url = f"http://{HOST}:{chosen}"
    _say("starting MLflow …", json)
    environment = {
        # Not on the command line: every user of the machine could read its password there.
        "MLFLOW_BACKEND_STORE_URI": backend,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    services.start("mlflow", _mlflow_command(here, chosen), health=f"{url}/health", environment=environment)
    return url


def _watch(services: "Services", shipping: "Service") -> None:
    """Checks the servers until one ends; if only shipping ended, prints a note and continues."""
    from treering.errors import TreeringError

    ships = True
    while True:
        time.sleep(0.5)
        services.check()
        try:
            if ships:
                shipping.check()
        except TreeringError as error:
            ships = False
            say(f"treering: {error}\nMLflow stays as it is; `treering ship` brings it up to date")


def training_runs_page(url: str, here: "Project") -> str:
    """The URL of MLflow's list of runs in the experiment of the newest run, or of its front page if MLflow has none.

    MLflow 3 would open an experiment at the traces of applications, and a training has no traces.
    """
    from contextlib import suppress
    from json import load
    from urllib.parse import urlencode
    from urllib.request import urlopen

    from treering.errors import TreeringError
    from treering.runlog.find import find_runs

    with suppress(OSError, ValueError, LookupError, TypeError, TreeringError):
        query = urlencode({"experiment_name": find_runs(here.runs)[-1].resolved.experiment})
        with urlopen(f"{url}/api/2.0/mlflow/experiments/get-by-name?{query}", timeout=5) as answer:  # noqa: S310  (http)
            number = int(load(answer)["experiment"]["experiment_id"])
        return f"{url.rstrip('/')}/#/experiments/{number}?workflowType=machine_learning"
    return url


def _mlflow_command(here: "Project", port: int) -> list[str]:
    from treering.cli.serving import HOST

    return [
        sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1",
        "--artifacts-destination", str(here.root.resolve() / "mlartifacts"),
    ]  # fmt: skip


def dashboard_environment(mlflow_page: str, public_keys: Sequence[Path]) -> dict[str, str]:
    """The variables of the dashboard: the URL of MLflow, and the trusted keys if the command has some."""
    keys = os.pathsep.join(str(key.resolve()) for key in public_keys)
    return {"TREERING_MLFLOW_URL": mlflow_page, **({"TREERING_PUBLIC_KEYS": keys} if keys else {})}


def _dashboard_command(here: "Project", reached: "Access", port: int) -> list[str]:
    from treering.cli.access import secrets_file

    names = [word for host in reached.hosts for word in ("--server.allowedHosts", host)]
    return [
        sys.executable, "-m", "streamlit", "run", str(_dashboard_server()), "--server.address", reached.address,
        "--server.port", str(port), "--server.headless", "true", "--browser.gatherUsageStats", "false",
        "--secrets.files", str(secrets_file(here)), *names,
    ]  # fmt: skip


def _dashboard_server() -> Path:
    """The server of the dashboard, found without importing its package.

    Raises:
        UserError: the dashboard is not installed.
    """
    from treering.errors import UserError

    found = importlib.util.find_spec("treering_dashboard")
    app = Path(found.origin).parent / "site" / "server.py" if found and found.origin else None
    if app is None or not app.exists() or importlib.util.find_spec("streamlit") is None:
        raise UserError(
            f"the dashboard is not installed: {app or 'treering_dashboard'} or streamlit is missing, expected the "
            "extra `dashboard`: pip install 'treering[registry,dashboard]', or `make setup` in a clone"
        )
    return app


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        console.print(text)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
