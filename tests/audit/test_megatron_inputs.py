"""`treering audit --megatron-run` where something decides the order that the checkpoint does not hold."""

import argparse
import collections
import enum
import json
import os
import pickle
import re
import shutil
from pathlib import Path

import megatron_data
import megatron_run
import pytest
import yaml
from typer.testing import CliRunner

from treering.audit.megatron.inputs import HARMLESS, POINTERS, READ, REFUSED, is_set, unknown_arguments
from treering.audit.megatron.run import AuditedRun
from treering.cli import app
from treering.errors import EvidenceError, UserError

CASES = Path(__file__).with_name("megatron_cases")


@pytest.fixture
def case(tmp_path, monkeypatch):
    """Copies a case and makes its folder the working directory, as the run's was."""

    def copied(name):
        shutil.copytree(CASES / name, tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        return tmp_path / name

    return copied


def call(*arguments):
    return CliRunner().invoke(app, ["audit", "--megatron-run", *map(str, arguments)], env={"COLUMNS": "200"})


def test_a_file_of_data_paths_is_not_bound(case):
    case("args-file-edited")
    os.utime("blend.txt", (1, 1))
    report = AuditedRun.open(Path("ckpt")).report()
    assert (report.level, report.verdict) == ("declared", "declared: 10 steps; 1 input is not bound")
    (unbound,) = report.unbound
    assert unbound.what == "blend.txt: the file of data paths (--data-args-path)"
    assert "was changed after" not in unbound.why
    os.utime("blend.txt")
    (unbound,) = AuditedRun.open(Path("ckpt")).unbound
    assert "It was changed after the checkpoint was written." in unbound.why
    result = call("ckpt")
    assert result.exit_code == 3
    assert result.stdout.startswith("NOT BOUND    blend.txt")
    assert "Give `data` in megatron-run.yaml" in result.stdout
    told = json.loads(call("ckpt", "--step", 1, "--json").stdout)
    assert (told["level"], len(told["unbound"]), told["findings"]) == ("declared", 1, [])


def test_a_description_binds_what_the_checkpoint_only_points_to(case):
    folder = case("args-file-edited")
    data = [{"prefix": "data/wiki", "weight": 0.5}, {"prefix": "data/books", "weight": 0.5}]
    (folder / "megatron-run.yaml").write_text(yaml.safe_dump({"checkpoint": "ckpt", "data": data, "split": "1"}))
    report = AuditedRun.open(folder).report()
    assert (report.level, report.unbound) == ("re-derived", ())
    assert {usage.corpus: usage.samples for usage in report.corpora} == {"data/wiki": 40, "data/books": 40}
    assert call(".").exit_code == 0


def saved(folder, changes=(), *, state=None, name="iter_0000010/mp_rank_00/model_optim_rng.pt", iteration=10):
    """A checkpoint of a run over the case's two data paths, written by torch."""
    import torch

    said = {
        "data_path": ["0.5", "data/wiki", "0.5", "data/books"], "split": "1", "seed": 1234, "seq_length": 16,
        "micro_batch_size": 1, "global_batch_size": 8, "train_samples": 300, "consumed_train_samples": 8 * iteration,
        "load": "ckpt", "save": "ckpt", "mid_level_dataset_surplus": 0.005, "dataloader_type": "single",
        "data_sharding": True, "mask_prob": 0.15, "num_workers": 2, "sample_rate": 1.0, "split_transformers": False,
        "bert_binary_head": True, "encoder_seq_length": 16, "iterations_to_skip": [], "lr_decay_samples": 300,
    }  # fmt: skip
    file = folder / "ckpt" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    held = {"args": argparse.Namespace(**(said | dict(changes))), "iteration": iteration}
    torch.save(held | (state or {}), file)
    (folder / "ckpt" / "latest_checkpointed_iteration.txt").write_text(str(iteration))
    return file


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("curriculum", r"launched with --curriculum-learning: the curriculum truncates samples"),
        ("skip", r"launched with --skip-train-iteration-range: the reader skipped these iterations without counting"),
        ("idx-paths", r"launched with --train-doc-idx-path: the order was given as files"),
    ],
)
def test_older_names_of_what_is_refused(case, name, message):
    case(name)
    with pytest.raises(UserError, match=message):
        AuditedRun.open(Path("ckpt"))


