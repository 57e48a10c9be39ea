"""Kept prompts: their continuations at every checkpoint of a real run, stored, verified, and shown side by side."""

import json
import shutil

import pytest
import text_project
import torch

from treering.audit.evidence.agreement import check_run
from treering.config.operation import EvaluationConfig, PromptsConfig
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.errors import UserError
from treering.metrics.continuations import side_by_side
from treering.runlog.analyses import Continuations
from treering.runlog.chronicle import finish_evaluations, pending_evaluation
from treering.runlog.directory import RunDirectory
from treering.runlog.extract import carry_evaluations
from treering_trainer.checkpointing.inference import load_model
from treering_trainer.evaluate.analyses.prompts import read_prompts

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

PROMPTS = '{"id": "first", "prompt": "balcen"}\n\n{"id": "second", "prompt": ""}\n'


@pytest.fixture(scope="module")
def evaluate(scored_project):
    """Evaluates as `treering evaluate` does, in this process, with kept prompts."""
    (scored_project.root / "prompts.jsonl").write_text(PROMPTS)

    def run(*settings, code=0):
        words = ["scored.yaml", *(f"--set=evaluation.{each}" for each in ("prompts.file=prompts.jsonl", *settings))]
        return text_project.evaluate(scored_project, *words, code=code)

    torch.set_num_threads(1)
    return run


@pytest.fixture(scope="module")
def continued(scored_run, evaluate):
    output = evaluate("prompts.max_tokens=6")
    return RunDirectory(scored_run), output


@pytest.fixture
def copy(continued, tmp_path):
    return RunDirectory(shutil.copytree(continued[0].path, tmp_path / continued[0].path.name))


def findings(run, project):
    return [finding.text for finding in check_run(run, project, str)]


def test_every_checkpoint_continues_every_prompt_with_its_most_probable_tokens(scored_project, continued):
    run, output = continued
    assert "step 10: 2 prompts continued" in output
    codec = load_tokenizer(scored_project.tokenizer)
    found = side_by_side(run)
    assert found.steps == (5, 10)
    assert [(each.id, each.text) for each in found.prompts] == [("first", "balcen"), ("second", "")]
    assert found.how == "the most probable token each time, at most 6 tokens"
    model = load_model(run.checkpoints()[-1])
    tokens = list(codec.encode("balcen").ids)
    made = found.prompts[0].by_step[10]
    with torch.inference_mode():
        for token in made.tokens:
            assert token == int(model(torch.tensor([tokens]))[0, -1][: codec.get_vocab_size()].argmax())
            tokens.append(token)
    assert made.finish == "length"
    assert made.text == codec.decode(made.tokens)


def test_continuations_are_kept_and_scores_do_not_depend_on_them(continued, evaluate):
    run, _ = continued
    before = {path: path.read_bytes() for path in run.evaluations_folder.glob("**/*.json")}
    output = evaluate("prompts.max_tokens=6")
    assert (output.count("already scored"), output.count("already continued")) == (2, 2)
    for path in run.analysis_files("continuations"):
        path.unlink()
    evaluate("prompts.max_tokens=6")
    assert before == {path: path.read_bytes() for path in run.evaluations_folder.glob("**/*.json")}
    assert all(record.settings.prompts is None for record in run.evaluations())


def test_draws_are_those_of_their_seed(continued, evaluate):
    run, _ = continued
    drawn = ("prompts.max_tokens=6", "prompts.temperature=1", "prompts.top_p=0.9")
    texts = []
    for seed in (3, 3, 4):
        for path in run.analysis_files("continuations"):
            path.unlink()
        evaluate(*drawn, f"prompts.seed={seed}")
        found = side_by_side(run)
        texts.append(found.prompts[0].by_step[10].tokens)
    assert texts[0] == texts[1] != texts[2]
    assert "temperature 1, top-p 0.9, seed 4" in found.how
    assert any("one draw of each prompt" in doubt.text for doubt in found.doubts)
    evaluate("prompts.max_tokens=6")


