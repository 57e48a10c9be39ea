"""The page Data: blend planned and realised, curation with its reasons, licences, and the graph of what led to it."""

import json

import pytest
from audited_project import cut_checkpoint, lay_attempt, start_run
from dashboard_charts import charts
from dashboard_page import page, table, texts

from treering.audit.checkpoint import audit_checkpoint
from treering.data.blend.shares import component_shares
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.manifest import write_manifest
from treering_dashboard.frames.blends import corpus_shares, funnel, reasons
from treering_dashboard.frames.lineage import lineage


def curated(audited):
    """A run whose corpus `red` has a record of curation, with a checkpoint after 6 of 15 steps."""
    corpus = Corpus.open(audited.corpus("red"))
    counts = {"extract": (32, 0), "filter": (30, 2), "dedup": (22, 8), "heldout": (22, 0), "decontaminate": (22, 0)}
    steps = [
        {"step": step, "input": "x", "parameters": {}, "kept": kept, "dropped": dropped}
        for step, (kept, dropped) in counts.items()
    ]
    manifest = {key: value for key, value in corpus.manifest.items() if key != "digest"}
    write_manifest(audited.corpus("red") / "manifest.json", manifest | {"curation": steps})
    dropped = {step: {} for step in counts} | {"filter": {"min_words": 2}, "dedup": {"near": 5, "exact": 3}}
    audited.curated.mkdir(parents=True)
    (audited.curated / "summary.json").write_text(json.dumps({"corpora": {"red": {"dropped": dropped}}}))
    run = start_run(audited, "seed=8")
    cut_checkpoint(run, 1, lay_attempt(audited, run, 1, range(1, 7))[-1])
    return run.checkpoints()[-1]


def test_shares_so_far_and_at_the_end_are_those_of_the_data_order(audited) -> None:
    checkpoint = curated(audited)
    report, resolved = audit_checkpoint(checkpoint, audited), checkpoint.run.resolved
    shares = corpus_shares(report, resolved)
    end = resolved.schedule.sample_range(resolved.schedule.num_steps)[1]
    whole = component_shares(resolved.blend, 0, end)
    assert [each.tokens_at_end for each in shares] == [each.samples * resolved.blend.sequence_length for each in whole]
    assert [each.epochs_at_end for each in shares] == pytest.approx([each.epochs for each in whole])
    assert [each.share for each in shares] == [usage.samples / report.consumed_samples for usage in report.corpora]
    assert [each.weight for each in shares] == [0.5, 0.3, 0.2]


def test_the_page_shows_blend_curation_and_licences(audited) -> None:
    checkpoint = curated(audited)
    app = page("data", run=checkpoint.run.path.name)
    report = audit_checkpoint(checkpoint, audited)
    shares = table(app, "Epochs at the end")
    assert shares["Corpus"].tolist() == ["red", "green", "blue"]
    assert shares["Epochs"].tolist() == [f"{usage.realised_epochs:.3f}" for usage in report.corpora]
    assert table(app, "Rule")[["Stage", "Rule", "Documents", "Of all"]].to_dict("records") == [
        {"Stage": "filter", "Rule": "min_words", "Documents": "2", "Of all": "6.2%"},
        {"Stage": "dedup", "Rule": "near", "Documents": "5", "Of all": "15.6%"},
        {"Stage": "dedup", "Rule": "exact", "Documents": "3", "Of all": "9.4%"},
    ]
    assert table(app, "Licence")["Licence"].tolist()
    assert "Step 6 has read" in texts(app)
    assert "Not curated, or not here: green, blue." in texts(app)
    assert len(charts(app)) == 4


def test_the_funnel_ends_with_what_was_read(audited) -> None:
    checkpoint = curated(audited)
    report = audit_checkpoint(checkpoint, audited)
    stages, others = funnel(report)
    red = next(usage for usage in report.corpora if usage.corpus == "red")
    assert others == ["green", "blue"]
    assert [(stage.name, stage.documents, stage.dropped) for stage in stages] == [
        ("taken", 32, 0), ("filter", 30, 2), ("dedup", 22, 8), ("for training", 20, 2),
        ("read", red.documents_touched, 0),
    ]  # fmt: skip


def test_a_summary_of_other_corpora_gives_no_rules(audited) -> None:
    checkpoint = curated(audited)
    (audited.curated / "summary.json").write_text("{}")
    found = reasons(audit_checkpoint(checkpoint, audited))
    assert [(each.stage, each.rule, each.total) for each in found] == [("filter", "", 2), ("dedup", "", 8)]


def test_the_graph_leads_from_sources_to_the_checkpoint(audited) -> None:
    checkpoint = curated(audited)
    report = audit_checkpoint(checkpoint, audited)
    nodes, edges = lineage(checkpoint, report)
    by_layer = [[node.label for node in nodes if node.layer == layer] for layer in range(5)]
    run = checkpoint.run.path.name
    assert by_layer[0] == ["jsonl"]
    assert by_layer[1] == ["red", "green", "blue"]
    assert by_layer[3:] == [[f"run {run[:8]}"], ["step-00000006"]]
    labels = {node.key: node.label for node in nodes}
    joined = {(labels[edge.source], labels[edge.target]): edge.share for edge in edges}
    assert joined["jsonl", "red"] == report.corpora[0].samples / report.consumed_samples
    assert joined["green", by_layer[2][0]] == 0.3
    assert (by_layer[2][0], by_layer[3][0]) in joined
    assert (by_layer[3][0], "step-00000006") in joined
    assert len(edges) == 3 + 3 + 1 + 1


def test_without_a_checkpoint_the_plan_is_shown(lay_run) -> None:
    run = lay_run(steps=60, checkpoint_every=1000, stop_at=20)
    app = page("data", run=run.name)
    assert table(app, "Tokens held")["Weight"].tolist() == ["0.5", "0.3", "0.2"]
    assert "No complete checkpoint yet" in texts(app)
