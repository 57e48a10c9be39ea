"""Writes the files of a Hugging Face folder beside the weights: config, tokenizer, model card.

A special token that is spelled out in a text is ordinary text, as in the corpora (`split_special_tokens`); the end of a
document is `tokenizer.eos_token_id`.
"""

import json
from pathlib import Path
from typing import Any

from treering.config.operation import KernelConfig
from treering.config.resolved import Resolved
from treering.data.corpus.sentencepiece_model import MARK, embedded_model, without_model
from treering.data.corpus.tokenizer import end_of_document, open_tokenizer
from treering.files import read_text, write_durably
from treering.runlog.directory import CheckpointDirectory
from treering.runlog.export_format import ExportDtype
from treering_trainer.core.model import transformer_config
from treering_trainer.export.card import model_card

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def write_huggingface(directory: Path, checkpoint: CheckpointDirectory, dtype: ExportDtype, tokenizer: Path) -> None:
    """Writes config, generation config, tokenizer and model card.

    Args:
        directory: the folder.
        checkpoint: the exported checkpoint.
        dtype: of the written weights.
        tokenizer: `tokenizer.json`, checked against the checkpoint.

    Raises:
        UserError: the tokenizer lacks the special token that ends a document.
    """
    resolved = checkpoint.run.resolved
    text, token = end_of_document(tokenizer)
    known = open_tokenizer(tokenizer).get_vocab_size()
    padded = list(range(known, resolved.recipe.model.padded_vocab_size))
    note = _write_tokenizer(directory, read_text(tokenizer))
    _write(directory / "config.json", _model_config(resolved, dtype, token))
    generation: dict[str, Any] = {"bos_token_id": token, "eos_token_id": token}
    if padded:
        generation["suppress_tokens"] = padded
    _write(directory / "generation_config.json", generation)
    _write(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": resolved.blend.sequence_length,
            "bos_token": text,
            "eos_token": text,
            "clean_up_tokenization_spaces": False,
            # A special token that is spelled out in a text is ordinary text, as in the corpora.
            "split_special_tokens": True,
        },
    )
    card = model_card(checkpoint, dtype, known, text, note)
    write_durably(directory / "README.md", card)


def _write_tokenizer(directory: Path, text: str) -> str:
    """Writes `tokenizer.json`, and `tokenizer.model` where the run's tokenizer is a SentencePiece model.

    Returns:
        How the written tokenizer differs from the run's, in a sentence; empty if it is the run's, byte for byte.
    """
    document = json.loads(without_model(text))
    around = document.get("post_processor") or {"type": "ByteLevel"}  # ByteLevel's changes offsets alone
    plain = around["type"] == "ByteLevel" and not document.get("truncation") and not document.get("padding")
    if text.startswith(MARK):
        write_durably(directory / "tokenizer.model", embedded_model(text))
        note = (
            "`tokenizer.json` is converted from the SentencePiece model `tokenizer.model`, which cut the corpora. It "
            "has the same tokens, and cuts a few texts in another way, such as those with `\\r\\n`."
        )
    elif not plain:
        note = "`tokenizer.json` is the run's without post-processor, truncation and padding, as it cut the corpora."
    else:
        write_durably(directory / "tokenizer.json", text)
        return ""
    document |= {"post_processor": None, "truncation": None, "padding": None}
    write_durably(directory / "tokenizer.json", json.dumps(document, ensure_ascii=False) + "\n")
    return note


def _model_config(resolved: Resolved, dtype: ExportDtype, end: int) -> dict[str, Any]:
    model = resolved.recipe.model
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        # All padded rows stay: the trained softmax includes them.
        "vocab_size": model.padded_vocab_size,
        "n_positions": resolved.blend.sequence_length,
        "n_embd": model.hidden_size,
        "n_layer": model.num_layers,
        "n_head": model.num_attention_heads,
        "n_inner": model.ffn_width,
        "activation_function": "gelu_new",  # the tanh form, as in `transformer_config`
        "layer_norm_epsilon": transformer_config(model, KernelConfig(), "fp32", 1).layernorm_epsilon,
        "initializer_range": model.weight_std,
        "attn_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "resid_pdrop": model.dropout,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "tie_word_embeddings": model.tied_embeddings,
        "bos_token_id": end,
        "eos_token_id": end,
        "dtype": _DTYPES[dtype],
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    write_durably(path, json.dumps(content, indent=2) + "\n")
