"""Small files in the schemas that the data sets of the MT-NLG suite have on the Hugging Face Hub, of made-up texts."""

import json
import random
from pathlib import Path
from typing import Any

WORDS = [a + b + c for a in "bcdfg" for b in "aeiou" for c in "lmnrst"]

Row = dict[str, Any]


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(rng.choices(WORDS, k=length))


def anli(rng: random.Random, number: int) -> Row:
    return {
        "uid": f"u{number}",
        "premise": sentence(rng, 6),
        "hypothesis": sentence(rng, 4),
        "label": number % 3,
        "reason": "",
    }


def boolq(rng: random.Random, number: int) -> Row:
    return {"question": sentence(rng, 4), "passage": sentence(rng, 7), "idx": number, "label": number % 2}


def hans(rng: random.Random, number: int) -> Row:
    heuristic = ("lexical_overlap", "subsequence", "constituent")[number % 3]
    return {
        "premise": sentence(rng, 6),
        "hypothesis": sentence(rng, 4),
        "label": number % 2,
        "heuristic": heuristic,
        "subcase": f"{heuristic}_{number % 2}",
        "template": "t1",
    }


def hellaswag(rng: random.Random, number: int) -> Row:
    return {
        "ind": number,
        "activity_label": sentence(rng, 2),
        "ctx_a": sentence(rng, 5),
        "ctx_b": sentence(rng, 2),
        "ctx": "",
        "endings": [f"{sentence(rng, 3)} [title] {sentence(rng, 2)}." for _ in range(4)],
        "source_id": "",
        "split": "val",
        "split_type": "indomain",
        "label": str(number % 4),
    }


def lambada(rng: random.Random, number: int) -> Row:  # noqa: ARG001
    return {"text": sentence(rng, 8)}


def piqa(rng: random.Random, number: int) -> Row:
    return {"goal": sentence(rng, 4), "sol1": sentence(rng, 4), "sol2": sentence(rng, 4), "label": number % 2}


def race(rng: random.Random, number: int) -> Row:
    problems = [
        {"question": sentence(rng, 3) + "?", "options": [sentence(rng, 2) for _ in range(4)], "answer": "ABCD"[i % 4]}
        for i in range(number, number + 2)
    ]
    return {"article": sentence(rng, 8), "problems": repr(problems)}


def wic(rng: random.Random, number: int) -> Row:
    word = rng.choice(WORDS)
    first, second = f"{word} {sentence(rng, 3)}", f"{sentence(rng, 1)} {word} {sentence(rng, 2)}"
    start = second.index(word)
    return {
        "word": word,
        "sentence1": first,
        "sentence2": second,
        "start1": 0,
        "end1": len(word),
        "start2": start,
        "end2": start + len(word),
        "idx": number,
        "label": number % 2,
    }


def wikitext(rng: random.Random, number: int) -> Row:
    paragraphs = "".join(f" {sentence(rng, 20)} @-@ {sentence(rng, 10)} . \n" for _ in range(2 + 3 * number))
    return {"page": f" = {sentence(rng, 2)} = \n \n = = {sentence(rng, 1)} = = \n \n{paragraphs} \n"}


def winogrande(rng: random.Random, number: int) -> Row:
    one, two = rng.sample(WORDS, 2)
    return {
        "sentence": f"{sentence(rng, 4)} _ {sentence(rng, 3)}.",
        "option1": one,
        "option2": two,
        "answer": str(1 + number % 2),
    }


SUITE = {
    "lambada_openai": (lambada, ("test",)),
    "race": (race, ("test",)),
    "boolq": (boolq, ("validation", "train")),
    "piqa": (piqa, ("validation", "train")),
    "hellaswag": (hellaswag, ("validation", "train")),
    "winogrande": (winogrande, ("validation", "train")),
    "anli_r1": (anli, ("test_r1", "train_r1")),
    "anli_r2": (anli, ("test_r2", "train_r2")),
    "anli_r3": (anli, ("test_r3", "train_r3")),
    "hans": (hans, ("validation", "train")),
    "wic": (wic, ("validation", "train")),
    "wikitext103": (wikitext, ("test", "validation")),
}
"""By task: what makes a record, and the splits that are read."""


def rows(task: str, split: str, count: int) -> list[Row]:
    make, _ = SUITE[task]
    rng = random.Random(f"{task} {split}")
    return [make(rng, number) for number in range(count)]


def write_rows(path: Path, records: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_suite(folder: Path, count: int = 6) -> dict[str, dict[str, str]]:
    """Writes every task of the suite; gives `files` of each."""
    return {
        task: {split: str(write_rows(folder / task / f"{split}.jsonl", rows(task, split, count))) for split in splits}
        for task, (_, splits) in SUITE.items()
    }
