"""`treering audit --megatron-run` on checkpoints alone: what their arguments say is what megatron-core reads."""

import json

import megatron_data
import megatron_run
import pytest
import yaml
from megatron_run import BLEND, LENGTHS, STEPS, audit_command

from treering.audit.megatron.run import AuditedRun
from treering.errors import EvidenceError


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


def compare(run, args, names):
    """Holds an audited run against the training set that megatron-core builds from the same arguments."""
    train = megatron_run.datasets(args)[0]
    read = {}
    for step, samples in enumerate(megatron_run.batches(args, STEPS), 1):
        read[step] = []
        for g in samples:
            component, dataset, k = megatron_data.place(train, g)
            read[step].append(
                (g, f"data/{names[component]}", dataset._query_document_sample_shuffle_indices(k)[1].tolist())
            )
        told = [(sample.g, sample.corpus, [part.number for part in sample.documents]) for sample in run.step(step)]
        assert told == read[step]
    everything = [sample for step in read.values() for sample in step]
    report = run.report()
    assert report.holds
    assert (report.iteration, report.consumed_samples) == (STEPS, len(everything))
    for usage in report.corpora:
        own = [documents for _, corpus, documents in everything if corpus == usage.corpus]
        assert usage.samples == len(own)
        assert usage.documents_touched == len({each for documents in own for each in documents})
        for number in range(usage.num_documents):
            exposures = run.exposures(f"{usage.corpus}:{number}")
            assert [(sample.step, sample.g) for sample in exposures] == [
                (step, g)
                for step, samples in read.items()
                for g, corpus, documents in samples
                if corpus == usage.corpus and number in documents
            ]


@pytest.mark.slow
@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("form", ["zip", "legacy", "pipeline", "distributed", "sharded", "deepspeed"])
def test_a_checkpoint_tells_all_that_its_audit_needs(folder, form):
    args = megatron_run.arguments(
        data_path=BLEND, split="100,0,0", train_samples=90, rampup_batch_size=["2", "2", "30"]
    )
    place = megatron_run.save(folder / "ckpt", args, STEPS, form)
    for path in (
        folder / "ckpt",
        place,
        next(file for file in place.rglob("*") if file.name == ".metadata" or file.suffix == ".pt"),
    ):
        run = AuditedRun.open(path)
        assert (run.iteration, run.run.seed, run.run.split) == (STEPS, 1234, "100,0,0")
    compare(run, args, list(LENGTHS))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"data_path": ["data/books"], "train_iters": 8, "split": "60,20,20"}, ["books"]),
        ({"data_path": BLEND, "train_iters": 9, "split": "60,20,20", "seed": 7}, ["wiki", "books", "code"]),
        ({"data_path": BLEND[1::2], "train_iters": 7, "split": "100"}, ["wiki", "books", "code"]),
        ({"data_path": ["data/wiki", "data/books"], "train_iters": 7, "split": "100"}, ["wiki", "books"]),
        ({"train_data_path": BLEND[:4], "valid_data_path": BLEND[4:], "train_samples": 80}, ["wiki", "books"]),
        ({"train_data_path": ["data/wiki"], "train_iters": 12, "global_batch_size": 6}, ["wiki"]),
        ({"data_args_path": "blend.txt", "split": "60,20,20", "train_samples": 70}, ["code", "books"]),
        ({"per_split_data_args_path": "blend.json", "train_iters": 7}, ["books", "wiki"]),
        ({"data_path": BLEND, "split": "100", "train_iters": 7, "mid_level_dataset_surplus": 0.5}, list(LENGTHS)),
    ],
)  # fmt: skip
def test_data_are_named_in_all_of_megatrons_ways(folder, changes, names):
    (folder / "blend.txt").write_text("0.4 data/code\n0.6 data/books\n")
    (folder / "blend.json").write_text(
        json.dumps({"train": ["1", "data/books", "3", "data/wiki"], "valid": ["data/code"], "test": ["data/code"]})
    )
    args = megatron_run.arguments(**changes, data_cache_path=str(folder / "cache"))
    megatron_run.save(folder / "ckpt", args, STEPS)
    before = AuditedRun.open(folder / "ckpt")
    compare(before, args, names)
    after = AuditedRun.open(folder / "ckpt", verify=True)  # now with the cache that megatron-core left
    assert len(after.report().indices_read) == len(names) + (len(names) > 1)
    assert after.findings == ()


def test_the_report_says_which_value_came_from_where(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="969, 30, 1", eod_mask_loss=True)
    place = megatron_run.save(folder / "ckpt", args, STEPS)
    report = json.loads(audit_command("ckpt", "--json").stdout)
    told = {
        setting["name"]: (setting["value"], setting["origin"], setting["argument"]) for setting in report["settings"]
    }
    assert told["seed"] == (1234, "checkpoint", "--seed")
    assert told["sequence_length"] == (10, "checkpoint", "--seq-length")
    assert told["iteration"] == (STEPS, "checkpoint", None)
    assert told["extra_token"] == (True, "default", None)
    assert told["eod_mask_loss"] == (True, "checkpoint", "--eod-mask-loss")
    assert told["data"][0][1] == {"prefix": "data/books", "weight": 5.0}
    assert report["source"].endswith("model_optim_rng.pt")
    shown = audit_command(place).stdout
    for text in ("3 data paths  (--data-path)", "seed                 1234  (--seed)", "assurance    re-derived"):
        assert text in shown


