"""A run that starts from another run and continues its data: every corpus goes on where the runs before stopped.

A *position* of a corpus is a number k in its order: sample k mod n of epoch k // n, n samples an epoch. Where a run
begins is part of its blend, and so of its identity: `treering.data.blend.joins` reports what follows from it.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved import ReadRange, Resolved
from treering.config.resolved_blend import Continuation, ResolvedBlend
from treering.config.schema import Experiment
from treering.config.start import FoundStart
from treering.data.order.treering1 import DataOrder
from treering.errors import TreeringError


def continued(blend: ResolvedBlend, found: FoundStart) -> ResolvedBlend:
    """The blend that lets every corpus go on at the position where the runs before stopped reading it.

    A blend whose order has these positions by itself, or in the form in which a run before has it, stays in that form:
    one order has one identity.

    Args:
        blend: corpora, weights and seed from the start on; its seed and sequence length are those of the run before.
        found: where it starts.

    Raises:
        EvidenceError: the config of a run before is missing or was changed.
    """
    before = found.before
    positions = positions_after(blend, before)
    forms = [None, *(each.blend.continues for each in reversed(before))]
    for form in forms:
        if form is not None and (len(form.positions) != len(positions) or form.sample > found.first_sample):
            continue
        candidate = blend.model_copy(update={"continues": form})
        if DataOrder(candidate).counts(found.first_sample) == positions:
            return candidate
    return blend.model_copy(update={"continues": Continuation(sample=found.first_sample, positions=positions)})


def positions_after(blend: ResolvedBlend, before: Sequence[ReadRange]) -> tuple[int, ...]:
    """By component of a blend: where the last run that read its corpus in the blend's shuffle stopped, 0 for a new one.

    Args:
        blend: the blend; a declared component is found by its name.
        before: what was read, from the root on.
    """
    positions: dict[str, int] = {}
    for each in before:
        if (each.blend.seed, each.blend.sequence_length) == (blend.seed, blend.sequence_length):
            counts = DataOrder(each.blend).counts(each.hi)
            for component, count in zip(each.blend.components, counts, strict=True):
                positions[component.digest or component.corpus] = positions[component.corpus] = count
    return tuple(positions.get(component.digest or component.corpus, 0) for component in blend.components)


def resolve_run(
    experiment: Experiment, blend: ResolvedBlend, source: str, overrides: tuple[str, ...] = (), *, runs: Path
) -> Resolved:
    """Joins an experiment and a resolved blend, which goes on from the run before where the experiment says so.

    The arguments are those of `treering.config.resolve.resolve`.

    Raises:
        ConfigError: as `resolve`.
        EvidenceError: the config of a run before is missing or was changed.
    """
    return resolve(experiment, blend, source, overrides, runs=runs, continue_blend=continued)


def experiment_file_of(resolved: Resolved, files: Iterable[Path], runs: Path) -> Path | None:
    """The first experiment's file that still gives a run's recipe, with the run's own `--set`; None without any.

    Args:
        resolved: the run's config.
        files: the files to look at.
        runs: the folder of the runs that it may start from.
    """
    blend = resolved.blend.model_copy(update={"continues": None})
    for file in files:
        with suppress(TreeringError):
            experiment = load_experiment(file, resolved.overrides)
            found = resolve_run(experiment, blend, str(file), resolved.overrides, runs=runs)
            if found.recipe.digest == resolved.recipe.digest:
                return file
    return None
