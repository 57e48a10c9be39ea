"""A project with a quality classifier: prose is declared good, a crawl of source code with some prose is judged."""

import argparse
import inspect
import json
import typing
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from prose_text import make_text

from treering.config.corpora import CorpusConfig, CurationConfig, FilterRules
from treering.config.quality import QualityConfig
from treering.data.curate.engines import Engine, ProcessEngine
from treering.data.curate.pipeline import curate
from treering.project import Project

LOOSE = FilterRules(
    min_characters=100, languages=(), min_words=5, min_mean_word_length=None, max_mean_word_length=None,
    max_symbol_to_word_ratio=None, max_bullet_line_fraction=None, max_ellipsis_line_fraction=None,
    min_alphabetic_word_fraction=None, min_stop_words=0, max_duplicate_line_fraction=None, forbidden_phrases=(),
)  # fmt: skip


def pieces(text: str, length: int = 600) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text) - length, length)]


def prose() -> list[str]:
    return pieces("\n".join(topics.values()))


def source_code() -> list[str]:
    return pieces(
        "\n".join(Path(str(module.__file__)).read_text() for module in (argparse, typing, inspect, json.decoder))
    )


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class QualityWorld:
    """A project with corpora `manual` (good), `crawl` (judged) and `plain` (neither)."""

    def __init__(self, root: Path, num_good: int = 200) -> None:
        self.project = Project(root)
        good, bad = prose(), source_code()
        crawl = [{"id": f"code-{number}", "text": text} for number, text in enumerate(bad[:450])]
        crawl += [{"id": f"prose-{number}", "text": text} for number, text in enumerate(good[-20:])]
        crawl += [{"id": "both", "text": good[0]}, {"id": "short", "text": "Too short."}]
        manual = [{"id": f"page-{number}", "text": text} for number, text in enumerate(good[:num_good])]
        plain = [{"id": f"doc-{seed}", "text": make_text(seed)} for seed in range(20)]
        self.corpora = [self.corpus("manual", manual), self.corpus("crawl", crawl), self.corpus("plain", plain)]

    def corpus(self, name: str, rows: list[dict[str, str]]) -> CorpusConfig:
        folder = self.project.raw / name
        folder.mkdir(parents=True)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return CorpusConfig(name=name, licence="MIT", jsonl=f"{name}.jsonl", rules=LOOSE)

    def curate(self, engine: Engine | None = None, shard_bytes: int = 1 << 40, **quality: Any) -> dict[str, bytes]:
        section = QualityConfig(**{"good": ("manual",), "corpora": ("crawl",), **quality})
        config = CurationConfig(seed=5, quality=section)
        curate(
            self.corpora,
            config,
            self.project,
            lambda _: None,
            engine=engine or ProcessEngine(),
            shard_bytes=shard_bytes,
        )
        return tree(self.project.curated)
