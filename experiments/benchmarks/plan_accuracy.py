"""How far `treering plan` is off: its predictions beside published measurements, error by row, as Markdown.

Published rows: PTD-P's table 1 and its estimates of section 5.1 (arXiv 2104.04473), MT-NLG's iteration times (arXiv
2201.11990). With `--count`, also the memory formula of one layer and of the logits beside what autograd keeps of the
trainer's own modules (needs torch).

    .venv/bin/python experiments/benchmarks/plan_accuracy.py [--count]
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from treering.config.model import ModelConfig
from treering.config.schedule import Schedule
from treering.metrics.flops import ptdp_2021
from treering.plan.estimate import estimate, kernel_rate, step_time
from treering.plan.layout import Attention, Cluster, PlannedLayout, Workload
from treering.plan.memory import device_memory, head_activation_bytes, layer_activation_bytes

DEFAULT_MFU = 0.30
SEQUENCE_LENGTH = 2048


def planned(
    tensor: int, pipeline: int, data: int, micro_batch_size: int = 1, *, recompute: bool = True
) -> PlannedLayout:
    """A layout in one line."""
    return PlannedLayout(
        tensor=tensor, pipeline=pipeline, data=data, micro_batch_size=micro_batch_size, recompute=recompute
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One published training: heads, hidden size, layers, TP, PP, GPUs, batch, PFLOP/s over all GPUs."""

    model: str
    heads: int
    hidden_size: int
    layers: int
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    petaflops: float

    @property
    def workload(self) -> Workload:
        """Attention as it was in 2021: scores kept, with dropout."""
        return gpt(self.layers, self.hidden_size, self.heads, self.batch)

    @property
    def layout(self) -> PlannedLayout:
        """Micro-batch 1 (the table names none), plain 1F1B (the paper interleaved), full recompute."""
        return planned(self.tensor, self.pipeline, self.gpus // self.tensor // self.pipeline)

    @property
    def cluster(self) -> Cluster:
        """DGX A100."""
        return Cluster.of("A100 80GB", self.gpus // 8, 8)

    @property
    def mfu(self) -> float:
        """Model FLOPs over peak that the published hardware FLOP/s come to."""
        shape = self.workload.shape
        model, hardware = ptdp_2021(shape, self.batch, False), ptdp_2021(shape, self.batch, True)
        return self.petaflops * 1e3 / self.gpus / self.cluster.device.tflops * model / hardware

    def rate(self) -> float:
        """Rate of its kernels by the planner's model."""
        return kernel_rate(self.workload, self.layout, self.cluster, self.mfu)

    def predicted(self, rate: float) -> float:
        """PFLOP/s over all GPUs, were its kernels to run at another row's rate."""
        step = step_time(self.workload, self.layout, self.cluster, self.batch, rate)
        return ptdp_2021(self.workload.shape, self.batch, True) / step.step_s / 1e15


PTDP_TABLE_1 = (
    Row("1.7B", 24, 2304, 24, 1, 1, 32, 512, 4.4),
    Row("3.6B", 32, 3072, 30, 2, 1, 64, 512, 8.8),
    Row("7.5B", 32, 4096, 36, 4, 1, 128, 512, 18.2),
    Row("18B", 48, 6144, 40, 8, 1, 256, 1024, 34.6),
    Row("39B", 64, 8192, 48, 8, 2, 512, 1536, 70.8),
    Row("76B", 80, 10240, 60, 8, 4, 1024, 1792, 143.8),
    Row("145B", 96, 12288, 80, 8, 8, 1536, 2304, 227.1),
    Row("310B", 128, 16384, 96, 8, 16, 1920, 2160, 297.4),
    Row("530B", 128, 20480, 105, 8, 35, 2520, 2520, 410.2),
    Row("1T", 160, 25600, 128, 8, 64, 3072, 3072, 502.0),
)

# Nodes, data parallel size, seconds of an iteration at batch 1,920.
MT_NLG = ((280, 8, 60.1), (350, 10, 50.2), (420, 12, 44.4))

# Model, row-like shape, tokens, TFLOP/s a GPU that the paper reckons with, days that it reckons.
PTDP_DAYS = (
    (Row("175B", 96, 12288, 96, 8, 8, 1024, 1536, 140 * 1.024), 300e9, 34),
    (Row("1T", 160, 25600, 128, 8, 64, 3072, 3072, 163 * 3.072), 450e9, 84),
)


def gpt(layers: int, hidden_size: int, heads: int, batch: int, tokens: float = 1e12) -> Workload:
    """A GPT of vocabulary 51,200 and sequence 2,048 at a constant batch."""
    return Workload(
        ModelConfig(
            num_layers=layers,
            hidden_size=hidden_size,
            num_attention_heads=heads,
            padded_vocab_size=51_200,
            dropout=0.1,
        ),
        Schedule(
            sequence_length=SEQUENCE_LENGTH,
            train_tokens=int(tokens),
            global_batch_size=batch,
            peak_learning_rate=1e-4,
        ),
        "bf16",
        "unfused",
    )


def ptdp_table() -> list[list[str]]:
    """PTD-P's table 1: each row predicted from the kernels' rate of the row above, and from the default MFU."""
    rows = []
    for above, row in pairwise((None, *PTDP_TABLE_1)):
        assert row is not None  # noqa: S101 - only the first element is None
        memory = device_memory(row.workload, row.layout, row.batch)
        by_default = row.petaflops * DEFAULT_MFU / row.mfu
        found = row.predicted(above.rate()) if above else None
        step = step_time(row.workload, row.layout, row.cluster, row.batch, 1.0)
        rows.append(
            [
                row.model,
                str(row.layout),
                f"{row.batch:,}",
                f"{memory.num_bytes / 1e9:.1f} GB",
                f"{step.bubble:.1%}",
                f"{row.petaflops:.1f}",
                f"{found:.1f}" if found else "",
                f"{found / row.petaflops - 1:+.1%}" if found else "",
                f"{by_default:.1f}",
                f"{by_default / row.petaflops - 1:+.1%}",
            ]
        )
    return rows


def mt_nlg_table() -> list[list[str]]:
    """MT-NLG's iteration times, from the kernels' rate on 280 nodes (published MFU) and from PTD-P's row of 530B."""
    model = gpt(105, 20_480, 128, 1920)

    def layout(data: int) -> PlannedLayout:
        return planned(8, 35, data)

    own = kernel_rate(model, layout(MT_NLG[0][1]), Cluster.of("A100 80GB", MT_NLG[0][0], 8), 0.302)
    ptdp = next(row for row in PTDP_TABLE_1 if row.model == "530B").rate()
    sources = ("its own MFU, 30.2 %", "280 nodes", "280 nodes")
    cases = [*zip(sources, [own] * 3, MT_NLG, strict=True), ("PTD-P's 530B", ptdp, MT_NLG[0])]
    rows = []
    for source, rate, (nodes, data, published) in cases:
        plan = estimate(model, layout(data), Cluster.of("A100 80GB", nodes, 8), rate)
        rows.append(
            [
                str(nodes),
                str(plan.layout),
                f"{plan.memory.num_bytes / 1e9:.1f} GB",
                f"{plan.full.bubble:.1%}",
                source,
                f"{published:.1f} s",
                f"{plan.full.step_s:.1f} s",
                f"{plan.full.step_s / published - 1:+.1%}",
            ]
        )
    return rows


def days_table() -> list[list[str]]:
    """PTD-P's estimates of whole trainings, from the throughput that it reckons with."""
    rows = []
    for row, tokens, published in PTDP_DAYS:
        workload = gpt(row.layers, row.hidden_size, row.heads, row.batch, tokens)
        plan = estimate(workload, row.layout, row.cluster, row.rate())
        rows.append(
            [
                row.model,
                f"{tokens / 1e9:.0f} B",
                f"{row.gpus:,}",
                f"{row.petaflops * 1e3 / row.gpus:.0f}",
                str(published),
                f"{plan.days:.1f}",
                f"{plan.days / published - 1:+.1%}",
            ]
        )
    return rows


def counted_table() -> list[list[str]]:
    """Bytes that autograd keeps of the trainer's own modules in bf16 on a processor, beside the formula."""
    import torch

    from treering.config.operation import KernelConfig
    from treering_trainer.core.model import (
        FinalNorm,
        TokenEmbedding,
        TransformerBlock,
        token_loss,
        transformer_config,
        vocabulary_logits,
    )
    from treering_trainer.core.topology import join_alone

    join_alone()
    s, h, heads, vocabulary = 256, 256, 4, 8192
    model = ModelConfig(num_layers=1, hidden_size=h, num_attention_heads=heads, padded_vocab_size=vocabulary)
    schedule = Schedule(sequence_length=s, train_tokens=10**6, global_batch_size=8, peak_learning_rate=1e-3)
    config = transformer_config(model, KernelConfig(), "bf16", 1)
    rows = []

    def kept(modules: Sequence[torch.nn.Module], batch: int, forward: Callable[[torch.Tensor], torch.Tensor]) -> int:
        weights = {each.untyped_storage().data_ptr() for module in modules for each in module.parameters()}
        storages: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        hidden = torch.randn(s, batch, h, dtype=torch.bfloat16, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = forward(hidden)
        assert result.requires_grad  # noqa: S101 - the graph must live until the storages are counted
        return sum(storages.values())

    cases: tuple[tuple[str, Attention], ...] = (("sdpa_flash", "fused"), ("sdpa_math", "unfused_fp32"))
    for kernel, attention in cases:
        for batch in (1, 4):
            block = TransformerBlock(config, 1, kernel, seed=1).bfloat16()
            workload = Workload(model, schedule, "bf16", attention)
            formula = layer_activation_bytes(workload, planned(1, 1, 1, batch, recompute=False))
            rows.append(_counted(f"layer, `{kernel}`, micro-batch {batch}", kept([block], batch, block), formula))
    norm, embedding = FinalNorm(config).bfloat16(), TokenEmbedding(config, vocabulary, 1).bfloat16()
    losses: tuple[tuple[Literal["eager", "compiled"], bool], ...] = (("eager", True), ("compiled", False))
    for loss, copied in losses:
        for batch in (1, 4):
            labels = torch.zeros(batch, s, dtype=torch.long)

            def head(x: torch.Tensor, labels: torch.Tensor = labels, loss: Any = loss) -> torch.Tensor:
                return token_loss(vocabulary_logits(embedding, norm(x)), labels, loss)

            found = kept([norm, embedding], batch, head)
            workload = Workload(model, schedule, "bf16", logits_copied=copied)
            formula = head_activation_bytes(workload, planned(1, 1, 1, batch, recompute=False))
            rows.append(_counted(f"final norm, logits and `{loss}` loss, micro-batch {batch}", found, formula))
    return rows


def _counted(what: str, found: int, formula: float) -> list[str]:
    return [what, f"{found:,}", f"{formula:,.0f}", f"{formula / found - 1:+.2%}"]


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables() -> list[str]:
    """The tables of README.md beside this file that need no torch."""
    return [
        markdown(
            ("model", "TP x PP x DP", "batch", "memory", "bubble", "published PFLOP/s", "from the row above", "error",
             "from MFU 30 %", "error"),
            ptdp_table(),
        ),
        markdown(
            ("nodes", "TP x PP x DP", "memory", "bubble", "kernels' rate from", "published", "predicted", "error"),
            mt_nlg_table(),
        ),
        markdown(("model", "tokens", "GPUs", "TFLOP/s a GPU", "published days", "predicted", "error"), days_table()),
    ]  # fmt: skip


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true", help="also count what autograd keeps (needs torch)")
    arguments = parser.parse_args()
    print("\n\n".join(tables()))
    if arguments.count:
        print("\n" + markdown(("what", "bytes kept", "formula", "error"), counted_table()))


if __name__ == "__main__":
    main()
