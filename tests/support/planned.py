"""The plan of MT-NLG 530B on its 280 nodes, and layouts in one line."""

from typing import Any

from treering.config.model import ModelConfig
from treering.config.schedule import Schedule
from treering.plan.layout import Cluster, PlannedLayout, Workload


def planned(tensor: int, pipeline: int, data: int, micro_batch_size: int, *, recompute: bool) -> PlannedLayout:
    return PlannedLayout(
        tensor=tensor, pipeline=pipeline, data=data, micro_batch_size=micro_batch_size, recompute=recompute
    )


def changed(layout: PlannedLayout, **changes: Any) -> PlannedLayout:
    return layout.model_copy(update=changes)


MODEL = ModelConfig(num_layers=105, hidden_size=20_480, num_attention_heads=128, padded_vocab_size=51_200)
LAYOUT = planned(8, 35, 8, 1, recompute=True)
CLUSTER = Cluster.of("A100 80GB", 280, 8)


def workload(model: ModelConfig = MODEL, batch: int = 1920, tokens: int = 10**12, **changes: Any) -> Workload:
    schedule = Schedule(
        sequence_length=2048, train_tokens=tokens, global_batch_size=batch, peak_learning_rate=1e-4, **changes
    )
    return Workload(model, schedule, "bf16")
