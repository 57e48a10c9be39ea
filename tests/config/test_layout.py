"""The parallel layout: where ranks are, and which replica reads a sample."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from treering.config.layout import Layout
from treering.config.operation import ParallelConfig
from treering.config.schedule import Schedule
from treering.errors import EvidenceError
from treering.runlog.records import AttemptLayout, Record


def layout(tensor=1, pipeline=1, data=1, micro_batch_size=1, **others):
    return Layout(tensor=tensor, pipeline=pipeline, data=data, micro_batch_size=micro_batch_size, **others)


SIZES = st.builds(layout, *[st.integers(1, 4)] * 4)


@given(SIZES)
def test_every_rank_has_a_place_of_its_own_and_tensor_ranks_are_neighbours(layout):
    places = [layout.coordinates(rank) for rank in range(layout.world_size)]
    assert [(each.pipeline, each.data, each.tensor) for each in places] == [
        (pipeline, data, tensor)
        for pipeline in range(layout.pipeline)
        for data in range(layout.data)
        for tensor in range(layout.tensor)
    ]


def test_the_ranks_of_2x3x2():
    place = layout(2, 3, 2).coordinates(7, local_rank=3)
    assert (place.rank, place.local_rank, place.tensor, place.pipeline, place.data) == (7, 3, 1, 1, 1)
    assert not place.reads_data
    assert layout(2, 3, 2).coordinates(0).first_stage
    assert layout(2, 3, 2).coordinates(11).last_stage


def test_dualpipev_reads_and_predicts_in_the_first_stage():
    folded = layout(pipeline=2, pipeline_schedule="dualpipev")
    assert (folded.chunks, folded.least_micro_batches, str(folded)) == (4, 4, "1x2x1 dualpipev")
    first, second = folded.coordinates(0), folded.coordinates(1)
    assert first.first_stage
    assert first.last_stage
    assert not second.reads_data


@given(SIZES, st.integers(1, 5), st.integers(0, 1000))
def test_replicas_share_every_sample_of_a_batch_between_them(layout, micro_batches, start):
    end = start + micro_batches * layout.global_micro_batch_size
    read = {
        sample: (micro_batch, replica)
        for replica in range(layout.data)
        for micro_batch, first in enumerate(layout.micro_batch_starts(replica, start, end))
        for sample in range(first, first + layout.micro_batch_size)
    }
    assert read == {start + position: layout.place(position) for position in range(end - start)}
    assert layout.micro_batches(end - start) == micro_batches


def test_a_layout_gives_up_replicas_until_every_batch_can_be_cut():
    schedule = Schedule(sequence_length=1, train_tokens=100, global_batch_size=12, peak_learning_rate=1)
    assert layout(data=5, micro_batch_size=2).fitted(schedule).data == 3
    assert layout(data=5, micro_batch_size=5).fitted(schedule).data == 1
    folded = layout(pipeline=2, data=5, pipeline_schedule="dualpipev")
    assert folded.fitted(schedule).data == 3
    assert folded.unfit_stage(schedule).batch_size == 12
    assert folded.stage_rule == (
        "every stage divisible by micro_batch_size x data = 1 x 5, at least 4 micro-batches of it for dualpipev"
    )


def test_a_config_gives_a_layout_for_a_number_of_devices():
    asked = ParallelConfig(tensor=2, pipeline=3, micro_batch_size=4)
    assert asked.layout(13) == layout(2, 3, 2, 4)
    assert asked.layout(1) == layout(2, 3, 1, 4)
    assert asked.model_copy(update={"data": 5}).layout(1) == layout(2, 3, 5, 4)


RECORDED = {"tensor": 2, "pipeline": 3, "data": 4, "micro_batch_size": 1, "device": "cuda", "backend": "nccl"}


class Holder(Record):
    layout: AttemptLayout


def test_the_run_log_writes_the_number_of_ranks_and_compares_it(tmp_path):
    held = Holder(layout=AttemptLayout(**RECORDED))
    held.write(tmp_path / "layout.json")
    assert json.loads((tmp_path / "layout.json").read_text())["layout"] == {**RECORDED, "world_size": 24}
    assert Holder.read(tmp_path / "layout.json")[0] == held
    with pytest.raises(ValidationError, match="found 23, expected tensor x pipeline x data = 24"):
        AttemptLayout(**RECORDED, world_size=23)


@pytest.mark.parametrize(("said", "found"), [("24", "found 24"), (24.5, "found 24.5"), (True, "found True")])
def test_a_number_of_ranks_of_another_type_is_refused(said, found, tmp_path):
    from treering.runlog.document import write_document

    write_document(tmp_path / "layout.json", {"layout": {**RECORDED, "world_size": said}})
    with pytest.raises(EvidenceError, match=found):
        Holder.read(tmp_path / "layout.json")
