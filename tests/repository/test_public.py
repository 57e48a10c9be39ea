"""The public interface: what `import treering` and `treering.audit` export, and that docs describe it."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from audited_project import lay_project

import treering
from treering import audit
from treering.audit.documents.training import training_documents
from treering.runlog.find import find_runs

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.md")))
EXPORTS = [(package, name) for package in (treering, audit) for name in package.__all__]


def imported(package):
    """Names that the package imports for type checkers alone: module by name."""
    (block,) = (node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.If))
    return {alias.name: node.module for node in block.body for alias in node.names}


@pytest.mark.parametrize("package", [treering, audit])
def test_all_is_sorted_and_is_what_type_checkers_see(package):
    modules = imported(package)
    assert package.__all__ == sorted(package.__all__)
    assert set(package.__all__) == set(modules)
    assert set(package.__all__) <= set(dir(package))
    for name, module in modules.items():
        assert getattr(package, name) is getattr(sys.modules[module], name)


@pytest.mark.parametrize(("package", "name"), EXPORTS)
def test_every_export_is_documented(package, name):
    assert inspect.getdoc(getattr(package, name))
    if package is audit:
        assert re.search(rf"^::: treering\.audit\.[\w.]+\.{name}$|\b{name}\b", REFERENCE, re.MULTILINE)


def test_a_name_that_is_not_exported_is_named():
    with pytest.raises(AttributeError, match="module 'treering' has no attribute 'nonsense'"):
        _ = treering.nonsense


def test_the_import_alone_loads_no_library():
    code = "import sys, treering, treering.audit; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pydantic", "numpy", "pyarrow", "rich", "typer"} & set(done.stdout.split())


@pytest.mark.slow
def test_the_example_of_the_readme_lists_the_documents_of_a_checkpoint(tmp_path):
    lay_project(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True
    )
    verdict, *lines = done.stdout.splitlines()
    project = treering.Project(tmp_path)
    checkpoint = find_runs(project.runs)[-1].checkpoints()[-1]
    assert verdict == audit.audit_checkpoint(checkpoint, project).verdict
    documents = [row for batch in training_documents(checkpoint, project).batches() for row in batch.to_pylist()]
    assert lines == [" ".join(str(row[key]) for key in ("corpus", "id", "licence", "tokens_read")) for row in documents]
    assert len(lines) > 50
    assert len([line for line in example.splitlines() if line and not line.startswith(("from", "import"))]) <= 10
