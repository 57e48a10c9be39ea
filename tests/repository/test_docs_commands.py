"""Every `treering` command and every Python block of the README and of docs/ runs as written, in a small project.

The `experiments/demo.yaml` of the project is a tiny experiment whose run is trained. Only words in capitals are filled
in, by `PLACEHOLDERS`. A command that this file knows nothing about is run as well, and fails the test if it fails.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from treering.runlog.directory import RunDirectory

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NOT_RUN = {
    "treering up": "it serves until Ctrl-C; tests/ship/test_up.py starts and ends it",
    "treering ship --follow": "it follows until it is ended; tests/ship starts and ends it",
    "treering bias": "its prompts are longer than the sequence here; tests/evaluate/test_bias_command.py measures",
    "treering hans": "the project has no such task; tests/dashboard/test_bias_page.py has one",
    "treering push": "it needs an S3 server; tests/data/test_pushed.py has one",
    "treering pull": "likewise",
    "treering decision": "the project was not curated; tests/audit/test_planted_duplicates.py has one that was",
    "treering fetch": "it downloads wheels; tests/data/test_fetch.py reads a registry of its own",
    "treering curate experiments/demo.yaml --engine ray": "tests/data/test_ray_engine.py has a cluster",
    "treering tokenize experiments/demo.yaml --engine ray": "likewise",
    "treering launch experiments/demo.yaml --hostfile hosts": "it starts ranks on other nodes; with --dry-run it runs",
    "treering launch experiments/demo.yaml --slurm": "it submits a job to Slurm; tests/launch has a Slurm of its own",
    "treering train --sweep": "it trains six runs; tests/trainer/test_sweep.py trains twelve",
    "treering report": "it needs what every stage of the pipeline leaves; tests/report makes such a project",
    "treering train …": "it is no complete command",
    "treering reproduce run.zip": "its run is in this project; tests/trainer/test_capsule.py has an empty folder",
    "treering audit --megatron-run": "it needs a run of Megatron; tests/audit/test_megatron_run.py makes some",
    "treering audit RUN --megatron-run": "it needs a recorded run of Megatron; tests/adapters/test_megatron.py has one",
}
"""Commands that need what a test has not, by their beginning; a command with --dry-run runs all the same."""

PLACEHOLDERS = {
    "--attestation FILE": "published.attestation.json",
    "--public-key FILE": "signer.pub.pem",
    "--text FILE": "quote.txt",
    "--by KEY": "experiment",
    "takedown LIST": "takedown.txt",
    "CORPUS:ID": "letters:letters-0",
    "CONFIG": "experiments/demo.yaml",
    "STEP": "5",
    "TOKENS": "3840",
    "WEIGHTS": "[{corpus: letters, weight: 0.4}, {corpus: numbers, weight: 0.6}]",
}
"""What a word in capitals stands for, alone or behind the word before it; RUN and others follow from the project."""


def commands_of(page):
    """The commands of a page in their order: lines of code blocks, and those with arguments between backticks."""
    found = []
    for block, inline in re.findall(
        r"^```\w*\n(.*?)^```|`(treering\s[^`]+)`", page.read_text(), re.MULTILINE | re.DOTALL
    ):
        if inline:
            words = inline.split()
            # A command's name alone, in a sentence or a table, speaks of the command.
            if len(words) > 2 or (len(words) == 2 and words[1].isupper()):
                found.append(" ".join(words))
            continue
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            command = re.sub(r"\s+#\s.*", "", line).strip()
            if command.startswith("treering "):
                found.append(command)
    return found


def test_no_reason_is_left_over():
    every = [command for page in PAGES for command in commands_of(page)]
    assert len(every) > 40
    for beginning in NOT_RUN:
        assert any(command.startswith(beginning) for command in every), beginning


class Commands:
    """A process that runs commands in a folder."""

    def __init__(self, root):
        self.root = root
        self.log = root.parent / "command.log"
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/support/command_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(self, words):
        """The exit code and what was printed."""
        request = {"words": words, "cwd": str(self.root), "log": str(self.log), "environ": {"COLUMNS": "100"}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()), self.log.read_text(errors="replace")

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=300)


@pytest.fixture
def root(scored_project, tmp_path):
    """A project as a reader of the docs has it: the experiment, its trained run, and the files that the docs name."""
    root = tmp_path / "project"
    shutil.copytree(scored_project.root, root)
    (root / "experiments").mkdir()
    shutil.move(root / "scored.yaml", root / "experiments/demo.yaml")
    shutil.copy(ROOT / "experiments/mt-nlg-530b.yaml", root / "experiments")
    shutil.copytree(ROOT / "experiments/ablations", root / "experiments/ablations")
    (root / "prompt.txt").write_text("bal ")
    document = json.loads((root / "data/curated/train/letters.jsonl").read_text().splitlines()[0])
    (root / "quote.txt").write_text(document["text"])
    (root / "texts").mkdir()
    (root / "texts/letters.jsonl").write_text(json.dumps({"text": document["text"]}) + "\n")
    (root / "takedown.txt").write_text("document letters:letters-0\n")
    (root / "hosts").write_text("node-a slots=2\nnode-b slots=2\n")
    return root


def filled(command, values):
    """The words of a command, those in capitals filled in."""
    words = shlex.split(command)[1:]
    for position, word in enumerate(words):
        lead = words[position - 1] if position else ""
        if f"{lead} {word}" in values:
            words[position] = values[f"{lead} {word}"]
            continue
        for name, value in values.items():
            pattern = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
            words[position] = re.sub(pattern, lambda _hit, value=value: value, words[position])
    return words


@pytest.mark.slow
@pytest.mark.trainer
def test_every_command_runs_as_it_is_written(root):
    (folder,) = (path.parent for path in (root / "runs").glob("*/resolved.json"))
    run = RunDirectory(folder)
    checkpoint = run.checkpoints()[0]
    values = {
        **PLACEHOLDERS,
        "CHECKPOINT": str(checkpoint.path.relative_to(root)),
        "RUN": folder.name,
        "DIGEST": checkpoint.digest,
    }
    server, failed, done = Commands(root), [], set()
    try:
        assert server.run(["index"])[0] == 0  # the pages ask for it before questions about texts
        for page in PAGES:
            for command in commands_of(page):
                waived = any(command.startswith(each) for each in NOT_RUN) and "--dry-run" not in command
                if command in done or waived:
                    continue
                done.add(command)
                code, printed = server.run(filled(command, values))
                if code or "Traceback" in printed:
                    failed.append(f"{page.name}: {command}\n  exit {code}: {printed[-600:]}")
    finally:
        server.end()
    # Python last: it reads what the commands left, such as an exported model.
    for page in PAGES:
        for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
            if ran.returncode:
                failed.append(f"{page.name}: {code}\n  exit {ran.returncode}: {ran.stderr[-600:]}")
    assert not failed, "\n".join(failed)
