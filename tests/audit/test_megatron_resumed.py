"""Runs that were resumed with other arguments: each stretch of steps by its own, from checkpoints alone."""

import json

import megatron_data
import megatron_run
import pytest
import yaml
from megatron_run import BLEND, LENGTHS, STEPS, audit_command

from treering.audit.megatron.run import AuditedRun


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder from which the run was launched."""
    pytest.importorskip("megatron.core")
    monkeypatch.chdir(tmp_path)
    megatron_run.write_data(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def group():
    pytest.importorskip("megatron.core.datasets.gpt_dataset")
    with megatron_data.process_group():
        yield


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    "changes",
    [
        {"data_path": BLEND[:4], "train_samples": 100},  # another blend
        {"train_samples": 130, "global_batch_size": 12},
        {"global_batch_size": 4},  # the same order in other steps
        {"rampup_batch_size": ["2", "2", "40"], "seq_length": 7, "train_samples": 100},
    ],
)
def test_a_run_that_was_resumed_with_other_arguments(folder, changes):
    args = megatron_run.arguments(data_path=BLEND, train_samples=90, split="100", data_cache_path="cache")
    read = dict(enumerate(megatron_run.batches(args, 3), 1))
    megatron_run.save(folder / "ckpt", args, 2)
    megatron_run.save(folder / "ckpt", args, 3)
    alone = AuditedRun.open(folder / "ckpt")
    assert len(alone.launches) == 1
    before = megatron_run.datasets(args)[0]
    vars(args).update(changes)
    after = megatron_run.datasets(args)[0]
    read |= {step + 3: samples for step, samples in enumerate(megatron_run.batches(args, STEPS - 3, read[3].stop), 1)}
    megatron_run.save(folder / "ckpt", args, STEPS, consumed=read[STEPS].stop)
    run = AuditedRun.open(folder / "ckpt")
    report = run.report()
    assert report.holds
    assert [(each.first_step, each.last_step, each.first_sample) for each in report.launches] == [
        (1, 3, 0), (4, STEPS, read[3].stop),
    ]  # fmt: skip
    assert report.consumed_samples == sum(usage.samples for usage in report.corpora) == read[STEPS].stop
    assert report.consumed_tokens == sum(usage.tokens for usage in report.corpora)
    found = {step: [] for step in read}
    for step, samples in read.items():
        for g in samples:
            component, dataset, k = megatron_data.place(before if step <= 3 else after, g)
            held = dataset._query_document_sample_shuffle_indices(k)[1].tolist()
            found[step].append((f"data/{list(LENGTHS)[component]}", held))
        assert [(each.corpus, [part.number for part in each.documents]) for each in run.step(step)] == found[step]
    for usage in report.corpora:
        own = [(step, held) for step, samples in found.items() for corpus, held in samples if corpus == usage.corpus]
        assert usage.samples == len(own)
        assert usage.documents_touched == len({document for _, held in own for document in held})
        for number in range(usage.num_documents):
            steps = [sample.step for sample in run.exposures(f"{usage.corpus}:{number}")]
            assert steps == [step for step, held in own if number in held]
    name = next(iter(changes))
    assert any(name in text for text in report.launches[1].changed) or name in ("data_path", "rampup_batch_size")
    assert any("right after step 3: a checkpoint from which it was resumed" in text for text in report.not_proven)
    # without `save_interval` a removed checkpoint may have been any; another batch size leaves its mark in the samples
    assert [each.steps for each in report.unbound] == ([(4, 6)] if name == "data_path" else [])
    assert len(AuditedRun.open(folder / "ckpt" / "iter_0000003").launches) == 1, "what came later is no part of it"
    assert "resumed      from step 4 on with other arguments" in audit_command("ckpt").stdout


def test_a_description_may_ask_for_another_step_of_a_resumed_run(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    megatron_run.save(folder / "ckpt", args, 3)
    args.global_batch_size = 4
    megatron_run.save(folder / "ckpt", args, STEPS, consumed=24 + 4 * (STEPS - 3))
    for iteration, steps in ((6, [(1, 3, 24), (4, 6, 12)]), (3, [(1, 3, 24)]), (2, [(1, 2, 16)])):
        (folder / "run.yaml").write_text(yaml.safe_dump({"checkpoint": "ckpt", "iteration": iteration}))
        launches = AuditedRun.open(folder / "run.yaml").report().launches
        assert [(each.first_step, each.last_step, each.num_samples) for each in launches] == steps


def test_checkpoints_of_two_runs_in_one_folder(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    megatron_run.save(folder / "ckpt", args, 6)
    args.global_batch_size = 2
    megatron_run.save(folder / "ckpt", args, STEPS)
    run = AuditedRun.open(folder / "ckpt")
    assert [(each.first_step, each.last_step, each.num_samples) for each in run.report().launches] == [(1, STEPS, 14)]
    aside = [text for text in run.report().not_proven if "not on the way" in text]
    assert aside == [
        "That iter_0000006 is not on the way to this checkpoint: of more samples consumed than iter_0000007, so of an "
        "abandoned branch or of another run."
    ]


def test_an_earlier_checkpoint_that_cannot_be_read_is_a_finding(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    earlier = megatron_run.save(folder / "ckpt", args, 3) / "mp_rank_00" / "model_optim_rng.pt"
    megatron_run.save(folder / "ckpt", args, STEPS).rename(folder / "ckpt" / "iter_0000009")
    earlier.write_bytes(b"torn")
    findings = AuditedRun.open(folder / "ckpt" / "iter_0000009").findings
    assert [finding.file.split("/")[-3] for finding in findings] == ["iter_0000009", "iter_0000003"]
    assert "iteration 7, expected 9 by its folder's name" in findings[0].text
    assert "the launch arguments of an earlier checkpoint cannot be read" in findings[1].text
    result = audit_command("ckpt/iter_0000009", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["level"] == "declared"


def test_a_batch_size_that_changed_between_two_checkpoints_is_seen_in_one(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    place = megatron_run.save(folder / "ckpt", args, STEPS)
    args.global_batch_size = 4
    import torch

    torch.save({"args": args, "iteration": STEPS}, place / "mp_rank_00" / "model_optim_rng.pt")
    (finding,) = AuditedRun.open(folder / "ckpt").findings
    assert "56 samples consumed, the batch schedule has consumed 28 after step 7" in finding.text
    args.global_batch_size = 16
    torch.save({"args": args, "iteration": STEPS}, place / "mp_rank_00" / "model_optim_rng.pt")
    run = AuditedRun.open(folder / "ckpt")
    assert [len(run.step(step)) for step in (3, 4, 5)] == [16, 8, 0], "no sample that was not consumed"
