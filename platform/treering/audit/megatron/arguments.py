"""Launch arguments of Megatron by name: read with their types, and refused where the data order cannot be rebuilt."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from reprlib import Repr
from typing import Any, Final

from treering.audit.megatron.inputs import POINTERS, REFUSED, is_set, unknown_arguments
from treering.audit.megatron.report import Unbound
from treering.audit.megatron.unpickle import Inert
from treering.audit.megatron.weights import other_kind
from treering.errors import EvidenceError, UserError

_SUFFIXES: Final = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_GPT_TYPES: Final = (1, "encoder_or_decoder")
"""Megatron's `model_type` of a GPT: the number and the name of the member of its enumeration."""
_OTHER_TYPES: Final = {
    2: "an encoder-decoder, as T5",
    3: "Retro",
    4: "Retro",
    "encoder_and_decoder": "an encoder-decoder, as T5",
    "retro_encoder": "Retro",
    "retro_decoder": "Retro",
}
MOST_CHARACTERS: Final = 10_000
"""Characters of a text or of a path."""
MOST_WORDS: Final = 2 * 32_766
"""Words of a list of data paths with weights: no lineage takes more than 32,766 data paths."""
_LARGEST: Final = 10**15
_MOST_NAMED: Final = 20
_SHORT: Final = Repr()
_SHORT.maxlevel, _SHORT.maxother = 3, 80


def flag(name: str) -> str:
    """An argument as on a command line."""
    return f"--{name.replace('_', '-')}"


def shown(value: Any) -> str:
    """A value of any type on a short line."""
    return _SHORT.repr(value) if not isinstance(value, str) else _SHORT.repr(value).strip("'")


def enumerated(value: Any) -> Any:
    """The number of a member of an enumeration, or its name: Python before 3.11.4 pickles `getattr(class, name)`."""
    if isinstance(value, Inert):
        if len(value.arguments) == 1 and isinstance(value.arguments[0], int):
            return value.arguments[0]
        if value.kind in {"builtins.getattr", "__builtin__.getattr"} and len(value.arguments) == 2:
            return value.arguments[1]
    return value


def _other_type(model_type: Any) -> str | None:
    """The kind of a model by its `model_type`; None for a GPT, or if the argument is missing."""
    member = enumerated(model_type)
    if member is None or member in _GPT_TYPES:
        return None
    return _OTHER_TYPES.get(member, shown(member)) if isinstance(member, int | str) else shown(model_type)


