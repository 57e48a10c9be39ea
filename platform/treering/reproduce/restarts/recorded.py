"""The restarts of a run that another trainer recorded: data, order and metrics; its random states are not recorded."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from treering.audit.recorded.feed import Feeds, StepFeed
from treering.audit.recorded.restart import Restart, judge_restart
from treering.reproduce.restarts.border import Aspect, Border, Proof
from treering.reproduce.restarts.overlap import Repeated, numbers_aspect, overlap_of, rate_aspect, repeated
from treering.reproduce.restarts.surroundings import compared_aspect, environment_aspect
from treering.runlog.columns.path import PathColumns
from treering.runlog.recorded_directory import RecordedAttempt, RecordedRunDirectory, RecordedSegment
from treering.runlog.recorded_records import RecordedHeader

_PROOFS: Final[Mapping[str, Proof]] = {
    "same samples": "proven",
    "no sample repeated": "consistent",
    "samples repeated": "consistent",
    "unknown": "not seen",
}


def recorded_borders(run: RecordedRunDirectory) -> Iterator[Border]:
    """The restart before each attempt but the first, on the path and off it.

    Raises:
        EvidenceError: a header or a ring is missing or was changed.
    """
    attempts = run.attempts()
    on_path = {segment.attempt.number for segment in run.path_to_end()}
    columns = {each.number: PathColumns.of_recorded([RecordedSegment(each, None)]) for each in attempts}
    feeds = Feeds()
    for place, attempt in enumerate(attempts[1:], 1):
        parent, after = attempt.header.parent, attempt.header.resumed_step
        path = run.path_to(parent.attempt, parent.step) if parent else []
        before = path[-1].attempt if path else attempts[place - 1]
        read = list(chain.from_iterable(feeds.along(path)))
        resumed, lost = feeds.of(attempt), feeds.abandoned(attempts, attempt)
        restart = judge_restart(attempt.number, after, read, resumed, lost)
        earlier = [(each.number, columns[each.number]) for each in attempts[:place]]
        found = repeated(columns[attempt.number], after, earlier, resumes=parent is not None)
        aspects = (
            _data(restart),
            _order(path, attempt, read, resumed, lost),
            Aspect(
                "random states",
                "not seen",
                "treering.start records no random states",
                remedy=f"`treering reproduce {run.id}` runs the recorded command again, without a restart",
            ),
            _learning_rate(found),
            numbers_aspect(found, run.id, after),
            *_surroundings(before.header, attempt.header),
        )
        yield Border(attempt.number, after, parent is not None, attempt.number in on_path, overlap_of(found), aspects)


def _data(restart: Restart) -> Aspect:
    if restart.fault:
        return Aspect("data", "changed", restart.text, restart.first_difference or restart.after_step + 1)
    remedy = "pass tokens= to run.step" if restart.state == "unknown" else ""
    return Aspect("data", _PROOFS[restart.state], restart.text, remedy=remedy)


def _order(
    path: Sequence[RecordedSegment],
    attempt: RecordedAttempt,
    read: Sequence[StepFeed],
    resumed: Sequence[StepFeed],
    lost: Mapping[int, StepFeed],
) -> Aspect:
    """Whether samples came in the same order within the steps that were done twice, and by the blend's order."""
    data = attempt.header.data
    root = path[0].attempt.header.data if path else None
    if data is not None and root is not None:
        expected = int(root["first_sample"]) + sum(len(feed.samples) for feed in read)
        if int(data["first_sample"]) != expected:
            text = f"the data set begins at sample {data['first_sample']:,} of the order, expected {expected:,}"
            return Aspect("order", "changed", text, attempt.header.resumed_step + 1)
    compared = [(now, lost[now.step]) for now in resumed if now.step in lost and now.same_samples(lost[now.step])]
    other = next((now.step for now, then in compared if now.samples != then.samples), None)
    if other is not None:
        text = f"step {other:,} was fed its samples in another order, or on other ranks"
        return Aspect("order", "changed", text, other)
    if compared:
        return Aspect("order", "proven", "steps that were done twice were fed their samples in the same order")
    if data is not None and root is not None:
        return Aspect("order", "consistent", "the data set goes on in the blend's order")
    remedy = "read by `treering.BlendDataset`, and pass it as treering.start(data=…)"
    return Aspect("order", "not seen", "no step was done twice, and no data order is on record", remedy=remedy)


def _learning_rate(found: Sequence[Repeated]) -> Aspect:
    text = "no step that was done twice reports it"
    return rate_aspect(found) or Aspect("learning rate", "not seen", text, remedy="report learning_rate to run.step")


def _surroundings(before: RecordedHeader, now: RecordedHeader) -> Iterator[Aspect]:
    keys = sorted((before.code.keys() | now.code.keys()) - {"diff"})  # its digest is one of the others
    parts = [key for key in keys if before.code.get(key) != now.code.get(key)]
    same = Aspect("code", "consistent", "script, commit and diff are the same")
    yield Aspect("code", "changed", f"code changed ({', '.join(parts)})") if parts else same
    yield environment_aspect(before.environment, now.environment)
    yield compared_aspect("layout", {"world size": before.world_size}, {"world size": now.world_size})
    yield Aspect("kernels", "not seen", "treering.start records no kernels")
