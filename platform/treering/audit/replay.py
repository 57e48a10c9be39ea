"""Replayed: steps of a checkpoint's path, trained again by the trainer in another process, and compared.

Each step begins from the newest checkpoint before it, or from nothing. The next replayed step shows that a step was
trained otherwise than recorded (another rate, a patched weight). A changed environment, other devices or another
version of torch may change last bits; the finding then names what changed. Replay has never run on a GPU.
"""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

from treering.audit.report import NOT_REPLAYED, AuditReport, Finding, Level, ReplayedSteps
from treering.errors import EvidenceError, TrainingError
from treering.runlog.directory import CheckpointDirectory

_SHOWN = 3


def replay_steps(checkpoint: CheckpointDirectory, count: int, seed: int | None = None) -> dict[str, Any]:
    """Has the trainer run random steps of a path again; it works in a copy and touches nothing.

    Args:
        checkpoint: the end of the path.
        count: how many steps to pick.
        seed: of the choice; a new one by default, so that nobody knows the steps before.

    Returns:
        `checkpoint`, `seed`, `changed` and `steps`: for each step that ran again `step`, `picked`, `loss`,
        `replayed_loss`, `identical`.

    Raises:
        TrainingError: the trainer could not do it; it has said why.
        EvidenceError: a record on the path does not hold.
    """
    command = [sys.executable, "-m", "treering_trainer.replay", str(checkpoint.path), f"--steps={count}"]
    command += [] if seed is None else [f"--seed={seed}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode == EvidenceError.exit_code:
        raise EvidenceError(f"{checkpoint.path}: cannot be replayed; the reason is above", file=checkpoint.path)
    if done.returncode:
        raise TrainingError(
            f"{checkpoint.path}: {count} steps could not be replayed, exit code {done.returncode}; the reason is "
            "above. A replay needs the extra `trainer`, the corpora and the devices of the run"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def replayed(report: AuditReport, found: dict[str, Any]) -> AuditReport:
    """The report with what a replay adds: the level it raises, or the steps that came out otherwise."""
    steps = found["steps"]
    different = [step for step in steps if not step["identical"]]
    changed = "; ".join(found["changed"])
    findings = [
        Finding(
            "ring",
            f"step {step['step']}: loss {step['replayed_loss']} when it was replayed, {step['loss']} is recorded"
            + (f"; not as it was: {changed}" if changed else "; nothing that moves numbers has changed"),
            step=step["step"],
        )
        for step in different[:_SHOWN]
    ]
    if len(different) > _SHOWN:
        findings.append(Finding("ring", f"{len(different) - _SHOWN} more steps differ from their replay"))
    what = ReplayedSteps(
        seed=found["seed"],
        picked=tuple(step["step"] for step in steps if step["picked"]),
        replayed=len(steps),
        identical=len(steps) - len(different),
        changed=tuple(found["changed"]),
    )
    proven = not findings and not report.findings and report.level is Level.CONTENT_BOUND
    rest = f"That the weights follow from the other steps: {len(steps):,} of {report.step:,} were replayed."
    return replace(
        report,
        level=Level.REPLAYED if proven else report.level,
        replay=what,
        findings=(*report.findings, *findings),
        not_proven=tuple(rest if text == NOT_REPLAYED else text for text in report.not_proven),
    )
