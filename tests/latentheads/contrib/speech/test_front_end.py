"""Networks that hear: as large as published, and the same alone, padded and in any order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pyro import poutine
from torch import Tensor

from latentheads.batch import PAD, Batch
from latentheads.contrib.speech.front_end import SpeechOptions
from latentheads.contrib.speech.subsampler import subsampled_length
from latentheads.decoding.beam_search import beam_search
from latentheads.guides import Tied
from latentheads.inference.bound import terms, traces
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.models import Network, Translation, make_prior
from latentheads.models.layers import Stack
from tests.tiny import FORMS, TARGETS, attach, jiggle, sizes

BINS, TYPES = 5, 13
FRAMES = [11, 6, 17]


def hear(lengths: list[int] = FRAMES, targets: list[list[int]] = TARGETS, pad: int = 0) -> Batch:
    """A batch of noise, the same for the same length; more padding where it is asked for."""
    longest = max(lengths) + pad
    frames = torch.full((len(lengths), longest, BINS), 7.0)
    for row, length in zip(frames, lengths, strict=True):
        generator = torch.Generator().manual_seed(length)
        row[:length] = torch.randn(length, BINS, generator=generator)
    counts = torch.tensor(lengths)
    places = torch.arange(subsampled_length(longest)) < subsampled_length(counts).unsqueeze(-1)
    plain = Batch.of(targets)
    return Batch(
        torch.nn.functional.pad(plain.target, (0, pad), value=PAD),
        torch.where(places, 4, PAD),
        frames=frames,
        frame_counts=counts,
    )


def build(
    prior: str = "delta", ctc: float = 0.0, options: Any = None, gates: str = "", **changes: Any
) -> Any:
    network = sizes(**{"speech": {"channels": 4}, **changes})
    model = Translation(
        5,
        TYPES,
        network,
        latents=[
            Logits(make_prior(prior)),
            *([GateOptions(gates)] if gates else []),
            *([options] if options else []),
        ],
        bins=BINS,
        ctc=ctc,
    )
    return jiggle(model, 0.2).double().eval()


SHAPES: dict[str, dict[str, Any]] = {
    "attention": {},
    "local": {"mixers": "encoder=local", "windows": "2"},
    "local in both stacks": {"mixers": "local", "windows": "2"},
    "ngram": {"mixers": "ngram", "windows": "2", "ngram_context": True},
    "pre-norm, deeper below": {"norm": "pre", "layers": 3, "decoder_layers": 1},
    "gates of all heads": {"gates": "all"},
    "gates of n-grams": {"gates": "encoder-self", "mixers": "encoder=ngram", "windows": "2"},
    "alignments": {"options": AlignmentOptions(1, 2, "independent", 5)},
    "a chain of alignments": {"options": AlignmentOptions(1, 1, "chain", 5)},
    "prior cascaded": {"prior": "cascaded"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_neither_padding_nor_company_changes_a_bound_or_a_transcript(shape: str) -> None:
    model = build(**SHAPES[shape])
    guide = attach("tied", model, 1.0) if "gates" in SHAPES[shape] else Tied(model)

    def bound(batch: Batch) -> Tensor:
        # noise is drawn for padding too, so that draws differ: the plug-in network has none
        if {"prior", "gates"} & SHAPES[shape].keys():
            return plug_in_log_likelihood(model, batch, guide)
        return terms(model, guide, batch).elbo

    def write(batch: Batch) -> list[list[int]]:
        with WithSelection(guide):
            return [best.tokens for (best,) in beam_search(model, batch, num_beams=1)]

    together, order = bound(hear()), [2, 0, 1]
    texts = write(hear())
    torch.testing.assert_close(bound(hear(pad=3)), together, rtol=0, atol=1e-11)
    assert write(hear(pad=3)) == texts
    other = hear(
        [FRAMES[position] for position in order], [TARGETS[position] for position in order]
    )
    torch.testing.assert_close(bound(other), together[order], rtol=0, atol=1e-11)
    for index, (length, target) in enumerate(zip(FRAMES, TARGETS, strict=True)):
        alone = hear([length], [target])
        torch.testing.assert_close(bound(alone)[0], together[index], rtol=0, atol=1e-11)
        assert write(alone) == [texts[index]]


def test_a_decoder_may_have_its_own_number_of_layers() -> None:
    model = build(layers=3, decoder_layers=1)
    assert isinstance(model.encoder, Stack)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)


@pytest.mark.parametrize("form", FORMS)
def test_every_guide_bounds_speech_and_teaches_all_of_the_network(form: str) -> None:
    model = build("independent", ctc=0.3)
    guide = attach(form, model)
    assert torch.isfinite(terms(model, guide, hear()).elbo).all()
    model.train()
    model_trace, guide_trace = traces(model, guide, hear())
    (-model_trace.log_prob_sum() + guide_trace.log_prob_sum()).backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert dead == []


def test_spec_augment_is_of_training_alone() -> None:
    plain, hidden = build(), build(speech={"channels": 4, "spec_augment": "LD"})
    hidden.load_state_dict(plain.state_dict())
    batch = hear([40, 30, 50])
    assert torch.equal(plain.states(batch), hidden.states(batch))
    plain.train(), hidden.train()
    assert not torch.equal(plain.states(batch), hidden.states(batch))
    with pytest.raises((ValueError, TypeError), match="spec_augment"):  # checked types say it first
        SpeechOptions(spec_augment="x")  # type: ignore[arg-type]


def test_ctc_is_a_factor_of_training_alone() -> None:
    model = build(ctc=0.3)
    batch = hear()
    assert "encoder.ctc" not in poutine.trace(model).get_trace(batch).nodes
    before = plug_in_log_likelihood(model, batch)
    model.train()
    site = poutine.trace(model).get_trace(batch).nodes["encoder.ctc"]
    memory = model.encode(batch, {})
    nats = model.ctc(memory, batch.source_valid, batch.target)
    assert torch.allclose(site["fn"].log_factor, -0.3 * nats)
    model.ctc.weight = 5.0
    assert torch.equal(plug_in_log_likelihood(model.eval(), batch), before)


def test_ctc_sums_all_ways_to_hear_a_text() -> None:
    model = build(ctc=1.0)
    memory = torch.randn(1, 3, 6)
    valid = torch.ones(1, 3, dtype=torch.bool)
    chances = torch.softmax(model.ctc.head(memory[0]), -1)
    ways = [(5, 5, 7), (5, 7, 7), (0, 5, 7), (5, 0, 7), (5, 7, 0)]
    total = sum(chances[range(3), way].prod() for way in ways)
    assert torch.allclose(model.ctc(memory, valid, torch.tensor([[5, 7, 2, 0]])), -total.log())
    for long in ([5, 7, 8, 9, 2], [5, 5, 7, 2]):
        assert not model.ctc(memory, valid, torch.tensor([long])).any()
    drawn = model.ctc(memory.expand(2, 1, 3, 6), valid, torch.tensor([[5, 7, 2]]))
    assert drawn.shape == (2, 1)


def test_ctc_hears_what_is_likeliest() -> None:
    model = build(ctc=1.0)
    with torch.no_grad():
        model.ctc.head.weight.copy_(torch.nn.functional.one_hot(torch.arange(TYPES) % 6, 6))
        model.ctc.head.weight[6:] = 0
        model.ctc.head.bias.zero_()
    memory = torch.nn.functional.one_hot(torch.tensor([[5, 5, 0, 5, 4, 4, 3]]), 6).double()
    valid = torch.tensor([[True] * 6 + [False]])
    assert model.ctc.greedy_decode(memory, valid) == [[5, 5, 4]]
    assert len(model.decode_ctc(hear())) == len(FRAMES)
    with pytest.raises(ValueError, match="this model has no CTC"):
        build().decode_ctc(hear())


def test_a_beam_hears_with_draws_and_stops_where_the_sound_does() -> None:
    model = build("independent")
    hypotheses = beam_search(model, hear(), num_beams=2, num_samples=3)
    for sentence, length in zip(hypotheses, FRAMES, strict=True):
        assert 0 < len(sentence[0].tokens) <= 10 + subsampled_length(length)


def test_what_is_of_text_is_refused() -> None:
    with pytest.raises(ValueError, match="this batch has no frames: the model takes speech"):
        build().states(Batch.of(TARGETS, [[4, 4], [4], [4]]))
    with pytest.raises(ValueError, match="share='all' is of text"):
        build(share="all")
    with pytest.raises(ValueError, match=r"^speech is for an encoder of speech: this source"):
        Translation(5, 5, sizes(speech={"channels": 4}), latents=())
    with pytest.raises(ValueError, match="ctc is for speech"):
        Translation(5, 5, sizes(), latents=(), ctc=0.3)
    with pytest.raises(ValueError, match="ctc must be at least 0, got -1"):
        build(ctc=-1)
    with pytest.raises(ValueError, match="channels must be even"):
        SpeechOptions(channels=3)
    with pytest.raises(ValueError, match="decoder_layers must be at least 0"):
        Network(decoder_layers=-1)
