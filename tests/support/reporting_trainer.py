"""A plain loop that reports its steps: python reporting_trainer.py '{"steps": 30, …}', one JSON object of settings.

Settings: steps; every (steps between checkpoints); batch; samples (of the data set); die_at (kill -9 after that step,
first attempt only); fault ("restart": a resumed loader starts at sample 0; "skip": it goes on one batch too late);
shuffle (another order in each epoch); rank, world_size, together (a barrier of all ranks).
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from treering.record.start import start


def sample(number):
    return np.random.default_rng(number).integers(0, 50_000, 17)


def order(position, settings):
    """The sample at a position of the endless order of epochs."""
    epoch, index = divmod(position, settings["samples"])
    if settings.get("shuffle"):
        return int(np.random.default_rng(1_000_000 + epoch).permutation(settings["samples"])[index])
    return index


def main(settings):
    rank, world = settings.get("rank", 0), settings.get("world_size", 1)
    batch = settings.get("batch", 4)
    run = start("plain", config={"batch": batch * world}, rank=rank, world_size=world, **settings.get("start", {}))
    print(run.id, run.attempt, run.resumed_step, flush=True)
    if "together" in settings:
        settings["together"].wait(120)  # as the first collective of a training does
    shift = 0
    if run.resumed_step:
        shift = {"restart": -run.resumed_step, "skip": 1}.get(settings.get("fault"), 0)
    for step in range(run.resumed_step + 1, settings["steps"] + 1):
        first = (step - 1 + shift) * batch * world + rank * batch
        tokens = np.stack([sample(order(first + row, settings)) for row in range(batch)])
        epoch = {"epoch": (first + batch) / settings["samples"]} if settings.get("epoch") else {}
        run.step(loss=1 / step, tokens=tokens, **epoch)
        if step % settings.get("every", 10) == 0:
            folder = Path(f"ckpt/step-{step}")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "weights.bin").write_bytes(bytes([step]) * 64)
            run.checkpoint(folder)
        if run.attempt == 1 and step == settings.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
    run.finish()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
