"""What must never happen to the repository, as tests."""

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "streamlit", "deepspeed", "megatron", "mlflow", "transformers")


def test_nothing_shadows_the_standard_library_module_platform():
    assert not (ROOT / "platform" / "__init__.py").exists()
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    shadows = [
        name
        for name in tracked.stdout.split()
        if Path(name).name == "platform.py" or name.endswith("platform/__init__.py")
    ]
    assert shadows == []


def test_the_standard_library_module_platform_is_what_platform_imports():
    code = "import platform; print(platform.python_version())"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == sys.version.split()[0]


def test_treering_and_its_command_line_import_without_the_heavy_packages():
    code = (
        "import pkgutil, importlib, sys, treering\n"
        "for package in ('cli', 'config', 'runlog', 'collect'):\n"
        "    for module in pkgutil.walk_packages([f'{treering.__path__[0]}/{package}'], f'treering.{package}.'):\n"
        "        importlib.import_module(module.name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_torch_unpickles_nothing_but_weights():
    """Loading by pickle runs whatever code a file holds; ruff bans the name, this its argument."""
    holders = subprocess.run(
        ["git", "grep", "-lE", r"load\b", "--", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    calls = [
        (name, {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("weights_only"))
        for name in holders.stdout.split()
        for node in ast.walk(ast.parse((ROOT / name).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load"
        if ast.unparse(node.func) in {"torch.load", "torch.serialization.load", "serialization.load"}
    ]
    assert calls == [("trainer/treering_trainer/checkpointing/weights.py", "True")]


def test_the_packages_pynvml_and_nvidia_ml_py_are_never_both_installed():
    importlib.metadata.version("nvidia-ml-py")
    with pytest.raises(importlib.metadata.PackageNotFoundError, match="pynvml"):
        importlib.metadata.version("pynvml")


def test_every_requirement_is_pinned_by_the_constraints():
    import re
    import tomllib

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normal(line.split("==")[0]) for line in lines if "==" in line}
    names = {normal(re.match(r"[A-Za-z0-9._-]+", line)[0]) for line in wanted}
    assert names - pinned == set()
    assert all("==" in line for line in lines if line and not line.startswith("#"))
