"""A careful forger reseals what he edits; a careless one leaves bytes that no parser takes. Both are told so."""

import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import run_records

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.batch import step_batch
from treering.audit.inventory import verify_paths
from treering.audit.report import Level
from treering.config.canonical import digest_json
from treering.config.load import load_experiment
from treering.data.blend.corpora import resolve_blend
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.runlog.find import find_checkpoint

OTHER = "sha256:" + "7" * 64


def reseal(path, document):
    document.pop("digest", None)
    digest = digest_json(document)
    path.write_text(json.dumps({**document, "digest": digest}))
    return digest


def forge_rings(built, index, **changes):
    """Changes one ring of attempt 2 and reseals everything that follows, the checkpoint's manifest with it."""
    path = built.run.path / "attempts" / "0002" / "rings.jsonl"
    prev, lines = None, []
    for number, line in enumerate(path.read_text().splitlines()):
        ring = json.loads(line)
        del ring["digest"]
        if number == index:
            ring.update(changes)
        ring["prev"] = prev or ring["prev"]
        prev = digest_json(ring)
        lines.append(json.dumps({**ring, "digest": prev}, sort_keys=True, separators=(",", ":")) + "\n")
    path.write_text("".join(lines))
    manifest = built.last.path / "manifest.json"
    reseal(manifest, {**json.loads(manifest.read_text()), "ring": prev})
    return path


def audit_again(built, *, verify=False):
    return audit_checkpoint(type(built.last)(built.last.path), built.project, verify=verify)


@pytest.mark.parametrize("index", [0, 3, 8])
def test_a_learning_rate_that_the_schedule_does_not_give(built, index):
    expected = built.schedule.step_learning_rate(7 + index)
    path = forge_rings(built, index, learning_rate=5e-4)
    report = audit_again(built)
    [finding] = report.findings
    assert (finding.kind, finding.file, finding.line, finding.step) == ("ring", str(path), index + 1, 7 + index)
    assert f"learning_rate 0.0005, expected {expected} by the run's schedule" in finding.text
    assert (report.level, report.steps_recorded) == (Level.REDERIVED, 14)


@pytest.mark.parametrize(
    ("field", "value"),
    [("step", "7"), ("applied", "yes"), ("applied", 1), ("loss", "low"), ("time_s", None), ("validation", [])],
)
def test_a_ring_of_wrong_types(built, field, value):
    path = forge_rings(built, 0, **{field: value})
    [finding] = [finding for finding in audit_again(built).findings if finding.kind == "ring"]
    assert (finding.file, finding.line, finding.step) == (str(path), 1, 7)
    assert f"{field} is {value!r}, expected " in finding.text


GARBAGE = [b"", b"[1]", b"null", b'"x"', b"\xff\xfe", b"{", b"[" * 100_000, b'{"digest":1}', b"9" * 5000]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("index", [0, 8])
def test_a_line_that_is_no_ring(built, garbage, index):
    path = built.run.path / "attempts" / "0002" / "rings.jsonl"
    lines = path.read_bytes().splitlines()
    lines[index] = garbage
    path.write_bytes(b"\n".join(lines) + b"\n")
    [finding] = audit_again(built).findings
    assert (finding.file, finding.line, finding.step) == (str(path), index + 1, 7 + index)


def test_a_byte_of_a_ring_that_is_no_utf_8(built):
    path = built.run.path / "attempts" / "0001" / "rings.jsonl"
    data = bytearray(path.read_bytes())
    data[40] ^= 0x80
    path.write_bytes(data)
    [finding] = [finding for finding in audit_again(built).findings if finding.kind == "ring"]
    assert (finding.line, finding.step) == (1, 1)
    assert "the line was changed or torn" in finding.text


def test_a_key_that_stands_twice(built):
    path = built.run.path / "attempts" / "0002" / "rings.jsonl"
    path.write_text(path.read_text().replace('"loss":', '"loss":9.0,"loss":', 1))
    [finding] = audit_again(built).findings
    assert (finding.line, finding.step) == (1, 7)
    assert "a key occurs twice" in finding.text


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("resolved.json", Level.DECLARED),
        ("attempts/0001/header.json", Level.RECORDED),
        ("manifest", Level.REDERIVED),
    ],
)
def test_a_record_that_is_none(built, name, level, garbage):
    path = built.last.path / "manifest.json" if name == "manifest" else built.run.path / name
    path.write_bytes(garbage)
    report = audit_again(built)
    [finding] = report.findings
    assert (finding.kind, finding.file, report.holds, report.level) == ("record", str(path), False, level)
    assert re.search("no digested document|not a resolved config|was changed", finding.text)
    assert str(path) in finding.text


