"""Fused kernels on and off: one recipe trained twice, the same batches, side by side in losses and speed.

Kernels are no part of a recipe, so both runs have the same id; they lie in folders of their own. A run that is finished
is not trained again: the same command prints the comparison once more.

    .venv/bin/python experiments/ablations/fused_kernels.py experiments/demo.yaml
    .venv/bin/python experiments/ablations/fused_kernels.py experiments/demo.yaml --set precision=bf16 --json out.json
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.data.blend.corpora import resolve_blend
from treering.errors import TreeringError
from treering.project import Project
from treering.runlog.directory import RunDirectory

KERNELS = {
    "eager": {
        "optimizer": "torch",
        "attention": "sdpa_math",
        "bias_gelu": "eager",
        "bias_dropout_add": "eager",
        "cross_entropy": "eager",
    },
    "fused": {
        "optimizer": "torch_fused",
        "attention": "sdpa_auto",
        "bias_gelu": "compiled",
        "bias_dropout_add": "compiled",
        "cross_entropy": "compiled",
    },
}
"""`sdpa_auto` takes the fastest attention that the device has; the header tells which."""

WARMUP_STEPS = 2
"""Steps whose time is not counted: what is compiled, is compiled in them."""


def main() -> int:
    """Trains what is not trained yet and prints the comparison; exit code of a training that did not end well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="the experiment's YAML file; run from its project's root")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation-fused-kernels"), help="where both runs lie")
    parser.add_argument("--json", type=Path, default=None, help="write the comparison there as well")
    arguments = parser.parse_args()
    try:
        experiment = load_experiment(arguments.config, arguments.overrides)
        resolved = resolve(experiment, resolve_blend(experiment, Project(Path.cwd())), str(arguments.config))
    except TreeringError as error:
        print(f"fused_kernels: {error}", file=sys.stderr)
        return error.exit_code
    for name in KERNELS:
        code = train(arguments.config, arguments.overrides, arguments.runs / name, name)
        if code:
            return code
    found = compare({name: RunDirectory(arguments.runs / name / resolved.run_id) for name in KERNELS})
    print(table(found))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def train(config: Path, overrides: Sequence[str], runs: Path, name: str) -> int:
    """Trains with one set of kernels, or finds that it is done; returns the exit code."""
    settings = [*overrides, *(f"kernels.{operation}={kernel}" for operation, kernel in KERNELS[name].items())]
    command = [sys.executable, "-m", "treering_trainer.launch", str(config), "--no-publish", f"--runs={runs}"]
    return subprocess.run([*command, *(f"--set={setting}" for setting in settings)], check=False).returncode


def compare(runs: dict[str, RunDirectory]) -> dict[str, Any]:
    """Losses, speed and kernels of both runs; speed as the median over steps after the first ones."""
    rings = {name: list(run.path_rings(run.checkpoints()[-1])) for name, run in runs.items()}
    eager, fused = rings["eager"], rings["fused"]
    speed = {
        name: statistics.median(ring.tokens_per_second for ring in (found[WARMUP_STEPS:] or found))
        for name, found in rings.items()
    }
    used = {name: {each.operation: each for each in run.attempts()[-1].header.kernels} for name, run in runs.items()}
    return {
        "run": runs["eager"].id,
        "steps": len(eager),
        "same_batches": [ring.batch_digest for ring in eager] == [ring.batch_digest for ring in fused],
        "last_loss": {name: found[-1].loss for name, found in rings.items()},
        "largest_loss_difference": max(abs(a.loss - b.loss) for a, b in zip(eager, fused, strict=True)),
        "tokens_per_second": speed,
        "speed_ratio": speed["fused"] / speed["eager"],
        "kernels": {
            operation: {
                name: {"used": used[name][operation].used, "reason": used[name][operation].reason} for name in runs
            }
            for operation in used["eager"]
        },
    }


def table(found: dict[str, Any]) -> str:
    """The comparison as Markdown."""
    loss, speed = found["last_loss"], found["tokens_per_second"]
    rows = [
        ("", "eager", "fused", ""),
        ("---", "---", "---", "---"),
        (
            "last loss",
            f"{loss['eager']:.6f}",
            f"{loss['fused']:.6f}",
            f"{found['largest_loss_difference']:.1e} at most",
        ),
        ("tokens/s", f"{speed['eager']:,.0f}", f"{speed['fused']:,.0f}", f"x {found['speed_ratio']:.2f}"),
        *(
            (operation, each["eager"]["used"], each["fused"]["used"], each["fused"]["reason"])
            for operation, each in found["kernels"].items()
        ),
    ]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    batches = "the same batches" if found["same_batches"] else "OTHER BATCHES"
    return "\n".join([f"run {found['run']}: {found['steps']} steps each, {batches}", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
