"""`treering verify`: whatever lies below a folder is digested again, and what changed is named, to the document."""

import json
import os
import shutil

import numpy as np
import pytest

from treering.audit.attestation.keys import PublicKey, generate
from treering.audit.attestation.sign import attest
from treering.audit.inventory import verify_paths
from treering.data.corpus import corpus as corpus_module
from treering.data.corpus import manifest as manifest_module
from treering.data.corpus.chunks import digest_range, map_in_order
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.manifest import describe_file, write_manifest
from treering.errors import NotFoundError
from treering.runlog.lock import acquire


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def only(inventory):
    [finding] = inventory.findings
    return finding


def test_everything_below_a_project_is_checked(built):
    inventory = verify_paths(built.project)
    assert inventory.holds
    assert [(each.kind, each.path.removeprefix(str(built.project.root) + "/")) for each in inventory.checked] == [
        ("tokenizer", "data/corpora/tokenizer.json"),
        ("corpus", "data/corpora/train/blue"),
        ("corpus", "data/corpora/train/green"),
        ("corpus", "data/corpora/train/red"),
        ("run log", f"runs/{built.run.id}"),
        ("checkpoint", f"runs/{built.run.id}/checkpoints/step-00000006"),
        ("checkpoint", f"runs/{built.run.id}/checkpoints/step-00000015"),
    ]
    red = next(each for each in inventory.checked if each.path.endswith("red"))
    assert red.bytes == sum(path.stat().st_size for path in built.corpora["red"].directory.iterdir())
    assert inventory.verdict.startswith("holds: 7 things, ")


