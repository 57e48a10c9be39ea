"""`treering audit --megatron-run` on checkpoints alone: what their arguments say is what megatron-core reads."""

import json
import os
import zipfile

import megatron_data
import megatron_run
import pytest
import yaml
from typer.testing import CliRunner

from treering.audit.megatron.pickled import read_saved
from treering.audit.megatron.run import AuditedRun
from treering.cli import app
from treering.errors import ConfigError, EvidenceError, NotFoundError, TreeringError, UserError

LENGTHS = {"wiki": [9, 30, 14, 3, 40, 21, 8, 33], "books": [150, 90, 120, 60], "code": [4, 7, 2, 9, 12, 5]}
BLEND = ["3", "data/wiki", "5", "data/books", "2", "data/code"]
STEPS = 7


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder from which the run was launched."""
    pytest.importorskip("megatron.core")
    monkeypatch.chdir(tmp_path)
    first = 0
    for name, lengths in LENGTHS.items():
        first += len(megatron_data.write_pair(tmp_path / "data" / name, lengths, first))
    return tmp_path


@pytest.fixture(scope="module")
def group():
    pytest.importorskip("megatron.core.datasets.gpt_dataset")
    with megatron_data.process_group():
        yield


def call(*arguments):
    return CliRunner().invoke(app, ["audit", "--megatron-run", *map(str, arguments)], env={"COLUMNS": "200"})


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
    report = json.loads(call("ckpt", "--json").stdout)
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
    shown = call(place).stdout
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
    told = json.loads(call(place, "--data-root", "data=moved", "--step", 1, "--json").stdout)
    assert told["samples"][0]["corpus"] in BLEND, "by the name that the run gave it"
    assert "expected OLD=NEW" in str(call(place, "--data-root", "moved").exception)


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
    assert "resumed      from step 4 on with other arguments" in call("ckpt").stdout


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
    assert "does not tell how its steps were launched" in findings[1].text
    result = call("ckpt/iter_0000009", "--json")
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
    assert "skipped      3, 4 (steps" in call("ckpt").stdout


def test_what_the_arguments_leave_open_is_said(folder):
    for changes, text in (
        ({"finetune": True, "load": "base"}, r"--finetune, base"),
        ({"decrease_batch_size_if_needed": True}, "--decrease-batch-size-if-needed"),
    ):
        args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100", **changes)
        megatron_run.save(folder / "ckpt", args, STEPS)
        assert any(text in each for each in AuditedRun.open(folder / "ckpt").report().not_proven)


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
    result = call("ckpt", "--json")
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


class Called:
    """An object whose pickle calls a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_a_pickle_runs_nothing(folder, form):
    marks = [folder / f"mark{number}" for number in range(4)]
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    args.hidden = Called(os.system, f"touch {marks[0]}")
    state = {
        "hook": Called(eval, f"open({str(marks[1])!r}, 'w')"),
        "popen": Called(os.popen, f"touch {marks[2]}"),
        "write": Called(exec, f"open({str(marks[3])!r}, 'w')"),
    }
    place = megatron_run.save(folder / "ckpt", args, STEPS, form, state=state)
    held = read_saved(place / "mp_rank_00" / "model_optim_rng.pt")
    assert repr(held["hook"]) == "<__builtin__.eval>"
    assert repr(held["args"].state["hidden"]) == "<posix.system>"
    assert AuditedRun.open(folder / "ckpt").iteration == STEPS
    assert not any(mark.exists() for mark in marks)


def test_a_pickle_cannot_change_what_it_is_built_from(tmp_path):
    for program in (
        b"ccollections\nOrderedDict\n(N(dX\x04\x00\x00\x00keys\x94K\x01sttb.",  # sets an attribute of a class
        b"cbuiltins\nset\n(N(dX\x03\x00\x00\x00addK\x01sttb.",
        b"cos\nsystem\nX\x01\x00\x00\x00xb.",
        b"K\x01.",
        b"}K\x01",
    ):
        path = tmp_path / "x.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x/data.pkl", program)
        with pytest.raises(EvidenceError, match=r"cannot be read|found int, expected the dictionary"):
            read_saved(path)
    assert "keys" in dir({})


def test_tensors_are_not_read(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    file = megatron_run.save(folder / "ckpt", args, STEPS) / "mp_rank_00" / "model_optim_rng.pt"
    with zipfile.ZipFile(file) as archive:
        kept = {name: archive.read(name) for name in archive.namelist() if "/data/" not in name}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
    assert AuditedRun.open(folder / "ckpt").iteration == STEPS


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
