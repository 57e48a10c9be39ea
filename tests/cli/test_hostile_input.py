"""Nasty texts times the commands that print them; files that are no files; outputs that take nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LICENCES = (r"[/x]|`#\x1b[31m", "[proprietary]", r"[red]MIT\nFAILED fake")
LONG = "x" * 5000


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("audit", "RUN"), LICENCES),
        (("batch", "RUN", "1"), ("[proprietary]",)),
        (("trace", "--document", "red:#0"), LICENCES[:1]),
        (("trace", "--licence", "[proprietary]", "--limit", "1"), LICENCES[1:2]),
        (("plan", "tiny.yaml"), (r"[bold]x[/] # | `y`\n<b>",)),
        (("verify",), ()),
        (("runs",), ()),
        (("show", "RUN", "--full"), ()),
        (("diff", "RUN", "RUN"), ()),
        (("spikes", "RUN", "3"), ()),
    ],
)
def test_foreign_text_is_printed_as_it_is(words, shown, nasty, treering):
    run = next((nasty / "runs").iterdir()).name
    code, output, errors = treering(*(run if word == "RUN" else word for word in words))
    assert (code, errors) == (0, "")
    for text in shown:
        assert text in output
    assert "\x1b" not in output
    assert not any(line.startswith("FAILED") for line in output.splitlines())


def test_a_summary_for_regulators_marks_nothing_up(nasty, treering, tmp_path):
    run = next((nasty / "runs").iterdir()).name
    assert treering("training-summary", run, "--output", tmp_path / "s.md")[0] == 0
    text = (tmp_path / "s.md").read_text()
    assert "\x1b" not in text
    assert r"\[/x\]&#124;\`\#\\x1b\[31m" in text
    assert r"\[red\]MIT\\nFAILED fake" in text


BAD_FILES = ["pipe", "/dev/zero", ".", LONG, "loop", "tiny.yaml/x", "no\x00name", "missing"]
READERS = [
    ("plan",), ("summary",), ("takedown",), ("trace", "--text"), ("audit", "--megatron-run"), ("verify",),
    ("verify", "--attestation"), ("attest", "RUN", "--key"), ("contamination", "RUN", "--tasks"), ("audit",), ("show",),
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES, ids=lambda name: name[:12].replace("\x00", "0"))
def test_a_file_that_is_none_is_one_clear_error(name, nasty, treering, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    place = str(tmp_path / name) if name in {"pipe", "loop", "missing"} else name
    run = next((nasty / "runs").iterdir()).name
    for words in READERS:
        if (words, name) == (("verify",), "."):
            continue  # a folder is what `verify` takes
        code, output, errors = treering(*(run if word == "RUN" else word for word in words), place)
        assert code in {2, 3}, (words, output, errors)
        assert errors.startswith("treering: ") or "FAILED" in output, (words, output, errors)
        assert "Traceback" not in errors
        assert "a fault in Treering" not in errors, errors
        assert len(errors) < 2500, "a long name is shortened"


BAD_OUTPUTS = ["/dev/full", ".", "tiny.yaml/x", LONG, "/proc/no-such", "missing/x"]


@pytest.mark.parametrize("name", BAD_OUTPUTS, ids=lambda name: name[:12])
@pytest.mark.parametrize(
    "words",
    [("bom", "RUN", "--output"), ("training-summary", "RUN", "--output"), ("keygen",)],
    ids=lambda words: words[0],
)
def test_an_output_that_cannot_be_written_is_one_clear_error(words, name, nasty, treering):
    run = next((nasty / "runs").iterdir()).name
    code, _, errors = treering(*(run if word == "RUN" else word for word in words), name)
    assert code == 2, errors
    assert errors.startswith("treering: ")
    assert "a fault in Treering" not in errors
    assert Path("/dev/full").is_char_device(), "a device stays a device"


@pytest.mark.parametrize("port", ["99999", "-1", "0", "x", "9" * 30])
def test_a_port_that_is_none(port, nasty, treering):  # noqa: ARG001
    code, _, errors = treering("up", "--port", port)
    assert code == 2
    assert "`treering up --help` shows its arguments and options" in errors


def _process(arguments, **options):
    command = [sys.executable, "-c", "from treering.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=300, **options)


@pytest.mark.slow
def test_a_closed_pipe_a_full_and_a_closed_output_end_quietly(nasty):  # noqa: ARG001
    code = "import sys; from treering.cli import main; main()"
    shell = f"{sys.executable} -c '{code}' audit runs/* | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("checkpoint ")
    assert done.stdout.splitlines()[1] in {"141", "0"}, "0 where the pipe took everything"
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-c", code, "runs"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stderr == "treering: No space left on device; free space on that disk, or write to another one\n"
    closed = f"{sys.executable} -c '{code}' runs >&- 2>&- <&-"
    assert subprocess.run(["bash", "-c", closed], check=False, timeout=300).returncode == 0


def test_a_terminal_without_unicode_and_without_a_home(nasty):  # noqa: ARG001
    run = next(Path("runs").iterdir()).name
    bare = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii", "TERM": "dumb", "COLUMNS": "20", "LANG": "C"}
    done = _process(["show", run, "--full"], env=bare)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u2192" in done.stdout


def test_the_working_directory_is_gone(tmp_path):
    code = "import os; os.rmdir(os.getcwd()); from treering.cli import main; main()"
    (tmp_path / "gone").mkdir()
    command = [sys.executable, "-c", code, "runs"]
    done = subprocess.run(command, cwd=tmp_path / "gone", capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stderr == "treering: the working directory is gone; change to a folder that exists\n"


def test_a_problem_is_reported_once(nasty_root, treering, tmp_path, monkeypatch):
    shutil.copytree(nasty_root, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    shutil.rmtree("data/corpora/train/red")
    run = next(Path("runs").iterdir()).name
    code, output, _ = treering("audit", run, "--verify")
    assert code == 3
    assert output.count("corpora/train/red: no such directory") == 1
