"""A batch script for Slurm that can be requeued at any moment: one task a device, which the trainer takes as a rank.

Slurm warns every rank with SIGUSR1 before the time is over; they save a checkpoint and end with exit code 75, and the
script puts its job back into the queue. Source: slurm.schedmd.com, pages sbatch, srun and scontrol.

- `--warning` (10 minutes) before the end of `--time`: Slurm sends SIGUSR1 to the ranks; they save a checkpoint and end
  with 75; the job is requeued. Half of that time before the end the trainer's own `--time-limit` does the same.
- A rank is killed, or the others lose contact with it: srun names the task and its node and ends the others; the job is
  requeued.
- A node fails: Slurm requeues the job (`--requeue`).
- A rank refuses to train (config, evidence, loss not finite: 2, 3, 5): the job ends with that code.
- Three starts in a row bring no new checkpoint: the job ends, because what ended it would end the next start.
- `scancel`, or preemption: ranks get SIGTERM and save a checkpoint, if Slurm's KillWait (30 seconds unless set)
  suffices; the script leaves the queue to Slurm.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from treering.collect.launcher import EXIT_VARIABLE, SCRIPT_VARIABLE
from treering.errors import UserError
from treering.launch.start import Start

IDLE_STARTS: Final = 3
"""So many starts in a row without a new checkpoint, and the job is not requeued any more: what ends it would end the
next one."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a batch job asks Slurm for.

    Attributes:
        nodes: how many.
        gpus_per_node: of each; 0 trains on processors.
        tasks_per_node: ranks of each.
        time_s: its time limit, seconds.
        warning_s: how long before its end ranks are told to stop, seconds.
        container: image for srun's pyxis plug-in, None for none.
        options: sbatch's own, such as `--partition=batch`, as they are.
    """

    nodes: int
    gpus_per_node: int
    tasks_per_node: int
    time_s: int
    warning_s: int
    container: str | None = None
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.warning_s < 60 or self.warning_s > self.time_s // 2:
            raise UserError(
                f"--warning: found {self.warning_s} s, expected 60 s to half of --time ({self.time_s} s): Slurm looks "
                "once a minute, and a step and a checkpoint must fit in"
            )
        for option in self.options:
            if not option.startswith("-") or "\n" in option:
                raise UserError(f"--sbatch: found {option!r}, expected an option of sbatch like --partition=batch")


def render(start: Start, job: Job) -> str:
    """The script's text.

    Args:
        start: what to start.
        job: what to ask for.
    """
    options = [
        f"--job-name=treering-{start.run.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.tasks_per_node}",
        *([f"--gpus-per-node={job.gpus_per_node}", "--exclusive", "--mem=0"] if job.gpus_per_node else []),
        f"--time={slurm_time(job.time_s)}",
        f"--signal=USR1@{job.warning_s}",
        "--requeue",
        "--open-mode=append",
        f"--chdir={_directive(start.project)}",
        f"--output={_directive(start.folder)}/slurm-%j.out",
        *job.options,
    ]
    # Slurm's warning comes first. The limit of our own is for where it does not reach the ranks.
    module = (*start.module, f"--time-limit={job.time_s - job.warning_s // 2}")
    srun = ["srun", "--kill-on-bad-exit=1"]
    if job.container is not None:
        seen = [start.project, *([] if start.run.is_relative_to(start.project) else [start.run.parent])]
        srun.append(f"--container-image={job.container}")
        srun.append(f"--container-mounts={','.join(f'{path}:{path}' for path in seen)}")
        srun.append(f"--container-workdir={start.project}")
    return _SCRIPT.substitute(
        title=f"Run {start.run.name} of {start.config} on {job.nodes} nodes of {job.tasks_per_node} ranks, "
        f"layout {start.layout} (TP x PP x DP).",
        options="\n".join(f"#SBATCH {option}" for option in options),
        warning=job.warning_s,
        folder=shlex.quote(str(start.folder)),
        script=SCRIPT_VARIABLE,
        exit=EXIT_VARIABLE,
        checkpoints=shlex.quote(str(start.run / "checkpoints")),
        command=_folded([*srun, start.python, "-u", "-m", *module]),
        idle=IDLE_STARTS,
    )


def slurm_time(seconds: int) -> str:
    """A time limit as sbatch reads it: `1-06:30:00`; part of a minute counts as a whole one there."""
    days, rest = divmod(seconds, 86_400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _directive(path: Path) -> str:
    """A path behind #SBATCH: no shell reads it there, but blanks end an option, # begins a comment, % a pattern.

    Raises:
        UserError: the path cannot stand there.
    """
    text = str(path)
    if any(character.isspace() or character in "\"'\\#%" for character in text):
        raise UserError(f"{text}: found a blank, a quote, # or % in it, expected a path that an #SBATCH line can hold")
    return text


def _folded(words: list[str]) -> str:
    """A command on several lines of at most 100 characters."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] += f"{' ' * bool(lines[-1])}{word}"
    return " \\\n    ".join(lines)


_SCRIPT: Final = Template(
    """\
#!/bin/bash
# $title
# Rendered by `treering launch --slurm`. Submit it with sbatch; each start goes on from the newest checkpoint.
$options
set -u

# $warning s before the time is over Slurm sends USR1 to the ranks, not to this shell: they save a checkpoint and end
# with exit code 75. This shell gets TERM when the job is cancelled or preempted, and then leaves the queue to Slurm.
cancelled=
trap 'cancelled=1' TERM

# Slurm runs a copy of this script. That text is evidence: it goes into the header of the attempt that it starts.
mkdir -p $folder
export $script=$folder/"job-$$SLURM_JOB_ID.sbatch"
cp -- "$$0" "$$$script"

# Ranks leave their exit codes as the names of files: srun's own is that of the rank which it had to kill.
restarts=$${SLURM_RESTART_COUNT:-0}
export $exit=$folder/"job-$$SLURM_JOB_ID-$$restarts.exit"
rm -f -- "$$$exit"-*
idle_starts=$folder/"job-$$SLURM_JOB_ID.idle"

newest_checkpoint() {
    find $checkpoints -maxdepth 1 -name 'step-*' 2> /dev/null | sort | tail -n 1
}
before=$$(newest_checkpoint)

mapfile -t hosts < <(scontrol show hostnames "$$SLURM_JOB_NODELIST")
export MASTER_ADDR=$${hosts[0]} MASTER_PORT=$$((20000 + SLURM_JOB_ID % 20000))
export OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1}
echo "job $$SLURM_JOB_ID starts on $$SLURM_JOB_NODELIST after $$restarts restarts"

$command
code=$$?

if (( code == 0 )); then
    exit 0
fi
for known in 75 2 3 5; do
    [[ -e $$$exit-$$known ]] && code=$$known
done
idle=0
if [[ $$(newest_checkpoint) == "$$before" ]]; then
    idle=$$(($$(cat -- "$$idle_starts" 2> /dev/null || echo 0) + 1))
fi
echo "$$idle" > "$$idle_starts"
if [[ -n $$cancelled ]]; then
    echo "exit code $$code: cancelled or preempted; the queue is Slurm's affair"
elif (( code == 2 || code == 3 || code == 5 )); then
    echo "exit code $$code: the next start would fail the same way; see above"
elif (( idle >= $idle )); then
    echo "exit code $$code: $$idle starts in a row without a new checkpoint; not requeued"
else
    echo "exit code $$code: back into the queue"
    scontrol requeue "$$SLURM_JOB_ID"
fi
exit "$$code"
"""
)
