"""What the audit's commands cost on a project of millions of documents, each in a process of its own.

Writes a synthetic project (`synthetic_project`) for each number of documents, all of the same tokens and steps, so that
nothing grows but documents, and one of many steps, and runs the commands there.

    .venv/bin/python experiments/benchmarks/audit_commands.py --documents 300000 3000000 --json out.json

`anonymous` is the most memory that the process held beside mapped files, looked at every few milliseconds; `peak`
counts pages of mapped files too, which the system takes back when it needs them.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from synthetic_project import write_project

from treering.data.corpus.corpus import Corpus
from treering.project import Project
from treering.runlog.directory import RunDirectory

_PROGRAM = "from treering.cli import main; main()"


def run(root: Path, arguments: list[str]) -> dict[str, Any]:
    """One command: wall and CPU seconds, the most memory in MB, and its exit code."""
    started = time.perf_counter()
    with (root / "out.txt").open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments], cwd=root, stdout=out, stderr=out)
        anonymous, peak, status = 0, 0, Path(f"/proc/{process.pid}/status")
        while True:
            done, code, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            lines = (line.split() for line in status.read_text(encoding="ascii").splitlines())
            kilobytes = {words[0]: int(words[1]) for words in lines if words[0] in {"RssAnon:", "VmHWM:"}}
            anonymous = max(anonymous, kilobytes.get("RssAnon:", 0))
            peak = kilobytes.get("VmHWM:", peak)  # the last word; `ru_maxrss` would begin with the parent's
            time.sleep(0.003)
        process.returncode = os.waitstatus_to_exitcode(code)
    return {
        "command": " ".join(arguments),
        "exit_code": process.returncode,
        "wall_s": round(time.perf_counter() - started, 3),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "anonymous_mb": round(anonymous / 1024),
        "peak_mb": round(peak / 1024),
        "output_bytes": (root / "out.txt").stat().st_size,
    }


def measure(root: Path, documents: int, tokens: int, steps: int, batch: int) -> dict[str, Any]:
    """Every command on a new project, twice: the faster one counts, which finds its files in memory."""
    started = time.perf_counter()
    resolved = write_project(root, documents, tokens, steps, batch)
    written_s = time.perf_counter() - started
    project = Project(root)
    large, runs = Corpus.open(project.corpus("large")), RunDirectory(project.run(resolved.run_id))
    middle = large.num_documents // 2
    wanted = f"large:{large.document(middle)['id']}"
    (root / "list.txt").write_text(f"{wanted}\nlarge:#7\nsmall:#3\n", encoding="utf-8")
    checkpoints = [str(each.path.relative_to(root)) for each in runs.checkpoints()]
    asked = [
        ["--help"],
        ["audit", checkpoints[-1], "--summary", "--json"],
        ["audit", checkpoints[-1], "--json"],
        ["batch", resolved.run_id, str(steps // 3 or 1), "--rank", "0", "--json"],
        ["spikes", resolved.run_id, str(steps // 3 or 1), "--before", "0", "--json"],
        ["trace", "--document", f"large:#{middle}", "--json"],
        ["trace", "--document", wanted, "--json"],
        ["takedown", "list.txt", "--json"],
        ["diff", *checkpoints, "--json"],
    ]
    return {
        "documents": documents,
        "tokens": tokens,
        "steps": steps,
        "batch": batch,
        "tables_bytes": sum(path.stat().st_size for path in project.corpora.glob("*/*/documents.parquet")),
        "indices_bytes": sum(path.stat().st_size for path in project.corpora.glob("*/*/corpus.idx")),
        "written_s": round(written_s, 1),
        "commands": [
            min((run(root, arguments) for _ in range(2)), key=lambda each: each["wall_s"]) for arguments in asked
        ],
    }


def table(found: dict[str, Any]) -> str:
    """The figures for people."""
    lines = [f"CPU with a load of {found['machine']['load_average']:.1f}"]
    for each in found["projects"]:
        files = f"tables of {each['tables_bytes'] / 1e6:,.0f} MB, indices of {each['indices_bytes'] / 1e6:,.0f} MB"
        lines += [
            "",
            f"{each['documents']:,} documents ({files}), {each['steps']:,} steps of {each['batch']:,} samples",
            f"{'command':<28}{'exit':>6}{'wall, s':>9}{'CPU, s':>9}{'anonymous, MB':>15}{'peak, MB':>10}",
        ]
        for one in each["commands"]:
            words = one["command"].split()
            number = words[0] == "trace" and ":#" in words[2]
            name = f"{words[0]}{' --summary' if '--summary' in words else ''}{' by number' if number else ''}"
            lines.append(
                f"{name:<28}{one['exit_code']:>6}{one['wall_s']:>9.2f}{one['cpu_s']:>9.2f}{one['anonymous_mb']:>15,}"
                f"{one['peak_mb']:>10,}"
            )
    return "\n".join(lines)


def main() -> None:
    """Prints the table; writes all figures as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[300_000, 3_000_000])
    parser.add_argument("--tokens", type=int, default=2_400_000_000)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=1920)
    parser.add_argument("--long", type=int, default=80_000, help="steps of a project with few documents; 0 for none")
    parser.add_argument("--folder", type=Path, help="where the projects are written, and left")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        projects = [
            measure(folder / str(documents), documents, given.tokens, given.steps, given.batch)
            for documents in given.documents
        ]
        if given.long:
            projects.append(measure(folder / "long", 30_000, 240_000_000, given.long, 16))
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    found = {"machine": machine, "projects": projects}
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
