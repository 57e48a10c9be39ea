"""What is replaced is replaced by `treering.files`: a power cut leaves the old content or the new one, whole."""

import ast
from pathlib import Path

import pytest

from treering.files import rename_durably, replace_durably, write_durably

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("platform", "trainer") for path in (ROOT / folder).rglob("*.py"))
STAGE = "a new folder that a stage of DVC renames whole: a stage that was killed runs again, and DVC digests its files"
SCRATCH = "scratch of the stage curate, which removes what a killed stage left"
EXCEPTIONS = {
    "platform/treering/files.py": "the functions themselves",
    "platform/treering/cli/help.py": "texts of a help, which are printed",
    "platform/treering/cli/serving.py": "a log, which grows",
    "platform/treering/apart.py": "a log, which grows",
    "platform/treering/ship/mirror.py": "logs, which grow; other files beside their place, for `replace_durably`",
    "platform/treering/record/command.py": "a log, which grows",
    "platform/treering/collect/doctor.py": "a file that is removed at once: whether the folder can be written to",
    "platform/treering/runlog/extract.py": "in a new folder, which `replace_durably` syncs whole",
    "platform/treering/reproduce/capsule/unpack.py": "in a new folder, which `replace_durably` syncs whole",
    "platform/treering/store/sqlite_database.py": "moves a damaged database to a free name; nothing is replaced",
    "platform/treering/data/corpus/index_writer.py": STAGE,
    "platform/treering/data/corpus/write.py": STAGE,
    "platform/treering/data/curate/classifier.py": SCRATCH,
    "platform/treering/data/curate/disk_array.py": SCRATCH,
    "platform/treering/data/curate/finalize.py": STAGE,
    "platform/treering/data/curate/ingest.py": STAGE,
    "platform/treering/data/curate/judging.py": SCRATCH,
    "platform/treering/data/curate/pipeline.py": STAGE,
    "platform/treering/data/curate/shelf.py": SCRATCH,
    "platform/treering/data/curate/sorted_keys.py": SCRATCH,
    "platform/treering/data/curate/tasks.py": STAGE,
    "platform/treering/objects.py": "temporary files, whose bytes are digested on the way",
    "platform/treering/data/sources/fetch.py": "downloads, which the next fetch checks by their digests",
    "platform/treering/data/tokenize/stage.py": STAGE,
    "platform/treering/data/stored/pull.py": "in a folder beside, which `replace_durably` syncs whole",
    "platform/treering/data/ngram_index/build.py": "an index, which is built again; its lock",
    "trainer/treering_trainer/export/shards.py": "large files in a new folder, which `replace_durably` syncs whole",
    "trainer/treering_trainer/checkpointing/relayout.py": "a lock",
    "trainer/treering_trainer/launch/start.py": "why a rank ended, for the process that waits for it",
}
"""Files that write in another way, and why."""


def _mode(call):
    place = 0 if isinstance(call.func, ast.Attribute) else 1
    mode = call.args[place] if len(call.args) > place else None
    return mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else ""


def _writes(call):
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in {"write_text", "write_bytes"} or ast.unparse(call.func) in {"os.replace", "os.rename", "shutil.move"}:
        return True
    if name in {"replace", "rename"} and isinstance(call.func, ast.Attribute):
        return len(call.args) == 1 and not call.keywords  # of a path; `str.replace` takes two
    return name == "open" and bool(set(_mode(call)) & set("wxa"))


def test_nothing_is_replaced_in_another_way():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _writes(node)
    }
    assert found == set(EXCEPTIONS)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("path.write_text('')", True),
        ("path.open('wb')", True),
        ("open(path, 'w')", True),
        ("os.replace(a, b)", True),
        ("a.replace(b)", True),
        ("path.open('rb')", False),
        ("open(path)", False),
        ("text.replace('a', 'b')", False),
        ("moment.replace(tzinfo=UTC)", False),
    ],
)
def test_what_counts_as_writing(code, expected):
    assert _writes(ast.parse(code).body[0].value) is expected


@pytest.fixture
def synced(monkeypatch):
    """The names of files and folders in the order in which they were synced or renamed."""
    done, replace = [], Path.replace

    def sync(descriptor):
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    def rename(path, target):
        done.append(f"rename {path.name} to {Path(target).name}")
        return replace(path, target)

    monkeypatch.setattr("os.fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    return done


def test_a_file_is_synced_before_it_has_its_name_and_its_folder_after(tmp_path, synced):
    (tmp_path / "a.txt").write_text("old")
    write_durably(tmp_path / "a.txt", "new")
    assert synced == ["sync .a.txt.tmp", "rename .a.txt.tmp to a.txt", f"sync {tmp_path.name}"]
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_is_synced_whole_and_the_old_one_removed(tmp_path, synced):
    for name, text in (("new", "1"), ("place", "0")):
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / "in" / "file").write_text(text)
    replace_durably(tmp_path / "new", tmp_path / "place")
    assert synced == [
        "sync new",
        "sync file",
        "sync in",
        "rename place to .place.replaced",
        "rename new to place",
        f"sync {tmp_path.name}",
    ]
    assert (tmp_path / "place" / "in" / "file").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_a_rename_into_another_folder_syncs_both(tmp_path, synced):
    (tmp_path / "to").mkdir()
    (tmp_path / "a").touch()
    rename_durably(tmp_path / "a", tmp_path / "to" / "b")
    assert synced == ["rename a to b", "sync to", f"sync {tmp_path.name}"]
