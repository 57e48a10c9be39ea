"""What a comparison of groups reads of a run: its config without seeds, and what was measured after which step.

A run is of Treering's trainer or of another one, which reported it through `treering.start`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from treering.config.resolved_blend import ResolvedBlend
from treering.metrics.alarms import HELD_OUT_LOSS
from treering.metrics.compare import STDERR, flatten, headline_scores
from treering.runlog.columns.path import PathColumns
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.journal import Scored
from treering.runlog.metric_catalog import described
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering.runlog.records import Evaluation


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out losses after one step, nats a token.

    Attributes:
        loss: weighted as the blend; as the trainer reported it where it is another one's.
        by_corpus: of each corpus; empty where another trainer reported it.
    """

    loss: float
    by_corpus: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number that is measured of a model beside its held-out loss.

    Attributes:
        kind: the loss of one held-out corpus, or the score of a task.
        name: of the corpus or the task.
        metric: `loss`, or as the harness or the trainer calls it.
        shots: examples in the prompt; None where there is none, or where nobody says.
    """

    kind: Literal["corpus", "task"]
    name: str
    metric: str
    shots: int | None = None

    @property
    def title(self) -> str:
        """What is measured, in words."""
        if self.kind == "corpus":
            return f"held-out loss of {self.name}"
        shots = "" if self.shots is None else f"{self.shots}-shot "
        return f"{self.name}, {shots}{self.metric}"


class Contender:
    """A run of Treering's trainer in a comparison.

    Args:
        run: the run.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run = run

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """What the runs of a group share: the recipe and the blend without their seeds."""
        recipe = self.run.resolved.recipe.model_dump(mode="json", exclude={"seed", "blend"})
        return {**recipe, "blend": _without_seed(self.run.resolved.blend)}

    @property
    def seeds(self) -> Mapping[str, Any]:
        """The seeds of the config, by dotted path: first that of the weights."""
        return {"seed": self.run.resolved.recipe.seed, "blend.seed": self.run.resolved.blend.seed}

    @property
    def weights(self) -> Any:
        """What the mean over corpora is weighted by; None where nobody knows."""
        return tuple(sorted((part.corpus, part.weight) for part in self.run.resolved.blend.components))

    @cached_property
    def _evaluations(self) -> list[Evaluation]:
        return self.run.evaluations()

    @property
    def evaluated(self) -> dict[int, HeldOut]:
        """Held-out losses of the evaluation, by step."""
        return {
            each.step: HeldOut(each.validation_loss, {name: found["loss"] for name, found in each.perplexity.items()})
            for each in self._evaluations
        }

    @cached_property
    def validated(self) -> dict[int, HeldOut]:
        """Held-out losses that were measured during training, by step."""
        corpora = [part.corpus for part in self.run.resolved.blend.components]
        path = PathColumns.of_run(self.run.path_to())
        found = path.histories([HELD_OUT_LOSS, *(f"{HELD_OUT_LOSS}/{corpus}" for corpus in corpora)])
        by_step = {
            corpus: dict(zip(history.steps.tolist(), history.values.tolist(), strict=True))
            for corpus, history in zip(("", *corpora), found.values(), strict=True)
        }
        return {
            step: HeldOut(loss, {corpus: by_step[corpus][step] for corpus in corpora if step in by_step[corpus]})
            for step, loss in by_step[""].items()
        }

    @cached_property
    def scores(self) -> dict[int, dict[Measure, float]]:
        """The headline score of each task and number of shots, by step."""
        return {
            each.step: {Measure("task", s.task, s.metric, s.shots): s.value for s in headline_scores(each)}
            for each in self._evaluations
        }

    def version(self, step: int, measure: Measure) -> tuple[str | None, ...] | None:
        """What a score was computed by: task file, harness and prompts, by digest or version."""
        (found,) = (each for each in self._evaluations if each.step == step)
        return found.tasks.get(measure.name), found.harness, found.prompts_of(measure.name, measure.shots)


class RecordedContender:
    """A run of another trainer in a comparison.

    Args:
        run: the run.
    """

    weights: Final = None
    evaluated: Final[Mapping[int, HeldOut]] = {}

    def __init__(self, run: RecordedRunDirectory) -> None:
        self.run = run

    @cached_property
    def _config(self) -> dict[str, Any]:
        found = dict(flatten(self.run.record.config)) if self.run.record.config else {}
        if self.run.blend_file.exists():
            blend = ResolvedBlend.read(self.run.blend_file)
            found |= {"blend": _without_seed(blend), "blend.seed": blend.seed}
        return found

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """What the runs of a group share: experiment and config without seeds. Without a config a run is alone."""
        content = {path: value for path, value in self._config.items() if not _is_seed(path)}
        return {"experiment": self.run.record.experiment, **content, **({} if self._config else {"run": self.run.id})}

    @property
    def seeds(self) -> Mapping[str, Any]:
        """The values of the config that are called seeds."""
        return {path: value for path, value in self._config.items() if _is_seed(path)}

    @cached_property
    def validated(self) -> dict[int, HeldOut]:
        """Held-out losses that the trainer reported, by step."""
        path = PathColumns.of_recorded(self.run.path_to_end())
        names = dict.fromkeys(name for columns, _ in path.stretches for name in columns.head().metrics)
        name = next((name for name, metric in described(names).items() if metric.key == HELD_OUT_LOSS), None)
        if name is None:
            return {}
        history = path.history(name)
        pairs = zip(history.steps.tolist(), history.values.tolist(), strict=True)
        return {step: HeldOut(loss, {}) for step, loss in pairs}

    @cached_property
    def scores(self) -> dict[int, dict[Measure, float]]:
        """The scores that the trainer reported, by step; of one that it reported twice, the last."""
        found: dict[int, dict[Measure, float]] = {}
        for line in self.run.journal.lines():
            if isinstance(line.entry, Scored):
                reported = {
                    Measure("task", line.entry.task, name): value
                    for name, value in line.entry.metrics.items()
                    if not name.endswith(STDERR)
                }
                found.setdefault(line.entry.step, {}).update(reported)
        return found

    @staticmethod
    def version(_step: int, _measure: Measure) -> None:
        """Another trainer does not say what a score was computed by."""


AnyContender = Contender | RecordedContender


def contender_of(run: AnyRun) -> AnyContender:
    """What a comparison reads of a run."""
    return Contender(run) if isinstance(run, RunDirectory) else RecordedContender(run)


def _without_seed(blend: ResolvedBlend) -> dict[str, Any]:
    content: dict[str, Any] = blend.model_dump(mode="json", exclude={"seed", "tokenizer"})
    return content


def _is_seed(path: str) -> bool:
    """Whether a setting is a seed by its name: `seed`, `data_seed`, `randomSeed`."""
    return path.rpartition(".")[2].lower().endswith("seed")
