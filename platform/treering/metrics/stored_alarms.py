"""Alarms of a long path, judged once: what the rules found so far is kept beside the columns, with their state.

`columns/alarms.json` of the path's last attempt is derived, as the columns are. It counts while path, rules and their
code are the same, and while the ring of its last step is.
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from treering.config.canonical import digest_bytes, digest_json
from treering.files import read_bytes
from treering.metrics import alarms, health, spikes
from treering.metrics.alarms import Alarm
from treering.metrics.path_alarms import judge_of, judged
from treering.metrics.spikes import RingAlarms, SpikeRule
from treering.runlog.ancestry import PathSegment
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory

ALARMS_FILE: Final = "alarms.json"

_LOSS, _GRAD_NORM = "train/loss", "train/grad_norm"
_APPLIED, _LEARNING_RATE = "train/applied", "optim/learning_rate"


@dataclass(frozen=True, slots=True)
class _Row:
    """What of a ring is judged."""

    step: int
    applied: bool
    loss: float
    grad_norm: float
    learning_rate: float


def alarms_by_columns(run: RunDirectory, segments: Sequence[PathSegment], columns: PathColumns) -> list[Alarm]:
    """The alarms on a run's path, judged from where they were judged last.

    Args:
        run: the run.
        segments: of its path.
        columns: of the segments.

    Raises:
        EvidenceError: the run's config does not hold, or a ring does not.
    """
    key = _key(run, segments)
    judge = judge_of(run)
    step, found = _stored(columns, key, judge)
    if found is None:
        judge, step, found = judge_of(run), 0, []
    if columns.last_step > step:
        found += judged(judge, segments, _rows(columns, step))
        _store(columns, key, judge, found)
    return found


def judge_state(judge: object) -> dict[str, Any]:
    """The state of a judge as JSON values; its settings, which a new judge has, are left out.

    Raises:
        TypeError: a rule keeps something that this function does not know.
    """
    found: dict[str, Any] = {}
    for name, value in vars(judge).items():
        if value is None or isinstance(value, bool | int | float | str | tuple):
            found[name] = value
        elif isinstance(value, deque | list):
            found[name] = list(value)
        elif isinstance(value, SpikeRule):
            continue
        elif type(value).__module__ in {health.__name__, spikes.__name__}:
            found[name] = judge_state(value)
        else:
            raise TypeError(f"{type(judge).__name__}.{name} is a {type(value).__name__}, which is not kept")
    return found


def set_judge_state(judge: object, state: dict[str, Any]) -> None:
    """Gives a new judge the state that `judge_state` returned.

    Raises:
        KeyError: something is missing.
        TypeError: something is of another kind.
    """
    for name, value in vars(judge).items():
        if isinstance(value, SpikeRule):
            continue
        new = state[name]
        if isinstance(value, deque | list):
            value.clear()
            value.extend(_tuple(each) for each in new)
        elif hasattr(value, "__dict__"):
            set_judge_state(value, new)
        else:
            setattr(judge, name, _tuple(new))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _rows(columns: PathColumns, step: int) -> Iterator[_Row]:
    found = columns.histories((_LOSS, _GRAD_NORM, _APPLIED, _LEARNING_RATE), after=step)
    values = (found[name].values.tolist() for name in (_LOSS, _GRAD_NORM, _APPLIED, _LEARNING_RATE))
    for at, loss, grad_norm, applied, learning_rate in zip(found[_LOSS].steps.tolist(), *values, strict=True):
        yield _Row(at, bool(applied), loss, grad_norm, learning_rate)


def _key(run: RunDirectory, segments: Sequence[PathSegment]) -> str:
    """Digest of all that the alarms depend on beside the rings of the last attempt."""
    config = run.resolved.attempt.spikes
    path = [[segment.attempt.header_digest, segment.last_step] for segment in segments]
    vocabulary = run.resolved.recipe.model.padded_vocab_size
    return digest_json([_code(), config.model_dump(mode="json"), vocabulary, path])


@cache
def _code() -> str:
    """Digest of the rules' source."""
    return digest_bytes(b"".join(read_bytes(Path(str(module.__file__))) for module in (alarms, health, spikes)))


def _stored(columns: PathColumns, key: str, judge: RingAlarms) -> tuple[int, list[Alarm] | None]:
    """The last step that was judged and the alarms up to it, the judge in that state; None where that is not kept."""
    digest, _, text = (columns.derived(ALARMS_FILE) or "").partition("\n")
    if not text or digest != digest_bytes(text.encode()):
        return 0, None
    try:
        kept = json.loads(text)
        if kept["key"] != key or columns.digest(kept["step"]) != kept["ring"]:
            return 0, None
        set_judge_state(judge, kept["state"])
        return kept["step"], [Alarm(**each) for each in kept["alarms"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0, None


def _store(columns: PathColumns, key: str, judge: RingAlarms, found: Sequence[Alarm]) -> None:
    step = columns.last_step
    kept = {
        "key": key,
        "step": step,
        "ring": columns.digest(step),
        "state": judge_state(judge),
        "alarms": [asdict(alarm) for alarm in found],
    }
    text = json.dumps(kept)
    columns.keep_derived(ALARMS_FILE, f"{digest_bytes(text.encode())}\n{text}")
