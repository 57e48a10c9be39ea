"""What tests of copies in a store do: a pass, bringing them back, and looking at the objects."""

from pathlib import Path

from treering.objects import ObjectStore
from treering.runlog import copied
from treering.runlog.journal import Noted
from treering.ship.copy import read_index, run_base
from treering.ship.copy_target import Copies
from treering.ship.mirror import MirrorOf


def pass_over(url, run):
    """A pass of a process that has just started."""
    return Copies(url, "tiny").shipper(run).ship()


def bring(url, here, run):
    return MirrorOf(ObjectStore(url), "tiny").bring(here, run.path.name)


def copied_files(folder):
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: (folder / name).read_bytes() for name in names if copied.kind_of(name)}


def index_of(url, run):
    return read_index(ObjectStore(url), run_base("tiny", run.path.name))


def objects(url, run, name):
    """The objects of a file in a store that is a folder, in order."""
    return sorted(Path(url, "tiny", run.path.name, "files", name).iterdir())


def whole(write_run):
    """A run with all kinds of files."""
    writer = write_run().start().lay(10).save().evaluate(10).befall("rank_killed", rank=1, text="gone")
    writer.run.journal.append(Noted(at=1.0, by="somebody", text="a note"))
    writer.telemetry(0, [(1.0, {"device/power": 100.0})])
    checkpoint = writer.run.path / "checkpoints" / "step-00000010"
    (checkpoint / "layer_00.safetensors").write_bytes(b"weights" * 1000)
    (checkpoint / "weights.json").write_text("{}")
    logs = writer.directory / "logs"
    logs.mkdir()
    (logs / "rank-0.log").write_text("a text that stays here")
    (writer.directory / "columns").mkdir()
    (writer.directory / "columns" / "head.json").write_text("{}")
    return writer.end()
