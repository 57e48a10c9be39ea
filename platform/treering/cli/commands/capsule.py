"""`treering capsule`: packs what another laboratory needs to make a run again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.reproduce.capsule.write import Written

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The zip file to write, such as run.zip.")]


def capsule(run: RunArgument, file: FileArgument, json: JsonOption = False) -> None:
    """Pack the records of a run into a zip file, for people elsewhere who make the run again.

    The capsule holds config, code changes, environment, rings, journals, scores, manifests of the corpora, and golden
    vectors of the data order, with RO-Crate metadata. Weights and corpora stay here: who makes the run again finds the
    corpora by digest. The same run gives the same bytes. `treering reproduce FILE` makes the run of a capsule again.

    Exit codes:
        2: the run is running, or the file cannot be written
        3: a record of the run does not hold

    Examples:
        treering capsule 0123 run.zip

    Raises:
        UserError: the file's folder is missing.
    """
    from treering.errors import UserError
    from treering.progress import progress_bars
    from treering.reproduce.capsule.write import write_capsule
    from treering.runlog.find import named_run

    here = project()
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise UserError(f"{file}: is a folder, or its folder is missing; expected the zip file to write, as run.zip")
    with progress_bars() as progress:
        written = write_capsule(named_run(here.runs, run), file, here, progress)
    if json:
        print_json(written.to_json())
        return
    _print_written(written)


def _print_written(written: "Written") -> None:
    capsule = written.capsule
    sizes: dict[str, list[int]] = {}
    for name, packed in capsule.files.items():
        sizes.setdefault(name.partition("/")[0], []).append(packed.size)
    console.print(f"{written.file}: {written.size:,} bytes, {written.digest}", "")
    print_table(
        ("part", "files", "bytes"),
        [[part, f"{len(each):,}", f"{sum(each):,}"] for part, each in sorted(sizes.items())],
        numbers=("files", "bytes"),
    )
    for each in capsule.corpora:
        known = f"{each.size:,} bytes" if each.files else "missing here, so its files are not listed"
        console.print(f"needs       corpus {each.name} ({each.split}) {each.digest}, {known}")
    console.print(f"left out    {', '.join(capsule.left_out)}")
