"""Checkpoints and arguments of Megatron that cannot be audited: each error names the argument or the file."""

import json

import megatron_run
import pytest
from megatron_run import BLEND, STEPS, audit_command

from treering.audit.megatron.run import AuditedRun
from treering.errors import ConfigError, EvidenceError, NotFoundError, TreeringError, UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder from which the run was launched."""
    pytest.importorskip("megatron.core")
    monkeypatch.chdir(tmp_path)
    megatron_run.write_data(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"mock_data": True}, UserError, "launched with --mock-data: the run read made-up data"),
        ({"data_path": None}, UserError, "name no training data"),
        ({"dataloader_type": "cyclic"}, UserError, "--dataloader-type cyclic, expected single"),
        ({"sft": True}, UserError, "launched with --sft"),
        ({"phase_transition_iterations": [3]}, UserError, "--phase-transition-iterations: each phase"),
        ({"data_efficiency_curriculum_learning": True}, UserError, "chooses samples by difficulty"),
        ({"data_path": ["1", "data/wiki", "x", "data/code"]}, EvidenceError, "expected WEIGHT PREFIX, in pairs"),
        (
            {"data_path": None, "data_args_path": "none.txt"},
            UserError,
            r"none\.txt: No such file .*--data-root OLD=NEW",
        ),
        ({"data_path": None, "per_split_data_args_path": "bad.json"}, EvidenceError, "with `train`"),
        ({"data_path": ["data/none"]}, EvidenceError, r"data/none\.idx: No such file"),
        ({"data_path": ["data/torn"]}, EvidenceError, r"data/torn\.idx: found .* bytes, expected"),
        ({"seed": None}, EvidenceError, "argument seed: found None, expected a number"),
        ({"train_samples": "many"}, EvidenceError, "argument train_samples: found 'many', expected a whole number"),
    ],
)
def test_arguments_that_cannot_be_audited(folder, changes, error, message):
    (folder / "bad.json").write_text("{}")
    (folder / "data" / "torn.idx").write_bytes((folder / "data" / "wiki.idx").read_bytes()[:-9])
    args = megatron_run.arguments(**({"data_path": BLEND, "train_samples": 80, "split": "100"} | changes))
    args.train_samples, said = 80, args.train_samples
    place = megatron_run.save(folder / "ckpt", args, STEPS)
    if said != 80:
        import torch

        args.train_samples = said
        torch.save({"args": args, "iteration": STEPS}, place / "mp_rank_00" / "model_optim_rng.pt")
    with pytest.raises(error, match=message):
        AuditedRun.open(folder / "ckpt")


def test_folders_and_files_that_are_no_checkpoint(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    place = megatron_run.save(folder / "ckpt", args, STEPS, state={"args": None})
    file = place / "mp_rank_00" / "model_optim_rng.pt"
    with pytest.raises(
        EvidenceError, match=r"found no launch arguments \(`args`\) among checkpoint_version, iteration"
    ):
        AuditedRun.open(folder / "ckpt")
    megatron_run.save(folder / "ckpt", args, STEPS)
    whole = file.read_bytes()
    for damaged in (b"", b"no checkpoint", whole[: len(whole) // 2], whole[:-30]):
        file.write_bytes(damaged)
        with pytest.raises(EvidenceError, match=r"model_optim_rng\.pt: cannot be read .*whole file of torch\.save"):
            AuditedRun.open(folder / "ckpt")
    result = audit_command("ckpt", "--json")
    assert (result.exit_code, json.loads(result.stdout)["holds"]) == (3, False)
    file.unlink()
    with pytest.raises(NotFoundError, match=r"found none of common\.pt"):
        AuditedRun.open(folder / "ckpt")
    (place / ".metadata").touch()
    with pytest.raises(
        EvidenceError, match=r"\.metadata: cannot be read .*expected the metadata of a sharded checkpoint"
    ):
        AuditedRun.open(place)
    sharded = megatron_run.save(folder / "sharded", args, STEPS, "sharded")
    (shard,) = sharded.glob("*.distcp")
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(EvidenceError, match=r"\.distcp: cannot be read .*expected .* where \.metadata says"):
        AuditedRun.open(sharded)
    shard.unlink()
    with pytest.raises(EvidenceError, match=r"\.distcp: No such file"):
        AuditedRun.open(sharded)
    (folder / "ckpt" / "latest_checkpointed_iteration.txt").write_text("9")
    with pytest.raises(NotFoundError, match=r"iter_0000009: no such checkpoint, named by .*latest_checkpointed"):
        AuditedRun.open(folder / "ckpt")
    with pytest.raises(NotFoundError, match=r"data: found neither megatron-run\.yaml nor a checkpoint"):
        AuditedRun.open(folder / "data")
    with pytest.raises(NotFoundError, match="no such file or folder"):
        AuditedRun.open(folder / "elsewhere")
    (folder / "run.yaml").write_text("checkpoint: data\n")
    with pytest.raises(NotFoundError, match="found neither"):
        AuditedRun.open(folder / "run.yaml")
    (folder / "run.yaml").write_text("seed: 3\n")
    with pytest.raises(ConfigError, match="found nothing, expected a value"):
        AuditedRun.open(folder / "run.yaml")


ODD = [
    0,
    -1,
    2**63,
    10**30,
    float("nan"),
    "",
    "a\0b",
    "x" * 5000,
    [],
    {},
    ["nan", "data/wiki"],
    ["2", "2", "0"],
    b"x",
    True,
]


@pytest.mark.parametrize("odd", ODD, ids=[str(number) for number in range(len(ODD))])
def test_whatever_an_argument_holds_ends_in_an_answer_or_in_our_error(folder, odd):
    import torch

    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    file = megatron_run.save(folder / "ckpt", args, STEPS) / "mp_rank_00" / "model_optim_rng.pt"
    refused = []
    for name in (
        "data_path", "split", "seed", "seq_length", "global_batch_size", "rampup_batch_size", "train_samples", "load",
        "step_batch_size_schedule", "consumed_train_samples", "iterations_to_skip", "dataloader_type",
        "data_cache_path", "mid_level_dataset_surplus", "add_extra_token_to_sequence", "data_args_path",
    ):  # fmt: skip
        torch.save({"args": type(args)(**(vars(args) | {name: odd})), "iteration": STEPS}, file)
        try:
            AuditedRun.open(folder / "ckpt").report()
        except TreeringError:
            refused.append(name)
    assert refused, "no value is right for all of them"
