"""What an experiment must change to use all devices of a cluster: its number of replicas, and then its batch ramp.

More replicas need larger multiples in every stage of the batch schedule. The planner states such a change; it never
hides it: the batch sizes are part of the recipe, so the run with the change is another run.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

from treering.config.layout import Layout
from treering.config.resolved import Resolved


@dataclass(frozen=True, slots=True)
class Change:
    """One value of the config that must change.

    Attributes:
        path: dotted path of the field.
        before: the value of the config.
        after: the value that fits.
    """

    path: str
    before: int
    after: int

    @property
    def setting(self) -> str:
        """The change as an argument of `--set`."""
        return f"{self.path}={self.after}"


def changes_for(resolved: Resolved, num_devices: int, stated: Collection[str]) -> list[Change]:
    """The changes by which the layout uses all devices with the config's tensor and pipeline parallelism.

    The ramp keeps its samples and its end. Its start and increment become the multiples of a micro-batch of all
    replicas that lead to the global batch size in whole increments and are nearest by ratio.

    Args:
        resolved: the experiment as its config states it.
        num_devices: how many devices the cluster has.
        stated: dotted paths that the user set by hand, which stay as they are.

    Returns:
        The changes; none where nothing must change, or where no such change helps, which `check_world` then refuses.
    """
    parallel, schedule = resolved.attempt.parallel, resolved.recipe.schedule
    layout = parallel.layout(num_devices)
    changes = []
    replicas, rest = divmod(num_devices, layout.tensor * layout.pipeline)
    if not rest and replicas not in (0, layout.data) and not _is_stated("parallel.data", stated):
        changes.append(Change("parallel.data", layout.data, replicas))
        layout = layout.model_copy(update={"data": replicas})
    ramp = schedule.rampup
    if ramp is None or _is_stated("schedule.rampup", stated) or layout.unfit_stage(resolved.schedule) is None:
        return changes
    found = _nearest_ramp(ramp.start, ramp.increment, schedule.global_batch_size, layout)
    if found is not None:
        names = ("schedule.rampup.start", "schedule.rampup.increment")
        values = zip(names, (ramp.start, ramp.increment), found, strict=True)
        changes += [Change(name, before, after) for name, before, after in values if before != after]
    return changes


def _is_stated(path: str, stated: Collection[str]) -> bool:
    """Whether a field, a section that holds it, or a field of it was set by hand."""
    return any(f"{path}.".startswith(f"{each}.") or each.startswith(f"{path}.") for each in stated)


def _nearest_ramp(start: int, increment: int, batch_size: int, layout: Layout) -> tuple[int, int] | None:
    """Start and increment that a layout can cut, None where the global batch size itself cannot be cut."""
    unit = layout.global_micro_batch_size
    least = unit * layout.least_micro_batches
    if batch_size % unit:
        return None
    found = [
        (abs(math.log(first / start)) + abs(math.log(step / increment)), first, step)
        for step in range(unit, batch_size - least + 1, unit)
        for first in _starts(start, least, batch_size, step)
    ]
    return min(found)[1:] if found else None


def _starts(start: int, least: int, batch_size: int, step: int) -> set[int]:
    """The batch sizes next to `start` from which whole steps lead to the full batch: at least `least`, below it."""
    below = start - (start - batch_size) % step
    least += (batch_size - least) % step
    return {first for first in (below, below + step, least) if least <= first < batch_size}
