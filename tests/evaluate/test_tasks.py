"""Task files: what is refused, and which examples a prompt gets."""

import json

import pytest

from treering.errors import UserError
from treering.project import NO_TASKS
from treering_trainer.evaluate.tasks import FittingSampler, build_task, read_tasks

TARGET = {"id": "a", "context": "one two", "target": "three", "document": "d1"}
CHOICE = {"id": "b", "context": "one two", "choices": ["three", "four"], "gold": 1, "document": "d2"}


def write(tmp_path, *rows):
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    (tmp_path / "task.jsonl").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (("{",), "task.jsonl line 1: not JSON"),
        (("[]",), "line 1: a list, expected an object"),
        ((TARGET, {**TARGET, "context": " "}), "line 2: context: found ' ', expected a text"),
        (({**TARGET, "target": 3},), "line 1: target: found 3, expected a text"),
        (({**TARGET, "document": None},), "line 1: document: found None"),
        (({**CHOICE, "choices": ["one"]},), "choices: found .* expected a list of two or more texts"),
        (({**CHOICE, "gold": True},), "gold: found True, expected a number from 0 to 1"),
        (({**CHOICE, "gold": 2},), "gold: found 2, expected a number from 0 to 1"),
        ((TARGET,), "1 items, expected at least 2"),
        ((TARGET, CHOICE), "some items have a target and some have choices"),
        ((), "0 items, expected at least 2"),
    ],
)
def test_broken_files_are_refused(tmp_path, rows, match):
    with pytest.raises(UserError, match=match):
        read_tasks(write(tmp_path, *rows))


def test_a_folder_without_tasks_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no task .* expected at least one; `dvc repro curate` makes them"):
        read_tasks(tmp_path)


def test_where_no_corpus_has_text_there_is_no_task(tmp_path):
    (tmp_path / NO_TASKS).touch()
    assert read_tasks(tmp_path) == []


def items(count):
    return [{**TARGET, "id": str(i), "context": f"context {i}", "document": f"d{i // 2}"} for i in range(count)]


def sampler(pool, room):
    return FittingSampler(
        pool,
        count=lambda text: len(text.split()),
        render=lambda item: f"{item['context']} {item['target']} ",
        scored=lambda item: [f"{item['context']} {item['target']}"],
        room=room,
    )


def test_examples_come_from_other_documents_and_fewer_shots_are_a_prefix():
    pool = items(12)
    for item in pool:
        several = sampler(pool, 1000).sample(4, eval_doc=item)
        assert len({example["id"] for example in several}) == 4
        assert item["document"] not in {example["document"] for example in several}
        assert sampler(pool, 1000).sample(1, eval_doc=item) == several[:1]
    assert len({sampler(pool, 1000).sample(1, eval_doc=item)[0]["id"] for item in pool}) > 3


@pytest.mark.parametrize(("room", "fitting"), [(2, 0), (5, 0), (6, 1), (9, 2), (15, 4), (100, 4)])
def test_as_many_examples_as_the_sequence_holds(room, fitting):
    pool = items(12)  # 3 words each
    drawn = sampler(pool, room)
    assert len(drawn.sample(4, eval_doc=pool[0])) == fitting
    assert drawn.taken == [fitting]


def test_an_example_that_does_not_fit_makes_room_for_one_that_does():
    pool = [*items(2), {**TARGET, "context": "long " * 20, "document": "d5"}, {**TARGET, "document": "d6"}]
    for room in range(6, 20):
        (example,) = sampler(pool, room).sample(2, eval_doc=pool[0])
        assert example["document"] == "d6"


def test_prompts_read_as_the_text_does(tmp_path):
    (target,) = read_tasks(write(tmp_path, TARGET, {**TARGET, "context": "five", "target": "six", "document": "d9"}))
    task = build_task(target, 1, count=len, room=1000)
    assert task.fewshot_context(target.items[0], 1) == "five six\n\none two"
    assert task.doc_to_target(target.items[0]) == " three"

    (choice,) = read_tasks(write(tmp_path, CHOICE, {**CHOICE, "context": "five", "document": "d9"}))
    task = build_task(choice, 1, count=len, room=1000)
    context = task.fewshot_context(choice.items[0], 1)
    assert context == "five four\n\none two"
    requests = task.construct_requests(choice.items[0], context, metadata=("task", 0, 1))
    assert [request.args for request in requests] == [(context, " three"), (context, " four")]
