"""What a checkpoint costs training: by DeepSpeed alone, and with what makes it evidence, done in three ways.

Ranks in layout 1x1xN save the same state in turns:

    native   DeepSpeed's files, neither synced nor digested: what every trainer that uses it waits for
    rank 0   and rank 0 alone syncs and digests all files, as this trainer once did
    each     and every rank those that it wrote: `checkpoint.finish: before_next_step`
    beside   and every rank those that it wrote while it trains on: `checkpoint.finish: beside_training`

    .venv/bin/python experiments/benchmarks/checkpoint_save.py                     # a minute or two
    .venv/bin/python experiments/benchmarks/checkpoint_save.py --folder /scratch   # the disk is what counts

Training waits for all of it but in the last case, where it waits for DeepSpeed's part and for the seal; what its steps
lose meanwhile to the work beside them is a figure of its own: nothing where ranks have cores to spare. Figures are the
lowest of all rounds, which other work on the machine disturbs least, and medians; the ratio is that of the lowest.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["DS_ACCELERATOR"] = "cpu"

warnings.filterwarnings("ignore")  # of third-party packages about what is not installed

import torch

from treering.config.canonical import digest_json
from treering.config.model import ModelConfig, OptimizerConfig
from treering.config.operation import KernelConfig, ParallelConfig
from treering.runlog.directory import RunDirectory
from treering.runlog.records import AttemptLayout
from treering.runlog.ring import RINGS_FILE, Ring
from treering.runlog.writer import RingWriter
from treering_trainer.checkpointing.checkpoint import Saving, record_file
from treering_trainer.core.engine import Engine
from treering_trainer.core.topology import join, leave
from treering_trainer.monitor.processes import Ranks, fork_rank

WAYS = ("native", "rank 0", "each", "beside")
SLOWER = "slower steps"
SEQUENCE = 64
VOCABULARY = 8192
TIMEOUT_S = 600.0


class Bench:
    """One rank of the benchmark.

    Args:
        folder: where checkpoints go.
        model: what is saved.
        ranks: how many.
    """

    def __init__(self, folder: Path, model: ModelConfig, ranks: int) -> None:
        layout = AttemptLayout(tensor=1, pipeline=1, data=ranks, micro_batch_size=1, device="cpu", backend="gloo")
        place = join(layout)
        self.leads = place.rank == 0
        self.run = RunDirectory(folder)
        self.step = 0
        self.engine = Engine(
            place,
            model=model,
            optimizer=OptimizerConfig(peak_learning_rate=1e-3, min_learning_rate=1e-4),
            parallel=ParallelConfig(micro_batch_size=1),
            kernels=KernelConfig(),
            precision="fp32",
            sequence_length=SEQUENCE,
            seed=1,
            global_batch_size=ranks,
        )
        self.ranks = ranks
        digest = digest_json("benchmark")
        self.rings = RingWriter(folder / RINGS_FILE, Ring, digest) if self.leads else None
        names = ("run", "blend", "tokenizer", "code", "environment")
        numbers = dict.fromkeys(("attempt", "consumed_samples", "consumed_tokens", "applied_steps"), 1)
        self.facts: dict[str, Any] = {**dict.fromkeys(names, digest), **numbers, "upstream": None, "layout": layout}
        tokens = torch.randint(VOCABULARY, (1, SEQUENCE + 1))
        self.batch = [(tokens[:, :-1], tokens[:, 1:])]
        self.train()  # the optimizer has its state from here on
        self.train()
        self.step_s = statistics.median(self.seconds(self.train) for _ in range(5))

    def train(self) -> None:
        """One step."""
        self.step += 1
        self.engine.train(self.step, self.batch, self.ranks, 1e-3)

    def seconds(self, act: Callable[[], Any]) -> float:
        """What an action takes until all ranks have done it."""
        torch.distributed.barrier()
        started = time.perf_counter()
        act()
        torch.distributed.barrier()
        return time.perf_counter() - started

    def save_natively(self) -> None:
        """DeepSpeed alone."""
        self.engine.save(self._new_folder())

    def save_by_rank_0(self) -> None:
        """Rank 0 syncs and digests what all have written."""
        folder = self._new_folder()
        self.engine.save(folder)
        if self.leads:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    record_file(path, folder)

    def save_by_each(self) -> None:
        """Every rank syncs and digests what it has written."""
        _finish(Saving(self.engine, self.run, self.step, self.rings, self.facts))

    def save_beside(self) -> tuple[float, float]:
        """The same while steps go on.

        Returns:
            Seconds that training waits for the files and for the seal, and those that its steps lose between.
        """
        savings: list[Saving] = []
        waited_s = self.seconds(
            lambda: savings.append(Saving(self.engine, self.run, self.step, self.rings, self.facts))
        )
        lost_s = 0.0
        (saving,) = savings
        ready = torch.zeros(1)
        while not ready.item():
            lost_s += self.seconds(self.train) - self.step_s
            ready.fill_(saving.ready)
            torch.distributed.all_reduce(ready, torch.distributed.ReduceOp.MIN)
        return waited_s + self.seconds(lambda: _finish(saving)), lost_s

    def round(self) -> dict[str, float]:
        """Each way once, from a disk that has nothing else to write."""
        found = {}
        for way in WAYS:
            self.train()
            torch.distributed.barrier()
            if self.leads:
                shutil.rmtree(self.run.checkpoints_folder, ignore_errors=True)
                os.sync()
            torch.distributed.barrier()
            if way == "beside":
                found[way], found[SLOWER] = self.save_beside()
            else:
                found[way] = self.seconds(
                    {"native": self.save_natively, "rank 0": self.save_by_rank_0}.get(way, self.save_by_each)
                )
        return found

    def size(self) -> int:
        """Bytes of the checkpoint that the last round has left."""
        return sum(path.stat().st_size for path in self.run.checkpoints_folder.rglob("*") if path.is_file())

    def _new_folder(self) -> Path:
        folder = self.run.checkpoints_folder / "native"
        if self.leads:
            folder.mkdir(parents=True)
        torch.distributed.barrier()
        return folder


def _finish(saving: Saving) -> None:
    """Waits for a checkpoint.

    Raises:
        SystemExit: the checkpoint failed, so its time means nothing.
    """
    failure = saving.finish()
    if failure is not None:
        raise SystemExit(f"the checkpoint was not saved: {failure}")


def measure(folder: Path, model: ModelConfig, ranks: int, rounds: int) -> int:
    """Runs one rank; rank 0 writes what it found."""
    bench = Bench(folder, model, ranks)
    found = [bench.round() for _ in range(rounds)]
    if bench.leads:
        result = {"rounds": found, "bytes": bench.size(), "step_s": bench.step_s}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    leave()
    return 0


def main() -> None:
    """Measures, prints, and writes JSON if asked to.

    Raises:
        SystemExit: a rank failed; the text is its log.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument(
        "--folder", type=Path, default=None, help="on the disk to be measured; default: temporary files"
    )
    parser.add_argument("--json", type=Path, default=None, help="write the figures there as well")
    options = parser.parse_args()
    model = ModelConfig(
        num_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=options.hidden // 32,
        padded_vocab_size=VOCABULARY,
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        ranks = Ranks()
        ranks.start(
            options.ranks,
            lambda rank, variables: fork_rank(
                lambda: measure(folder, model, options.ranks, options.rounds), folder / f"rank-{rank}.log", variables
            ),
        )
        ranks.watch(TIMEOUT_S)
        if (culprit := ranks.culprit()) is not None:
            raise SystemExit((folder / f"rank-{culprit.rank}.log").read_text(encoding="utf-8"))
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    for name, statistic in (("lowest_s", min), ("median_s", statistics.median)):
        result[name] = {way: statistic(each[way] for each in result["rounds"]) for way in (*WAYS, SLOWER)}
    result["machine"] = {"cores": os.cpu_count(), "load_average": os.getloadavg()[0], "torch": torch.__version__}
    print(describe(result, options.ranks))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def describe(result: dict[str, Any], ranks: int) -> str:
    """The figures for people."""
    on = result["machine"]
    rows = [
        f"{way:<14}{seconds:>10.2f}{result['median_s'][way]:>10.2f}{seconds / result['lowest_s']['native']:>12.2f}"
        for way, seconds in result["lowest_s"].items()
    ]
    return "\n".join(
        (
            f"{result['bytes'] / 1e6:,.0f} MB by {ranks} ranks on {on['cores']} cores (load {on['load_average']:.1f}), "
            f"{result['step_s']:.2f} s a step; {len(result['rounds'])} rounds, seconds",
            f"{'':<14}{'lowest':>10}{'median':>10}{'of native':>12}",
            *rows,
        )
    )


if __name__ == "__main__":
    main()
