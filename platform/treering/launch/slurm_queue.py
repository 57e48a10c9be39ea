"""Submits batch scripts to Slurm, at most one job for each run at a time.

The number of a job is kept beside its script, in `runs/<id>/launch/`. Before the next script of a run is submitted,
`squeue` is asked about the earlier jobs of the run: a job that waits, runs or requeues itself is not joined by another.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treering.errors import UserError
from treering.files import read_text, write_durably

_SUFFIX: Final = ".job"


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job of a run.

    Attributes:
        job: its number.
        queued: its state in the queue, as squeue names it, if it was submitted before; None if it was submitted now.
        doubt: what is not known of earlier jobs, empty where all is known.
    """

    job: str
    queued: str | None = None
    doubt: str = ""


def submit(script: Path) -> Submitted:
    """Submits a script of a run, unless a job of the run is in the queue.

    Args:
        script: in the run's `launch/`.

    Raises:
        UserError: sbatch is missing, or refused the script.
    """
    doubts = []
    for path in sorted(script.parent.glob(f"*{_SUFFIX}")):
        job, _, cluster = read_text(path).strip().partition(";")
        state, why = _ask(job, cluster)
        if state:
            return Submitted(job, state)
        if why:
            doubts.append(f"job {job} of this run may be in the queue too, since squeue did not answer ({why})")
    try:
        done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("--submit: found no sbatch in PATH, expected a login node of a Slurm cluster") from None
    if done.returncode:
        raise UserError(
            f"{script}: sbatch refused it: {done.stderr.strip()}; change the options, or edit and submit it"
        )
    said = done.stdout.strip()
    write_durably(script.with_suffix(_SUFFIX), f"{said}\n")
    return Submitted(said.partition(";")[0], doubt="; ".join(doubts))


def _ask(job: str, cluster: str) -> tuple[str, str]:
    """The state of a job, empty if it has left the queue; and why squeue does not know, empty if it does."""
    words = ["squeue", "--noheader", "--format=%T", f"--jobs={job}", *([f"--clusters={cluster}"] if cluster else [])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "", "there is no squeue in PATH"
    if done.returncode and "Invalid job id" not in done.stderr:
        return "", done.stderr.strip() or f"exit code {done.returncode}"
    states = [line for line in done.stdout.split("\n") if line and not line.startswith("CLUSTER:")]
    return (states[0].strip() if states else ""), ""
