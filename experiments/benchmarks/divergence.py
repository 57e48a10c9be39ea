"""How the losses of two trainings part, by rounding alone and by a changed setting, and what the rule says of each.

    .venv/bin/python experiments/benchmarks/divergence.py --json experiments/benchmarks/results/divergence.json

A small model is trained once unchanged and once with each change, in fp32 and in bf16. A layout, a micro-batch and a
kernel change the order of sums alone; a setting of the optimizer changes the training. `treering.reproduce.growth` has
the rule; a test judges the kept series again.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from treering.reproduce.growth import judge_losses
from treering.runlog.find import find_runs

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
import text_project

STEPS, SAMPLES, LENGTH = 60, 8, 32
ROUNDING: dict[str, dict[str, dict[str, Any]]] = {
    "tensor parallel 2": {"parallel": {"tensor": 2}},
    "data parallel 2": {"parallel": {"data": 2}},
    "micro-batch of 2": {"parallel": {"micro_batch_size": 2}},
    "math attention": {"kernels": {"attention": "sdpa_math"}},
}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "beta2 0.95 to 0.96": {"optimizer": {"beta2": 0.96}},
    "peak rate 1 % higher": {"optimizer": {"peak_learning_rate": 0.00303}},
    "weight decay 0.1 to 0.11": {"optimizer": {"weight_decay": 0.11}},
    "epsilon 1e-8 to 1e-7": {"optimizer": {"epsilon": 1e-7}},
    "clipping 1 to 0.9": {"optimizer": {"gradient_clipping": 0.9}},
}


def train(precision: str, change: dict[str, dict[str, Any]]) -> list[float]:
    """The losses of a training."""
    document = text_project.experiment(
        "g",
        seed=5,
        precision=precision,
        model={"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "padded_vocab_size": 512},
        optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003, **change.get("optimizer", {})},
        schedule={
            "train_tokens": STEPS * SAMPLES * LENGTH,
            "global_batch_size": SAMPLES,
            "warmup_tokens": 10 * SAMPLES * LENGTH,
        },
        parallel={"micro_batch_size": 4, "data": 1, **change.get("parallel", {})},
        kernels=change.get("kernels", {}),
        checkpoint={"every_steps": 1000},
        validation={"every_steps": 1000, "samples": 3},
    )
    with tempfile.TemporaryDirectory() as folder:
        project = text_project.lay(Path(folder), document)
        text_project.run_module(project, "treering_trainer.launch", "g.yaml")
        (run,) = find_runs(project.runs)
        return [ring.loss for ring in run.path_rings()]


def main() -> None:
    """Trains, judges and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    losses: dict[str, dict[str, list[float]]] = {}
    for precision in ("fp32", "bf16"):
        series = losses[precision] = {"unchanged": train(precision, {})}
        for name, change in {**ROUNDING, **SETTINGS}.items():
            series[name] = train(precision, change)
            first, second = np.array(series["unchanged"]), np.array(series[name])
            found = judge_losses(np.arange(1, STEPS + 1), first, second, precision, SAMPLES * LENGTH)
            print(f"{precision}  {name:26} {'equal' if found is None else found.kind}")
    if options.json:
        options.json.write_text(json.dumps({"tokens": SAMPLES * LENGTH, "losses": losses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
