"""What the trainer reaches on one device: right numbers, kernels on and off, memory, MFU and the split of a step.

The engine is the trainer's own (DeepSpeed over megatron-core layers); tokens are random, since only shapes cost time.
Beside it runs the same model as a plain PyTorch loop, written in the simplest way: the peer of the ratio, in the same
run. Without a GPU it takes a step of tiny shapes on the CPU, which only shows that everything runs;
`cpu_trainer.py` measures a processor.

    .venv/bin/python experiments/benchmarks/gpu_trainer.py            # all of it, about 6 minutes on an H200
    .venv/bin/python experiments/benchmarks/gpu_trainer.py --json out.json
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from treering.collect.devices import collect_devices
from treering.collect.nvml import open_nvml
from treering.config.model import ModelConfig, OptimizerConfig, Precision
from treering.config.operation import KernelConfig, ParallelConfig
from treering.metrics.flops import ModelShape, peak_of, tflops_per_device, utilisation
from treering.metrics.parameters import Parameters

FORMULA = "megatron-2023"
WARMUP_STEPS = 3
EAGER = KernelConfig(attention="sdpa_math", optimizer="torch")
FUSED = KernelConfig(
    attention="sdpa_flash", bias_gelu="compiled", bias_dropout_add="compiled", cross_entropy="compiled"
)
CHECKED_STEPS = 20


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure."""

    name: str
    model: ModelConfig
    sequence_length: int
    micro_batch_size: int
    micro_batches: int
    precision: Precision = "bf16"
    kernels: KernelConfig = field(default_factory=lambda: FUSED)
    recompute: bool = False
    steps: int = 6
    peer: bool = False
    """Whether the plain loop runs beside it."""


def gpt(num_layers: int, hidden_size: int, heads: int, vocabulary: int = 51_200) -> ModelConfig:
    """A GPT of these sizes."""
    return ModelConfig(
        num_layers=num_layers, hidden_size=hidden_size, num_attention_heads=heads, padded_vocab_size=vocabulary
    )


def gpu_cases() -> list[Case]:
    """GPT-3's 350M and 1.3B shapes at sequence 2048 (arXiv 2005.14165, table 2.1; 1.3B with heads of 128)."""
    small, large = gpt(24, 1024, 16), gpt(24, 2048, 16)
    return [
        Case("350M, kernels on", small, 2048, 4, 4, peer=True),
        Case("350M, kernels on, micro-batch 16", small, 2048, 16, 4),
        Case("1.3B, kernels on, micro-batch 4", large, 2048, 4, 8),
        Case("1.3B, kernels on, micro-batch 8", large, 2048, 8, 4),
        Case("1.3B, kernels on, micro-batch 8, full recompute", large, 2048, 8, 4, recompute=True, steps=4),
        Case("350M, kernels off", small, 2048, 4, 4, kernels=EAGER, steps=3),
    ]


def cpu_cases() -> list[Case]:
    """The paths that a device would take, at a tiny size."""
    unfused = FUSED.model_copy(update={"bias_gelu": "eager", "bias_dropout_add": "eager"})
    return [
        Case("tiny, kernels off", gpt(2, 64, 4, 512), 64, 2, 2, precision="fp32", kernels=EAGER, steps=1),
        Case("tiny, bf16", gpt(2, 64, 4, 512), 64, 2, 2, kernels=unfused, steps=1, peer=True),
    ]


