"""Continuations that share a sequence score as each alone would; prompts hold whole examples."""

import random

import pytest
import torch

pytestmark = pytest.mark.trainer


@pytest.fixture(scope="module")
def model():
    from treering.config.model import ModelConfig
    from treering_trainer.checkpointing.inference import LanguageModel
    from treering_trainer.core.topology import join_alone

    torch.set_num_threads(1)
    join_alone()
    config = ModelConfig(num_layers=2, hidden_size=32, num_attention_heads=4, padded_vocab_size=128, init_std=0.2)
    return LanguageModel(config, 24).eval()


def alone(model, continuation):
    tokens = torch.tensor([continuation.context + continuation.tokens[:-1]])
    with torch.inference_mode():
        scores = model(tokens)[0].log_softmax(dim=-1)[len(continuation.context) - 1 :]
    wanted = torch.tensor(continuation.tokens)
    return scores.gather(1, wanted[:, None]).sum().item(), bool((scores.argmax(dim=-1) == wanted).all())


def test_shared_sequences_score_as_separate_ones(model):
    from treering_trainer.evaluate.scoring import Continuation, score_continuations

    rng = random.Random(0)
    draw = lambda count: tuple(rng.randrange(128) for _ in range(count))  # noqa: E731
    shared = draw(10)
    continuations = [Continuation(shared, draw(n)) for n in (1, 3, 14, 3)]
    continuations += [Continuation(draw(n), draw(m)) for n, m in ((1, 1), (1, 24), (24, 1), (7, 5))]
    scores = dict(score_continuations(model, continuations))
    assert scores.keys() == set(range(len(continuations)))
    for number, continuation in enumerate(continuations):
        log_likelihood, greedy = alone(model, continuation)
        assert scores[number].log_likelihood == pytest.approx(log_likelihood, abs=1e-4)
        assert scores[number].greedy == greedy


def test_the_greedy_continuation_is_called_greedy(model):
    from treering_trainer.evaluate.scoring import Continuation, score_continuations

    tokens = [5, 6]
    with torch.inference_mode():
        for _ in range(4):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    greedy, other = Continuation((5, 6), tuple(tokens[2:])), Continuation((5, 6), (*tokens[2:5], (tokens[5] + 1) % 128))
    scores = dict(score_continuations(model, [greedy, other]))
    assert (scores[0].greedy, scores[1].greedy) == (True, False)
    assert scores[0].log_likelihood > scores[1].log_likelihood


def test_contexts_are_cut_on_the_left_and_only_as_far_as_needed():
    from treering_trainer.evaluate.scoring import Continuation, truncate

    full = Continuation(tuple(range(10)), (91, 92, 93))
    assert truncate(full, 12) == full
    assert truncate(full, 8) == Continuation((4, 5, 6, 7, 8, 9), (91, 92, 93))
    assert truncate(full, 3) == Continuation((9,), (91, 92, 93))
    with pytest.raises(ValueError, match="3 tokens, expected at most 2"):
        truncate(full, 2)


def test_weights_that_are_not_finite_are_an_error(model):
    from treering.errors import TrainingError
    from treering_trainer.evaluate.scoring import Continuation, score_continuations

    weight = model.layers[1].position
    original = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[0] = float("nan")
        with pytest.raises(TrainingError, match="not finite"):
            list(score_continuations(model, [Continuation((1, 2), (3,))]))
    finally:
        with torch.no_grad():
            weight.copy_(original)
