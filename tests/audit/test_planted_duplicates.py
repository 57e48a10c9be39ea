"""Duplicates and a leaked text planted in raw text, over shards and corpora, curated by a pool of processes.

Curation drops the copies for their twins and cuts the leak out; a takedown of any member finds all others, with what
became of them and the steps that read them.
"""

import json
import re
from collections import Counter

import pytest
import text_project
import yaml
from prose_text import make_text
from typer.testing import CliRunner

from treering.audit.documents.curated import find_decisions
from treering.audit.documents.selection import Selector
from treering.audit.documents.takedown import takedown
from treering.audit.documents.trace import trace_documents
from treering.cli import app
from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.data.blend.corpora import resolve_blend
from treering.data.corpus.corpus import Corpus
from treering.data.curate.engines import PoolEngine
from treering.data.curate.pipeline import curate
from treering.data.order.treering1 import DataOrder
from treering.data.tokenize.stage import tokenize
from treering.errors import NotFoundError
from treering.project import Project
from treering.runlog.directory import RunDirectory

LENGTH = 32
CORPORA = ("first", "second")
DOCUMENT = {
    "experiment": "planted",
    "seed": 1,
    "corpora": [{"name": name, "licence": "CC0-1.0", "jsonl": f"{name}.jsonl"} for name in CORPORA],
    "curation": {
        "num_processes": 1,
        "heldout": {"fraction": 0.1},
        "tasks": {"num_items": 4},
        "decontamination": {"rule": "cut", "tasks": ["quiz.jsonl"]},
    },
    "tokenizer": {"vocabulary_size": 400},
    "blend": {
        "seed": 3,
        "sequence_length": LENGTH,
        "components": [{"corpus": "first", "weight": "0.6"}, {"corpus": "second", "weight": "0.4"}],
    },
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 512},
    "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
    "schedule": {"train_tokens": LENGTH * 240, "global_batch_size": 12},
    "parallel": {"micro_batch_size": 2},
    "checkpoint": {"every_steps": 10},
}
COPIES = {  # the copy -> what it is a copy of, and how like
    "first:exact": ("first:doc-3", "dedup: exact"),
    "first:near": ("first:doc-4", "dedup: near"),
    "second:exact": ("first:doc-5", "dedup: exact"),
    "second:near-1": ("first:doc-6", "dedup: near"),
    "second:near-2": ("first:doc-6", "dedup: near"),
    "second:near-3": ("second:doc-107", "dedup: near"),
}


LEAKED = "first:doc-9"
LEAK = "Of seven questions in the quiz " + " ".join(f"word{number}" for number in range(13)) + " is the last. "


def plant(project):
    """30 documents a corpus, and the copies after them; one document has an item of a task in its middle."""
    (project.root / "quiz.jsonl").write_text(json.dumps({"id": "q7", "text": LEAK}) + "\n")
    texts = {f"first:doc-{seed}": make_text(seed) for seed in range(30)}
    texts |= {f"second:doc-{seed}": make_text(seed) for seed in range(100, 130)}
    middle = texts[LEAKED].index(" ", len(texts[LEAKED]) // 2) + 1
    texts[LEAKED] = texts[LEAKED][:middle] + LEAK + texts[LEAKED][middle:]
    for number, (copy, (original, _)) in enumerate(COPIES.items()):
        changed = f" And so it went on for {number} more years." if "near" in copy else ""
        texts[copy] = texts[original] + changed
    for name in CORPORA:
        rows = [
            {"id": key.partition(":")[2], "text": text} for key, text in texts.items() if key.startswith(f"{name}:")
        ]
        text_project.write_jsonl(project.raw / name / f"{name}.jsonl", rows)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, laying):
    """Curation, tokenizing and blend by their stages; then a run of 20 steps, with a checkpoint every 10."""
    project = Project(tmp_path_factory.mktemp("planted"))
    file = project.root / "planted.yaml"
    file.write_text(yaml.safe_dump(DOCUMENT))
    experiment = load_experiment(file)
    plant(project)
    engine = PoolEngine(2)
    curate(experiment.corpora, experiment.curation, project, lambda _: None, engine=engine, shard_bytes=5_000)
    engine.close()
    tokenize(experiment.corpora, experiment.tokenizer, experiment.curation, project, say=lambda _: None)
    resolved = resolve(experiment, resolve_blend(experiment, project), str(file))
    run = RunDirectory(project.run(resolved.run_id))
    run.path.mkdir(parents=True)
    resolved.write(run.path / "resolved.json")
    rings = laying.lay_attempt(project, run, 1, range(1, 21))
    for step in (10, 20):
        laying.cut_checkpoint(run, 1, rings[step - 1])
    return project, run