def main() -> None:
    """Runs everything and prints it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None, help="write the figures there as well")
    parser.add_argument("--cpu", action="store_true", help="leave GPUs alone: show that it runs, with tiny shapes")
    # Children: the losses of a processor, and each case on a GPU, whose memory a process does not give back as a whole.
    parser.add_argument("--losses", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.losses is not None:
        os.environ["DS_ACCELERATOR"] = "cpu"
        arguments.losses.write_text(json.dumps(losses(checked_case(tiny=arguments.cpu))), encoding="utf-8")
        return
    nvml, reason = (None, "--cpu") if arguments.cpu else open_nvml()
    gpu = next((device for device in collect_devices(nvml) if device.kind == "cuda"), None)
    device = gpu.name if gpu else "cpu"
    if gpu is None:
        os.environ["DS_ACCELERATOR"] = "cpu"
    cases = gpu_cases() if gpu else cpu_cases()
    if arguments.case is not None:
        arguments.json.write_text(json.dumps(measure(cases[arguments.case], device)), encoding="utf-8")
        return
    if gpu is None:
        print(f"no GPU ({reason}): small shapes on the CPU; these are no figures of a device")
    results: dict[str, Any] = {"device": device, "correctness": correctness(tiny=gpu is None), "cases": []}
    print(f"{device}: {results['correctness']}", flush=True)
    for number, case in enumerate(cases):
        found = child(f"--case={number}", flag="--json") if gpu else measure(case, device)
        results["cases"].append(found)
        print(describe(results["cases"][-1]), flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def child(*flags: str, flag: str) -> Any:
    """Runs this script in another process and returns what it writes into the file that `flag` names.

    Raises:
        RuntimeError: the process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, __file__, *flags, f"{flag}={path}"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(flags) or flag} failed: {done.stderr.decode()[-2000:]}")
        return json.loads(path.read_text(encoding="utf-8"))


def checked_case(*, tiny: bool) -> Case:
    """A small model in fp32, whose losses must not depend on the device."""
    model, sequence_length = (gpt(2, 64, 4, 512), 64) if tiny else (gpt(4, 256, 4, 8192), 256)
    return Case("fp32", model, sequence_length, 4, 2, precision="fp32", kernels=KernelConfig())


def correctness(*, tiny: bool) -> dict[str, Any]:
    """Losses of the first steps on this device against those of a process on the CPU, both in fp32."""
    with ThreadPoolExecutor(1) as beside:
        on_cpu = beside.submit(child, *(["--cpu"] if tiny else []), flag="--losses")
        here = losses(checked_case(tiny=tiny))
        there = on_cpu.result()
    return {
        "steps": len(here),
        "first_loss": here[0],
        "last_loss": here[-1],
        "largest_difference_to_cpu": max(abs(a - b) for a, b in zip(here, there, strict=True)),
    }


def losses(case: Case) -> list[float]:
    """Losses of the first steps of a case."""
    engine, batch = build(case)
    return [train(engine, case, batch, step).loss for step in range(1, CHECKED_STEPS + 1)]


def measure(case: Case, device: str) -> dict[str, Any]:
    """Step time, its split, throughput and memory of a case; an out-of-memory error is a result too."""
    import torch

    shape = ModelShape.of(case.model, case.sequence_length)
    result: dict[str, Any] = {
        "name": case.name,
        "parameters": Parameters.of(case.model, case.sequence_length).total,
        "sequence_length": case.sequence_length,
        "micro_batch_size": case.micro_batch_size,
        "micro_batches": case.micro_batches,
        "precision": case.precision,
        "kernels": case.kernels.model_dump(),
        "recompute": case.recompute,
    }
    on_gpu = torch.cuda.is_available() and device != "cpu"
    try:
        engine, batch = build(case)
        for step in range(1, WARMUP_STEPS + 1):
            train(engine, case, batch, step)
        steps = [train(engine, case, batch, WARMUP_STEPS + 1 + step) for step in range(case.steps)]
    except torch.OutOfMemoryError as error:
        return {**result, "error": str(error).splitlines()[0]}
    timings = [step.timing for step in steps]
    forward_backward_s = statistics.median(timing.forward_backward_s for timing in timings)
    communication_s = statistics.median(timing.communication_s for timing in timings)
    optimizer_s = statistics.median(timing.optimizer_s for timing in timings)
    step_s = statistics.median(timing.compute_s + timing.communication_s for timing in timings)
    samples = case.micro_batch_size * case.micro_batches
    tflops = tflops_per_device(FORMULA, shape, batch_size=samples, step_time_s=step_s, num_devices=1)
    peak = peak_of(device)
    memory_bytes = torch.cuda.max_memory_allocated() if on_gpu else None
    peer_s = plain_step_s(case, str(batch[0][0].device)) if case.peer else None
    return {
        **result,
        "plain_step_s": peer_s,
        "speed_relative_to_plain": peer_s / step_s if peer_s else None,
        "step_s": step_s,
        "forward_backward_s": forward_backward_s,
        "communication_s": communication_s,
        "optimizer_s": optimizer_s,
        "tokens_per_second": samples * case.sequence_length / step_s,
        "flops_formula": FORMULA,
        "tflops": tflops,
        "mfu": utilisation(tflops, device),
        "peak": asdict(peak) if peak else None,
        "memory_bytes": memory_bytes,
        "loss": steps[-1].loss,
    }


