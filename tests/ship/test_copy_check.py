"""What `treering rebuild` says and does about copies in a store."""

import pytest
from copies import bring, copied_files, index_of, objects, pass_over, whole

from treering.objects import ObjectStore
from treering.ship.copy_target import Copies
from treering.ship.target import Difference, Projection

RINGS = "attempts/0001/rings.jsonl"


def compare(url, run):
    return Copies(url, "tiny").difference(run)


def test_copies_are_a_projection(folder_url):
    assert isinstance(Copies(folder_url, "tiny"), Projection)


def test_what_was_not_copied_yet_is_behind(folder_url, write_run):
    writer = write_run().start().lay(2)
    assert compare(folder_url, writer.run) == Difference("the store has no copy of the run", behind=True)
    pass_over(folder_url, writer.run)
    assert compare(folder_url, writer.run) is None
    with (writer.directory / "rings.jsonl").open("ab") as file:
        file.write(b"{torn")
    assert compare(folder_url, writer.run) is None
    writer.lay(1)
    assert compare(folder_url, writer.run) == Difference(f"{RINGS}: not all of it was copied yet", behind=True)
    pass_over(folder_url, writer.run)
    writer.end()
    text = "attempts/0001/end.json: not all of it was copied yet"
    assert compare(folder_url, writer.run) == Difference(text, behind=True)


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_what_the_store_lost_is_put_again(url, write_run, here, damage):
    writer = write_run().start().lay(2)
    pass_over(url, writer.run)
    writer.lay(2).end()
    pass_over(url, writer.run)
    first, second = index_of(url, writer.run).files[RINGS].chunks
    store = ObjectStore(url)
    name = f"tiny/{writer.run.path.name}/files/{RINGS}/{second.offset:012d}-{second.digest.removeprefix('sha256:')}"
    if damage == "missing":
        store.remove([name])
    else:
        store.put(name, b"other")
    found = compare(url, writer.run)
    where = f"bytes {first.size:,} to {first.size + second.size:,}"
    assert found == Difference(f"{RINGS}: {where} are missing or damaged in the store", behind=False)
    assert Copies(url, "tiny").rebuild(writer.run) == ""
    assert compare(url, writer.run) is None
    assert bring(url, here, writer.run).mirror.missing == ()
    assert copied_files(here.run(writer.run.path.name)) == copied_files(writer.run.path)


def test_what_differs_from_the_folder_is_copied_again_and_kept(folder_url, write_run, here):
    writer = whole(write_run)
    pass_over(folder_url, writer.run)
    bring(folder_url, here, writer.run)
    rings = writer.directory / "rings.jsonl"
    rings.write_bytes(rings.read_bytes().replace(b"4", b"5", 1))
    size = rings.stat().st_size
    assert compare(folder_url, writer.run) == Difference(f"{RINGS}: bytes 0 to {size:,} differ from the copy")
    kept = "1 parts that differ from the folder stay in the store, unnamed"
    assert Copies(folder_url, "tiny").rebuild(writer.run) == kept
    assert compare(folder_url, writer.run) is None
    assert len(objects(folder_url, writer.run, RINGS)) == 2
    bring(folder_url, here, writer.run)
    assert copied_files(here.run(writer.run.path.name)) == copied_files(writer.run.path)


def test_a_damaged_index_is_made_again(folder_url, write_run, tmp_path):
    writer = whole(write_run)
    pass_over(folder_url, writer.run)
    index = tmp_path / "store/tiny" / writer.run.path.name / "copied.json"
    before = index_of(folder_url, writer.run).files
    index.write_text("{}")
    assert "no digested document" in compare(folder_url, writer.run).text
    Copies(folder_url, "tiny").rebuild(writer.run)
    assert index_of(folder_url, writer.run).files == before


def test_what_the_folder_lost_is_no_difference(folder_url, write_run):
    writer = whole(write_run)
    pass_over(folder_url, writer.run)
    (writer.directory / "rings.jsonl").unlink()
    assert compare(folder_url, writer.run) is None
    Copies(folder_url, "tiny").rebuild(writer.run)
    assert index_of(folder_url, writer.run).files[RINGS].size > 0