def test_what_a_description_says_goes_before_the_checkpoint(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    place = megatron_run.save(folder / "ckpt", args, STEPS)
    (folder / "other").mkdir()
    description = folder / "other" / "run.yaml"
    description.write_text(yaml.safe_dump({"checkpoint": f"../ckpt/{place.name}", "seed": 5, "train_iters": 10}))
    run = AuditedRun.open(description)
    assert (run.run.seed, run.run.train_samples, run.run.train_iters, run.iteration) == (5, None, 10, STEPS)
    origins = {setting.name: setting.origin for setting in run.report().settings}
    assert (origins["seed"], origins["train_iters"], origins["data"]) == ("description", "description", "checkpoint")
    (folder / "moved").mkdir()
    for name in LENGTHS:
        for suffix in (".bin", ".idx"):
            (folder / "data" / f"{name}{suffix}").rename(folder / "moved" / f"{name}{suffix}")
    description.write_text(yaml.safe_dump({"checkpoint": "../ckpt", "data": [{"prefix": "../moved/wiki"}]}))
    assert AuditedRun.open(description).order.components[0].corpus == "../moved/wiki"
    with pytest.raises(EvidenceError, match=r"data/wiki\.idx: No such file, .* --data-root OLD=NEW"):
        AuditedRun.open(place)
    told = json.loads(audit_command(place, "--data-root", "data=moved", "--step", 1, "--json").stdout)
    assert told["samples"][0]["corpus"] in BLEND, "by the name that the run gave it"
    assert "expected OLD=NEW" in str(audit_command(place, "--data-root", "moved").exception)


def test_a_schedule_of_batch_sizes_is_rounded_to_samples_as_megatron_does(folder):
    args = megatron_run.arguments(
        data_path=BLEND, train_samples=80, split="100", step_batch_size_schedule="0:4, 0.209K:8", global_batch_size=None
    )
    megatron_run.save(folder / "ckpt", args, STEPS, consumed=5 * 4 + 2 * 8)
    run = AuditedRun.open(folder / "ckpt")
    assert run.run.batch_steps == "0:4 200:8", "209 tokens are 20 whole samples of 10"
    assert run.findings == ()
    assert [len(run.step(step)) for step in range(1, STEPS + 1)] == [4] * 5 + [8] * 2
    args.step_batch_size_schedule = "0:4 many"
    megatron_run.save(folder / "ckpt", args, STEPS, consumed=36)
    with pytest.raises(EvidenceError, match=r"argument step_batch_size_schedule: found .* expected TOKENS:SAMPLES"):
        AuditedRun.open(folder / "ckpt")


def test_iterations_that_were_skipped_are_named(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100", iterations_to_skip=[2, 3, 20])
    megatron_run.save(folder / "ckpt", args, STEPS)
    run = AuditedRun.open(folder / "ckpt")
    assert run.report().skipped_steps == (3, 4)
    assert [run.step(step)[0].skipped for step in (2, 3, 4, 5)] == [False, True, True, False]
    assert "skipped      3, 4 (steps" in audit_command("ckpt").stdout


def test_what_the_arguments_leave_open_is_said(folder):
    for changes, text in (
        ({"finetune": True, "load": "base"}, r"--finetune, base"),
        ({"decrease_batch_size_if_needed": True}, "--decrease-batch-size-if-needed"),
    ):
        args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100", **changes)
        megatron_run.save(folder / "ckpt", args, STEPS)
        assert any(text in each for each in AuditedRun.open(folder / "ckpt").report().not_proven)


def test_the_lineage_is_told_by_the_arguments_or_left_open(folder):
    def audited(form="zip", without=(), **changes):
        args = megatron_run.arguments(data_path=["data/books"], train_samples=60, split="80,15,5", **changes)
        for name in without:
            delattr(args, name)
        return AuditedRun.open(megatron_run.save(folder / "ckpt", args, STEPS, form))

    megatron_data.write_pair(folder / "data" / "books", [31, 28, 30, 25, 40] * 7 + [33, 20])
    early = ("mid_level_dataset_surplus", "iterations_to_skip", "mock_data", "num_dataset_builder_threads")
    for run, lineage, others in (
        (audited(), "megatron-core-0.13", []),
        (audited("deepspeed", early), "megatron-deepspeed", []),  # bigscience makes the same order of it
        (audited("deepspeed", early, train_weighted_split_paths=None), "bigscience", []),
        (audited(without=early, data_impl="mmap"), "megatron-lm-legacy", []),
        (audited(without=early[:2]), "megatron-core-0.7", []),
        (audited(without=early[:1]), "megatron-core-0.11", []),
        (audited(without=early), "megatron-core-0.7", [("megatron-core-0.4", "megatron-lm-legacy")]),
    ):
        report = run.report()
        assert (run.run.lineage, report.lineage) == (lineage, lineage)
        assert run.order.components[0].plan.end == (30 if lineage.startswith("megatron-core") else 29)
        assert [each.lineages for each in report.alternatives] == others
        assert report.level == ("declared" if others else "re-derived")
    assert report.alternatives[0].rules == ("the sizes of the splits are rounded",)
    (folder / "run.yaml").write_text("checkpoint: ckpt\ngeneration: core-early\n")
    described = AuditedRun.open(folder / "run.yaml")
    assert (described.run.generation, described.lineage) == ("core-early", "megatron-core-0.7")
    assert [each.lineages for each in described.alternatives()] == [("megatron-core-0.4",)]
    (folder / "run.yaml").write_text("checkpoint: ckpt\nlineage: megatron-core-0.10.0\n")
    described = AuditedRun.open(folder / "run.yaml")
    assert (described.lineage, described.alternatives()) == ("megatron-core-0.7", ())
