"""What a rank sends to the collector of its node: a datagram an interval, on a socket that only this node has."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

MOST_BYTES: Final = 1 << 16


def address(folder: Path) -> bytes:
    """Name of the collector's socket (Linux, abstract: it needs no file and goes with the process).

    Args:
        folder: the attempt's `telemetry/`.
    """
    return b"\0treering-" + hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:32].encode()


@dataclass(frozen=True, slots=True)
class RankMessage:
    """A rank's own readings.

    Attributes:
        rank: global rank.
        devices: NVML's index of each device that it computes on; none on the processor.
        values: by metric.
        reasons: why a metric is missing.
        lost: messages that could not be sent so far.
        ends: whether it is the rank's last message.
        stops: whether the collector is to end.
    """

    rank: int
    devices: tuple[int, ...]
    values: Mapping[str, float]
    reasons: Mapping[str, str]
    lost: int = 0
    ends: bool = False
    stops: bool = False

    def to_bytes(self) -> bytes:
        """As a datagram."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def parse(cls, content: bytes) -> Self | None:
        """Reads a datagram; None for anything else."""
        try:
            found = json.loads(content)
            return cls(
                rank=int(found["rank"]),
                devices=tuple(int(device) for device in found["devices"]),
                values={str(name): float(value) for name, value in found["values"].items()},
                reasons={str(name): str(reason) for name, reason in found["reasons"].items()},
                lost=int(found["lost"]),
                ends=bool(found["ends"]),
                stops=bool(found["stops"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
