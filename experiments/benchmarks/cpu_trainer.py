"""What the trainer costs on a processor: its speed beside a plain PyTorch loop, and the share that recording takes.

One process trains the demo's model twice, in turns: by the trainer's own loop in layout 1x1x1, with everything that it
records (tokens read and digested through the data order, ranks' agreement, ring, progress, telemetry), and by the
plain loop, which is handed its tokens. Tokens are random, since only shapes cost time.

    .venv/bin/python experiments/benchmarks/cpu_trainer.py --json experiments/benchmarks/results/cpu_trainer.json

Both take a few steps each in every block, so that whatever else the machine does meets both; speed is the median over
blocks of their ratio, once by wall clock and once by processor time, which other processes disturb less. A difference
below one percent is lost in the noise of step times, so recording is not measured by leaving it out, but directly: what
a step takes beside the engine's work, less the reading of its tokens, measured on the same samples once more.
Telemetry's thread and its collector, a process, count in full, though they run on other cores where some are free.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import statistics
import tempfile
import threading
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["DS_ACCELERATOR"] = "cpu"

warnings.filterwarnings("ignore")  # of third-party packages about what is not installed

import psutil
import torch
from plain_loop import PlainLoop, place_alone
from random_blend import random_blend

from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.schema import Experiment
from treering.data.order.batch import read_samples
from treering.data.order.treering1 import DataOrder
from treering.metrics.flops import ModelShape
from treering.metrics.parameters import Parameters
from treering.runlog.directory import RunDirectory
from treering.runlog.ring import RINGS_FILE, Ring
from treering.runlog.writer import RingWriter
from treering_trainer.checkpointing.saver import Record, Saver
from treering_trainer.core.batch_reader import BatchReader
from treering_trainer.core.engine import Engine
from treering_trainer.core.loop import Loop
from treering_trainer.monitor.heartbeat import HeartbeatWriter
from treering_trainer.monitor.hooks import FailOpen, ProgressLine, Telemetry

EXPERIMENT = Path(__file__).parents[1] / "demo.yaml"
THREADS = int(os.environ["OMP_NUM_THREADS"])
WARMUP_STEPS = 2
CLOCKS = ("wall_s", "processor_s")
NAMES = {
    "ours": "the trainer's step",
    "engine": "  engine",
    "reading": "  reading tokens",
    "recording": "  recording",
}
TOKENS = 2_000_000
"""Of each corpus: more than any block reads, little enough for the page cache."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by two clocks.

    Attributes:
        wall_s: that went by.
        processor_s: that this process's threads computed.
    """

    wall_s: float = 0.0
    processor_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.wall_s + other.wall_s, self.processor_s + other.processor_s)

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.wall_s - other.wall_s, self.processor_s - other.processor_s)

    @classmethod
    def now(cls) -> "Spent":
        """Both clocks."""
        return cls(time.perf_counter(), time.process_time())


@dataclass(frozen=True, slots=True)
class Block:
    """Steps of both loops, one after the other.

    Attributes:
        ours: the trainer's steps.
        plain: as many steps of the plain loop.
        engine: of `ours`, the engine's forward, backward and update.
        reading: of `ours`, finding and reading the tokens.
        telemetry: its thread and its collector, which compute beside the engine: no wall clock of their own.
    """

    ours: Spent
    plain: Spent
    engine: Spent
    reading: Spent
    telemetry: Spent

    @property
    def recording(self) -> Spent:
        """What a step takes beside training, and telemetry."""
        return self.ours - self.engine - self.reading + Spent(self.telemetry.processor_s, 0.0)


class Bench:
    """Both loops over one model.

    Args:
        experiment: the model and how it is trained.
        folder: for the run's records.
    """

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        weights = {component.corpus: component.weight for component in experiment.blend.components}
        length, vocabulary = experiment.blend.sequence_length, experiment.model.padded_vocab_size
        blend, self._corpora = random_blend(
            folder,
            weights,
            sequence_length=length,
            num_tokens=TOKENS,
            vocabulary=vocabulary,
            seed=experiment.blend.seed,
        )
        self.resolved = resolve(experiment, blend, str(EXPERIMENT))
        self._order = DataOrder(blend)
        recipe, parallel = self.resolved.recipe, self.resolved.attempt.parallel
        self._coordinates = place_alone(parallel.micro_batch_size)
        self._step = 0
        self._engine_spent = Spent()
        self.micro_batches = recipe.schedule.global_batch_size // parallel.micro_batch_size
        self._loop = self._trainer(folder)
        self._plain = PlainLoop(recipe.model, length, precision=recipe.precision, device="cpu")
        self._tokens = torch.randint(vocabulary, (self.micro_batches, parallel.micro_batch_size, length + 1))

    def _trainer(self, folder: Path) -> Loop:
        """The trainer's loop, put together as a rank does it, but for validation and checkpoints."""
        recipe, attempt = self.resolved.recipe, self.resolved.attempt
        with contextlib.redirect_stdout(io.StringIO()):  # DeepSpeed prints its stages
            engine = Engine(
                self._coordinates,
                model=recipe.model,
                optimizer=recipe.optimizer,
                parallel=attempt.parallel,
                kernels=attempt.kernels,
                precision=recipe.precision,
                sequence_length=self.resolved.blend.sequence_length,
                seed=recipe.seed,
                global_batch_size=recipe.schedule.global_batch_size,
            )
        train = engine.train

        def timed(*arguments: Any) -> Any:
            started, beside = Spent.now(), self._telemetry()
            result = train(*arguments)
            self._engine_spent += Spent.now() - started - (self._telemetry() - beside)
            return result

        engine.train = timed  # type: ignore[method-assign]
        telemetry = Telemetry(
            folder / "telemetry",
            rank=0,
            local_rank=0,
            ranks_here=1,
            on_accelerator=False,
            interval_s=attempt.telemetry.interval_s,
        )
        self._hooks = FailOpen([telemetry, ProgressLine((folder / "progress").open("w"))])
        record = Record(folder, RingWriter(folder / RINGS_FILE, Ring, self.resolved.recipe.digest), {})
        beat = HeartbeatWriter.of_this_process()
        return Loop(
            resolved=self.resolved,
            coordinates=self._coordinates,
            engine=engine,
            batch_reader=BatchReader(self._order, self._corpora, self._coordinates),
            validator=None,
            rings=record.rings,
            saver=Saver(
                resolved=self.resolved,
                run=RunDirectory(folder),
                engine=engine,
                record=record,
                hooks=self._hooks,
                beat=beat,
            ),
            hooks=self._hooks,
            stop_requested=lambda _step: False,
            beat=beat,
        )

    def run(self, blocks: int, steps: int) -> list[Block]:
        """Measures, after steps that warm both loops up; which of them is first changes from block to block."""
        self._hooks.before_training(0, self.resolved.schedule.num_steps)
        try:
            self.block(WARMUP_STEPS, plain_first=False)
            return [self.block(steps, plain_first=number % 2 == 1) for number in range(blocks)]
        finally:
            self._hooks.close()

    def block(self, steps: int, *, plain_first: bool) -> Block:
        """A few steps of each loop."""
        plain = self._plain_steps(steps) if plain_first else None
        first, self._engine_spent = self._step + 1, Spent()
        started, beside, collected = Spent.now(), self._telemetry(), self._collector()
        for _ in range(steps):
            self._step += 1
            self._loop._step(self._step)  # noqa: SLF001 - `run` would train to the schedule's end
        ours, telemetry = Spent.now() - started, self._telemetry() - beside + (self._collector() - collected)
        engine, reading = self._engine_spent, self._reading(first, self._step)
        return Block(ours, plain or self._plain_steps(steps), engine, reading, telemetry)

    def _plain_steps(self, steps: int) -> Spent:
        started = Spent.now()
        for _ in range(steps):
            self._plain.step(self._tokens)
        return Spent.now() - started

    def _reading(self, first: int, last: int) -> Spent:
        """Reading the samples of some steps once more."""
        size = self.resolved.attempt.parallel.micro_batch_size
        lo, hi = self.resolved.schedule.sample_range(first)[0], self.resolved.schedule.sample_range(last)[1]
        started, beside = Spent.now(), self._telemetry()
        for sample in range(lo, hi, size):
            read_samples(self._order, self._corpora, sample, sample + size)
        return Spent.now() - started - (self._telemetry() - beside)

    @staticmethod
    def _collector() -> Spent:
        """What the collector computed so far, a process that this one started."""
        times = [process.cpu_times() for process in psutil.Process().children()]
        return Spent(0.0, sum(each.user + each.system for each in times))

    @staticmethod
    def _telemetry() -> Spent:
        """What the telemetry's thread computed so far."""
        (thread,) = (each for each in threading.enumerate() if each.name == "telemetry-0")
        return Spent(0.0, time.clock_gettime(time.pthread_getcpuclockid(thread.ident)))


