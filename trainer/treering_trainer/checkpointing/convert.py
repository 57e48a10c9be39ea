"""Converts one checkpoint: `python -m treering_trainer.checkpointing.convert`, run by `treering checkpoint convert`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before torch starts its threads: the converter's workers are forked, and each computes on one thread.
os.environ["OMP_NUM_THREADS"] = "1"

from treering.config.canonical import canonical_json
from treering.ending import run_command
from treering.errors import TrainingError, UserError
from treering.foreign import say
from treering.project import Project
from treering.runlog.find import find_checkpoint

if TYPE_CHECKING:
    from treering_trainer.checkpointing.relayout import Conversion


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and converts one checkpoint.

    Returns:
        0; 2 usage, 3 the checkpoint does not hold, 5 the conversion cannot be written; 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="treering checkpoint convert", description="Convert a checkpoint.")
    parser.add_argument("checkpoint", type=Path, help="a checkpoint's folder, or a run's (its newest one)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _convert(Project(Path.cwd()), options.checkpoint, json=options.json),
        trouble="the conversion cannot be read or written: {}",
        trouble_code=TrainingError.exit_code,
        interrupted="; the same command starts again",
    )


def _convert(project: Project, path: Path, *, json: bool) -> None:
    conversion = _convert_verified(project, path)
    say(canonical_json(_to_json(conversion)) if json else _describe(conversion), sys.stdout)


def _convert_verified(project: Project, path: Path) -> "Conversion":
    """Checks a checkpoint, then converts it.

    Raises:
        UserError: it is the published copy.
        EvidenceError: it does not hold.
    """
    source = find_checkpoint(path)
    if source.run.path.resolve() == project.published.resolve():
        raise UserError(
            f"{source.path}: is the published copy, which stays as it is; convert the one in {project.runs}/"
            f"{source.run.id}/checkpoints"
        )
    os.environ["DS_ACCELERATOR"] = "cpu"
    # Slow imports, so that a wrong argument is reported at once.
    from treering_trainer.checkpointing.publish import check_provenance  # noqa: PLC0415
    from treering_trainer.checkpointing.relayout import convert  # noqa: PLC0415

    check_provenance(source.run, source)
    return convert(source)


def _to_json(conversion: "Conversion") -> dict[str, Any]:
    manifest = conversion.manifest
    return {
        "conversion": str(conversion.path),
        "digest": conversion.digest,
        "source": manifest.source,
        "run": manifest.run,
        "step": manifest.step,
        "layout": str(manifest.layout),
        "bytes": sum(record.size for record in manifest.files),
        "made": conversion.made,
        "replaced": str(conversion.problem or ""),
    }


def _describe(conversion: "Conversion") -> str:
    return (
        f"{conversion.message}\n"
        "`treering train CONFIG --set parallel.tensor=… --continue-changed` continues from it in any layout"
    )


if __name__ == "__main__":
    sys.exit(main())
