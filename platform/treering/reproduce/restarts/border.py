"""The border between two attempts of a run: what the restart may have changed, and how well its absence is shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Proof = Literal["proven", "consistent", "changed", "not seen"]
"""How well a record shows that a restart changed nothing.

`proven`: steps that an attempt without this restart had done were done again, and came out the same to the last bit.
`consistent`: no such step was done twice, and what decides the numbers was the same by digest or by the recipe.
`changed`: a difference was found. `not seen`: the record does not show it.
"""

MOVED: Final = ("data", "order", "random states", "learning rate", "numbers")
"""What a restart must not move, in the order in which one is the cause of the next."""

SURROUNDINGS: Final = ("code", "environment", "layout", "kernels", "hooks")
"""What may change by intent; the attempt records it, and it may move numbers."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing that a restart may have changed.

    Attributes:
        name: one of `MOVED` or `SURROUNDINGS`.
        proof: whether it is the same, and how well that is shown.
        text: what was found, in words.
        step: the first step that differs; None where none does or the aspect has no step.
        remedy: what would show it, where it was not seen; empty otherwise.
    """

    name: str
    proof: Proof
    text: str
    step: int | None = None
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Border:
    """The restart before an attempt.

    Attributes:
        attempt: number of the attempt that began.
        after_step: the step whose checkpoint it began from; 0 where it began again.
        resumes: whether it went on with the run; else it began the run again.
        on_path: whether the attempt is on the path to the run's newest step.
        overlap: first and last step that an earlier attempt had done and this attempt did again; None without any.
        aspects: what the restart may have changed.
    """

    attempt: int
    after_step: int
    resumes: bool
    on_path: bool
    overlap: tuple[int, int] | None
    aspects: tuple[Aspect, ...]

    @property
    def proof(self) -> Proof:
        """How well it is shown that this restart changed nothing."""
        found = {each.name: each.proof for each in self.aspects}
        if any(found.get(name) == "changed" for name in MOVED):
            return "changed"
        if found.get("numbers") == "proven":
            return "proven"
        same = all(found.get(name) in {"proven", "consistent"} for name in (*MOVED[:-1], *SURROUNDINGS[:-1]))
        return "consistent" if same else "not seen"

    @property
    def text(self) -> str:
        """The border in a line."""
        where = f"goes on after step {self.after_step:,}" if self.resumes else f"begins again {self._beginning}"
        return f"attempt {self.attempt} {where}: {self.proof}; {self._reason}"

    @property
    def _beginning(self) -> str:
        return f"from step {self.after_step:,} of another run" if self.after_step else "from nothing"

    @property
    def _reason(self) -> str:
        if self.proof == "changed":
            found = [each for each in self.aspects if each.name in MOVED and each.proof == "changed"]
            beside = [each for each in self.aspects if each.name in SURROUNDINGS and each.proof == "changed"]
            causes = f"; changed beside it: {_joined(each.text for each in beside)}" if beside else ""
            return f"{_joined(f'{each.name}: {each.text}' for each in found)}{causes}"
        numbers = next(each.text for each in self.aspects if each.name == "numbers")
        if self.proof == "proven" and self.overlap is not None:
            return f"steps {self.overlap[0]:,} to {self.overlap[1]:,} were done twice: {numbers}"
        if self.proof == "consistent":
            return f"{numbers}; data, order, random states, rate, code, environment and layout are the same"
        open_ = [each for each in self.aspects if each.proof in {"not seen", "changed"} and each.name != "hooks"]
        return _joined(f"{each.name}: {each.text}" for each in open_)


@dataclass(frozen=True, slots=True)
class RestartAudit:
    """What the restarts of a run changed.

    Attributes:
        run: the run's id.
        borders: by attempt, those that are off the path too.
    """

    run: str
    borders: tuple[Border, ...]

    @property
    def holds(self) -> bool:
        """Whether no restart was found to change anything."""
        return all(each.proof != "changed" for each in self.borders)

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        if not self.borders:
            return "No restart: the run has one attempt."
        counts = [(proof, sum(each.proof == proof for each in self.borders)) for proof in _ORDER]
        told = ", ".join(f"{count:,} {proof}" for proof, count in counts if count)
        restarts = f"{len(self.borders):,} restart{'' if len(self.borders) == 1 else 's'}"
        changed = [each.attempt for each in self.borders if each.proof == "changed"]
        if changed:
            return f"CHANGED by a restart: before attempt {_joined(map(str, changed), ', ')}; {restarts}: {told}."
        return f"{restarts}, none found to change anything: {told}."

    @property
    def remedies(self) -> tuple[str, ...]:
        """What would show what was not seen."""
        found = (each.remedy for border in self.borders if border.proof == "not seen" for each in border.aspects)
        return tuple(dict.fromkeys(remedy for remedy in found if remedy))


_ORDER: Final[Sequence[Proof]] = ("proven", "consistent", "not seen", "changed")


def _joined(texts: Iterator[str], by: str = "; ") -> str:
    return by.join(texts)
