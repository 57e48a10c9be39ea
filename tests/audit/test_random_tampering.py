"""300 random changes of one byte or one field: each is found, and file and place are named; untouched copies hold.

A change is one of what a file says: white space in a record, `1E-3` for `1e-3` and the name of a corpus are none.
"""

import base64
import json
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from treering.audit.attestation.check import attested
from treering.audit.attestation.keys import PrivateKey, generate
from treering.audit.attestation.sign import attest
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.inventory import verify_paths
from treering.audit.report import Level
from treering.config.canonical import canonical_json, digest_json, parse_json
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.document_table import DOCUMENT_SCHEMA
from treering.errors import EvidenceError
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_checkpoint

pytestmark = pytest.mark.slow

NAMES = ("red", "green", "blue")


@pytest.fixture(scope="module")
def signed(template, tmp_path_factory):
    """A project whose last checkpoint is signed; a test damages one file and puts it right again."""
    root = tmp_path_factory.mktemp("signed") / "project"
    shutil.copytree(template.root, root)
    project = Project(root)
    run = RunDirectory(next(project.runs.iterdir()))
    key = PrivateKey.read(_new_key(tmp_path_factory.mktemp("keys") / "signer.pem"))
    path, _ = attest(run.checkpoints()[-1], project, key, verify=True)
    corpora = {name: Corpus.open(project.corpus(name)) for name in NAMES}
    return SimpleNamespace(
        project=project,
        run=run.path,
        last=run.checkpoints()[-1].path,
        corpora=corpora,
        attestation=path,
        key=key.public,
    )


def _new_key(path):
    generate(path)
    return path


def examples(count):
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=count, suppress_health_check=quiet)


