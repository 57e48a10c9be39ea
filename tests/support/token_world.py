"""Curated text of two corpora, and what stage `tokenize` makes of it; as a program it dies by -9 on the way.

    python token_world.py ROOT PART DONE

tokenizes by small shards, and kills itself when `progress` says that so much of that part is done.
"""

import json
import os
import signal
import sys
from pathlib import Path

from prose_text import make_text

from treering.config.corpora import CorpusConfig, CurationConfig, TokenizerConfig
from treering.data.tokenize.stage import tokenize
from treering.project import Project

SMALL = 6_000
TEXTS = {"train/own": 30, "heldout/own": 2, "train/more": 12, "heldout/more": 1}


class TokenWorld:
    """A project with curated text; `said` is what the stage reports."""

    def __init__(self, root):
        self.project = Project(root)
        self.said = []
        self.corpora = [CorpusConfig(name=name, licence="MIT", jsonl="texts/*.jsonl") for name in ("own", "more")]

    def write(self):
        """Writes the curated text; returns this world."""
        for number, (name, count) in enumerate(TEXTS.items()):
            path = self.project.curated / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [
                {
                    "id": f"{path.stem}-{index}", "text": make_text(1000 * number + index) + " é中" * (index % 3),
                    "source": "s", "offset": index, "licence": "MIT",
                }
                for index in range(count)
            ]  # fmt: skip
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        for corpus in self.corpora:
            path = self.project.curated / "provenance" / f"{corpus.name}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text('[{"input": "sha256:0"}]')
        return self

    def tokenize(self, **rest):
        """Runs the stage; returns all bytes that it wrote."""
        config = TokenizerConfig(vocabulary_size=600)
        tokenize(self.corpora, config, CurationConfig(num_processes=1), self.project, self.said.append, **rest)
        return self.result()

    def result(self):
        """All bytes of `data/corpora`."""
        root = self.project.corpora
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}

    @property
    def finished(self):
        """The shards that an interrupted stage had finished."""
        return [path.parent for path in (self.project.root / ".treering/tokenize/shards").glob("*/record.json")]


if __name__ == "__main__":
    ROOT, PART, DONE = sys.argv[1:]

    def kill(part, done, _total):
        """Ends this process at once."""
        if (part, done) == (PART, int(DONE)):
            os.kill(os.getpid(), signal.SIGKILL)

    TokenWorld(Path(ROOT)).tokenize(shard_bytes=SMALL, progress=kill)
