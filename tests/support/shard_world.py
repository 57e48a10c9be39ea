"""A tiny project whose corpora are cut into small shards, for tests of engines."""

import json
from pathlib import Path
from typing import Any

from prose_text import make_text

from treering.config.corpora import CorpusConfig, DecontaminationConfig
from treering.data.curate.engines import Engine
from treering.data.curate.pipeline import curate

SMALL = 3_000


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


LEAK = " Of the thirteen words in this sentence, each one is in a task too, I am told. "


class World:
    """A tiny project with duplicates and a leaked task across its shards and corpora."""

    def __init__(self, tiny: Any) -> None:
        self.tiny = tiny
        tiny.rows += [
            {"id": "short", "text": "Too short."},
            {"id": "again", "text": tiny.rows[3]["text"]},
            {"id": "almost", "text": tiny.rows[4]["text"] + " And so on."},
        ]
        for row in tiny.rows[20:24]:
            row["text"] = row["text"][:600] + LEAK + row["text"][600:]
        (tiny.project.root / "quiz.jsonl").write_text(json.dumps({"text": LEAK}) + "\n")
        cutting = DecontaminationConfig(rule="cut", tasks=("quiz.jsonl",))
        tiny.config = tiny.config.model_copy(update={"decontamination": cutting})
        tiny.pages["Copied"] = f"<p>{tiny.rows[5]['text']}</p>"
        self.corpora = tiny.corpora()
        capped = tiny.project.raw / "capped"
        capped.mkdir()
        for number, name in enumerate("abc"):
            rows = [{"text": make_text(2000 + 100 * number + seed)} for seed in range(15)]
            rows[2]["text"] = rows[2]["text"][:600] + LEAK + rows[2]["text"][600:]
            rows[7:7] = [{"text": "Too short."}, {"text": tiny.rows[6 + number]["text"]}]
            (capped / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.corpora.append(CorpusConfig(name="capped", licence="MIT", jsonl="*.jsonl", max_megabytes=0.03))

    def curate(self, engine: Engine, shard_bytes: int = SMALL, **rest: Any) -> dict[str, bytes]:
        curate(
            self.corpora, self.tiny.config, self.tiny.project, lambda _: None,
            engine=engine, shard_bytes=shard_bytes, **rest,
        )  # fmt: skip
        return tree(self.tiny.project.curated)
