"""From an authored experiment and a resolved blend to what the trainer takes."""

from collections.abc import Callable
from pathlib import Path

from treering.config.operation import AttemptConfig
from treering.config.resolved import Recipe, Resolved
from treering.config.resolved_blend import ResolvedBlend, check_blend_fits
from treering.config.schema import Experiment
from treering.config.start import FoundStart, check_orders_alike, check_start_fits, resolve_start, schedule_written_in
from treering.errors import ConfigError

Continue = Callable[[ResolvedBlend, FoundStart], ResolvedBlend]
"""Makes a blend go on from what the runs before it have read."""


def resolve(
    experiment: Experiment,
    blend: ResolvedBlend,
    source: str,
    overrides: tuple[str, ...] = (),
    *,
    runs: Path = Path("runs"),
    continue_blend: Continue | None = None,
) -> Resolved:
    """Joins an experiment and a resolved blend; commands call `treering.data.blend.continuation.resolve_run`.

    Args:
        experiment: the authored config.
        blend: what stage `blend` wrote, or `declared_blend`.
        source: the experiment's file, for errors.
        overrides: the `--set` texts that led to `experiment`, kept on record.
        runs: folder of run directories, for an experiment that starts from another run.
        continue_blend: makes the blend go on from the other run's, for `start_from.data: continue`.

    Raises:
        ConfigError: the blend is not this experiment's, a stage of the batch schedule cannot be cut into micro-batches,
            or the run to start from is missing or does not fit.
    """
    check_blend_fits(experiment, blend, source)
    found = None
    if experiment.start_from is not None:
        found = resolve_start(experiment.start_from, experiment, runs, source)
        if experiment.start_from.data == "continue":
            check_orders_alike(blend, found.other, source)
            assert continue_blend is not None, "resolve_run of treering.data.blend.continuation knows how"  # noqa: S101
            blend = continue_blend(blend, found)
    model = experiment.model
    resolved = Resolved(
        experiment=experiment.experiment,
        description=experiment.description,
        recipe=Recipe(
            model=model.model_copy(update={"ffn_hidden_size": model.ffn_width, "init_std": model.weight_std}),
            optimizer=experiment.optimizer.model_copy(update={"loss_scale": experiment.loss_scale}),
            schedule=experiment.schedule.model_copy(update={"decay_tokens": experiment.schedule.decay_end_tokens}),
            precision=experiment.precision,
            seed=experiment.seed,
            blend=blend.digest,
            tokenizer=blend.tokenizer,
            start_from=None if found is None else found.start,
        ),
        blend=blend,
        attempt=AttemptConfig(
            parallel=experiment.parallel,
            kernels=experiment.kernels,
            deterministic=experiment.deterministic,
            checkpoint=experiment.checkpoint,
            validation=experiment.validation,
            telemetry=experiment.telemetry,
            hooks=experiment.hooks,
            spikes=experiment.spikes,
        ),
        overrides=overrides,
    )
    with schedule_written_in(source):
        schedule = resolved.schedule
    if found is not None:
        check_start_fits(resolved, found.other, source)
    layout = experiment.parallel.layout(1)
    offending = layout.unfit_stage(schedule)
    if offending is not None:
        raise ConfigError(
            source,
            "schedule",
            f"a stage with global batch {offending.batch_size} from step {offending.first_step} on",
            layout.stage_rule,
        )
    return resolved
