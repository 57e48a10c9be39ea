"""Copies of run folders, in a folder and on a real S3 server."""

import os
import time

import pytest
from copies import bring, copied_files, index_of, objects, pass_over, whole

from treering.errors import EvidenceError, StoreError, UserError
from treering.objects import ObjectStore
from treering.runlog.directory import RunDirectory
from treering.runlog.ring_file import compress
from treering.ship import copy
from treering.ship.copy_target import Copies


def test_what_grows_is_added_at_the_end(url, write_run, here):
    writer = write_run().hold().start().lay(3)
    shipper = Copies(url, "tiny").shipper(writer.run)
    shipper.ship()
    first = index_of(url, writer.run)
    assert first.state == "running"
    bring(url, here, writer.run)
    writer.lay(2)
    assert shipper.ship().sent == {"file": 1}
    rings = index_of(url, writer.run).files["attempts/0001/rings.jsonl"]
    assert rings.chunks[:1] == first.files["attempts/0001/rings.jsonl"].chunks
    assert len(rings.chunks) == 2
    brought = bring(url, here, writer.run)
    assert (brought.files, brought.num_bytes) == (1, rings.chunks[1].size)
    mirrored = RunDirectory(here.run(writer.run.path.name))
    assert [ring.step for ring in mirrored.attempts()[0].rings()] == [1, 2, 3, 4, 5]
    assert mirrored.state() == "running"
    assert "while it was running: what it wrote since is not here" in mirrored.mirror.doubt()
    writer.end().die()
    pass_over(url, writer.run)
    bring(url, here, writer.run)
    assert RunDirectory(mirrored.path).state() == "finished"


def test_nothing_new_asks_nothing_of_the_store(folder_url, write_run, monkeypatch):
    shipper = Copies(folder_url, "tiny").shipper(whole(write_run).run)
    shipper.ship()
    asked = []
    for method in ("get", "put", "remove", "folders"):
        monkeypatch.setattr(ObjectStore, method, lambda _self, *_, name=method: asked.append(name))
    assert not shipper.ship().news
    assert asked == []


def test_a_restart_reads_one_object_and_the_last_part(folder_url, write_run, monkeypatch):
    writer = write_run().start().lay(3)
    pass_over(folder_url, writer.run)
    for _ in range(5):
        writer.lay(1)
        pass_over(folder_url, writer.run)
    read, compared = [], []
    get, holds = ObjectStore.get, copy._holds
    monkeypatch.setattr(ObjectStore, "get", lambda self, name: read.append(name) or get(self, name))
    monkeypatch.setattr(copy, "_holds", lambda file, chunk: compared.append(chunk.offset) or holds(file, chunk))
    writer.lay(1)
    assert pass_over(folder_url, writer.run).sent == {"file": 1}
    assert read == [f"tiny/{writer.run.path.name}/copied.json"]
    chunks = index_of(folder_url, writer.run).files["attempts/0001/rings.jsonl"].chunks
    assert compared == [chunks[-2].offset]
    assert len(chunks) == 7


def test_a_torn_line_is_not_copied(folder_url, write_run):
    writer = write_run().start().lay(2)
    rings = writer.directory / "rings.jsonl"
    whole_bytes = rings.read_bytes()
    with rings.open("ab") as file:
        file.write(b'{"step":3,')
    pass_over(folder_url, writer.run)
    assert index_of(folder_url, writer.run).files["attempts/0001/rings.jsonl"].size == len(whole_bytes)


def test_what_a_power_cut_took_is_copied_again(url, write_run, here):
    writer = write_run().start().lay(2)
    pass_over(url, writer.run)
    kept = (writer.directory / "rings.jsonl").read_bytes()
    writer.lay(3)
    pass_over(url, writer.run)
    bring(url, here, writer.run)
    (writer.directory / "rings.jsonl").write_bytes(kept)
    writer.step = 2
    other = kept.splitlines(keepends=True)[0]  # what follows differs from what was copied
    with (writer.directory / "rings.jsonl").open("ab") as file:
        file.write(other)
    report = pass_over(url, writer.run)
    assert report.note == "attempts/0001/rings.jsonl differed from the copy, and was copied again"
    assert index_of(url, writer.run).files["attempts/0001/rings.jsonl"].rewritten == 1
    bring(url, here, writer.run)
    assert (here.run(writer.run.path.name) / "attempts/0001/rings.jsonl").read_bytes() == kept + other


