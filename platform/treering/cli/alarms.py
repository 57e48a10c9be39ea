"""How commands print the alarms of the health rules."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from treering.cli.output import console, print_table


def print_alarms(alarms: Sequence[Mapping[str, Any]]) -> None:
    """Prints the number of alarms by rule, and a row for each alarm.

    Args:
        alarms: the dictionaries that `Alarm.to_dict` returns.
    """
    if not alarms:
        console.print("no spikes and no other alarms")
        return
    console.print(f"alarms      {alarm_counts(Counter(alarm['rule'] for alarm in alarms))}")
    columns = ("at step", "rule", "metric", "value", "background", "z", "since")
    rows = [
        [
            f"{alarm['step']:,}",
            alarm["rule"],
            alarm["metric"],
            f"{alarm['value']:.4g}",
            f"{alarm['background']:.4g}",
            "" if alarm["z"] is None else f"{alarm['z']:.1f}",
            f"{alarm['since']:,}" if alarm["since"] != alarm["step"] else "",
        ]
        for alarm in alarms
    ]
    print_table(columns, rows, numbers=("at step", "value", "background", "z", "since"))


def alarm_counts(counts: Mapping[str, int]) -> str:
    """The number of alarms by rule: `3 spike, 1 divergence`."""
    return ", ".join(f"{count:,} {rule}" for rule, count in counts.items())
