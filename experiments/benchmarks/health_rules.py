"""Alarms of every rule of health on real curves, and how late each rule finds a fault that is put into them.

    python experiments/benchmarks/health_rules.py --runs runs --public ../modded-nanogpt.git --json result.json

`--runs` takes folders of runs of Treering. `--public` takes a clone of the git repository KellerJordan/modded-nanogpt
(MIT licence), which has logs of per-step training losses of GPT-2 models of 124 M and 1 B parameters, trained with
llm.c and PyTorch, by AdamW, Muon and SOAP. Most of them hold the loss of one of eight ranks: their noise is that of
small batches, and runs on the same data show the same hard batches at the same steps.

Table 1: alarms per 1,000 steps, by rule and curve, and how many steps count as diverging. Table 2: a fault is put into
every curve of 1,000 steps and more that raised no alarm but spikes, and the steps until its rule fires are counted.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treering.metrics.alarms import DIVERGENCE, EARLY_BLOWUP, FLAT, GRAD_NORM, LOSS, RULES, SPIKE, TOO_GOOD, Alarm
from treering.metrics.lines.diverging import LEVEL_STEPS, RECENT, diverging
from treering.metrics.path_alarms import alarms_of
from treering.metrics.spikes import find_spikes
from treering.runlog.ancestry import path_left
from treering.runlog.find import find_runs

_STEP = re.compile(r"^step:(\d+)/\d+ train_loss:(\S+)", re.MULTILINE)
_LLMC = re.compile(r"^s:(\d+) trl:(\S+)(?: lr:\S+ norm:(\S+))?", re.MULTILINE)
_LOGS = re.compile(r"records/(?:track_1_short/)?2024.*\.(?:txt|log)$")

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One training.

    Attributes:
        name: what it is called in the table.
        loss: of each step.
        raised: alarms by rule, on loss and gradient norm.
        diverging: after how many steps the run would count as diverging.
    """

    name: str
    loss: Values
    raised: Counter[str]
    diverging: int


@dataclass(frozen=True)
class Judged:
    """What of a step is judged."""

    step: int
    loss: float
    applied: bool = True
    grad_norm: float | None = None
    learning_rate: float = 0.0


def count_diverging(losses: Values, alarms: list[Alarm]) -> int:
    """After how many steps of a curve `diverging` finds something; only steps shortly after an alarm can."""
    rings = [Judged(step, loss) for step, loss in enumerate(losses.tolist(), 1)]
    ordered = sorted(alarms, key=lambda alarm: alarm.step)
    lasting = [alarm.step for alarm in ordered if alarm.rule in {DIVERGENCE, EARLY_BLOWUP}]
    steps = {step for alarm in ordered for step in range(alarm.step, alarm.step + RECENT)}
    steps |= set(range(lasting[0], len(rings) + 1)) if lasting else set()
    steps |= {ring.step for ring in rings if not math.isfinite(ring.loss)}
    return sum(
        diverging(rings[max(0, step - LEVEL_STEPS) : step], [each for each in ordered if each.step <= step]) is not None
        for step in steps
        if step <= len(rings)
    )


def own_curves(folder: Path) -> Iterator[Curve]:
    """The runs of a folder, judged as the platform judges them: with vocabulary, learning rate and applied steps."""
    for run in find_runs(folder):
        path = path_left(run)
        losses = np.array([ring.loss for ring in path.rings])
        if len(losses):
            alarms = alarms_of(run, path)
            name, raised = f"{run.resolved.experiment} ({run.id[:8]})", Counter(alarm.rule for alarm in alarms)
            yield Curve(name, losses, raised, count_diverging(losses, alarms))


def public_curves(repository: Path) -> Iterator[Curve]:
    """The logs of a git repository; of equal logs that stand in several folders the first."""
    git = ["git", "-C", str(repository)]
    names = subprocess.run([*git, "ls-tree", "-r", "--name-only", "HEAD"], capture_output=True, text=True, check=True)
    seen = set()
    for name in filter(_LOGS.search, names.stdout.splitlines()):
        shown = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True, check=False)
        text = shown.stdout.decode(errors="replace")  # a snapshot may lack its largest files
        rows = _STEP.findall(text) or _LLMC.findall(text)
        losses = np.array([float(row[1]) for row in rows])
        if len(losses) < 1000 or losses.tobytes() in seen:
            continue
        seen.add(losses.tobytes())
        alarms = find_spikes(range(1, len(losses) + 1), losses.tolist(), LOSS)
        if len(rows[0]) > 2 and rows[0][2]:
            norms = [float(row[2]) for row in rows]
            alarms += find_spikes(range(1, len(norms) + 1), norms, GRAD_NORM)
        place, raised = Path(name), Counter(alarm.rule for alarm in alarms)
        yield Curve(f"{place.parent.name} ({place.stem[:8]})", losses, raised, count_diverging(losses, alarms))


