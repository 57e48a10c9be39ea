"""Reads rings in blocks and verifies the chain: what `RingLog` does line by line, in a quarter of the time.

A line passes here if the sha256 of its bytes without `"digest":"…"` is the digest in it, if it names the ring before,
and if a line of the same form passed `RingLog`'s reader. The form of a line is its text without digits: keys, their
order, and the kind of every value. Any other line goes to `RingLog`'s reader, so errors are the same. A number in an
unusual spelling (`1.00`) under a digest of exactly these bytes passes here and not there: `treering verify` names it.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from treering.errors import EvidenceError
from treering.runlog.columns.rows import Rows, Series
from treering.runlog.metric_catalog import ring_metrics
from treering.runlog.recorded_ring import FINGERPRINT_DIGITS, RecordedRing
from treering.runlog.ring import Ring
from treering.runlog.ring_file import open_rings
from treering.runlog.ring_log import Place, RingLog

BLOCK_BYTES: Final = 8 << 20

_DIGEST: Final = b',"digest":"sha256:'
_DIGEST_START: Final = len(b',"digest":"')
_DIGEST_END: Final = len(_DIGEST) + 64
_DIGITS: Final = b"0123456789abcdef.-+"
_NAMED: Final = (b':"NaN"', b':"Infinity"', b':"-Infinity"')
_MOST_FORMS: Final = 10_000

AnyRing = Ring | RecordedRing

_TEXT, _NUMBER, _COUNT = pa.string(), pa.float64(), pa.int64()
_SCHEMAS: Final = {
    Ring: pa.schema(
        [
            *((name, _COUNT) for name in ("step", "sample_start", "consumed_tokens", "global_batch_size")),
            *((name, _NUMBER) for name in ("loss", "grad_norm", "learning_rate", "loss_scale", "tokens_per_second")),
            *((name, _NUMBER) for name in ("tflops_per_device", "ended_at")),
            *((name, _TEXT) for name in ("flops_formula", "batch_digest", "prev", "digest")),
            *((name, _COUNT) for name in ("sample_end", "consumed_samples")),
            ("applied", pa.bool_()),
        ]
    ),
    RecordedRing: pa.schema(
        [
            *((name, _COUNT) for name in ("step", "samples", "tokens")),
            ("ended_at", _NUMBER),
            *((name, _TEXT) for name in ("fingerprints", "batch_digest", "prev", "digest")),
        ]
    ),
}
_RING_METRICS: Final = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "applied": "train/applied",
    "learning_rate": "optim/learning_rate",
    "global_batch_size": "optim/global_batch_size",
    "consumed_tokens": "data/consumed_tokens",
    "tokens_per_second": "speed/tokens_per_second",
    "loss_scale": "optim/loss_scale",
    "tflops_per_device": "speed/tflops_per_device",
}
"""Fields of a ring and the metrics that `ring_metrics` calls them by."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rings that were verified, as rows, and the place behind them."""

    rows: Rows
    place: Place


