"""The parts around attention."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from latentheads.batch import PAD
from latentheads.models import network
from latentheads.models.network import (
    Embedding,
    FeedForward,
    Network,
    Residual,
    sinusoidal_positions,
)
from latentheads.options import from_dict
from tests.tiny import build, sizes, small_batch
from tests.typechecking import unchecked


def test_positions_are_sines_then_cosines() -> None:
    table = sinusoidal_positions(5, 6, torch.device("cpu"), torch.float64)
    for position in range(5):
        for i in range(3):
            angle = position * 10_000 ** (-i / 2)
            assert table[position, i].item() == pytest.approx(math.sin(angle))
            assert table[position, 3 + i].item() == pytest.approx(math.cos(angle))


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16])
def test_positions_have_the_digits_of_their_own_type(default: torch.dtype) -> None:
    expected = sinusoidal_positions(300, 6, torch.device("cpu"), torch.float64)
    torch.set_default_dtype(default)
    assert torch.equal(sinusoidal_positions(300, 6, torch.device("cpu"), torch.float64), expected)


def test_embedding_is_the_scaled_table_and_positions() -> None:
    embedding = Embedding(Embedding.new_table(7, 6), dropout=0.0)
    tokens = torch.tensor([[3, 5, PAD]])
    expected = embedding.table.weight[tokens] * math.sqrt(6)
    expected = expected + sinusoidal_positions(9, 6, tokens.device, torch.float64)[4:7]
    assert torch.allclose(embedding(tokens, start=4), expected)
    assert not embedding.table.weight[PAD].any()


@pytest.mark.parametrize(("wrong", "statement"), [(7, "2 to 7"), (-3, "-3 to 5")])
def test_a_token_of_another_vocabulary_is_refused(wrong: int, statement: str) -> None:
    embed = Embedding(Embedding.new_table(7, 4), 0.0)
    message = rf"^token ids must lie between 0 and 6, those of the vocabulary, got {statement}$"
    with pytest.raises(ValueError, match=message):
        embed(torch.tensor([[5, wrong, 2]]))


def test_a_table_starts_as_wide_as_its_states_are_long() -> None:
    """So that a state of unit variance has scores of unit variance."""
    table = Embedding.new_table(5003, 6).weight
    assert table[PAD + 1 :].std().item() == pytest.approx(6**-0.5, rel=0.05)


def test_positions_beyond_the_table_are_made() -> None:
    embedding = Embedding(Embedding.new_table(7, 6), dropout=0.0)
    tokens = torch.full((1, 200), 3)
    embedding(tokens[:, :5])
    far = embedding(tokens[:, :50], start=150)
    assert torch.allclose(far, embedding(tokens)[:, 150:])


def test_positions_are_seldom_made_while_a_text_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding, made = Embedding(Embedding.new_table(7, 6), dropout=0.0), []
    monkeypatch.setattr(
        network,
        "sinusoidal_positions",
        lambda n, *of: made.append(n) or sinusoidal_positions(n, *of),
    )
    for index in range(600):
        embedding(torch.tensor([[3]]), start=index)
    assert len(made) < 5


def test_a_pass_in_low_precision_leaves_no_trace() -> None:
    used, fresh = (Embedding(Embedding.new_table(7, 6), dropout=0.0) for _ in range(2))
    fresh.load_state_dict(used.state_dict())
    tokens = torch.full((1, 100), PAD)
    used.bfloat16()(tokens)
    assert torch.equal(used.double()(tokens), fresh.double()(tokens))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_residual_norms_after_or_before(norm: Any) -> None:
    step, x, inner = Residual(sizes(norm=norm)), torch.randn(2, 5, 6), nn.Linear(6, 6)
    expected = x + inner(step.norm(x)) if norm == "pre" else step.norm(x + inner(x))
    assert torch.allclose(step(x, inner), expected)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"width": "wide"}, "width must be a whole number, got 'wide'"),
        ({"layers": 1.5}, "layers must be a whole number, got 1.5"),
        ({"feed_forward": True}, "feed_forward must be a whole number, got True"),
        ({"dropout": "no"}, "dropout must be a number, got 'no'"),
    ],
)
def test_what_is_no_number_is_refused_by_its_name(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        unchecked(Network.__init__)(object.__new__(Network), **option)


def test_feed_forward_is_two_layers_with_a_relu() -> None:
    step, x = FeedForward(sizes()), torch.randn(2, 5, 6)
    assert torch.allclose(step(x), step.outer(step.inner(x).clamp(min=0)))


@pytest.mark.parametrize("part", ["dropout", "activation_dropout", "attention_dropout"])
def test_each_dropout_acts_while_training_alone(part: str) -> None:
    model, batch = build(prior="delta", **{part: 0.5}), small_batch()
    assert not torch.equal(model.states(batch), model.states(batch))
    model.eval()
    assert torch.equal(model.states(batch), model.states(batch))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"heads": 5, "width": 6}, "heads must divide the width 6, got 5"),
        ({"heads": 1, "width": 7}, "width must be even, got 7"),
        ({"dropout": 1.0}, r"dropout must be below 1, got 1"),
        ({"mixers": "ngram", "ngram_noise": -0.1}, "ngram_noise must be at least 0, got -0.1"),
        ({"ngram_noise": 0.3}, "ngram_noise is for ngram layers: mixers has none"),
        ({"attention_dropout": -0.1}, r"attention_dropout must be at least 0, got -0.1"),
    ],
)
def test_wrong_sizes_are_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Network(**wrong)


@pytest.mark.parametrize(
    ("name", "word", "message"),
    [
        ("norm", "both", "norm must be one of post, pre; got 'both'"),
        ("share", "target", "share must be one of decoder, all, none; got 'target'"),
        (
            "speech",
            {"spec_augment": "lb"},
            "speech.spec_augment must be one of none, LB, LD; got 'lb'",
        ),
    ],
)
def test_a_word_that_is_no_choice_is_refused(name: str, word: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        from_dict(Network, {name: word})
