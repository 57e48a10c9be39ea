"""`treering bias` over a real checkpoint: what it records, what it prints, what it refuses."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from treering.audit.evidence.agreement import check_run
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import open_tokenizer
from treering.errors import UserError
from treering.metrics.bias import assess
from treering.runlog.analyses import Bias
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing.inference import load_model
from treering_trainer.evaluate.analyses import measure_bias
from treering_trainer.evaluate.analyses.bias import main
from treering_trainer.evaluate.analyses.lexicon import read_lexicon
from treering_trainer.generate.decoder import Decoder
from treering_trainer.generate.samples import draw_texts
from treering_trainer.generate.sampling import Sampling

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

LISTS = {
    "adjectives": ["kind", "cruel", "m"],
    "axes": [
        {
            "name": "gender",
            "templates": ["{he} is", "so {he} was"],
            "groups": [{"name": "male", "words": {"he": "he"}}, {"name": "female", "words": {"he": "she"}}],
        }
    ],
}
OPTIONS = {"num-samples": 5, "max-tokens": 6, "temperature": 1, "top-p": 0.9, "seed": 0}


@pytest.fixture(scope="module")
def project(scored_project, tmp_path_factory):
    """A copy that the tests write to."""
    root = tmp_path_factory.mktemp("bias") / "project"
    shutil.copytree(scored_project.root, root)
    (root / "lists.yaml").write_text(json.dumps(LISTS))
    (root / "lexicon.tsv").write_text("kind\t2\ncruel\t-2.5\t0.3\t[1]\n:-)\t1.5\nM\t0.5\n")
    torch.set_num_threads(1)
    return type(scored_project)(root)


@pytest.fixture
def run(project):
    (path,) = (path.parent for path in project.runs.glob("*/resolved.json"))
    return RunDirectory(path)


@pytest.fixture
def measure(project, run, capsys, monkeypatch):
    """Measures as `treering bias` has the trainer do it, in this process; gives the record and standard error."""
    monkeypatch.chdir(project.root)

    def measured(*words, of=f"{run.id[:6]}@10", code=0, **changes):
        options = {**OPTIONS, "lists": "lists.yaml", "lexicon": "lexicon.tsv", **changes}
        assert main([of, *(f"--{name}={value}" for name, value in options.items()), *words]) == code
        output, errors = capsys.readouterr()
        return (Bias.read(Path(output.strip()))[0] if code == 0 else None), errors

    return measured


def findings(run, project):
    return [finding.text for finding in check_run(run, project, str)]


def test_the_record_holds_what_the_model_says(project, run, measure):
    record, errors = measure()
    assert "2 groups, 5 texts each" in errors
    codec, model = load_tokenizer(project.tokenizer), load_model(run.checkpoints()[-1])
    for prompts, template in zip(record.axes[0].templates, ("{} is", "so {} was"), strict=True):
        for prompt, word in zip(prompts, ("he", "she"), strict=True):
            assert prompt.text == template.format(word)
            for adjective, found in zip(LISTS["adjectives"], prompt.log_probabilities, strict=True):
                tokens = codec.encode(f"{prompt.text} {adjective}").ids
                start = len(codec.encode(prompt.text).ids)
                with torch.inference_mode():
                    logs = model(torch.tensor([tokens]))[0].log_softmax(-1)
                expected = sum(float(logs[place - 1, tokens[place]]) for place in range(start, len(tokens)))
                assert found == pytest.approx(expected, abs=1e-4)
    samples = [[len(prompt.samples) for prompt in prompts] for prompts in record.axes[0].templates]
    assert samples == [[3, 3], [2, 2]]
    assert record.tokens == 6
    assert record.valences["kind"] == 2.0
    assert record.valences["cruel"] == -2.5
    assert findings(run, project) == []


def test_a_measurement_is_kept_and_repeats_itself(run, measure):
    first, _ = measure()
    assert "already measured" in measure()[1]
    (file,) = run.analysis_files("bias")
    file.unlink()
    again, errors = measure()
    assert "already measured" not in errors
    assert again == first
    other, _ = measure(seed=1)
    assert other.axes[0].templates[0][0].samples != first.axes[0].templates[0][0].samples
    assert other.axes[0].templates[0][0].log_probabilities == first.axes[0].templates[0][0].log_probabilities
    measure()


def test_verify_finds_a_changed_measurement(project, run, measure):
    record, _ = measure()
    (file,) = run.analysis_files("bias")
    before = file.read_bytes()
    record.model_copy(update={"valences": {"kind": 4.0}}).write(file)
    (text,) = findings(run, project)
    assert "has no entry for it: it was put in, changed or digested again" in text
    file.write_bytes(before)


def test_the_whole_command_prints_and_keeps(project, run, treering, monkeypatch):
    """The trainer in a process of its own; the answer by a person and by a machine."""
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["bias", f"{run.id[:6]}@5", "--lists=lists.yaml", "--lexicon=lexicon.tsv", "--num-samples=6"]
    code, output, _ = treering(*words, "--max-tokens=40", "--json")
    assert code == 0
    answer = json.loads(output)
    record, _ = Bias.read(run.analysis_files("bias")[0])
    assert (answer["step"], answer["checkpoint"]) == (5, run.checkpoints()[0].digest)
    group = answer["axes"][0]["groups"][0]
    found = assess(record).axes[0].groups[0]
    assert group["adjectives"]["ratio"]["value"] == found.adjectives.ratio.value
    assert [each["word"] for each in group["association"]] == [each.word for each in found.association]
    code, output, _ = treering(*words, "--max-tokens=40")
    assert code == 0
    assert "male against female" in output
    assert f"{found.adjectives.ratio.value:.3g}" in output
    assert "imprecise: gender: fewer than 5 templates" in output
    # 32 tokens hold the longest prompt and the rest of 40.
    assert f"limited: texts have at most {record.tokens} of 40 tokens" in output
    assert "unbiased" not in output
    code, output, _ = treering("bias", "--show-lists")
    assert output.startswith("# Lists for `treering bias`")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"of": "beef"}, 2, "no run starts with 'beef'"),
        ({"temperature": 0}, 2, "--temperature: found 0.0: Input should be greater than 0"),
        ({"num-samples": 6000}, 2, "--num-samples: found 6000"),
        ({"lists": "none.yaml"}, 2, "none.yaml: found no such file"),
        ({"lexicon": "lists.yaml"}, 2, "lists.yaml line 1: found"),
        ({"tokenizer": "lists.yaml"}, 3, "but run"),
    ],
)
def test_what_cannot_be_is_refused(changes, code, message, measure):
    assert message in measure(code=code, **changes)[1]


def test_a_template_beyond_the_sequence_is_refused(project, measure):
    long = json.loads(json.dumps(LISTS))
    long["axes"][0]["templates"] = ["{he} " + "balcen 017 " * 20]
    (project.root / "long.yaml").write_text(json.dumps(long))
    assert "expected at most 32, the sequence" in measure(code=2, lists="long.yaml")[1]


def test_texts_drawn_together_follow_the_model(project, run):
    """First tokens of many texts against the model's probabilities, and a text ends with its document."""
    codec, model = load_tokenizer(project.tokenizer), load_model(run.checkpoints()[-1])
    prompt, spelling = codec.encode("he is").ids, Spelling.of(open_tokenizer(project.tokenizer))
    with torch.inference_mode():
        shares = model(torch.tensor([prompt]))[0, -1, : codec.get_vocab_size()].softmax(-1)
    top = int(shares.argmax())
    drawn = draw_texts(
        Decoder(model), spelling, prompt, count=1500, end_of_document=top, max_tokens=1, sampling=Sampling(), seed=3
    )
    ended = sum(not cut for _, cut in drawn) / 1500
    assert ended == pytest.approx(float(shares[top]), abs=4 * math.sqrt(0.25 / 1500))
    assert all(text == "" for text, cut in drawn if not cut)


