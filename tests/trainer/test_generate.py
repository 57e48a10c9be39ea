"""Generated text: what the whole model says at each position, the same for the same seed, shown as whole characters."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import open_tokenizer
from treering.errors import TrainingError, UserError
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing.inference import load_model
from treering_trainer.generate import __main__ as command
from treering_trainer.generate.decoder import Decoder
from treering_trainer.generate.samples import generate
from treering_trainer.generate.sampling import Sampling
from treering_trainer.generate.text import TextStream

pytestmark = [pytest.mark.trainer, pytest.mark.slow]

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def decoder(reference):
    return Decoder(load_model(reference.checkpoints()[-1]))


@pytest.fixture(scope="module")
def tokenizer(project):
    return load_tokenizer(project.tokenizer)


@pytest.fixture(scope="module")
def spelling(project):
    return Spelling.of(open_tokenizer(project.tokenizer))


@pytest.fixture
def say(project, reference):
    """Generates as `treering generate` does, but in this process; gives what went to standard output and error."""

    def run(*options, code=0, of=reference):
        output, errors = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(project.root),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            assert command.main([str(of.path), *options]) == code, errors.getvalue()
        return SimpleNamespace(text=output.getvalue(), errors=errors.getvalue())

    return run


def test_every_token_is_what_the_whole_model_says_at_its_position(decoder, tokenizer, spelling, reference):
    prompt = tokenizer.encode("balcen 017").ids
    model = load_model(reference.checkpoints()[-1])
    # Beyond the 32 positions the oldest tokens are left out.
    for sampling in (GREEDY, Sampling()):
        sample = generate(decoder, spelling, prompt, end_of_document=-1, max_tokens=45, sampling=sampling, seed=1)
        assert len(sample.tokens) == 45
        assert sample.text == tokenizer.decode(sample.tokens)
        assert sample.finish == "length"
        tokens = [*prompt, *sample.tokens]
        with torch.inference_mode():
            for end in range(len(prompt), len(tokens)):
                logits = model(torch.tensor([tokens[max(0, end - 32) : end]]))[0, -1]
                torch.testing.assert_close(decoder.logits(tokens[:end]), logits, atol=1e-5, rtol=0)
                if sampling is GREEDY:
                    assert int(logits[:400].argmax()) == tokens[end]


def test_a_seed_is_a_sample(say):
    options = ("--prompt=bal", "--max-tokens=12", "--json")
    one = json.loads(say(*options, "--seed=3", "--num-samples=3").text)
    assert one == json.loads(say(*options, "--seed=3", "--num-samples=3").text)
    seeds = {sample["seed"]: sample["tokens"] for sample in one["samples"]}
    assert list(seeds) == [3, 4, 5]
    assert len({tuple(tokens) for tokens in seeds.values()}) == 3
    assert json.loads(say(*options, "--seed=4").text)["samples"][0]["tokens"] == seeds[4]


def test_the_document_names_checkpoint_and_settings(say, reference, tokenizer):
    said = say("--prompt=bal", "--max-tokens=5", "--top-k=9", "--top-p=0.5", "--temperature=0.7", "--stop=x", "--json")
    found = json.loads(said.text)
    checkpoint = reference.checkpoints()[-1]
    assert (found["checkpoint"], found["run"], found["step"]) == (
        checkpoint.digest, reference.resolved.recipe.digest, 15
    )  # fmt: skip
    assert found["sampling"] == {"temperature": 0.7, "top_k": 9, "top_p": 0.5, "max_tokens": 5, "stop": ["x"]}
    assert found["prompt_tokens"] == tokenizer.encode("bal").ids
    assert f"run {reference.id}, step 15" in said.errors


def test_without_a_prompt_a_document_begins(say):
    found = json.loads(say("--max-tokens=3", "--json").text)
    assert (found["prompt"], found["prompt_tokens"]) == ("", [0])
    assert json.loads(say("--prompt=<|endoftext|>", "--max-tokens=3", "--json").text)["prompt_tokens"] != [0]


def test_streamed_or_not_the_text_is_the_same(say):
    options = ("--prompt=bal", "--max-tokens=20", "--num-samples=2")
    streamed, whole = say(*options, "--stream").text, say(*options, "--no-stream").text
    assert streamed == whole
    assert whole.startswith("--- seed 0\n")
    text = json.loads(say(*options, "--json").text)["samples"][0]["text"]
    assert text
    assert say(*options, "--num-samples=1").text == f"{text}\n"


def test_a_prompt_beyond_the_positions_is_cut_on_the_left(say, tokenizer):
    text = "balcen 017 " * 20
    number = len(tokenizer.encode(text).ids)
    said = say(f"--prompt={text}", "--max-tokens=4", "--temperature=0", "--json")
    assert f"the prompt's first {number - 32} of {number} tokens are left out: the model reads 32" in said.errors
    assert json.loads(said.text)["left_out_tokens"] == number - 32
    assert "from then on the first tokens are left out" in say("--prompt=bal", "--max-tokens=40").errors
    assert "left out" not in say("--prompt=bal", "--max-tokens=4").errors


def test_the_prompt_may_be_a_file_or_standard_input(say, tmp_path, monkeypatch):
    (tmp_path / "prompt").write_text("bal\r\ncen\n", newline="")
    assert (
        json.loads(say(f"--prompt-file={tmp_path / 'prompt'}", "--max-tokens=1", "--json").text)["prompt"]
        == "bal\r\ncen\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("cömün".encode())))
    assert json.loads(say("--prompt-file=-", "--max-tokens=1", "--json").text)["prompt"] == "cömün"
    (tmp_path / "prompt").write_bytes(b"b\xff")
    assert "prompt is not UTF-8 text" in say(f"--prompt-file={tmp_path / 'prompt'}", code=2).errors
    assert "No such file" in say(f"--prompt-file={tmp_path / 'none'}", code=2).errors


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--max-tokens=0", "--max-tokens: found 0, expected a number from 1 on"),
        ("--num-samples=-1", "--num-samples: found -1"),
        ("--seed=-1", "--seed: found -1"),
        ("--stop=", "--stop: found an empty text"),
        ("--temperature=nan", "--temperature: found nan, expected a number from 0 on"),
        ("--temperature=-1", "--temperature: found -1.0"),
        ("--top-k=0", "--top-k: found 0, expected a number from 1 on"),
        ("--top-p=0", "--top-p: found 0.0, expected a number above 0, at most 1"),
        ("--top-p=1.5", "--top-p: found 1.5"),
        ("--tokenizer=none.json", "none.json: tokenizer missing"),
    ],
)
def test_what_cannot_be_is_refused(option, message, say):
    assert message in say(option, code=3 if "tokenizer" in option else 2).errors


def test_stream_and_json_contradict_each_other(say):
    assert "--stream: has no effect with --json" in say("--stream", "--json", code=2).errors


def test_a_damaged_checkpoint_says_nothing(say, reference, tmp_path):
    copy = RunDirectory(tmp_path / reference.path.name)
    shutil.copytree(reference.path, copy.path)
    path = next((copy.checkpoints()[-1].path / "state").glob("layer_03-*.pt"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    said = say("--prompt=bal", code=3, of=copy)
    assert f"{path.name}: digest" in said.errors
    assert said.text == ""


def test_a_sample_ends_with_its_document(decoder, tokenizer, spelling):
    draw = partial(generate, decoder, spelling, [0], max_tokens=12, sampling=Sampling(), seed=2)
    free = draw(end_of_document=-1)
    place = next(i for i, token in enumerate(free.tokens) if i > 3 and token not in free.tokens[:i])
    ended = draw(end_of_document=free.tokens[place])
    assert (ended.tokens, ended.finish) == (free.tokens[: place + 1], "end_of_document")
    assert ended.text == tokenizer.decode(free.tokens[:place])


def test_a_sample_ends_before_a_stop_text(decoder, spelling):
    draw = partial(generate, decoder, spelling, [0], end_of_document=-1, max_tokens=12, sampling=Sampling(), seed=2)
    free = draw()
    stop = free.text[5:8]
    shown = []
    stopped = draw(stops=["zz", stop], show=shown.append)
    assert (stopped.text, stopped.finish) == (free.text[: free.text.index(stop)], "stop")
    assert "".join(shown) == stopped.text
    assert len(stopped.tokens) < 12


def test_characters_are_shown_whole(tokenizer, spelling):
    tokens = tokenizer.encode("a🌲ö").ids
    assert len(tokens) == 7  # bytes
    stream = TextStream(spelling)
    assert [stream.push(token) for token in tokens] == ["a", "", "", "", "🌲", "", "ö"]
    for token in tokens[1:4]:
        assert stream.push(token) == ""
    assert stream.finish() == ""
    assert (
        stream.push(tokens[0]) == "\N{REPLACEMENT CHARACTER}a"
    )  # now it is certain that those bytes are not a character


def test_what_may_begin_a_stop_text_waits(tokenizer, spelling):
    stream = TextStream(spelling, ["##END"])
    assert [stream.push(tokenizer.encode(char).ids[0]) for char in "a#b###E"] == ["a", "", "#b", "", "", "#", ""]
    assert stream.finish() == "##E"
    stream = TextStream(spelling, ["##END", "b"])
    assert [stream.push(tokenizer.encode(char).ids[0]) for char in "##Eb"] == ["", "", "", "##E"]
    assert stream.stopped
    assert stream.finish() == ""


def drawn(sampling, logits, times=400):
    random = torch.Generator().manual_seed(1)
    tokens = [sampling.choose(logits, random) for _ in range(times)]
    return {token: tokens.count(token) / times for token in set(tokens)}


def test_sampling_draws_from_the_filtered_distribution():
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    assert drawn(GREEDY, logits) == {3: 1.0}
    assert drawn(Sampling(top_k=1), logits) == {3: 1.0}
    assert drawn(Sampling(top_k=9), logits) == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}, abs=0.07)
    assert drawn(Sampling(top_k=2), logits) == pytest.approx({2: 3 / 7, 3: 4 / 7}, abs=0.07)
    # 0.4 and 0.3 are less than 0.75, with 0.2 they are more.
    assert drawn(Sampling(top_p=0.75), logits) == pytest.approx({1: 2 / 9, 2: 3 / 9, 3: 4 / 9}, abs=0.07)
    assert drawn(Sampling(top_p=0.3), logits) == {3: 1.0}
    squares = pytest.approx({0: 1 / 30, 1: 4 / 30, 2: 9 / 30, 3: 16 / 30}, abs=0.07)
    assert drawn(Sampling(temperature=0.5), logits) == squares


def test_logits_that_are_no_numbers_are_an_error():
    with pytest.raises(TrainingError, match="logits that are not finite"):
        GREEDY.choose(torch.tensor([0.0, float("nan")]), torch.Generator())


def test_a_terminal_gets_no_control_characters(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    command._print("a\x1b[2J\tb\n\x9b")
    assert sys.stdout.getvalue() == "a\\x1b[2J\tb\n\\x9b"


def test_the_commands_run_from_the_project_s_root(project, reference, tmp_path):
    """By a prefix of the run's id, each in a separate process."""
    (tmp_path / "data").symlink_to(project.root / "data")
    (tmp_path / "runs").symlink_to(reference.path.parent)

    def treering(*words, **options):
        done = subprocess.run(
            [sys.executable, "-c", "from treering.cli import main; main()", *words],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            **options,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    generated = treering("generate", reference.id[:6], "--prompt-file=-", "--max-tokens=4", "--json", input="bal")
    assert json.loads(generated)["prompt"] == "bal"
    assert len(json.loads(generated)["samples"][0]["tokens"]) == 4
    assert "exported step 15" in treering("export", reference.id[:6], "out", "--dtype=bf16")
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_unknown_numbers_are_user_errors():
    with pytest.raises(UserError, match="--top-p"):
        Sampling(top_p=float("nan"))
