"""Every code block of the README and of docs/ is executed by a test, or has a reason not to be.

`test_docs_commands.py` runs the commands and the Python, `tests/audit/test_command.py` the Python of docs/audit.md,
`tests/trainer/test_hooks.py` installs the package of docs/trainer.md;
this file resolves the YAML and knows why the rest is not executed.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import treering
from treering.audit.promotion import required_level
from treering.config.load import load_experiment, validate_section
from treering.config.megatron import MegatronRun
from treering.config.schema import Experiment
from treering.config.settings import Settings, read_settings
from treering.config.sweep import SweepConfig
from treering.project import Project
from treering.runlog.recorded_directory import POINTER_FILE

ROOT = Path(__file__).parents[2]
OTHERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "experiments/benchmarks/README.md")]
PAGES = [*OTHERS, *sorted((ROOT / "docs").rglob("*.md"))]
KINDS = ("bash", "python", "yaml", "toml", "sql", "text")

NOT_EXECUTED = {
    "runs/<id>/resolved.json": "a listing of files",
    "run 31acda99dbbfd53c does": "output of a plan",
    "/run?run=<id>": "addresses of the dashboard; tests/dashboard opens them",
    "max(30 s, 5 · median": "a formula; tests/metrics computes it",
    "step = (m + p - 1)": "a formula; tests/plan computes it",
    "dgx001 slots=8": "a hostfile; test_docs_commands.py launches with one of its own",
    "select step, rule, count(*)": "SQL needs DuckDB, which nothing here depends on",
}
"""Blocks that are not code that could run, by their beginning."""

NOT_RUN = {
    "make ": "test_readme.py finds the target in the Makefile",
    ". .venv/bin/activate": "the tests run in that environment",
    "dvc remote add -d storage ": "tests/audit/test_s3_remote.py pushes to a real S3 server",
    "dvc push": "likewise",
    "ray start ": "tests/data/test_ray_engine.py has a cluster",
    "torchrun ": "it needs two nodes; tests/launch and tests/trainer start ranks by these variables",
}
"""Lines of bash blocks that test_docs_commands.py does not run, by their beginning."""

NEVER = "platform/__init__.py"
"""A file that pages name because it must not exist."""


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
            yield Block(str(page.relative_to(ROOT)), text[: found.start()].count("\n") + 1, found[1], found[2])


BLOCKS = list(blocks())


def of_kind(*kinds):
    found = [block for block in BLOCKS if block.kind in kinds]
    return pytest.mark.parametrize("block", found, ids=[block.place for block in found])


def test_every_block_is_of_a_known_kind():
    assert [(block.place, block.kind) for block in BLOCKS if block.kind not in KINDS] == []
    assert {block.kind for block in BLOCKS} == set(KINDS)


def test_no_code_hides_in_an_indented_block():
    for page in PAGES:
        if page.parent.name == "reference":
            continue  # options of mkdocstrings are indented
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"\n\n {4}\S.*", text) == [], page.name


@of_kind("text", "sql")
def test_what_is_not_executed_has_a_reason(block):
    assert any(block.text.startswith(beginning) for beginning in NOT_EXECUTED), block.place


@of_kind("bash")
def test_every_line_of_bash_is_run_or_has_a_reason(block):
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        assert line.startswith(("treering ", *NOT_RUN)), f"{block.place}: {line}"


def test_no_reason_is_left_over():
    for beginning in NOT_EXECUTED:
        assert any(block.text.startswith(beginning) for block in BLOCKS), beginning
    for beginning in NOT_RUN:
        assert any(line.startswith(beginning) for block in BLOCKS for line in block.text.splitlines()), beginning


@of_kind("yaml")
def test_yaml_resolves(block, tmp_path):
    """Sections of an experiment are put into the demo's, entries of a list behind its own."""
    document = yaml.safe_load(block.text)
    if set(document) <= set(Settings.model_fields):
        (tmp_path / "treering.yaml").write_text(block.text)
        assert read_settings(Project(tmp_path)).model_dump(exclude_unset=True, mode="json") == document
        for alias, level in document.get("promotion", {}).items():
            assert required_level(Project(tmp_path), alias).level == level
        return
    if set(document) == set(SweepConfig.model_fields):
        assert validate_section(tmp_path / "sweep.yaml", SweepConfig, document)
        return
    if not set(document) <= set(Experiment.model_fields):
        validate_section(tmp_path / "megatron-run.yaml", MegatronRun, document)
        return
    demo = yaml.safe_load((ROOT / "experiments/demo.yaml").read_text())
    for section, values in document.items():
        demo[section] = [*demo.get(section, []), *values] if isinstance(values, list) else values
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(demo))
    experiment = load_experiment(tmp_path / "experiment.yaml")
    for section, values in document.items():
        loaded = getattr(experiment, section)
        assert len(loaded) == len(demo[section]) if isinstance(values, list) else loaded


SETTINGS = [
    f"{name}={' '.join(value.split())}"
    for page in PAGES
    for name, value in re.findall(r"`([a-z_.]+): (\{[^`…]+\})`", page.read_text())
]
"""Settings between backticks whose value is a whole section, such as `checkpoint: {every_steps: 500}`."""


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_in_a_sentence_resolves(setting):
    precision = ["precision=fp16"] if "loss_scale" in setting else []
    assert load_experiment(ROOT / "experiments/demo.yaml", [*precision, setting])


def test_files_that_the_pages_name_exist():
    for page in PAGES:
        named = re.findall(r"`((?:platform|trainer|dashboard|experiments|tests|docs)/[\w./-]+)`", page.read_text())
        assert [name for name in named if not (ROOT / name).exists() and name != NEVER] == [], page.name


def test_modules_that_the_pages_name_exist():
    """A dotted name is a module, a name in the text of one, a public name, a file, or a tag of MLflow."""
    shipping = [path.read_text() for path in (ROOT / "platform/treering/ship").glob("*.py")]
    folders = {"treering": "platform", "treering_trainer": "trainer", "treering_dashboard": "dashboard"}
    for page in PAGES:
        for dotted in re.findall(r"`(treering(?:_trainer|_dashboard)?(?:\.\w+)+)`", page.read_text()):
            path, parts = ROOT / folders[dotted.split(".")[0]], dotted.split(".")
            if dotted == POINTER_FILE or (parts[0] == "treering" and parts[1] in treering.__all__):
                continue
            while parts and (path / parts[0]).is_dir():
                path /= parts.pop(0)
            if parts:
                path = path / f"{parts.pop(0)}.py"
                if not path.exists():
                    assert any(f'"{dotted}' in text for text in shipping), f"{page.name}: {dotted}"
                    continue
            if parts:
                assert re.search(rf"\b{parts[0]}\b", path.read_text()), f"{page.name}: {dotted}"


def test_the_architecture_names_every_package_in_the_order_of_the_import_borders():
    page = (ROOT / "docs/architecture.md").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["treering"])
    table = page[page.index("### `platform/treering/`") : page.index("### `trainer/treering_trainer/`")]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)[1:]
    assert [name for row in rows for name in re.findall(r"`(\w+)/?`", row)] == layers
    for package in (ROOT / "trainer/treering_trainer").glob("*/__init__.py"):
        assert f"`{package.parent.name}/`" in page
