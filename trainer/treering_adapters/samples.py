"""The token ids of a batch as the recorder takes them, from a batch as a framework passes it."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from treering.errors import UserError


def batch_tokens(batch: Any, name: str | None) -> list[Tensor]:
    """The token ids of each sample of a batch, without padding where the batch has an `attention_mask`.

    A sample is padded to the longest sample of its batch. Without padding its digest is the same in every batch.

    Args:
        batch: a mapping with a tensor of shape [samples, tokens], or such a tensor.
        name: of the tensor in the mapping; None: the batch has no tokens, and nothing is recorded of it.

    Returns:
        A tensor of shape [tokens] for each sample.

    Raises:
        UserError: the batch has no such tensor.
    """
    if name is None:
        return []
    mask = None
    if not isinstance(batch, Tensor):
        found = sorted(map(str, batch)) if isinstance(batch, Mapping) else type(batch).__name__
        if not isinstance(batch, Mapping) or not isinstance(batch.get(name), Tensor):
            raise UserError(
                f"batch: found {found}, expected a tensor {name!r} of token ids; name the tensor with tokens=NAME, or "
                "give tokens=None to record no samples"
            )
        mask = batch.get("attention_mask")
        batch = batch[name]
    rows = batch.reshape(-1, batch.shape[-1]).detach().cpu()
    if not isinstance(mask, Tensor) or mask.shape != batch.shape:
        return list(rows)
    used = mask.reshape(rows.shape).detach().cpu().bool()
    return [row[kept] if kept.any() else row for row, kept in zip(rows, used, strict=True)]
