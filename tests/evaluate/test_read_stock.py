"""The user's files for tasks of lm-eval: which forms are read, and what is refused, with task, file, line and field."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from suite_files import SUITE, rows, write_rows

from treering.config.operation import EvaluationConfig, EvaluationTask
from treering.errors import UserError
from treering.project import Project

pytestmark = pytest.mark.trainer


def read(root, task, files, **options):
    from treering_trainer.evaluate.read_stock import read_stock_tasks

    (found,) = read_stock_tasks(Project(root), [EvaluationTask(task=task, files=files, **options)], (0, 1))
    return found


def documents(task):
    built = task.build(0, lambda *_: True)
    return [(built.doc_to_text(doc), built.doc_to_target(doc), built.doc_to_choice(doc)) for doc in built.eval_docs]


LETTERS = {0: "e", 1: "n", 2: "c"}
LABELS = ("entailment", "non-entailment")


def published(task, row):
    """A record in the form of the data set's authors."""
    if task == "anli_r2":
        names = {"premise": "context"}
        return {names.get(key, key): value for key, value in row.items()} | {"label": LETTERS[row["label"]]}
    if task == "hans":
        names = {"premise": "sentence1", "hypothesis": "sentence2"}
        rest = {names.get(key, key): value for key, value in row.items() if key != "label"}
        return rest | {"gold_label": LABELS[row["label"]]}
    if task == "race":
        problems = eval(row["problems"])  # noqa: S307 - of our own making
        lists = {f"{key}s": [each[key] for each in problems] for key in ("question", "answer")}
        return {"article": row["article"], "options": [each["options"] for each in problems], **lists}
    if task == "hellaswag":
        return row | {"label": int(row["label"])}
    return row | {"label": bool(row["label"])}


@pytest.mark.parametrize("task", ["anli_r2", "boolq", "hans", "hellaswag", "race", "wic"])
def test_the_authors_form_is_read_as_the_hubs(task, tmp_path):
    split = SUITE[task][1][0]
    hub = rows(task, split, 3)
    theirs = write_rows(tmp_path / "hub.jsonl", hub)
    ours = write_rows(tmp_path / "own.jsonl", [published(task, row) for row in hub])
    table = tmp_path / "hub.parquet"
    pq.write_table(pa.Table.from_pylist(hub), table)
    expected = documents(read(tmp_path, task, {split: str(theirs)}, shots=(0,)))
    assert len({text for text, *_ in expected}) == 3
    assert documents(read(tmp_path, task, {split: str(ours)}, shots=(0,))) == expected
    assert documents(read(tmp_path, task, {split: str(table)}, shots=(0,))) == expected


def test_raw_text_is_cut_into_articles_and_lines(tmp_path):
    first = " \n = Gold dollar = \n \n Text of @-@ one . \n \n = = Part = = \n \n More . \n"
    second = " \n = Other = \n \n Two . \n"
    (tmp_path / "wiki.test.raw").write_text(f"{first}{second}")
    task = read(tmp_path, "wikitext103", "wiki.test.raw")
    pages = [doc["page"] for doc in task.splits["test"]]
    assert [page.split(" = ")[1] for page in pages] == ["Gold dollar", "Other"]
    assert pages[0].endswith("More . \n ")
    assert task.shots == (0,)
    (tmp_path / "lambada.txt").write_text("one two three\n\nfour five\n")
    task = read(tmp_path, "lambada_openai", "lambada.txt")
    assert [doc["text"] for doc in task.splits["test"]] == ["one two three", "four five"]


def test_a_line_that_is_no_record_does_not_move_the_numbers_of_others(tmp_path):
    texts = [json.dumps(row) for row in rows("piqa", "validation", 2)]
    (tmp_path / "piqa.jsonl").write_text("\n".join([texts[0], "", texts[1]]))
    task = read(tmp_path, "piqa", "piqa.jsonl", shots=(0,))
    assert [task.item_id(number) for number in (0, 1)] == ["line 1", "line 3"]


def test_the_split_that_is_given_is_scored(tmp_path):
    files = {split: str(write_rows(tmp_path / f"{split}.jsonl", rows("anli_r1", split, 3))) for split in ("dev", "x")}
    task = read(tmp_path, "anli_r1", {"validation": files["dev"], "train_r1": files["x"]})
    assert task.scored.name == "dev.jsonl"
    assert task.digests.keys() == {"dev_r1", "train_r1"}
    assert len(task.build(1, lambda *_: True).eval_docs) == 3


def without(field):
    return {key: value for key, value in rows("boolq", "validation", 1)[0].items() if key != field}


ROW = rows("boolq", "validation", 1)[0]


