"""The restarts of a run of Treering's trainer, by its headers and rings."""

from collections.abc import Iterator, Sequence

from treering.collect.code import code_difference
from treering.config.canonical import short
from treering.metrics.same_data import compare_data
from treering.reproduce.restarts.border import Aspect, Border
from treering.reproduce.restarts.overlap import Repeated, numbers_aspect, overlap_of, rate_aspect, repeated
from treering.reproduce.restarts.surroundings import compared_aspect, environment_aspect
from treering.runlog.attempt import AttemptDirectory
from treering.runlog.columns.attempt import AttemptColumns
from treering.runlog.columns.fed import fed_along
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.records import AttemptHeader
from treering.runlog.ring import Ring

_TRAIN_ON = "`treering train CONFIG` goes on"


def own_borders(run: RunDirectory) -> Iterator[Border]:
    """The restart before each attempt but the first, on the path and off it.

    Raises:
        EvidenceError: the config, a header or a ring is missing or was changed.
    """
    attempts = run.attempts()
    on_path = {segment.attempt.number for segment in run.path_to(own=True)}
    columns = {each.number: _alone(run, each) for each in attempts}
    for place, attempt in enumerate(attempts[1:], 1):
        header = attempt.header
        parent = header.parent
        after = parent.step if parent else 0
        resumes = parent is not None and parent.run == run.resolved.recipe.digest
        before = next((each for each in attempts if parent and resumes and each.number == parent.attempt), None)
        before = before or attempts[place - 1]
        earlier = [(each.number, columns[each.number]) for each in attempts[:place]]
        found = repeated(columns[attempt.number], after, earlier, resumes=resumes)
        aspects = (
            _data(columns[before.number], columns[attempt.number], after, found, columns, resumes=resumes),
            _order(before.header, header),
            _random_states(run, before.header, header, found),
            _learning_rate(run, attempt.ring_log.first(), found),
            numbers_aspect(found, run.id, after),
            *_surroundings(before.header, header),
        )
        yield Border(attempt.number, after, resumes, attempt.number in on_path, overlap_of(found), aspects)


def _alone(run: RunDirectory, attempt: AttemptDirectory) -> PathColumns:
    """The columns of one attempt, what came after a point of return included."""
    return PathColumns([(AttemptColumns(attempt, keep=not run.is_cut), None)])


def _data(
    before: PathColumns,
    resumed: PathColumns,
    after: int,
    found: Sequence[Repeated],
    columns: dict[int, PathColumns],
    *,
    resumes: bool,
) -> Aspect:
    """Whether the attempt read on where the checkpoint was cut, and steps that were done twice read the same."""
    fed = fed_along(resumed)
    if not len(fed):
        return Aspect("data", "not seen", "the attempt did no step", remedy=_TRAIN_ON)
    if resumes:
        cut = fed_along(before).within(range(after, after + 1))
        start, end = int(fed.starts[0]), int(cut.ends[0])
        if start != end:
            did = "skips" if start > end else "reads again"
            text = f"step {after + 1:,} begins at sample {start:,}, expected {end:,}: it {did} {abs(start - end):,}"
            return Aspect("data", "changed", text, after + 1)
    for each in found:
        difference = compare_data(fed_along(columns[each.earlier]).within(each.steps), fed.within(each.steps)).first
        if difference is not None:
            what = "other samples" if difference.kind == "samples" else "other tokens in the same samples"
            text = f"step {difference.step:,} read {what} than in attempt {each.earlier}"
            return Aspect("data", "changed", text, difference.step)
    if any(each.is_proof for each in found):
        return Aspect("data", "proven", "steps that were done twice have the same batch digests")
    return Aspect("data", "consistent", f"step {after + 1:,} reads on without a gap")


def _order(before: AttemptHeader, now: AttemptHeader) -> Aspect:
    if before.blend == now.blend and before.corpora == now.corpora:
        return Aspect("order", "consistent", "blend and corpora have the same digests")
    changed = sorted(
        name for name in before.corpora.keys() | now.corpora.keys() if before.corpora.get(name) != now.corpora.get(name)
    )
    return Aspect("order", "changed", f"another {'blend' if before.blend != now.blend else ', '.join(changed)}")


def _random_states(run: RunDirectory, before: AttemptHeader, now: AttemptHeader, found: Sequence[Repeated]) -> Aspect:
    """Whether the first step drew from the states that were saved: dropout's masks are all that a step draws."""
    name, states = "random states", now.random_states
    if run.resolved.recipe.model.dropout == 0:
        return Aspect(name, "consistent", "no step draws a random number: dropout is 0")
    same_layout = before.layout == now.layout
    if states is not None and states.saved is not None and same_layout and states.saved != states.begun:
        first = 1 if now.parent is None else now.parent.step + 1
        text = f"step {first:,} drew from {short(states.begun)}, the checkpoint was to go on with "
        return Aspect(name, "changed", text + short(states.saved), first)
    if any(each.is_proof for each in found) and all(each.numbers.first_step is None for each in found):
        return Aspect(name, "proven", "steps with dropout that were done twice are equal to the last bit")
    if states is not None and states.saved is not None and same_layout:
        return Aspect(name, "consistent", "the states after loading have the digest that the checkpoint recorded")
    text = "the record does not hold the states that dropout drew from"
    if not same_layout:
        text = "in another layout every rank draws other masks, so the states cannot be compared"
    return Aspect(name, "not seen", text, remedy=f"`treering reproduce {run.id}` trains the run without a restart")


def _learning_rate(run: RunDirectory, first: Ring | None, found: Sequence[Repeated]) -> Aspect:
    """Whether steps that were done twice had one rate, and the first step has the schedule's."""
    name, compared = "learning rate", rate_aspect(found)
    if first is None:
        return Aspect(name, "not seen", "the attempt did no step", remedy=_TRAIN_ON)
    expected = run.resolved.schedule.step_learning_rate(first.step)
    if first.learning_rate != expected and (compared is None or compared.proof != "changed"):
        text = f"step {first.step:,} was done at {first.learning_rate!r}, expected {expected!r} by the schedule"
        return Aspect(name, "changed", text, first.step)
    return compared or Aspect(name, "consistent", f"step {first.step:,} has the schedule's rate")


def _surroundings(before: AttemptHeader, now: AttemptHeader) -> Iterator[Aspect]:
    """What the headers say of code, environment, layout, kernels and hooks."""
    code = code_difference(before.code, now.code)
    same = Aspect("code", "consistent", "the same digest")
    yield Aspect("code", "changed", f"code changed ({code})") if code else same
    yield environment_aspect(before.environment, now.environment)
    yield compared_aspect("layout", *(each.layout.model_dump(mode="json") for each in (before, now)))
    used = [{kernel.operation: kernel.used for kernel in each.kernels} for each in (before, now)]
    yield compared_aspect("kernels", *used)
    hooks = [{hook.name: hook.model_dump(mode="json") for hook in each.hooks} for each in (before, now)]
    yield compared_aspect("hooks", *hooks)
