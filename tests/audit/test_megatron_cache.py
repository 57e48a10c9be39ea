"""Index caches that Megatron left, of every program that names them its own way."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from treering.audit.megatron.run import AuditedRun
from treering.data.corpus.indexed import index_bytes, read_sequence_lengths

CASES = Path(__file__).with_name("megatron_cases")
STALE = Path("data/index-cache/90a92099528b2eb766b4970c1ce49f80")


@pytest.fixture
def stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint of a run of deepspeedai's Megatron-DeepSpeed that took a cache of other documents."""
    shutil.copytree(CASES / "legacy-stale-cache", tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    return Path("ckpt")


def test_a_stale_cache_of_megatron_deepspeed_is_a_finding(stale: Path) -> None:
    run = AuditedRun.open(stale)
    (finding,) = run.findings
    assert finding.text.startswith(f"{STALE}: this index cache was built from other data or settings, or is damaged")
    assert "sample 2 begins at token 13 of document 157, by today's .idx it begins at token 15" in finding.text
    assert (run.report().verdict, run.level()) == ("FAILED with 1 finding; declared: 20 steps", "declared")
    assert [each.text for each in AuditedRun.open(stale, verify=True).findings] == [finding.text]
    # What the fork read is in truth.json: it took each sample from where the cache says.
    true = [parts for _, parts in json.loads(Path("truth.json").read_text())]
    documents, samples, shuffle = (np.load(f"{STALE}_{name}_idx.npy") for name in ("doc", "sample", "shuffle"))
    begins = samples[shuffle[: len(true)]]
    assert [[documents[place], offset] for place, offset in begins.tolist()] == [parts[0][:2] for parts in true]
    rebuilt = [{span.document for span in each.spans} for each in run.order.samples_with_spans(0, 160)]
    assert sum(found != {part[0] for part in parts} for found, parts in zip(rebuilt, true, strict=True)) == 158


def array(change: Callable[[np.ndarray], np.ndarray], name: str = "sample") -> Callable[[], None]:
    def damage() -> None:
        np.save(f"{STALE}_{name}_idx.npy", change(np.load(f"{STALE}_{name}_idx.npy")))

    return damage


def raw(change: Callable[[bytes], bytes], name: str = "shuffle") -> Callable[[], None]:
    def damage() -> None:
        path = Path(f"{STALE}_{name}_idx.npy")
        path.write_bytes(change(path.read_bytes()))

    return damage


def pickled() -> None:
    np.save(f"{STALE}_doc_idx.npy", np.array([print], dtype=object), allow_pickle=True)


def fifo() -> None:
    Path(f"{STALE}_doc_idx.npy").unlink()
    os.mkfifo(f"{STALE}_doc_idx.npy")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (raw(lambda _: b""), "shuffle_idx.npy: cannot be read"),
        (raw(lambda held: held[:100]), "shuffle_idx.npy: cannot be read"),
        (raw(lambda held: held[:-4]), "shuffle_idx.npy: cannot be read"),
        (raw(lambda held: b"PK" + held[2:]), "shuffle_idx.npy: cannot be read"),
        (raw(lambda held: held.replace(b"362,", b"9**9")), "shuffle_idx.npy: cannot be read"),
        (raw(lambda held: held.replace(b"(362,)", b"(-2,) ")), "shuffle_idx.npy: cannot be read"),
        (raw(lambda held: held.replace(b"(362,)", b"()    ")), "shuffle_index has no entries, 362 entries follow"),
        (pickled, "doc_idx.npy: cannot be read (Array can't be memory-mapped: Python objects"),
        (fifo, "doc_idx.npy: No such file, or not a regular one, expected an array of whole numbers"),
        (array(lambda held: held.astype(np.float64)), "sample_idx.npy: found float64, expected an array of whole"),
        (array(lambda held: held.astype(np.uint64)), "sample_idx.npy: found uint64, expected an array of whole"),
        (array(lambda held: held[:, 0]), "sample_index has 363 entries, 363 x 2 entries follow"),
        (array(lambda held: held[:-1]), "sample_index has 362 x 2 entries, 363 x 2 entries follow"),
        (array(lambda held: held - 1, "doc"), "document_index does not list each of sequences 0 to 200 once an epoch"),
        (array(lambda held: held * 0, "doc"), "document_index does not list each of sequences 0 to 200 once an epoch"),
    ],
)
def test_a_damaged_cache_is_named_and_not_used(stale: Path, damage: Callable[[], None], message: str) -> None:
    damage()
    run = AuditedRun.open(stale)
    (finding,) = run.findings
    assert message in finding.text
    assert run.report().indices_read == ()


