"""The list of documents that trained a checkpoint, against brute force over every sample of its path."""

import json
import shutil
from collections import defaultdict

import pyarrow.parquet as pq
import pytest
import run_records
from typer.testing import CliRunner

from treering.audit.checkpoint import audit_checkpoint
from treering.audit.documents.training import SCHEMA, training_documents
from treering.audit.report import Level
from treering.cli import app
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, UserError


def brute(built, path):
    """(corpus, number) -> tokens read, the last label of a sample left out; a document read as a label alone has 0."""
    found = defaultdict(int)
    offsets = {name: corpus.document_offsets for name, corpus in built.corpora.items()}
    for run, first, last in path:
        order, schedule = DataOrder(run.resolved.blend, offsets), run.resolved.schedule
        length = run.resolved.blend.sequence_length
        for step in range(first, last + 1):
            for g in range(*schedule.sample_range(step)):
                sample = order.sample(g)
                left = length
                for span in sample.spans:
                    tokens = min(span.end - span.start, left)
                    found[order.components[sample.component].corpus, span.document] += tokens
                    left -= tokens
    return dict(found)


def listed(documents):
    return {(row["corpus"], row["number"]): row for batch in documents.batches() for row in batch.to_pylist()}


def test_every_document_that_was_read_with_its_tokens(built):
    documents = training_documents(built.last, built.project)
    rows = listed(documents)
    last = built.run.resolved.schedule.num_steps
    assert {key: row["tokens_read"] for key, row in rows.items()} == brute(built, [(built.run, 1, last)])
    assert (documents.gaps, documents.level) == ((), Level.RECORDED)
    assert sum(row["tokens_read"] for row in rows.values()) == built.last.manifest.consumed_tokens
    assert any(row["tokens_read"] > row["tokens"] for row in rows.values()), "red is read more than once"
    for (name, number), row in rows.items():
        document = built.corpora[name].document(number)
        assert {key: row[key] for key in ("id", "source", "licence", "tokens")} == {
            key: document[key] for key in ("id", "source", "licence", "tokens")
        }


def test_a_path_over_two_blends_and_an_earlier_checkpoint(built):
    start = (f"start_from.run='{built.run.id}'", "start_from.step=6", "start_from.schedule=continue")
    run = built.start_run("blend.components.0.weight='0.1'", "blend.components.2.weight='0.6'", *start)
    rings = built.lay_attempt(run, 1, range(7, 13), run_records.parent(built.first))
    built.cut_checkpoint(run, 1, rings[-1])
    (checkpoint,) = run.checkpoints()
    for asked, path in ((checkpoint, [(built.run, 1, 6), (run, 7, 12)]), (built.first, [(built.run, 1, 6)])):
        rows = listed(training_documents(asked, built.project))
        assert {key: row["tokens_read"] for key, row in rows.items()} == brute(built, path)


def test_documents_of_a_missing_corpus_are_not_listed_and_it_is_named(built):
    shutil.rmtree(built.project.corpus("green"))
    documents = training_documents(built.last, built.project)
    assert {name for name, _ in listed(documents)} == {"red", "blue"}
    assert [each.corpus for each in documents.gaps] == ["green"]
    assert documents.level is Level.REDERIVED


def test_a_table_that_contradicts_its_index_is_an_error(built):
    path = built.project.corpus("blue") / "documents.parquet"
    table = pq.read_table(path)
    tokens = [number + (at == 3) for at, number in enumerate(table["tokens"].to_pylist())]
    pq.write_table(table.set_column(table.schema.get_field_index("tokens"), "tokens", [tokens]), path)
    documents = training_documents(built.last, built.project)
    with pytest.raises(EvidenceError, match="blue"):
        listed(documents)


@pytest.mark.parametrize(("field", "value"), [("num_tokens", 7777), ("num_tokens", 5), ("num_documents", None)])
def test_a_corpus_size_edited_in_the_config_changes_no_row(built, invoke, field, value):
    before = listed(training_documents(built.last, built.project))
    path = built.run.path / "resolved.json"
    document = json.loads(path.read_text())
    held = document["blend"]["components"][1][field]
    document["blend"]["components"][1][field] = value
    path.write_text(json.dumps(document))
    checkpoint = type(built.last)(built.last.path)
    documents = training_documents(checkpoint, built.project)
    assert listed(documents) == before
    assert (documents.level, documents.findings) == (
        Level.DECLARED,
        audit_checkpoint(checkpoint, built.project).findings,
    )
    assert f"{field} of corpus green, is {value}, expected {held} by" in documents.findings[0].text
    result = invoke(built.run.id, "--documents", "documents.parquet")
    assert f"documents    {len(before)} written to documents.parquet, at most level declared" in result.stdout
    assert result.exit_code == 3


@pytest.fixture
def invoke(built):  # noqa: ARG001 - its working directory
    return lambda *arguments: CliRunner().invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False)


def test_the_audit_writes_the_list_as_parquet(built, invoke):
    rows = listed(training_documents(built.last, built.project))
    result = invoke(built.run.id, "--documents", "documents.parquet")
    assert f"documents    {len(rows)} written to documents.parquet, at most level recorded" in result.stdout
    table = pq.read_table("documents.parquet")
    assert table.schema.equals(SCHEMA)
    assert {(row["corpus"], row["number"]): row for row in table.to_pylist()} == rows


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--documents", "runs"), r"^runs: is a folder; expected the Parquet file to write"),
        (("--documents", "a/b.parquet"), r"^a/b\.parquet: its folder is missing; expected the Parquet file"),
        (("--documents", "b.parquet", "--summary"), "it only reads records"),
    ],
)
def test_a_wrong_place_for_the_list_is_named(built, invoke, arguments, said):
    with pytest.raises(UserError, match=said):
        invoke(built.run.id, *arguments)
    with pytest.raises(UserError, match="--documents belongs to a CHECKPOINT"):
        invoke("--megatron-run", "x", "--documents", "b.parquet")
