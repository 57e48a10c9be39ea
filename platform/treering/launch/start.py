"""What is started, wherever it is: the trainer's command line, and the place where its launch texts are kept."""

from dataclasses import dataclass
from pathlib import Path

from treering.config.canonical import digest_bytes, short
from treering.errors import UserError
from treering.files import write_durably

_NAME_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Start:
    """A training to be started on several nodes.

    Attributes:
        project: root of the project, the same path on every node.
        config: the experiment's file.
        run: the run's directory.
        layout: TP x PP x DP, for people.
        python: the interpreter that has the trainer, at the same path on every node.
        arguments: of the trainer, after the config.
    """

    project: Path
    config: Path
    run: Path
    layout: str
    python: str
    arguments: tuple[str, ...] = ()

    @property
    def module(self) -> tuple[str, ...]:
        """What the interpreter is told to run, without a launcher's own words."""
        return ("treering_trainer.launch", str(self.config), *self.arguments)

    @property
    def folder(self) -> Path:
        """Where the texts that started the run are kept, by digest."""
        return self.run / "launch"


def kept(start: Start, text: str, suffix: str) -> Path:
    """Where a text that starts a training is kept: beside the run, under its digest.

    Args:
        start: what it starts.
        text: a batch script, a hostfile.
        suffix: `sbatch`, `hostfile`.
    """
    return start.folder / f"{short(digest_bytes(text.encode()), _NAME_LENGTH)}.{suffix}"


def keep(start: Start, text: str, suffix: str) -> Path:
    """Writes a text where it is kept; the same text is one file.

    Raises:
        UserError: the run's folder cannot be written.
    """
    path = kept(start, text, suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, text)
    except OSError as error:
        raise UserError(f"{path}: found {error.strerror}, expected a folder to write to, shared by all nodes") from None
    return path
