"""What an audit of a Megatron run says."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from treering.audit.report import Finding, Level


@dataclass(frozen=True, slots=True)
class Unbound:
    """Something that decides what was read, and that nothing the audit has seen confirms.

    It lowers the answer's level to "declared", and the answer names it first. An input that is unbound contradicts
    nothing: a contradiction is a finding.

    Attributes:
        what: the input or the choice, with its place.
        why: what it decides, in a sentence.
        remedy: what binds it, in a sentence.
        steps: the first and the last step that it concerns; None for all steps.
        field: the field of the description (docs/megatron.md) that binds it, where there is one.
    """

    what: str
    why: str
    remedy: str
    steps: tuple[int, int] | None = None
    field: str | None = None

    @property
    def text(self) -> str:
        """All of it on one line."""
        return f"{self.what}. {self.why} {self.remedy}"

    def concerns(self, step: int) -> bool:
        """Whether it decides what a step read."""
        return self.steps is None or self.steps[0] <= step <= self.steps[1]


def reached(findings: Iterable[Finding], unbound: Iterable[Unbound]) -> Level:
    """The level of an answer: its weakest input's.

    Never more than re-derived, since nothing recorded what the run did.
    """
    return Level.DECLARED if any(findings) or any(unbound) else Level.REDERIVED


@dataclass(frozen=True, slots=True)
class DatasetUsage:
    """What a checkpoint read of one data path.

    Attributes:
        corpus: prefix of the `.bin/.idx` pair, as the run named it.
        index: digest of the `.idx`.
        weight: its share of the blend; of the last launch that named it.
        samples: samples read.
        tokens: samples x sequence length.
        epochs: tokens read over tokens of the split.
        mixed_epochs: whether Megatron shuffled several epochs into one another, so that a sample has none.
        documents_touched: distinct documents (sequences of the `.idx`) of which at least one token was read.
        num_documents: documents of the split.
    """

    corpus: str
    index: str
    weight: float
    samples: int
    tokens: int
    epochs: float
    mixed_epochs: bool
    documents_touched: int
    num_documents: int


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that decides what was read, and who says so.

    Attributes:
        name: a field of the description (docs/megatron.md), or an argument that the report repeats.
        value: as JSON.
        origin: the checkpoint's own arguments, the YAML description, a launch script or YAML files of GPT-NeoX, an
            option of the command, Megatron's default, the tracker file beside it, or an index cache.
        argument: the flag or key of the launch, or the cache, where one says so.
    """

    name: str
    value: Any
    origin: Literal["checkpoint", "description", "launch", "option", "default", "tracker", "cache"]
    argument: str | None


