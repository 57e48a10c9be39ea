"""What surely cannot fit is refused, and nothing else."""

from pathlib import Path

import pytest
from planned import LAYOUT, changed, planned

from treering.errors import ConfigError
from treering.plan.fit import check_device_memory, check_node_memory
from treering.plan.memory import device_memory, stage_memories

ROOT = Path(__file__).parents[2]


def test_a_device_is_filled_to_its_last_byte_and_no_further(mt_nlg):
    needed = device_memory(mt_nlg, LAYOUT, 1920).num_bytes
    check_device_memory("x.yaml", mt_nlg, LAYOUT, device="a GPU", memory_bytes=needed)
    with pytest.raises(ConfigError, match=r"x.yaml: parallel: found .* GB a device in the first stage of 8x35x8 .*"):
        check_device_memory("x.yaml", mt_nlg, LAYOUT, device="a GPU", memory_bytes=needed - 1)
    with pytest.raises(ConfigError, match=r"expected at most 90% of the .* GB of a GPU: .* --nodes N --search"):
        check_device_memory("x.yaml", mt_nlg, LAYOUT, device="a GPU", memory_bytes=needed, share=0.9)


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        (changed(LAYOUT, recompute=False), "parallel.activation_recompute"),
        (planned(8, 35, 2, 16, recompute=True), "parallel.micro_batch_size"),
        (planned(8, 1, 8, 1, recompute=True), "parallel"),
    ],
)
def test_the_remedy_names_what_takes_the_memory(mt_nlg, layout, field):
    with pytest.raises(ConfigError, match="expected at most the 40 GB of a GPU") as caught:
        check_device_memory("x.yaml", mt_nlg, layout, device="a GPU", memory_bytes=40e9)
    assert caught.value.path == field


def test_stages_together_hold_the_whole_model(mt_nlg):
    """The middle stages hold layers alone; with what the first and the last one add, that is every parameter."""
    stages = stage_memories(mt_nlg, LAYOUT, 1920)
    assert [stage.stage for stage in stages] == ["first", *["middle"] * 33, "last"]
    middle = stages[1].parameters
    h = 20_480
    assert stages[0].parameters == middle + 51_200 * h // 8 + 2048 * h
    assert stages[-1].parameters == middle + 51_200 * h // 8 + 2 * h
    assert stages[1].in_flight == 1
    assert [stage.stage for stage in stage_memories(mt_nlg, changed(LAYOUT, pipeline=1), 1920)] == ["first"]


def test_a_node_that_holds_all_ranks_holds_every_stage(mt_nlg):
    total = 64 * sum(stage.num_bytes for stage in stage_memories(mt_nlg, LAYOUT, 1920))
    check_node_memory("x.yaml", mt_nlg, LAYOUT, ranks=2240, memory_bytes=total)
    with pytest.raises(ConfigError, match=r"for 2240 ranks of 8x35x8 on this node"):
        check_node_memory("x.yaml", mt_nlg, LAYOUT, ranks=2240, memory_bytes=total - 1)


def test_of_a_part_of_the_ranks_only_the_least_is_sure(mt_nlg):
    least = stage_memories(mt_nlg, LAYOUT, 1920)[1].num_bytes
    check_node_memory("x.yaml", mt_nlg, LAYOUT, ranks=8, memory_bytes=8 * least)
    with pytest.raises(ConfigError, match=r"for 8 ranks of 8x35x8 on this node"):
        check_node_memory("x.yaml", mt_nlg, LAYOUT, ranks=8, memory_bytes=8 * least - 1)
