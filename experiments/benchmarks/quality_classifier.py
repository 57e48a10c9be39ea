"""How well the quality classifier separates, what it keeps, and what it costs, on the demo's real text.

    treering fetch experiments/demo.yaml
    python experiments/benchmarks/quality_classifier.py --json out.json

Curates the demo's corpora twice with prose (abstracts, the Bible, country profiles) declared good, and prints for each
judged corpus how many documents the rule keeps beside the number that the formula (2 - score)^-alpha expects. The two
results have to be equal, byte by byte.

The second part plants what nobody can dispute: of the abstracts, half are declared good, and a quarter is mixed into a
crawl of source code. Planted abstracts are the good documents of the crawl; their scores are compared with those of the
code, once for all of them and once for those that the classifier was not trained on.

The third part trains on the documents of the first part in our size and in fastText's, and measures both on the others.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from treering.config.canonical import digest_file
from treering.config.corpora import CorpusConfig, CurationConfig, FilterRules
from treering.config.load import load_experiment
from treering.config.quality import QualityConfig
from treering.data.curate import classifier
from treering.data.curate.pipeline import curate
from treering.project import Project

GOOD, JUDGED = ("abstracts", "factbook", "bible"), ("apis", "webpages")
FASTTEXT = {"dim": 100, "bucket": 2_000_000, "minCount": 1, "lr": 0.1, "epoch": 5, "wordNgrams": 2}
"""Defaults of fastText's `train_supervised`, with pairs of words."""


def rows_of(project: Project, corpus: str) -> list[dict[str, Any]]:
    """The decisions about the documents of a corpus that were judged."""
    rows = pq.read_table(project.curated / "decisions" / f"{corpus}.parquet").to_pylist()
    return [row for row in rows if row["quality_score"] is not None]


def project_of(raw: Path, folder: Path) -> Project:
    """A new project over fetched text."""
    project = Project(folder)
    project.raw.parent.mkdir(parents=True)
    project.raw.symlink_to(raw.resolve())
    return project


def demo(corpora: tuple[CorpusConfig, ...], config: CurationConfig, project: Project) -> dict[str, Any]:
    """Curates the demo twice; the second result has to be the first."""
    results = []
    for _ in range(2):
        summary = curate(corpora, config, project, lambda _: None)
        results.append(
            {
                str(path.relative_to(project.root)): digest_file(path)
                for path in project.curated.rglob("*")
                if path.is_file()
            }
        )
    if results[0] != results[1]:
        sys.exit("two curations of the same text differ")
    kept = {}
    for name in JUDGED:
        rows = rows_of(project, name)
        expected = sum((2 - row["quality_score"]) ** -summary["quality"]["alpha"] for row in rows)
        bands = summary["quality"]["bands"][name]
        kept[name] = {"judged": len(rows), "kept": sum(band[1] for band in bands), "expected": round(expected, 1)}
    record = summary["quality"]
    return {
        "documents": record["documents"],
        "measured": record["measured"],
        "auc": record["auc"],
        "model_mb": round((project.curated / "quality" / "model.bin").stat().st_size / 1e6, 1),
        "kept": kept,
        "identical": True,
    }


