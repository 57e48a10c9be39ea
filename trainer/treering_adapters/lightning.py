"""Records a training of Lightning's `Trainer`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from treering.errors import UserError
from treering.record.run import Run
from treering.record.start import start
from treering_adapters.samples import batch_tokens


class TreeringCallback(Callback):
    """Records samples, metrics, checkpoints and validations: `Trainer(callbacks=[TreeringCallback("finetune")])`.

    Samples are those that `training_step` is given, of all batches that are accumulated for a step. Checkpoints are
    those that `trainer.save_checkpoint` writes, by whomever it is called: the callback wraps it.

    Lightning does not skip the batches of an epoch that a checkpoint has seen, unless the data loader has `state_dict`
    and `load_state_dict`. The audit shows it as a fault of the restart.

    Args:
        experiment: name that groups runs.
        config: as `treering.start` takes it; default the hyperparameters that the module has saved.
        tokens: name of the token ids in a batch that is a mapping; None: no samples are recorded.
        **options: other arguments of `treering.start`, such as `tags` or `folder`. With tensor parallelism give `rank`
            and `world_size` of the data-parallel group.
    """

    def __init__(
        self,
        experiment: str,
        *,
        config: Mapping[str, Any] | None = None,
        tokens: str | None = "input_ids",
        **options: Any,
    ) -> None:
        self._experiment = experiment
        self._config = config
        self._tokens = tokens
        self._options = options
        self._run: Run | None = None
        self._samples: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._learning_rate: float | None = None
        self._trained: set[str] = set()
        self._validated: set[str] = set()
        self._saving: Trainer | None = None
        self._saved_step = 0

    @property
    def run(self) -> Run:
        """The run that the training is recorded in.

        Raises:
            UserError: the training has not begun.
        """
        if self._run is None:
            raise UserError("TreeringCallback: found no run, expected trainer.fit(...) before it")
        return self._run

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins an attempt, after the step of the checkpoint that the trainer has loaded."""
        config = dict(pl_module.hparams) if self._config is None else self._config
        found = {"resume_step": trainer.global_step, "rank": trainer.global_rank, "world_size": trainer.world_size}
        self._run = start(self._experiment, config=config, **{**found, **self._options})
        self._samples, self._losses, self._saved_step = [], [], 0
        if self._saving is not trainer:
            self._saving = trainer
            self._record_checkpoints(trainer)

    def _record_checkpoints(self, trainer: Trainer) -> None:
        save = trainer.save_checkpoint

        def save_and_record(filepath: Any, *arguments: Any, **options: Any) -> None:
            save(filepath, *arguments, **options)
            step = self.run.last_step
            if trainer.training and step > self._saved_step:  # of copies such as `last.ckpt` the first counts
                self._saved_step = step
                self.run.checkpoint(Path(filepath))

        trainer.save_checkpoint = save_and_record  # type: ignore[method-assign,unused-ignore]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Takes the samples of a batch."""
        inputs = batch[0] if isinstance(batch, list | tuple) and batch else batch
        self._samples += batch_tokens(inputs, self._tokens)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Takes the learning rate, which a schedule changes when the step is done."""
        self._learning_rate = optimizer.param_groups[0]["lr"]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes the step, when its last batch is done."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):
            self._losses.append(loss.detach())  # Lightning has divided it by the number of accumulated batches
        if trainer.global_step <= self.run.last_step:
            return
        logged = {name: value for name, value in trainer.callback_metrics.items() if not name.endswith("_epoch")}
        logged = {name: value for name, value in logged.items() if name not in self._validated}
        self._trained.update(logged)
        metrics = {
            "loss": sum(map(float, self._losses)) if self._losses else None,
            "learning_rate": self._learning_rate,
            "epoch": trainer.current_epoch + (batch_idx + 1) / trainer.num_training_batches,
            **logged,
        }
        self.run.step(metrics, step=trainer.global_step, tokens=self._samples or None)
        self._samples, self._losses = [], []

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Records the metrics of a validation as scores of task `validation`."""
        if self._run is None or trainer.sanity_checking or not trainer.global_step:
            return
        scores = {name: value for name, value in trainer.callback_metrics.items() if name not in self._trained}
        self._validated.update(scores)
        self._run.score(trainer.global_step, "validation", scores)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Ends the attempt as failed, or as interrupted by a person."""
        if self._run is not None:
            self._run.__exit__(type(exception), exception, exception.__traceback__)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ends the run: as finished after the last step or epoch, as interrupted where the trainer stopped earlier."""
        steps, epochs = trainer.max_steps, trainer.max_epochs
        complete = trainer.global_step >= steps > 0 or (epochs is not None and trainer.current_epoch >= epochs > 0)
        if complete:
            self.run.finish()
        else:
            self.run.interrupt(f"the trainer stopped at step {trainer.global_step}, epoch {trainer.current_epoch}")
