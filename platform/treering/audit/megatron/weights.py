"""The kind of model that a checkpoint of Megatron holds, by the names of its weights: a GPT, or another kind.

A BERT and a GPT are launched with the same arguments, and read different data sets. The weights of each kind have names
that a GPT's do not have. Hybrid models and Mamba read the data sets of a GPT and count as a GPT.

Source: Megatron-LM, megatron/legacy/model (bert_model.py, t5_model.py, biencoder_model.py, classification.py,
multiple_choice.py, vision/) and megatron/core/models (bert, T5, retro, vision, multimodal), 2019 to core_v0.19.0.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_KINDS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(rf"(?:^|\.)(?:{names})(?:\.|$)"))
    for kind, names in (
        ("a model of images", "vision_model|vision_projection|vision_backbone|image_encoder|backbone|cls_token"),
        ("a retrieval model", "query_model|context_model|shared_model|ict_head|query_head|context_head"),
        ("Retro", r"retriever|retro_encoder|cross_attention\.encoder"),
        ("an encoder-decoder, as T5", "inter_attention|cross_attention|post_inter_attention_layernorm"),
        ("BERT", r"tokentype_embeddings|binary_head|pooler|lm_head\.(?:dense|layernorm|layer_norm)"),
        ("a classifier", "classification_head|multichoice_head|multichoice_dense|classification_dense"),
        ("a reward model", "rm_linear|reward_head|rm_head|value_head"),
    )
)
"""Kinds of models by parts of their weights' names; the first match decides."""
_MODELS: Final = re.compile(r"model\d*|module|state_dict")
_DEEPEST: Final = 12
_MOST: Final = 100_000


def weight_names(held: Mapping[Any, Any]) -> Iterator[str]:
    """The names of the weights in a checkpoint's dictionary: keys below its models, joined with dots.

    Sections deeper than 12 and names after 100,000 are left out: they show nothing more about the kind.
    """
    heaps = [(str(name), value) for name, value in held.items() if isinstance(name, str) and _MODELS.fullmatch(name)]
    left, seen = _MOST, set()
    while heaps and left:
        name, value = heaps.pop()
        if isinstance(value, Mapping) and value and name.count(".") < _DEEPEST and id(value) not in seen:
            seen.add(id(value))  # a section that contains itself ends here
            heaps += [(f"{name}.{key}", each) for key, each in value.items() if isinstance(key, str)]
        else:
            left -= 1
            yield name


def other_kind(names: Iterable[str]) -> tuple[str, str] | None:
    """The kind of a model that is not a GPT, and the name that shows it; None for a GPT, or where no name shows it."""
    listed = list(names)
    for kind, pattern in _KINDS:
        for name in listed:
            if pattern.search(name):
                return kind, name
    return None
