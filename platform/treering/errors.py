"""The errors of Treering, branched by who can act on them.

    TreeringError
    ├── UserError               the user: a bad config, a bad argument, a missing input
    │   ├── ConfigError         a config file that cannot be resolved
    │   │   └── ManyConfigError    several errors of one config
    │   └── NotFoundError       a run, checkpoint or file that the user named does not exist
    ├── EvidenceError           the evidence does not hold: a digest differs, a record is missing
    ├── StoreError              a store (MLflow, a database) is unavailable: try again later
    └── TrainingError           training itself failed
        ├── NonFiniteLossError  loss or gradient norm became NaN or infinite
        └── RunLockedError      another process group holds the run

Every text names what failed, where, what was found and what was expected, and the command that helps. Exit codes are
part of the contract with schedulers: see `exit_code` of each class. `treering.ending` turns what ends a command into
one of them.
"""

from collections.abc import Sequence
from pathlib import Path

from treering.redact import redact

_SHOWN = 50
"""Errors of one config that a text lists."""


class TreeringError(Exception):
    """Root of all errors that a user of Treering may see.

    Attributes:
        exit_code: process exit code of a command that ends with this error. 2 usage or config, 3 evidence does not
            hold, 4 a store is unavailable, 5 training failed (do not restart unchanged), 75 restart me (EX_TEMPFAIL).
    """

    exit_code = 1

    def __init__(self, *arguments: object) -> None:
        """Keeps the text without passwords: an error is printed, logged, recorded, and shown on pages."""
        super().__init__(*(redact(each) if isinstance(each, str) else each for each in arguments))


class UserError(TreeringError):
    """Something the user gave is wrong; the text names it and the remedy."""

    exit_code = 2


class ConfigError(UserError):
    """A config cannot be resolved.

    Args:
        source: the file (or the override) that holds the value.
        path: dotted path of the field, empty for the whole file.
        found: the value that was found.
        expected: what would be right.
        line: line of the file, from 1; None if it is unknown.
        column: column of that line, from 1.
    """

    def __init__(
        self, source: str, path: str, found: str, expected: str, *, line: int | None = None, column: int = 1
    ) -> None:
        self.source = source
        self.path = path
        self.found = found
        self.expected = expected
        self.line = line
        self.column = column
        place = source if line is None else f"{source}:{line}:{column}"
        where = f"{place}: {path}" if path else place
        super().__init__(f"{where}: found {found}, expected {expected}")


class ManyConfigError(ConfigError):
    """Several errors of one config; the attributes are those of the first one.

    Args:
        source: the file.
        errors: the errors, at least two.
    """

    def __init__(self, source: str, errors: Sequence[ConfigError]) -> None:
        first = errors[0]
        super().__init__(first.source, first.path, first.found, first.expected, line=first.line, column=first.column)
        self.errors = tuple(errors)
        shown = [f"  {error}" for error in errors[:_SHOWN]]
        if len(errors) > _SHOWN:
            shown.append(f"  and {len(errors) - _SHOWN} more")
        self.args = ("\n".join((f"{source}: {len(errors)} errors", *shown)),)


class NotFoundError(UserError):
    """A run, checkpoint or file that the user named does not exist."""


class EvidenceError(TreeringError):
    """A digest differs or a record is missing: what is claimed cannot be shown.

    Args:
        text: the whole text: problem, place, what was expected, what helps.
        file: the file concerned.
        line: line of `file`, from 1.
        step: step of the ring concerned.
        found: the value that was found.
        expected: what would be right.
        remedy: the command or the act that helps.
    """

    exit_code = 3

    def __init__(
        self,
        text: str,
        *,
        file: Path | None = None,
        line: int | None = None,
        step: int | None = None,
        found: object = None,
        expected: object = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(text)
        self.file = file
        self.line = line
        self.step = step
        self.found = found
        self.expected = expected
        self.remedy = remedy

    def at(self, file: Path, line: int, step: int | None = None) -> None:
        """Notes the place, for a reader that knows it where the check that failed did not."""
        self.file, self.line, self.step = file, line, step


class StoreError(TreeringError):
    """A store does not answer; nothing is lost, the same command may succeed later."""

    exit_code = 4


class TrainingError(TreeringError):
    """Training failed in a way that a plain restart would repeat."""

    exit_code = 5


class NonFiniteLossError(TrainingError):
    """Loss or gradient norm is NaN or infinite at a step that was to be applied."""


class RunLockedError(TrainingError):
    """Another process group holds the run; two writers would tear its run log."""

    exit_code = 75
