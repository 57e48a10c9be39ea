"""The names and shapes of a checkpoint's weights in other programs.

Shape suffixes: S sequence, H hidden, N heads, D size of a head, F feed-forward width.

In the checkpoint, in `safetensors` (megatron-core's `GPTModel`), and in `huggingface` (`GPT2LMHeadModel`); L counts
layers from 0, and each name except the embeddings and the output layer's means a weight and a bias:

    0.word.weight                           embedding.word_embeddings.weight             transformer.wte.weight
    1.position                              embedding.position_embeddings.weight         transformer.wpe.weight
    (L+2).layer.input_layernorm             decoder.layers.L.input_layernorm             transformer.h.L.ln_1
    (L+2).layer.self_attention.linear_qkv   decoder.layers.L.self_attention.linear_qkv   transformer.h.L.attn.c_attn
    (L+2).layer.self_attention.linear_proj  decoder.layers.L.self_attention.linear_proj  transformer.h.L.attn.c_proj
    (L+2).layer.pre_mlp_layernorm           decoder.layers.L.pre_mlp_layernorm           transformer.h.L.ln_2
    (L+2).layer.mlp.linear_fc1              decoder.layers.L.mlp.linear_fc1              transformer.h.L.mlp.c_fc
    (L+2).layer.mlp.linear_fc2              decoder.layers.L.mlp.linear_fc2              transformer.h.L.mlp.c_proj
    (layers+2).norm                         decoder.final_layernorm                      transformer.ln_f
    (layers+3).word.weight, untied only     output_layer.weight                          lm_head.weight

A linear layer's weight is [outputs, inputs]; GPT-2's `Conv1D` is transposed. `linear_qkv` keeps query, key and value of
a head together, head by head, as megatron-core does; `c_attn` has all queries, then all keys, then all values.
"""

from functools import partial
from pathlib import Path

import torch

from treering.config.model import ModelConfig
from treering.errors import EvidenceError
from treering.runlog.export_format import ExportFormat
from treering_trainer.checkpointing.weights import Weight, open_weights
from treering_trainer.export.shards import OutputTensor

# Of each block: its module here and in megatron-core's TransformerLayer, and in Hugging Face's GPT2Block.
_MODULES = {
    "input_layernorm": "ln_1",
    "self_attention.linear_qkv": "attn.c_attn",
    "self_attention.linear_proj": "attn.c_proj",
    "pre_mlp_layernorm": "ln_2",
    "mlp.linear_fc1": "mlp.c_fc",
    "mlp.linear_fc2": "mlp.c_proj",
}
_KINDS = ("weight", "bias")


def tensor_names(model: ModelConfig, target: ExportFormat) -> dict[str, str]:
    """The name that each weight of a model gets, by its name in the checkpoint, in the order of the layers.

    `safetensors` takes the names of megatron-core's `GPTModel`, `huggingface` those of `GPT2LMHeadModel`.
    """
    gpt2 = target == "huggingface"
    names = {
        "0.word.weight": "transformer.wte.weight" if gpt2 else "embedding.word_embeddings.weight",
        "1.position": "transformer.wpe.weight" if gpt2 else "embedding.position_embeddings.weight",
    }
    for number in range(model.num_layers):
        for module, gpt2_module in _MODULES.items():
            theirs = f"transformer.h.{number}.{gpt2_module}" if gpt2 else f"decoder.layers.{number}.{module}"
            names |= {f"{number + 2}.layer.{module}.{kind}": f"{theirs}.{kind}" for kind in _KINDS}
    norm = "transformer.ln_f" if gpt2 else "decoder.final_layernorm"
    names |= {f"{model.num_layers + 2}.norm.{kind}": f"{norm}.{kind}" for kind in _KINDS}
    if not model.tied_embeddings:
        names[f"{model.num_layers + 3}.word.weight"] = "lm_head.weight" if gpt2 else "output_layer.weight"
    return names


def output_tensors(
    checkpoint: Path, model: ModelConfig, target: ExportFormat, dtype: torch.dtype | None
) -> list[OutputTensor]:
    """The tensors of an export, in the order of the layers; nothing is read yet.

    Args:
        checkpoint: the checkpoint's folder.
        model: its config.
        target: their names and shapes.
        dtype: of the written tensors, None for that of each weight.

    Raises:
        EvidenceError: the checkpoint has no weights, or not those of the config.
    """
    names = tensor_names(model, target)
    by_name = {weight.name: weight for weight in open_weights(checkpoint)}
    if names.keys() != by_name.keys():
        raise EvidenceError(
            f"{checkpoint}: weights do not fit the run's config: missing {sorted(names.keys() - by_name.keys())}, not "
            f"expected {sorted(by_name.keys() - names.keys())}",
            file=checkpoint,
            found=sorted(by_name),
            expected=sorted(names),
        )
    tensors = []
    for ours, theirs in names.items():
        weight = by_name[ours]
        plan = _reshape(weight, model, target, "meta")
        read = partial(_reshape, weight, model, target, "cpu")
        tensors.append(OutputTensor(theirs, tuple(plan.shape), dtype or plan.dtype, read))
    return tensors


def _reshape(weight: Weight, model: ModelConfig, target: ExportFormat, device: str) -> torch.Tensor:
    tensor = weight.full(device)
    if weight.name == "1.position":
        return tensor.squeeze(1)  # [S, 1, H], since the model adds it to [S, B, H]
    if target == "huggingface":
        if ".linear_qkv." in weight.name:
            # megatron-core keeps query, key and value of a head together, [N 3 D, H]; GPT-2 has [3 N D, H].
            tensor = tensor.unflatten(0, (model.num_attention_heads, 3, -1)).transpose(0, 1).flatten(0, 2)
        if ".linear_" in weight.name and tensor.dim() == 2:
            tensor = tensor.T  # GPT-2's Conv1D multiplies from the other side: [inputs, outputs]
    return tensor
