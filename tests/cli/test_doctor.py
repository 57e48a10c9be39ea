"""`treering doctor` names what is missing, and what helps."""

import json
from importlib import metadata

import pytest

from treering.collect import doctor
from treering.errors import UserError


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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