def build(case: Case) -> tuple[Any, Any]:
    """The trainer's engine over a case's model, and one batch of random tokens on its device."""
    import torch
    from plain_loop import place_alone

    from treering_trainer.core.engine import Engine

    place = place_alone(case.micro_batch_size)
    # DeepSpeed prints its stages and its memory.
    with contextlib.redirect_stdout(io.StringIO()):
        engine = Engine(
            place,
            model=case.model,
            optimizer=OptimizerConfig(peak_learning_rate=1e-3, min_learning_rate=1e-4),
            parallel=ParallelConfig(
                micro_batch_size=case.micro_batch_size, activation_recompute="full" if case.recompute else "none"
            ),
            kernels=case.kernels,
            precision=case.precision,
            sequence_length=case.sequence_length,
            seed=1,
            global_batch_size=case.micro_batch_size * case.micro_batches,
        )
    shape = (case.micro_batches, case.micro_batch_size, case.sequence_length + 1)
    tokens = np.random.default_rng(1).integers(0, case.model.padded_vocab_size, shape)
    batch = torch.from_numpy(tokens).to(engine.device)
    return engine, [(part[:, :-1].contiguous(), part[:, 1:].contiguous()) for part in batch]


def plain_step_s(case: Case, device: str) -> float:
    """Median seconds of a step of the same model as a plain PyTorch loop."""
    import torch
    from plain_loop import PlainLoop

    plain = PlainLoop(case.model, case.sequence_length, precision=case.precision, device=device)
    tokens = torch.randint(
        case.model.padded_vocab_size, (case.micro_batches, case.micro_batch_size, case.sequence_length + 1)
    ).to(device)
    seconds = []
    for _ in range(WARMUP_STEPS + case.steps):
        started = time.perf_counter()
        plain.step(tokens)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARMUP_STEPS:])


def train(engine: Any, case: Case, batch: Any, step: int) -> Any:
    """One step of the trainer's engine."""
    return engine.train(step, batch, case.micro_batch_size * case.micro_batches, 1e-3)


def describe(result: dict[str, Any]) -> str:
    """One line of a case."""
    if "error" in result:
        return f"{result['name']}: {result['error']}"
    mfu = "no MFU (unknown peak)" if result["mfu"] is None else f"MFU {100 * result['mfu']:.1f} %"
    ratio = result["speed_relative_to_plain"]
    peer = "" if ratio is None else f", {ratio:.2f} of the speed of a plain PyTorch loop"
    memory = "" if result["memory_bytes"] is None else f", {result['memory_bytes'] / 2**30:.1f} GiB"
    return (
        f"{result['name']}: {result['parameters'] / 1e6:,.1f} M parameters, step {result['step_s'] * 1e3:,.1f} ms "
        f"({result['forward_backward_s'] * 1e3:,.1f} forward and backward, "
        f"{result['communication_s'] * 1e3:,.1f} communication, {result['optimizer_s'] * 1e3:,.1f} optimizer), "
        f"{result['tokens_per_second']:,.0f} tokens/s, {result['tflops']:.3g} TFLOP/s, {mfu}{memory}{peer}"
    )


if __name__ == "__main__":
    main()
