"""Tasks of lm-eval over the user's files: scores equal lm-eval's own over our export, with the network refused."""

import contextlib
import functools
import io
import json
import random
import shutil
import socket
from types import SimpleNamespace

import pytest
import text_project
import torch
import yaml
from suite_files import SUITE, rows, write_rows, write_suite

from treering.config.canonical import digest_file
from treering.config.operation import EvaluationTask
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import open_tokenizer
from treering.metrics.hans import hans_of
from treering.project import NO_TASKS
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

SHOTS = (0, 2)
ZERO_SHOT = ("hellaswag", "lambada_openai", "wikitext103", "winogrande")
"""Tasks of each kind that are compared without examples too; the others' prompts differ by nothing else."""

TOLERANCE = 1e-6


def refuse(*_):
    raise OSError("a test reached for the network")


@pytest.fixture(scope="module", autouse=True)
def _no_network():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run of three steps, its model by our scoring and by lm-eval over the export, and the files of the suite."""
    experiment = text_project.experiment(
        "suite",
        seed=5,
        optimizer={"peak_learning_rate": 0.01, "min_learning_rate": 0.001},
        schedule={"train_tokens": 2560, "global_batch_size": 4, "warmup_tokens": 512},
        parallel={"data": 1, "micro_batch_size": 4},
        checkpoint={"every_steps": 3},
        evaluation={
            "shots": [0],
            "perplexity_samples": 2,
            "tasks": [
                {"task": "wikitext103", "files": "suite/wikitext103/test.jsonl", "max_items": 5},
                {
                    "task": "hans",
                    "files": {split: f"suite/hans/{split}.jsonl" for split in ("validation", "train")},
                    "shots": [0, 1, 5],
                },
            ],
        },
    )
    experiment["blend"]["sequence_length"] = 280
    project = text_project.lay(tmp_path_factory.mktemp("suite"), experiment, heldout=20)
    project.tasks.mkdir()
    (project.tasks / NO_TASKS).touch()
    text_project.run_module(project, "treering_trainer.launch", "suite.yaml")
    (folder,) = (path.parent for path in project.runs.glob("*/resolved.json"))
    checkpoint = RunDirectory(folder).checkpoints()[-1]
    torch.set_num_threads(1)

    from lm_eval.models.huggingface import HFLM

    from treering_trainer.checkpointing.inference import load_model
    from treering_trainer.evaluate.checkpoint_lm import CheckpointLM
    from treering_trainer.export.__main__ import main

    with contextlib.chdir(project.root), contextlib.redirect_stdout(io.StringIO()):
        assert main([str(checkpoint.path), "export"]) == 0
    return SimpleNamespace(
        project=project,
        run=RunDirectory(folder),
        tasks=experiment["evaluation"]["tasks"],
        ours=CheckpointLM(
            load_model(checkpoint),
            load_tokenizer(project.tokenizer),
            0,
            lambda: Spelling.of(open_tokenizer(project.tokenizer)),
        ),
        theirs=HFLM(pretrained=str(project.root / "export"), device="cpu", dtype="float32", batch_size=1),
        files=write_suite(project.root / "suite"),
    )


def stock(world, task, **options):
    from treering_trainer.evaluate.read_stock import read_stock_tasks

    files = options.pop("files", world.files.get(task))
    asked = EvaluationTask(task=task, files=files, **options)
    (found,) = read_stock_tasks(world.project, [asked], SHOTS)
    return found


def simple_evaluate(world, task, files, shots, folder):
    """lm-eval's own run of the stock definition, which reads the same files by `datasets`."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from treering_trainer.evaluate.library import _definitions

    definition = {
        "include": str(_definitions()[task]),
        "task": task,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files, "cache_dir": str(folder / "cache")},
    }
    (folder / "tasks").mkdir(exist_ok=True)
    (folder / "tasks" / f"{task}.yaml").write_text(yaml.safe_dump(definition))
    results = simple_evaluate(
        model=world.theirs,
        tasks=[task],
        num_fewshot=shots,
        task_manager=TaskManager(include_path=folder / "tasks", include_defaults=False),
        bootstrap_iters=1000,
    )
    return results["results"][task], results["samples"][task]


def check_equal(ours, theirs):
    numbers = {key: value for key, value in theirs.items() if "," in key and not isinstance(value, str)}
    assert numbers
    for key, value in numbers.items():
        metric, _, chosen = key.partition(",")
        name = metric if chosen == "none" else f"{metric.removesuffix('_stderr')}.{chosen}"
        name += "_stderr" if chosen != "none" and metric.endswith("_stderr") else ""
        assert ours.metrics[name] == pytest.approx(value, abs=TOLERANCE, rel=TOLERANCE), key


@pytest.mark.parametrize("task", SUITE)
def test_scores_are_those_of_lm_eval_over_the_export(world, task, tmp_path):
    from treering_trainer.evaluate.harness import run_task

    source = stock(world, task)
    for shots in source.shots if task in ZERO_SHOT else source.shots[1:]:
        found = run_task(world.ours, source, shots, source.max_items)
        theirs, samples = simple_evaluate(world, task, world.files[task], shots, tmp_path)
        check_equal(found, theirs)
        for sample in samples:
            name = f"line {sample['doc_id'] + 1}"
            answers = [answer[0] if isinstance(answer, tuple) else answer for answer in sample["filtered_resps"]]
            assert found.items["log_likelihood"][name] in [pytest.approx(answer, rel=1e-6) for answer in answers]
            for metric, value in sample.items():
                if metric in found.items and isinstance(value, float | int):
                    assert found.items[metric][name] == value


