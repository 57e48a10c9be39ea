"""What copies of a run's folder in a store cost, by the length of the run; the store is a folder.

    .venv/bin/python experiments/benchmarks/copies.py --json experiments/benchmarks/results/copies.json

A run of Treering's trainer that goes on is copied once. Then a new copier makes a pass with nothing new, the same
copier another one, and a new one after a ring was appended. A mirror is brought, and brought again with that ring. The
peer of the first pass is fsspec, which copies `rings.jsonl` as it is, without digests, parts or syncs. Times are of the
processor, and of the clock where whole files are read or written.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import fsspec
from ship_restart import append_ring, timed
from synthetic_project import write_project

from treering.objects import ObjectStore
from treering.project import Project
from treering.runlog.directory import RunDirectory
from treering.runlog.folders import END_FILE
from treering.runlog.lock import acquire
from treering.ship.copy import RunCopier
from treering.ship.mirror import MirrorOf


def measure(root: Path, steps: int) -> dict[str, Any]:
    """The figures of a run of so many steps."""
    resolved = write_project(root, 3000, 10_000_000, steps, 16)
    run = RunDirectory(Project(root).run(resolved.run_id))
    attempt = run.attempts()[-1]
    (attempt.path / END_FILE).unlink(missing_ok=True)
    lock = acquire(run.lock)  # the run goes on
    store, mirror = ObjectStore(str(root / "store")), Project(root / "mirror")

    def copier() -> RunCopier:
        return RunCopier(RunDirectory(run.path), store, "copied")

    def bring() -> int:
        return MirrorOf(store, "copied").bring(mirror, run.path.name).num_bytes

    peer = fsspec.filesystem("file")
    peer_s, _ = timed(lambda: peer.put_file(str(attempt.rings_file), str(root / "peer")), time.monotonic)
    first_s, _ = timed(lambda: copier().ship(), time.monotonic)
    again = copier()
    restart_s, _ = timed(again.ship)
    nothing_s, _ = timed(again.ship)
    mirror_s, _ = timed(bring, time.monotonic)
    append_ring(run)
    one_s, report = timed(lambda: copier().ship())
    news_s, num_bytes = timed(bring)
    os.close(lock)
    parts = len(list((root / "store").rglob("rings.jsonl/*")))
    same = (mirror.run(run.path.name) / "attempts/0001/rings.jsonl").read_bytes() == attempt.rings_file.read_bytes()
    return {
        "steps": steps,
        "rings_bytes": attempt.rings_file.stat().st_size,
        "first_copy_wall_s": first_s,
        "peer_copy_wall_s": peer_s,
        "restart_s": restart_s,
        "nothing_new_s": nothing_s,
        "restart_with_a_ring_s": one_s,
        "files_with_news": report.sent["file"],
        "mirror_wall_s": mirror_s,
        "mirror_with_a_ring_s": news_s,
        "mirror_with_a_ring_bytes": num_bytes,
        "parts": parts,
        "mirror_is_equal": same,
    }


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 100_000, 1_000_000])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    found = []
    for steps in arguments.steps:
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder), steps))
        print(json.dumps(found[-1], indent=2), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