def test_a_document_that_is_younger_than_a_look_waits_for_the_next(folder_url, write_run):
    """It may name a ring or an entry that the look, which saw the journals before, has not."""
    writer = whole(write_run)
    manifest = writer.run.path / "checkpoints/step-00000010/manifest.json"
    shipper = Copies(folder_url, "tiny").shipper(writer.run)
    future = time.time_ns() + 10**9
    os.utime(manifest, ns=(future, future))
    assert shipper.ship().sent == {"file": 8}
    os.utime(manifest, ns=(future - 2 * 10**9, future - 2 * 10**9))
    assert shipper.ship().sent == {"file": 1}
    manifest.write_text("newer")
    os.utime(manifest, ns=(future + 10**9, future + 10**9))
    assert shipper.ship().sent == {"file": 0}
    assert len(objects(folder_url, writer.run, "checkpoints/step-00000010/manifest.json")) == 1


def test_many_small_parts_become_one(folder_url, write_run, here, monkeypatch):
    monkeypatch.setattr(copy, "_MANY", 4)
    monkeypatch.setattr(copy, "_SMALL", 3000)
    monkeypatch.setattr(copy, "LARGE", 12_000)
    writer = write_run().start().lay(1)
    shipper = Copies(folder_url, "tiny").shipper(writer.run)
    counts = []
    for _ in range(40):
        shipper.ship()
        chunks = index_of(folder_url, writer.run).files["attempts/0001/rings.jsonl"].chunks
        assert [path.name for path in objects(folder_url, writer.run, "attempts/0001/rings.jsonl")] == [
            f"{chunk.offset:012d}-{chunk.digest.removeprefix('sha256:')}" for chunk in chunks
        ]
        counts.append(len(chunks))
        if len(counts) % 7 == 0:
            bring(folder_url, here, writer.run)
        writer.lay(1)
    size = (writer.directory / "rings.jsonl").stat().st_size
    assert max(counts) <= 4 + 4 + size // 12_000
    shipper.ship()
    bring(folder_url, here, writer.run)
    assert copied_files(here.run(writer.run.path.name)) == copied_files(writer.run.path)


def test_parts_that_differ_from_the_file_are_never_merged(folder_url, write_run, monkeypatch):
    monkeypatch.setattr(copy, "_MANY", 3)
    writer = write_run().start().lay(1)
    shipper = Copies(folder_url, "tiny").shipper(writer.run)
    shipper.ship()
    rings = writer.directory / "rings.jsonl"
    true = rings.read_bytes()
    rings.write_bytes(true.replace(b"4", b"5"))
    for _ in range(4):
        with rings.open("ab") as file:
            file.write(b"{}\n")
        shipper.ship()
    first = objects(folder_url, writer.run, "attempts/0001/rings.jsonl")[0]
    assert first.read_bytes() == true


def test_a_large_file_is_copied_in_parts(url, write_run, here, monkeypatch):
    monkeypatch.setattr(copy, "LARGE", 1000)
    writer = write_run().start().lay(10).end()
    (writer.directory / "rings.jsonl.zst").write_bytes(os.urandom(3500))
    pass_over(url, writer.run)
    file = index_of(url, writer.run).files["attempts/0001/rings.jsonl.zst"]
    assert [(chunk.offset, chunk.size) for chunk in file.chunks] == [(0, 1000), (1000, 1000), (2000, 1000), (3000, 500)]
    bring(url, here, writer.run)
    there = here.run(writer.run.path.name) / "attempts/0001/rings.jsonl.zst"
    assert there.read_bytes() == (writer.directory / "rings.jsonl.zst").read_bytes()


def test_a_compressed_log_replaces_the_log(url, write_run, here):
    writer = write_run().start().lay(3).end()
    pass_over(url, writer.run)
    bring(url, here, writer.run)
    rings = writer.directory / "rings.jsonl"
    rings.with_name("rings.jsonl.zst").write_bytes(b"compressed")
    rings.unlink()
    pass_over(url, writer.run)
    names = set(index_of(url, writer.run).files)
    assert "attempts/0001/rings.jsonl.zst" in names
    assert "attempts/0001/rings.jsonl" not in names
    bring(url, here, writer.run)
    assert copied_files(here.run(writer.run.path.name)) == copied_files(writer.run.path)