@pytest.mark.parametrize(
    ("task", "records", "files", "match"),
    [
        ("helaswag", [ROW], "f.jsonl", "task: found 'helaswag', expected a task of lm-eval .* like it: hellaswag"),
        ("race", [ROW], "none.jsonl", "race: files: test: .*none.jsonl: not readable .*No such file"),
        ("boolq", [ROW], {"test": "f.jsonl"}, "files: found the split 'test', expected one of train, validation"),
        ("boolq", [ROW], {"train": "f.jsonl"}, "boolq: files: validation: missing, expected the file that is scored"),
        ("boolq", [ROW], "f.jsonl", "files: train: missing, expected the file of the examples; add `train: FILE`"),
        ("anli_r1", [ROW], {"dev_r1": "f.jsonl"}, "anli_r1: files: train: missing"),
        ("lambada_openai", [{"text": "a b"}], "f.jsonl", "shots: found 1, but the file of the examples has 1 records"),
        ("wikitext103", [{"text": "a b"}], "f.jsonl", "files: test: .*f.jsonl line 1: page: missing"),
        ("lambada_openai", [{"text": "a b"}, {"words": "c"}], "f.jsonl", "line 2: text: missing, expected a text"),
        ("lambada_openai", [{"text": "a b"}, {"text": 3}], "f.jsonl", "line 2: text: found 3, expected a text"),
        ("lambada_openai", [{"text": "a"}, "{"], "f.jsonl", "f.jsonl line 2: not JSON"),
        ("lambada_openai", [{"text": "a"}, []], "f.jsonl", "f.jsonl line 2: a list, expected an object"),
        ("lambada_openai", [], "f.jsonl", "f.jsonl: found no record"),
        ("boolq", [without("passage")], {"validation": "f.jsonl", "train": "f.jsonl"}, "line 1: passage: missing"),
        ("boolq", [without("label")], {"validation": "f.jsonl", "train": "f.jsonl"}, "line 1: label: missing"),
        ("boolq", [ROW, without("label")], {"validation": "f.jsonl", "train": "f.jsonl"}, "line 2: label: missing"),
        (
            "anli_r3",
            [{"context": "a", "hypothesis": "b", "label": "x"}],
            {"test": "f.jsonl", "train": "f.jsonl"},
            "anli_r3: files: test_r3: .*f.jsonl line 1: label: found 'x', expected one of \"e\", \"n\", \"c\"",
        ),
        ("humaneval", [ROW], "f.jsonl", "it runs code that the model writes, expected a task of texts alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_refused(task, records, files, match, tmp_path):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (tmp_path / "f.jsonl").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UserError, match=match):
        read(tmp_path, task, files)


def test_whole_texts_have_no_examples(tmp_path):
    write_rows(tmp_path / "f.jsonl", rows("wikitext103", "test", 2))
    with pytest.raises(UserError, match=r"wikitext103: shots: found \[0, 1\], expected \[0\]: whole texts"):
        read(tmp_path, "wikitext103", "f.jsonl", shots=(0, 1))


def test_an_item_without_its_answer_is_refused_when_its_prompt_is_made(tmp_path):
    records = rows("piqa", "validation", 3)
    records[1]["label"] = -1  # as in the Hub's test split
    write_rows(tmp_path / "f.jsonl", records)
    task = read(tmp_path, "piqa", "f.jsonl", shots=(0,)).build(0, lambda *_: True)
    with pytest.raises(UserError, match=r"piqa: .*f.jsonl line 2: the answer is -1, expected a number from 0 to 1"):
        task.build_all_requests()
    task = read(tmp_path, "piqa", {"validation": "f.jsonl", "train": "f.jsonl"}, shots=(2,)).build(2, lambda *_: True)
    with pytest.raises(UserError, match=r"piqa: .*: the answer is -1"):
        task.build_all_requests()


def test_a_definition_may_name_a_class(tmp_path):
    answers = {"text": ["two"], "answer_start": [4]}
    record = {"id": "q1", "title": "t", "context": "one two", "question": "which?", "answers": answers}
    records = [record, {**record, "id": "q2"}]
    write_rows(tmp_path / "f.jsonl", records)
    task = read(tmp_path, "squadv2", {"validation": "f.jsonl", "train": "f.jsonl"}).build(0, lambda *_: True)
    task.build_all_requests()
    assert [request.request_type for request in task.instances] == ["generate_until", "loglikelihood"] * 2
    assert "Title: t" in task.instances[0].args[0]


def test_a_task_is_listed_once():
    entry = {"task": "piqa", "files": "f.jsonl"}
    with pytest.raises(ValueError, match="piqa twice, expected each task once"):
        EvaluationConfig(tasks=[entry, entry])
    assert EvaluationConfig(tasks=[entry]).model_dump(mode="json")["tasks"][0]["task"] == "piqa"
    assert "tasks" not in EvaluationConfig().model_dump(mode="json")


def test_influence_has_the_metric_as_its_mean_and_its_noise_as_its_spread():
    from lm_eval.api.metrics import bits_per_byte, mean_stderr, weighted_perplexity

    from treering_trainer.evaluate.influence import influence

    rng = random.Random(4)
    draw = lambda: {  # noqa: E731
        str(number): (-4.0 * words + rng.gauss(0, 9), words) for number in range(400) if (words := rng.randint(50, 150))
    }
    texts = draw()
    for metric, aggregate in (("word_perplexity", weighted_perplexity), ("bits_per_byte", bits_per_byte)):
        values = influence(metric, texts)
        assert sum(values.values()) / 400 == pytest.approx(aggregate(list(texts.values())), rel=1e-12)
        scores = [aggregate(list(draw().values())) for _ in range(200)]
        spread = (sum((s - sum(scores) / 200) ** 2 for s in scores) / 199) ** 0.5
        assert mean_stderr(list(values.values())) == pytest.approx(spread, rel=0.2)
