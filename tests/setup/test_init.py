"""`treering init` makes a folder a project: what it writes, what it keeps, and what it refuses before it writes."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from prose_text import make_text
from web_archive import Record, archive, page, write

from treering.cli.group import NAMES
from treering.collect.code import code_digest
from treering.config.corpora import TokenizerConfig
from treering.config.load import load_experiment
from treering.config.schema import Experiment
from treering.data.corpus.indexed import index_bytes
from treering.data.corpus.text_tokenizer import train_tokenizer
from treering.setup.experiment import _weights
from treering.setup.stage_code import STAGE_SOURCES

ROOT = Path(__file__).parents[2]
CODE = ("platform/", "trainer/", "dashboard/")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    root = tmp_path / "own"
    root.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    return root


def write_letters(path, count=30, field="text"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({field: make_text(seed)}) + "\n" for seed in range(count)))


def tree(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.parts and ".dvc" not in path.parts
    }


def test_a_project_without_dvc(treering, folder):
    write_letters(folder / "letters.jsonl")
    code, out, err = treering("init", "--data", "letters.jsonl", "--minimal", "--json")
    assert (code, err) == (0, "")
    done = json.loads(out)
    assert (done["written"], done["kept"], done["dvc_init"]) == (["experiments/own.yaml", ".gitignore"], [], False)
    assert [line.split()[1] for line in done["next"]] == [
        "fetch", "curate", "tokenize", "blend", "train", "evaluate", "audit", "up",
    ]  # fmt: skip
    experiment = load_experiment(folder / "experiments/own.yaml")
    assert experiment.experiment == "own"
    assert [(corpus.name, corpus.own, corpus.licence) for corpus in experiment.corpora] == [
        ("letters", ("jsonl", "letters.jsonl"), "unknown")
    ]
    assert [(part.corpus, part.weight) for part in experiment.blend.components] == [("letters", "1")]


def test_again_changes_nothing_and_says_so(treering, folder):
    write_letters(folder / "letters.jsonl")
    (folder / ".gitignore").write_text("*.log\n/runs/")
    treering("init", "--data", "letters.jsonl", "--minimal")
    before = tree(folder)
    assert before[".gitignore"].startswith(b"*.log\n/runs/\n\n# Treering: ")
    assert before[".gitignore"].count(b"/runs/") == 1
    code, out, _ = treering("init", "--data", "letters.jsonl", "--minimal", "--json")
    assert (code, json.loads(out)["written"]) == (0, [])
    assert tree(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("there", ["", "git", "git below"])
def test_a_project_with_dvc_in_git_or_not(treering, folder, monkeypatch, there):
    if there:
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    if there == "git below":
        folder /= "project"
        folder.mkdir()
        monkeypatch.chdir(folder)
    write_letters(folder / "letters.jsonl")
    code, out, err = treering("init", "mine", "--data", "letters.jsonl", "--yes")
    assert (code, err) == (0, "")
    assert "ran      dvc init" in out
    assert "wrote    dvc.yaml" in out
    assert "*.pyc" in (folder / ".dvcignore").read_text().splitlines()
    listed = subprocess.run(
        [sys.executable, "-m", "dvc", "stage", "list", "--name-only"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.split() == ["version", "fetch", "curate", "tokenize", "blend", "train", "evaluate", "report"]
    code, out, _ = treering("init", "second", "--data", "letters.jsonl", "--json")
    assert (code, json.loads(out)["written"]) == (0, ["experiments/second.yaml"])
    assert "config: experiments/mine.yaml" in (folder / "dvc.yaml").read_text()


def test_every_form_of_data(treering, folder):
    write_letters(folder / "Old Letters.jsonl", field="body")
    write_letters(folder / "deep/a/b.jsonl", field="body")
    pq.write_table(pa.table({"body": [make_text(1)]}), folder / "p.parquet")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"body": [make_text(2)]}).save_to_disk(folder / "set")
    tokens = np.arange(600) % 257
    (folder / "tok.bin").write_bytes(tokens.astype("<u2").tobytes())
    (folder / "tok.idx").write_bytes(index_bytes(np.array([300, 300], np.int32)))
    train_tokenizer([make_text(n) for n in range(9)], TokenizerConfig(vocabulary_size=400)).save("tokenizer.json")
    response = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page(make_text(3))
    write(folder / "crawl/a.warc.gz", archive([Record(response)]))
    write(folder / "b.warc.wet.gz", archive([Record(b"x", "conversion", media_type="text/plain")]))
    paths = ["Old Letters.jsonl", "deep", "deep/**/*.jsonl", "p.parquet", "set/", "tok", "crawl", "b.warc.wet.gz"]
    given = [word for path in paths for word in ("--data", path)]
    options = ["--text-field", "body", "--licence", "MIT", "--tokenizer", "tokenizer.json", "--minimal"]
    code, _, err = treering("init", *given, *options)
    assert (code, err) == (0, "")
    experiment = load_experiment(folder / "experiments/own.yaml")
    assert [(corpus.name, corpus.own) for corpus in experiment.corpora] == [
        ("old-letters", ("jsonl", "Old Letters.jsonl")),
        ("deep", ("jsonl", "deep")),
        ("deep-2", ("jsonl", "deep/**/*.jsonl")),
        ("p", ("parquet", "p.parquet")),
        ("set", ("dataset", "set")),
        ("tok", ("megatron", "tok")),
        ("crawl", ("warc", "crawl")),
        ("b-warc", ("wet", "b.warc.wet.gz")),
    ]
    assert [corpus.kind for corpus in experiment.corpora] == ["prose"] * 6 + ["html", "prose"]
    assert {corpus.licence for corpus in experiment.corpora} == {"MIT"}
    assert [corpus.text_field for corpus in experiment.corpora] == ["body"] * 5 + ["text"] * 3
    assert (experiment.tokenizer.file, experiment.tokenizer.vocabulary_size) == ("tokenizer.json", 400)
    assert experiment.model.padded_vocab_size == 512


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no data was named, expected at least one path: `treering init --data a.jsonl --data mixed"),
        (["--data", "a.jsonl"], "a.jsonl, line 1: field 'text' is missing (found 'body'), expected the text"),
        (["--data", "no.jsonl"], "no.jsonl does not exist, expected a JSON Lines file"),
        (["--data", "no"], "--data no: "),
        (["--data", "."], "this is the folder of the project, expected one of the data alone"),
        (["--data", "empty"], "the folder holds no data (nothing), expected one of .jsonl"),
        (["--data", "mixed"], "the folder holds jsonl and parquet, expected one of"),
        (["--data", "pairs"], "the folder holds pairs of tokens, expected one pair: `--data pairs/x`"),
        (["--data", "notes.md"], "--data notes.md: the form is unknown by the ending, expected one of .jsonl"),
        (["--data", "pairs/x"], "corpus x is tokens already, expected the tokenizer that made them"),
        (["--data", "pairs/x", "--tokenizer", "t.json"], "t.json does not exist, expected a tokenizer"),
        (["--data", "texts", "--data", "texts"], "--data texts: given twice, expected each path once"),
        (["bad name", "--data", "texts"], "the name is 'bad name', expected letters, digits, dots"),
        (["--data", "texts/none.jsonl"], "texts/none.jsonl holds no document, expected at least one"),
    ],
)
def test_a_wrong_answer_writes_nothing(treering, folder, arguments, message):
    write_letters(folder / "a.jsonl", 1, field="body")
    write_letters(folder / "texts/t.jsonl", 1)
    (folder / "texts/none.jsonl").touch()
    for name in ("empty", "mixed", "pairs"):
        (folder / name).mkdir()
    for name in ("mixed/a.jsonl", "mixed/a.parquet", "pairs/x.bin", "pairs/x.idx", "notes.md"):
        (folder / name).touch()
    before = tree(folder)
    code, out, err = treering("init", *arguments, "--minimal")
    assert (code, out) == (2, "")
    assert message in err
    assert tree(folder) == before


def test_what_is_in_the_way_is_named_at_once_and_nothing_is_written(treering, folder):
    write_letters(folder / "a.jsonl", 1)
    (folder / "experiments").mkdir()
    (folder / "experiments/own.yaml").write_text("mine: 1\n")
    (folder / "dvc.yaml").write_text("stages: {}\n")
    before = tree(folder)
    code, _, err = treering("init", "--data", "a.jsonl")
    assert code == 2
    assert "nothing was written" in err
    assert "experiments/own.yaml is there with another content; choose another name" in err
    assert "dvc.yaml is there with another content; make the project in a folder of its own" in err
    assert tree(folder) == before
    assert not (folder / ".dvc").exists()


def test_a_folder_that_the_pipeline_would_replace_is_not_its_own(treering, folder):
    write_letters(folder / "a.jsonl", 1)
    (folder / "data/raw").mkdir(parents=True)
    (folder / "report.md").write_text("my report")
    code, _, err = treering("init", "--data", "a.jsonl", "--minimal")
    assert code == 2
    assert "data/raw is there, and the pipeline would replace it" in err
    assert "report.md is there, and the pipeline would replace it" in err


def test_a_disk_that_fails_leaves_nothing_behind(treering, folder, monkeypatch):
    from treering.setup import files

    write_letters(folder / "a.jsonl", 1)
    before = tree(folder)
    real = files.write_durably

    def failing(path, content):
        if path.name == ".gitignore":
            raise OSError(28, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(files, "write_durably", failing)
    code, _, err = treering("init", "--data", "a.jsonl", "--minimal")
    assert code != 0
    assert "No space left on device" in err
    assert tree(folder) == before


def test_without_dvc_installed(treering, folder, monkeypatch):
    write_letters(folder / "a.jsonl", 1)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    code, _, err = treering("init", "--data", "a.jsonl")
    assert code == 2
    assert "`pip install 'treering[pipeline]'`, or without DVC: `treering init --minimal`" in err


@pytest.mark.slow
def test_on_a_terminal_it_asks(folder):
    write_letters(folder / "a.jsonl", 1)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from treering.cli import main; main()", "init", "--minimal"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    os.write(ours, b"asked\n\n")
    out, _ = process.communicate(timeout=300)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, out
    assert "Paths of your data, separated by commas [a.jsonl]" in out
    assert load_experiment(folder / "experiments/asked.yaml").corpora[0].jsonl == "a.jsonl"


@pytest.mark.parametrize(
    ("tokens", "weights"),
    [([5], ["1.00"]), ([1, 1, 1], ["0.34", "0.33", "0.33"]), ([10**9, 1, 0], ["0.98", "0.01", "0.01"])],
)
def test_weights_are_by_size_and_sum_to_one(tokens, weights):
    assert _weights(tokens) == weights


def test_the_stages_are_those_of_the_clone_with_the_code_by_its_digest():
    ours = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    theirs = yaml.safe_load((ROOT / "platform/treering/setup/pipeline.yaml").read_text())
    assert theirs["stages"].pop("version")["cmd"] == "treering version --write data/version.json --data ${config}"
    assert theirs["plots"] == ours["plots"]
    assert list(theirs["stages"]) == list(ours["stages"]) == list(STAGE_SOURCES)
    for name, stage in ours["stages"].items():
        code = [path for path in stage.get("deps", []) if path.startswith(CODE)]
        data = [path for path in stage.get("deps", []) if path not in code]
        assert sorted(code) == sorted(STAGE_SOURCES[name]), name
        other = theirs["stages"][name]
        files = {"fetch": ["data"], "tokenize": ["tokenizer"], "evaluate": ["evaluation"]}.get(name, [])
        version = {"data/version.json": [f"stages.{name}", *files]}
        assert other["params"] == [*stage.get("params", []), version], name
        assert other.get("deps", []) == data, name
        for key in ("cmd", "outs", "metrics"):
            assert other.get(key) == stage.get(key), name
        assert stage["cmd"].split()[1] in NAMES


@pytest.mark.parametrize("size", [1, 60, 600])
def test_every_section_that_a_stage_names_is_in_the_experiment(treering, folder, size):
    write_letters(folder / "a.jsonl", size)
    assert treering("init", "--data", "a.jsonl", "--minimal")[0] == 0
    written = yaml.safe_load((folder / "experiments/own.yaml").read_text())
    stages = yaml.safe_load((ROOT / "platform/treering/setup/pipeline.yaml").read_text())["stages"]
    named = {
        name for stage in stages.values() for each in stage.get("params", []) for name in each.get("${config}", [])
    }
    assert named <= set(written) <= set(Experiment.model_fields)


def test_the_only_experiment_is_the_default(treering, folder):
    write_letters(folder / "a.jsonl", 1)
    treering("init", "--data", "a.jsonl", "--minimal")
    code, out, _ = treering("fetch")
    assert (code, "a: a.jsonl, 0.0 MB, your own" in out) == (0, True)
    treering("init", "other", "--data", "a.jsonl", "--minimal")
    code, _, err = treering("fetch")
    assert code == 2
    assert "experiments/demo.yaml" in err


@pytest.mark.slow
def test_the_version_is_of_the_code_behind_each_stage(treering, folder):
    code, _, _ = treering("version", "--write", "data/version.json")
    record = json.loads((folder / "data/version.json").read_text())
    assert code == 0
    assert record == json.loads(treering("version", "--json")[1])
    assert record["stages"]["train"] == code_digest(ROOT, STAGE_SOURCES["train"])
    assert len(set(record["stages"].values())) == len(STAGE_SOURCES) == 7
    assert treering("version")[1].startswith(f"Treering {record['version']}\n")


def test_the_record_changes_with_the_data_and_says_what_is_missing(folder, treering):
    (folder / "texts").mkdir()
    text = folder / "texts/a.jsonl"
    text.write_text('{"text": "one"}\n')
    assert treering("init", "notes", "--data", "texts/*.jsonl", "--minimal", "--yes")[0] == 0

    def recorded():
        assert treering("version", "--write", "data/version.json", "--data", "experiments/notes.yaml")[0] == 0
        return json.loads((folder / "data/version.json").read_text())["data"]

    first = recorded()
    assert list(first) == ["texts"]
    assert recorded() == first
    text.write_text('{"text": "another"}\n')
    second = recorded()
    (folder / "texts/b.jsonl").write_text('{"text": "more"}\n')
    assert len({each["texts"] for each in (first, second, recorded())}) == 3
    text.unlink()
    (folder / "texts/b.jsonl").unlink()
    assert recorded() == {"texts": "missing"}


def test_the_record_changes_with_the_files_of_the_evaluation(folder, treering):
    write_letters(folder / "a.jsonl", 1)
    assert treering("init", "notes", "--data", "a.jsonl", "--minimal", "--yes")[0] == 0
    config = folder / "experiments/notes.yaml"
    document = yaml.safe_load(config.read_text())
    files = {split: f"tasks/{split}.jsonl" for split in ("validation", "train")}
    document["evaluation"]["tasks"] = [{"task": "boolq", "files": files}, {"task": "race", "files": "tasks/race.jsonl"}]
    config.write_text(yaml.safe_dump(document))

    def recorded():
        assert treering("version", "--write", "data/version.json", "--data", "experiments/notes.yaml")[0] == 0
        return json.loads((folder / "data/version.json").read_text())["evaluation"]

    assert recorded() == {"boolq": "missing", "race": "missing"}
    (folder / "tasks").mkdir()
    for name in ("validation", "train", "race"):
        (folder / f"tasks/{name}.jsonl").write_text("{}\n")
    first = recorded()
    assert recorded() == first
    (folder / "tasks/train.jsonl").write_text("{}\n{}\n")
    second = recorded()
    assert second["boolq"] != first["boolq"]
    assert second["race"] == first["race"]