def plant(model, codec, ratio):
    """Gives the model weights by which ` con` is `ratio` times as probable after `bal` as after `053`.

    All blocks add nothing, so that the next token depends on the last one alone; ` dir` has the reciprocal ratio.
    """
    for parameter in model.parameters():
        parameter.data.zero_()
    *_, norm = model.layers if model.tied else model.layers[:-1]
    next(norm.parameters()).data.fill_(1)
    (embedding,) = [each.data for name, each in model.named_parameters() if each.shape[0] == 512]
    width = embedding.shape[1]
    ways = torch.zeros(2, width)
    ways[0, :2] = ways[1, 2:4] = torch.tensor([1.0, -1.0])
    bal, other, con, dir_ = (codec.encode(f"so {word}").ids[-1] for word in ("bal", "053", "con", "dir"))
    last = [bal, other]
    embedding[last] = 0.1 * ways  # what is normalised has length sqrt(width), whatever it is here
    for token, way, against in ((con, *ways), (dir_, *ways.flip(0))):
        embedding[token] = (way * (4 + math.log(ratio)) + against * 4) / math.sqrt(2 * width)
    return model


def test_the_bias_that_a_model_has_is_measured(project, run, measure, monkeypatch):
    model = plant(load_model(run.checkpoints()[-1]), load_tokenizer(project.tokenizer), 3.0)
    monkeypatch.setattr(measure_bias, "load_model", lambda _: model)
    groups = [{"name": name, "words": {"who": word}} for name, word in (("a", "bal"), ("b", "053"))]
    templates = [f"{start} {{who}}" for start in ("so", "to", "dir", "con")]
    planted = {"adjectives": ["con", "dir", "bol"], "axes": [{"name": "x", "templates": templates, "groups": groups}]}
    (project.root / "planted.yaml").write_text(json.dumps(planted))
    record, _ = measure(lists="planted.yaml", **{"num-samples": 2000, "max-tokens": 2, "top-p": 1})
    (group,) = assess(record).axes[0].groups
    association, occurrence = (
        {each.word: each.ratio for each in rows} for rows in (group.association, group.occurrence)
    )
    assert [association[word].value for word in ("con", "dir", "bol")] == pytest.approx([3, 1 / 3, 1], rel=0.03)
    assert occurrence["con"].low <= 3 <= occurrence["con"].high
    assert occurrence["dir"].low <= 1 / 3 <= occurrence["dir"].high
    assert group.occurrence[0].flagged
    assert association["bol"].low <= 1 <= association["bol"].high


def test_vaders_lexicon_is_read_from_its_wheel():
    lexicon, valences = read_lexicon(None)
    assert lexicon.name.startswith("vaderSentiment 3.")
    assert valences["kind"] > 0 > valences["cruel"]
    assert len(valences) > 6000


def test_a_lexicon_without_words_is_refused(tmp_path):
    (tmp_path / "empty.tsv").write_text("\n:-)\t2\n")
    with pytest.raises(UserError, match="no word, expected lines"):
        read_lexicon(tmp_path / "empty.tsv")
    with pytest.raises(UserError, match="No such file"):
        read_lexicon(tmp_path / "none.tsv")
