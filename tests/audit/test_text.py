"""Texts and evaluation examples that were planted in corpora: all are found, with their documents, tokens and steps."""

import json
import random
import re
import shutil
import unicodedata
from types import SimpleNamespace

import pytest
import run_records
import text_project
from typer.testing import CliRunner

from treering.audit.documents.contamination import find_contamination
from treering.audit.documents.exposure_index import corpora_of, project_runs
from treering.audit.documents.text import trace_text
from treering.audit.documents.text_match import TextFinder
from treering.audit.inventory import verify_paths
from treering.cli import app
from treering.config.canonical import digest_file
from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.data.blend.corpora import resolve_blend
from treering.data.corpus.corpus import Corpus
from treering.data.corpus.text import Detokenizer
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.ngram_index.build import build_index
from treering.data.ngram_index.hashes import ngram_hashes
from treering.data.ngram_index.index import NgramIndex, index_directory
from treering.data.order.treering1 import DataOrder
from treering.data.words import words
from treering.errors import EvidenceError, NotFoundError, UserError
from treering.project import Project
from treering.runlog.directory import RunDirectory

SETTINGS = {
    "seed": 7,
    "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
    "schedule": {"train_tokens": 32 * 48, "global_batch_size": 8},
    "parallel": {"micro_batch_size": 2, "data": 2},
    "checkpoint": {"every_steps": 3},
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory, laying):
    """A run of 6 steps on indexed corpora; documents of 20 to 60 words, accents among them."""
    root = tmp_path_factory.mktemp("planted")
    words_before = text_project.WORDS["letters"]
    text_project.WORDS["letters"] = [*words_before, "naïve", "日本", "é"]
    try:
        project = text_project.lay(root, text_project.experiment("tiny", **SETTINGS))
    finally:
        text_project.WORDS["letters"] = words_before
    experiment = load_experiment(root / "tiny.yaml")
    resolved = resolve(experiment, resolve_blend(experiment, project), "tiny.yaml")
    run = RunDirectory(project.run(resolved.run_id))
    run.path.mkdir(parents=True)
    resolved.write(run.path / "resolved.json")
    rings = laying.lay_attempt(project, run, 1, range(1, 7))
    for step in (3, 6):
        laying.cut_checkpoint(run, 1, rings[step - 1])
    corpora = {name: Corpus.open(project.corpus(name)) for name in text_project.WORDS}
    text_of = Detokenizer(project.tokenizer)
    facts = {name: build_index(corpus, text_of, project.index) for name, corpus in corpora.items()}
    texts = {name: text_of.documents(corpus, range(corpus.num_documents)) for name, corpus in corpora.items()}
    return SimpleNamespace(project=project, run=run, corpora=corpora, texts=texts, facts=facts)


def ngrams(text, length=13):
    found = words(text)
    return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}


def excerpt(text, first, count):
    """The stretch of a text from its `first` word on, `count` words long, as it stands there."""
    spans = [match.span() for match in re.finditer(r"\w+", text)]
    return text[spans[first][0] : spans[first + count - 1][1]]


def brute_readings(planted, name, number, part):
    """(step, sample) of every sample that held a token of a part of a document, by the tokenizer's own offsets."""
    text, corpus = planted.texts[name][number], planted.corpora[name]
    start = text.index(part)
    offsets = load_tokenizer(planted.project.tokenizer).encode(text).offsets
    tokens = [at for at, (lo, hi) in enumerate(offsets) if lo < start + len(part) and hi > start]
    first = int(corpus.document_offsets[number])
    held = {first + at for at in tokens}
    order, schedule = DataOrder(planted.run.resolved.blend), planted.run.resolved.schedule
    found = []
    for step in range(1, 7):
        for g in range(*schedule.sample_range(step)):
            sample = order.sample(g)
            if order.components[sample.component].corpus == name:
                lo = sample.index * 32
                if held & set(range(lo, lo + 33)):
                    found.append((step, g))
    return found


