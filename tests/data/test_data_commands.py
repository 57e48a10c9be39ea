import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from treering.cli import app
from treering.errors import NotFoundError

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "experiments" / "demo.yaml"


class Commands:
    """The commands in a project of one corpus, your own, with the demo's other sections."""

    def run(self, *arguments: str) -> str:
        sets = [
            'corpora=[{name: own, licence: CC0-1.0, jsonl: own.jsonl}, {name: b, licence: "?", declared_tokens: 9}]',
            'blend.components=[{corpus: own, weight: "1"}]',
            "curation.num_processes=1",
            "curation.heldout.fraction=0.1",
            "tokenizer.vocabulary_size=600",
        ]
        options = [part for value in sets for part in ("--set", value)]
        result = CliRunner().invoke(app, [*arguments, str(DEMO), *options], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture
def commands(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Commands:
    lines = "".join(json.dumps(row) + "\n" for row in tiny.rows)
    (tiny.project.root / "own.jsonl").write_text(lines, encoding="utf-8")
    monkeypatch.chdir(tiny.project.root)
    return Commands()


def test_own_text_becomes_a_corpus(commands: Commands) -> None:
    assert "own.jsonl" in commands.run("fetch")
    output = commands.run("curate")
    assert "tasks            lambada:" in output
    assert "data/curated/decisions/" in output
    manifests = json.loads(commands.run("tokenize", "--json"))
    assert manifests["own"]["train"]["num_documents"] + manifests["own"]["heldout"]["num_documents"] <= 40
    assert Path("data/corpora/train/own/corpus.bin").stat().st_size == 2 * manifests["own"]["train"]["num_tokens"]


def test_json_is_all_there_is_on_standard_output(commands: Commands) -> None:
    [entry] = json.loads(commands.run("fetch", "--json"))["files"]
    assert entry["bytes"] == os.stat("own.jsonl").st_size  # noqa: PTH116 - one number
    assert json.loads(commands.run("curate", "--json"))["total"]["documents"] == 40


def test_fetch_from_takes_the_own_file_too(commands: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "media"
    folder.mkdir()
    Path("own.jsonl").rename(folder / "own.jsonl")
    assert "own.jsonl" in commands.run("fetch", "--from", str(folder))
    with pytest.raises(NotFoundError, match="is not a directory, expected the folder"):
        commands.run("fetch", "--from", "nowhere")