@contextmanager
def changed(path, data):
    """The file with other bytes, for a while."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def findings(signed):
    return verify_paths(signed.project, trusted=[signed.key]).findings


def audit_holds(signed):
    """Whether the audit of the signed checkpoint reaches the highest level."""
    checkpoint = find_checkpoint(signed.last)
    try:
        report = attested(audit_checkpoint(checkpoint, signed.project, verify=True), checkpoint, [signed.key])
    except EvidenceError:
        return False
    return report.holds and report.level is Level.ATTESTED


def same_content(before, after):
    """Whether two texts of JSON say the same."""
    try:
        return canonical_json(parse_json(before)) == canonical_json(parse_json(after))
    except ValueError:
        return False


def other_byte(data, draw):
    """The bytes with one of them changed, and where."""
    position = draw(st.integers(0, len(data) - 1), label="position")
    changed_byte = data[position] ^ draw(st.integers(1, 255), label="flipped bits")
    return data[:position] + bytes([changed_byte]) + data[position + 1 :], position


def other_field(value, draw):  # noqa: PLR0911 - one kind of value, one way
    """The JSON value with one leaf changed, one key dropped, or one item more."""
    if isinstance(value, dict) and value:
        key = draw(st.sampled_from(sorted(value)), label="key")
        if draw(st.integers(0, 9), label="drop it at 0") == 0:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: other_field(value[key], draw)}
    if isinstance(value, list) and value:
        number = draw(st.integers(0, len(value) - 1), label="index")
        if draw(st.integers(0, 9), label="repeat it at 0") == 0:
            return [*value, value[number]]
        return [*value[:number], other_field(value[number], draw), *value[number + 1 :]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + draw(st.sampled_from([1, -1, 0.5]), label="added")
    if isinstance(value, str):
        position = draw(st.integers(0, max(0, len(value) - 1)), label="character")
        return value[:position] + ("0" if value[position : position + 1] != "0" else "1") + value[position + 1 :]
    return "something"  # where nothing stood: null, or nothing in a list or object


def other_text(text, draw):
    """A text of JSON with one byte or one field changed."""
    if draw(st.booleans(), label="a byte"):
        return other_byte(text, draw)[0]
    return json.dumps(other_field(json.loads(text), draw), indent=1).encode()


def test_untouched_copies_hold(signed, tmp_path):
    assert not findings(signed)
    assert audit_holds(signed)
    target = tmp_path / "moved" / "far"
    shutil.copytree(signed.project.root, target)
    moved = SimpleNamespace(
        project=Project(target), last=target / signed.last.relative_to(signed.project.root), key=signed.key
    )
    assert not findings(moved)
    assert audit_holds(moved)


@examples(70)
@given(data=st.data())
def test_a_byte_of_a_corpus(signed, data):
    corpus = signed.corpora[data.draw(st.sampled_from(NAMES))]
    name = data.draw(st.sampled_from(["corpus.bin", "corpus.idx", "documents.parquet"]))
    path = corpus.directory / name
    after, position = other_byte(path.read_bytes(), data.draw)
    with changed(path, after):
        found = [each for each in findings(signed) if each.file == str(path) and each.start is not None]
        assert not audit_holds(signed)
    assert all(finding.start <= position < finding.end for finding in found)
    if name == "corpus.bin":
        number = int(corpus.document_offsets.searchsorted(position // 2, side="right")) - 1
        assert [finding.document for finding in found] == [corpus.document(number)["id"]]
    assert found


@examples(40)
@given(data=st.data())
def test_a_field_of_a_document_table(signed, data):
    corpus = signed.corpora[data.draw(st.sampled_from(NAMES))]
    path = corpus.directory / "documents.parquet"
    rows = pq.read_table(path).to_pylist()
    number = data.draw(st.integers(0, len(rows) - 1), label="row")
    column = data.draw(st.sampled_from(DOCUMENT_SCHEMA.names), label="column")
    value = rows[number][column]
    rows[number][column] = value + 1 if isinstance(value, int) else other_field(value, data.draw)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=DOCUMENT_SCHEMA), sink)
    with changed(path, sink.getvalue().to_pybytes()):
        found = [finding for finding in findings(signed) if finding.file == str(path)]
        assert not audit_holds(signed)
    assert found
    assert {finding.corpus for finding in found} == {corpus.name}


@examples(40)
@given(data=st.data())
def test_a_manifest_of_a_corpus(signed, data):
    path = signed.corpora[data.draw(st.sampled_from(NAMES))].directory / "manifest.json"
    before = path.read_bytes()
    after = other_text(before, data.draw)
    assume(not same_content(before, after) and not _only_renamed(before, after))
    with changed(path, after):
        assert any(finding.kind == "corpus" and str(path) in finding.text for finding in findings(signed))
        assert not audit_holds(signed)


def _only_renamed(before, after):
    try:
        one, other = (parse_json(each) | {"name": None} for each in (before, after))
    except (ValueError, TypeError):
        return False
    return one == other


@examples(50)
@given(data=st.data())
def test_a_ring(signed, data):
    """Of either attempt, also the steps that attempt 1 did after the checkpoint from which attempt 2 went on."""
    attempt = data.draw(st.sampled_from([1, 2]), label="attempt")
    path = signed.run / "attempts" / f"{attempt:04d}" / "rings.jsonl"
    before = path.read_bytes()
    if data.draw(st.booleans(), label="a byte"):
        after, position = other_byte(before, data.draw)
        number = before[:position].count(b"\n")
    else:
        lines = before.splitlines()
        number = data.draw(st.integers(0, len(lines) - 1), label="line")
        lines[number] = canonical_json(other_field(json.loads(lines[number]), data.draw)).encode()
        after = b"\n".join(lines) + b"\n"
    one, other = before.split(b"\n"), after.split(b"\n")
    assume(len(one) != len(other) or not all(a == b or same_content(a, b) for a, b in zip(one, other, strict=True)))
    with changed(path, after):
        first = next(each for each in findings(signed) if each.file == str(path))
        assert (first.kind, first.line) == ("ring", number + 1)
        assert attempt == 1 or not audit_holds(signed)


@examples(40)
@given(data=st.data())
def test_a_record_of_the_run(signed, data):
    """Signed byte for byte, so that a forger who reseals what he edits, and even white space, is seen."""
    name = data.draw(st.sampled_from(["resolved.json", "attempts/0001/header.json", "attempts/0002/header.json"]))
    path = signed.run / name
    before = path.read_bytes()
    after = (
        _resealed(before, data.draw) if data.draw(st.booleans(), label="resealed") else other_text(before, data.draw)
    )
    with changed(path, after):
        named = [finding for finding in findings(signed) if str(path) in finding.text]
        assert named
        assert not audit_holds(signed)


def _resealed(before, draw):
    """One field changed and the digest made to fit, where the record carries its own."""
    document = json.loads(before)
    after = other_field({key: value for key, value in document.items() if key != "digest"}, draw)
    sealed = after | {"digest": digest_json(after)} if "digest" in document else after
    return json.dumps(sealed, indent=2, sort_keys=True).encode()


@examples(30)
@given(data=st.data())
def test_a_file_of_a_checkpoint(signed, data):
    step = data.draw(st.sampled_from(["step-00000006", "step-00000015"]))
    path = signed.run / "checkpoints" / step / data.draw(st.sampled_from(["weights.bin", "manifest.json"]))
    before = path.read_bytes()
    weights = path.name == "weights.bin"
    after = other_byte(before, data.draw)[0] if weights else other_text(before, data.draw)
    assume(weights or step == signed.last.name or not same_content(before, after))
    with changed(path, after):
        named = [finding for finding in findings(signed) if str(path) in finding.text]
        assert named
        assert step != signed.last.name or not audit_holds(signed)


@examples(30)
@given(data=st.data())
def test_an_attestation(signed, data):
    path = signed.attestation
    before = path.read_bytes()
    if data.draw(st.booleans(), label="in the statement"):
        envelope = json.loads(before)
        statement = other_field(json.loads(base64.b64decode(envelope["payload"])), data.draw)
        envelope["payload"] = base64.b64encode(canonical_json(statement).encode()).decode()
        after = json.dumps(envelope).encode()
    else:
        after = other_text(before, data.draw)
    assume(not same_content(before, after))
    with changed(path, after):
        [finding] = findings(signed)
        assert (finding.kind, finding.file) == ("attestation", str(path))
        assert not audit_holds(signed)
