"""Megabytes of a web crawl that are read and extracted in a second of processor time, beside datatrove.

    pip install datatrove==0.10.1 trafilatura faust-cchardet python-magic 'xxhash<4'
    python experiments/benchmarks/web_pages.py --json out.json FILE.warc.gz …

in an environment of its own, since datatrove needs an older xxhash than Treering pins.

Measures in one process and in turns, over the HTML pages of WARC files:

- `read`: records to decoded pages, with every checksum, by Treering;
- `main`, `plain`, `justext`: text of the pages by each `extraction`, with ftfy's repair, without reading;
- `datatrove read` and `datatrove trafilatura`: its WARC reader, and its extractor over the same pages as `main`, called
  without the process that it starts to end slow pages. Without the package they are left out.

Rates count the bytes of the decoded pages in UTF-8 in every row. Small files are read as often as `--repeat` says.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from curation_speed import cpu_seconds

from treering.config.corpora import CorpusConfig, Extraction
from treering.data.curate.extract import extract
from treering.data.curate.shards import SHARD_BYTES
from treering.data.sources.documents import Intake
from treering.data.sources.raw import read_shard, source_of

EXTRACTIONS: tuple[Extraction, ...] = ("main", "plain", "justext")


def read(folder: Path) -> list[str]:
    """The pages of the files in a folder."""
    corpus = CorpusConfig(name="web", licence="unknown", kind="html", warc="*")
    intake = Intake()
    _, shards = source_of(corpus, folder, SHARD_BYTES)
    return [row.text for pieces in shards for row in read_shard(corpus, folder, pieces, None, intake)]


def datatrove_read(folder: Path) -> list[str]:
    """The same by datatrove."""
    from datatrove.pipeline.readers import WarcReader

    return [document.text for document in WarcReader(str(folder)).run()]


def trafilatura(pages: list[str]) -> list[str]:
    """The text of the pages by datatrove's extractor, as it is called in its own process."""
    from datatrove.pipeline.extractors import Trafilatura

    extractor = Trafilatura()
    return [extractor.extract(page) or "" for page in pages]


def copies_of(files: list[Path], count: int, folder: Path) -> list[Path]:
    """Folders with a copy of the files each, since a corpus has a record once."""
    folders = [folder / str(number) for number in range(count)]
    for each in folders:
        each.mkdir()
        for number, file in enumerate(files):
            shutil.copyfile(file, each / f"{number}-{file.name}")
    return folders


def work_of(folders: list[Path], pages: list[str]) -> dict[str, Callable[[], Any]]:
    """What is measured, by name; each was done once."""
    work: dict[str, Callable[[], Any]] = {"read": lambda: [read(folder) for folder in folders]}
    for how in EXTRACTIONS:
        extract(pages[0], "html", how)
        work[how] = lambda how=how: [extract(page, "html", how) for page in pages]
    if find_spec("datatrove"):
        datatrove_read(folders[0])
        trafilatura(pages[:1])
        work["datatrove read"] = lambda: [datatrove_read(folder) for folder in folders]
        work["datatrove trafilatura"] = lambda: trafilatura(pages)
    return work


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="WARC files")
    parser.add_argument("--repeat", type=int, default=10, help="how often a file is read in a round")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folders = copies_of(arguments.files, arguments.repeat, Path(name))
        pages = read(folders[0])
        work = work_of(folders, pages)
        seconds: dict[str, list[float]] = {each: [] for each in work}
        for _ in range(arguments.rounds):
            for each, run in work.items():
                seconds[each].append(cpu_seconds(run))
        characters = {each: sum(map(len, run())) for each, run in work.items() if not each.endswith("read")}

    megabytes = sum(len(page.encode("utf-8", "replace")) for page in pages) / 1e6
    packed = sum(path.stat().st_size for path in arguments.files) / 1e6
    rates = {
        each: megabytes * (arguments.repeat if each.endswith("read") else 1) / min(times)
        for each, times in seconds.items()
    }
    for reader, extractor in (*(("read", how) for how in EXTRACTIONS), ("datatrove read", "datatrove trafilatura")):
        if reader in rates:
            rates[f"{reader} + {extractor}"] = 1 / (1 / rates[reader] + 1 / rates[extractor])
    result = {
        "machine": {"processor": platform.processor() or platform.machine(), "load_average": os.getloadavg()[0]},
        "time": time.strftime("%Y-%m-%d"),
        "files": [file.name for file in arguments.files],
        "pages": len(pages),
        "megabytes": megabytes,
        "megabytes_of_files": packed,
        "characters_of_text": characters,
        "cpu_seconds": seconds,
        "megabytes_a_cpu_second": rates,
    }
    for each, rate in rates.items():
        print(f"{each:<40}{rate:8.1f} MB of pages, {rate * packed / megabytes:8.2f} MB of files a CPU second")
    if "datatrove read" not in rates:
        print("datatrove is not installed; its figures are left out (see --help)")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