@dataclass(frozen=True, slots=True)
class LaunchedSteps:
    """Steps that were read by one set of launch arguments.

    Attributes:
        file: what says so: a checkpoint's file, or the description.
        first_step: from 1.
        last_step: the last step up to the checkpoint.
        first_sample: the number of its first sample in the order that these arguments make.
        num_samples: samples read.
        changed: which arguments differ from those before, in words.
    """

    file: str
    first_step: int
    last_step: int
    first_sample: int
    num_samples: int
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Lineages that fit the run as well as the one that the answer is by, and give another answer.

    Attributes:
        lineages: their names; they agree with each other.
        first_step: the first of the steps that were compared.
        last_step: the last of them.
        compared: samples that were compared.
        differ: those of them that hold other tokens; of a document, samples that hold it by one order alone.
        rules: what these lineages do otherwise, in words.
    """

    lineages: tuple[str, ...]
    first_step: int
    last_step: int
    compared: int
    differ: int
    rules: tuple[str, ...]

    @property
    def text(self) -> str:
        """One line for people."""
        step = f"step {self.first_step:,}"
        steps = step if self.first_step == self.last_step else f"steps {self.first_step:,} to {self.last_step:,}"
        return (
            f"{', '.join(self.lineages)} ({self.differ:,} of {self.compared:,} samples of {steps} differ, since "
            f"{', '.join(self.rules)})"
        )


def unbound_lineage(lineage: str, alternatives: Sequence[Alternative]) -> Unbound:
    """That the program's lineage is not known, where other lineages answer otherwise.

    Args:
        lineage: whose order the answer is by.
        alternatives: at least one.
    """
    return Unbound(
        "The lineage of the program that trained",
        f"The answer is by {lineage}. The run fits other lineages too, and they read other samples: "
        f"{'; '.join(each.text for each in alternatives)}.",
        "State the lineage with --lineage NAME, or `lineage:` in a description (docs/data-order.md).",
        field="lineage",
    )


@dataclass(frozen=True, slots=True)
class MegatronReport:
    """The audit of one checkpoint of a Megatron run.

    Attributes:
        source: the file that describes the run: the YAML file, or the checkpoint's file with the launch arguments.
        lineage: whose order the answers are by; of the last launch.
        alternatives: other lineages that fit the run and would have read other samples.
        settings: what they say, value by value; of the last launch.
        launches: the steps by launch arguments; one entry, unless the run was resumed with others.
        iteration: steps done.
        consumed_samples: samples read.
        consumed_tokens: tokens read.
        skipped_steps: steps up to the checkpoint whose samples were taken but not trained on.
        corpora: what was read of each data path.
        indices_read: Megatron's cached indices that hold and were taken; all others were rebuilt from the seed.
        bound: inputs that the checkpoint only names and that the index cache binds, in words.
        unbound: what decides the order and is not confirmed; each one lowers the level.
        level: at most re-derived: there is no record of what the run did.
        verify: whether cached indices were compared with a rebuild.
        findings: what does not hold.
        not_proven: what remains open, in words.
    """

    source: str
    lineage: str
    alternatives: tuple[Alternative, ...]
    settings: tuple[Setting, ...]
    launches: tuple[LaunchedSteps, ...]
    iteration: int
    consumed_samples: int
    consumed_tokens: int
    skipped_steps: tuple[int, ...]
    corpora: tuple[DatasetUsage, ...]
    indices_read: tuple[str, ...]
    bound: tuple[str, ...]
    unbound: tuple[Unbound, ...]
    level: Level
    verify: bool
    findings: tuple[Finding, ...]
    not_proven: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found that does not hold."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """One line: `re-derived: 1,000 steps`, `declared: 1,000 steps; 1 input is not bound`, or `FAILED with …`."""
        reached = f"{self.level}: {self.iteration:,} steps"
        if self.unbound:
            reached += (
                "; 1 input is not bound" if len(self.unbound) == 1 else f"; {len(self.unbound)} inputs are not bound"
            )
        if self.holds:
            return reached
        things = "1 finding" if len(self.findings) == 1 else f"{len(self.findings)} findings"
        return f"FAILED with {things}; {reached}"

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values, the verdict with it."""
        return {"verdict": self.verdict, "holds": self.holds, **asdict(self)}


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A part of a document that a sample holds.

    Attributes:
        number: of the document: of the sequence in the `.idx`.
        start: first token of the part, counted in the document.
        end: token after its last one.
        num_tokens: tokens of the document.
        id: by the document table beside the pair, None where there is none; source and licence likewise.
    """

    number: int
    start: int
    end: int
    num_tokens: int
    id: str | None
    source: str | None
    licence: str | None


@dataclass(frozen=True, slots=True)
class ReadSample:
    """A sample that a step read.

    Attributes:
        g: its number in the order of its launch.
        step: the step, from 1.
        skipped: whether that step was passed over: the sample was taken and not trained on.
        corpus: prefix.
        epoch: from 0; None where epochs are shuffled into one another.
        documents: its parts of documents, in order; for an exposure, those of the document alone.
    """

    g: int
    step: int
    skipped: bool
    corpus: str
    epoch: int | None
    documents: tuple[DocumentPart, ...]