@pytest.fixture(scope="module")
def readings(trained):
    """By brute force: `corpus:id` -> the step of every sample that held a part of the document."""
    project, run = trained
    corpora = [Corpus.open(project.corpus(name)) for name in CORPORA]
    order = DataOrder(run.resolved.blend, {corpus.name: corpus.document_offsets for corpus in corpora})
    found = {}
    for step in range(1, 21):
        for g in range(*run.resolved.schedule.sample_range(step)):
            sample = order.sample(g)
            corpus = corpora[sample.component]
            for span in sample.spans:
                found.setdefault(f"{corpus.name}:{corpus.document(span.document)['id']}", []).append(step)
    return found


def test_every_planted_copy_leads_to_its_twin_and_its_steps(trained, readings):
    project, run = trained
    trained_on = set(readings)
    assert not trained_on & set(COPIES)  # curation kept none of them
    found = takedown(project, [Selector.parse(copy) for copy in COPIES])
    assert found.unanswered == ()
    for entry, (original, dropped_by) in zip(found.entries, COPIES.values(), strict=True):
        assert entry.fate == {f"dropped by {dropped_by}": 1}
        assert (entry.documents, entry.near_duplicates) == (0, original in trained_on)
    wanted = {original for original, _ in COPIES.values()} & trained_on
    shown = {f"{each.document.corpus}:{each.document.document}": each for each in found.documents}
    assert set(shown) == wanted
    assert wanted == {"first:doc-4", "first:doc-5", "first:doc-6", "second:doc-107"}  # doc-3 was held out
    for name, each in shown.items():
        assert each.near_duplicate
        assert Counter(exposure.step for exposure in each.document.exposures) == Counter(readings[name])
    for checkpoint, each in zip(run.checkpoints(), found.checkpoints, strict=True):
        steps = [step for name in wanted for step in readings[name] if step <= checkpoint.step]
        assert (each.exposures, each.first_step, each.last_step) == (len(steps), min(steps), max(steps))


def test_the_original_leads_to_no_copy_that_was_never_trained_on(trained, readings):
    project, _run = trained
    original = "first:doc-6"
    (entry,) = takedown(project, [Selector.parse(original)]).entries
    assert (entry.documents, entry.near_duplicates) == (int(original in readings), 0)


def test_a_document_without_a_twin_stands_alone(trained, readings):
    project, run = trained
    unread = {f"first:doc-{seed}" for seed in range(30)} - set(readings)
    name = min(set(readings) - {original for original, _ in COPIES.values()})
    found = takedown(project, [Selector.parse(name)])
    (entry,) = found.entries
    assert (entry.documents, entry.near_duplicates) == (1, 0)
    assert [each.exposures for each in found.checkpoints] == [
        sum(step <= checkpoint.step for step in readings[name]) for checkpoint in run.checkpoints()
    ]
    held_out = json.loads((project.curated / "heldout" / "first.jsonl").read_text().splitlines()[0])["id"]
    assert f"first:{held_out}" in unread
    (entry,) = takedown(project, [Selector.parse(f"first:{held_out}")]).entries
    assert (entry.documents, entry.fate) == (0, {"kept for heldout": 1})