def test_a_copy_has_the_rings_until_the_compressed_file_is_copied(folder_url, write_run):
    writer = write_run().start().lay(3).end()
    shipper = Copies(folder_url, "tiny").shipper(writer.run)
    shipper.ship()
    rings = writer.directory / "rings.jsonl"
    future = time.time_ns() + 10**9  # of the clock of another machine
    os.utime(rings, ns=(future, future))
    assert compress(rings)
    shipper.ship()
    assert index_of(folder_url, writer.run).files["attempts/0001/rings.jsonl"].size > 0
    os.utime(rings.with_name("rings.jsonl.zst"), ns=(future - 2 * 10**9, future - 2 * 10**9))
    shipper.ship()
    assert [name for name in index_of(folder_url, writer.run).files if "rings" in name] == [
        "attempts/0001/rings.jsonl.zst"
    ]
    assert objects(folder_url, writer.run, "attempts/0001/rings.jsonl") == []


def test_removed_checkpoints_go_and_removed_evidence_stays(folder_url, write_run, here):
    writer = whole(write_run)
    pass_over(folder_url, writer.run)
    bring(folder_url, here, writer.run)
    (writer.run.path / "checkpoints/step-00000010/manifest.json").unlink()
    rings = (writer.directory / "rings.jsonl").read_bytes()
    (writer.directory / "rings.jsonl").unlink()
    (writer.directory / "header.json").unlink()
    pass_over(folder_url, writer.run)
    bring(folder_url, here, writer.run)
    there = here.run(writer.run.path.name)
    assert not (there / "checkpoints/step-00000010/manifest.json").exists()
    assert (there / "attempts/0001/rings.jsonl").read_bytes() == rings
    assert (there / "attempts/0001/header.json").exists()


def test_two_trainings_of_one_name_do_not_mix(folder_url, write_run):
    writer = write_run().start().lay(1)
    pass_over(folder_url, writer.run)
    header = writer.directory / "header.json"
    header.write_text(header.read_text().replace("node-1", "node-2"))
    target = Copies(folder_url, "tiny")
    for act in (
        target.shipper(writer.run).ship,
        lambda: target.difference(writer.run),
        lambda: target.rebuild(writer.run),
    ):
        with pytest.raises(EvidenceError, match=r"is the copy of another training.*TREERING_PROJECT"):
            act()


def test_refusals_of_stores_name_the_remedy(s3, monkeypatch, tmp_path):
    with pytest.raises(UserError, match="s3://: names no bucket, expected s3://BUCKET/PREFIX"):
        ObjectStore("s3://")
    with pytest.raises(UserError, match=r"nonsense://x: no object store .*expected a folder or s3://BUCKET/PREFIX"):
        ObjectStore("nonsense://x")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match="expected a bucket or folder that exists; make it"):
        ObjectStore("s3://nothing/x").put("name", b"")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with pytest.raises(StoreError, match="check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"):
        ObjectStore("s3://bucket/x").get("name")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match=r"expected a store that answers at http://127\.0\.0\.1:9; nothing is lost"):
        ObjectStore("s3://bucket/x").get("name")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        ObjectStore(str(tmp_path / "file" / "below")).put("name", b"")


def test_a_pass_that_ends_at_any_object_is_made_whole_by_the_next(folder_url, write_run, here, monkeypatch):
    writer = whole(write_run)
    put = ObjectStore.put
    for most in range(10):  # nine files and `copied.json`
        left = iter(range(most))

        def ending(self, name, content, left=left):
            if next(left, None) is None:
                raise StoreError("the end")
            put(self, name, content)

        monkeypatch.setattr(ObjectStore, "put", ending)
        with pytest.raises(StoreError, match="the end"):
            pass_over(folder_url, writer.run)
        assert index_of(folder_url, writer.run) is None
        if most == 4:
            writer.befall("rank_killed", rank=2, text="gone as well")
    monkeypatch.setattr(ObjectStore, "put", put)
    pass_over(folder_url, writer.run)
    bring(folder_url, here, writer.run)
    assert copied_files(here.run(writer.run.path.name)) == copied_files(writer.run.path)
