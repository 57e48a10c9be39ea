"""Projects that the real trainer recorded, of an earlier version and of this one: all readers take them as they are."""

import json
import shutil

import pytest
from recorded_project import unpack

from treering.audit.attestation.check import attested
from treering.audit.attestation.keys import PublicKey
from treering.audit.checkpoint import audit_checkpoint
from treering.audit.inventory import verify_paths
from treering.audit.report import Level
from treering.config.canonical import digest_json
from treering.metrics.compare import comparable
from treering.metrics.lines.read import run_line
from treering.metrics.run_summary import run_page
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_checkpoint


@pytest.fixture(scope="module", params=["earlier", "journals"])
def recorded(request, tmp_path_factory):
    return unpack(request.param, tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    return unpack("journals", tmp_path_factory.mktemp("journals"))


@pytest.fixture
def project(journals, tmp_path):
    return Project(shutil.copytree(journals, tmp_path / "project"))


def run_of(project):
    return RunDirectory(next(project.runs.iterdir()))


def reseal(path, **changes):
    document = json.loads(path.read_text()) | changes
    document.pop("digest")
    path.write_text(json.dumps({**document, "digest": digest_json(document)}))


def findings(project):
    return [(each.file.removeprefix(f"{project.root}/"), each.text) for each in verify_paths(project).findings]


def test_every_reader_takes_it(recorded):
    project, key = Project(recorded), PublicKey.read(recorded / "signer.pub.pem")
    inventory = verify_paths(project, trusted=[key])
    assert inventory.findings == ()
    assert len(inventory.notes) == (recorded.name == "earlier")
    assert all("not anchored" in note for note in inventory.notes)
    assert "conversion" in {each.kind for each in inventory.checked}
    checkpoint = find_checkpoint(project.published)
    report = attested(audit_checkpoint(checkpoint, project, verify=True), checkpoint, [key])
    assert (report.level, report.steps_content_bound, report.findings) == (Level.ATTESTED, 12, ())
    assert [(each.attempt, each.last_step) for each in report.path] == [(1, 4), (2, 9), (3, 12)]
    line, page = run_line(run_of(project)), run_page(run_of(project))
    assert (line.state, line.step, line.attempts, line.checkpoints) == ("finished", 12, 3, 4)
    assert [each["step"] for each in page["evaluations"]] == [4, 8, 9, 12]
    assert comparable(run_of(project))["ran"]["code_rule"] == "bytes"


@pytest.mark.parametrize(
    "name",
    [
        "checkpoints/step-00000004", "attempts/0002", "attempts/0003/end.json", "evaluations/step-00000009.json",
        "journal.jsonl", "evaluations/journal.jsonl",
    ],
)  # fmt: skip
def test_what_is_missing_is_named(project, name):
    path = run_of(project).path / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = findings(project)
    assert any(str(path) in text and "missing" in text for _, text in found), found


@pytest.mark.parametrize("folder", ["heldout/letters", "train/numbers"])
def test_a_corpus_that_was_deleted_whole_is_named(project, folder):
    shutil.rmtree(project.corpora / folder)
    assert {file for file, _ in findings(project)} == {f"data/corpora/{folder}"}


def test_a_clone_with_the_published_copy_alone_holds(project):
    shutil.rmtree(project.runs)
    assert findings(project) == []
    (project.run("0" * 16) / "attempts").mkdir(parents=True)  # another training, in the clone
    assert all("published" not in text for _, text in findings(project))


def test_the_tail_of_an_abandoned_attempt_is_bound(project):
    path = run_of(project).path / "attempts" / "0001" / "rings.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    [(file, text)] = findings(project)
    assert file.endswith("attempts/0001/rings.jsonl")
    assert "left 6 rings" in text


def test_a_header_that_was_digested_again_is_blamed_and_not_its_rings(project):
    path = run_of(project).path / "attempts" / "0002" / "header.json"
    reseal(path, host="elsewhere")
    found = findings(project)
    assert {file.partition("/")[2].partition("/")[2] for file, _ in found if file.startswith("runs")} == {
        "attempts/0002/header.json"
    }
    assert "confirms the rings" in found[-1][1] or any("confirms the rings" in text for _, text in found)


def test_swapped_manifests_are_blamed_and_not_the_weights(project):
    one, other = (run_of(project).path / "checkpoints" / f"step-{step:08d}" / "manifest.json" for step in (8, 9))
    before = one.read_bytes(), other.read_bytes()
    one.write_bytes(before[1])
    other.write_bytes(before[0])
    found = findings(project)
    assert {str(project.root / file) for file, text in found if "its folder is that of step" in text} == {
        str(one), str(other)
    }  # fmt: skip
    assert not any(file.endswith(".pt") for file, _ in found)


def test_a_score_that_was_edited_and_digested_again(project):
    path = run_of(project).path / "evaluations" / "step-00000012.json"
    reseal(path, validation_loss=1.0)
    [(file, text)] = findings(project)
    assert file.endswith("evaluations/step-00000012.json")
    assert "digested again or replaced" in text


def test_a_ring_without_a_held_out_loss_is_an_error_of_evidence(project):
    path = run_of(project).path / "attempts" / "0003" / "rings.jsonl"
    lines = path.read_text().splitlines()
    ring = json.loads(lines[-1]) | {"validation": {"by_corpus": {}}}
    ring.pop("digest")
    path.write_text("\n".join([*lines[:-1], json.dumps({**ring, "digest": digest_json(ring)})]) + "\n")
    assert any("validation.loss is None, expected a number" in text for _, text in findings(project))
    assert "validation.loss is None" in run_line(run_of(project)).problem


def test_a_damaged_conversion_is_named_at_its_place(project):
    path = next((run_of(project).path / "universal").rglob("fp32.pt"))
    path.write_bytes(path.read_bytes()[:-1])
    [(file, text)] = findings(project)
    assert str(project.root / file) == str(path)
    assert "by the conversion's manifest" in text