@pytest.mark.parametrize("digests", [None, [], "x", 3])
def test_a_resolved_config_without_digests(built, digests):
    path = built.run.path / "resolved.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "digests": digests}))
    report = audit_again(built)
    assert (report.findings[0].file, report.level) == (str(path), Level.DECLARED)


@pytest.mark.parametrize("field", ["code", "environment"])
def test_a_header_without_a_digest_of_what_ran(built, field):
    path = built.run.path / "attempts" / "0001" / "header.json"
    reseal(path, {**json.loads(path.read_text()), field: {}})
    [finding] = audit_again(built).findings
    assert finding.file == str(path)
    assert re.search(rf"{field}:?\s+found None, expected a digest", finding.text)


def test_attempts_that_are_each_others_parent(built):
    first, second = (built.run.path / "attempts" / name / "header.json" for name in ("0001", "0002"))
    reseal(first, {**json.loads(first.read_text()), "parent": json.loads(second.read_text())["parent"]})
    report = audit_again(built)
    assert "occurs twice on its own path" in report.findings[0].text
    assert not report.holds


@pytest.mark.parametrize(
    ("field", "value"), [("num_tokens", 7777), ("num_tokens", 5), ("num_documents", 1), ("num_documents", None)]
)
def test_a_size_in_the_config_that_no_digest_covers(built, field, value):
    path = built.run.path / "resolved.json"
    document = json.loads(path.read_text())
    held = document["blend"]["components"][1][field]
    document["blend"]["components"][1][field] = value
    before = audit_again(built)
    path.write_text(json.dumps(document))
    report = audit_again(built)
    [finding] = report.findings
    assert f"{path}: blend.components.1.{field}, {field} of corpus green, is {value}, expected {held}" in finding.text
    assert (report.level, report.corpora) == (Level.DECLARED, before.corpora)  # told from the corpora's own sizes
    with pytest.raises(EvidenceError, match=f"{field} of corpus green is {value}, expected {held} by the manifest"):
        step_batch(type(built.run)(built.run.path), 3, built.project)


def test_a_name_in_the_config_that_no_digest_covers(built):
    path = built.run.path / "resolved.json"
    path.write_text(path.read_text().replace('"corpus": "green"', '"corpus": "grey"'))
    report = audit_again(built)
    assert report.level is Level.DECLARED
    assert {(finding.kind, finding.file) for finding in report.findings} == {("record", str(path))}
    assert "blend.components.1.corpus is grey, expected green by " in report.findings[0].text


def test_the_upstream_of_a_checkpoint_is_its_attempts(built):
    path = built.last.path / "manifest.json"
    reseal(path, {**json.loads(path.read_text()), "upstream": "sha256:" + "7" * 64})
    [finding] = audit_again(built).findings
    assert "upstream is 777777777777…, expected None by the header of attempt 2" in finding.text


def test_a_file_that_was_put_into_the_checkpoint(built):
    (built.last.path / "state").mkdir()
    path = built.last.path / "state" / "better.bin"
    path.write_bytes(b"better weights")
    [finding] = audit_again(built, verify=True).findings
    assert (finding.kind, finding.file) == ("checkpoint", str(path))
    assert "names no such file" in finding.text


def test_a_manifest_that_names_no_file(built):
    path = built.last.path / "manifest.json"
    reseal(path, {**json.loads(path.read_text()), "files": []})
    [finding] = audit_again(built, verify=True).findings
    assert finding.file == str(built.last.path / "weights.bin")


def edit_table(built, edit):
    path = built.corpora["green"].directory / "documents.parquet"
    pq.write_table(edit(pq.read_table(path)), path)


def swap_first_id(table):
    ids = ["somebody-else", *table.column("id").to_pylist()[1:]]
    return table.set_column(0, table.schema.field("id"), pa.array(ids))


TABLES = {
    "no tokens": lambda table: table.drop_columns(["tokens"]),
    "no source": lambda table: table.drop_columns(["source"]),
    "null tokens": lambda table: table.set_column(4, "tokens", pa.nulls(len(table), pa.int64())),
    "text as tokens": lambda table: table.set_column(4, "tokens", pa.array(["a"] * len(table))),
    "fewer rows": lambda table: table.slice(0, 3),
    "more rows": lambda table: pa.concat_tables([table, table]),
}


