"""What goes wrong in a run's folder: a changed ring, an incident."""

from pathlib import Path

from treering.runlog.incidents import Incident, append_incident


def edit_ring(run: Path, line: int) -> None:
    path = run / "attempts" / "0001" / "rings.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace('"loss":', '"loss":1', 1)
    path.write_text("".join(lines))


def befall(run: Path, step: int, kind: str, text: str, attempt: str = "0001", **values: object) -> None:
    append_incident(run / "attempts" / attempt, Incident(step=step, kind=kind, text=text, at=12.5, **values))
