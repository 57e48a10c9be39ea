"""The ring of a recorded run: what a trainer that is not Treering's reported of one step.

Every rank of the trainer writes such rings about the samples that it was given itself. Standard library only: training
processes import this module.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from treering.runlog.chained_line import ChainedLine, of_other_kinds, parse_ring, refuse
from treering.runlog.ring import named_floats

FINGERPRINT_DIGITS: Final = 16
"""Hex digits of a sample's fingerprint: the first 64 bits of the sample's digest."""


@dataclass(frozen=True, slots=True)
class RecordedRing(ChainedLine):
    """What one rank reported of one step.

    Attributes:
        step: of the trainer, from 1; a trainer need not report every step.
        metrics: value by name, as the trainer reported them.
        samples: samples that the rank was given in this step; None where the trainer did not report its tokens.
        tokens: tokens of these samples, padding included.
        batch_digest: digest of the samples' digests in the order given.
        fingerprints: `FINGERPRINT_DIGITS` hex digits for each sample, in the order given.
        ended_at: when the step was reported, Unix seconds of the rank's clock.
        prev: digest of the ring before, or of the attempt's header.
        digest: digest of this ring without this field.
    """

    consecutive: ClassVar[bool] = False

    step: int
    metrics: dict[str, float]
    samples: int | None
    tokens: int | None
    batch_digest: str | None
    fingerprints: str | None
    ended_at: float
    prev: str
    digest: str

    @property
    def sample_fingerprints(self) -> list[str]:
        """The fingerprint of each sample in the order given; empty where the trainer did not report its tokens."""
        text = self.fingerprints or ""
        return [text[start : start + FINGERPRINT_DIGITS] for start in range(0, len(text), FINGERPRINT_DIGITS)]

    @classmethod
    def from_line(cls, line: str, where: str) -> Self:
        """Parses a line and checks its digest.

        Args:
            line: one line of a ring file.
            where: file and line number, for errors.

        Raises:
            EvidenceError: the line is not a ring of a recorded run, or its content does not give the digest in it.
        """
        content = parse_ring(line, where, _KINDS)
        content["metrics"] = named_floats(content["metrics"])
        refuse(content, where, of_other_kinds(content, _KINDS))
        refuse(content, where, _wrong_inside(content))
        return cls(**content)


def _wrong_inside(content: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Fields that are of the right kind and wrong all the same: name, value, what was expected."""
    if content["step"] < 1:
        yield "step", content["step"], "a step from 1 on"
    if any(type(value) not in _NUMBER for value in content["metrics"].values()):
        yield "metrics", content["metrics"], "a number for each name"
    if len(content["fingerprints"] or "") != (content["samples"] or 0) * FINGERPRINT_DIGITS:
        yield "fingerprints", content["fingerprints"], f"{FINGERPRINT_DIGITS} hex digits for each sample"


_NUMBER: Final = (float, int)
_MISSING: Final = type(None)
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "step": (int,),
    "metrics": (dict,),
    "samples": (int, _MISSING),
    "tokens": (int, _MISSING),
    "batch_digest": (str, _MISSING),
    "fingerprints": (str, _MISSING),
    "ended_at": _NUMBER,
    "prev": (str,),
    "digest": (str,),
}
