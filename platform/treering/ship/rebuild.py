"""Makes all projections of runs again, or compares them with what the run logs give."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from treering.errors import EvidenceError, StoreError
from treering.project import Project
from treering.runlog.folders import RunFolder
from treering.ship.columns_target import ColumnsTarget
from treering.ship.follow import selected
from treering.ship.target import Difference, Projection, targets

Outcome = Literal["equal", "behind", "differs", "rebuilt", "damaged", "unavailable"]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What became of one run in one target.

    Attributes:
        target: name of the target.
        run: name of the run's folder.
        outcome: `equal` already; `behind`: equal, but for what came last; `differs`; `rebuilt`; `damaged`: the run's
            folder does not hold; `unavailable`: the target does not answer.
        text: the first difference, or the problem; empty for none.
        kept: what became of what the target held before; empty for nothing.
    """

    target: str
    run: str
    outcome: Outcome
    text: str = ""
    kept: str = ""


def projections(project: Project) -> list[Projection]:
    """The columns, and every target of a project that can be compared.

    Raises:
        UserError: a variable of the environment names a target whose package is missing, or no target is left.
    """
    return [ColumnsTarget(), *(each for each in targets(project) if isinstance(each, Projection))]


def compare(project: Project, prefix: str | None, report: Callable[[Rebuilt], None]) -> list[Rebuilt]:
    """Compares every target with what the run logs give; writes nothing.

    Args:
        project: whose runs.
        prefix: beginning of a run's id or its folder, None for all.
        report: called after each run.

    Raises:
        NotFoundError: no such run.
    """
    return list(_each(projections(project), selected(project, prefix), _compared, report))


def rebuild(project: Project, prefix: str | None, report: Callable[[Rebuilt], None]) -> list[Rebuilt]:
    """Makes again what a target holds otherwise than the run logs give; what is equal stays as it is.

    Args:
        project: whose runs.
        prefix: beginning of a run's id or its folder, None for all.
        report: called after each run.

    Raises:
        NotFoundError: no such run.
    """
    return list(_each(projections(project), selected(project, prefix), _rebuilt, report))


def _each(
    every: Sequence[Projection],
    runs: Sequence[RunFolder],
    work: Callable[[Projection, RunFolder], Rebuilt],
    report: Callable[[Rebuilt], None],
) -> Iterator[Rebuilt]:
    for target in every:
        for run in runs:
            try:
                done = work(target, run)
            except (EvidenceError, OSError) as error:
                done = Rebuilt(target.name, run.path.name, "damaged", str(error))
            except StoreError as error:
                done = Rebuilt(target.name, run.path.name, "unavailable", str(error))
            report(done)
            yield done


def _compared(target: Projection, run: RunFolder) -> Rebuilt:
    found = target.difference(run)
    outcome: Outcome = "equal" if found is None else "behind" if found.behind else "differs"
    return Rebuilt(target.name, run.path.name, outcome, found.text if found else "")


def _rebuilt(target: Projection, run: RunFolder) -> Rebuilt:
    before = target.difference(run)
    if before is None:
        return Rebuilt(target.name, run.path.name, "equal")
    left: Difference | None = before
    kept = ""
    shipper = target.shipper(run) if before.behind else None
    if shipper is not None:  # nothing is wrong with what is there
        shipper.ship()
        left = target.difference(run)
    if shipper is None or not _is_good(left):
        kept = target.rebuild(run)
        left = target.difference(run)
    if left is not None and not _is_good(left):
        return Rebuilt(target.name, run.path.name, "differs", left.text, kept)
    return Rebuilt(target.name, run.path.name, "rebuilt", before.text, kept)


def _is_good(found: Difference | None) -> bool:
    """Whether nothing differs; a run that goes on may be ahead again."""
    return found is None or found.behind
