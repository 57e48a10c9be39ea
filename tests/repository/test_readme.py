"""The README's commands: each exists and takes its arguments; those that cost nothing run on a small project."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from treering.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = (README, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def lines_of(text, program):
    """Command lines of a program in code blocks and between backticks, comments cut off."""
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    inline = re.findall(rf"`({program} [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = [line.split("  #")[0].split(" # ")[0].strip() for line in re.sub(r"\\\n\s*", "", blocks).splitlines()]
    return [line for line in (*found, *(" ".join(each.split()) for each in inline)) if line.startswith(f"{program} ")]


def every(program):
    return sorted({line for text in DOCS for line in lines_of(text, program)})


def test_the_readme_shows_the_commands_of_a_tour():
    words = {line.split()[1] for line in lines_of(README, "treering")}
    assert {"runs", "show", "audit", "batch", "plan", "up", "fetch"} <= words
    assert {"make demo", "make test", "make ablation"} <= set(lines_of(README, "make"))


@pytest.mark.parametrize("line", every("treering"))
def test_a_documented_command_exists_and_takes_its_arguments(line):
    words = [{"STEP": "1", "DIR": ".", "…": ""}.get(word, word) for word in shlex.split(line)[1:]]
    name, *arguments = [word for word in words if word]
    if name == "--help":
        return
    command = typer.main.get_command(app).commands[name]
    if hasattr(command, "commands") and arguments:
        name, *arguments = arguments
        command = command.commands[name]
    required = [p for p in command.params if p.param_type_name == "argument" and p.required]
    if not arguments and required:
        return  # named in a sentence, without what it would need
    context = command.make_context(name, arguments)
    assert context.params


@pytest.mark.parametrize("line", every("make"))
def test_a_documented_make_target_exists(line):
    targets = [word for word in shlex.split(line)[1:] if "=" not in word]
    assert targets
    assert set(targets) <= TARGETS


@pytest.mark.slow
@pytest.mark.trainer
def test_the_tour_runs_on_a_small_project(scored_project, scored_run, monkeypatch):
    monkeypatch.chdir(scored_project.root)
    (scored_project.root / "experiments").mkdir(exist_ok=True)
    shutil.copy(ROOT / "experiments/mt-nlg-530b.yaml", scored_project.root / "experiments")
    tour = "\n".join(re.findall(r"^```\w*\n.*?^```", README, flags=re.MULTILINE | re.DOTALL))
    cheap = [
        line for line in lines_of(tour, "treering") if line.split()[1] in {"runs", "show", "audit", "batch", "plan"}
    ]
    assert len(cheap) == 5
    for line in cheap:
        words = [{"RUN": scored_run.name[:6], "STEP": "7"}.get(word, word) for word in shlex.split(line)[1:]]
        result = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, line
        document = json.loads(result.stdout)
        assert document, line
        if words[0] == "audit":
            assert document["verdict"] == "content-bound: 10 of 10 steps"
        people = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "80"})
        assert people.exit_code == 0, line
        assert "\x1b" not in people.stdout
