"""What people have of a run: YAML files and checkpoints of GPT-NeoX, launch scripts, data paths with parts."""

import argparse
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from treering.audit.megatron.neox import document_weights
from treering.audit.megatron.run import AuditedRun
from treering.cli import app
from treering.data.corpus.indexed import index_bytes
from treering.errors import ConfigError, EvidenceError, TreeringError, UserError

NEOX = {
    "data-path": "data/wiki", "split": "90,10,0", "seq-length": 16, "train-iters": 40, "num_layers": 2,
    "pipe-parallel-size": 2, "model_parallel_size": 1, "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2, "load": "ck", "save": "ck", "curriculum_learning": {"enabled": False},
    "data_impl": "mmap", "tokenizer_type": "HFTokenizer",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working directory with two token files."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for name, count in (("wiki", 200), ("books", 70)):
        Path("data").mkdir(exist_ok=True)
        lengths = random.integers(1, 60, count).astype(np.int32)
        Path(f"data/{name}.idx").write_bytes(index_bytes(lengths))
        Path(f"data/{name}.bin").write_bytes(bytes(2 * int(lengths.sum())))
    return tmp_path


def described(**fields):
    """The run that a description names, which is what other forms must come to."""
    Path("own").mkdir(exist_ok=True)
    whole = {"split": "90,10,0", "seed": 1234, "sequence_length": 16, "train_iters": 40, "global_batch_size": 8}
    whole |= {"data": [{"prefix": str(Path("data/wiki").resolve())}], "iteration": 40, **fields}
    document = {name: value for name, value in whole.items() if value is not None}
    Path("own/megatron-run.yaml").write_text(yaml.safe_dump(document))
    return AuditedRun.open(Path("own"))


def samples(run):
    return [
        (each.component, [(part.document, part.start, part.end) for part in each.spans])
        for each in run.order.samples_with_spans(0, run.consumed_samples)
    ]


def write(name, keys):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(json.dumps(keys, indent=1))  # as GPT-NeoX's own: YAML that is JSON
    return Path(name)


def saved(iteration, configs, **state):
    """A checkpoint as GPT-NeoX's DeepSpeed engine writes it."""
    torch = pytest.importorskip("torch")
    place = Path(f"ck/global_step{iteration}")
    place.mkdir(parents=True)
    arguments = {"num_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "padded_vocab_size": 128}
    held = {"args": arguments, "iteration": iteration, "module": None, "global_steps": iteration, "mp_world_size": 1}
    torch.save(held | state, place / "mp_rank_00_model_states.pt")
    for name, keys in configs.items():
        write(place / "configs" / name, keys)
    Path("ck/latest").write_text(place.name)
    return place


def test_yaml_files_of_gpt_neox_are_a_launch():
    run = AuditedRun.open(write("all.yml", NEOX | {"global_num_gpus": 4}))
    assert (run.lineage, run.iteration, run.consumed_samples) == ("gpt-neox", 40, 320)
    assert samples(run) == samples(described(lineage="gpt-neox"))
    said = {each.name: (each.value, each.origin, each.argument) for each in run.report().settings}
    assert said["global_batch_size"] == (8, "launch", "train_micro_batch_size_per_gpu")
    assert said["seed"][1] == "launch"
    assert [each.what for each in run.unbound] == ["No checkpoint of the run"]
    assert run.level() == "declared"
    write("model.yml", NEOX)
    write("local.yml", {"train-batch-size": 8})
    Path("megatron-run.yaml").write_text(yaml.safe_dump({"launch": ["model.yml", "local.yml"], "iteration": 12}))
    both = AuditedRun.open(Path())
    assert (both.iteration, both.unbound, both.level()) == (12, (), "re-derived")
    assert samples(both) == samples(run)[:96]


def test_a_description_goes_before_what_the_launch_says():
    write("model.yml", NEOX)
    said = {"launch": "model.yml", "global_batch_size": 4, "consumed_samples": 64, "seed": 7, "split": "1,0,0"}
    Path("megatron-run.yaml").write_text(yaml.safe_dump(said))
    run = AuditedRun.open(Path())
    assert (run.iteration, run.run.global_batch_size, run.run.seed, run.run.train_iters) == (16, 4, 7, 40)
    assert samples(run) == samples(
        described(lineage="gpt-neox", global_batch_size=4, seed=7, split="1,0,0", iteration=16)
    )


def test_several_data_paths_of_gpt_neox_have_weights():
    keys = {name: value for name, value in NEOX.items() if name not in ("data-path", "split")}
    keys |= {"train_data_paths": ["data/wiki", "data/books"], "train_batch_size": 8}
    paths = [str(Path(f"data/{name}").resolve()) for name in ("wiki", "books")]
    for more, weights in (
        ({}, [1.0, 1.0]),
        ({"train-data-weights": [3, 1.5]}, [3, 1.5]),
        ({"weight_by_num_documents": True, "weighted_sampler_alpha": 0.3}, document_weights([200, 70], 0.3)),
        ({"weight_by_num_documents": True}, document_weights([200, 70], 1.0)),
    ):
        run = AuditedRun.open(write("all.yml", keys | more))
        data = [{"prefix": path, "weight": weight} for path, weight in zip(paths, weights, strict=True)]
        assert samples(run) == samples(described(lineage="gpt-neox", data=data, split=None))


def test_the_weights_by_documents_are_gpt_neoxs_to_the_last_bit():
    # By weights_by_num_docs([200, 70, 3], alpha=0.3) of EleutherAI/gpt-neox ea7aefd8, megatron/data/data_utils.py.
    golden = ["0x1.f61d7d1f9fe4ep-3", "0x1.fd86d681fcde6p-2", "0x1.076a6aee332f1p-2"]
    assert [weight.hex() for weight in document_weights([200, 70, 3], 0.3)] == golden
    assert document_weights([5], 0.3) == [1.0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"train_batch_size": None},
            "the global batch size is missing: .*give `global_batch_size` in",
        ),
        ({"pack-impl": "unpacked"}, "launched with --pack-impl unpacked, expected packed: samples are packed"),
        ({"dataset_impl": "pairwise"}, "launched with --dataset-impl pairwise, expected gpt2"),
        ({"train_epochs": 2, "train_iters": None}, "launched with train_epochs: the order is built for whole epochs"),
        ({"curriculum_learning": {"enabled": True}}, "launched with --curriculum-learning: the curriculum truncates"),
        ({"train_data_paths": ["data/wiki"], "train_data_weights": [1, 2]}, "train_data_weights: found .* 1 numbers"),
        ({"train_data_paths": "data/wiki"}, "train_data_paths: found .*, expected a list of paths"),
        ({"data_path": 5}, "data_path: found 5, expected a path, or train_data_paths"),
        ({"seq_length": "2k"}, "seq_length: found '2k', expected a whole number"),
        ({"train_iters": None}, "train_iters: found None, expected a number"),
    ],
)
def test_what_gpt_neox_does_otherwise_or_leaves_out_is_named(more, message):
    keys = {name.replace("-", "_"): value for name, value in NEOX.items()} | {"train_batch_size": 8}
    keys |= more
    with pytest.raises((UserError, EvidenceError), match=rf"all\.yml: .*{message}"):
        AuditedRun.open(write("all.yml", keys))