def test_ranges_that_were_skipped_and_removed_are_refused_too(case):
    folder = case("args-file-edited")
    saved(folder, {"skip_train_iteration_range": collections.deque()})  # bigscience removes a range that is done
    with pytest.raises(UserError, match="--skip-train-iteration-range"):
        AuditedRun.open(Path("ckpt"))
    saved(folder, {"skip_train_iteration_range": None})
    assert AuditedRun.open(Path("ckpt")).level() == "re-derived"


REFUSED_VALUES = {
    "curriculum_learning": [True, {"enabled": True}],
    "data_efficiency": [{"enabled": True, "seed": 1}],
    "dataloader_type": ["cyclic", "external"],
    "train_range_to_skip": [[5, 9]],
    "train_iters_to_skip": [["5", "9"]],
    "train_doc_idx_path": ["x_doc_idx.npy"],
    "no_shuffle": [True],
    "pack_impl": ["unpacked"],
    "vision_model_type": ["clip"],
    "titles_data_path": ["titles"],
    "retro_workdir": ["retro"],
    "decoder_seq_length": [128],
    "noise_density": [0.15],
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_argument_that_leaves_the_usual_order_is_refused_by_name(case, name):
    folder = case("args-file-edited")
    refusal = REFUSED[name]
    for value in REFUSED_VALUES.get(name, ["something"]):
        saved(folder, {name: value})
        flag = "--" + name.replace("_", "-")
        with pytest.raises(UserError, match=rf"launched with {flag}.*{re.escape(refusal.reason)}.*cannot be rebuilt"):
            AuditedRun.open(Path("ckpt"))
    for value in (None, False, 0, 0.0, "", [], {}, {"enabled": False}, *refusal.usual):
        assert not is_set(value, refusal.usual), value


@pytest.mark.parametrize(
    ("changes", "what", "why"),
    [
        ({"fim_data": True}, "--fim-data True", "moved tokens within documents"),
        ({"fim_rate": 0.5}, "--fim-rate 0.5", "moved tokens within documents"),
        ({"per_dataset_sequences_path": "s.json"}, "--per-dataset-sequences-path s.json", "number of sequences"),
        ({"override_ckpt_iteration": 600}, "--override-ckpt-iteration 600", "read twice or not at all"),
        ({"load": "elsewhere"}, "The checkpoint in elsewhere (--load)", "what was read before"),
        ({"corpus_mixer": "m.json"}, "Unknown arguments that can touch data: corpus_mixer (m.json)", "may depend"),
        ({"my_shuffle_window": 7, "token_budget": 5}, "my_shuffle_window (7), token_budget (5)", "may depend"),
    ],
)
def test_what_a_checkpoint_only_points_to_lowers_the_level(case, changes, what, why):
    folder = case("args-file-edited")
    saved(folder, changes)
    report = AuditedRun.open(Path("ckpt")).report()
    (unbound,) = report.unbound
    assert (what in unbound.what, why in unbound.why) == (True, True), unbound
    assert (report.level, report.holds, unbound.remedy != "") == ("declared", True, True)
    assert call("ckpt").stdout.startswith("NOT BOUND    ")


def test_arguments_that_cannot_touch_data_are_not_mentioned(case):
    folder = case("args-file-edited")
    quiet = {
        "my_fancy_attention": True, "data_knob": None, "corpus_filter": False, "sample_budget": 0, "skip_list": [],
        "tokenizer_fast": True, "moe_token_budget": 4, "eval_data_name": "x", "finetune": True, "load": "elsewhere",
    }  # fmt: skip
    saved(folder, quiet)
    report = AuditedRun.open(Path("ckpt")).report()
    assert (report.unbound, report.level) == ((), "re-derived")
    assert any("--finetune, elsewhere" in text for text in report.not_proven)


def test_every_argument_whose_name_can_touch_data_is_in_one_table():
    named = json.loads((CASES / "argument_names.json").read_text())["arguments"]
    tables = {"refused": REFUSED.keys(), "pointers": POINTERS.keys(), "read": READ, "harmless": HARMLESS}
    for name in named:
        places = [table for table, names in tables.items() if name in names]
        assert len(places) <= 1, (name, places)
        assert places or unknown_arguments({name: "x"}) == [], name


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"language_model": {"embedding": {"tokentype_embeddings": {"weight": 0}}}}, "BERT"),
        ({"language_model": {"encoder": {}}, "lm_head": {"dense.weight": 0, "bias": 0}}, "BERT"),
        ({"encoder.layers.0.mlp.linear_fc1.weight": 0, "binary_head.weight": 0}, "BERT"),
        ({"language_model": {"decoder": {"layers.0.inter_attention.query.weight": 0}}}, "an encoder-decoder"),
        ({"encoder.layers.0.x": 0, "decoder.layers.0.cross_attention.linear_q.weight": 0}, "an encoder-decoder"),
        ({"vision_model.decoder.layers.0.x": 0, "language_model.decoder.layers.0.x": 0}, "a model of images"),
        ({"backbone": {"cls_token": 0}, "head": {}}, "a model of images"),
        ({"query_model": {"language_model": {}}}, "a retrieval model"),
        ({"language_model": {"encoder": {"layers.5.retriever.layers.0.x": 0}}}, "Retro"),
        ({"language_model": {}, "classification_head": {"weight": 0}}, "a classifier"),
    ],
)
def test_a_model_that_is_not_gpt_is_refused_by_its_weights(case, model, kind):
    folder = case("args-file-edited")
    file = saved(folder, state={"model": model})
    with pytest.raises(UserError, match=rf"the model is {kind}.*, expected a GPT"):
        AuditedRun.open(file)
    with pytest.raises(UserError, match=rf"the model is {kind}"):  # DeepSpeed's key for the model
        AuditedRun.open(saved(folder, state={"module": model}, name="global_step10/mp_rank_00_model_states.pt"))


