"""What a plan lists: one thing that a run was made of, and whether it can be had here."""

from dataclasses import dataclass
from typing import Final, Literal

Part = Literal["code", "environment", "kernels", "data", "devices", "start", "command"]
State = Literal["same", "rebuilt", "other", "cannot", "unknown"]

ORDER_ONLY: Final = "the data order and the digests of the batches"
CLOSE_NUMBERS: Final = "the data order and the digests of the batches; losses as far as rounding allows"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that a run was made of.

    Attributes:
        part: what kind of thing it is.
        name: which one.
        state: `same` as recorded, `rebuilt` for the reproduction, `other` by wish, `cannot` be had
            here, or `unknown`.
        reason: in words.
        remedy: what helps; empty where nothing is wrong.
        comparable: what can be compared all the same; empty where all can, or nothing.
        stops: whether nothing can be trained without it.
    """

    part: Part
    name: str
    state: State
    reason: str
    remedy: str = ""
    comparable: str = ""
    stops: bool = False
