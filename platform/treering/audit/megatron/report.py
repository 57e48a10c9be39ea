"""The report of an audit of a Megatron run, and its answers about steps and documents."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from treering.audit.report import Finding, Judged, Level


@dataclass(frozen=True, slots=True)
class Unbound:
    """An input that decides what was read, and that no evidence confirms.

    It lowers the answer's level to "declared", and the answer names it first. A contradiction is a finding instead.

    Attributes:
        what: the input or the choice, with its place.
        why: what it decides, in a sentence.
        remedy: what binds it, in a sentence.
        steps: the first and the last step that it concerns; None for all steps.
        field: the field of the description (docs/megatron.md) that binds it, or None.
    """

    what: str
    why: str
    remedy: str
    steps: tuple[int, int] | None = None
    field: str | None = None

    @property
    def text(self) -> str:
        """The three sentences on one line."""
        return f"{self.what}. {self.why} {self.remedy}"

    def concerns(self, step: int) -> bool:
        """Whether it decides what a step read."""
        return self.steps is None or self.steps[0] <= step <= self.steps[1]


def level_of(findings: Iterable[Finding], unbound: Iterable[Unbound]) -> Level:
    """The level of an answer with these findings and unbound inputs.

    It is re-derived at most, since nothing recorded what the run did.
    """
    return Level.DECLARED if any(findings) or any(unbound) else Level.REDERIVED


@dataclass(frozen=True, slots=True)
class DatasetUsage:
    """What a checkpoint read of one data path.

    Attributes:
        corpus: prefix of the `.bin/.idx` pair, as the run named it.
        index: digest of the `.idx`.
        weight: its share of the blend, in the last launch that named it.
        samples: samples read.
        tokens: samples x sequence length.
        epochs: tokens read over tokens of the split.
        mixed_epochs: whether Megatron shuffled several epochs together, so that a sample has no epoch.
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
    """A value that decides what was read, and where it is from.

    Attributes:
        name: a field of the description (docs/megatron.md), or an argument that the report repeats.
        value: as JSON.
        origin: the checkpoint's own arguments, the YAML description, a launch script or YAML files of GPT-NeoX, an
            option of the command, Megatron's default, the tracker file beside it, or an index cache.
        argument: the flag or key of the launch, or the cache, that holds the value; None elsewhere.
    """

    name: str
    value: Any
    origin: Literal["checkpoint", "description", "launch", "option", "default", "tracker", "cache"]
    argument: str | None


@dataclass(frozen=True, slots=True)
class LaunchedSteps:
    """Steps that were read by one set of launch arguments.

    Attributes:
        file: where the arguments are from: a checkpoint's file, or the description.
        first_step: from 1.
        last_step: the last step up to the checkpoint.
        first_sample: the number of its first sample, in the order of these arguments.
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
    """Lineages that fit the run as well as the answer's lineage, and give another answer.

    Attributes:
        lineages: their names; they agree with each other.
        first_step: the first step that was compared.
        last_step: the last step that was compared.
        compared: samples that were compared.
        differ: samples with other tokens; for a document, samples that hold it by one of the orders alone.
        rules: the rules of these lineages that differ, in words.
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
    """The unbound lineage of a run that other lineages fit too, with another answer.

    Args:
        lineage: the answer's lineage.
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
class MegatronReport(Judged):
    """The audit of one checkpoint of a Megatron run.

    Attributes:
        source: the file that describes the run: the YAML file, or the checkpoint's file with the launch arguments.
        lineage: by whose order the answers are, in the last launch.
        alternatives: other lineages that fit the run and read other samples.
        settings: every value of the last launch, with its origin.
        launches: the steps by launch arguments; one entry, unless the run was resumed with other arguments.
        iteration: steps done.
        consumed_samples: samples read.
        consumed_tokens: tokens read.
        skipped_steps: steps up to the checkpoint whose samples were taken but not trained on.
        corpora: what was read of each data path.
        indices_read: Megatron's cached indices that are right and were used; all others were rebuilt from the seed.
        bound: inputs that the checkpoint only names and that the index cache binds, in words.
        unbound: inputs that decide the order and are not confirmed; each one lowers the level.
        level: re-derived at most, since nothing recorded what the run did.
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
    def verdict(self) -> str:
        """One line: `re-derived: 1,000 steps`, `declared: 1,000 steps; 1 input is not bound`, or `FAILED with …`."""
        reached = f"{self.level}: {self.iteration:,} steps"
        if self.unbound:
            reached += (
                "; 1 input is not bound" if len(self.unbound) == 1 else f"; {len(self.unbound)} inputs are not bound"
            )
        if self.holds:
            return reached
        return self.failed(reached)

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
        id: by the document table beside the pair, None without a table; source and licence likewise.
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
        skipped: whether the run skipped that step: the sample was taken and not trained on.
        corpus: prefix.
        epoch: from 0; None where epochs are shuffled together.
        documents: its parts of documents, in order; for an exposure, those of the document alone.
    """

    g: int
    step: int
    skipped: bool
    corpus: str
    epoch: int | None
    documents: tuple[DocumentPart, ...]
