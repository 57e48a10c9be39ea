"""The whole tour in an empty folder with nothing but the wheel: own data, training, audit, dashboard, a capsule.

`tests/repository/test_wheel.py` serves the dashboard from a wheel.

The wheel is installed into a new virtual environment that sees the packages of this one, but not the clone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import built_wheel
import numpy as np
import pytest
from prose_text import make_text

from treering.config.corpora import TokenizerConfig
from treering.data.corpus.indexed import index_bytes
from treering.data.corpus.text_tokenizer import train_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.pipeline, pytest.mark.trainer]

PACKAGES = ("treering", "treering_trainer", "treering_adapters", "treering_dashboard")
WHERE = f"import importlib; print(*(importlib.import_module(name).__file__ for name in {PACKAGES}), sep='\\n')"
PAGE = """
from pathlib import Path
from streamlit.testing.v1 import AppTest
import treering_dashboard
app = Path(treering_dashboard.__file__).parent / "site" / "app.py"
page = AppTest.from_file(str(app), default_timeout=60).run()
print([each.value for each in page.exception], *(frame.value.to_json() for frame in page.dataframe))
"""


class Installed:
    """A virtual environment that has the wheel, and a folder to work in."""

    def __init__(self, environment, folder):
        self.bin = environment / "bin"
        self.folder = folder
        hidden = ("PYTHONPATH", "MLFLOW_TRACKING_URI", "VIRTUAL_ENV", "TREERING_ROOT")
        self.environ = {name: value for name, value in os.environ.items() if name not in hidden} | {
            "PATH": f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "DVC_NO_ANALYTICS": "1",
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
        }

    def run(self, *words, expected=0):
        """What a command printed."""
        done = subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == expected, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=300)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    # A path that a .pth file adds is searched, but its own .pth files, such as the clone's, are not read.
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wheel = built_wheel.build(tmp_path_factory.mktemp("built"))
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "-q", "--no-deps"]
    subprocess.run([*command, "--no-index", "--disable-pip-version-check", str(wheel)], check=True, timeout=300)
    return folder


@pytest.fixture
def installed(environment, tmp_path):
    """An empty folder, but for the data."""
    return lay(environment, tmp_path / "mine")


def lay(environment, folder):
    """Lays texts into a new folder."""
    (folder / "texts").mkdir(parents=True)
    rows = (json.dumps({"text": make_text(seed)}) + "\n" for seed in range(120))
    (folder / "texts/letters.jsonl").write_text("".join(rows))
    return Installed(environment, folder)


def shorten(folder):
    """Makes the training of 24 steps."""
    config = folder / "experiments/mine.yaml"
    text = config.read_text()
    for name, value in (("train_tokens", 12_288), ("decay_tokens", 12_288), ("warmup_tokens", 512), ("max_items", 8)):
        text, count = re.subn(rf"^(  {name}: )\d+$", rf"\g<1>{value}", text, flags=re.MULTILINE)
        assert count == 1, name
    config.write_text(text.replace("shots: [0, 1]", "shots: [0]").replace("cpu_processes: 2", "cpu_processes: 1"))


def write_pair(folder):
    """A tokenizer of one's own, and a pair of tokens that it made, as Megatron's `preprocess_data.py` writes it."""
    texts = [make_text(1000 + seed) for seed in range(60)]
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocabulary_size=600))
    end = tokenizer.token_to_id("<|endoftext|>")
    documents = [[*encoding.ids, end] for encoding in tokenizer.encode_batch(texts)]
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "old.bin").write_bytes(np.concatenate(documents).astype("<u2").tobytes())
    (folder / "old.idx").write_bytes(index_bytes(np.array([len(each) for each in documents], np.int32)))


@pytest.fixture(scope="module")
def toured(environment, tmp_path_factory):
    """A folder after the tour without DVC, but for its audit; with the command of the audit."""
    installed = lay(environment, tmp_path_factory.mktemp("toured") / "mine")
    places = installed.run("python", "-c", WHERE).split()
    assert [Path(place).is_relative_to(installed.bin.parent) for place in places] == [True] * 4, places
    write_pair(installed.folder)
    given = ("--data", "texts/letters.jsonl", "--data", "old", "--tokenizer", "tokenizer.json")
    made = json.loads(installed.run("treering", "init", *given, "--minimal", "--json"))
    assert made["written"] == ["experiments/mine.yaml", ".gitignore"]
    shorten(installed.folder)
    *commands, audit, _ = made["next"]
    for command in commands:
        installed.run(*command.split())
    return installed, audit.split()


def test_the_tour_without_dvc(toured):
    installed, audit = toured
    audited = json.loads(installed.run(*audit, "--json"))
    assert audited["verdict"] == "content-bound: 24 of 24 steps"
    batch = json.loads(installed.run("treering", "batch", audited["run"], "24", "--json"))
    read = {(part["corpus"], part["document"]) for sample in batch["samples"] for part in sample["documents"]}
    assert {corpus for corpus, _ in read} == {"letters", "old"}
    for corpus, document in read:
        assert re.fullmatch(r"letters\.jsonl:\d+" if corpus == "letters" else r"\d+", document)
    header = json.loads((installed.folder / f"runs/{audited['run']}/attempts/0001/header.json").read_text())
    assert header["code"]["commit"] is None
    assert "trainer/treering_trainer/core/loop.py" in header["code"]["sources"]
    page = installed.run("python", "-c", PAGE)
    assert page.startswith("[] ")
    assert audited["run"][:8] in page


def numbers(run):
    """What the run's only attempt read and computed, by step."""
    lines = map(json.loads, (run / "attempts/0001/rings.jsonl").read_text().splitlines())
    return [tuple(ring[name] for name in ("step", "batch_digest", "loss", "grad_norm", "validation")) for ring in lines]


