"""What is recorded of a checkpoint beside its scores: continuations of kept prompts, and what bias is measured from.

    runs/<id>/evaluations/continuations/step-00000300.json
                          bias/step-00000300.json

Each record has an entry in the journal of evaluations.
"""

from typing import ClassVar, Literal

from pydantic import Field

from treering.config.bias import BiasLists, BiasSettings
from treering.config.model import Digest, PositiveInt, Section
from treering.config.operation import PromptsConfig
from treering.errors import EvidenceError
from treering.runlog.directory import RunDirectory
from treering.runlog.records import Record

Finish = Literal["end_of_document", "stop", "length"]


class Analysis(Record):
    """A record of one checkpoint, in a folder of its kind inside `evaluations/`."""

    analysis: ClassVar[str]

    run: Digest
    step: PositiveInt
    consumed_tokens: PositiveInt
    checkpoint: Digest
    tokenizer: Digest
    program: str = Field(description="versions of what computed it")
    device: str = Field(description="cpu or cuda: another one may draw other tokens")


class Continuation(Section):
    """One prompt and what the checkpoint made of it."""

    id: str
    prompt: str
    text: str
    tokens: tuple[int, ...] = Field(description="all drawn tokens")
    finish: Finish
    seed: int
    left_out_tokens: int = Field(ge=0, description="tokens at the prompt's beginning that the model did not read")


class Continuations(Analysis):
    """The continuations of the kept prompts."""

    analysis: ClassVar[str] = "continuations"

    prompts: Digest = Field(description="of the file of prompts")
    settings: PromptsConfig
    continuations: tuple[Continuation, ...]


class BiasPrompt(Section):
    """What the checkpoint said after one template with the words of one group.

    Adjectives are those of the lists, in their order.
    """

    group: str
    text: str = Field(description="the prompt")
    log_probabilities: tuple[float, ...] = Field(description="of each adjective as the next word, nats")
    samples: tuple[str, ...] = Field(description="drawn texts, without the prompt")
    cut: tuple[bool, ...] = Field(description="whether each text ended at the limit of tokens")


class BiasAxisRecord(Section):
    """The prompts of one axis: for each template, one prompt a group."""

    name: str
    templates: tuple[tuple[BiasPrompt, ...], ...]


class Lexicon(Section):
    """Where the valence of words is from."""

    name: str = Field(description="package and version, or the user's file")
    digest: Digest


class Bias(Analysis):
    """What bias is measured from; `metrics.bias` computes ratios and intervals of it when they are shown."""

    analysis: ClassVar[str] = "bias"

    lists: BiasLists
    settings: BiasSettings
    tokens: PositiveInt = Field(description="tokens of a sample, at most: fewer than asked for in a short sequence")
    lexicon: Lexicon | None = Field(description="None where there was none, so that sentiment is missing")
    valences: dict[str, float] = Field(description="by word, of all words that occur: below 0 negative, above positive")
    axes: tuple[BiasAxisRecord, ...]


ANALYSES: tuple[type[Analysis], ...] = (Continuations, Bias)


def read_continuations(run: RunDirectory) -> tuple[list[Continuations], list[EvidenceError]]:
    """The continuations of a run's checkpoints by step, and what is wrong with records that cannot be read."""
    found: list[Continuations] = []
    faults: list[EvidenceError] = []
    for path in run.analysis_files(Continuations.analysis):
        try:
            found.append(Continuations.read(path)[0])
        except EvidenceError as error:
            faults.append(error)
    return found, faults