def table(curves: list[Curve]) -> list[dict[str, object]]:
    """Alarms per 1,000 steps, one row a curve, printed as Markdown."""
    rows = []
    print(f"| curve | steps | noise | {' | '.join(f'`{rule}`' for rule in RULES)} | steps diverging |")
    print(f"| --- | ---: | ---: |{' ---: |' * (len(RULES) + 1)}")
    for curve in curves:
        logs = np.log(curve.loss[np.isfinite(curve.loss) & (curve.loss > 0)])
        noise = 1.4826 * float(np.median(np.abs(np.diff(logs)))) / math.sqrt(2)
        rates = {rule: 1000 * curve.raised[rule] / len(curve.loss) for rule in RULES}
        cells = " | ".join(f"{rate:.2f}" if rate else "0" for rate in rates.values())
        print(f"| {curve.name} | {len(curve.loss):,} | {100 * noise:.1f} % | {cells} | {curve.diverging:,} |")
        about = {"curve": curve.name, "steps": len(curve.loss), "noise": noise}
        rows.append({**about, "alarms": dict(curve.raised), "diverging": curve.diverging})
    return rows


def _blowup(loss: Values) -> tuple[Values, int]:
    changed = loss.copy()
    changed[9:30] *= 4
    return changed, 10


def _from(loss: Values, change: Callable[[Values], Values]) -> tuple[Values, int]:
    at = len(loss) // 2
    changed = loss.copy()
    changed[at:] = change(changed[at:])
    return changed, at + 1


FAULTS: dict[str, tuple[str, Callable[[Values], tuple[Values, int]]]] = {
    "times 4 in steps 10 to 30": (EARLY_BLOWUP, _blowup),
    "zero": (TOO_GOOD, lambda loss: _from(loss, lambda tail: 0 * tail)),
    "a third": (TOO_GOOD, lambda loss: _from(loss, lambda tail: tail / 3)),
    "the same value": (FLAT, lambda loss: _from(loss, lambda tail: 0 * tail + tail[0])),
    "never leaves its start": (FLAT, lambda loss: (11 * np.exp(np.log(loss / np.median(loss)) / 50), 1)),
    "times 2, at once": (DIVERGENCE, lambda loss: _from(loss, lambda tail: 2 * tail)),
    "times 10/3 in 1,500 steps": (
        DIVERGENCE,
        lambda loss: _from(loss, lambda tail: tail * np.exp(np.minimum(np.arange(len(tail)), 1500) * 0.0008)),
    ),
}


def delays(curves: list[Curve]) -> dict[str, dict[str, object]]:
    """Steps from a fault to the alarm of its rule, over the healthy curves of 1,000 steps and more; as Markdown."""
    found: dict[str, dict[str, object]] = {}
    print("\n| fault | rule | found | steps until then: median, most |")
    print("| --- | --- | ---: | ---: |")
    usable = [curve for curve in curves if len(curve.loss) >= 1000 and set(curve.raised) <= {SPIKE}]
    for name, (rule, put) in FAULTS.items():
        waits = []
        for curve in usable:
            changed, at = put(curve.loss[:6000])
            alarms = find_spikes(range(1, len(changed) + 1), changed.tolist(), LOSS)
            steps = [alarm.step for alarm in alarms if alarm.rule == rule and alarm.step >= at]
            waits += [steps[0] - at] if steps else []
        middle = statistics.median(waits) if waits else math.nan
        print(f"| {name} | `{rule}` | {len(waits)} of {len(usable)} | {middle:.0f}, {max(waits, default=0)} |")
        found[name] = {
            "rule": rule,
            "curves": len(usable),
            "found": len(waits),
            "median_delay": middle,
            "largest_delay": max(waits, default=0),
        }
    return found


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, action="append", default=[], help="a folder of runs; repeatable")
    parser.add_argument("--public", type=Path, help="a clone of KellerJordan/modded-nanogpt")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    options = parser.parse_args()
    curves = [curve for folder in options.runs for curve in own_curves(folder)]
    curves += list(public_curves(options.public)) if options.public else []
    result = {"curves": table(curves), "faults": delays(curves)}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