def test_the_names_of_weights_in_a_distributed_checkpoint_are_looked_at_too(case):
    folder = case("args-file-edited")
    shutil.rmtree("ckpt")
    file = saved(folder, name="iter_0000010/common.pt")
    metadata = file.with_name(".metadata")

    def opened(**names):
        metadata.write_bytes(pickle.dumps(argparse.Namespace(state_dict_metadata=names, storage_data={})))
        return AuditedRun.open(Path("ckpt"))

    unseen = "That the model is a GPT: the checkpoint's file names no weights, and its arguments alone were read."
    assert unseen in AuditedRun.open(Path("ckpt")).report().not_proven
    gpt = opened(**{"decoder.layers.mlp.linear_fc1.weight": 1, "optimizer.state.exp_avg.embedding.x": 1})
    assert (gpt.level(), unseen in gpt.report().not_proven) == ("re-derived", False)
    with pytest.raises(UserError, match=r"the model is BERT .*binary_head\.weight"):
        opened(**{"encoder.layers.mlp.x": 1, "binary_head.weight": 1})
    metadata.unlink()
    (file.parent / "decoder.layers.cross_attention.linear_q.weight").mkdir()  # zarr
    with pytest.raises(UserError, match="the model is an encoder-decoder"):
        AuditedRun.open(Path("ckpt"))


@pytest.mark.parametrize(
    "model",
    [
        {"language_model": {"embedding": {"word_embeddings": {"weight": 0}}, "encoder": {"layers.0.mlp.x": 0}}},
        {"embedding.word_embeddings.weight": 0, "decoder.layers.0.self_attention.x": 0, "output_layer.weight": 0},
        {"embedding.word_embeddings.weight": 0, "decoder.layers.0.mixer.in_proj.weight": 0},  # Mamba
        {"decoder.layers.0.mlp.experts.x": 0, "mtp.layers.0.eh_proj.weight": 0},
    ],
)
def test_models_that_read_the_data_sets_of_a_gpt(case, model):
    folder = case("args-file-edited")
    assert AuditedRun.open(saved(folder, state={"model": model})).level() == "re-derived"


class ModelType(enum.Enum):
    """Megatron's; `other` is of a version to come."""

    encoder_or_decoder = 1
    encoder_and_decoder = 2
    retro_decoder = 4
    other = 9


class _ByNumber(pickle.Pickler):
    """Pickles a member of an enumeration as Python from 3.11.4 on does."""

    def reducer_override(self, member):
        return (type(member), (member.value,)) if isinstance(member, enum.Enum) else NotImplemented


