"""What curation decided: followed over clusters and held-out twins, in every direction."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from treering.audit.documents import curated
from treering.audit.documents.curated import find_decisions
from treering.audit.documents.selection import Selector
from treering.audit.documents.takedown import takedown
from treering.audit.documents.trace import trace_documents
from treering.cli import app
from treering.data.curate.decisions import REMOVED, SCHEMA
from treering.errors import EvidenceError, NotFoundError
from treering.project import Project

ROWS = {  # id -> step, rule, near_duplicate_of, cluster, split
    "held": (None, None, None, "web:held", "heldout"),
    "copy-of-held": ("dedup", "exact", "web:held", "web:held", None),
    "twin": ("heldout", "twin", "web:held", "web:twin", None),
    "like-twin": (None, None, None, "web:twin", "train"),
    "copy": ("dedup", "near", "web:like-twin", "web:twin", None),
    "lost": ("decontaminate", "quiz", None, "web:lost", None),
    "copy-of-lost": ("dedup", "near", "web:lost", "web:lost", None),
    "alone": (None, None, None, "web:alone", "train"),
    "short": ("filter", "min_characters", None, None, None),
    "also-short": ("filter", "min_characters", None, None, None),
}
FAMILY = ("held", "copy-of-held", "twin", "like-twin", "copy")


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path)
    (project.curated / "decisions").mkdir(parents=True)
    rows = [
        {
            "corpus": "web", "id": name, "source": "s", "offset": 0, "licence": "MIT", "characters": 9,
            "kept": step is None, "step": step, "rule": rule, "near_duplicate_of": original, "cluster": cluster,
            "split": split,
        }
        for name, (step, rule, original, cluster, split) in ROWS.items()
    ]  # fmt: skip
    for start in range(0, len(rows), 3):
        file = project.curated / "decisions" / f"{start}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[start : start + 3], SCHEMA), file)
    return project


@pytest.mark.parametrize("asked", FAMILY)
def test_every_member_leads_to_all_others(project, asked):
    found = find_decisions(project, [Selector.parse(f"web:{asked}")])
    assert {each.document: each.kept_instead for each in found.documents} == {
        f"web:{name}": ROWS[name][2] for name in FAMILY
    }
    assert [each.document for each in found.documents if not each.near_duplicate] == [f"web:{asked}"]
    assert found.num_documents == len(FAMILY)


@pytest.mark.parametrize("asked", ["alone", "short"])
def test_others_are_alone(project, asked):
    found = find_decisions(project, [Selector.parse(f"web:{asked}")])
    assert [each.document for each in found.documents] == [f"web:{asked}"]


def test_a_limit_shows_fewer_and_counts_all(project):
    selectors = [Selector.parse(text) for text in ("web:copy", "licence=MIT", "web:none")]
    found = find_decisions(project, selectors, limit=2)
    assert (found.num_documents, len(found.documents), found.unknown) == (len(ROWS), 2, ("web:none",))
    assert (found.documents[0].document, found.documents[0].asked) == ("web:copy", "web:copy")
    assert find_decisions(project, selectors, limit=0).documents == ()
    assert find_decisions(project, [Selector.parse("web:copy")]).to_json()["documents"][0]["cluster"] == "web:twin"


def test_decisions_that_are_damaged_or_missing(project):
    (project.curated / "decisions" / "3.parquet").write_bytes(b"damaged")
    with pytest.raises(EvidenceError, match=r"3\.parquet: unreadable"):
        find_decisions(project, [Selector.parse("web:copy")])
    found = find_decisions(Project(project.root / "other"), [Selector.parse("web:copy")])
    assert (found.num_documents, found.unknown) == (0, ("web:copy",))
    assert "near-duplicates cannot be told" in found.unanswered[0]


def test_a_document_that_was_dropped_too_was_not_kept_instead(project, monkeypatch):
    found = find_decisions(project, [Selector.parse("web:copy-of-lost")])
    copy, lost = found.documents
    assert (copy.preferred, copy.preferred_decision) == ("web:lost", "dropped by decontaminate: quiz")
    assert (copy.kept_instead, lost.stands_for) == (None, ())
    monkeypatch.chdir(project.root)
    (project.root / "dvc.yaml").write_text("stages: {}\n")
    text = CliRunner().invoke(app, ["decision", "web:copy-of-lost"]).stdout
    assert "  in favour of  web:lost, which was dropped by decontaminate: quiz\n" in text
    with pytest.raises(
        NotFoundError, match=r"dedup: near, in favour of web:lost, which was dropped by decontaminate: q"
    ):
        trace_documents(project, [Selector.parse("web:copy-of-lost")])


def test_too_many_documents_are_counted_without_their_near_duplicates(project, monkeypatch):
    monkeypatch.setattr(curated, "MOST_FOLLOWED", 4)
    found = find_decisions(project, [Selector.parse("licence=MIT")])
    assert (found.num_documents, len(found.documents), found.unknown) == (len(ROWS), 3, ())
    assert found.unanswered == (
        "licence=MIT names more than 4 raw documents, so their near-duplicates were not looked up; name single sources "
        "or documents",
    )
    assert takedown(project, [Selector.parse("licence=MIT")]).entries[0].fate == {
        "kept for heldout": 1, "kept for train": 2, "dropped by dedup: exact": 1, "dropped by dedup: near": 2,
        "dropped by heldout: twin": 1, "dropped by decontaminate: quiz": 1, "dropped by filter: min_characters": 2,
    }  # fmt: skip


def test_before_tokenizing_fragments_are_found_and_numbers_are_not(project):
    table = pq.read_table(project.curated / "decisions" / "0.parquet")
    removed = [[{"start": 0, "end": 9, "items": ["quiz: q"], "digest": "sha256:0"}], None, None]
    cut = table.append_column(REMOVED, pa.array(removed, REMOVED.type))
    pq.write_table(cut, project.curated / "decisions" / "web.parquet")
    (project.curated / "decisions" / "0.parquet").unlink()
    found = find_decisions(project, [Selector.parse("web:held#char=9,300")])
    assert found.documents[0].document == "web:held"
    assert found.documents[0].decision == "kept for heldout, cut"
    found = find_decisions(project, [Selector.parse("web:#0")])
    assert (found.num_documents, found.unknown) == (0, ("web:#0",))
    assert "no corpus web is available, so numbers cannot be looked up" in found.unanswered[0]
