"""Copies of run folders brought back from a store: verified, marked, and written by nothing else."""

import json
from pathlib import Path

import pytest
from copies import bring, copied_files, index_of, objects, pass_over, whole

from treering.errors import EvidenceError, NotFoundError, UserError
from treering.objects import ObjectStore
from treering.runlog.directory import RunDirectory
from treering.runlog.journal import Noted
from treering.runlog.lock import acquire
from treering.ship.copy_target import Copies
from treering.ship.mirror import MirrorOf


def test_a_mirror_has_the_evidence_byte_by_byte_and_nothing_else(url, write_run, here):
    run = whole(write_run).run
    report = pass_over(url, run)
    assert report.sent == {"file": 9}
    brought = bring(url, here, run)
    assert (brought.files, brought.mirror.missing, brought.mirror.state) == (9, (), "finished")
    mirrored = RunDirectory(here.run(run.path.name))
    expected = copied_files(run.path)
    assert copied_files(mirrored.path) == expected
    assert sorted(expected) == [
        "attempts/0001/end.json",
        "attempts/0001/header.json",
        "attempts/0001/incidents.jsonl",
        "attempts/0001/rings.jsonl",
        "attempts/0001/telemetry/rank-0.jsonl",
        "checkpoints/step-00000010/manifest.json",
        "evaluations/step-00000010.json",
        "journal.jsonl",
        "resolved.json",
    ]
    assert {path.stat().st_mode & 0o777 for path in mirrored.path.rglob("*.json*") if path.name != "mirror.json"} == {
        0o444
    }
    assert [ring.step for ring in mirrored.path_rings()] == list(range(1, 11))
    times = {name: (run.path / name).stat().st_mtime_ns for name in expected}
    assert {name: (mirrored.path / name).stat().st_mtime_ns for name in expected} == times
    again = bring(url, here, run)
    assert (again.files, again.num_bytes) == (0, 0)


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_bad_part_is_named_and_the_rest_arrives(folder_url, write_run, here, damage):
    writer = write_run().start().lay(2)
    shipper = Copies(folder_url, "tiny").shipper(writer.run)
    shipper.ship()
    first = (writer.directory / "rings.jsonl").read_bytes()
    writer.lay(2)
    shipper.ship()
    writer.lay(2).end()
    shipper.ship()
    bad = objects(folder_url, writer.run, "attempts/0001/rings.jsonl")[1]
    good = bad.read_bytes()
    bad.unlink() if damage == "missing" else bad.write_bytes(good.replace(b"4", b"5"))
    mirror = bring(folder_url, here, writer.run).mirror
    (missing,) = mirror.missing
    assert missing.model_dump() == {
        "file": "attempts/0001/rings.jsonl",
        "offset": len(first),
        "size": len(good),
        "problem": damage,
    }
    assert f"attempts/0001/rings.jsonl from byte {len(first)} on is {damage} in the store" in mirror.doubt()
    there = here.run(writer.run.path.name)
    assert (there / "attempts/0001/rings.jsonl").read_bytes() == first
    assert (there / "attempts/0001/end.json").exists()
    bad.write_bytes(good)
    assert bring(folder_url, here, writer.run).mirror.missing == ()
    assert copied_files(there) == copied_files(writer.run.path)


def test_a_mirror_that_was_killed_goes_on(folder_url, write_run, here, monkeypatch):
    writer = whole(write_run)
    pass_over(folder_url, writer.run)
    get, left = ObjectStore.get, iter(range(4))

    def killed(self, name):
        if next(left, None) is None:
            raise KeyboardInterrupt("killed")
        return get(self, name)

    monkeypatch.setattr(ObjectStore, "get", killed)
    with pytest.raises(KeyboardInterrupt, match="killed"):
        bring(folder_url, here, writer.run)
    monkeypatch.setattr(ObjectStore, "get", get)
    half = RunDirectory(here.run(writer.run.path.name))
    assert "not all of it was brought yet: `treering mirror` goes on" in half.mirror.doubt()
    there = half.path / "attempts/0001/rings.jsonl"
    there.chmod(0o644)
    there.write_bytes(there.read_bytes()[:-100])  # torn by the kill
    assert bring(folder_url, here, writer.run).mirror.complete
    assert copied_files(half.path) == copied_files(writer.run.path)


