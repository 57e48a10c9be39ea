"""The code behind each stage of the data: every module of `treering.data` that the stage runs."""

from pathlib import Path

import grimp
import pytest

from treering.setup.stage_code import STAGE_SOURCES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("treering", cache_dir=None)


@pytest.mark.parametrize(
    ("stage", "module", "without"),
    [
        ("curate", "treering.data.curate.pipeline", ()),
        # Where shards are done never changes a byte.
        ("tokenize", "treering.data.tokenize.stage", ("treering.data.curate", "treering.data.sources")),
    ],
)
def test_a_stage_depends_on_every_module_that_it_runs(
    graph: grimp.ImportGraph, stage: str, module: str, without: tuple[str, ...]
) -> None:
    declared = tuple(STAGE_SOURCES[stage])
    run = {module} | graph.find_upstream_modules(module)
    paths = {
        f"platform/{each.replace('.', '/')}.py"
        for each in run
        if each.startswith("treering.data.") and not each.startswith(without or "-")
    }
    missing = [path for path in sorted(paths) if (ROOT / path).exists() and not path.startswith(declared)]
    assert missing == []