def test_two_files_with_the_same_key_are_refused_as_gpt_neox_refuses_them():
    write("a.yml", NEOX)
    write("b.yml", {"seq_length": 32, "hostfile": None})
    Path("megatron-run.yaml").write_text("launch: [a.yml, b.yml]\n")
    with pytest.raises(ConfigError, match=r"b\.yml: seq_length: found a key that a\.yml has too"):
        AuditedRun.open(Path())


def test_a_checkpoint_of_gpt_neox_is_read_with_the_yaml_files_that_it_keeps():
    keys = {name: value for name, value in NEOX.items() if name != "gradient_accumulation_steps"}
    saved(10, {"model.yml": NEOX, "local.yml": {"hostfile": "/h"}}, dp_world_size=2, global_samples=80)
    saved(20, {"model.yml": NEOX}, ds_config={"train_batch_size": 8}, global_samples=160)
    saved(30, {"model.yml": keys | {"train_batch_size": 16}}, global_samples=320)
    run = AuditedRun.open(Path("ck/global_step20"))
    assert (run.lineage, run.iteration, run.consumed_samples, run.findings) == ("gpt-neox", 20, 160, ())
    assert samples(run) == samples(described(lineage="gpt-neox", iteration=20))
    assert (run.unbound, run.level()) == ((), "re-derived")
    said = {each.name: each.argument for each in run.report().settings}
    assert said["global_batch_size"] == "train_batch_size (ds_config)"
    resumed = AuditedRun.open(Path("ck"))
    assert [(each.first_step, each.last_step) for each in resumed.report().launches] == [(1, 20), (21, 30)]
    assert "global_batch_size was 8, is 16" in resumed.report().launches[1].changed
    # GPT-NeoX goes on at steps * batch size of its new order: samples 160 to 320 are skipped.
    assert [(each.first_sample, each.num_samples) for each in resumed.report().launches] == [(0, 160), (320, 160)]
    assert (resumed.consumed_samples, resumed.findings) == (320, ())
    assert [sample.g for sample in resumed.step(21)] == list(range(320, 336))


