"""The remedy for a loss spike: back to a checkpoint before it, and over the batches that led to it.

Source: PaLM (Chowdhery et al. 2022, arXiv 2204.02311, section 5.1): back about 100 steps, 200 to 500 batches skipped.
"""

import shlex
from dataclasses import dataclass
from typing import Final

from treering.errors import EvidenceError
from treering.runlog.find import AnyRun

STEPS_BEFORE: Final = 5
"""Steps before a spike whose batches are suspected with the spike's own."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Arguments of `treering rewind`.

    Attributes:
        run: the run, short.
        to: step of the checkpoint to go back to.
        skip: how many batches to skip from there.
    """

    run: str
    to: int
    skip: int

    @property
    def command(self) -> str:
        """The command line."""
        return f"treering rewind {shlex.quote(self.run)} --to {self.to} --skip {self.skip}"


def rewind_behind(run: AnyRun, step: int) -> Rewind | None:
    """The rewind that skips the batch of a step and those of the steps before it; None without a checkpoint before.

    It goes back to the newest checkpoint from which `STEPS_BEFORE` batches before the step's are skipped too, or, where
    there is none so early, to the newest checkpoint before the step.

    Args:
        run: the run.
        step: the step of the spike.
    """
    try:
        before = sorted(each.step for each in run.checkpoints() if each.step < step)
    except EvidenceError:  # a record of a checkpoint was changed: `treering verify` names it
        return None
    if not before:
        return None
    early = [each for each in before if each < step - STEPS_BEFORE]
    to = early[-1] if early else before[-1]
    return Rewind(run.path.name[:8], to, step - to)
