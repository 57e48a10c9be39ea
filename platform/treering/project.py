"""The paths of a project's folders and files, all in this module.

Stages write below `data/`, the trainer below `runs/`, and every reader asks a `Project` for the path.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NO_TASKS: Final = "none.txt"
"""The file in the folder of the tasks that says that no corpus has text, so that no task was made."""


@dataclass(frozen=True, slots=True)
class Project:
    """The folders of one project.

    Attributes:
        root: the folder that holds `dvc.yaml`; commands use the working directory.
    """

    root: Path

    @property
    def name(self) -> str:
        """The project's name in the ledger and in the store: `TREERING_PROJECT`, or the name of its folder."""
        return os.environ.get("TREERING_PROJECT") or self.root.resolve().name

    @property
    def downloads(self) -> Path:
        """Unfinished downloads: outside DVC's outs, so that an interrupted one resumes."""
        return self.root / ".treering" / "downloads"

    @property
    def index(self) -> Path:
        """Indexes of the corpora's n-grams, one folder for each corpus; `treering index` makes them again."""
        return self.root / ".treering" / "index"

    @property
    def unfinished_evaluations(self) -> Path:
        """Parts of evaluations whose records are not written yet, a folder for each run."""
        return self.root / ".treering" / "evaluate"

    @property
    def raw(self) -> Path:
        """Fetched source files by corpus (stage `fetch`)."""
        return self.root / "data" / "raw"

    def tokens_record(self, name: str) -> Path:
        """What `fetch` recorded of the pair of tokens that a corpus is made of: its path and digests."""
        return self.raw / name / "tokens.json"

    @property
    def curated(self) -> Path:
        """Curated documents, decisions and evaluation tasks (stage `curate`)."""
        return self.root / "data" / "curated"

    @property
    def tasks(self) -> Path:
        """Evaluation tasks made of held-out documents, one JSON Lines file each."""
        return self.curated / "tasks"

    @property
    def corpora(self) -> Path:
        """Tokenized corpora and their tokenizer (stage `tokenize`)."""
        return self.root / "data" / "corpora"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer that all corpora of this project share."""
        return self.corpora / "tokenizer.json"

    def corpus(self, name: str, split: str = "train") -> Path:
        """Directory of one tokenized corpus; `split` is `train` or `heldout`."""
        return self.corpora / split / name

    @property
    def blend(self) -> Path:
        """The resolved blend (stage `blend`)."""
        return self.root / "data" / "blend.json"

    @property
    def runs(self) -> Path:
        """Run directories: resumable state, never a DVC out."""
        return self.root / "runs"

    @property
    def published(self) -> Path:
        """The published final checkpoint with its rings (stage `train`), a DVC out: a run directory cut to one path."""
        return self.root / "published"

    def run(self, run_id: str) -> Path:
        """Directory of one run."""
        return self.runs / run_id

    @property
    def settings(self) -> Path:
        """The project's own settings, `treering.yaml`; it may be missing."""
        return self.root / "treering.yaml"

    @property
    def experiments(self) -> Path:
        """The experiments, a YAML file each."""
        return self.root / "experiments"

    @property
    def references(self) -> Path:
        """Published scores of other models, a YAML file each."""
        return self.experiments / "references"

    @property
    def metrics(self) -> Path:
        """Metrics files that `dvc metrics` reads."""
        return self.root / "metrics"

    @property
    def plots(self) -> Path:
        """Tables that `dvc plots` draws."""
        return self.root / "plots"

    @property
    def report(self) -> Path:
        """The report of the pipeline's last run (stage `report`)."""
        return self.root / "report.md"