def test_a_checkpoint_of_gpt_neox_without_yaml_files_says_what_is_needed():
    saved(10, {}, dp_world_size=2)
    with pytest.raises(
        UserError,
        match=r"a checkpoint of GPT-NeoX, .* YAML files of the launch are missing in ck/global_step10/configs",
    ):
        AuditedRun.open(Path("ck"))
    write("model.yml", NEOX)
    Path("megatron-run.yaml").write_text("checkpoint: ck\nlaunch: model.yml\n")
    run = AuditedRun.open(Path())
    assert (run.iteration, run.run.global_batch_size, run.unbound) == (10, 8, ())
    assert samples(run) == samples(described(lineage="gpt-neox", iteration=10))


SCRIPT = """#!/bin/bash
WIKI=data/wiki
DATA=(--data-path 0.3 $WIKI 0.7 data/books --split 90,10,0)
deepspeed --num_gpus 2 pretrain_gpt.py ${DATA[@]} --seq-length 16 \\
    --train-samples 320 --global-batch-size 8 --seed $SEED --deepspeed --lr 1e-4
"""


def test_a_launch_script_is_a_launch():
    Path("run.sh").write_text(SCRIPT.replace("$SEED", "7"))
    run = AuditedRun.open(Path("run.sh"), lineage="bigscience")
    data = [{"prefix": str(Path(f"data/{name}").resolve()), "weight": w} for name, w in (("wiki", 0.3), ("books", 0.7))]
    own = described(lineage="bigscience", data=data, seed=7, train_iters=None, train_samples=320)
    assert samples(run) == samples(own)
    assert (run.iteration, [each.what for each in run.unbound]) == (40, ["No checkpoint of the run"])
    assert AuditedRun.open(Path("run.sh")).lineage in ("megatron-deepspeed", "bigscience")
    Path("run.sh").write_text(SCRIPT.replace("$SEED --deepspeed", "7").replace("0.3 $WIKI 0.7 data/books", "$WIKI"))
    names = {each.name for each in AuditedRun.open(Path("run.sh")).launches[0].launched.lineages}
    assert {"megatron-core-0.13", "megatron-core-0.7", "megatron-lm-legacy", "bigscience"} <= names


def test_a_value_that_needs_a_shell_can_be_stated():
    Path("run.sh").write_text(SCRIPT)
    message = (
        r"run\.sh: argument seed: found \$SEED \(line 5: the script does not assign SEED\), expected a whole number"
    )
    with pytest.raises(EvidenceError, match=message):
        AuditedRun.open(Path("run.sh"))
    Path("megatron-run.yaml").write_text("launch: run.sh\nseed: 7\niteration: 12\n")
    run = AuditedRun.open(Path(), lineage="bigscience")
    assert (run.run.seed, run.iteration, run.unbound) == (7, 12, ())
    Path("run.sh").write_text(SCRIPT.replace("--lr 1e-4", "--lr 1e-4 $MORE"))
    (unbound,) = AuditedRun.open(Path(), lineage="bigscience").unbound
    assert unbound.what == "run.sh: line 5: `$MORE`"


def namespace(**changes):
    """Arguments of bigscience's Megatron-DeepSpeed with data paths that have parts."""
    return argparse.Namespace(
        **{
            "data_path": None, "train_weighted_split_paths": [["data/wiki", "data/books"]],
            "train_weighted_split_weights": [["0.3", "0.7"]], "train_weighted_split_splits": [["0:0.5", "0.25:1"]],
            "train_weighted_split_names": ["train"], "seed": 1234, "seq_length": 16, "global_batch_size": 8,
            "rampup_batch_size": None, "train_samples": 320, "train_iters": None, "data_impl": "mmap", "split": None,
            "consumed_train_samples": 320, "deepspeed": True, "dataloader_type": "single",
        }
        | changes
    )  # fmt: skip


def save(arguments):
    torch = pytest.importorskip("torch")
    Path("ck/global_step40").mkdir(parents=True, exist_ok=True)
    torch.save({"args": arguments, "iteration": 40}, "ck/global_step40/mp_rank_00_model_states.pt")
    return Path("ck/global_step40")


def test_data_paths_with_parts_are_read_from_a_checkpoint_a_script_and_a_file():
    parts = (("wiki", 0.3, [0, 0.5]), ("books", 0.7, [0.25, 1]))
    data = [{"prefix": str(Path(f"data/{name}").resolve()), "weight": w, "part": part} for name, w, part in parts]
    own = samples(described(lineage="bigscience", data=data, split=None, train_iters=None, train_samples=320))
    documents = [{part[0] for component, held in own if component == c for part in held} for c in (0, 1)]
    assert max(documents[0]) < 100
    assert min(documents[1]) >= 17  # round(70 / 4), half to even
    run = AuditedRun.open(save(namespace()))
    assert (run.lineage, run.findings, samples(run)) == ("bigscience", (), own)
    text = "train: 0.3 0:0.5 data/wiki, 0.7 0.25:1 data/books"
    Path("paths.txt").write_text(f'"{text}"\n')
    for flags in (f'--train-weighted-split-paths "{text}"', "--train-weighted-split-paths-path paths.txt"):
        launch = "python pretrain_gpt.py --seq-length 16 --train-samples 320 --global-batch-size 8"
        Path("run.sh").write_text(f"{launch} {flags}\n")
        script = AuditedRun.open(Path("run.sh"))
        assert (script.lineage, samples(script)) == ("bigscience", own)


