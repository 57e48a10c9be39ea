"""What `bom`, `croissant` and `training-summary` share: the audited facts, and how they write a file."""

from pathlib import Path
from typing import TYPE_CHECKING

from treering.cli.options import project, trusted_keys
from treering.progress import progress_bars

if TYPE_CHECKING:
    from treering.audit.disclosure.facts import ModelFacts


def model_facts(checkpoint: str, public_key: list[Path] | None, *, verify: bool) -> "ModelFacts":
    """Audits a checkpoint and gathers what a disclosure of it names.

    Raises:
        EvidenceError: the audit found something that does not hold.
        NotFoundError: no checkpoint has that name.
    """
    from treering.audit.disclosure.facts import gather
    from treering.runlog.find import named_checkpoint

    with progress_bars() as progress:
        found, trusted = named_checkpoint(project().runs, checkpoint), trusted_keys(public_key)
        return gather(found, project(), verify=verify, trusted=trusted, progress=progress)


def write_document(path: Path, text: str) -> None:
    """Writes a document whole.

    Raises:
        UserError: the folder does not exist.
    """
    from treering.errors import UserError
    from treering.files import write_durably

    if not path.parent.is_dir():
        raise UserError(f"{path}: its folder does not exist; make it first")
    write_durably(path, text)
