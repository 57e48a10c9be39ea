"""The ring of a recorded run: what a trainer that is not Treering's reported of one step.

Every rank of the trainer writes such rings about the samples that it was given itself. A ring is encoded in a third of
the time of canonical JSON's encoder, to the same bytes: orjson writes the numbers, and Python those few that it spells
otherwise.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

import orjson

from treering.config.canonical import DIGEST_PREFIX, canonical_json
from treering.runlog.chained_line import ChainedLine, of_other_kinds, parse_ring, refuse, seal
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

    @classmethod
    def sealed(cls, **values: Any) -> tuple[Self, str]:
        """Builds a ring from all fields but `digest`; returns the ring and its line without the newline."""
        line, digest = _sealed_fast(**values) or seal(values)
        return cls(**values, digest=digest), line

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


def _sealed_fast(
    *,
    step: int,
    metrics: dict[str, float],
    samples: int | None,
    tokens: int | None,
    batch_digest: str | None,
    fingerprints: str | None,
    ended_at: float,
    prev: str,
) -> tuple[str, str] | None:
    """What `seal` returns; None where a value needs the encoder of canonical JSON."""
    numbers = _numbers(metrics)
    if numbers is None or not math.isfinite(ended_at):
        return None
    if not _is_plain(f"{batch_digest}{fingerprints}{prev}"):
        return None
    order, form = _layout(tuple(metrics))
    if order:
        numbers = [numbers[place] for place in order]
    by_name = form % tuple(numbers)
    before = f'{{"batch_digest":{_text(batch_digest)},'
    after = (
        f'"ended_at":{ended_at!r},"fingerprints":{_text(fingerprints)},"metrics":{{{by_name}}},"prev":"{prev}",'
        f'"samples":{_count(samples)},"step":{step!r},"tokens":{_count(tokens)}}}'
    )
    digest = DIGEST_PREFIX + hashlib.sha256(f"{before}{after}".encode()).hexdigest()
    return f'{before}"digest":"{digest}",{after}', digest


def _numbers(metrics: Mapping[str, float]) -> list[str] | None:
    """The numbers as canonical JSON has them, None where one is not finite or no float."""
    values = list(metrics.values())
    if not all(type(value) is float for value in values):
        return None
    text = orjson.dumps(values).decode()[1:-1]
    if not text:
        return []
    if "n" in text:  # null, for what is not finite
        return None
    numbers = text.split(",")
    if "e" in text or "0.0000" in text:  # 1e-5 and 0.00001 are 1e-05 in canonical JSON
        return [
            repr(value) if "e" in number or "0.0000" in number else number
            for value, number in zip(values, numbers, strict=True)
        ]
    return numbers


@lru_cache(maxsize=256)
def _layout(names: tuple[str, ...]) -> tuple[tuple[int, ...], str]:
    """The order in which names are written, empty where it is the order given; and the form of the text."""
    order = sorted(range(len(names)), key=names.__getitem__)
    form = ",".join(canonical_json(names[place]).replace("%", "%%") + ":%s" for place in order)
    return () if order == list(range(len(names))) else tuple(order), form


_is_plain: Final = re.compile("[a-zA-Z0-9:]*").fullmatch


def _text(value: str | None) -> str:
    return "null" if value is None else f'"{value}"'


def _count(value: int | None) -> str:
    return "null" if value is None else repr(value)


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