def test_an_index_holds_every_ngram_of_every_document(planted):
    for name, corpus in planted.corpora.items():
        index = NgramIndex(index_directory(planted.project.index, corpus.digest), corpus)
        truth = [ngrams(text) for text in planted.texts[name]]
        assert index.facts == planted.facts[name]
        assert index.facts.num_entries == sum(map(len, truth))
        assert index.facts.num_bytes == 8 * index.facts.num_entries + 16  # one block
        for text in planted.texts[name]:
            runs, _ = ngram_hashes([text], 13)
            found = [index.documents(*place).tolist() for place in zip(*index.lookup(runs), strict=True)]
            spoken = words(text)
            wanted = [tuple(spoken[at : at + 13]) for at in range(len(runs))]
            assert found == [[n for n, held in enumerate(truth) if ngram in held] for ngram in wanted]


@pytest.mark.parametrize("seed", range(12))
def test_a_planted_text_is_found_where_it_stands(seed, planted):
    chance = random.Random(seed)
    name = chance.choice(["letters", "numbers"])
    number = chance.choice([i for i, text in enumerate(planted.texts[name]) if len(words(text)) >= 20])
    text = planted.texts[name][number]
    count = chance.randint(13, 18)
    part = excerpt(text, chance.randint(0, len(words(text)) - count), count)
    found = trace_text(planted.project, part)
    assert found.unanswered == ()
    truth = {
        (corpus, at): len(ngrams(part) & ngrams(other))
        for corpus, others in planted.texts.items()
        for at, other in enumerate(others)
        if ngrams(part) & ngrams(other)
    }
    assert {(each.match.corpus, each.match.number): each.match.ngrams for each in found.matches} == truth
    first = found.matches[0]
    assert (first.match.corpus, first.match.number, first.match.exact) == (name, number, True)
    readings = brute_readings(planted, name, number, part)
    assert [(each.step, each.sample) for each in first.document.exposures] == readings
    for each in found.checkpoints:
        seen = [step for step, _sample in readings if step <= each.step]
        assert len(truth) > 1 or each.exposures == len(seen)


def test_words_that_differ_in_case_and_punctuation_match_and_are_not_exact(planted):
    text = planted.texts["letters"][3]
    part = "; ".join(word.upper() for word in words(excerpt(text, 0, 15)))
    (match,) = trace_text(planted.project, part).matches
    assert (match.match.number, match.match.exact, match.match.ngrams) == (3, False, 3)