def test_generated_texts_are_those_of_lm_eval_over_the_export(world, tmp_path):
    from lm_eval.api.instance import Instance

    from treering_trainer.evaluate.harness import run_task

    options = {"until": ["ga", " c"], "max_gen_toks": 20, "do_sample": False}
    long = text_project.text(random.Random(3), "letters", 200)
    prompts = ["balcen", "Question: 017 018?\nAnswer:", "", f"{long} end"]
    requests = [Instance("generate_until", {}, (prompt, options), 0) for prompt in prompts]
    world.ours.truncated = 0
    found = world.ours.generate_until(requests)
    assert world.ours.truncated == 1
    assert found[:2] + found[3:] == world.theirs.generate_until(requests[:2] + requests[3:])
    assert len(set(found)) > 1

    (answer,) = world.ours.generate_until(
        [Instance("generate_until", {}, ("Question: balcen?\nAnswer:", {"until": ["\n", ".", ","]}), 0)]
    )
    questions = [
        {"question": question, "answer": {"aliases": ["no", alias]}}
        for question, alias in (("balcen", answer.strip()), ("comur", "no"))
    ]
    files = {split: str(write_rows(tmp_path / f"{split}.jsonl", questions)) for split in ("validation", "train")}
    source = stock(world, "triviaqa", files=files, shots=(0,))
    scores = run_task(world.ours, source, 0, None)
    theirs, _ = simple_evaluate(world, "triviaqa", files, 0, tmp_path)
    assert scores.metrics["exact_match.remove_whitespace"] == theirs["exact_match,remove_whitespace"] == 0.5
    assert scores.items["exact_match.remove_whitespace"] == {"line 1": 1.0, "line 2": 0.0}
    assert "log_likelihood" not in scores.items


@pytest.fixture(scope="module")
def evaluate(world):
    return functools.partial(text_project.evaluate, world.project, "suite.yaml", "--run", world.run.id)


def test_records_carry_versions_prompts_and_items(world, evaluate):
    from treering.audit.evidence.evaluations import check_evaluations
    from treering.audit.evidence.records import read_records

    output = evaluate()
    (record,) = world.run.evaluations()
    assert record.scores.keys() == {"wikitext103", "hans"}
    assert {task: sorted(by) for task, by in record.scores.items()} == {"hans": ["0", "1", "5"], "wikitext103": ["0"]}
    hans, wikitext = record.definitions["hans"], record.definitions["wikitext103"]
    assert (hans.version, wikitext.version) == ("1.0", "2.0")
    assert hans.files["validation"] == digest_file(world.project.root / "suite/hans/validation.jsonl")
    assert len(set(hans.prompts.values())) == 3

    records = rows("hans", "validation", 6)
    for shots in ("0", "1", "5"):
        fields = record.fields["hans"][shots]
        assert fields["heuristic"] == {f"line {i}": row["heuristic"] for i, row in enumerate(records, 1)}
        assert fields["label"]["line 2"] == "1"
        assert fields["heuristic"].keys() == record.items["hans"][shots]["acc"].keys()
    read = record.fields["hans"]["5"]["examples"]
    counts = [len(labels.split()) for labels in read.values()]
    assert record.scores["hans"]["5"]["examples"] == sum(counts) / 6
    assert record.scores["hans"]["5"]["examples"] < 5
    assert set("".join(read.values())) <= set("01 ")
    shares = [share for share in hans_of(record).shares if share.by == "all"]
    assert {str(share.shots): share.accuracy for share in shares} == {
        shots: pytest.approx(record.scores["hans"][shots]["acc"]) for shots in ("0", "1", "5")
    }
    assert f"hans, 5-shot: {sum(counts) / 6:.2f} examples a prompt on average" in output
    assert "wikitext103 " in output.split("step 3: held-out loss")[1]

    texts = record.scores["wikitext103"]["0"]
    assert texts["items"] == 5
    assert texts["word_perplexity_stderr"] > 0
    check = lambda: [f.text for f in check_evaluations(read_records(world.run, world.project, str), str)]  # noqa: E731
    assert not check()
    assert evaluate().count("already scored") == 1


def test_only_changed_files_are_scored_anew(world, evaluate):
    evaluate()
    (before,) = world.run.evaluations()
    folder = world.project.root / "suite/hans"
    shutil.copy(folder / "train.jsonl", folder / "moved.jsonl")
    moved = [task | {"files": {"validation": "suite/hans/validation.jsonl", "train": "suite/hans/moved.jsonl"}}
             if task["task"] == "hans" else task for task in world.tasks]  # fmt: skip
    assert "already scored" in evaluate("--set", f"evaluation.tasks={json.dumps(moved)}")
    path = folder / "validation.jsonl"
    original = path.read_bytes()
    try:
        path.write_bytes(b"".join(reversed(original.splitlines(keepends=True))))
        output = evaluate()
        assert "already scored" not in output
        assert "step 3: goes on; 2 of 3 parts were scored before" in output
        assert "step 3: hans (3 of 3)" in output
        (after,) = world.run.evaluations()
        assert after.tasks["hans"] != before.tasks["hans"]
        assert after.tasks["wikitext103"] == before.tasks["wikitext103"]
        for part in ("scores", "items", "definitions"):
            assert getattr(after, part)["wikitext103"] == getattr(before, part)["wikitext103"]
        assert after.perplexity == before.perplexity
        assert after.definitions["hans"].prompts["0"] != before.definitions["hans"].prompts["0"]
        assert after.scores["hans"]["0"]["acc"] == before.scores["hans"]["0"]["acc"]
    finally:
        path.write_bytes(original)
