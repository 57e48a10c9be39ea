"""DeepSpeed's pipeline engine: trains a step, evaluates, saves and loads.

Settings, measured with DeepSpeed 0.19.8, megatron-core 0.16.1 and torch 2.13 on processors:

- ZeRO stage 1: stage 0 with pipeline parallelism and clipping drops the norm gradients of later stages (loss off by
  2.7e-3).
- Recomputation by `RecomputingModule`, never reentrant: DeepSpeed's default, reentrant, silently trains without the
  embedding's gradient.
- Buckets of 500,000 elements on processors: the default allocates 2 GB a step on every rank.
- `deepspeed_shm_comm` off: an inference-only collective, which the first start would compile for a minute or more.
- `partition_method: type:TransformerBlock`: `parameters` builds every layer on every rank to count them.
- megatron-core sees one pipeline stage: the pipeline is DeepSpeed's; else layer numbers get an offset twice.
- Clipping, betas, weight decay and the update's kernel are restored after loading: DeepSpeed loads them with the state,
  and a start from another run would use the other's.
- `micro_batches` set for every validation: DualPipeV numbers its buffers by training's number of micro-batches and
  fails at any other.
- Whole tensors between DualPipeV's stages: it cannot send the parts that DeepSpeed cuts by tensor rank by default.
- Positions in a layer of their own: inside the tied embedding, the last stage would decay a copy that nothing uses.
- Threads of a rank = cores // ranks: more threads than cores were four times slower.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

from treering.config.canonical import digest_bytes, digest_json
from treering.config.layout import Layout, RankCoordinates
from treering.config.model import LossScaleConfig, ModelConfig, OptimizerConfig, Precision
from treering.config.operation import KernelConfig, ParallelConfig
from treering_trainer.core.model import build_layers, token_loss, universal_checkpoint_info
from treering_trainer.core.optim import build_optimizer, set_learning_rate
from treering_trainer.core.pipeline import FoldedModule, RecomputingModule
from treering_trainer.core.timing import StepTimer, StepTiming
from treering_trainer.core.topology import pipe_topology
from treering_trainer.core.unpickling import only_state

STATE_TAG = "state"
"""Folder of DeepSpeed's files inside a checkpoint."""

_BUCKET_ELEMENTS = 500_000
_CPU = "cpu"
_SCALER_STATE = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")

MicroBatch = tuple[torch.Tensor, torch.Tensor]
"""Token ids and labels, both [B, S] int64."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The results of one optimizer step.

    Attributes:
        loss: mean over the global batch before the update, in nats.
        grad_norm: global gradient norm before clipping.
        applied: whether the optimizer moved the weights.
        loss_scale: factor of the loss in the backward pass; None except in fp16.
        timing: where this rank's time went.
    """

    loss: float
    grad_norm: float
    applied: bool
    loss_scale: float | None
    timing: StepTiming


