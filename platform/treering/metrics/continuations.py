"""The kept continuations of a run's checkpoints, side by side: one row a prompt, one column a step.

Reads `evaluations/continuations/`; `treering continuations` prints this, and the dashboard shows it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from treering.metrics.doubts import Doubt
from treering.runlog.analyses import Continuation, Continuations, read_continuations
from treering.runlog.directory import RunDirectory

NO_RECORD: Final = "`treering evaluate` continues the prompts of evaluation.prompts with every checkpoint"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and its continuations.

    Attributes:
        id: of the prompt.
        text: of the prompt.
        by_step: its continuation at each step that has one.
    """

    id: str
    text: str
    by_step: dict[int, Continuation]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The continuations of a run.

    Attributes:
        steps: of the checkpoints with continuations of the newest prompts.
        prompts: in the order of their file.
        how: how the tokens were chosen, in words.
        doubts: what limits what can be read from them.
    """

    steps: tuple[int, ...]
    prompts: tuple[Prompt, ...]
    how: str
    doubts: tuple[Doubt, ...]

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON values."""
        prompts = [
            {
                "id": each.id,
                "prompt": each.text,
                "continuations": {str(step): found.model_dump(mode="json") for step, found in each.by_step.items()},
            }
            for each in self.prompts
        ]
        return {
            "steps": list(self.steps),
            "how": self.how,
            "prompts": prompts,
            "doubts": [asdict(doubt) for doubt in self.doubts],
        }


def side_by_side(run: RunDirectory) -> SideBySide:
    """The continuations of a run's checkpoints, of the prompts and settings of the newest record."""
    records, faults = read_continuations(run)
    doubts = [Doubt("missing", str(fault), "`treering verify` names what changed") for fault in faults]
    doubts += _without(run, records)
    if not records:
        return SideBySide((), (), "", tuple(doubts))
    newest = records[-1]
    same = [each for each in records if (each.prompts, each.settings) == (newest.prompts, newest.settings)]
    if others := [each.step for each in records if each not in same]:
        text = f"steps {_listed(others)}: continued other prompts, or with other settings, and are left out"
        doubts.append(Doubt("missing", text, "`treering evaluate` continues the present prompts"))
    doubts += _limits(same)
    prompts = tuple(
        Prompt(
            first.id,
            first.prompt,
            {record.step: found for record in same for found in record.continuations if found.id == first.id},
        )
        for first in newest.continuations
    )
    return SideBySide(tuple(each.step for each in same), prompts, _how(newest), tuple(doubts))


def _how(record: Continuations) -> str:
    settings = record.settings
    if settings.temperature == 0:
        return f"the most probable token each time, at most {settings.max_tokens} tokens"
    return (
        f"temperature {settings.temperature:g}, top-p {settings.top_p:g}, seed {settings.seed}, at most "
        f"{settings.max_tokens} tokens"
    )


def _without(run: RunDirectory, records: Sequence[Continuations]) -> list[Doubt]:
    known = {each.checkpoint for each in records}
    steps = [each.step for each in run.checkpoints() if each.has_manifest and each.digest not in known]
    if steps:
        return [Doubt("missing", f"steps {_listed(steps)}: no continuations of the checkpoints", NO_RECORD)]
    return [] if records else [Doubt("missing", "the run has no complete checkpoint", NO_RECORD)]


def _limits(records: Sequence[Continuations]) -> list[Doubt]:
    found: list[Doubt] = []
    every = [each for record in records for each in record.continuations]
    if cut := sum(each.finish == "length" for each in every):
        text = f"{cut} of {len(every)} continuations end at the limit of tokens, not at the document's end"
        found.append(Doubt("limited", text, "raise evaluation.prompts.max_tokens"))
    if unread := len({each.id for each in every if each.left_out_tokens}):
        text = f"{unread} prompts are longer than the sequence: the model did not read their beginning"
        found.append(Doubt("limited", text, "shorten the prompts"))
    if records[-1].settings.temperature > 0:
        text = "one draw of each prompt: another seed gives other texts"
        found.append(Doubt("limited", text, "`treering generate --num-samples` draws more"))
    if len({(each.program, each.device) for each in records}) > 1:
        text = "the checkpoints were continued by different versions or on different devices"
        found.append(Doubt("limited", text, "`treering evaluate` continues them again with the present version"))
    return found


def _listed(steps: Sequence[int]) -> str:
    shown = ", ".join(map(str, steps[:8]))
    return shown if len(steps) <= 8 else f"{shown} and {len(steps) - 8} more"
