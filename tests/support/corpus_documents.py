"""All documents of a corpus, shard after shard in one process."""

from collections.abc import Iterator
from pathlib import Path

from treering.config.corpora import CorpusConfig
from treering.data.sources.documents import Intake, RawDocument
from treering.data.sources.raw import cap_bytes, read_shard, source_of


def read_corpus(
    corpus: CorpusConfig, directory: Path, intake: Intake, shard_bytes: int = 1 << 40
) -> Iterator[RawDocument]:
    """Yields the documents of one corpus; a cap is that of the first shard."""
    _, shards = source_of(corpus, directory, shard_bytes)
    for pieces in shards:
        yield from read_shard(corpus, directory, pieces, cap_bytes(corpus), intake)
