"""The experiment of a new project, as YAML that a person goes on writing: a small GPT in minutes on two cores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from treering.setup.given import UNKNOWN_LICENCE, GivenCorpus

_MOST_TOKENS: Final = 2_000_000
"""Tokens of the first training at most: minutes on two cores."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the first training is, by how much data there is.

    Attributes:
        vocabulary_size: of the tokenizer that is trained.
        sequence_length: tokens of a sample.
        batch: samples of a step.
        layers: of the model.
        hidden: width of the model.
        heads: attention heads.
        heldout: part of the documents that is held out.
    """

    vocabulary_size: int
    sequence_length: int
    batch: int
    layers: int
    hidden: int
    heads: int
    heldout: float


_SHAPES: Final = (
    (2_000_000, Shape(8192, 256, 16, 4, 192, 6, 0.03)),
    (200_000, Shape(2048, 128, 16, 4, 128, 4, 0.05)),
    (0, Shape(512, 64, 8, 2, 64, 4, 0.1)),
)
"""Shapes by the fewest tokens of data that they need."""


def experiment_text(name: str, corpora: Sequence[GivenCorpus], tokenizer: tuple[str, int, str] | None) -> str:
    """The YAML of an experiment.

    Args:
        name: of the experiment.
        corpora: its corpora, at least one.
        tokenizer: path, entries and end-of-document token of a tokenizer of your own; None to train one.
    """
    total = sum(corpus.tokens for corpus in corpora)
    shape = next(shape for least, shape in _SHAPES if total >= least)
    size = shape.vocabulary_size if tokenizer is None else tokenizer[1]
    own = "" if tokenizer is None else f"\n  file: {_scalar(tokenizer[0])}\n  end_of_document: {_scalar(tokenizer[2])}"
    step = shape.batch * shape.sequence_length
    steps = min(max(total, 100 * step), _MOST_TOKENS) // step
    entries = "\n".join(_entry(corpus) for corpus in corpora)
    weights = "\n".join(
        f'    - {{corpus: {corpus.config.name}, weight: "{weight}"}}'
        for corpus, weight in zip(corpora, _weights([corpus.tokens for corpus in corpora]), strict=True)
    )
    return f"""\
# Written by `treering init`; yours from here on. `treering plan experiments/{name}.yaml` prints every value with its
# default, and what a training of it reads of each corpus.
schema_version: 1
experiment: {_scalar(name)}
seed: 1234

# What makes the data.
corpora: # in order of deduplication priority
{entries}

curation:
  seed: 1234
  prose: {{min_characters: 128, min_words: 20, languages: []}} # a list such as [en] keeps those languages only
  heldout:
    fraction: {shape.heldout}
  tasks:
    num_items: 200

tokenizer:
  vocabulary_size: {size}{own}

# The data order: which sample comes when.
blend:
  algorithm: treering-1
  seed: 1234
  sequence_length: {shape.sequence_length}
  components: # weights roughly by size; they sum to 1
{weights}

# The recipe: a small model first, to see the whole way from text to an audited checkpoint.
start_from: null

model:
  num_layers: {shape.layers}
  hidden_size: {shape.hidden}
  num_attention_heads: {shape.heads}
  padded_vocab_size: {-(-size // 128) * 128}

optimizer:
  peak_learning_rate: 2.0e-3
  min_learning_rate: 2.0e-4

schedule:
  train_tokens: {steps * step}
  global_batch_size: {shape.batch}
  warmup_tokens: {steps * step // 20}
  decay_tokens: {steps * step}

precision: fp32 # bf16 on GPUs

# What an attempt may choose anew; none of it enters the run's id. Sections that a stage of dvc.yaml names must be here.
parallel:
  micro_batch_size: 4
  cpu_processes: 2
kernels: {{optimizer: torch_fused, attention: sdpa_auto, bias_gelu: eager, bias_dropout_add: eager}}
telemetry: {{interval_s: 1.0}}
checkpoint:
  every_steps: {max(steps // 4, 1)}
validation:
  every_steps: {max(steps // 8, 1)}
  samples: 16
evaluation:
  shots: [0, 1]
  max_items: 100
  perplexity_samples: 32
"""


def _entry(corpus: GivenCorpus) -> str:
    config = corpus.config
    remark = " # an SPDX expression; audit and disclosure repeat it" if config.licence == UNKNOWN_LICENCE else ""
    form, path = config.own or ("jsonl", "")
    lines = [f"  - name: {_scalar(config.name)}", f"    licence: {_scalar(config.licence)}{remark}"]
    if config.has_text:
        rest = "or html, or code: decides extraction and the filter's rules"
        lines.append(f"    kind: {config.kind}" + f" # {rest}" * (config.kind == "prose"))
    lines.append(f"    {form}: {_scalar(path)}")
    if "text_field" in config.model_fields_set:
        lines.append(f"    text_field: {_scalar(config.text_field)}")
    return "\n".join(lines)


def _scalar(value: str) -> str:
    """A text as YAML reads it back, quoted where that is needed."""
    return yaml.safe_dump(value, width=1 << 20, allow_unicode=True).removesuffix("\n").removesuffix("\n...")


def _weights(tokens: Sequence[int]) -> list[str]:
    """Shares by size in hundredths, at least one each, that sum to 1."""
    total = max(sum(tokens), 1)
    shares = [max(round(100 * count / total), 1) for count in tokens]
    shares[shares.index(max(shares))] += 100 - sum(shares)
    return [f"{share / 100:.2f}" for share in shares]
