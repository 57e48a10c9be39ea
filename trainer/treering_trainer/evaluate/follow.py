"""Evaluates each new checkpoint beside a training (`evaluation.follow`): started by `treering_trainer.launch.beside`.

    training -> new checkpoint -> a process that evaluates it -> record, or an incident of the attempt

Each checkpoint has a process of its own, so that one that cannot be scored does not hold up the others. The newest one
comes first, since the rules of `checkpoint` remove older ones. When the training has ended, the checkpoints without
scores are tried once more.
"""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from treering.apart import lives, process_of
from treering.errors import EvidenceError
from treering.foreign import say
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.journal import CheckpointSaved
from treering_trainer.evaluate.__main__ import main as evaluate
from treering_trainer.launch.beside import is_scored
from treering_trainer.launch.devices import set_accelerator
from treering_trainer.launch.job import write_incident
from treering_trainer.launch.prepare import import_quietly
from treering_trainer.monitor.processes import fork

_INTERVAL_S = 1.0


@dataclass(slots=True)
class Follower:
    """The evaluation beside one attempt.

    Attributes:
        config: the experiment's file.
        attempt: the attempt's directory.
        process: the process after whose end only the missing scores are caught up.
        device: what computes.
        overrides: `--set` of the training.
    """

    config: Path
    attempt: Path
    process: int
    device: str
    overrides: Sequence[str] = ()
    _tried: set[str] = field(default_factory=set)
    _reported: set[str] = field(default_factory=set)

    @property
    def run(self) -> RunDirectory:
        """The run of the attempt."""
        return RunDirectory(self.attempt.parent.parent)

    def follow(self) -> None:
        """Evaluates until the training has ended and every checkpoint was tried.

        While it trains, evaluations get only the time in which processors are idle.
        """
        training = process_of(self.process)
        _schedule(os.SCHED_IDLE)
        while lives(training):
            self._catch_up()
            time.sleep(_INTERVAL_S)
        _schedule(os.SCHED_OTHER)
        self._tried.clear()
        self._catch_up()
        self._name_missing()

    def _catch_up(self) -> None:
        while waiting := [
            each for each in self.run.checkpoints() if each.has_manifest and each.digest not in self._tried
        ]:
            checkpoint = waiting[-1]
            self._tried.add(checkpoint.digest)
            if not is_scored(self.run, checkpoint):
                self._evaluate(checkpoint)

    def _evaluate(self, checkpoint: CheckpointDirectory) -> None:
        words = [
            *(str(self.config), f"--run={self.run.path}", f"--step={checkpoint.step}", f"--device={self.device}"),
            *(f"--set={each}" for each in self.overrides),
        ]
        code, errors = _in_a_process(words, self.device)
        say(errors.rstrip("\n"))
        if is_scored(self.run, checkpoint):
            say(f"step {checkpoint.step}: scored")
        elif checkpoint.path.exists():  # else the rules removed it meanwhile, which is named at the end
            lines = errors.strip().splitlines()
            how = f"killed by signal {-code}" if code < 0 else lines[-1] if lines else f"exit code {code}"
            self._report(f"step {checkpoint.step} was not scored on {self.device}: {how.removeprefix('treering: ')}")

    def _report(self, text: str) -> None:
        """Says and records what has no scores; the same text once."""
        say(text)
        if text not in self._reported:
            self._reported.add(text)
            with suppress(OSError, EvidenceError):  # a full disk must not end the evaluation of the next checkpoints
                write_incident(self.attempt, "evaluation_failed", text, None)

    def _name_missing(self) -> None:
        """Names the checkpoints of the attempt that were removed before they could be scored."""
        with suppress(EvidenceError):  # the journal was changed: `treering verify` reports that
            number = int(self.attempt.name)
            entries = [line.entry for line in self.run.journal.lines()]
            saved = {each.step for each in entries if isinstance(each, CheckpointSaved) and each.attempt == number}
            there = {each.step for each in self.run.checkpoints()}
            scored = {record.step for record in self.run.evaluations()}
            if missing := sorted(saved - there - scored):
                steps = ", ".join(map(str, missing))
                self._report(
                    f"no scores for step {steps}: removed before it could be scored; raise checkpoint.keep_last"
                )


def _in_a_process(words: Sequence[str], device: str) -> tuple[int, str]:
    """Evaluates in a forked process: what was imported once is there.

    Returns:
        Exit code, or minus the signal that killed it; and what it printed on standard error.
    """
    set_accelerator(device.partition(":")[0])
    for module in ("run", "inputs", "analyses.prompts"):
        import_quietly(f"treering_trainer.evaluate.{module}")
    read, write = os.pipe()

    def work() -> int:
        os.close(read)
        os.dup2(write, 2)
        os.close(write)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        try:
            return evaluate(words)
        except BaseException:  # the last frame of the process
            traceback.print_exc()
            raise

    child = fork(work)
    os.close(write)
    with os.fdopen(read, errors="replace") as pipe:
        errors = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), errors


def _schedule(policy: int) -> None:
    with suppress(OSError):  # a kernel or container may refuse it
        os.sched_setscheduler(0, policy, os.sched_param(0))


def main(arguments: Sequence[str]) -> int:
    """`python -m treering_trainer.evaluate.follow CONFIG ATTEMPT PROCESS DEVICE [PATH=VALUE…]`, in the project's root.

    Returns:
        0.
    """
    config, attempt, process, device, *overrides = arguments
    os.nice(10)  # a training on the same cores goes first
    Follower(Path(config), Path(attempt), int(process), device, overrides).follow()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
