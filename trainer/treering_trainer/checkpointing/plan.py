"""The plan of an attempt: where it begins, and why.

Light: imports neither torch nor DeepSpeed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from treering.runlog.records import Parent


@dataclass(frozen=True, slots=True)
class Plan:
    """How an attempt begins.

    Attributes:
        attempt: its number.
        origin: `start`, `resume` or `restart`.
        changed: what differs from the attempt before, in words.
        continue_changed: whether it goes on although something changed.
        checkpoint: folder of the checkpoint to load, None to start from nothing.
        converted: digest of the conversion where that folder is one, None where it is the checkpoint itself.
        parent: the same as a record.
        start_step: last step that is already done.
        applied_steps: of those, the ones that moved the weights.
        validation_loss: the newest held-out loss of the run up to there, None before the first.
        messages: what to tell the user, in order.
        hooks: the state of hooks in the checkpoint that the run goes on from, None where it does not go on or no hook
            had state.
    """

    attempt: int
    origin: Literal["start", "resume", "restart"]
    changed: tuple[str, ...]
    continue_changed: bool
    checkpoint: Path | None
    converted: str | None
    parent: Parent | None
    start_step: int
    applied_steps: int
    validation_loss: float | None
    messages: tuple[str, ...]
    hooks: Path | None = None