class BlockReader:
    """The durable rings of one attempt after a place, verified, in blocks.

    Args:
        log: the attempt's rings.
        block_bytes: bytes that are read at once; a longer line is read whole.
    """

    def __init__(self, log: RingLog[Any], block_bytes: int = BLOCK_BYTES) -> None:
        self._log = log
        self._kind: type[AnyRing] = log.kind
        self._block_bytes = block_bytes
        self._forms: set[bytes] = set()

    def after(self, place: Place) -> Iterator[Block]:
        """The blocks after a place.

        Raises:
            EvidenceError: a ring was changed, removed or put in; the same error as that of `RingLog.after`.
        """
        with open_rings(self._log.path) as file:
            file.seek(place.offset)
            rest = b""
            while data := file.read(self._block_bytes):
                rest += data
                whole = rest.rfind(b"\n") + 1
                if not whole:
                    continue
                block = self._verified(rest[:whole], place)
                rest, place = rest[whole:], block.place
                yield block

    def _verified(self, data: bytes, place: Place) -> Block:
        return self._fast(data, place) or self._exact(data, place)

    def _exact(self, data: bytes, place: Place) -> Block:
        """The block by `RingLog`'s reader."""
        end = place.offset + len(data)
        rings: list[AnyRing] = []
        ends: list[int] = []
        for ring, after in self._log.after(place):
            rings.append(ring)
            ends.append(after.offset)
            place = after
            if after.offset >= end:
                break
        return Block(rows_of(rings, ends), place)

    def _fast(self, data: bytes, place: Place) -> Block | None:
        """The block by Arrow's reader, None where a line needs the other one."""
        lines = data.split(b"\n")
        lines.pop()
        digests = self._digests(lines)
        if digests is None:
            return None
        lengths = np.fromiter(map(len, lines), np.int64, len(lines)) + 1
        named = []
        if any(name in data for name in _NAMED):
            named = [number for number, line in enumerate(lines) if any(name in line for name in _NAMED)]
        for number in named:
            for name in _NAMED:
                lines[number] = lines[number].replace(name, b":null")
        try:
            table = _parsed(b"\n".join(lines) + b"\n" if named else data, _SCHEMAS[self._kind])
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(lines) or not self._holds(table, digests, place):
            return None
        rows = self._rows(table, place.offset + np.cumsum(lengths))
        for number in named:
            end = int(rows.ends[number]) - place.offset
            text = data[end - int(lengths[number]) : end - 1].decode()
            _put(rows, number, self._kind.from_line(text, ""))
        last = Place(digests[-1], int(rows.steps[-1]), place.lines + len(lines), place.offset + len(data))
        return Block(rows, last)

    def _digests(self, lines: list[bytes]) -> list[str] | None:
        """The digest of each line, None where the bytes of one do not give it, or its form is unknown and refused."""
        digests = []
        forms = self._forms
        for line in lines:
            at = line.find(_DIGEST)
            content = line[:at] + line[at + _DIGEST_END + 1 :]
            digest = line[at + _DIGEST_START : at + _DIGEST_END]
            if at < 0 or digest[7:] != hashlib.sha256(content).hexdigest().encode():
                return None
            form = content.translate(None, _DIGITS)
            if form not in forms:
                if len(forms) >= _MOST_FORMS:
                    return None
                try:
                    self._kind.from_line(line.decode(errors="surrogateescape"), "")
                except EvidenceError:
                    return None
                forms.add(form)
            digests.append(digest.decode())
        return digests

    def _holds(self, table: Any, digests: list[str], place: Place) -> bool:
        """Whether chain and steps go on, and the numbers are in their bounds."""
        if table["prev"].to_pylist() != [place.prev, *digests[:-1]] or table["digest"].to_pylist() != digests:
            return False
        steps = table["step"].to_numpy()
        before = steps[0] - 1 if place.step is None else place.step
        gaps = np.diff(steps, prepend=before)
        if steps[0] < 1 or (gaps.min() < 1) or (self._kind.consecutive and gaps.max() > 1):
            return False
        if self._kind is Ring:
            return bool(table["sample_start"].to_numpy().min() >= 0 and table["global_batch_size"].to_numpy().min() > 0)
        samples = table["samples"].fill_null(0).to_numpy() * FINGERPRINT_DIGITS
        return bool((pc.binary_length(table["fingerprints"]).fill_null(0).to_numpy() == samples).all())

    def _rows(self, table: Any, ends: Any) -> Rows:
        if self._kind is Ring:
            metrics = {metric: Series.of_arrow(table[field]) for field, metric in _RING_METRICS.items()}
            metrics |= {f"time/{part}": each for part, each in _fields(table, "time_s").items()}
            if pa.types.is_struct(table["validation"].type):
                validation = pa.table(dict(zip(*_flat(table["validation"]), strict=True)))
                metrics["validation/loss"] = Series.of_arrow(validation["loss"])
                by_corpus = _fields(validation, "by_corpus")
                metrics |= {f"validation/loss/{corpus}": each for corpus, each in by_corpus.items()}
        else:
            metrics = _fields(table, "metrics")
        return Rows(
            table["step"].to_numpy(),
            ends,
            table["ended_at"].to_numpy(),
            Series.of_arrow(table["consumed_tokens" if self._kind is Ring else "tokens"]),
            {name: each for name, each in metrics.items() if each.known.any()},
        )


def rows_of(rings: Sequence[AnyRing], ends: Sequence[int]) -> Rows:
    """Rings as rows.

    Args:
        rings: consecutive.
        ends: bytes of `rings.jsonl` up to the end of each ring's line.
    """
    metrics = [metrics_of(ring) for ring in rings]
    names = dict.fromkeys(name for each in metrics for name in each)
    return Rows(
        np.array([ring.step for ring in rings], np.int64),
        np.array(ends, np.int64),
        np.array([ring.ended_at for ring in rings], np.float64),
        _series([tokens_of(ring) for ring in rings]),
        {name: _series([each.get(name) for each in metrics]) for name in names},
    )


def metrics_of(ring: AnyRing) -> dict[str, float]:
    """The metrics of a ring: by the keys of the metric catalog, or as another trainer reported them."""
    return ring_metrics(ring) if isinstance(ring, Ring) else ring.metrics


def tokens_of(ring: AnyRing) -> int | None:
    """Tokens as the ring has them: consumed so far (`Ring`), or of the step alone (`RecordedRing`)."""
    return ring.consumed_tokens if isinstance(ring, Ring) else ring.tokens


def _parsed(data: bytes, schema: Any) -> Any:
    data.decode()  # Arrow checks no UTF-8
    return pa.json.read_json(
        pa.BufferReader(data),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
    ).combine_chunks()


def _flat(column: Any) -> tuple[list[str], list[Any]]:
    """Names and columns of the objects in a column; where an object is null, all are."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return [field.name for field in array.type], array.flatten()


def _fields(table: Any, name: str) -> dict[str, Series]:
    names, columns = _flat(table[name])
    return {each: Series.of_arrow(column) for each, column in zip(names, columns, strict=True)}


def _series(values: list[Any]) -> Series:
    known = np.array([value is not None for value in values], bool)
    return Series(np.array([np.nan if value is None else value for value in values], np.float64), known)


def _put(rows: Rows, number: int, ring: AnyRing) -> None:
    """Puts the metrics of a ring with numbers that are not finite into its row."""
    for name, value in metrics_of(ring).items():
        series = rows.metrics.setdefault(name, Series.missing(len(rows)))
        series.values[number] = value
        series.known[number] = True