FORMS = {
    "lower case and other punctuation": (lambda text: text.lower().replace(" ", " - "), False),
    "line ends of Windows": (lambda text: text.replace(" ", "\r\n"), True),
    "decomposed letters": (lambda text: unicodedata.normalize("NFD", text), True),
    "a byte order mark and soft hyphens": (lambda text: "\ufeff" + text.replace("na", "na\u00ad"), True),
    "character references": (lambda text: text.replace("ï", "&#239;"), True),
    "words around it": (lambda text: f"{text} more words", False),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_found_in_whatever_form_it_is_pasted(form, planted):
    number, start = next(
        (number, at - 9)
        for number, text in enumerate(planted.texts["letters"])
        for at, word in enumerate(words(text))
        if word == "naïve" and 9 <= at < len(words(text)) - 11
    )
    change, exact = FORMS[form]
    part = excerpt(planted.texts["letters"][number], start, 20)
    first = trace_text(planted.project, change(part)).matches[0].match
    assert (first.number, first.exact, first.ngrams) == (number, exact, 8)


def test_a_text_over_the_end_of_a_document_and_into_the_next(planted):
    texts = planted.texts["letters"]
    last = excerpt(texts[4], len(words(texts[4])) - 13, 13)
    (match,) = (each.match for each in trace_text(planted.project, last).matches)
    assert (match.number, match.exact, match.spans[0][1]) == (
        4,
        True,
        planted.corpora["letters"].document(4)["tokens"] - 1,
    )
    found = [each.match for each in trace_text(planted.project, f"{last} {excerpt(texts[5], 0, 14)}").matches]
    assert [(match.number, match.exact, match.ngrams) for match in found] == [(5, False, 2), (4, False, 1)]


def test_what_is_frequent_is_looked_into_in_part_and_that_is_said(planted, monkeypatch):
    texts = planted.texts["letters"]
    catalog, unanswered = corpora_of(planted.project, project_runs(planted.project))
    finder = TextFinder(planted.project, catalog, unanswered)
    everything = {"all of it": texts, "one": [texts[7]]}
    assert len(finder.find_all(everything)["all of it"]) == len([text for text in texts if len(words(text)) >= 13])
    assert unanswered == []
    monkeypatch.setattr("treering.audit.documents.text_match._MOST_DOCUMENTS", 5)
    found = finder.find_all(everything)
    assert len(found["all of it"]) == 5
    assert [match.number for match in found["one"]] == [7]
    assert unanswered == [
        "corpus letters: runs of 13 words of all of it stand in more than 5 documents: of each, 5 were looked into, "
        "those with its rarest runs first"
    ]
    monkeypatch.setattr("treering.audit.documents.text_match._MOST_DOCUMENTS", 0)  # each single run stands in more
    assert finder.find_all({"two": [texts[8]]}) == {}
    assert "runs of 13 words of two stand in more than 0 documents" in unanswered[-1]


def test_few_documents_are_kept_in_memory(planted, monkeypatch):
    monkeypatch.setattr("treering.audit.documents.text_match._KEPT_CHARACTERS", 1_000)
    catalog, unanswered = corpora_of(planted.project, project_runs(planted.project))
    finder = TextFinder(planted.project, catalog, unanswered)
    assert len(finder.find_all({"all": planted.texts["letters"]})["all"]) == len(planted.texts["letters"])
    assert 1 <= len(finder._documents) < 20


def test_damage_is_named_where_an_answer_needs_what_was_there(planted, tmp_path):
    project = Project(shutil.copytree(planted.project.root, tmp_path / "copy"))
    text, corpus = excerpt(planted.texts["letters"][9], 0, 15), planted.corpora["letters"]
    tokens = project.corpus("letters") / "corpus.bin"
    content = bytearray(tokens.read_bytes())
    content[2 * int(corpus.document_offsets[9])] ^= 1
    tokens.write_bytes(content)
    answer = trace_text(project, text)
    assert answer.matches == ()
    assert re.search(
        r"document letters-9: found tokens sha256:\w+, expected sha256:\w+; `dvc checkout`", answer.unanswered[0]
    )
    entries = index_directory(project.index, corpus.digest) / "entries.bin"
    content = bytearray(entries.read_bytes())
    content[len(content) // 2] ^= 1
    entries.write_bytes(content)
    damaged = r"entries.bin: bytes 0 to [\d,]+ were changed after they were written; `treering index --force`"
    answer = trace_text(project, text)
    assert answer.matches == ()
    assert re.search(damaged, answer.unanswered[0])
    (finding,) = verify_paths(project, [project.index]).findings
    assert re.search(damaged, finding.text)


def test_two_stretches_of_one_document_are_two_spans(planted):
    number, text = max(enumerate(planted.texts["letters"]), key=lambda item: len(words(item[1])))
    parts = [excerpt(text, 0, 13), excerpt(text, len(words(text)) - 13, 13)]
    catalog, unanswered = corpora_of(planted.project, project_runs(planted.project))
    finder = TextFinder(planted.project, catalog, unanswered)
    (match,) = finder.find_all({"both": parts, "none": ["one two three"]})["both"]
    assert match.number == number
    assert len(match.spans) == 2
    assert match.spans[0][0] == 0
    assert match.spans[0][1] <= match.spans[1][0]


def test_texts_that_cannot_be_looked_for(planted, tmp_path):
    with pytest.raises(UserError, match="found 3 words, expected at least 13"):
        trace_text(planted.project, "one two three")
    assert trace_text(planted.project, " ".join(f"w{i}" for i in range(20))).matches == ()
    bare = text_project.lay(tmp_path, text_project.experiment("tiny", **SETTINGS))
    with pytest.raises(NotFoundError, match=r"no index of corpus letters .*`treering index` builds it"):
        trace_text(bare, " ".join(f"w{i}" for i in range(20)))


def test_an_index_of_another_corpus_is_refused(planted, tmp_path):
    corpora = planted.corpora
    build_index(corpora["letters"], Detokenizer(planted.project.tokenizer), tmp_path)
    directory = index_directory(tmp_path, corpora["letters"].digest)
    with pytest.raises(EvidenceError, match="built from corpus_digest"):
        NgramIndex(directory, corpora["numbers"])
    with (directory / "entries.bin").open("ab") as file:
        file.write(b"12345678")
    with pytest.raises(EvidenceError, match=r"entries.bin: found \d+ bytes, expected"):
        NgramIndex(directory, corpora["letters"])


@pytest.fixture
def tasks(planted, tmp_path):
    """Examples cut from training documents, examples of other words, and one too short to be looked for."""
    plants = [("letters", number) for number in (2, 11, 40)] + [("numbers", 5)]
    rows = [
        {"id": f"planted-{i}", "context": excerpt(planted.texts[name][number], 1, 16), "target": "end", "document": "x"}
        for i, (name, number) in enumerate(plants)
    ]
    rows += [{"context": " ".join(f"w{i}{j}" for i in range(20)), "target": "x", "document": "x"} for j in range(3)]
    rows.append({"id": "short", "context": "too short", "target": "x", "document": "x"})
    text_project.write_jsonl(tmp_path / "tasks" / "cloze.jsonl", rows)
    return SimpleNamespace(folder=tmp_path / "tasks", plants=plants, rows=rows)


def test_planted_examples_are_found_with_their_steps(planted, tasks):
    for checkpoint in planted.run.checkpoints():
        found = find_contamination(checkpoint, planted.project, tasks.folder)
        (task,) = found.tasks
        examples = {each.id: each for each in found.examples}
        assert list(examples) == [f"planted-{i}" for i in range(4)]
        seen = 0
        for (name, number), row in zip(tasks.plants, tasks.rows, strict=False):
            readings = brute_readings(planted, name, number, row["context"])
            steps = [step for step, _sample in readings if step <= checkpoint.step]
            each = examples[row["id"]]
            assert f"{name}:{planted.corpora[name].document(number)['id']}" in each.documents
            if len(each.documents) == 1:
                assert each.exposures == len(steps)
                assert (each.first_step, each.last_step) == ((min(steps), max(steps)) if steps else (None, None))
            seen += each.seen
        assert (task.examples, task.checkable, task.in_corpora, task.seen) == (8, 7, 4, seen)
        assert task.scores == ()
        assert found.unanswered == ()
    assert seen > 0


def test_scores_are_split_by_what_was_read(planted, tasks):
    checkpoint = planted.run.checkpoints()[-1]
    found = find_contamination(checkpoint, planted.project, tasks.folder)
    seen = {each.id for each in found.examples if each.seen}
    values = {row.get("id", f"line {number}"): float(number % 2) for number, row in enumerate(tasks.rows, 1)}
    record = run_records.evaluation(
        planted.run.resolved,
        checkpoint,
        tasks={"cloze": digest_file(tasks.folder / "cloze.jsonl")},
        items={"cloze": {"0": {"acc": values}}},
    )
    path = planted.run.path / "evaluations" / "step-00000006.json"
    path.parent.mkdir()
    record.write(path)
    try:
        (score,) = find_contamination(checkpoint, planted.project, tasks.folder).tasks[0].scores
        clean = [value for name, value in values.items() if name not in seen]
        read = [value for name, value in values.items() if name in seen]
        assert (score.shots, score.metric, score.num_clean, score.num_seen) == ("0", "acc", len(clean), len(read))
        assert score.clean == pytest.approx(sum(clean) / len(clean))
        assert score.seen == pytest.approx(sum(read) / len(read))
    finally:
        path.unlink()
        path.parent.rmdir()


def test_commands(planted, tasks, tmp_path, monkeypatch):
    monkeypatch.chdir(planted.project.root)

    def invoke(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    facts = json.loads(invoke("index", "--json"))
    assert [each["corpus"] for each in facts] == ["letters", "numbers"]
    assert facts[0]["seconds"] == planted.facts["letters"].seconds  # what is there is not built again
    assert "bytes a token" in invoke("index")
    (tmp_path / "text.txt").write_text(excerpt(planted.texts["letters"][2], 0, 15))
    document = json.loads(invoke("trace", f"--text={tmp_path / 'text.txt'}", "--json"))
    assert document["matches"][0]["match"]["number"] == 2
    assert "the whole text in tokens 0 to" in invoke("trace", f"--text={tmp_path / 'text.txt'}")
    answer = json.loads(invoke("contamination", planted.run.id, f"--tasks={tasks.folder}", "--json"))
    assert answer["tasks"][0]["in_corpora"] == 4
    assert "cloze:planted-0" in invoke("contamination", planted.run.id, f"--tasks={tasks.folder}")
    with pytest.raises(UserError, match="no task"):
        invoke("contamination", planted.run.id, f"--tasks={tmp_path}")
    with pytest.raises(UserError, match="both documents and a text"):
        invoke("trace", "--text=x", "--licence=MIT")