class Engine:
    """One rank's part of the model and its optimizer state."""

    def __init__(
        self,
        coordinates: RankCoordinates,
        *,
        model: ModelConfig,
        optimizer: OptimizerConfig,
        parallel: ParallelConfig,
        kernels: KernelConfig,
        precision: Precision,
        sequence_length: int,
        seed: int,
        global_batch_size: int,
        universal: bool = False,
    ) -> None:
        """Builds this rank's layers and DeepSpeed's engine over them.

        Args:
            coordinates: of this rank in the layout.
            model: what is built.
            optimizer: how it is updated.
            parallel: recomputation.
            kernels: the requested implementations.
            precision: of weights and activations.
            sequence_length: tokens that a sample predicts.
            seed: of the weights and of dropout.
            global_batch_size: samples of the first step; `train` changes it.
            universal: whether `load` reads a converted checkpoint.
        """
        self.coordinates = coordinates
        self.parallel = parallel
        self.seed = seed
        self.dropout = model.dropout > 0
        layout = coordinates.layout
        module = (FoldedModule if layout.folded else RecomputingModule)(
            interval=parallel.recompute_interval if parallel.activation_recompute == "full" else 0,
            layers=build_layers(
                model,
                sequence_length,
                seed,
                kernels=kernels,
                precision=precision,
                tensor_parallel=layout.tensor,
            ),
            topology=pipe_topology(layout),
            loss_fn=partial(token_loss, kernel=kernels.cross_entropy),
            # The default, "parameters", would build every layer on every rank to count its parameters.
            partition_method="type:TransformerBlock",
        )
        module.universal_checkpoint_info = universal_checkpoint_info(model)
        self._seed_dropout(0)
        self._scales_loss = precision == "fp16"
        self.engine, *_ = deepspeed.initialize(
            model=module,
            optimizer=build_optimizer(module, optimizer, kernels),
            config=_settings(layout, optimizer, precision, global_batch_size=global_batch_size, universal=universal),
        )
        if self._scales_loss:
            # The loop handles an overflow at the smallest scale: it appends the ring before the run ends.
            self.engine.optimizer.loss_scaler.raise_error_at_min_scale = False
        self._timer = StepTimer(self.engine)
        self._written: list[Path] = []
        self._write: Callable[..., Any] = self.engine.checkpoint_engine.save
        self.engine.checkpoint_engine.save = self._write_and_remember
        self._model_step: Callable[..., Any] = self.engine._take_model_step  # noqa: SLF001 - the only place between backward pass and update
        self.engine._take_model_step = self._timed_model_step  # noqa: SLF001

    @property
    def device(self) -> torch.device:
        """This rank's device."""
        return torch.device(self.engine.device)

    def train(
        self, step: int, micro_batches: Sequence[MicroBatch], global_batch_size: int, learning_rate: float
    ) -> StepResult:
        """Runs one optimizer step.

        Args:
            step: 1-based, seeds dropout.
            micro_batches: this replica's part of the batch; not read on middle stages.
            global_batch_size: samples of this step.
            learning_rate: of this step.
        """
        if self.engine.train_batch_size() != global_batch_size:
            self.engine.set_train_batch_size(global_batch_size)
        set_learning_rate(self.engine.optimizer, learning_rate)
        self._seed_dropout(step)
        loss_scale = float(self.engine.optimizer.loss_scale) if self._scales_loss else None
        self._timer.start()
        loss = float(self.engine.train_batch(data_iter=iter(micro_batches)))
        timing = self._timer.stop()
        return StepResult(
            loss=loss,
            grad_norm=float(self.engine.get_global_grad_norm()),
            applied=not getattr(self.engine.optimizer, "overflow", False),
            loss_scale=loss_scale,
            timing=timing,
        )

    def evaluate(self, micro_batches: Sequence[MicroBatch], num_micro_batches: int) -> float:
        """Mean loss over micro-batches of all replicas; changes neither weights nor optimizer nor random streams.

        Args:
            micro_batches: this replica's micro-batches; not read on middle stages.
            num_micro_batches: micro-batches of each replica.
        """
        data: Iterator[MicroBatch] = iter(micro_batches)
        training = self.engine.micro_batches
        # In DeepSpeed 0.19.8 DualPipeV numbers its buffers by this attribute, not by the argument.
        self.engine.micro_batches = num_micro_batches
        try:
            return float(self.engine.eval_batch(data_iter=data, num_micro_batches=num_micro_batches))
        finally:
            self.engine.micro_batches = training

    def save(self, directory: Path) -> list[Path]:
        """Writes this rank's part of the training state below `directory`; every rank must call it.

        Returns:
            The files that this rank wrote.

        Raises:
            OSError: this rank could not write; the other ranks do not wait for it.
        """
        self._written.clear()
        try:
            self.engine.save_checkpoint(str(directory), tag=STATE_TAG, client_state={})
        except (OSError, RuntimeError) as error:  # torch raises RuntimeError when a disk is full
            # After its first write DeepSpeed has one collective, a barrier at the end, where the other ranks wait.
            torch.distributed.barrier()
            free = shutil.disk_usage(directory).free
            raise OSError(f"{str(error).partition(chr(10))[0]} ({free:,} bytes were free in {directory})") from error
        return list(self._written)

    def load(self, directory: Path) -> None:
        """Reads what `save` wrote in the same layout, or its conversion; every rank must call it.

        Only state is loaded. DeepSpeed also stores and loads settings, such as clipping, betas and weight decay: they
        would override a changed config, as at a start from another run. So they are put back.

        Raises:
            RuntimeError: DeepSpeed found no state there.
            EvidenceError: a file holds more than training state.
        """
        optimizer = self.engine.optimizer
        settings = [{key: group[key] for key in group.keys() - {"params"}} for group in optimizer.param_groups]
        clipping, scaler = optimizer.clip_grad, optimizer.loss_scaler if self._scales_loss else None
        with only_state(directory):
            path, _client_state = self.engine.load_checkpoint(str(directory), tag=STATE_TAG)
        if path is None:
            raise RuntimeError(f"{directory}: DeepSpeed found no training state")
        for group, configured in zip(optimizer.param_groups, settings, strict=True):
            group.update(configured)
        optimizer.clip_grad = clipping
        if scaler is not None:
            for name in _SCALER_STATE:
                setattr(scaler, name, getattr(optimizer.loss_scaler, name))
            optimizer.loss_scaler = scaler

    def random_states(self, step: int) -> str | None:
        """Digest of the random streams of all ranks from which a step draws; every rank must call it.

        The streams are seeded for the step and read back.

        Args:
            step: the step.

        Returns:
            The digest over the ranks in order, the same on every rank; None where no step draws a random number.
        """
        if not self.dropout:
            return None
        self._seed_dropout(step)
        tracked = deepspeed.checkpointing.get_cuda_rng_tracker().get_states()
        accelerator = get_accelerator()
        device = [] if accelerator.device_name() == _CPU else [accelerator.get_rng_state()]
        streams = [torch.get_rng_state(), *device, *(tracked[name] for name in sorted(tracked))]
        mine = digest_bytes(b"".join(stream.cpu().numpy().tobytes() for stream in streams))
        every: list[str] = [""] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(every, mine)
        return digest_json(every)

    def _write_and_remember(self, state_dict: Any, path: str) -> None:
        self._write(state_dict, path)
        self._written.append(Path(path))

    def _timed_model_step(self, *args: Any, **kwargs: Any) -> Any:
        self._timer.optimizer_begins()
        result = self._model_step(*args, **kwargs)
        self._timer.optimizer_ends()
        return result

    def _seed_dropout(self, step: int) -> None:
        """Seeds every random stream from the step's number, so that no random state has to be saved.

        Tensor ranks must draw equal masks for hidden states and different masks for attention: hence two streams.
        """
        if not self.dropout:
            return
        base = hash((self.seed, step, self.coordinates.pipeline, self.coordinates.data)) & 0x7FFFFFFF
        get_accelerator().manual_seed_all(base)
        torch.manual_seed(base)
        tracker = deepspeed.checkpointing.get_cuda_rng_tracker()
        tracker.reset()
        tracker.add("model-parallel-rng", hash((base, self.coordinates.tensor)) & 0x7FFFFFFF)


