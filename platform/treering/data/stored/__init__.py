"""Curated documents and corpora in an object store, named by their digests.

    <url>/corpora/<sha256>/                   corpus.bin, corpus.idx, documents.parquet; manifest.json comes last
          tokenizers/<sha256>.json
          curated/<sha256>/                   the files of `data/curated`; files.json comes last
          projects/<project>.json             what a project's data was when it was last pushed

What has a digest in its name never changes, so that a push sends only what the store lacks, and readers of an older
blend find its corpora. `push` writes, `pull` brings to a folder, or opens a corpus where it is.
"""

from typing import Final

DATA_VARIABLE: Final = "TREERING_DATA_URL"
"""Names the store."""
