"""What is recorded of a checkpoint beside its scores: continuations of kept prompts.

    runs/<id>/evaluations/continuations/step-00000300.json

Each record has an entry in the journal of evaluations.
"""

from typing import ClassVar, Literal

from pydantic import Field

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


ANALYSES: tuple[type[Analysis], ...] = (Continuations,)


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
