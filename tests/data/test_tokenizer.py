"""A run's tokenizer is the one with its digest."""

import json

import pytest
import text_project

from treering.config.canonical import digest_file
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.tokenizer import check_tokenizer, end_of_document
from treering.errors import EvidenceError, UserError

EXPERIMENT = text_project.experiment(
    "tiny",
    seed=7,
    optimizer={"peak_learning_rate": 0.003, "min_learning_rate": 0.0003},
    schedule={"train_tokens": 3200, "global_batch_size": 8},
    parallel={"micro_batch_size": 2},
    checkpoint={"every_steps": 4},
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return text_project.lay(tmp_path_factory.mktemp("project"), EXPERIMENT).tokenizer


def test_only_the_run_s_own_tokenizer_is_taken(tokenizer, tmp_path):
    check_tokenizer(tokenizer, digest_file(tokenizer), "feed")
    with pytest.raises(EvidenceError, match=r"tokenizer.json: tokenizer \w{12}, but run feed was trained with none"):
        check_tokenizer(tokenizer, None, "feed")
    with pytest.raises(EvidenceError, match=r"gone.json: tokenizer missing, but .* `dvc repro tokenize`"):
        check_tokenizer(tmp_path / "gone.json", digest_file(tokenizer), "feed")


def test_the_one_special_token_ends_a_document(tokenizer, tmp_path):
    text, number = end_of_document(tokenizer)
    assert (text, number) == ("<|endoftext|>", load_tokenizer(tokenizer).token_to_id("<|endoftext|>"))
    document = json.loads(tokenizer.read_text())
    for tokens, found in (([], "none"), (document["added_tokens"] * 2, "'<|endoftext|>', '<|endoftext|>'")):
        (tmp_path / "tokenizer.json").write_text(json.dumps({**document, "added_tokens": tokens}))
        with pytest.raises(UserError, match=f"found special tokens {found}, expected one,".replace("|", r"\|")):
            end_of_document(tmp_path / "tokenizer.json")
