"""Questions read the parts of tables and indices that they need, and say so where these contradict each other."""

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import row_groups

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.batch import step_batch
from treering.audit.documents.difference import compare_checkpoints
from treering.audit.documents.exposure_index import corpora_of, find_exposures, project_runs
from treering.audit.documents.readers import recover_ancestries
from treering.audit.documents.selection import Selector, select
from treering.audit.documents.spike import spike_data
from treering.audit.documents.takedown import takedown
from treering.data.corpus.corpus import Corpus
from treering.errors import EvidenceError


@pytest.fixture
def divided(built):
    """The project with document tables of many row groups; nothing here digests them."""
    for corpus in built.corpora.values():
        row_groups.split(corpus.directory / "documents.parquet")
    return built


def table(built, name):
    return built.corpora[name].directory / "documents.parquet"


def documents_of(built, *steps):
    """By corpus, the numbers of the documents that some steps hold parts of."""
    found = {name: set() for name in built.corpora}
    for step in steps:
        for sample in built.order.samples_with_spans(*built.schedule.sample_range(step)):
            name = built.order.components[sample.component].corpus
            found[name] |= {span.document for span in sample.spans}
    return found


def exposed(built, *texts):
    runs = project_runs(built.project)
    catalog, _ = corpora_of(built.project, runs)
    missing = []
    documents = select([Selector.parse(text) for text in texts], catalog, missing)
    for each in missing:
        raise EvidenceError(each.missing)
    return find_exposures(runs, documents, catalog, ancestries=recover_ancestries(runs, built.project)[0])


def test_a_batch_reads_the_row_groups_of_its_documents(divided):
    before = step_batch(divided.run, 3, divided.project)
    for name, numbers in documents_of(divided, 3).items():
        row_groups.spoil(table(divided, name), keep=numbers)
    assert step_batch(divided.run, 3, divided.project) == before
    batch = step_batch(divided.run, 14, divided.project)
    assert re.search(r"documents\.parquet: unreadable \(rows \d+ to \d+", batch.gaps[0].missing)
    assert batch.content_bound


def test_a_spike_reads_the_row_groups_of_its_documents(divided):
    before = spike_data(divided.run, 5, divided.project, before=1)
    for name, numbers in documents_of(divided, 4, 5).items():
        row_groups.spoil(table(divided, name), keep=numbers)
    assert spike_data(divided.run, 5, divided.project, before=1) == before


def test_a_document_by_its_number_needs_no_search(divided):
    by_id = list(exposed(divided, "blue:blue-120").traced())
    row_groups.spoil(table(divided, "blue"), keep={120})
    found = exposed(divided, "blue:#120")
    assert list(found.traced()) == by_id
    assert by_id[0].number == 120
    with pytest.raises(EvidenceError, match="unreadable"):
        exposed(divided, "blue:blue-120")
    by_digest = divided.corpora["blue"].digest[:20]
    assert exposed(divided, f"{by_digest}:#120").documents.keys() == found.documents.keys()
    assert not exposed(divided, "blue:#200").documents


def test_a_document_by_its_id_reads_ids_alone(divided):
    before = list(exposed(divided, "green:green-7").traced())
    row_groups.spoil(table(divided, "green"), keep={7}, columns={"source", "licence", "digest", "offset"})
    for name in ("red", "blue"):
        row_groups.spoil(table(divided, name))
    assert list(exposed(divided, "green:green-7").traced()) == before


def test_checkpoints_differ_without_a_document_table(divided):
    before = compare_checkpoints(divided.first, divided.last, divided.project)
    assert before.corpora[2].documents_only_b
    for name in divided.corpora:
        row_groups.spoil(table(divided, name))
    assert compare_checkpoints(divided.first, divided.last, divided.project) == before


def test_an_audit_reads_licences_alone_where_nothing_is_held_out(divided):
    before = audit_checkpoint(divided.last, divided.project)
    for name in divided.corpora:
        row_groups.spoil(table(divided, name), columns={"id", "source", "offset", "digest"})
    assert audit_checkpoint(divided.last, divided.project) == before


