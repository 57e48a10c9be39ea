"""`treering audit`, `treering batch` and `treering blend` as a user types them."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from treering.cli import app
from treering.config.canonical import digest_file
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.manifest import write_manifest
from treering.errors import ConfigError, EvidenceError, UserError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def invoke(built):  # noqa: ARG001 - its working directory
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def damage(built, corpus="red"):
    path = built.corpora[corpus].directory / "corpus.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def test_audit_for_people(built, invoke):
    result = invoke("audit", built.last.path, "--verify")
    assert result.exit_code == 0
    assert "content-bound: 15 of 15 steps" in result.stdout
    assert "declared → re-derived → recorded → content-bound" in result.stdout
    assert "attempt 1: steps 1 to 6" in result.stdout
    assert "attempt 2: steps 7 to 15" in result.stdout
    assert "15, of which 14 applied" in result.stdout
    assert "168 samples, 2,688 tokens" in result.stdout
    assert built.run.resolved.recipe.digest in result.stdout
    assert "of 200" in result.stdout
    assert "not signed" in result.stdout


def test_audit_fits_80_columns(built, invoke):
    lines = [line.rstrip() for line in invoke("audit", built.last.path).stdout.splitlines()]
    usage = next(line for line in lines if line.startswith("corpus") and "samples" in line)
    assert usage.split("  ")[-1] == "documents touched"
    second = next(number for number, line in enumerate(lines) if line.split() == ["corpus", "licence", "digest"])
    assert {line.split()[-1] for line in lines[second + 1 : second + 4]} == {
        corpus.digest.removeprefix("sha256:")[:24] for corpus in built.corpora.values()
    }
    assert max(len(line) for line in lines if line.startswith(("corpus", "red", "green", "blue"))) <= 80


def test_audit_as_json(built, invoke):
    document = json.loads(invoke("audit", built.run.path, "--json").stdout)
    assert (document["verdict"], document["step"]) == ("recorded: 15 of 15 steps", 15)
    assert {corpus["corpus"] for corpus in document["corpora"]} == {"red", "green", "blue"}


def test_audit_that_fails_still_prints_its_verdict(built, invoke):
    damage(built)
    result = invoke("audit", built.last.path, "--verify", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 3
    assert document["verdict"].startswith("FAILED")
    assert document["findings"][0]["document"] == "red-0"
    text = invoke("audit", built.last.path, "--verify")
    assert text.exit_code == 3
    assert "corpus red, document red-0 (number 0): first read by step" in text.stdout


def test_audit_without_anything_left_to_audit(built, invoke):
    (built.last.path / "manifest.json").write_text("{}")
    (built.run.path / "resolved.json").unlink()
    result = invoke("audit", built.last.path, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["holds"] is False
    with pytest.raises(EvidenceError, match="no record is left to answer from"):
        invoke("audit", built.last.path)


def test_batch_for_people_and_machines(built, invoke):
    result = invoke("batch", built.run.id[:6], 5)
    assert result.exit_code == 0
    assert "equals the ring's" in result.stdout
    assert "red-" in result.stdout
    document = json.loads(invoke("batch", built.run.path, 5, "--json").stdout)
    assert document["content_bound"] is True
    assert document["samples"][0]["documents"][0]["text"]


def test_batch_that_differs(built, invoke):
    sample = next(sample for g in range(168) if (sample := built.order.sample(g)).index == 0)
    damage(built, built.order.components[sample.component].corpus)
    steps = range(1, 16)
    codes = [invoke("batch", built.run.id, step).exit_code for step in steps]
    assert codes[built.schedule.step_of_sample(sample.g) - 1] == 3
    assert 0 in codes


def test_blend_writes_what_lies_there(built, invoke):
    result = invoke("blend", "tiny.yaml")
    stored = ResolvedBlend.read(built.project.blend)
    assert stored == built.run.resolved.blend
    assert stored.components[0].digest == built.corpora["red"].digest
    assert stored.components[2].num_documents == 200
    assert stored.tokenizer == digest_file(built.project.tokenizer)
    assert f"blend {stored.digest} written to data/blend.json" in result.stdout
    assert json.loads(invoke("blend", "tiny.yaml", "--json").stdout)["digest"] == stored.digest


def edit_config(built, before, after):
    path = built.project.root / "tiny.yaml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def test_blend_refuses_corpora_of_two_tokenizers(built, invoke):
    path = built.corpora["blue"].directory / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["tokenizer"]["digest"] = "sha256:" + "0" * 64
    write_manifest(path, manifest)
    with pytest.raises(EvidenceError, match="corpus blue was made by tokenizer sha256:0000"):
        invoke("blend", "tiny.yaml")
    assert not built.project.blend.exists()


def test_blend_refuses_a_tokenizer_that_cut_nothing(built, invoke):
    built.project.tokenizer.write_text("{}")
    with pytest.raises(EvidenceError, match=r"tokenizer\.json: found sha256:.*, expected tokenizer sha256:"):
        invoke("blend", "tiny.yaml")


def test_blend_refuses_a_declared_corpus(built, invoke):
    edit_config(built, "jsonl: red.jsonl", "declared_tokens: 1000")
    with pytest.raises(UserError, match="corpus red is declared and has no text"):
        invoke("blend", "tiny.yaml")


def test_blend_refuses_a_corpus_that_was_not_tokenized(built, invoke):
    built.project.corpus("red").rename(built.project.root / "away")
    with pytest.raises(UserError, match="the tokenized corpus is missing; `dvc repro tokenize` makes it"):
        invoke("blend", "tiny.yaml")


def test_blend_refuses_a_corpus_shorter_than_a_sample(built, invoke):
    edit_config(built, "sequence_length: 16", "sequence_length: 100000")
    with pytest.raises(UserError, match=r"corpus 'red' has .* tokens, expected at least 100001"):
        invoke("blend", "tiny.yaml")


def test_blend_checks_the_schedule_before_it_writes(built, invoke):
    edit_config(built, "increment: 4", "increment: 2")
    with pytest.raises(ConfigError, match="every stage divisible"):
        invoke("blend", "tiny.yaml")
    assert not built.project.blend.exists()


def test_audit_says_what_is_never_read(built, invoke):
    tails = {name: (corpus.num_tokens - 1) % 16 for name, corpus in built.corpora.items()}
    said = ", ".join(f"{name} {tail}" for name, tail in tails.items() if tail)
    assert f"unread tail  {said or 'none'} (tokens after" in invoke("audit", built.last.path).stdout


def test_the_documented_python_answers(built):
    """The code block of docs/audit.md, run as it stands there in a project's folder."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "audit.md").read_text(), re.DOTALL)
    names = {}
    exec(compile(code, "docs/audit.md", "exec"), names)  # noqa: S102 - the project's own text
    assert names["report"].verdict == f"content-bound: {built.last.step} of {built.last.step} steps"
    assert sum(names["tokens"].values()) == built.last.manifest.consumed_tokens
    assert names["batch"].content_bound
    assert len(names["trace"].documents) == 3
    assert built.last.step in names["saw"]
    assert names["newer"].first_step == built.first.step + 1
    assert len(names["elsewhere"]) == sum(built.schedule.batch_size(built.last.step - back) for back in range(6))