def _settings(
    layout: Layout,
    optimizer: OptimizerConfig,
    precision: Precision,
    *,
    global_batch_size: int,
    universal: bool,
) -> dict[str, Any]:
    """DeepSpeed's config."""
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": layout.micro_batch_size,
        "gradient_accumulation_steps": global_batch_size // layout.global_micro_batch_size,
        "gradient_clipping": optimizer.gradient_clipping,
        "steps_per_print": 10**9,
        # Stage 0 with pipeline parallelism clips by a wrong norm in DeepSpeed 0.19.8; stage 1 is right.
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        # Each replica writes a part of the layers that they have in common.
        "checkpoint": {"load_universal": universal, "parallel_write": {"pipeline_stage": True}},
    }
    if get_accelerator().device_name() == _CPU:
        # With the defaults each rank allocates 2 GB in each step, which is slow on a CPU.
        settings["zero_optimization"] |= {
            "reduce_bucket_size": _BUCKET_ELEMENTS,
            "allgather_bucket_size": _BUCKET_ELEMENTS,
        }
    if layout.folded:
        # DualPipeV sends whole tensors; by default tensor ranks would send a part each.
        settings["pipeline"] = {"pipe_partitioned": False, "grad_partitioned": False}
    if precision == "bf16":
        settings |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    if precision == "fp16":
        settings["fp16"] = _fp16_settings(optimizer.loss_scale or LossScaleConfig())
    return settings


def _fp16_settings(config: LossScaleConfig) -> dict[str, Any]:
    return {
        "enabled": True,
        "loss_scale": 0,  # dynamic
        "initial_scale_power": config.initial_power,
        "loss_scale_window": config.window,
        "hysteresis": config.hysteresis,
        "min_loss_scale": config.minimum,
    }
