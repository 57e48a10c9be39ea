import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treering.config.corpora import TaskConfig
from treering.data.curate.decontaminate import task_ngrams
from treering.data.curate.tasks import sentences, write_tasks
from treering.data.words import word_hashes, words
from treering.errors import UserError


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def documents(prose: Callable[[int], str]) -> list[tuple[str, dict[str, Any]]]:
    return [("own", {"id": f"doc-{seed}", "text": prose(seed)}) for seed in range(12)]


def test_sentences() -> None:
    assert sentences("One  two. Three, e.g. four! “Five?” six\nSeven") == [
        "One two.",
        "Three, e.g. four!",
        "“Five?” six",
        "Seven",
    ]


def test_lambada_target_ends_a_passage_that_holds_it(
    tmp_path: Path, documents: list[tuple[str, dict[str, Any]]]
) -> None:
    counts = write_tasks(documents, tmp_path, TaskConfig(num_items=20), 0)
    items = rows(tmp_path / "lambada.jsonl")
    assert counts["lambada"] == len(items) == 20
    text_of = {row["id"]: " ".join(row["text"].split()) for _, row in documents}
    for item in items:
        assert item["text"] == f"{item['context']} {item['target']}"
        assert item["target"].lower() in words(item["context"])
        assert item["text"] in text_of[item["document"]]
        assert 20 <= len(item["context"].split()) <= 70


def test_cloze_gold_goes_on_and_the_others_are_elsewhere(
    tmp_path: Path, documents: list[tuple[str, dict[str, Any]]]
) -> None:
    write_tasks(documents, tmp_path, TaskConfig(num_items=20, context_words=40), 0)
    items = rows(tmp_path / "cloze.jsonl")
    text_of = {row["id"]: row["text"] for _, row in documents}
    assert len(items) == 20
    assert len({item["gold"] for item in items}) > 1
    for item in items:
        assert len(set(item["choices"])) == 4
        assert [f"{item['context']} {choice}" in text_of[item["document"]] for choice in item["choices"]] == [
            number == item["gold"] for number in range(4)
        ]


def test_every_document_comes_before_any_comes_twice(
    tmp_path: Path, documents: list[tuple[str, dict[str, Any]]]
) -> None:
    write_tasks(documents, tmp_path, TaskConfig(num_items=12), 0)
    assert len({item["document"] for item in rows(tmp_path / "lambada.jsonl")}) == 12


def test_a_task_without_items_has_no_file(tmp_path: Path) -> None:
    assert write_tasks([("own", {"id": "a", "text": "Short."})], tmp_path, TaskConfig(), 0) == {
        "lambada": 0,
        "cloze": 0,
    }
    assert list(tmp_path.iterdir()) == []


class TestDecontamination:
    def task(self, path: Path, *items: dict[str, object]) -> Path:
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        return path

    def test_thirteen_words_contaminate_and_twelve_do_not(self, tmp_path: Path) -> None:
        text = [f"w{number}" for number in range(40)]
        ngrams = task_ngrams([self.task(tmp_path / "quiz.jsonl", {"id": "0", "text": " ".join(text)})], 13)
        assert ngrams.contaminated_by(word_hashes("Look: " + " ".join(text[7:20]).upper() + "!")) == "quiz"
        assert ngrams.contaminated_by(word_hashes(f"x {' '.join(text[7:19])} y {' '.join(text[20:32])}")) is None

    def test_every_choice_counts_and_a_match_across_the_seam(self, tmp_path: Path) -> None:
        item = {
            "context": "a b c d e f g h i j k l",
            "choices": ["m n o p", "1 2 3 4 5 6 7 8 9 10 11 12 13"],
            "gold": 0,
        }
        ngrams = task_ngrams([self.task(tmp_path / "cloze.jsonl", item)], 13)
        assert ngrams.contaminated_by(word_hashes("c d e f g h i j k l m n o")) == "cloze"
        assert ngrams.contaminated_by(word_hashes("so 1 2 3 4 5 6 7 8 9 10 11 12 13")) == "cloze"

    def test_a_short_text_is_one_ngram(self, tmp_path: Path) -> None:
        ngrams = task_ngrams(
            [self.task(tmp_path / "quiz.jsonl", {"text": "one two three four five six seven eight"})], 13
        )
        assert ngrams.contaminated_by(word_hashes("zero one two three four five six seven eight nine")) == "quiz"

    def test_names_are_no_text(self, tmp_path: Path) -> None:
        item = {"text": "a b c d e f g h", "document": "1 2 3 4 5 6 7 8 9 10 11 12", "id": "pages/k/l/m/n/o/p/q/r"}
        ngrams = task_ngrams([self.task(tmp_path / "q.jsonl", item)], 13)
        assert ngrams.contaminated_by(word_hashes("1 2 3 4 5 6 7 8 9 10 11 12 pages/k/l/m/n/o/p/q/r")) is None
        assert ngrams.contaminated_by(word_hashes("x a b c d e f g h x")) == "q"

    def test_a_whole_text_under_a_name_counts(self, tmp_path: Path) -> None:
        words = [f"w{number}" for number in range(30)]
        item = {"document": " ".join(words), "summary": "a b c d e f g h"}
        ngrams = task_ngrams([self.task(tmp_path / "news.jsonl", item)], 13)
        assert ngrams.contaminated_by(word_hashes(" ".join(words[10:23]))) == "news"

    def test_texts_inside_objects_and_lists_count(self, tmp_path: Path) -> None:
        deep, wide = (" ".join(f"{letter}{number}" for number in range(13)) for letter in "dw")
        item = {"question": "q", "choices": {"text": ["no", deep], "label": ["A", "B"]}, "turns": [[{"says": wide}]]}
        ngrams = task_ngrams([self.task(tmp_path / "arc.jsonl", item)], 13)
        assert [ngrams.contaminated_by(word_hashes(text)) for text in (deep, wide, "no")] == ["arc", "arc", None]

    def test_digest_ignores_names_of_tasks(self, tmp_path: Path) -> None:
        first = self.task(tmp_path / "a.jsonl", {"text": "a b c d e f g h", "document": "x"})
        second = self.task(tmp_path / "b.jsonl", {"text": "a b c d e f g h", "document": "y"})
        assert task_ngrams([first], 8).digest == task_ngrams([second], 8).digest

    def test_without_tasks_nothing_is_contaminated(self) -> None:
        assert task_ngrams([], 13).contaminated_by(word_hashes(" ".join("abcdefghijklmnop"))) is None

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "does not exist; refusing"),
            ("", "is empty.*refusing"),
            ("\n\n", "is empty.*refusing"),
            ("{", "is not a JSON Lines file"),
            ("[1]\n", "line 1: expected a JSON object"),
            ("caf\udce9", "is not a JSON Lines file"),
            ("[" * 100_000, "is not a JSON Lines file: nested too deeply"),
            ('{"text": "a", "text": "b"}', "is not a JSON Lines file: a key occurs twice"),
            ('{"text": "too short"}\n', "adds no 13-gram, expected at least one.*refusing"),
        ],
    )
    def test_an_unusable_task_fails_closed(self, tmp_path: Path, content: str | None, message: str) -> None:
        good = self.task(tmp_path / "good.jsonl", {"text": " ".join(f"w{n}" for n in range(20))})
        bad = tmp_path / "bad.jsonl"
        if content is not None:
            bad.write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(UserError, match=message):
            task_ngrams([good, bad], 13)