def test_another_number_of_epochs_in_the_description_is_a_finding(stale: Path) -> None:
    path = Path(f"{STALE}.dsc")
    path.write_text(path.read_text().replace("epochs 1", "epochs 2"))
    (finding,) = AuditedRun.open(stale).findings
    assert "its description names 2 epochs, 1 follow from today's .idx (5796 tokens in 200 sequences" in finding.text


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{}", b"GPT Datasett\n", b"\0" * 100])
def test_a_description_that_cannot_be_read_is_left_open(stale: Path, content: bytes) -> None:
    Path(f"{STALE}.dsc").write_bytes(content)
    run = AuditedRun.open(stale)
    assert run.findings == ()
    open_ends = [text for text in run.report().not_proven if "index cache" in text]
    damaged = f"Whether an index cache of this run is damaged: {STALE}.dsc: cannot be read"
    assert sum(text.startswith(damaged) for text in open_ends) == 1
    assert (
        "That no index cache of other data decided the order: none of this run was found beside the data." in open_ends
    )


def test_a_cache_of_other_arguments_is_not_this_run_s(stale: Path) -> None:
    path = Path(f"{STALE}.dsc")
    whole = path.read_text()
    for change in (
        ("samples 300", "samples 301"),
        ("seed 1234", "seed 1"),
        ("data/wiki", "data/wik"),
        ("100,0,0", "1,0,0"),
    ):
        path.write_text(whole.replace(*change))
        assert AuditedRun.open(stale).findings == ()


def test_the_description_of_megatron_core_may_be_anything(tmp_path: Path) -> None:
    from treering.data.megatron.blend import MegatronBlend
    from treering.data.megatron.cache_files import find_cache

    told = [
        "", "[]", "{", "null", "[1]", "\x00", '{"datasets": 3}', '{"datasets": []}', '{"datasets": [3]}',
        '{"dataset_path": ["a"]}',
        '{"dataset_path": {"a": 1}, "split": []}', "[" * 100_000, '{"datasets": [{"dataset_path": "a"}, {}]}',
    ]  # fmt: skip
    blend = MegatronBlend(("a", "b"), (1.0, 1.0), 1, 8, 9, split="1,0,0")
    for number, text in enumerate(told):
        for kind in ("GPTDataset", "BlendedDataset"):
            (tmp_path / f"{number}-{kind}-train-description.txt").write_text(text)
    os.mkfifo(tmp_path / "f-GPTDataset-train-description.txt")
    found = find_cache(blend, tmp_path, [tmp_path / "a", tmp_path / "b"])
    assert found.indices == ()
    assert sum("f-GPTDataset" in text for text in found.unread) == 1
    assert len(found.unread) >= 2 * 9


GOLDEN = Path(__file__).parents[1] / "data" / "golden_megatron"
PROGRAMS = sorted(path.stem for path in (GOLDEN / "caches").glob("*.zip"))
LEGACY = {"megatron-lm-2.5": "megatron-lm-legacy", "megatron-lm-23.06": "megatron-lm-legacy"}


def golden_cases(program: str) -> list[str]:
    with zipfile.ZipFile(GOLDEN / "caches" / f"{program}.zip") as archive:
        return sorted({name.partition("/")[0] for name in archive.namelist() if "/" in name})


def unpack(program: str, case: str, folder: Path) -> dict[str, Any]:
    """Token files and the cache that a program's own builder left, and a description of the run."""
    with zipfile.ZipFile(GOLDEN / "caches" / f"{program}.zip") as archive:
        told = json.loads(archive.read("cases.json"))
        asked = told["cases"][case]
        for name in set(asked["paths"]):
            (folder / f"{name}.idx").write_bytes(index_bytes(np.array(told["lengths"][name], dtype=np.int32)))
        for member in archive.namelist():
            if member.startswith(f"{case}/"):
                place = folder / member.partition("/")[2]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(member))
    weights, parts = (
        asked["weights"] or [None] * len(asked["paths"]),
        asked.get("ranges") or [None] * len(asked["paths"]),
    )
    rows = zip(asked["paths"], weights, parts, strict=True)
    data = [{"prefix": p, "weight": w, "part": part} for p, w, part in rows]
    run = {
        "data": [{name: value for name, value in entry.items() if value is not None} for entry in data],
        "split": asked["split"], "seed": asked["seed"], "sequence_length": asked["sequence_length"],
        "train_samples": asked["num_samples"], "global_batch_size": 1, "iteration": asked["num_samples"] - 1,
        "lineage": LEGACY.get(program, program), "cache": "cache" if (folder / "cache").is_dir() else None,
    }  # fmt: skip
    return {name: value for name, value in run.items() if value is not None}


def opened(run: dict[str, Any], **options: Any) -> AuditedRun:
    Path("run.yaml").write_text(yaml.safe_dump(run))
    return AuditedRun.open(Path("run.yaml"), verify=True, **options)


