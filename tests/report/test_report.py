"""Page, chart, metrics and summary of a real small run."""

import contextlib
import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from treering.cli import app
from treering.errors import EvidenceError, UserError
from treering.report.facts import Missing
from treering.report.scores import ScoreRow
from treering.report.summary import summarize
from treering.report.write import write_report
from treering.runlog.directory import RunDirectory

pytestmark = [pytest.mark.trainer, pytest.mark.slow]


@pytest.fixture(scope="module")
def written(complete, facts_of):
    facts = facts_of(complete)
    audit = write_report(facts, complete)
    return facts, audit, complete.report.read_text()


def row(page, first):
    """Cells of the first table row that starts with a text."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_documents_are_counted_by_step_and_rule(written):
    *_, page = written
    assert row(page, "letters")[1:] == ["90", "2", "13", "10", "0", "1", "60", "4"]
    assert row(page, "total")[1:] == ["160", "2", "14", "10", "5", "1", "120", "8"]
    assert row(page, "filter: too_short")[1] == "11"


def test_tokens_and_the_realised_blend(written, complete):
    _, audit, page = written
    cells = row(page.split("## Tokens and blend")[1], "letters")
    manifest = json.loads((complete.corpus("letters") / "manifest.json").read_text())
    samples = {usage.corpus: usage.samples for usage in audit.corpora}
    assert sum(samples.values()) == audit.consumed_samples == 80
    assert cells[1] == f"{manifest['num_tokens']:,}"
    assert cells[3] == "0.7"
    assert cells[4] == f"{samples['letters'] / 80:.4f}"
    assert cells[7].endswith(f" of {manifest['num_documents']:,}")
    assert cells[8] == "CC0-1.0"


def test_loss_stands_beside_the_unigram_entropy(written, complete):
    *_, page = written
    run = RunDirectory(complete.published)
    rings = list(run.path_rings(run.checkpoints()[-1]))
    record = RunDirectory(next(complete.runs.iterdir())).evaluations()[-1]
    assert row(page, "training loss, first step")[1] == f"{rings[0].loss:.3f}"
    assert row(page, "training loss, last step")[1] == f"{rings[-1].loss:.3f}"
    assert row(page, "unigram entropy of the same held-out tokens")[1] == f"{record.unigram_entropy:.3f}"
    assert f"Held-out loss {record.validation_loss:.3f} nats a token" in page


def test_scores_carry_standard_errors_and_the_examples_that_fitted(written, complete):
    *_, page = written
    record = RunDirectory(next(complete.runs.iterdir())).evaluations()[-1]
    numbers = record.scores["lambada"]["3"]
    section = page.split("## Scores")[1]
    assert "| task | shots | examples that fitted | items | acc | acc_norm | perplexity |" in section
    accuracy = f"{numbers['acc']:.3f} ± {numbers['acc_stderr']:.3f}"
    digits = 0 if numbers["perplexity"] >= 1000 else 1
    perplexity = f"{numbers['perplexity']:,.{digits}f} ± {numbers['perplexity_stderr']:,.{digits}f}"
    assert f"| lambada | 3 | {numbers['examples']:.2f} | 12 | {accuracy} |  | {perplexity} |" in section
    assert "| 5 | 1,280 |" in page  # the checkpoint before, over training


def test_numbers_are_as_exact_as_a_reader_needs():
    row = ScoreRow("lambada", 0, 0.0, 200, {"acc": 0.0204, "perplexity": 25_879.62}, {"perplexity": 14_703.5})
    assert [row.text(name) for name in ("acc", "perplexity", "acc_norm")] == ["0.020", "25,880 ± 14,704", ""]
    assert ScoreRow("lambada", 0, 0.0, 200, {"perplexity": 463.18}, {}).text("perplexity") == "463.2"


def test_the_audit_is_told_and_kernels_are_named(written):
    _, audit, page = written
    assert audit.verdict == "content-bound: 10 of 10 steps"
    assert "**content-bound: 10 of 10 steps**" in page
    assert "## Kernels" in page
    assert "torch_fused" in page


def test_clocks_stand_in_the_last_section_alone(written, complete):
    *_, page = written
    above, last = page.split("## This time, on this machine")
    assert "tokens per second" in last
    assert not re.search(r"\d s\b|tokens per second|TFLOP", above)
    assert str(complete.root) not in page
    run = RunDirectory(complete.published)
    checkpoint = run.checkpoints()[-1]
    for text in (checkpoint.digest, checkpoint.manifest.ring):
        assert text in last
        assert text not in above


def test_metrics_hold_no_clock_and_a_second_report_is_identical(written, complete, facts_of):  # noqa: ARG001
    metrics = json.loads((complete.metrics / "report.json").read_text())
    assert metrics["documents"] == {
        "taken": 160, "dropped_by_extract": 2, "dropped_by_filter": 14, "dropped_by_dedup": 10,
        "dropped_by_heldout": 5, "dropped_by_decontaminate": 1, "train": 120, "heldout": 8,
    }  # fmt: skip
    assert metrics["audit"]["steps_content_bound"] == metrics["audit"]["steps"] == 10
    assert metrics["audit"]["findings"] == 0
    files = (complete.report, complete.metrics / "report.json", complete.plots / "loss.svg")
    before = [path.read_bytes() for path in files]
    write_report(facts_of(complete), complete)
    assert [path.read_bytes() for path in files] == before


def test_the_chart_draws_all_three_lines(written, complete):  # noqa: ARG001
    svg = (complete.plots / "loss.svg").read_text()
    assert svg.startswith("<svg")
    for name in ("training loss", "held-out loss", "unigram entropy"):
        assert name in svg


def test_a_changed_corpus_fails_and_is_in_the_report(copy, facts_of):
    path = copy.corpus("letters") / "corpus.bin"
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    with pytest.raises(EvidenceError, match=r"FAILED .* corpus"):
        write_report(facts_of(copy), copy)
    assert "FAILED" in copy.report.read_text()
    assert json.loads((copy.metrics / "report.json").read_text())["audit"]["findings"] > 0


@pytest.mark.parametrize(
    ("gone", "stage"),
    [
        ("data/curated/summary.json", "curate"),
        ("data/blend.json", "tokenize"),
        ("published", "train"),
        ("runs", "evaluate"),
    ],
)
def test_a_missing_part_names_its_stage(copy, facts_of, gone, stage):
    path = copy.root / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    facts = facts_of(copy)
    assert stage in [missing.stage for missing in facts.missing]
    with pytest.raises(UserError, match=r"report: stage \w+ is missing: .*(dvc repro|treering evaluate)"):
        write_report(facts, copy)
    found = summarize(facts, copy)
    parts = [part for part in found.values() if isinstance(part, dict) and "missing" in part]
    assert stage in [part["missing"] for part in parts]


def test_scores_of_another_checkpoint_do_not_count(copy, facts_of):
    (next(copy.runs.iterdir()) / "evaluations" / "step-00000010.json").unlink()
    facts = facts_of(copy)
    assert isinstance(facts.evaluations, Missing)
    assert "no scores of the published checkpoint" in facts.evaluations.reason


def test_a_published_checkpoint_of_another_config_is_not_reported(copy, facts_of):
    config = copy.root / "scored.yaml"
    config.write_text(config.read_text().replace("seed: 5", "seed: 6"))
    facts = facts_of(copy)
    assert isinstance(facts.training, Missing)
    assert re.search(r"found run \w{16}, expected run \w{16}, which scored.yaml resolves to", facts.training.reason)


def run_cli(project, *arguments):
    with contextlib.chdir(project.root):
        return CliRunner().invoke(app, arguments)


def test_the_summary_prints_what_the_json_holds(written, complete):
    _, audit, _ = written
    done = run_cli(complete, "summary", "scored.yaml", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["audit"]["verdict"] == audit.verdict
    assert found["loss"]["step"] == 10
    assert found["run"] == audit.run
    text = run_cli(complete, "summary", "scored.yaml").output
    for expected in (
        audit.verdict,
        f"{found['loss']['training']['first']:.3f} -> {found['loss']['training']['last']:.3f}",
        "160",
        found["scores"]["rows"][0]["text"]["acc"],
        "treering audit published/checkpoints/step-00000010 --verify",
    ):
        assert expected in text


def test_the_summary_of_an_empty_project_names_every_stage(tmp_path, complete):
    from treering.project import Project

    shutil.copy(complete.root / "scored.yaml", tmp_path)
    done = run_cli(Project(tmp_path), "summary", "scored.yaml")
    assert done.exit_code == 0, done.output
    for stage in ("curate", "tokenize", "train", "evaluate", "report"):
        assert f"missing; stage {stage} makes it" in done.output
    assert "go on with the pipeline  treering fetch" in done.output
    for file, command in (("dvc.yaml", "dvc repro"), ("Makefile", "make repro")):
        (tmp_path / file).touch()
        assert f"go on with the pipeline  {command}" in run_cli(Project(tmp_path), "summary", "scored.yaml").output


def test_an_audit_of_an_earlier_checkpoint_is_not_shown_as_this_ones(copy, written, facts_of):  # noqa: ARG001
    path = copy.metrics / "report.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"run": "0" * 16, "step": 3, "audit": {"verdict": "content-bound: 3 of 3 steps"}}))
    audit = summarize(facts_of(copy), copy)["audit"]
    assert audit["missing"] == "report"
    assert "step 3; `dvc repro report` audits anew" in audit["reason"]