def test_a_capsule_is_reproduced_in_an_empty_folder(toured, tmp_path):
    """The corpora are there by content alone: under other names, in one folder."""
    installed, _ = toured
    (run,) = (path.parent for path in (installed.folder / "runs").glob("*/resolved.json"))
    installed.run("treering", "capsule", run.name, str(tmp_path / "run.zip"))
    (tmp_path / "store").mkdir()
    for number, path in enumerate(sorted((installed.folder / "data").rglob("*"))):
        if path.suffix in {".bin", ".idx", ".parquet"} or path.name == "tokenizer.json":
            shutil.copy(path, tmp_path / "store" / f"{number}.dat")
    again = Installed(installed.bin.parent, tmp_path / "again")
    again.folder.mkdir()
    answer = again.run("treering", "reproduce", "../run.zip", "--corpora", "../store", "--json")
    record = json.loads(answer)
    assert record["sentence"] == (
        "Identical to the last bit over 24 steps: the same data, and every recorded number, held-out losses too. "
        "No weights were compared."
    )
    assert (record["identical"], record["first_step"], record["last_step"]) == (True, 1, 24)
    planned = {(item["part"], item["state"]) for item in record["plan"]["items"]}
    assert planned >= {("code", "same"), ("environment", "same"), ("data", "same")}
    made = numbers(Path(record["folder"]) / "runs" / run.name)
    assert made == numbers(run)
    assert [ring[0] for ring in made] == list(range(1, 25))


def ran(output):
    """The stages that a `dvc repro` ran."""
    return re.findall(r"Running stage '(\w+)'", output)


def test_dvc_runs_what_depends_on_a_change(installed):
    installed.run("treering", "init", "--data", "texts/letters.jsonl")
    repro = ("python", "-m", "dvc", "repro", "blend")
    assert ran(installed.run(*repro)) == ["version", "fetch", "curate", "tokenize", "blend"]
    assert ran(installed.run(*repro)) == ["version"]
    (module,) = (installed.bin.parent / "lib").glob("python3*/site-packages/treering/data/blend/corpora.py")
    text = module.read_text()
    try:
        module.write_text(text + "\n# a comment alone\n")
        assert ran(installed.run(*repro)) == ["version"]
        module.write_text(text + "\nANOTHER = 1\n")
        assert ran(installed.run(*repro)) == ["version", "blend"]
    finally:
        module.write_text(text)
