"""From a folder of exported weights back to the checkpoint that they were made from."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from treering.audit.evidence.recovery import find_home
from treering.audit.report import Gap, Level
from treering.config.canonical import digest_file, short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import EvidenceError, NotFoundError
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering.runlog.export import EXPORT_RECORD, Export


def exported_checkpoint(folder: Path, project: Project) -> tuple[CheckpointDirectory, tuple[Gap, ...]]:
    """The checkpoint that an export was made from, and what of the export does not hold.

    Where the checkpoint itself is gone, its place in its run: an audit tells what the run log says of it.

    Raises:
        EvidenceError: the export's record is missing or was changed.
        NotFoundError: the project holds neither the checkpoint nor its run.
    """
    record, _ = Export.read(folder / EXPORT_RECORD)
    home = find_home(project, record.run)
    at_home = () if home is None else (*home.checkpoints(), *home.superseded())
    for checkpoint in (*at_home, *RunDirectory(project.published).checkpoints()):
        with suppress(EvidenceError):
            if checkpoint.step == record.step and checkpoint.digest == record.checkpoint:
                return checkpoint, tuple(_changed_files(folder, record))
    run = short(record.run, RUN_ID_LENGTH)
    missing = (
        f"{folder}: was exported from checkpoint {record.checkpoint}, which stands neither in "
        f"{project.run(run)} nor in {project.published}; `treering find {record.checkpoint}` looks for it"
    )
    if home is None:
        raise NotFoundError(missing)
    answered = f"what run {run} read up to step {record.step}, by its run log"
    gap = Gap(missing, answered, Level.REDERIVED, str(folder / EXPORT_RECORD))
    lost = CheckpointDirectory(home.checkpoint_folder(record.step), RunDirectory(home.path))
    return lost, (gap, *_changed_files(folder, record))


def _changed_files(folder: Path, record: Export) -> Iterator[Gap]:
    for file in record.files:
        path = folder / file.path
        found = digest_file(path) if path.is_file() else "missing"
        if found != file.digest:
            missing = f"{path}: {found}, expected {file.digest} by {EXPORT_RECORD}; export it again"
            answered = f"the checkpoint that {EXPORT_RECORD} names; these weights are not its"
            yield Gap(missing, answered, Level.RECORDED, str(path))
