"""`treering audit --megatron-run` where something decides the order that the checkpoint does not hold."""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from treering.audit.megatron.run import AuditedRun
from treering.cli import app, commands

CASES = Path(__file__).with_name("megatron_cases")


@pytest.fixture
def case(tmp_path, monkeypatch):
    """Copies a case and makes its folder the working directory, as the run's was."""

    def copied(name):
        shutil.copytree(CASES / name, tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        return tmp_path / name

    return copied


def call(*arguments):
    app.registered_commands.clear()
    commands.register(app)
    return CliRunner().invoke(app, ["audit", "--megatron-run", *map(str, arguments)], env={"COLUMNS": "200"})


def test_a_file_of_data_paths_is_not_bound(case):
    case("args-file-edited")
    os.utime("blend.txt", (1, 1))
    report = AuditedRun.open(Path("ckpt")).report()
    assert (report.level, report.verdict) == ("declared", "declared: 10 steps; 1 input is not bound")
    (unbound,) = report.unbound
    assert unbound.what == "blend.txt: the file of data paths (--data-args-path)"
    assert "was changed after" not in unbound.why
    os.utime("blend.txt")
    (unbound,) = AuditedRun.open(Path("ckpt")).unbound
    assert "It was changed after the checkpoint was written." in unbound.why
    result = call("ckpt")
    assert result.exit_code == 3
    assert result.stdout.startswith("NOT BOUND    blend.txt")
    assert "Give `data` in megatron-run.yaml" in result.stdout
    told = json.loads(call("ckpt", "--step", 1, "--json").stdout)
    assert (told["level"], len(told["unbound"]), told["findings"]) == ("declared", 1, [])


def test_a_description_binds_what_the_checkpoint_only_points_to(case):
    folder = case("args-file-edited")
    data = [{"prefix": "data/wiki", "weight": 0.5}, {"prefix": "data/books", "weight": 0.5}]
    (folder / "megatron-run.yaml").write_text(yaml.safe_dump({"checkpoint": "ckpt", "data": data, "split": "1"}))
    report = AuditedRun.open(folder).report()
    assert (report.level, report.unbound) == ("re-derived", ())
    assert {usage.corpus: usage.samples for usage in report.corpora} == {"data/wiki": 40, "data/books": 40}
    assert call(".").exit_code == 0
