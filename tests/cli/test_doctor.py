"""`treering doctor` names what is missing, and what helps."""

import http.server
import json
import shutil
import threading
from base64 import b64encode
from importlib import metadata
from pathlib import Path

import pytest

from treering.collect import doctor
from treering.errors import UserError
from treering.project import Project
from treering.setup.stage_code import version_record
from treering.setup.start import begin

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("MLFLOW_TRACKING_URI", "TREERING_DATABASE_URL", "TREERING_STORE_URL", "TREERING_DATA_URL"):
        monkeypatch.delenv(variable, raising=False)


def checks(treering, expected=0):
    code, out, err = treering("doctor", "--json")
    assert (code, err) == (expected, "")
    return {each["what"].partition(" /")[0]: each for each in json.loads(out)}


def test_this_machine_can_write_runs_and_run_the_tests(treering):
    found = checks(treering)
    assert found["folder"]["state"] == found["disk"]["state"] == "ready"
    assert {found[f"packages: {role}"]["state"] for role in ("data", "trainer", "registry", "dashboard")} == {"ready"}
    assert "ready    packages: trainer: can train with DeepSpeed and megatron-core" in treering("doctor")[1]


def test_an_absent_package_and_another_version_are_named(treering, monkeypatch):
    real = metadata.version

    def version(name):
        if name == "streamlit":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "deepspeed" else real(name)

    monkeypatch.setattr(metadata, "version", version)
    found = checks(treering, expected=2)
    assert found["packages: dashboard"]["state"] == "missing"
    assert found["packages: dashboard"]["text"] == "cannot show the dashboard: streamlit"
    assert found["packages: dashboard"]["remedy"] == "pip install 'treering[dashboard]'"
    assert (found["packages: trainer"]["state"], "deepspeed 0.1 (expected" in found["packages: trainer"]["text"]) == (
        "fault",
        True,
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("acquire", UserError("no locks available"), "runs cannot be written: no locks available"),
        ("is_held", False, "takes locks and does not hold them"),
    ],
)
def test_a_file_system_without_locks_is_a_fault(treering, monkeypatch, name, value, words):
    def replaced(*_):
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(doctor, name, replaced)
    found = checks(treering, expected=2)
    assert (found["folder"]["state"], words in found["folder"]["text"]) == ("fault", True)


def test_a_folder_without_the_right_to_write_is_a_fault(treering, monkeypatch):
    def refused(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refused)
    assert "runs cannot be written: [Errno 13] Permission denied" in checks(treering, expected=2)["folder"]["text"]


def test_a_full_disk_is_a_fault(treering, monkeypatch):
    monkeypatch.setattr(doctor, "_LEAST_FREE", 1 << 62)
    found = checks(treering, expected=2)["disk"]
    assert (found["state"], found["remedy"]) == ("fault", "make space: a full disk ends a training")


def test_every_extra_that_a_user_may_need_is_a_role():
    extras = set(metadata.metadata("treering").get_all("Provides-Extra"))
    assert set(doctor._ROLES) == extras - {"docs", "test"}


def lay_project(root, text='{"text": "one"}\n'):
    (root / "a.jsonl").write_text(text)
    begin(Project(root), "mine", ["a.jsonl"], minimal=True)


def test_a_folder_without_a_project_names_the_command(treering):
    found = checks(treering)["project"]
    assert (found["state"], found["remedy"]) == ("missing", "`treering init --data PATH` writes one")


def test_an_experiment_that_does_not_load_is_a_fault(treering, tmp_path):
    lay_project(tmp_path)
    assert checks(treering)["experiments/mine.yaml"]["state"] == "ready"
    with (tmp_path / "experiments/mine.yaml").open("a") as file:
        file.write("colour: red\n")
    found = checks(treering, expected=2)["experiments/mine.yaml"]
    assert (found["state"], "colour: found an unknown key" in found["text"]) == ("fault", True)


def test_wheels_need_pip(treering, tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()
    shutil.copy(ROOT / "experiments/demo.yaml", tmp_path / "experiments")
    assert "pip" not in checks(treering)
    monkeypatch.setattr("treering.setup.checks.find_spec", lambda _: None)
    assert checks(treering)["pip"]["remedy"] == "python -m ensurepip"


def test_what_the_pipeline_lacks_is_a_fault(treering, tmp_path, monkeypatch):
    lay_project(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    assert "in no repository of DVC" in checks(treering, expected=2)["dvc.yaml"]["text"]
    (tmp_path / ".dvc").mkdir()
    monkeypatch.setattr("treering.setup.checks.shutil.which", lambda _: None)
    assert "`treering`, which is not in PATH" in checks(treering, expected=2)["dvc.yaml"]["text"]


def test_stages_whose_code_changed_are_named(treering, tmp_path):
    lay_project(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / ".dvc").mkdir()
    record = version_record()
    record["stages"]["blend"] = "sha256:other"
    (tmp_path / "data").mkdir()
    (tmp_path / "data/version.json").write_text(json.dumps(record))
    assert checks(treering)["stages"]["text"] == "other code than the last `dvc repro` ran: blend run again"


@pytest.fixture
def answering():
    """A server that asks for a password, as MLflow's with its authentication does."""

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            right = self.headers.get("Authorization") == "Basic " + b64encode(b"me:pass@word").decode()
            self.send_response(200 if right and self.path == "/health" else 401)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_mlflow_is_asked_with_the_password_of_its_address(treering, monkeypatch, answering):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:pass%40word@127.0.0.1:{answering}/")
    found = checks(treering)["MLflow"]
    assert (found["state"], "pass" in found["text"]) == ("ready", False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:wrong@127.0.0.1:{answering}")
    text = checks(treering, expected=2)["MLflow"]["text"]
    assert "answers 401 Unauthorized; correct user and password in it: MLFLOW_TRACKING_URI" in text
    assert "wrong" not in text


@pytest.mark.parametrize(
    ("place", "address", "words"),
    [
        (("MLflow", "MLFLOW_TRACKING_URI"), "http://me:SECRET@127.0.0.1:9", "does not answer ([Errno 111]"),
        (("MLflow", "MLFLOW_TRACKING_URI"), "postgresql://me:SECRET@127.0.0.1:9/x", "expected a server that answers"),
        (("ledger", "TREERING_DATABASE_URL"), "postgresql://me:SECRET@127.0.0.1:9/x", "expected a server that answers"),
        (("ledger", "TREERING_DATABASE_URL"), "no address", "expected the URL of a database in TREERING_DATABASE_URL"),
        (("store", "TREERING_STORE_URL"), "nothing://x", "no object store"),
        (("data", "TREERING_DATA_URL"), "s3://", "names no bucket"),
    ],
)
def test_a_place_that_does_not_answer_is_a_fault(treering, monkeypatch, place, address, words):
    name, variable = place
    monkeypatch.setenv(variable, address)
    found = checks(treering, expected=2)[name]
    assert (found["state"], words in found["text"], "SECRET" in found["text"]) == ("fault", True, False), found


def test_places_that_answer(treering, tmp_path, monkeypatch):
    monkeypatch.setenv("TREERING_DATABASE_URL", f"sqlite:///{tmp_path}/ledger.db")
    monkeypatch.setenv("TREERING_STORE_URL", str(tmp_path))
    found = checks(treering)
    assert (found["ledger"]["state"], found["store"]["state"]) == ("ready", "ready")
    assert not (tmp_path / "ledger.db").exists(), "it only looks"
