"""The quality classifier: real prose is declared good, and a crawl of source code with some prose in it is judged."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from quality_world import LOOSE, QualityWorld, prose, source_code

from treering.audit.documents.curated import find_decisions
from treering.audit.documents.selection import Selector
from treering.config.canonical import digest_bytes, digest_file
from treering.config.corpora import CorpusConfig
from treering.config.load import load_experiment
from treering.data.curate import classifier
from treering.data.curate.classifier_training import _lowest
from treering.data.curate.engines import ProcessEngine
from treering.data.curate.judging import Judging
from treering.data.curate.seeded_hash import key
from treering.errors import ConfigError, UserError
from treering.report.page import quality_section

pytestmark = pytest.mark.slow


class Backwards(ProcessEngine):
    """Does the tasks from the last to the first, and counts them by function; may be interrupted after some shards."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.done: list[str] = []
        self._interrupt_after = interrupt_after

    def map(self, function: Callable[..., Any], shared: Any, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for place in reversed(range(len(tasks))):
            if self.done.count("judge_shard") == self._interrupt_after:
                raise KeyboardInterrupt("by the test")
            yield place, function(shared, tasks[place])
            self.done.append(function.__name__)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> QualityWorld:
    return QualityWorld(tmp_path_factory.mktemp("quality"))


@pytest.fixture(scope="module")
def curated(world: QualityWorld) -> dict[str, bytes]:
    return world.curate()


def decisions(world: QualityWorld, corpus: str) -> list[dict[str, Any]]:
    return pq.read_table(world.project.curated / "decisions" / f"{corpus}.parquet").to_pylist()


def test_scores_tell_prose_from_code_and_every_verdict_follows_from_its_row(
    world: QualityWorld, curated: dict[str, bytes]
) -> None:
    summary = json.loads(curated["summary.json"])
    assert summary["quality"]["auc"] > 0.85
    rows = {row["id"]: row for row in decisions(world, "crawl")}
    assert rows["short"]["quality_score"] is rows["short"]["quality_draw"] is None
    judged = [row for row in rows.values() if row["quality_score"] is not None]
    assert len(judged) == 471
    for row in judged:
        dropped = (row["step"], row["rule"]) == ("quality", "pareto")
        assert dropped == (row["quality_draw"] <= 1 - row["quality_score"])
    assert rows["both"]["quality_score"] > 0.5  # a text of both sides counts as a good one
    scores = [[row["quality_score"] for row in judged if row["id"].startswith(kind)] for kind in ("prose", "code")]
    assert (len(scores[0]), len(scores[1])) == (20, 450)
    assert classifier.auc(scores[0], scores[1]) > 0.9
    assert {row["quality_score"] for corpus in ("manual", "plain") for row in decisions(world, corpus)} == {None}


def test_the_summary_counts_what_the_rows_say(world: QualityWorld, curated: dict[str, bytes]) -> None:
    summary = json.loads(curated["summary.json"])
    judged = [row for row in decisions(world, "crawl") if row["quality_score"] is not None]
    bands = [[0, 0] for _ in range(10)]
    for row in judged:
        band = bands[min(9, int(row["quality_score"] * 10))]
        band[0] += 1
        band[1] += row["quality_draw"] > 1 - row["quality_score"]
    assert summary["quality"]["bands"] == {"crawl": bands}
    dropped = sum(row["step"] == "quality" for row in judged)
    assert summary["corpora"]["crawl"]["dropped"]["quality"] == {"pareto": dropped}
    assert "quality" not in summary["corpora"]["manual"]["dropped"]
    assert summary["total"]["dropped_by_quality"] == dropped > 50
    page = quality_section(summary["quality"])
    assert f"| crawl | 0.0 to 0.1 | {bands[0][0]} | {bands[0][1]} |" in page
    assert "a good one scores higher than a judged one in " in page


def test_the_evidence_names_the_model_and_its_documents(world: QualityWorld, curated: dict[str, bytes]) -> None:
    record = json.loads(curated["quality/classifier.json"])
    assert record["model"] == digest_bytes(curated["quality/model.bin"])
    assert record["documents_digest"] == digest_bytes(curated["quality/documents.parquet"])
    assert record["documents"] == {"good": {"manual": 94}, "judged": {"crawl": 94}}  # the text of both is left out
    rows = pq.read_table(world.project.curated / "quality" / "documents.parquet").to_pylist()
    lines = (curated["train/manual.jsonl"] + curated["heldout/manual.jsonl"]).splitlines()
    texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    found = {row["id"]: row["digest"] for row in rows if row["id"] in texts}
    assert len(found) > 80
    assert found == {name: digest_bytes(texts[name].encode()) for name in found}
    keys = {name: key(5, "quality", hashlib.sha256(text.encode()).digest()[:16]) for name, text in texts.items()}
    assert max(keys[name] for name in found) < min(keys[name] for name in texts.keys() - found.keys())
    assert sum(row["score"] is not None for row in rows) == record["measured"] == 20
    steps = {step["step"]: step for step in json.loads(curated["provenance/crawl.json"])}
    assert steps["quality"]["parameters"]["model"] == record["model"]
    assert (steps["quality"]["kept"], steps["filter"]["kept"]) == (471 - steps["quality"]["dropped"], 471)
    assert steps["quality"]["input"] != steps["dedup"]["input"]
    assert "quality" not in {step["step"] for step in json.loads(curated["provenance/manual.json"])}


def test_the_decision_about_a_dropped_document_names_its_score(world: QualityWorld, curated: dict[str, bytes]) -> None:  # noqa: ARG001
    row = next(row for row in decisions(world, "crawl") if row["step"] == "quality")
    [found] = find_decisions(world.project, [Selector.parse(f"crawl:{row['id']}")]).documents
    score, draw = row["quality_score"], row["quality_draw"]
    assert found.decision == f"dropped by quality: pareto (quality: score {score:.3f}, draw {draw:.3f})"


def test_no_engine_and_no_size_of_a_shard_changes_a_byte(world: QualityWorld, curated: dict[str, bytes]) -> None:
    engine = Backwards()
    assert world.curate(engine, 15_000) == curated
    assert engine.done.count("judge_shard") > 5


def test_an_interrupted_stage_trains_once_and_judges_what_is_missing(
    world: QualityWorld, curated: dict[str, bytes]
) -> None:
    store = world.project.root / ".treering" / "curate" / "shards"
    for alpha, num_judged in ((3, 2), (2, 4)):
        with pytest.raises(KeyboardInterrupt, match="by the test"):
            world.curate(Backwards(2), 30_000, alpha=alpha)
        assert len([*store.glob("*/bands")]) == num_judged
        assert len([*store.glob("*/model.bin")]) == 1
    made = {path: path.stat().st_mtime_ns for path in [*store.glob("*/bands"), *store.glob("*/model.bin")]}
    with pytest.raises(KeyboardInterrupt, match="by the test"):
        world.curate(Backwards(3), 30_000)
    assert len([*store.glob("*/bands")]) == 5
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert world.curate(ProcessEngine(), 30_000) == curated


@pytest.mark.parametrize(("alpha", "score"), [(3.0, 0.0), (3.0, 0.5), (3.0, 1.0), (9.0, 0.9), (0.5, 0.0)])
def test_the_share_that_is_kept_is_the_formulas(alpha: float, score: float) -> None:
    judging = Judging(Path("model.bin"), "", alpha, 7, Path())
    count = 20_000
    kept = sum(judging.draw(number.to_bytes(32, "little")) > 1 - score for number in range(count))
    share = (2 - score) ** -alpha
    assert abs(kept - count * share) <= 4 * (count * share * (1 - share)) ** 0.5


def test_the_same_text_gives_the_same_model_and_no_text_can_name_a_label(tmp_path: Path) -> None:
    documents = [(bool(side), f"{text} \x1fgood __label__good </s> \x00\x1c") for side, texts in
                 ((1, prose()[:60]), (0, source_code()[:60])) for text in texts]  # fmt: skip
    digest = classifier.write_examples(documents, tmp_path / "text")
    assert classifier.write_examples(documents, tmp_path / "text") == digest
    assert (tmp_path / "text").read_text().count("\x1f") == len(documents)
    for name in ("a", "b"):
        classifier.train(tmp_path / "text", tmp_path / name, classifier.settings(len(documents)))
    assert digest_file(tmp_path / "a") == digest_file(tmp_path / "b")
    trained = classifier.Classifier(tmp_path / "a")
    for text, good in ((prose()[70], True), (source_code()[70], False)):
        assert (trained.score(text) > 0.5) == good
        assert trained.score(f"\x1fgood \x1fjudged {text} \x1fgood") == trained.score(f"good judged {text} good")
    assert 0 <= trained.score("\x00") <= 1


def test_of_equal_texts_the_first_is_picked() -> None:
    rows = np.array([[5, 4], [9, 3], [5, 1], [3, 2]], dtype=np.uint64)
    assert _lowest(rows).tolist() == [[3, 2], [5, 1], [9, 3]]
    assert _lowest(rows[:0]).tolist() == []


def test_the_auc_counts_ties_as_half() -> None:
    assert classifier.auc([0.9, 0.5], [0.5, 0.1]) == 0.875
    assert classifier.auc([1.0], [0.0]) == 1.0
    assert classifier.auc([0.0], [0.0, 1.0]) == 0.25


def test_too_few_documents_and_an_alpha_that_keeps_none_are_errors(world: QualityWorld, tmp_path: Path) -> None:
    small = QualityWorld(tmp_path, num_good=30)
    with pytest.raises(
        UserError,
        match=r"curation\.quality\.good: found 30 different documents that pass the filter in manual, expected at "
        r"least 50 to train the classifier on; name more corpora",
    ):
        small.curate()
    few = CorpusConfig(name="few", licence="MIT", jsonl="crawl.jsonl", rules=LOOSE, max_megabytes=0.015)
    (world.project.raw / "few").symlink_to(world.project.raw / "crawl")
    world.corpora.append(few)
    with pytest.raises(UserError, match=r"curation\.quality\.corpora: found \d+ different documents .* in few"):
        world.curate(corpora=("few",))
    world.corpora.pop()
    world.corpora[1] = world.corpora[1].model_copy(update={"max_megabytes": 0.1})
    with pytest.raises(
        UserError,
        match=r"corpus crawl: the quality classifier keeps [01] of \d+ documents, expected at least 2; lower "
        r"curation\.quality\.alpha, now 100, or take the corpus out of curation\.quality\.corpora",
    ):
        world.curate(alpha=100)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"good": ["bible"], "corpora": ["crawl"]}, r"quality\.corpora: .*corpus crawl.*one of corpora with text"),
        ({"good": ["bible", "apis"], "corpora": ["apis"]}, r"quality\.corpora: .*corpus apis.*no corpus of .*\.good"),
        ({"good": ["bible", "bible"], "corpora": ["apis"]}, r"quality\.good: .*bible twice.*each name once"),
        ({"good": [], "corpora": ["apis"]}, r"curation\.quality\.good"),
        ({"good": ["bible"], "corpora": ["apis"], "alpha": 0}, r"curation\.quality\.alpha"),
    ],
)  # fmt: skip
def test_the_config_names_corpora_that_exist_once(tmp_path: Path, section: dict[str, Any], expected: str) -> None:
    document = yaml.safe_load((Path(__file__).parents[2] / "experiments" / "demo.yaml").read_text())
    document["curation"]["quality"] = section
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match=expected):
        load_experiment(tmp_path / "demo.yaml")
