"""The inputs of an evaluation, with their digests: every checkpoint of a run is scored on the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

from treering.collect.code import code_digest
from treering.config.canonical import short
from treering.config.operation import EvaluationConfig
from treering.config.resolved import Resolved
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import TextTokenizer, check_tokenizer, open_tokenizer
from treering.errors import UserError
from treering.project import Project
from treering_trainer.core.validation import heldout_samples
from treering_trainer.evaluate.perplexity import HeldoutCorpus
from treering_trainer.evaluate.read_stock import read_stock_tasks
from treering_trainer.evaluate.stock import StockTask
from treering_trainer.evaluate.tasks import TaskFile, read_tasks


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tasks, held-out text and settings.

    Attributes:
        settings: shots and limits.
        tasks: the task files by name, then the tasks of lm-eval in the config's order.
        corpora: held-out samples by corpus, in the blend's order.
        tokenizer: its file.
        end_of_document: the token that ends every document.
    """

    settings: EvaluationConfig
    tasks: tuple[TaskFile | StockTask, ...]
    corpora: Mapping[str, HeldoutCorpus]
    tokenizer: Path
    end_of_document: int

    @property
    def harness(self) -> str:
        """Versions of lm-eval and of our scoring, which is a digest of this folder: edited code scores again."""
        scoring = short(code_digest(Path(__file__).parent, ("*.py", "definitions")))
        return f"lm-eval {version('lm-eval')}, treering scoring {scoring}"

    @property
    def task_digests(self) -> dict[str, str]:
        """Digest of each task's items."""
        return {task.name: task.digest for task in self.tasks}

    @property
    def corpus_digests(self) -> dict[str, str]:
        """Digest of each held-out corpus."""
        return {name: corpus.digest for name, corpus in self.corpora.items()}

    def shots(self, task: TaskFile | StockTask) -> tuple[int, ...]:
        """Numbers of examples that a task is scored with."""
        return task.shots if isinstance(task, StockTask) else self.settings.shots

    def max_items(self, task: TaskFile | StockTask) -> int | None:
        """How many items of a task are scored, None for all."""
        return task.max_items if isinstance(task, StockTask) else min(self.settings.max_items, len(task.items))

    def load_tokenizer(self) -> TextTokenizer:
        """The tokenizer of the run's corpora."""
        return load_tokenizer(self.tokenizer)

    def load_spelling(self) -> Spelling:
        """The bytes of its tokens."""
        return Spelling.of(open_tokenizer(self.tokenizer))


def read_inputs(project: Project, resolved: Resolved, settings: EvaluationConfig) -> Inputs:
    """Reads the inputs of a run's evaluation.

    Raises:
        UserError: a task file is broken, a task of lm-eval cannot read its files, or no corpus of the blend holds a
            held-out sample.
        EvidenceError: the tokenizer on disk is another one than the run was trained with.
    """
    check_tokenizer(project.tokenizer, resolved.recipe.tokenizer, resolved.run_id)
    corpora = {}
    end_of_document = None
    for component in resolved.blend.components:
        directory = project.corpus(component.corpus, "heldout")
        if not directory.exists():
            continue
        corpus = Corpus.open(directory)
        samples = heldout_samples(corpus, resolved.blend.sequence_length, settings.perplexity_samples)
        end_of_document = int(corpus.manifest["tokenizer"]["end_of_document"])
        if len(samples):
            corpora[component.corpus] = HeldoutCorpus(float(Decimal(component.weight)), samples, corpus.digest)
    if not corpora or end_of_document is None:
        raise UserError(
            f"{project.corpora / 'heldout'}: no corpus of the blend holds a held-out sample of "
            f"{resolved.blend.sequence_length} tokens; raise curation.heldout.fraction"
        )
    made, stock = read_tasks(project.tasks), read_stock_tasks(project, settings.tasks, settings.shots)
    if both := {task.name for task in made} & {task.name for task in stock}:
        raise UserError(
            f"evaluation.tasks: {', '.join(sorted(both))}: also a file in {project.tasks}, expected each name once; "
            "rename the file"
        )
    return Inputs(
        settings=settings.model_copy(
            update={"prompts": None, "follow": False, "device": None}
        ),  # continuations are a record of their own
        tasks=(*made, *stock),
        corpora=corpora,
        tokenizer=project.tokenizer,
        end_of_document=end_of_document,
    )
