"""Targets: where the run logs are carried to, the protocol that each follows, and the list of all.

A target makes a shipper for each run. One pass of it brings everything that is durable in the run's folder to the
target, and may be made again at any time. `treering.ship.follow` serves every target in a thread of its own: a target
that is down, slow or locked delays no other.
"""

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Protocol, runtime_checkable

from treering.errors import UserError
from treering.project import Project
from treering.runlog.folders import RunFolder


@dataclass(frozen=True, slots=True)
class ShipReport:
    """What one pass over one run did.

    Attributes:
        target: name of the target.
        run: the run's id in short.
        state: state of the run, `skipped` where its log does not hold.
        stored_as: how the target names the run, such as the id of an MLflow run; None if nothing of the run is there.
        sent: what was sent: how many, by noun in the singular.
        note: what else happened to the run in the target, in words; empty for nothing.
        problem: why the run was skipped, None if it was shipped.
    """

    target: str
    run: str
    state: str
    stored_as: str | None = None
    sent: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    problem: str | None = None

    @property
    def news(self) -> bool:
        """Whether anything was sent."""
        return bool(self.note or any(self.sent.values()))

    def __str__(self) -> str:
        begin = f"{self.target}: {self.run} {self.state}"
        if self.problem is not None:
            return f"{begin}: its run log does not hold or cannot be read"
        if self.stored_as is None:
            return f"{begin}: no attempt yet, nothing to ship"
        return f"{begin}: {', '.join(each for each in (sum_of([self]), self.note) if each) or 'nothing new'}"


def sum_of(reports: Iterable[ShipReport]) -> str:
    """What was sent, in words; empty for nothing."""
    counts = Counter[str]()
    for report in reports:
        counts.update(report.sent)
    return ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that a target holds otherwise than the run's folder gives.

    Attributes:
        text: what it is, with what was found and what was expected.
        behind: whether the target only lacks what came last: the next pass brings it.
    """

    text: str
    behind: bool = False


class RunShipper(Protocol):
    """Ships one run to one target, again and again; what it remembers between two passes it can find again."""

    def ship(self) -> ShipReport:
        """One pass: everything that is durable now. Costs the same however long the run is, if nothing is new.

        A pass that is killed at any moment, or made twice, leaves what one whole pass leaves.

        Raises:
            StoreError: the target does not answer; the next pass goes on from what the target holds.
            EvidenceError: the run's folder is damaged; nothing behind the damage was shipped.
            OSError: the run's folder cannot be read, or is being removed.
        """


class Target(Protocol):
    """One place that runs are carried to. Only one thread uses it; making it neither connects nor writes."""

    @property
    def name(self) -> str:
        """One word in small letters, for messages and the name of the lock."""

    @property
    def place(self) -> str:
        """Where that is, for people: a URL or a path, without passwords."""

    def shipper(self, run: RunFolder) -> RunShipper | None:
        """Makes the shipper of a run.

        Args:
            run: a `RunDirectory` or a `RecordedRunDirectory`.

        Returns:
            None where such runs do not go to this target.

        Raises:
            StoreError: the target does not answer.
            UserError: the variable of the environment that names the target is wrong.
        """


@runtime_checkable
class Projection(Target, Protocol):
    """A target that `treering rebuild` compares and makes again."""

    def difference(self, run: RunFolder) -> Difference | None:
        """The first difference between what the target holds of a run and what the run's folder gives; writes nothing.

        Args:
            run: a `RunDirectory` or a `RecordedRunDirectory`.

        Returns:
            None where the target holds what a rebuild gives.

        Raises:
            StoreError: the target does not answer.
            EvidenceError: the run's folder is damaged.
        """

    def rebuild(self, run: RunFolder) -> str:
        """Makes what the target holds of a run again, from the run's folder alone.

        A rebuild that is killed at any moment is finished by the next rebuild, or by the next pass of the shipper.

        Args:
            run: a `RunDirectory` or a `RecordedRunDirectory`.

        Returns:
            What became of what the target held before, in words; empty where it held nothing.

        Raises:
            StoreError: the target does not answer.
            EvidenceError: the run's folder is damaged.
        """


_TARGETS: Final[tuple[tuple[str, str, str, bool], ...]] = (
    # module with `target(project)`, which is None where its variable is unset; what it needs; variable; default
    ("treering.ship.mlflow_target", "mlflow", "MLFLOW_TRACKING_URI", True),
    ("treering.ship.copy_target", "fsspec", "TREERING_STORE_URL", False),
    ("treering.ship.ledger", "alembic", "TREERING_DATABASE_URL", True),
)


def targets(project: Project) -> list[Target]:
    """The targets of a project: each by its variable of the environment, or by its default.

    Raises:
        UserError: a variable names a target whose package is missing, or no target is left.
    """
    found: list[Target] = []
    for module, package, variable, _default in _TARGETS:
        if find_spec(package) is not None:
            target = import_module(module).target(project)
            found += [target] if target is not None else []
        elif os.environ.get(variable):
            raise UserError(
                f"{variable} is set, but the package {package} is missing: pip install 'treering[registry]'"
            )
    if not found:
        raise UserError("nothing to ship to: MLflow is missing: pip install 'treering[registry]'")
    return found


def any_target() -> bool:
    """Whether there is a target on this machine; imports none of them."""
    return any(find_spec(each[1]) and (each[3] or os.environ.get(each[2])) for each in _TARGETS)


@contextmanager
def one_shipper(run: RunFolder, target: str) -> Iterator[None]:
    """Waits for another process's pass over the same run to the same target: two at once would do it twice.

    Args:
        run: the run.
        target: name of the target.
    """
    descriptor = os.open(run.path / f"ship-{target}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