@pytest.mark.parametrize("other", [b"", b"something else"])
def test_a_mirror_whose_log_was_changed_is_brought_again(folder_url, write_run, here, other):
    writer = write_run().start().lay(3)
    pass_over(folder_url, writer.run)
    bring(folder_url, here, writer.run)
    there = here.run(writer.run.path.name) / "attempts/0001/rings.jsonl"
    content = there.read_bytes()
    there.chmod(0o644)
    there.write_bytes(other + content[len(other) : len(content) // 2])
    bring(folder_url, here, writer.run)
    assert there.read_bytes() == content


def test_nothing_else_writes_to_a_mirror(folder_url, write_run, here):
    writer = whole(write_run)
    pass_over(folder_url, writer.run)
    bring(folder_url, here, writer.run)
    mirrored = RunDirectory(here.run(writer.run.path.name))
    with pytest.raises(UserError, match="is a mirror of a run"):
        mirrored.journal.append(Noted(at=1.0, by="me", text="here"))
    with pytest.raises(UserError, match="is a mirror of a run"):
        mirrored.evaluation_journal.append(Noted(at=1.0, by="me", text="here"))
    with pytest.raises(UserError, match="is a mirror of a run"):
        acquire(mirrored.lock)
    assert Copies(folder_url, "tiny").shipper(mirrored) is None


def test_a_run_of_its_own_is_never_replaced_by_a_mirror(folder_url, write_run, project):
    writer = whole(write_run)
    pass_over(folder_url, writer.run)
    with pytest.raises(UserError, match="is a run of this project, and no mirror"):
        bring(folder_url, project, writer.run)


def test_a_mirror_that_was_killed_before_its_mark_goes_on(folder_url, write_run, here):
    run = whole(write_run).run
    pass_over(folder_url, run)
    folder = here.run(run.path.name)
    folder.mkdir(parents=True)
    (folder / ".mirror.json.tmp").touch()
    assert bring(folder_url, here, run).files == 9
    assert RunDirectory(folder).state() == "finished"


def test_a_project_is_chosen_by_name(folder_url, write_run):
    writer = write_run().start().lay(1)
    with pytest.raises(NotFoundError, match="holds these projects: none"):
        MirrorOf(ObjectStore(folder_url))
    pass_over(folder_url, writer.run)
    assert MirrorOf(ObjectStore(folder_url)).runs() == [writer.run.path.name]
    Copies(folder_url, "other").shipper(writer.run).ship()
    with pytest.raises(NotFoundError, match="holds these projects: other, tiny; expected one, or `--project NAME`"):
        MirrorOf(ObjectStore(folder_url))
    with pytest.raises(NotFoundError, match="has no project third, but: other, tiny"):
        MirrorOf(ObjectStore(folder_url), "third")


@pytest.mark.parametrize("name", ["../outside.json", "/etc/passwd.json", "lock", "logs/rank-0.json", "mirror.json"])
def test_a_store_cannot_write_elsewhere(folder_url, write_run, here, name):
    writer = write_run().start().lay(1)
    pass_over(folder_url, writer.run)
    index = index_of(folder_url, writer.run)
    file = index.files["resolved.json"]
    forged = index.model_copy(update={"files": {name: file}})
    Path(folder_url, "tiny", writer.run.path.name, "copied.json").write_text(forged.text()[0])
    with pytest.raises(EvidenceError, match="no run has a file"):
        bring(folder_url, here, writer.run)
    assert not here.root.exists()


def test_a_damaged_index_is_named(folder_url, write_run, here):
    writer = write_run().start().lay(1)
    pass_over(folder_url, writer.run)
    index = Path(folder_url, "tiny", writer.run.path.name, "copied.json")
    document = json.loads(index.read_text())
    document["at"] += 1
    index.write_text(json.dumps(document))
    with pytest.raises(EvidenceError, match=r"copied\.json: digest .* is written"):
        bring(folder_url, here, writer.run)
