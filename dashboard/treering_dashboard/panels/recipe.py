"""The recipe of a run in one line: model, blend, schedule, seed, parent."""

from treering.config.canonical import short
from treering.config.resolved import RUN_ID_LENGTH, Resolved
from treering.metrics.parameters import Parameters
from treering_dashboard.panels.text import count, number


def recipe_text(resolved: Resolved) -> str:
    """What the run trains, on what, and how long."""
    recipe, blend, schedule = resolved.recipe, resolved.blend, resolved.schedule
    model = recipe.model
    parameters = Parameters.of(model, blend.sequence_length).total
    size = f"{model.num_layers} layers, hidden {count(model.hidden_size)}, {model.num_attention_heads} heads"
    parts = ", ".join(f"{each.corpus} {each.weight}" for each in blend.components)
    steps = schedule.num_steps
    first, last = (schedule.sample_range(step) for step in (resolved.first_step, steps))
    sizes = [end - begin for begin, end in (first, last)]
    batch = count(sizes[1]) if sizes[0] == sizes[1] else f"{count(sizes[0])} to {count(sizes[1])}"
    start = recipe.start_from
    origin = "" if start is None else f", from step {count(start.step)} of run {short(start.run, RUN_ID_LENGTH)}"
    return "  ·  ".join(
        (
            f"{number(parameters)} parameters: {size}, {recipe.precision}",
            f"blend {parts}; sequence {count(blend.sequence_length)}",
            f"{number(resolved.consumed_tokens(steps))} tokens in {count(steps)} steps, batch {batch}, learning rate "
            f"to {number(recipe.optimizer.peak_learning_rate)}",
            f"seed {recipe.seed}{origin}",
        )
    )