@pytest.mark.parametrize(
    "changes",
    [
        {"train_weighted_split_paths": [["data/wiki"], ["data/books"]]},
        {"train_weighted_split_weights": None},
        {"train_weighted_split_splits": [["0:0.5", "half"]]},
        {"train_weighted_split_splits": [["0:0.5", "0:0.5:1"]]},
        {"train_weighted_split_weights": [["a", "b"]]},
        {"train_weighted_split_paths": 5},
        {"train_weighted_split_paths": ["no group"]},
    ],
)
def test_other_data_paths_with_parts_are_named(changes):
    with pytest.raises(TreeringError, match="argument train_weighted_split_paths: found"):
        AuditedRun.open(save(namespace(**changes)))


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("notes.txt", b"hello", "found a file of another form"),
        ("ds_config.json", b'{"train_batch_size": 8}', "found a JSON file"),
        ("pretrain.py", b"import torch\n", "found a Python program"),
        ("other.yaml", b"a: 1\nb: 2\n", "found a YAML file with keys a, b"),
        ("raw", b"\0\1\2", "found a file of another form"),
        ("fifo", None, "not a regular file"),
        ("run.sh", b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_file_of_no_known_form_names_those_that_are_accepted(name, content, found):
    if content is None:
        os.mkfifo(name)
    else:
        Path(name).write_bytes(content)
    result = CliRunner().invoke(app, ["audit", "--megatron-run", name])
    assert isinstance(result.exception, UserError)
    text = str(result.exception)
    assert text.startswith(f"{name}: {found}")
    if name != "run.sh":
        assert "a YAML file of GPT-NeoX; or a launch script for bash" in text


def test_a_hundred_thousand_data_paths_and_a_fifo_of_them_end_soon():
    words = " ".join(f"1 data/{number}" for number in range(100_000))
    arguments = {"train_weighted_split_paths": None, "data_args_path": "list.txt", "split": "1,0,0"}
    place = save(namespace(**arguments))
    Path("list.txt").write_text(words)
    with pytest.raises(UserError, match=r"data_args_path: found 200,000 words, expected at most 32,766 data paths"):
        AuditedRun.open(place)
    Path("list.txt").unlink()
    os.mkfifo("list.txt")
    with pytest.raises(UserError, match=r"list\.txt: is a pipe, expected a regular file"):
        AuditedRun.open(place)
    shutil.rmtree("ck")


def test_what_the_token_files_leave_open_is_said():
    whole = described(lineage="bigscience").report()
    assert not any("wiki.bin" in text or "sequences" in text for text in whole.not_proven)
    Path("data/wiki.bin").unlink()
    raw = bytearray(Path("data/wiki.idx").read_bytes())
    raw[26:34] = (101).to_bytes(8, "little")
    pairs = np.arange(0, 201, 2, dtype="<i8").tobytes()  # documents of two sequences each
    Path("data/wiki.idx").write_bytes(bytes(raw[: 34 + 12 * 200]) + pairs)
    run = described(lineage="bigscience")
    assert samples(run) == samples(described(lineage="bigscience"))
    open_ends = run.report().not_proven
    place = Path("data/wiki.idx").resolve()
    assert f"That wiki.bin has as many tokens as {place} lists: wiki.bin is missing." in open_ends
    assert any(f"of {place} belongs to: it groups 200 sequences into 100 documents" in text for text in open_ends)


def test_a_damaged_index_is_an_error_and_no_answer():
    raw = bytearray(Path("data/wiki.idx").read_bytes())
    raw[34:38] = (-5).to_bytes(4, "little", signed=True)
    Path("data/wiki.idx").write_bytes(raw)
    with pytest.raises(EvidenceError, match=r"wiki\.idx: sequence 0 has length -5 \(byte 34\), expected at least 0"):
        described(lineage="bigscience")


def test_an_order_that_the_machine_cannot_hold_is_refused_before_it_is_built():
    raw = index_bytes(np.full(1, 2**31 - 1, dtype=np.int32))  # one sequence, and many samples of it
    Path("data/wiki.idx").write_bytes(raw)
    Path("data/wiki.bin").unlink()
    with pytest.raises(UserError, match=r"an order of 68,719,476,736 samples takes [\d,]+\.\d GB of memory, expected"):
        described(lineage="bigscience", split="1,0,0", train_iters=None, train_samples=2**36)
