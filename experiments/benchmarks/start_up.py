"""What a command costs before it does anything: CPU time of `treering --help`, and of `treering runs` without runs.

    .venv/bin/python experiments/benchmarks/start_up.py

The peers of the same run are Python alone, and Python with the libraries of any command line of this kind (typer with
rich's help). Figures are the lowest of all rounds, which other work on the machine disturbs least.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "typer and rich": [sys.executable, "-c", "import typer, typer.rich_utils"],
    "treering --help": [sys.executable, "-m", "treering", "--help"],
    "treering runs": [sys.executable, "-m", "treering", "runs"],
}
PEER = "typer and rich"


def cpu_seconds(command: list[str], folder: Path) -> float:
    """User and system time of one run of a command.

    Raises:
        RuntimeError: the command failed.
    """
    process = os.posix_spawn(
        "/usr/bin/env",
        ["env", "-C", str(folder), *command],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)}: wait status {status}, expected 0")
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int) -> dict[str, float]:
    """The lowest CPU time of each command, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS.values():  # compiles what is imported, and warms the page cache
            cpu_seconds(command, Path(folder))
        found = [
            {name: cpu_seconds(command, Path(folder)) for name, command in COMMANDS.items()} for _ in range(rounds)
        ]
    return {name: min(each[name] for each in found) for name in COMMANDS}


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="how often each command is run (default: 10)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    found = measure(arguments.rounds)
    for name, seconds in found.items():
        print(f"{name:<16} {seconds:6.3f} s   {seconds / found[PEER]:5.2f} of {PEER}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
