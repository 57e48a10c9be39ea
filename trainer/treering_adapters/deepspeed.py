"""Records a training loop of DeepSpeed: `forward`, `backward` and `step` of an engine."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from deepspeed.monitor.monitor import Monitor
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.pipe.engine import PipelineEngine
from torch import Tensor
from torch.nn import Module

from treering.errors import UserError
from treering.record.start import start
from treering_adapters.samples import batch_tokens

_PREFIX: Final = "Train/Samples/"
_NAMES: Final = {"lr": "learning_rate", "train_loss": "loss"}
"""Metrics whose names differ between DeepSpeed and Treering."""


class TreeringMonitor(Monitor):
    """Records the steps of an engine, and passes the engine's events on to the monitor that the engine had.

    Make it after `load_checkpoint`: the attempt goes on after the step that the engine has loaded. Samples are those
    that the module is given in training mode, so call `engine.eval()` before an evaluation. The loss is the mean of
    what `backward` is given on rank 0. What `save_checkpoint` writes is recorded when every rank has written it.

    Args:
        engine: the engine, of `deepspeed.initialize`.
        experiment: name that groups runs.
        config: as `treering.start` takes it; default the engine's config.
        tokens: name of the token ids among the module's arguments; the first argument where the module is given none of
            this name. None: no samples are recorded.
        **options: other arguments of `treering.start`, such as `tags` or `folder`. With tensor parallelism give `rank`
            and `world_size` of the data-parallel group.

    Attributes:
        run: the run; call its `finish` at the end of the training.

    Raises:
        UserError: the engine is a pipeline, whose `train_batch` reads the data itself.
    """

    def __init__(
        self,
        engine: DeepSpeedEngine,
        experiment: str,
        *,
        config: Mapping[str, Any] | None = None,
        tokens: str | None = "input_ids",
        **options: Any,
    ) -> None:
        if isinstance(engine, PipelineEngine):
            raise UserError(
                "TreeringMonitor: found a PipelineEngine, expected an engine whose loop calls forward, backward and "
                "step; call treering.start, and run.step after train_batch"
            )
        super().__init__(None)
        self.enabled = True
        self._engine = engine
        self._before = engine.monitor
        self._tokens = tokens
        self._samples: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._metrics: dict[str, Any] = {}
        self._backward, self._step, self._save = engine.backward, engine.step, engine.save_checkpoint
        if config is None:
            config = engine.config
        self.run = start(experiment, config=config, **{"resume_step": engine.global_steps, **options})
        engine.module.register_forward_pre_hook(self._take_samples, with_kwargs=True)
        engine.backward, engine.step, engine.save_checkpoint = self._backward_loss, self._step_recorded, self._saved
        engine.monitor = self

    def write_events(self, event_list: list[tuple[str, Any, int]]) -> None:
        """Takes the events of the engine, and those that the training loop writes before `engine.step()`."""
        if self._before.enabled:
            self._before.write_events(event_list)
        for name, value, _samples in event_list:
            short = name.removeprefix(_PREFIX)
            self._metrics[_NAMES.get(short, short)] = value

    def _take_samples(self, module: Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not module.training or self._tokens is None:
            return
        inputs = named if self._tokens in named or not arguments else arguments[0]
        self._samples += batch_tokens(inputs, self._tokens)

    def _backward_loss(self, loss: Tensor, *arguments: Any, **options: Any) -> Any:
        self._losses.append(loss.detach())
        return self._backward(loss, *arguments, **options)

    def _step_recorded(self, *arguments: Any, **options: Any) -> None:
        before = self._engine.global_steps
        self._step(*arguments, **options)
        if self._engine.global_steps == before:  # a micro-step
            return
        loss = fmean(map(float, self._losses)) if self._losses else None
        metrics = {"loss": loss, "grad_norm": self._engine.get_global_grad_norm(), **self._metrics}
        self.run.step(metrics, step=self._engine.global_steps, tokens=self._samples or None)
        self._samples, self._losses, self._metrics = [], [], {}

    def _saved(self, save_dir: str, tag: Any = None, *arguments: Any, **options: Any) -> Any:
        tag = f"global_step{self._engine.global_steps}" if tag is None else tag
        done = self._save(save_dir, tag, *arguments, **options)
        self.run.checkpoint(Path(save_dir) / str(tag))
        return done
