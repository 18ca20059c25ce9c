"""Alignment heads of networks of transformers: the attention that is recorded, and the door."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from torch import Tensor

import latentheads as lh
from latentheads.contrib.heads.boundaries.chain import jump_chain
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.heads.head_exports import to_nllw
from latentheads.contrib.heads.word_attention import (
    ForcedExample,
    WordAttention,
    get_cross_heads,
    record_cross_attention,
    record_word_attention,
    to_word_attention,
)
from latentheads.guides import Tied
from tests.latentheads.contrib.hf.networks import FRAMES, IDS, bart, gpt2, whisper
from tests.second_device import NAME, second_device
from tests.tiny import jiggle
from tests.typechecking import unchecked

EXAMPLE = ForcedExample(
    {"input_features": FRAMES[:1].double()}, [1, 3, 5, 7, 1], [(1, 3), (3, 4)], step=1
)


UNLIKELY = pytest.mark.filterwarnings("ignore:no head has P above")
"""Of a test of an untrained network, whose heads show nothing."""


@pytest.fixture
def network() -> Any:
    return jiggle(whisper(), 0.3).double().eval()


def test_recorded_attention_is_that_of_the_network(network: Any) -> None:
    weights = record_cross_attention(network, EXAMPLE)
    network.set_attn_implementation("eager")
    tokens = torch.tensor([list(EXAMPLE.tokens)[:-1]])
    output = network(
        input_features=FRAMES[:1].double(), decoder_input_ids=tokens, output_attentions=True
    )
    expected = torch.cat([layer[0] for layer in output.cross_attentions])
    torch.testing.assert_close(weights, expected)
    assert get_cross_heads(network) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(weights) == 4
    cut = record_cross_attention(network, replace(EXAMPLE, length=4))
    torch.testing.assert_close(cut, expected[..., :4])


def test_a_view_is_a_head_and_a_query(network: Any) -> None:
    weights = record_cross_attention(network, EXAMPLE)
    views = record_word_attention(network, EXAMPLE).weights
    # tokens 1, 2 are the first word: query 0 predicts token 1, query 2 has token 2 as its input
    torch.testing.assert_close(views[:4], weights[:, [0, 2]])
    torch.testing.assert_close(views[4:], weights[:, [2, 3]])
    longest = replace(EXAMPLE, tokens=[*EXAMPLE.tokens, *[1] * 12])  # the last one is no input
    torch.testing.assert_close(record_word_attention(network, longest).weights, views)


def test_text_has_attention_too() -> None:
    inputs = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3).long()}
    text = replace(EXAMPLE, inputs=inputs)
    network = bart().eval()
    weights = record_cross_attention(network, text)
    assert weights.shape[-1] == 3
    padded = {"input_ids": torch.tensor([[5, 6, 7, 0]]), "attention_mask": torch.ones(1, 4).long()}
    padded["attention_mask"][0, 3] = 0
    of_words = record_cross_attention(network, replace(text, inputs=padded))
    torch.testing.assert_close(of_words, weights, atol=1e-6, rtol=0)


def test_a_token_that_is_not_in_the_vocabulary_is_refused(network: Any) -> None:
    with pytest.raises(ValueError, match=r"^decoder_input_ids has the id 999, and the network's"):
        record_cross_attention(network, replace(EXAMPLE, tokens=[1, 999, 1]))


def test_padding_on_the_left_is_refused() -> None:
    mask = torch.tensor([[0, 1, 1]])
    inputs = {"input_ids": torch.tensor([[0, 6, 7]]), "attention_mask": mask}
    text = replace(EXAMPLE, inputs=inputs)
    with pytest.raises(ValueError, match=r"attention_mask must have its padding on the right"):
        record_cross_attention(bart().eval(), text)


def test_dropout_of_a_network_in_training_mode_is_off(network: Any) -> None:
    expected = record_cross_attention(network, EXAMPLE)
    for layer in network.model.decoder.layers:
        layer.encoder_attn.dropout = 0.5
    network.train()
    torch.testing.assert_close(record_cross_attention(network, EXAMPLE), expected)
    assert network.training


def test_weights_may_be_on_a_device_only_while_they_are_used(network: Any) -> None:
    expected = record_cross_attention(network, EXAMPLE)
    accelerate.cpu_offload(network, torch.device("cpu"))
    torch.testing.assert_close(record_cross_attention(network, EXAMPLE), expected)


def test_heads_of_text_are_found_where_words_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    order = [1, 0, 2, 4, 3]
    weights = torch.full((8, 5, 6), 1 / 6, dtype=torch.float64)
    weights[1] = 0.004 + 0.976 * torch.eye(6, dtype=torch.float64)[order]  # head 1 of layer 0
    starts = torch.tensor(order).double() + 0.5
    attention = WordAttention(weights, starts, torch.full_like(starts, torch.nan))
    monkeypatch.setattr(
        "latentheads.contrib.heads.alignment_heads.record_word_attention", lambda *_: attention
    )
    text = ForcedExample({"input_ids": torch.ones(1, 6).long()}, range(6), [(1, 2)] * 5)
    heads = lh.alignment_heads(bart(), [text] * 3)
    assert heads.table()[0].probability == 1.0
    assert repr(heads).startswith("AlignmentHeads(L0H1 P = 1.00, ")
    assert repr(heads).endswith(" P = 0.00; 3 examples)")  # the model has heads that show nothing
    assert heads.sufficient() == [(0, 1)]
    marginals = heads.marginals(attention)
    assert marginals.argmax(-1).tolist() == order
    torch.testing.assert_close(marginals.sum(-1), torch.ones(5).double())


@UNLIKELY
def test_a_teacher_gives_the_starts_that_are_not_known(network: Any) -> None:
    options = FitOptions(views=1, rounds=1, steps=1, reach=2)
    taught = []

    def teach(example: ForcedExample) -> list[float]:
        taught.append(example)
        return [0.5, 3.5]

    changed = replace(EXAMPLE, starts=[0.5, 2.5])
    heads = lh.alignment_heads(network, [EXAMPLE, changed], teach, options=options)
    assert len(taught) == 1
    assert [a.starts.tolist() for a in heads.attentions] == [[0.5, 3.5], [0.5, 2.5]]
    assert set(heads.align(network, EXAMPLE)) == {"starts"}
    assert heads.probabilities.keys() == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_attention_that_is_not_finite_is_refused(network: Any) -> None:
    weights = record_cross_attention(network, EXAMPLE).clone()
    weights[0, 0, 0] = torch.nan
    weights[0] = torch.inf
    with pytest.raises(ValueError, match=r"must be finite; load it in float32$"):
        to_word_attention(weights, EXAMPLE)


@UNLIKELY
def test_ends_are_learned_where_one_is_known(network: Any) -> None:
    changed = replace(EXAMPLE, starts=[0.5, 2.5], ends=[2.0, torch.nan])
    heads = lh.alignment_heads(network, [changed])
    assert set(heads.align(network, EXAMPLE)) == {"starts", "ends"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": [(2, 4), (3, 4)]}, r"word 1 must be a span of tokens from 4 to 5, in order"),
        ({"words": [(0, 2)]}, r"word 0 must be a span of tokens from 1"),
        ({"words": []}, "words of an example must be at least one"),
        ({"starts": [1.0]}, "starts must be as many as words, 2, got 1"),
        ({"energy": torch.zeros(5)}, "energy must have a number for each of 6 positions, got"),
        ({"energy": torch.full((6,), -torch.inf)}, "energy must be finite at each position"),
        ({"starts": [0.5, 7.5]}, "starts must be from 0 to 6, the number of positions, got 7.5"),
        ({"starts": [0.5, 3.0], "ends": [1.5, 2.0]}, "word 1 must end after it starts, got 3 to 2"),
        ({"ends": [-1.5, 2.0]}, "ends must be from 0 to 6, the number of positions, got -1.5"),
        ({"inputs": {"input_features": FRAMES[:2]}}, r"inputs must be tensors of one sequence"),
        ({"tokens": [1] * 18}, "tokens must be at most 17 for this network, got 18"),
    ],
)
def test_wrong_examples_are_refused(network: Any, changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lh.alignment_heads(network, [replace(EXAMPLE, **changes)])


def test_labels_may_be_off_by_a_position_at_the_ends(network: Any) -> None:
    attention = record_word_attention(network, replace(EXAMPLE, starts=[-0.5, 6.5]))
    assert attention.starts.tolist() == [-0.5, 6.5]


def test_times_of_sound_are_seconds_and_of_text_positions(network: Any) -> None:
    # Whisper's positions are .02 seconds: 6 of them are .12 seconds
    sound = replace(EXAMPLE, step=None, starts=[0.01, 0.06])
    heads = lh.alignment_heads(network, [sound])
    assert heads.step == 0.02
    torch.testing.assert_close(heads.attentions[0].starts, torch.tensor([0.5, 3.0]).double())
    with pytest.raises(ValueError, match=r"^starts must be from 0 to 0\.12, the seconds"):
        lh.alignment_heads(network, [replace(sound, starts=[0.01, 0.9])])
    inputs = {"input_ids": torch.tensor([[5, 6, 7]])}
    text = replace(EXAMPLE, step=None, inputs=inputs, starts=[0.5, 2.5])
    assert lh.alignment_heads(bart().eval(), [text]).step == 1
    network.config.model_type = "speech_to_text"
    with pytest.raises(ValueError, match=r"^step of an example of Whisper.* must be given"):
        lh.alignment_heads(network, [sound])
    assert lh.alignment_heads(network, [sound], step=0.04).attentions[0].starts[1] == 1.5


def test_examples_that_are_none_are_refused(network: Any) -> None:
    with pytest.raises(ValueError, match=r"^examples\[1\] must be a ForcedExample, got 'a'$"):
        unchecked(lh.alignment_heads)(network, [EXAMPLE, "a"])
    with pytest.raises(ValueError, match=r"^examples must be a list of ForcedExample, got one"):
        unchecked(lh.alignment_heads)(network, EXAMPLE)
    for steps, message in (
        ((0.02, 0.04), "^examples must have one step, got 0.02, 0.04$"),
        ((0.02, 0.0), "^step must be a positive number of seconds, got 0.0$"),
        ((0.02, math.inf), "^step must be a positive number of seconds, got inf$"),
    ):
        with pytest.raises(ValueError, match=message):
            lh.alignment_heads(network, [replace(EXAMPLE, step=step) for step in steps])
    with pytest.raises(ValueError, match=r"^examples\[0\] has a step of 1, got step=0.02$"):
        lh.alignment_heads(network, [EXAMPLE], step=0.02)


def test_times_lie_in_the_sound_and_heads_that_show_nothing_are_warned_of(network: Any) -> None:
    heads = lh.alignment_heads(network, [replace(EXAMPLE, starts=[0.0, 6.0])])
    attention = heads.attentions[0]
    with pytest.warns(UserWarning, match=r"^no head has P above 0.5 of being an alignment head"):
        starts = heads.align(network, EXAMPLE, level=0.99)["starts"]
    with pytest.warns(UserWarning, match="no head has P"):
        free = heads.times(attention, level=0.99, bounded=False)["starts"]
    assert free.low[0] < 0 == starts.low[0]
    assert free.high[1] > 6 == starts.high[1]
    torch.testing.assert_close(starts.median, free.median.clamp(0, 6))


def test_lists_and_links_of_heads_that_show_nothing_are_warned_of(network: Any) -> None:
    heads = lh.alignment_heads(network, [EXAMPLE])
    assert repr(heads).startswith("AlignmentHeads(")  # without a warning
    uses: list[Callable[[], object]] = [
        lambda: heads.marginals(heads.attentions[0]),
        lambda: heads.sufficient(),
        lambda: heads.chosen,
        lambda: to_nllw(heads.probabilities, (2, 2), "tiny", "en-de"),
    ]
    for use in uses:
        with pytest.warns(UserWarning, match=r"^no head has P above 0.5 .* than the prior$") as got:
            use()
        assert [Path(warning.filename).name for warning in got] == [Path(__file__).name]


def test_options_that_do_not_fit_are_refused(network: Any) -> None:
    with pytest.raises(ValueError, match=r"a row of jumps for each of 2 kinds .* got 1"):
        lh.alignment_heads(network, [replace(EXAMPLE, ends=[2.0, 3.0])], chain=jump_chain())
    for name in ("kinds", "views", "rounds", "steps", "reach"):
        with pytest.raises(ValueError, match=f"^{name} must be at least 1, got 0$"):
            unchecked(FitOptions)(**{name: 0})
    for name in ("width", "counts", "prior"):
        with pytest.raises(ValueError, match=f"^{name} must be above 0, got -1$"):
            unchecked(FitOptions)(**{name: -1.0})
    heads = lh.alignment_heads(network, [EXAMPLE])
    with pytest.raises(ValueError, match="level must be above 0 and below 1, got 90"):
        heads.align(network, EXAMPLE, level=90)
    with pytest.raises(ValueError, match="examples must be at least one, got none"):
        lh.alignment_heads(network, [])


@UNLIKELY
@pytest.mark.parametrize("prior", ["independent", "delta"])
def test_attention_of_a_latent_network_is_its_own_without_noise(network: Any, prior: str) -> None:
    expected = record_cross_attention(network, EXAMPLE)
    model = lh.latent(network, prior)
    torch.testing.assert_close(record_cross_attention(model, EXAMPLE), expected)
    batch = model.batch(dict(EXAMPLE.inputs), labels=torch.tensor([[3, 5, 1]]))
    assert lh.terms(model, Tied(model).eval(), batch).how  # its heads are latent as before
    heads = lh.alignment_heads(model, [EXAMPLE])
    assert set(heads.align(model, EXAMPLE)) == {"starts"}


def test_parts_of_a_network_keep_their_attention_and_a_latent_one_has_no_noise() -> None:
    made = jiggle(bart(), 0.5).eval()
    text = ForcedExample({"input_ids": IDS[:1]}, [1, 5, 6, 1], [(1, 2), (2, 3)])
    expected = record_cross_attention(made, text)
    model = lh.latent(made.model.encoder, "independent")
    torch.testing.assert_close(record_cross_attention(made, text), expected)
    attention = model.network.config._attn_implementation, made.config._attn_implementation
    assert attention == ("latentheads", "sdpa")


def test_half_precision_has_attention_in_double_precision() -> None:
    network = jiggle(whisper(), 0.3).bfloat16().eval()
    weights = record_word_attention(network, EXAMPLE).weights
    assert weights.dtype == torch.float64
    unknown = torch.full((2,), torch.nan)
    attention = WordAttention(weights.float(), unknown, unknown, torch.arange(6).float())
    assert {x.dtype for x in vars(attention).values() if isinstance(x, Tensor)} == {torch.float64}
    torch.testing.assert_close(weights.sum(-1), torch.ones(8, 2).double(), atol=0.02, rtol=0)


def test_attention_of_another_device_is_brought_to_the_cpu(network: Any) -> None:
    weights, energy = record_cross_attention(network, EXAMPLE), torch.arange(6.0)
    with second_device():
        example = replace(EXAMPLE, energy=energy.to(NAME))
        attention = to_word_attention(weights.to(NAME), example)
        assert attention.energy is not None
        assert {attention.weights.device.type, attention.energy.device.type} == {"cpu"}


def test_a_network_without_cross_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="GPT2LMHeadModel has no cross-attention"):
        lh.alignment_heads(gpt2(), [EXAMPLE])