class Arguments:
    """Arguments by name, read with their types; an error names the argument."""

    def __init__(self, file: Path, held: Mapping[str, Any]) -> None:
        self.file = file
        self._held = held

    def refuse(self, weights: Iterable[str]) -> None:
        """Refuses a run whose order cannot be rebuilt.

        Args:
            weights: names of the model's weights.

        Raises:
            UserError: an argument that leaves Megatron's usual order is set, or the model is not a GPT.
        """
        for name, refusal in REFUSED.items():
            value = self._held.get(name)
            if is_set(value, refusal.usual):
                found = f" {shown(value)}, expected {refusal.usual[0]}" if refusal.usual else ""
                raise UserError(
                    f"{self.file}: launched with {flag(name)}{found}: {refusal.reason}; "
                    "this data order cannot be rebuilt"
                )
        found_kind = other_kind(weights)
        kind = _other_type(self._held.get("model_type"))
        if found_kind is not None or kind is not None:
            what = (
                f"{kind} (model_type)"
                if found_kind is None
                else f"{found_kind[0]} (it has the weights {found_kind[1]})"
            )
            raise UserError(
                f"{self.file}: the model is {what}, expected a GPT: the data sets of another kind of model have "
                "another order, which cannot be rebuilt"
            )

    def unbound(self) -> Iterator[Unbound]:
        """Arguments that decide part of what was read and are not confirmed."""
        for name, pointer in POINTERS.items():
            value = self._held.get(name)
            if is_set(value, pointer.usual):
                yield Unbound(f"{flag(name)} {shown(value)}", pointer.why, pointer.remedy)
        unknown = unknown_arguments(self._held)
        if unknown:
            named = ", ".join(f"{name} ({shown(self._held[name])})" for name in unknown[:_MOST_NAMED])
            more = len(unknown) - _MOST_NAMED
            yield Unbound(
                f"Unknown arguments that can touch data: {named}" + (f", and {more} more" if more > 0 else ""),
                "No lineage that the audit knows has these arguments, so the data order may depend on them.",
                "Read in the program that trained what they do. If they do not change the order, describe the run in "
                "megatron-run.yaml without `checkpoint:`.",
            )
        if not self._held.get("finetune") and self.text("load") not in (None, self.text("save")):
            yield Unbound(
                f"The checkpoint in {self.text('load')} (--load) from which the run continued",
                "It decides what was read before, and by which arguments.",
                "Audit that folder too; its steps come before the steps of this one.",
            )

    def open_ends(self) -> list[str]:
        """What these arguments leave open."""
        found = []
        if self._held.get("finetune") or self.text("pretrained_checkpoint"):
            start = self.text("pretrained_checkpoint") or self.text("load")
            found.append(f"What trained the weights that this run started from (--finetune, {start}).")
        if self._held.get("decrease_batch_size_if_needed"):
            found.append("That no batch was made smaller to fit the devices (--decrease-batch-size-if-needed).")
        return found

    @property
    def names(self) -> frozenset[str]:
        """Names of all arguments."""
        return frozenset(self._held)

    def held(self, name: str) -> Any:
        """A value as it was saved, None if the argument is missing."""
        return self._held.get(name)

    def text(self, name: str) -> str | None:
        """A text or a path."""
        value = self._held.get(name)
        if isinstance(value, Inert) and value.kind.startswith("pathlib."):
            parts = [each for each in value.arguments if isinstance(each, str)]
            value = "/".join(parts).replace("//", "/") if len(parts) == len(value.arguments) else value
        if value is None or (isinstance(value, str) and len(value) <= MOST_CHARACTERS):
            return value
        raise self.wrong(name, f"a text of at most {MOST_CHARACTERS:,} characters")

    def number(self, name: str) -> int | None:
        """A whole number from 0."""
        value = self._held.get(name)
        if value is None:
            return None
        return self._whole(name, value)

    def needed(self, name: str) -> int:
        """A whole number that must not be missing."""
        value = self.number(name)
        if value is None:
            raise self.wrong(name, "a number")
        return value

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers, empty if the argument is missing."""
        value = self._held.get(name)
        if not isinstance(value, list | tuple):
            if value is None:
                return []
            raise self.wrong(name, "a list of numbers")
        return [self._whole(name, each) for each in value]

    def decimal(self, name: str) -> float | None:
        """A number."""
        value = self._held.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST:
            return float(value)
        if value is None:
            return None
        raise self.wrong(name, f"a number from -{_LARGEST:,} to {_LARGEST:,}")

    def truth(self, name: str) -> bool | None:
        """A switch."""
        value = self._held.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(name, "true or false")

    def words(self, name: str) -> list[str] | None:
        """The words of a list, as a command line has them."""
        value = self._held.get(name)
        if value is None:
            return None
        listed = value.split() if isinstance(value, str) else value
        if (
            not isinstance(listed, list | tuple)
            or len(listed) > MOST_WORDS
            or not all(isinstance(each, str | int | float) for each in listed)
            or any(len(each) > MOST_CHARACTERS for each in listed if isinstance(each, str))
        ):
            raise self.wrong(
                name, f"a list of at most {MOST_WORDS:,} words, each of at most {MOST_CHARACTERS:,} characters"
            )
        return [str(each) for each in listed]

    def rampup(self) -> dict[str, int] | None:
        """`--rampup-batch-size START INCREMENT SAMPLES`."""
        words = self.numbers("rampup_batch_size")
        if not words:
            return None
        if len(words) != 3:
            raise self.wrong("rampup_batch_size", "three numbers: start, increment, samples")
        return dict(zip(("start", "increment", "samples"), words, strict=True))

    def batch_steps(self, sequence_length: int) -> str | None:
        """`--step-batch-size-schedule TOKENS:SAMPLES ...`, each threshold rounded to whole samples as Megatron does."""
        text = self.text("step_batch_size_schedule")
        if text is None:
            return None
        entries = []
        for entry in text.replace(",", " ").split():
            tokens, colon, size = entry.partition(":")
            try:
                entries.append((_scaled(tokens) // sequence_length, _scaled(size)))
            except (ValueError, OverflowError):
                colon = ""
            if not colon:
                raise self.wrong("step_batch_size_schedule", "TOKENS:SAMPLES, as 250B:1536")
        if not entries:
            raise self.wrong("step_batch_size_schedule", "TOKENS:SAMPLES, as 250B:1536")
        return " ".join(f"{samples * sequence_length}:{size}" for samples, size in sorted(entries))

    def shown(self, name: str) -> Any:
        """A value as the report shows it: an object by its name."""
        value = self._held.get(name)
        return value if isinstance(value, str | int | float) else shown(value)

    def _whole(self, name: str, value: Any) -> int:
        if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_LARGEST)):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
            return value
        raise self.wrong(name, f"a whole number from 0 to {_LARGEST:,}")

    def wrong(self, name: str, expected: str) -> EvidenceError:
        """The error of an argument with a wrong value."""
        found = _SHORT.repr(self._held[name]) if name in self._held else "none"
        remedy = "give it in megatron-run.yaml, with `checkpoint:` or `launch:` for the rest (docs/megatron.md)"
        return EvidenceError(
            f"{self.file}: argument {name}: found {found}, expected {expected}; {remedy}",
            file=self.file,
            found=found,
            expected=expected,
            remedy=remedy,
        )


def _scaled(text: str) -> int:
    """A number as the schedule of batch sizes has it, `1.5M`."""
    text = text.strip().upper()
    return int(float(text.rstrip("KMBT")) * _SUFFIXES.get(text[-1:], 1))
