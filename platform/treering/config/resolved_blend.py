"""A resolved blend: corpora by content, weights and seed, which make the identity of a data order.

Stage `blend` writes it to `data/blend.json`; a run's `resolved.json` contains it.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from treering.config.ancestry import Count
from treering.config.canonical import canonical_json, digest_json, parse_json, said_otherwise
from treering.config.model import (
    Digest,
    GrowingSection,
    PositiveInt,
    Section,
    contradiction,
)
from treering.config.schema import Experiment, Name
from treering.errors import ConfigError, EvidenceError, UserError
from treering.files import read_bytes, write_durably


def check_types(path: Path, section: Section, document: dict[str, Any]) -> None:
    """Refuses a value that was read as another type than it is written in, such as a number in quotes.

    Raises:
        EvidenceError: the document has such a value.
    """
    for field, expected, found in said_otherwise(section.model_dump(mode="json"), document):
        text = f"{path}: {field} is {found!r}, expected {expected!r}: a value of another type"
        raise EvidenceError(text, file=path, found=found, expected=expected)


class ResolvedComponent(Section):
    """One corpus of a resolved blend; without a digest it is *declared*: it can be planned, never trained on."""

    corpus: Name
    weight: str
    digest: Digest | None
    num_tokens: PositiveInt
    num_documents: PositiveInt | None


class Continuation(Section):
    """Where a data order begins that goes on from another order."""

    sample: Count = Field(description="number of the order's first sample; lower numbers belong to the other order")
    positions: tuple[Annotated[int, Field(ge=0, le=2**62)], ...] = Field(
        description="by component: number of samples of its corpus before that sample, counted over all epochs"
    )


class ResolvedBlend(GrowingSection):
    """Corpora by content, weights, seed, and where it goes on from another blend: the identity of a data order."""

    added = frozenset({"continues"})

    algorithm: Literal["treering-1"]
    seed: int
    sequence_length: PositiveInt
    components: tuple[ResolvedComponent, ...]
    tokenizer: Digest | None
    continues: Continuation | None = None

    @model_validator(mode="after")
    def _a_position_for_each_component(self) -> Self:
        if self.continues is not None and len(self.continues.positions) != len(self.components):
            raise contradiction(
                "continues.positions", f"{len(self.continues.positions)} positions", f"{len(self.components)}"
            )
        return self

    @property
    def digest(self) -> str:
        """Identity of the data order: algorithm, components (digest and weight, in order), seed, sequence length.

        An order that goes on from another one adds its first sample and the position of each corpus there. Names and
        sizes stay outside: a corpus is its content. A declared component enters by its name.
        """
        origin = {} if self.continues is None else {"continues": self.continues.model_dump(mode="json")}
        return digest_json(
            {
                **origin,
                "algorithm": self.algorithm,
                "components": [
                    {"digest": component.digest, "weight": component.weight}
                    if component.digest
                    else {"declared": component.corpus, "weight": component.weight}
                    for component in self.components
                ],
                "seed": self.seed,
                "sequence_length": self.sequence_length,
            }
        )

    @property
    def alone(self) -> Self:
        """The blend without the order that it goes on from, as stage `blend` writes it."""
        return self.model_copy(update={"continues": None})

    @property
    def declared(self) -> tuple[str, ...]:
        """Names of the components without content."""
        return tuple(component.corpus for component in self.components if component.digest is None)

    def write(self, path: Path) -> None:
        """Writes the blend with its digest beside it, for people and for `read`'s check."""
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"digest": self.digest, **self.model_dump(mode="json")}
        write_durably(path, json.dumps(document, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads what `write` wrote.

        Raises:
            UserError: the file does not exist.
            EvidenceError: its content does not fit its digest.
        """
        try:
            document = parse_json(read_bytes(path))
            claimed = document.pop("digest")
            blend = cls.model_validate(document)
            check_types(path, blend, document)
        except FileNotFoundError:
            raise UserError(f"{path}: no blend there; `dvc repro blend` makes it") from None
        except (OSError, ValueError, KeyError, AttributeError, TypeError, ValidationError) as error:
            raise EvidenceError(
                f"{path}: not a resolved blend ({error}); `dvc repro -f blend` makes it anew",
                file=path,
                found=str(error),
                expected="a resolved blend",
                remedy="`dvc repro -f blend` makes it anew",
            ) from error
        if claimed != blend.digest:
            raise EvidenceError(
                f"{path}: digest {claimed} was written, {blend.digest} recomputed: the file was edited; "
                "`dvc repro -f blend` makes it anew",
                file=path,
                found=claimed,
                expected=blend.digest,
                remedy="`dvc repro -f blend` makes it anew",
            )
        return blend


def declared_blend(experiment: Experiment) -> ResolvedBlend:
    """A blend whose corpora have no content yet, from what the experiment declares: enough to plan, not to train.

    A corpus that declares no token count is planned with one sample's worth.
    """
    corpora = {corpus.name: corpus for corpus in experiment.corpora}
    length = experiment.blend.sequence_length
    return ResolvedBlend(
        algorithm=experiment.blend.algorithm,
        seed=experiment.blend.seed,
        sequence_length=length,
        components=tuple(
            ResolvedComponent(
                corpus=component.corpus,
                weight=component.weight,
                digest=None,
                num_tokens=corpora[component.corpus].declared_tokens or length + 1,
                num_documents=None,
            )
            for component in experiment.blend.components
        ),
        tokenizer=None,
    )


def check_blend_fits(experiment: Experiment, blend: ResolvedBlend, source: str) -> None:
    """Refuses a resolved blend that was made from another `blend` section than this experiment's.

    Raises:
        ConfigError: seed, sequence length, algorithm, corpora or weights differ.
    """
    wanted = experiment.blend
    for field, expected, found in (
        ("algorithm", wanted.algorithm, blend.algorithm),
        ("seed", wanted.seed, blend.seed),
        ("sequence_length", wanted.sequence_length, blend.sequence_length),
        (
            "components",
            {component.corpus: component.weight for component in wanted.components},
            {component.corpus: component.weight for component in blend.components},
        ),
    ):
        if expected != found:
            raise ConfigError(
                source, f"blend.{field}", canonical_json(found), f"{canonical_json(expected)} as the experiment says; "
                "`dvc repro blend` resolves it anew"
            )  # fmt: skip
