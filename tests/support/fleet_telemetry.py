"""Telemetry of many nodes, written by the telemetry's own writer and put into parts: one rank is slower than all."""

from pathlib import Path
from typing import Any

import numpy as np

from treering.runlog.telemetry.events import append_event
from treering.runlog.telemetry.ingest import ingest
from treering.runlog.telemetry.live import LiveWriter

DEVICES = 8


def write_fleet(folder: Path, moments: list[float], *, nodes: int, slow: int, share: float = 1.05) -> None:
    """A sample of every device at each moment; the last minute stays in live files.

    Args:
        folder: the attempt's `telemetry/`.
        moments: Unix seconds.
        nodes: of eight devices each.
        slow: the rank that computes `share` times as long as the others; its clock is low and slowed by heat.
        share: see `slow`.
    """
    ranks = nodes * DEVICES
    random = np.random.default_rng(1)
    writers = [LiveWriter(folder, node * DEVICES) for node in range(nodes)]
    for node in range(nodes):
        append_event(folder, node * DEVICES, {"time": moments[0], "host": f"dgx{node:03d}"})
    is_slow = np.arange(ranks) == slow
    for number, moment in enumerate(moments):
        compute = random.normal(2.0, 0.02, ranks) * np.where(is_slow, share, 1.0)
        columns: dict[str, Any] = {
            "rank/step": np.full(ranks, 2.4),
            "rank/compute": compute,
            "rank/communication": 2.4 - compute,
            "rank/tflops": random.normal(150, 1, ranks),
            "device/utilisation": np.full(ranks, 100),
            "device/power": np.where(is_slow, 280.0, random.normal(390, 5, ranks)),
            "device/temperature": np.where(is_slow, 86, random.integers(58, 66, ranks)),
            "device/sm_clock": np.where(is_slow, 1215, 1410),
            "device/memory_used": np.full(ranks, 70_000 << 20),
            "device/throttle_reasons": np.where(is_slow, 0x40, random.choice([0, 4], ranks)),
            "device/ecc_corrected": np.where(np.arange(ranks) == 3, 7 + number, 0),
            "device/ecc_uncorrected": np.where(np.arange(ranks) == 3, 1, 0),
        }
        for node, writer in enumerate(writers):
            own = slice(node * DEVICES, (node + 1) * DEVICES)
            values = {name: column[own].tolist() for name, column in columns.items()}
            writer.append(moment, list(range(own.start, own.stop)), list(range(DEVICES)), values)
        if number == len(moments) // 2:
            for writer in writers:
                writer.close_segment()
            ingest(folder)
    for writer in writers:
        writer.close_segment()