@pytest.mark.parametrize("how", [*TABLES, "another id"])
def test_a_document_table_that_was_rewritten(built, how):
    touched = audit_again(built).corpora[1].documents_touched
    edit_table(built, TABLES.get(how, swap_first_id))
    report = audit_again(built, verify=True)
    assert {(finding.kind, finding.corpus) for finding in report.findings} == {("corpus", "green")}
    assert report.findings[0].file.endswith("green/documents.parquet")
    assert report.corpora[1].documents_touched == touched
    assert report.steps_content_bound == report.step


@pytest.mark.parametrize("how", TABLES)
def test_a_batch_names_no_document_from_such_a_table(built, how):
    whole = step_batch(built.run, 3, built.project)
    edit_table(built, TABLES[how])
    batch = step_batch(built.run, 3, built.project)
    [gap] = batch.gaps
    assert re.search(r"documents\.parquet: found .* rows of .*, expected 30 of id, source", gap.missing)
    parts, others = ([part for each in one.samples for part in each.documents] for one in (batch, whole))
    assert [part.text for part in parts] == [part.text for part in others]
    assert {part.document for part in parts if part.corpus == "green"} == {
        f"#{part.number}" for part in others if part.corpus == "green"
    }


def test_bytes_after_the_end_of_an_index(built):
    path = built.corpora["green"].directory / "corpus.idx"
    path.write_bytes(path.read_bytes() + b"0123456789")
    report = audit_again(built, verify=True)
    [finding] = report.findings
    assert "found 10 bytes after the end" in finding.text
    assert report.steps_content_bound == report.step


def test_the_unread_tail_of_each_corpus(built):
    for usage in audit_again(built).corpora:
        assert usage.unread_tokens == (built.corpora[usage.corpus].num_tokens - 1) % 16


def test_a_folder_that_is_no_checkpoint_is_no_forgery(built):
    with pytest.raises(NotFoundError, match=r"expected one like runs/<id>/checkpoints/step-00000300"):
        find_checkpoint(built.project.corpus("red"))
    copy = shutil.copytree(built.last.path, built.project.root / "final")
    with pytest.raises(NotFoundError, match="the name is not a checkpoint's, expected one like"):
        find_checkpoint(copy)


@pytest.mark.parametrize(
    ("where", "name"), [(".", "."), ("..", "step-00000015"), ("../..", "checkpoints/step-00000015")]
)
def test_a_checkpoint_is_found_from_wherever_one_stands(built, monkeypatch, where, name):
    monkeypatch.chdir(built.last.path / where)
    checkpoint = find_checkpoint(type(built.last.path)(name))
    assert (checkpoint.step, checkpoint.run.id) == (15, built.run.id)


def test_a_tokenizer_in_the_config_that_the_recipe_does_not_name(built):
    path = built.run.path / "resolved.json"
    document = json.loads(path.read_text())
    document["blend"]["tokenizer"] = "sha256:" + "7" * 64
    path.write_text(json.dumps(document))
    [finding] = audit_again(built).findings
    assert finding.file == str(path)
    assert "blend.tokenizer is 777777777777…, expected " in finding.text
    assert "by recipe.tokenizer in the same file" in finding.text
    assert [each.text for each in verify_paths(built.project, [built.run.path]).findings] == [finding.text]
    shutil.rmtree(built.project.corpora)
    assert audit_again(built).findings == (finding,)


def _edited(document, dotted, value):
    *parents, last = dotted.split(".")
    for name in parents:
        document = document[int(name)] if isinstance(document, list) else document[name]
    document[int(last) if isinstance(document, list) else last] = value


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("attempt.parallel.data", 4, "attempt.parallel.data is 4, but 2 by {run}/attempts/0002/header.json"),
        (
            "blend.components.0.digest",
            OTHER,
            "blend.components.0.digest is 777777777777…, but .* by {run}/attempts/0002",
        ),
        ("recipe.blend", OTHER, "recipe.blend is 777777777777…, but .* by {run}/attempts/0002/header.json"),
        ("recipe.tokenizer", OTHER, "recipe.tokenizer is 777777777777…, but .* by {run}/checkpoints/.*/manifest.json"),
        ("digests.attempt", OTHER, "digests.attempt is 777777777777…, but .* by {run}/attempts/0002/header.json"),
        ("digests.recipe", OTHER, "digests.recipe is 777777777777…, but .* by {run}/attempts/0002/header.json"),
        ("run", "0123456789abcdef", "run is 0123456789abcdef, but .* by {run}/attempts/0002/header.json"),
        ("blend.seed", 4, "blend.seed is 4, but 3 by .*/data/blend.json"),
        ("recipe.seed", 8, "recipe digest sha256:.* was written, sha256:.* recomputed: the file was edited"),
    ],
)
def test_the_edited_field_of_a_config_is_named_by_what_says_the_same(built, field, value, said):
    built.run.resolved.blend.write(built.project.blend)
    path = built.run.path / "resolved.json"
    document = json.loads(path.read_text())
    _edited(document, field, value)
    path.write_text(json.dumps(document))
    expected = said.format(run=built.run.path)
    assert re.search(expected, audit_again(built).findings[0].text)
    assert re.search(expected, verify_paths(built.project, [built.run.path]).findings[0].text)