def planted(project: Project, folder: Path) -> dict[str, Any]:
    """Mixes abstracts into a crawl of code, and judges it."""
    prose, code = (
        [json.loads(line) for line in (project.curated / "train" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("abstracts", "code")
    )
    half, quarter = len(prose) // 2, len(prose) // 4
    parts = [
        {"id": f"{row['id']}:{start}", "text": row["text"][start : start + 1500]}
        for row in code
        for start in range(0, len(row["text"]) - 1500, 1500)
    ]
    crawl = parts + [{"id": f"planted:{row['id']}", "text": row["text"]} for row in prose[half : half + quarter]]
    lay = Project(folder)
    for name, rows in (("good", prose[:half]), ("crawl", crawl)):
        (lay.raw / name).mkdir(parents=True)
        lines = (json.dumps({"id": row["id"], "text": row["text"]}) + "\n" for row in rows)
        (lay.raw / name / f"{name}.jsonl").write_text("".join(lines))
    rules = FilterRules(min_characters=1, languages=(), min_words=1, min_stop_words=0, max_mean_word_length=None,
                        max_symbol_to_word_ratio=None, min_alphabetic_word_fraction=None, min_mean_word_length=None,
                        max_duplicate_line_fraction=None)  # fmt: skip
    corpora = [CorpusConfig(name=name, licence="x", jsonl=f"{name}.jsonl", rules=rules) for name in ("good", "crawl")]
    config = CurationConfig(quality=QualityConfig(good=("good",), corpora=("crawl",)))
    summary = curate(corpora, config, lay, lambda _: None)
    examples = pq.read_table(lay.curated / "quality" / "documents.parquet").to_pylist()
    trained = {row["id"] for row in examples if row["corpus"] == "crawl" and row["score"] is None}
    sides: dict[tuple[bool, bool], list[float]] = {}
    for row in rows_of(lay, "crawl"):
        place = (row["id"].startswith("planted:"), row["id"] in trained)
        sides.setdefault(place, []).append(row["quality_score"])
    rows = rows_of(lay, "crawl")
    kept = [
        sum(row["step"] != "quality" for row in rows if row["id"].startswith("planted:") == side) / count
        for side, count in ((True, quarter), (False, len(rows) - quarter))
    ]
    return {
        "good": half,
        "planted": quarter,
        "code": len(parts),
        "auc_all": round(
            classifier.auc(sides[True, False] + sides[True, True], sides[False, False] + sides[False, True]), 4
        ),
        "auc_not_trained_on": round(classifier.auc(sides[True, False], sides[False, False]), 4),
        "auc_reported": summary["quality"]["auc"],
        "kept_planted": round(kept[0], 3),
        "kept_code": round(kept[1], 3),
    }


def training(plain: Project, judged: Project, folder: Path) -> dict[str, Any]:
    """Trains on the documents of the first part in our size and in fastText's, and measures both on the others."""
    texts = {
        (corpus, row["id"]): row["text"]
        for corpus in (*GOOD, *JUDGED)
        for split in ("train", "heldout")
        for row in map(json.loads, (plain.curated / split / f"{corpus}.jsonl").read_text().splitlines())
    }
    examples = pq.read_table(judged.curated / "quality" / "documents.parquet").to_pylist()
    used = {(row["corpus"], row["id"]) for row in examples}
    known = [(row["good"], texts[row["corpus"], row["id"]]) for row in examples if (row["corpus"], row["id"]) in texts]
    fresh = {
        side: [
            text for (corpus, name), text in texts.items() if (corpus in GOOD) == side and (corpus, name) not in used
        ]
        for side in (True, False)
    }
    classifier.write_examples(known, folder / "text")
    num_bytes = (folder / "text").stat().st_size
    result: dict[str, Any] = {"documents": len(known), "megabytes": round(num_bytes / 1e6, 1)}
    for name, settings in (("ours", classifier.settings(len(known))), ("fasttext", FASTTEXT)):
        start = time.process_time()
        classifier.train(folder / "text", folder / name, settings)
        trained_s = time.process_time() - start
        model = classifier.Classifier(folder / name)
        start = time.process_time()
        scores = [[model.score(text) for text in fresh[side]] for side in (True, False)]
        judged_s = time.process_time() - start
        judged_mb = sum(len(text.encode()) for part in fresh.values() for text in part) / 1e6
        result[name] = {
            "auc": round(classifier.auc(*scores), 4),
            "model_mb": round((folder / name).stat().st_size / 1e6, 1),
            "training_cpu_s": round(trained_s, 1),
            "judging_mb_per_cpu_s": round(judged_mb / judged_s, 1),
        }
    digests = set()
    for name in ("again", "once more"):
        classifier.train(folder / "text", folder / name, classifier.settings(len(known)))
        digests.add(digest_file(folder / name))
    result["same_bytes"] = digests == {digest_file(folder / "ours")}
    return result


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("experiments/demo.yaml"))
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="what `treering fetch` wrote")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    experiment = load_experiment(arguments.config, ())
    config = experiment.curation.model_copy(update={"quality": QualityConfig(good=GOOD, corpora=JUDGED)})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, judged = (project_of(arguments.raw, folder / name) for name in ("plain", "judged"))
        curate(experiment.corpora, experiment.curation, plain, lambda _: None)
        result = {"demo": demo(experiment.corpora, config, judged)}
        result["planted"] = planted(plain, folder / "planted")
        result["training"] = training(plain, judged, folder)
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
