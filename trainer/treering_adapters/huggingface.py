"""Records a training of Hugging Face's `Trainer`, or of a trainer derived from it such as TRL's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from treering.errors import UserError
from treering.record.run import Run
from treering.record.start import start
from treering_adapters.samples import batch_tokens

_IDENTITY: Final = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "max_steps"),
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm"),
    *("optim", "adam_beta1", "adam_beta2", "adam_epsilon", "bf16", "fp16", "seed", "data_seed"),
)
"""The training arguments that make the run's config: those that decide numbers, none that say where or how to save."""

_EVALUATION: Final = "eval"


class TreeringCallback(TrainerCallback):
    """Records metrics, samples, checkpoints and evaluations of a trainer: `trainer.add_callback(TreeringCallback(…))`.

    Samples are digested as `training_step` is given them, so what a data loader has prefetched does not count. The
    callback wraps the trainer's `training_step` for that.

    The record of a step is written when its metrics are complete: before its checkpoint, its evaluation or the next
    step. Where the process is killed before that, this one step is missing.

    Args:
        trainer: the trainer that the callback is added to.
        experiment: name that groups runs.
        config: as `treering.start` takes it; default those training arguments that decide numbers. Resumed with another
            config, a training is another run, and does not know the checkpoint's step.
        tokens: name of the token ids among the model's inputs; None: no samples are recorded.
        **options: other arguments of `treering.start`, such as `tags` or `folder`.
    """

    def __init__(
        self,
        trainer: Trainer,
        experiment: str,
        *,
        config: Mapping[str, Any] | None = None,
        tokens: str | None = "input_ids",
        **options: Any,
    ) -> None:
        self._trainer = trainer
        self._experiment = experiment
        self._config = config
        self._tokens = tokens
        self._options = options
        self._run: Run | None = None
        self._samples: list[Tensor] = []
        self._pending: dict[str, Any] | None = None
        self._training_step = trainer.training_step
        trainer.training_step = self._recorded_training_step  # type: ignore[method-assign]

    @property
    def run(self) -> Run:
        """The run that the training is recorded in.

        Raises:
            UserError: the training has not begun.
        """
        if self._run is None:
            raise UserError("TreeringCallback: found no run, expected trainer.train() before it")
        return self._run

    def _recorded_training_step(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Tensor:
        self._samples += batch_tokens(inputs, self._tokens)
        return self._training_step(model, inputs, *arguments, **options)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begins an attempt, after the step of the checkpoint that the trainer has loaded."""
        if self._run is not None:
            self._run.interrupt("the trainer began to train anew")
        config = self._config
        if config is None:
            config = {name: getattr(args, name, None) for name in _IDENTITY}
        self._samples, self._pending = [], None
        self._run = start(self._experiment, config=config, **{"resume_step": state.global_step, **self._options})

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Writes the step before."""
        self._write()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Takes the samples of all micro-batches of the step."""
        self._pending = {"step": state.global_step, "epoch": state.epoch, "tokens": self._samples or None}
        self._samples = []

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Takes the metrics of the step; those of evaluations and of the whole training are not among them."""
        if self._pending is not None and logs and "loss" in logs:
            self._pending = {**dict(_numbers(logs)), **self._pending}

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Writes the step before its evaluation."""
        self._write()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Records the metrics of an evaluation as scores of task `eval`."""
        if self._run is None or not metrics or not state.global_step:
            return
        self._write()
        scores = {name.removeprefix(f"{_EVALUATION}_"): value for name, value in _numbers(metrics) if name != "epoch"}
        self._run.score(state.global_step, _EVALUATION, scores)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Records the checkpoint, when every rank has written its files."""
        self._write()
        self._trainer.accelerator.wait_for_everyone()
        self.run.checkpoint(Path(args.output_dir or ".") / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ends the run: as finished after the last step, as interrupted where the trainer stopped earlier."""
        self._write()
        if state.global_step >= state.max_steps:
            self.run.finish()
        else:
            self.run.interrupt(f"the trainer stopped at step {state.global_step} of {state.max_steps}")

    def _write(self) -> None:
        if self._pending is not None:
            step, tokens = self._pending.pop("step"), self._pending.pop("tokens")
            self.run.step(self._pending, step=step, tokens=tokens)
            self._pending = None


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in values.items() if isinstance(value, int | float))