@pytest.mark.parametrize(
    ("field", "value", "now"),
    [
        ("recipe.seed", 8, 7),
        ("recipe.model.hidden_size", 33, 32),
        ("recipe.optimizer.peak_learning_rate", 7.0, 0.001),
        ("blend.components.2.weight", "0.7", "0.2"),
        ("recipe.schedule.rampup", None, {"start": 4, "increment": 4, "samples": 48}),
    ],
)
def test_the_edited_field_of_a_config_is_named_by_a_copy(built, field, value, now):
    path, copy = built.run.path / "resolved.json", built.project.published / "resolved.json"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    document = json.loads(path.read_text())
    _edited(document, field, value)
    path.write_text(json.dumps(document))
    finding = audit_again(built).findings[0]
    assert f"; {field} is {value}, but {now} by {copy}" in finding.text


def test_a_config_with_many_edits_names_the_first_of_them(built):
    built.run.resolved.blend.write(built.project.blend)
    path = built.run.path / "resolved.json"
    document = json.loads(path.read_text())
    for number in range(3):
        document["blend"]["components"][number] |= {"weight": "0.7", "num_tokens": 1}
    path.write_text(json.dumps(document))
    assert "blend.components.0.num_tokens is 1, but" in audit_again(built).findings[0].text
    assert "; and 3 more fields" in audit_again(built).findings[0].text


def test_a_layout_that_the_attempt_did_not_have(built):
    path = built.last.path / "manifest.json"
    document = json.loads(path.read_text())
    reseal(path, {**document, "layout": {**document["layout"], "tensor": 2}})
    text = audit_again(built).findings[0].text
    assert "found 2, expected tensor x pipeline x data = 4" in text
    reseal(path, {**document, "layout": {**document["layout"], "tensor": 2, "world_size": 4}})
    [finding] = audit_again(built).findings
    assert "layout is 2x1x2, expected 1x1x2 by the header of attempt 2" in finding.text


def test_a_seam_that_was_sewn_to_another_ring(built):
    """The header names another parent ring, and everything after it is resealed: only the ring before tells."""
    attempt = built.run.path / "attempts" / "0002"
    header = json.loads((attempt / "header.json").read_text())
    other = "sha256:" + "8" * 64
    digest = reseal(attempt / "header.json", {**header, "parent": {**header["parent"], "ring": other}})
    forge_rings(built, 0, prev=digest)
    [finding] = audit_again(built).findings
    assert (finding.kind, finding.step) == ("ring", 7)
    assert f"goes on from ring {other} of step 6, but sha256:" in finding.text


def test_an_attempt_that_skipped_a_step(built):
    run = built.start_run("seed=11")
    first = built.lay_attempt(run, 1, range(1, 7))
    built.cut_checkpoint(run, 1, first[-1])
    second = built.lay_attempt(run, 2, range(8, 11), run_records.parent(run.checkpoints()[0]))
    built.cut_checkpoint(run, 2, second[-1])
    [finding] = [
        each for each in audit_checkpoint(run.checkpoints()[-1], built.project).findings if each.kind == "ring"
    ]
    assert finding.step == 7
    assert "step 8 follows step 6" in finding.text


def test_a_blend_that_no_order_can_read_is_refused_before_it_is_written(built):
    experiment = load_experiment(built.project.root / "tiny.yaml", ["blend.sequence_length=1000000"])
    with pytest.raises(UserError, match=r"corpus 'red' has .* tokens, expected at least 1000001"):
        resolve_blend(experiment, built.project)