def groups():
    """Every planted group of duplicates: the original and its copies."""
    found = {}
    for copy, (original, _) in COPIES.items():
        found.setdefault(original, {original}).add(copy)
    return list(found.values())


@pytest.mark.parametrize("group", groups(), ids=min)
def test_a_takedown_of_any_member_names_all_others(trained, readings, group):
    project, _run = trained
    for asked in group:
        found = takedown(project, [Selector.parse(asked)])
        assert (found.num_decisions, {each.document for each in found.decisions}) == (len(group), group)
        for each in found.decisions:
            assert each.near_duplicate == (each.document != asked)
            steps = readings.get(each.document, [])
            assert (each.exposures, each.first_step, each.last_step) == (
                len(steps), min(steps, default=None), max(steps, default=None),
            )  # fmt: skip
            original, dropped_by = COPIES.get(each.document, (None, None))
            assert each.kept_instead == original
            assert each.decision == (f"dropped by {dropped_by}" if original else each.decision)
            assert each.decision in {f"dropped by {dropped_by}", "kept for train", "kept for heldout"}


def fragments_of(readings):
    return sorted(name for name in readings if name.startswith(f"{LEAKED}#char="))


def test_a_cut_document_is_traced_to_its_characters_and_steps(trained, readings):
    project, _run = trained
    first, second = fragments_of(readings)
    assert LEAKED not in readings
    for asked, names in ((LEAKED, [first, second]), (first, [first])):
        found = trace_documents(project, [Selector.parse(asked)])
        assert [f"{each.corpus}:{each.document}" for each in sorted(found.documents, key=str)] == names
        for each in found.documents:
            steps = [exposure.step for exposure in each.exposures]
            assert Counter(steps) == Counter(readings[f"{each.corpus}:{each.document}"])
    for asked in (LEAKED, second):
        found = takedown(project, [Selector.parse(asked)])
        (entry,) = found.entries
        assert (entry.documents, entry.near_duplicates, entry.fate) == (2, 0, {"kept for train, cut": 1})
        (decision,) = found.decisions
        assert decision.exposures == len(readings[first] + readings[second])
        (removed,) = decision.removed
        assert removed.items == ["quiz: q7"]
        assert (first, second.partition(",")[0]) == (
            f"{LEAKED}#char=0,{removed.start}", f"{LEAKED}#char={removed.end}",
        )  # fmt: skip


def test_decisions_lead_from_the_dropped_to_the_kept_and_back(trained, monkeypatch):
    project, _run = trained
    monkeypatch.chdir(project.root)
    (project.root / "dvc.yaml").write_text("stages: {}\n")

    def run(*arguments):
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    for asked in ("second:near-1", "first:doc-6"):
        lines = run("decision", asked).splitlines()
        place = lines.index("second:near-2")
        assert lines[place + 1].startswith(f"  dropped by dedup: near, near-duplicate of {asked}")
        assert lines[place + 2] == "  kept instead  first:doc-6"
        assert {"  stands for    second:near-1", "  stands for    second:near-2"} < set(lines)
        document = json.loads(run("decision", asked, "--json"))
        assert document["num_documents"] == 3
        assert {each["document"]: each["kept_instead"] for each in document["documents"]} == {
            "first:doc-6": None, "second:near-1": "first:doc-6", "second:near-2": "first:doc-6",
        }  # fmt: skip
    assert "  cut out       characters" in run("decision", LEAKED)
    (project.root / "list.txt").write_text("second:near-1\n")
    assert re.search(
        r"first:doc-6\n  kept for train, .*\n(  stands.*\n){2}  read +\d+ expo", run("takedown", "list.txt")
    )
    assert find_decisions(project, [Selector.parse("first:none")]).unknown == ("first:none",)
    with pytest.raises(NotFoundError, match="curation decided about no document first:none"):
        run("decision", "first:none")
    with pytest.raises(
        NotFoundError, match=r"curation: second:near-1 was dropped by dedup: near; first:doc-6 was kept"
    ):
        run("trace", "--document=second:near-1")