def read(run: AuditedRun) -> list[Any]:
    samples = run.order.samples_with_spans(0, run.consumed_samples)
    return [(each.component, [(part.document, part.start, part.end) for part in each.spans]) for each in samples]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_caches_of_every_program_are_found_compared_and_told_when_stale(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, case in enumerate(golden_cases(program)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        run = unpack(program, case, folder)
        fresh = opened(run)
        assert fresh.findings == (), case
        read_indices = {index.component for index in fresh.launches[0].cache.read}
        kept = (
            not program.startswith(("bigscience", "gpt-neox", "megatron-lm-2.5"))
            and run.get("cache")
            and fresh.order.blend.blended
        )
        assert read_indices == {*range(len(run["data"])), *([None] if kept else [])}, case
        own = read(fresh)
        told = opened({name: value for name, value in run.items() if name != "lineage"})
        assert (told.findings, read(told)) == ((), own), case
        assert told.level() == "re-derived", case
        for name in {entry["prefix"] for entry in run["data"]}:  # as many tokens, and other documents
            lengths = read_sequence_lengths(folder / f"{name}.idx")
            (folder / f"{name}.idx").write_bytes(index_bytes(np.roll(lengths, 1)))
        stale = opened(run)
        assert {finding.corpus for finding in stale.findings} == {entry["prefix"] for entry in run["data"]}, case
        assert all("built from other data or settings" in finding.text for finding in stale.findings)
        assert stale.level() == "declared"


def test_every_family_of_programs_has_kept_caches() -> None:
    families = {LEGACY.get(program, program.partition("-0.")[0]) for program in PROGRAMS}
    assert families == {"megatron-core", "megatron-lm-legacy", "megatron-deepspeed", "bigscience", "gpt-neox"}


@pytest.mark.parametrize(
    ("program", "stated", "fitting"),
    [
        ("bigscience", "megatron-deepspeed", "bigscience"),
        ("bigscience", "megatron-core-0.13", "bigscience"),
        ("gpt-neox", "bigscience", "gpt-neox"),
        ("megatron-core-0.12.3", "megatron-core-0.7", "megatron-core-0.1"),
    ],
)
def test_a_cache_that_only_another_lineage_makes_is_a_finding(
    program: str, stated: str, fitting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = (
        "the split's own paths with weights"
        if program == "gpt-neox"
        else "a blend whose last epochs stand apart or not"
    )
    run = unpack(program, case, tmp_path)
    (finding,) = opened(run | {"lineage": stated}).findings
    assert f"this index cache fits the lineage {fitting}" in finding.text
    assert f"and the answers are by {stated}: " in finding.text
    assert "state --lineage" in finding.text


def test_a_cache_tells_the_lineage_and_the_report_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = unpack("bigscience", "a blend whose last epochs stand apart or not", tmp_path)
    del run["lineage"]
    report = opened(run).report()
    (setting,) = [each for each in report.settings if each.name == "lineage"]
    assert (setting.value, setting.origin, report.alternatives, report.level) == (
        "bigscience",
        "cache",
        (),
        "re-derived",
    )
    assert str(setting.argument).endswith("edge_train_indexmap_217ns_16sl_1234s")
    for path in tmp_path.glob("*.npy"):
        path.unlink()
    without = opened(run).report()
    assert without.alternatives
    assert without.level == "declared"


def test_a_cached_blend_of_other_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = unpack("megatron-deepspeed", "a blend of several epochs", tmp_path)
    (path,) = (each for each in Path("cache").glob("*_index.npy") if "_sample_" not in each.name)
    whole = np.load(path)
    for change, message in (
        (whole[:-1], "dataset_index has 201 entries, 202 entries follow"),
        (whole + 1, "dataset_index names a dataset outside the 2 of the blend"),
        (np.roll(whole, 1), ", the weights give "),
    ):
        np.save(path, change)
        (finding,) = opened(run).findings
        assert message in finding.text
        assert finding.corpus is None


def test_a_shuffle_of_another_seed_is_found_or_named_as_not_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = unpack("bigscience", "the split's own path", tmp_path)
    (path,) = tmp_path.glob("*_shuffle_idx.npy")
    true = np.load(path)
    np.save(path, np.roll(true, 1))
    Path("run.yaml").write_text(yaml.safe_dump(run))
    (finding,) = AuditedRun.open(Path("run.yaml")).findings
    assert "shuffle_index is " in finding.text
    assert "seed 1234 gives" in finding.text
    monkeypatch.setattr("treering.data.megatron.cache.REDONE", 100)
    long = AuditedRun.open(Path("run.yaml"))
    assert (long.findings, long.level()) == ((), "declared")
    (unbound,) = long.unbound
    assert unbound.what.startswith("The shuffles in ")
    assert unbound.remedy == "`--verify` redoes them."
    np.save(path, true)
    assert AuditedRun.open(Path("run.yaml"), verify=True).level() == "re-derived"