def test_what_is_missing_or_cut_is_said(copy):
    path = copy.analysis_files("continuations")[0]
    path.unlink()
    lines = [doubt.line for doubt in side_by_side(copy).doubts]
    assert lines[0].startswith("missing: steps 5: no continuations of the checkpoints; `treering evaluate` continues")
    assert "limited: 2 of 2 continuations end at the limit of tokens, not at the document's end" in lines[1]
    newest = copy.analysis_files("continuations")[0]
    path.write_text(newest.read_text().replace('"step": 10', '"step": 5'))
    assert side_by_side(copy).doubts[0].level == "missing"


def test_verify_holds_them_against_journal_and_checkpoint(scored_project, continued, copy):
    assert findings(continued[0], scored_project) == []
    first, second = copy.analysis_files("continuations")
    record, digest = Continuations.read(first)
    first.unlink()
    (text,) = findings(copy, scored_project)
    assert f"{first}: the continuations of step 5 are missing" in text
    changed = record.continuations[0].model_copy(update={"text": "nice"})
    record.model_copy(update={"continuations": (changed,)}).write(first)
    (text,) = findings(copy, scored_project)
    assert f"but {copy.evaluation_journal_file} has no entry for it: it was put in, changed" in text
    first.write_bytes(second.read_bytes())
    (text,) = findings(copy, scored_project)
    assert "is of step 10: it was copied or swapped" in text
    first.write_text(json.dumps({**record.model_dump(mode="json"), "digest": digest}).replace('"cpu"', '"gpu"'))
    (text,) = findings(copy, scored_project)
    assert "the file was changed" in text


def test_a_killed_writer_leaves_nothing_that_counts(copy):
    path = copy.analysis_files("continuations")[0]
    recipe = copy.resolved.recipe.digest
    path.rename(pending_evaluation(path))
    unknown = pending_evaluation(path).with_name(".step-00000007.json.pending")
    unknown.write_text("{}")
    finish_evaluations(copy.evaluations_folder, recipe)
    assert path.exists()
    assert not unknown.exists()


def test_the_published_checkpoint_has_its_continuations_beside_it(scored_project, copy, tmp_path):
    published = RunDirectory(shutil.copytree(scored_project.published, tmp_path / "published"))
    carry_evaluations(copy, published.path)
    assert [path.name for path in published.analysis_files("continuations")] == ["step-00000010.json"]
    assert findings(published, scored_project) == []


def test_the_command_prints_them_and_names_what_is_unknown(scored_project, continued, treering, monkeypatch):
    monkeypatch.chdir(scored_project.root)
    run = continued[0]
    made = side_by_side(run)
    code, output, _ = treering("continuations", run.id)
    assert code == 0
    assert f"  10  {made.prompts[0].by_step[10].text}".replace("\n", "\\n") in output
    code, output, _ = treering("continuations", run.id, "--prompt", "second", "--json")
    answer = json.loads(output)
    assert [each["id"] for each in answer["prompts"]] == ["second"]
    assert answer["prompts"][0]["continuations"]["5"]["tokens"] == list(made.prompts[1].by_step[5].tokens)
    code, _, errors = treering("continuations", run.id, "--prompt", "third")
    assert (code, "found 'third', expected one of first, second" in errors) == (2, True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "\n \n", "no prompt, expected at least one line of text"),
        ("a.txt", b"\xff", "expected a file of UTF-8 text"),
        ("a.jsonl", "{", "a.jsonl line 1: not JSON"),
        ("a.jsonl", '{"id": 1, "prompt": "x"}', "line 1: found .*, expected an object with the texts id and prompt"),
        ("a.jsonl", '{"id": "a", "prompt": "x"}\n' * 2, "line 2: id: found 'a' twice"),
    ],
)
def test_a_broken_file_of_prompts_is_named(name, text, message, tmp_path):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        read_prompts(PromptsConfig(file=name), tmp_path)
    with pytest.raises(UserError, match="No such file"):
        read_prompts(PromptsConfig(file="none.txt"), tmp_path)


def test_lines_of_a_text_file_are_prompts(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"The man\r\n\nThe woman")
    assert read_prompts(PromptsConfig(file="a.txt"), tmp_path).texts == {"line 1": "The man", "line 3": "The woman"}


def test_a_record_of_an_earlier_version_keeps_its_digest():
    assert "prompts" not in EvaluationConfig().model_dump(mode="json")
