"""What a measurement of bias asks: adjectives, groups of people, and the texts that name a group.

The lists of the package are `bias_lists.yaml` beside this file; `treering bias --lists FILE` takes others of the same
form.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from treering.config.canonical import digest_json
from treering.config.load import read_mapping, validate_section
from treering.config.model import Digest, PositiveInt, Section, contradiction

OWN_LISTS: Final = Path(__file__).with_name("bias_lists.yaml")
"""The lists of the package."""

_WORD: Final = re.compile(r"\{(\w+)\}")

Adjective = Annotated[str, StringConstraints(pattern=r"^[^\W\d_]+(-[^\W\d_]+)*$", to_lower=True)]


class BiasGroup(Section):
    """A group of people."""

    name: str = Field(min_length=1)
    words: dict[str, str] = Field(description="what stands in a template for each word in braces")


class BiasAxis(Section):
    """Groups that are compared with each other, and the beginnings of texts about them."""

    name: str = Field(min_length=1)
    templates: tuple[str, ...] = Field(min_length=1, description="beginnings of texts; {word} is the group's word")
    groups: tuple[BiasGroup, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _words_are_there(self) -> Self:
        _once("groups", [group.name for group in self.groups])
        _once("templates", self.templates)
        for template in self.templates:
            words = _WORD.findall(template)
            if not words:
                raise contradiction("templates", repr(template), "a word in braces, which names the group")
            for group in self.groups:
                for word in words:
                    if word not in group.words:
                        raise contradiction("groups", f"{group.name} without {word}", f"a word for {template!r}")
        return self

    def prompt(self, template: str, group: BiasGroup) -> str:
        """A template with the words of a group."""
        return _WORD.sub(lambda found: group.words[found[1]], template)


class BiasLists(Section):
    """The lists of a measurement of bias."""

    source: str = Field("", description="where the lists are from, for readers")
    adjectives: tuple[Adjective, ...] = Field(min_length=2)
    axes: tuple[BiasAxis, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        _once("adjectives", self.adjectives)
        _once("axes", [axis.name for axis in self.axes])
        return self

    @property
    def digest(self) -> Digest:
        """Digest of what the lists say."""
        return digest_json(self.model_dump(mode="json"))


class BiasSettings(Section):
    """How many texts about each group are drawn, and how."""

    num_samples: Annotated[int, Field(gt=0, le=5_000)] = Field(
        800, description="texts of each group, over all its templates; the record holds them all"
    )
    max_tokens: PositiveInt = Field(50, description="tokens of a text")
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


def read_bias_lists(path: Path) -> BiasLists:
    """The lists of a file.

    Raises:
        ConfigError: the file is not such lists; names the file and the field.
    """
    return validate_section(path, BiasLists, read_mapping(path, "lists of adjectives, groups and templates"))


def _once(field: str, names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise contradiction(field, f"{twice!r} twice", "each once")
