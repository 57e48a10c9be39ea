"""AdamW over two parameter groups; the caller sets the learning rate of each step."""

import torch
from torch import nn

from treering.config.model import OptimizerConfig
from treering.config.operation import KernelConfig


def build_optimizer(module: nn.Module, config: OptimizerConfig, kernels: KernelConfig) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only, not on biases and norms.

    Every pipeline stage has both groups in the same order: the norm of the gradients takes one collective a group.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=config.peak_learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        fused=kernels.optimizer == "torch_fused",
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Sets the learning rate of every group; it follows from the step, so it is not saved."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