def main() -> None:
    """Measures, prints a table, and writes JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2, help="steps of each loop in a block")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--json", type=Path, default=None, help="write the figures there as well")
    arguments = parser.parse_args()
    # The full batch from the first step on.
    experiment = load_experiment(EXPERIMENT, ["schedule.rampup=null", *arguments.overrides])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(experiment, Path(folder))
        torch.set_num_threads(THREADS)
        result = summary(bench, bench.run(arguments.blocks, arguments.steps), arguments.steps)
    print(describe(result))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def summary(bench: Bench, blocks: list[Block], steps: int) -> dict[str, Any]:
    """The figures, what they were measured on, and every block."""
    resolved = bench.resolved
    shape = ModelShape.of(resolved.recipe.model, resolved.blend.sequence_length)
    tokens = resolved.recipe.schedule.global_batch_size * resolved.blend.sequence_length

    def median_s(part: str, clock: str = "wall_s") -> float:
        return statistics.median(getattr(getattr(block, part), clock) for block in blocks) / steps

    def ratio(part: str, whole: str, clock: str) -> float:
        """Median over blocks of one part over another."""
        each = [(getattr(block, part), getattr(block, whole)) for block in blocks]
        return statistics.median(getattr(one, clock) / getattr(other, clock) for one, other in each)

    return {
        "machine": machine(),
        "model": {
            "parameters": Parameters.of(resolved.recipe.model, resolved.blend.sequence_length).total,
            "num_layers": shape.num_layers,
            "hidden_size": shape.hidden_size,
            "sequence_length": shape.sequence_length,
            "precision": resolved.recipe.precision,
            "micro_batch_size": resolved.attempt.parallel.micro_batch_size,
            "micro_batches": bench.micro_batches,
        },
        "steps_of_a_block": steps,
        "tokens_per_second": tokens / median_s("ours"),
        "plain_tokens_per_second": tokens / median_s("plain"),
        "speed_relative_to_plain": {clock: ratio("plain", "ours", clock) for clock in CLOCKS},
        "recording_share": {clock: ratio("recording", "ours", clock) for clock in CLOCKS},
        "step_s": {part: {clock: median_s(part, clock) for clock in CLOCKS} for part in NAMES},
        "telemetry_processor_s": median_s("telemetry", "processor_s"),
        "blocks": [asdict(block) for block in blocks],
    }


def machine() -> dict[str, Any]:
    """What was measured on, and how busy it was."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return {
        "processor": next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "unknown"),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "threads": THREADS,
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def describe(result: dict[str, Any]) -> str:
    """The figures for people."""
    on, model = result["machine"], result["model"]
    ratios = [block["plain"]["wall_s"] / block["ours"]["wall_s"] for block in result["blocks"]]

    def row(name: str, values: dict[str, float], form: str, factor: float = 1.0) -> str:
        return f"{name:<38}" + "".join(f"{factor * values[clock]:>16{form}}" for clock in CLOCKS)

    rows = [row(f"ms, {NAMES[part]}", values, ",.2f", 1e3) for part, values in result["step_s"].items()]
    return "\n".join(
        (
            f"{on['processor']}, {on['cores']} cores, {on['threads']} of them used, load {on['load_average']:.1f}, "
            f"torch {on['torch']}",
            f"{model['parameters'] / 1e6:.1f} M parameters, {model['precision']}, batch {model['micro_batches']} x "
            f"{model['micro_batch_size']} of {model['sequence_length']} tokens; medians of {len(ratios)} blocks of "
            f"{result['steps_of_a_block']} steps",
            "",
            f"tokens/s: {result['tokens_per_second']:,.0f} by the trainer in 1x1x1, "
            f"{result['plain_tokens_per_second']:,.0f} by the plain PyTorch loop",
            "",
            f"{'':<38}" + "".join(f"{clock:>16}" for clock in ("by wall clock", "processor time")),
            row("speed relative to the plain loop", result["speed_relative_to_plain"], ".3f"),
            f"  lowest and highest block{min(ratios):>21.3f} {max(ratios):.3f}",
            *rows,
            row("recording, share of a step", result["recording_share"], ".2%"),
        )
    )


if __name__ == "__main__":
    main()
