"""An experiment as a person would write it, from what a run recorded: for a branch of the run."""

from typing import Any

from treering.config.resolved import Resolved
from treering.config.schema import Experiment

_OF_THE_DATA = ("corpora", "curation", "tokenizer", "evaluation")
"""Sections that a run does not record: they say how its corpora are made, and how it is scored."""


def authored(run: Resolved, like: Experiment) -> dict[str, Any]:
    """The document of an experiment that trains what a run trained.

    Args:
        run: the run's config; it gives every value that decides numbers.
        like: an experiment with the run's corpora; it gives the sections that a run does not record.
    """
    given = like.model_dump(mode="json", exclude_unset=True, include=set(_OF_THE_DATA))
    recipe = run.recipe.model_dump(mode="json", exclude_none=True)
    attempt = run.attempt.model_dump(mode="json", exclude_none=True)
    blend = {
        "algorithm": run.blend.algorithm,
        "seed": run.blend.seed,
        "sequence_length": run.blend.sequence_length,
        "components": [{"corpus": each.corpus, "weight": each.weight} for each in run.blend.components],
    }
    document = {
        "experiment": run.experiment,
        "description": run.description,
        "blend": blend,
        **given,
        **{name: recipe[name] for name in ("seed", "model", "optimizer", "schedule", "precision")},
        **attempt,
    }
    return {name: document[name] for name in Experiment.model_fields if name in document}