def test_an_audit_counts_documents_by_the_index_where_the_table_cannot_be_read_through(divided):
    before = audit_checkpoint(divided.last, divided.project)
    row_groups.spoil(table(divided, "blue"), keep=set(range(40)))
    report = audit_checkpoint(divided.last, divided.project)
    assert report.corpora == (*before.corpora[:2], replace(before.corpora[2], licences=None))
    assert report.licences["unknown"] == before.corpora[2].tokens
    [finding] = report.findings
    assert (finding.kind, finding.corpus) == ("corpus", "blue")
    assert "documents.parquet: unreadable (rows 40 to 48" in finding.text


def lie_about(built, name, number, tokens):
    """A table that gives a document another length, and takes it from the next one."""
    path = table(built, name)
    rows = pq.read_table(path)
    lengths = rows.column("tokens").to_numpy().copy()
    lengths[number] += tokens
    lengths[number + 1] -= tokens
    pq.write_table(rows.set_column(4, rows.schema.field("tokens"), pa.array(lengths)), path, row_group_size=8)


def test_table_and_index_that_disagree_answer_nothing_about_the_document(divided):
    step = next(step for step in range(1, 16) if 7 in documents_of(divided, step)["green"])
    lie_about(divided, "green", 7, 1)
    said = r"document [78] of corpus green has \d+ tokens by corpus\.idx and \d+ by documents\.parquet"
    for ask in (
        lambda: exposed(divided, "green:green-7"),
        lambda: exposed(divided, "green:#8"),
    ):
        with pytest.raises(EvidenceError, match=said):
            ask()
    for answer in (
        step_batch(divided.run, step, divided.project),
        spike_data(divided.run, step, divided.project, before=0),
        takedown(divided.project, [Selector.parse("licence=MIT")]),
    ):
        assert re.search(said, answer.gaps[0].missing)
    assert not takedown(divided.project, [Selector.parse("licence=MIT")]).num_documents
    assert exposed(divided, "green:green-6").num_documents == 1
    report = audit_checkpoint(divided.last, divided.project)
    [finding] = report.findings
    assert "document 7 of corpus green has" in finding.text
    assert report.corpora[1].licences is None


def change_index(built, name, number):
    """Moves where a document begins by one token."""
    path = built.corpora[name].directory / "corpus.idx"
    raw = bytearray(path.read_bytes())
    raw[34 + 4 * built.corpora[name].num_documents + 8 * number] ^= 2
    path.write_bytes(raw)


def test_an_audit_asks_the_table_where_the_index_contradicts_itself(divided):
    before = audit_checkpoint(divided.last, divided.project)
    change_index(divided, "green", 7)
    report = audit_checkpoint(divided.last, divided.project)
    assert report.corpora == before.corpora
    [finding] = report.findings
    assert (finding.kind, finding.corpus) == ("corpus", "green")
    assert "corpus.idx: document 6 begins at token" in finding.text
    row_groups.spoil(table(divided, "green"))
    report = audit_checkpoint(divided.last, divided.project)
    assert (report.corpora[1].documents_touched, report.corpora[1].licences) == (None, None)
    assert len(report.findings) == 2


def test_documents_about_which_the_index_contradicts_itself_are_not_answered(divided):
    change_index(divided, "green", 7)
    for ask in (
        lambda: exposed(divided, "green:green-7"),
        lambda: compare_checkpoints(divided.first, divided.last, divided.project),
    ):
        with pytest.raises(EvidenceError, match=r"corpus\.idx: document [67] begins at token"):
            ask()
    assert exposed(divided, "green:green-25").num_documents == 1


def test_tokens_and_table_answer_without_an_index_that_can_be_opened(divided):
    before = list(exposed(divided, "green:green-7").traced())
    path = divided.corpora["green"].directory / "corpus.idx"
    path.write_bytes(b"X" + path.read_bytes()[1:])
    assert list(exposed(divided, "green:green-7").traced()) == before
    assert audit_checkpoint(divided.last, divided.project).findings[0].corpus == "green"


def test_offsets_by_table_and_by_index_are_the_same(divided):
    for corpus in divided.corpora.values():
        opened = Corpus.open(corpus.directory)
        assert np.array_equal(opened.table_offsets, corpus.document_offsets)
        assert np.array_equal(opened.mapped_offsets[:], corpus.document_offsets)
