"""What of a capsule would run here: nothing without `--trust`, whose records anybody may have written."""

from treering.collect.code import code_difference
from treering.collect.environment import numeric_variables
from treering.errors import UserError
from treering.reproduce.sources import present_code
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory

_READ = "read the headers in the capsule, and its `code/changes.diff` where it has one, then give --trust"


def refuse_strange_code(run: AnyRun, *, recorded_python: bool, trusted: bool) -> None:
    """Refuses to make a capsule's run again where that would run what the capsule records.

    The code that is installed here runs without consent, if it decides numbers as the recorded code does.

    Args:
        run: the run; one that is not from a capsule passes.
        recorded_python: whether a virtual environment would be made from the recorded versions.
        trusted: whether the user consents.

    Raises:
        UserError: a command, a diff, packages or a place of the capsule would be used.
        EvidenceError: a header does not hold.
    """
    mirror = run.mirror
    if trusted or mirror is None or not mirror.from_capsule:
        return
    if isinstance(run, RecordedRunDirectory):
        raise UserError(f"{run.path}: its recorded command is code of the capsule, expected consent to run it; {_READ}")
    if recorded_python:
        raise UserError(
            f"{run.path}: --environment would install the packages that the capsule records, expected consent; {_READ}"
        )
    for attempt in run.attempts():
        variables = numeric_variables(attempt.header.environment.get("variables", {}))
        if place := next((name for name, value in variables.items() if "/" in value), None):
            raise UserError(
                f"{attempt.header_file}: variable {place} names a place, which a library may load code from, expected "
                f"consent to set it; {_READ}"
            )
        code = attempt.header.code
        difference = code_difference(code, present_code())
        if difference and code.get("diff"):
            raise UserError(
                f"{attempt.header_file}: the code that is here differs ({difference}), and the recorded diff is code "
                f"of the capsule, expected consent to run it; {_READ}, or install the version that trained the run"
            )
