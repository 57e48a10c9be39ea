"""Records the samples that a training script of Megatron-LM reads, such as `pretrain_gpt.py`.

Two lines behind the script's `get_batch`:

    from treering_adapters.megatron import record_batches
    get_batch = record_batches(get_batch, get_args, "gpt")
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

import torch
from megatron.core import parallel_state
from megatron.core.num_microbatches_calculator import get_num_microbatches
from torch import Tensor

from treering.record.run import Run
from treering.record.start import start
from treering_adapters.samples import batch_tokens

_IDENTITY: Final = (
    *("num_layers", "hidden_size", "num_attention_heads", "seq_length", "global_batch_size", "train_iters"),
    *("lr", "min_lr", "lr_decay_style", "weight_decay", "clip_grad", "data_path", "split", "seed"),
)
"""The arguments of Megatron-LM that make the run's config: those that decide numbers, and none of the layout."""


def record_batches(
    get_batch: Callable[..., Any],
    get_args: Callable[[], Any],
    experiment: str,
    *,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """The same `get_batch`, which also records the tokens that it returns.

    Of the ranks with the same samples one records: the first of the tensor-parallel and of the context-parallel group,
    in the first pipeline stage. With context parallelism, its part of each sequence is recorded. What is read without
    gradients is an evaluation, and is not recorded.

    A step is on record when the last of its micro-batches was read, which is before the optimizer steps. Metrics and
    checkpoints are not recorded. The run is finished with step `train_iters`.

    Args:
        get_batch: of the script; it returns the tokens first, or a mapping with `tokens`; None for no tokens.
        get_args: of `megatron.training`; its `iteration` is the step that was loaded, when the first batch is read, and
            its `curr_iteration` counts the steps done, those of `--iterations-to-skip` included.
        experiment: name that groups runs.
        config: as `treering.start` takes it; default those arguments that decide numbers.
        **options: other arguments of `treering.start`, such as `tags` or `folder`.
    """
    recorder: list[_Recorder] = []

    @wraps(get_batch)
    def recorded(*arguments: Any, **named: Any) -> Any:
        batch = get_batch(*arguments, **named)
        if torch.is_grad_enabled() and _records():
            tokens = batch["tokens"] if isinstance(batch, Mapping) else next(iter(batch))
            if tokens is not None:
                if not recorder:
                    recorder.append(_Recorder(get_args(), experiment, config, options))
                recorder[0].add(tokens)
        return batch

    return recorded


class _Recorder:
    """Counts the micro-batches of a step."""

    def __init__(
        self, args: Any, experiment: str, config: Mapping[str, Any] | None, options: Mapping[str, Any]
    ) -> None:
        if config is None:
            config = {name: getattr(args, name, None) for name in _IDENTITY}
        place = {
            "resume_step": args.iteration,
            "rank": parallel_state.get_data_parallel_rank(),
            "world_size": parallel_state.get_data_parallel_world_size(),
        }
        self._run: Run = start(experiment, config=config, **{**place, **options})
        self._args = args
        self._expected = 0
        self._read = 0
        self._samples: list[Tensor] = []

    def add(self, tokens: Tensor) -> None:
        if not self._read:
            self._expected = get_num_microbatches()  # it grows where the batch size does
        self._samples += batch_tokens(tokens, "tokens")
        self._read += 1
        if self._read < self._expected:
            return
        done = getattr(self._args, "curr_iteration", None)  # forks before 2024 have none, and skip no step
        self._run.step(tokens=self._samples, step=None if done is None else done + 1)
        self._samples, self._read = [], 0
        if self._run.last_step == self._args.train_iters:
            self._run.finish()


def _records() -> bool:
    return bool(
        parallel_state.get_tensor_model_parallel_rank() == 0
        and parallel_state.get_context_parallel_rank() == 0
        and parallel_state.is_pipeline_first_stage(ignore_virtual=True)
    )
