"""Makes the parts of one rank from the run's config: its engine, batch reader and validator.

Which value of the config goes where decides numbers, so it is decided here and not in the rank's process.
"""

from collections.abc import Sequence

from treering.config.layout import RankCoordinates
from treering.config.resolved import Resolved
from treering.data.order.batch import TokenSource
from treering.data.order.treering1 import DataOrder
from treering.project import Project
from treering_trainer.core.batch_reader import BatchReader
from treering_trainer.core.engine import Engine
from treering_trainer.core.validation import Validator


def build_engine(resolved: Resolved, coordinates: RankCoordinates, *, start_step: int, universal: bool) -> Engine:
    """Model and optimizer before a checkpoint is loaded; collective over all ranks.

    Args:
        resolved: the run's config.
        coordinates: of this rank.
        start_step: last step that is already done.
        universal: whether a converted checkpoint will be loaded.
    """
    recipe, attempt = resolved.recipe, resolved.attempt
    return Engine(
        coordinates,
        model=recipe.model,
        optimizer=recipe.optimizer,
        parallel=attempt.parallel,
        kernels=attempt.kernels,
        precision=recipe.precision,
        sequence_length=resolved.blend.sequence_length,
        seed=recipe.seed,
        global_batch_size=resolved.schedule.batch_size(start_step + 1),
        universal=universal,
    )


def build_batch_reader(resolved: Resolved, coordinates: RankCoordinates, corpora: Sequence[TokenSource]) -> BatchReader:
    """The reader of this rank's samples.

    Args:
        resolved: the run's config.
        coordinates: of this rank.
        corpora: the training corpora, in the blend's order.
    """
    return BatchReader(DataOrder(resolved.blend), corpora, coordinates)


def build_validator(resolved: Resolved, coordinates: RankCoordinates, project: Project) -> Validator | None:
    """The held-out loss's measurement; None if the config has no `validation`.

    Args:
        resolved: the run's config.
        coordinates: of this rank.
        project: where the held-out corpora are.
    """
    attempt = resolved.attempt
    if attempt.validation is None:
        return None
    return Validator(project, resolved.blend, attempt.validation, coordinates)
