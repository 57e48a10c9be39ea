"""What deterministic mode (`deterministic: true`) costs on processors: the time of a step, and whether a bit changes.

    .venv/bin/python experiments/benchmarks/determinism.py --json experiments/benchmarks/results/determinism.json

A small model trains with one rank on one thread. Rounds with and without the mode alternate; figures are medians over
the rings of all rounds without the first quarter of the steps.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from treering.runlog.find import find_runs

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
import text_project


def experiment(steps: int) -> dict[str, Any]:
    """The authored document: 2 layers of width 128, 8 samples of 32 tokens a step."""
    return text_project.experiment(
        "determinism",
        seed=7,
        model={"num_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "padded_vocab_size": 512},
        optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
        schedule={"train_tokens": steps * 8 * 32, "global_batch_size": 8},
        parallel={"micro_batch_size": 4, "cpu_processes": 1},
        checkpoint={"every_steps": steps},
    )


def train(folder: Path, steps: int, *, deterministic: bool) -> tuple[list[float], list[float]]:
    """Trains once; the seconds of the steps, and all losses."""
    project = text_project.lay(folder, experiment(steps))
    option = f"--set=deterministic={deterministic}".lower()
    text_project.run_module(project, "treering_trainer.launch", "determinism.yaml", option)
    (run,) = find_runs(project.runs)
    rings = list(run.path_rings())
    return [ring.time_s["step"] for ring in rings][steps // 4 :], [ring.loss for ring in rings]


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds: dict[bool, list[float]] = {False: [], True: []}
    losses = set()
    for _ in range(options.rounds):
        for deterministic in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                times, found = train(Path(folder), options.steps, deterministic=deterministic)
            seconds[deterministic] += times
            losses.add(tuple(found))
    medians = {
        name: 1000 * statistics.median(seconds[on]) for name, on in (("without", False), ("deterministic", True))
    }
    ratio = medians["deterministic"] / medians["without"]
    for name, milliseconds in medians.items():
        print(f"{name:14} step {milliseconds:.2f} ms")
    print(f"ratio {ratio:.3f}; the losses are {'the same' if len(losses) == 1 else 'not the same'} to the last bit")
    if options.json:
        record = {
            "cores": os.cpu_count(), "median_ms": medians, "ratio": ratio, "steps": options.steps,
            "rounds": options.rounds, "same_losses": len(losses) == 1,
        }  # fmt: skip
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
