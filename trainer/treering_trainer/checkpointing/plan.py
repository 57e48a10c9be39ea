"""The plan of an attempt: where it begins, and why.

Imports neither torch nor DeepSpeed.
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
        continue_changed: whether it continues although something changed.
        checkpoint: folder of the checkpoint to load, None to start from nothing.
        converted: digest of the conversion where that folder is one, None where it is the checkpoint itself.
        parent: the checkpoint as the attempt's header records it.
        start_step: last step that is already done.
        applied_steps: how many steps up to there changed the weights.
        validation_loss: the newest held-out loss of the run up to there, None before the first.
        random_states: digest of the random streams that the checkpoint's next step draws from, by its manifest; None
            where the run does not continue, or the manifest does not say.
        messages: lines for the user, in order.
        hooks: file with the state of hooks in the checkpoint that the run continues from; None where the run does not
            continue, or no hook had state.
    """

    attempt: int
    origin: Literal["start", "resume", "restart"]
    changed: tuple[str, ...]
    continue_changed: bool
    checkpoint: Path | None = None
    converted: str | None = None
    parent: Parent | None = None
    start_step: int = 0
    applied_steps: int = 0
    validation_loss: float | None = None
    random_states: str | None = None
    messages: tuple[str, ...] = ()
    hooks: Path | None = None
