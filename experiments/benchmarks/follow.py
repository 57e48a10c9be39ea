"""What the evaluation beside a training (`evaluation.follow`) costs the training: the time of its steps.

    .venv/bin/python experiments/benchmarks/follow.py --json experiments/benchmarks/results/follow.json

A small model trains with one rank on one thread, and saves ten checkpoints. With `follow`, each is scored meanwhile by
processes that get only idle time. Rounds with and without it alternate; figures are medians over the rings of all
rounds. The first quarter of the steps is left out: there the evaluation still imports its libraries.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from treering.runlog.find import find_runs

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
import text_project


def experiment(steps: int) -> dict[str, Any]:
    """The authored document: 2 layers of width 128, 8 samples of 32 tokens a step."""
    return text_project.experiment(
        "follow",
        seed=7,
        model={"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "padded_vocab_size": 512},
        optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
        schedule={"train_tokens": steps * 8 * 32, "global_batch_size": 8},
        parallel={"micro_batch_size": 4, "cpu_processes": 1},
        checkpoint={"every_steps": steps // 10},
        evaluation={"shots": [0, 1], "perplexity_samples": 16},
    )


def train(folder: Path, steps: int, *, follow: bool) -> tuple[list[float], int]:
    """Trains once; the seconds of each step, and how many checkpoints had scores when the training ended."""
    project = text_project.lay(folder, experiment(steps), heldout=40)
    items = [{"context": "bal bel", "target": "bil", "id": str(number), "document": "d"} for number in range(100)]
    text_project.write_jsonl(project.tasks / "lambada.jsonl", items)
    text_project.run_module(
        project, "treering_trainer.launch", "follow.yaml", f"--set=evaluation.follow={follow}".lower()
    )
    (run,) = find_runs(project.runs)
    scored = len(run.evaluation_files())
    seconds = [ring.time_s["step"] for ring in run.path_rings()]
    while follow and len(run.evaluation_files()) < len(run.checkpoints()):
        time.sleep(0.5)  # it must not compute beside the next round
    return seconds[steps // 4 :], scored


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds: dict[bool, list[float]] = {False: [], True: []}
    scored = 0
    for _ in range(options.rounds):
        for follow in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                steps, found = train(Path(folder), options.steps, follow=follow)
            seconds[follow] += steps
            scored += found
    rows = {
        name: {
            "median_ms": 1000 * statistics.median(seconds[follow]),
            "p99_ms": 1000 * statistics.quantiles(seconds[follow], n=100)[98],
        }
        for name, follow in (("without", False), ("with follow", True))
    }
    ratio = rows["with follow"]["median_ms"] / rows["without"]["median_ms"]
    for name, row in rows.items():
        print(f"{name:12} step {row['median_ms']:.2f} ms, 99th percentile {row['p99_ms']:.2f} ms")
    print(f"ratio {ratio:.3f}; {scored} checkpoints were scored while {options.rounds} trainings went on")
    if options.json:
        record = {"cores": os.cpu_count(), "rows": rows, "ratio": ratio, "scored_meanwhile": scored}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