class _ByName(pickle.Pickler):
    """Pickles a member of an enumeration as Python 3.11.0 to 3.11.3 does."""

    def reducer_override(self, member):
        return (getattr, (type(member), member.name)) if isinstance(member, enum.Enum) else NotImplemented


@pytest.mark.parametrize("pickler", [_ByNumber, _ByName])
def test_a_model_type_of_another_kind_is_refused(case, pickler, monkeypatch):
    folder = case("args-file-edited")
    monkeypatch.setattr(pickle, "Pickler", pickler)
    for kind, message in (
        (ModelType.encoder_and_decoder, "an encoder-decoder, as T5"),
        (ModelType.retro_decoder, "Retro"),
        (ModelType.other, "9" if pickler is _ByNumber else "other"),
        ([], r"\[\]"),
    ):
        with pytest.raises(UserError, match=rf"the model is {message} \(model_type\)"):
            AuditedRun.open(saved(folder, {"model_type": kind}))
    assert AuditedRun.open(saved(folder, {"model_type": ModelType.encoder_or_decoder})).level() == "re-derived"


@pytest.fixture(scope="module")
def group():
    pytest.importorskip("megatron.core.datasets.gpt_dataset")
    with megatron_data.process_group():
        yield


@pytest.mark.usefixtures("group")
def test_the_cache_that_the_run_left_binds_a_file_of_data_paths(case):
    folder = case("args-file-edited")
    Path("blend.txt").write_text("0.5 data/wiki 0.5 data/books")
    args = megatron_run.arguments(
        data_args_path="blend.txt", split="100", train_samples=300, seq_length=16, data_cache_path="cache"
    )
    megatron_run.datasets(args)  # megatron-core leaves its cache
    megatron_run.save(folder / "ckpt", args, 10)
    report = AuditedRun.open(Path("ckpt"), verify=True).report()
    assert (report.level, report.unbound, report.findings) == ("re-derived", (), ())
    (bound,) = report.bound
    assert bound.startswith(
        "blend.txt: the file of data paths (--data-args-path): its data paths and weights are those"
    )
    assert "-BlendedDataset-train-description.txt" in bound
    assert "bound        blend.txt" in call("ckpt", "--verify").stdout
    for changed in (
        "0.9 data/wiki 0.1 data/books",
        "0.50001 data/wiki 0.49999 data/books",
        "0.5 data/books 0.5 data/wiki",
    ):
        Path("blend.txt").write_text(changed)
        report = AuditedRun.open(Path("ckpt")).report()
        assert (report.level, report.bound, len(report.unbound)) == ("declared", (), 1), changed
        (finding,) = [each for each in report.findings if each.file == "blend.txt"]
        assert (
            "the index cache of a run with this seed, sequence length and split says 0.5 data/wiki 0.5 data/"
            in finding.text
        )
    shutil.rmtree("cache")
    report = AuditedRun.open(Path("ckpt")).report()
    assert (report.level, report.findings, len(report.unbound)) == ("declared", (), 1)


@pytest.mark.usefixtures("group")
def test_a_cache_binds_a_file_of_one_data_path(case):
    folder = case("args-file-edited")
    Path("blend.txt").write_text("data/wiki")
    args = megatron_run.arguments(
        data_args_path="blend.txt", split="100", train_samples=300, seq_length=16, data_cache_path="cache"
    )
    megatron_run.datasets(args)
    megatron_run.save(folder / "ckpt", args, 10)
    report = AuditedRun.open(Path("ckpt"), verify=True).report()
    assert (report.level, report.unbound, len(report.bound)) == ("re-derived", (), 1)
    Path("blend.txt").write_text("data/books")
    report = AuditedRun.open(Path("ckpt")).report()
    assert (report.level, report.bound, len(report.unbound)) == ("declared", (), 1)


@pytest.mark.parametrize("name", ["9" * 5000, "../other", "/etc", ""])
def test_a_tracker_of_deepspeed_that_names_no_checkpoint(case, name):
    folder = case("args-file-edited")
    (folder / "ckpt" / "latest_checkpointed_iteration.txt").unlink()
    (folder / "ckpt" / "latest").write_text(name)
    with pytest.raises(EvidenceError, match=r"latest: found .*, expected the name of a checkpoint"):
        AuditedRun.open(Path("ckpt"))