def test_progress_reaches_its_end(built):
    seen = []
    verify_paths(built.project, progress=lambda *call: seen.append(call))
    assert {what for what, _, _ in seen} == {"MiB"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_byte_of_a_corpus_names_chunk_and_document(built):
    corpus = built.corpora["green"]
    flip(corpus.directory / "corpus.bin", int(corpus.document_offsets[12]) * 2)
    finding = only(verify_paths(built.project, [built.project.corpora]))
    assert (finding.kind, finding.corpus, finding.document) == ("corpus", "green", "green-12")
    assert finding.file == str(corpus.directory / "corpus.bin")
    assert (finding.start, finding.end) == (0, corpus.num_tokens * 2)
    assert "chunk 0" in finding.text
    assert "step" not in finding.text


def test_chunks_of_a_large_corpus(built, monkeypatch):
    """With chunks of 64 bytes: each damaged one is named by itself, with its bytes and its documents alone."""
    for module in (corpus_module, manifest_module):
        monkeypatch.setattr(module, "CHUNK_BYTES", 64)
    directory = built.corpora["blue"].directory
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["files"] = {name: describe_file(directory / name) for name in manifest["files"]}
    write_manifest(directory / "manifest.json", manifest)
    corpus = Corpus.open(directory)
    assert corpus.verify() == []
    damaged = [100, 1000, 1001, corpus.num_tokens * 2 - 1]
    for position in damaged:
        flip(directory / "corpus.bin", position)
    found = Corpus.open(directory).verify()
    assert [(each.chunk, each.start) for each in found] == [
        (chunk, chunk * 64) for chunk in sorted({position // 64 for position in damaged})
    ]
    offsets = corpus.document_offsets
    for each in found:
        expected = {
            int(np.searchsorted(offsets, position // 2, side="right")) - 1
            for position in damaged
            if each.start <= position < each.end
        }
        assert expected <= set(each.documents)


@pytest.mark.parametrize("file", ["manifest.json", "corpus.bin", "corpus.idx", "documents.parquet"])
def test_a_file_of_a_corpus_is_gone(built, file):
    path = built.corpora["red"].directory / file
    path.unlink()
    finding = only(verify_paths(built.project, [built.project.corpora / "train" / "red"]))
    assert finding.kind == "corpus"
    assert file in finding.text


def test_another_tokenizer(built):
    built.project.tokenizer.write_text("{}")
    findings = verify_paths(built.project).findings
    assert {finding.file for finding in findings} == {str(built.project.tokenizer)}
    assert {finding.corpus for finding in findings} == {"red", "green", "blue"}


def test_a_blend_that_was_edited(built):
    built.run.resolved.blend.write(built.project.blend)
    assert verify_paths(built.project, [built.project.blend]).holds
    built.project.blend.write_text(built.project.blend.read_text().replace('"seed": 3', '"seed": 4'))
    finding = only(verify_paths(built.project))
    assert (finding.kind, finding.file) == ("record", str(built.project.blend))


def rings(built, attempt):
    return built.run.path / "attempts" / f"{attempt:04d}" / "rings.jsonl"


def test_a_ring_that_no_checkpoint_stands_on(built):
    """Attempt 1 went on to step 9 after the checkpoint of step 6; the audit of the last one never looks there."""
    path = rings(built, 1)
    path.write_text(path.read_text().replace('"step":8', '"step":80'))
    finding = only(verify_paths(built.project))
    assert (finding.kind, finding.file, finding.line, finding.step) == ("ring", str(path), 8, 8)


def test_a_line_end_that_was_changed(built):
    path = rings(built, 1)
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    finding = only(verify_paths(built.project))
    assert (finding.kind, finding.file, finding.line) == ("ring", str(path), 9)
    assert "a whole ring that no newline ends" in finding.text


def test_a_torn_line_is_a_note(built):
    path = rings(built, 1)
    path.write_bytes(path.read_bytes() + b'{"applied":true,"ba')
    inventory = verify_paths(built.project)
    assert inventory.holds
    [note] = inventory.notes
    assert f"{path} line 10: 19 bytes of a line that was never finished" in note


def test_a_line_under_way_is_nothing(built):
    path = rings(built, 1)
    path.write_bytes(path.read_bytes() + b'{"applied":true,"ba')
    descriptor = acquire(built.run.lock)
    try:
        inventory = verify_paths(built.project)
    finally:
        os.close(descriptor)
    assert (inventory.holds, inventory.notes) == (True, ())


@pytest.mark.parametrize("name", ["resolved.json", "attempts/0001/header.json", "attempts/0002/header.json"])
def test_a_record_that_was_edited(built, name):
    path = built.run.path / name
    path.write_text(path.read_text().replace('"seed": 7', '"seed": 8').replace('"gloo"', '"nccl"'))
    finding = only(verify_paths(built.project))
    assert (finding.kind, finding.file) == ("record", str(path))


def test_a_header_that_is_gone(built):
    (built.run.path / "attempts" / "0001" / "header.json").unlink()
    findings = verify_paths(built.project).findings
    assert str(built.run.path / "attempts" / "0001" / "header.json") in {finding.file for finding in findings}


def test_a_checkpoint(built):
    flip(built.first.path / "weights.bin", 5)
    (built.last.path / "manifest.json").unlink()
    findings = verify_paths(built.project).findings
    assert [finding.file for finding in findings] == [str(built.first.path / "weights.bin"), str(built.last.path)]
    assert {finding.kind for finding in findings} == {"checkpoint"}


@pytest.fixture
def signed(built, tmp_path):
    key, public = generate(tmp_path / "key.pem")
    path, _ = attest(built.last, built.project, key)
    return path, PublicKey.read(public)


def test_attestations_are_checked_with_a_key(built, signed):
    path, key = signed
    inventory = verify_paths(built.project, trusted=[key])
    assert (inventory.holds, inventory.notes) == (True, ())
    assert str(path) in {each.path for each in inventory.checked}
    [note] = verify_paths(built.project).notes
    assert "its signature was not checked" in note
    flip(path, path.read_bytes().index(b'"payload"') + 30)
    finding = only(verify_paths(built.project, trusted=[key]))
    assert (finding.kind, finding.file) == ("attestation", str(path))


def test_no_false_alarm_after_a_move(built, signed, tmp_path):
    target = tmp_path / "far" / "away"
    shutil.copytree(built.project.root, target)
    assert verify_paths(type(built.project)(target), trusted=[signed[1]]).holds


def test_nothing_there(built, tmp_path):
    with pytest.raises(NotFoundError, match="no such file or folder"):
        verify_paths(built.project, [tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="no corpus, checkpoint or run log there"):
        verify_paths(built.project, [tmp_path / "empty"])


def test_results_come_in_order_from_several_threads():
    assert list(map_in_order(lambda x: x * x, range(1000), workers=7)) == [x * x for x in range(1000)]
    assert list(map_in_order(str, [], workers=3)) == []


def test_an_error_in_a_thread_is_raised():
    def broken(x):
        if x == 5:
            raise ValueError("five")
        return x

    with pytest.raises(ValueError, match="five"):
        list(map_in_order(broken, range(10), workers=2))


def test_digest_of_a_range(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(range(200)))
    whole = describe_file(path)["sha256"]
    with path.open("rb") as file:
        assert digest_range(file.fileno(), 0, 200) == whole
        assert digest_range(file.fileno(), 0, 500) == whole
        assert digest_range(file.fileno(), 10, 20) != whole
