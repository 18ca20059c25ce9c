"""A mixture of passes in decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import pyro
import pytest
import torch
from torch import Tensor, nn

import latentheads as lh
from latentheads.decoding.beam_search import beam_search
from latentheads.distributions import make_token_distribution
from latentheads.latents import mixture as mixtures
from latentheads.latents.latent import Latent
from latentheads.latents.mixture import PassMixture
from latentheads.latents.network import Choice, Passes
from latentheads.latents.options import LatentOptions
from latentheads.latents.sentence_mixture import MixtureChoice, MixtureTokens
from latentheads.models import Translation
from tests.tiny import HEADS, SOURCE_TYPES, jiggle, sizes

LOG_PRIOR = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()


def mixture(sentences: int = 2) -> PassMixture:
    return PassMixture(LOG_PRIOR, {"decoder.0.self": torch.eye(3).double()}, sentences)


def test_every_sentence_is_repeated_for_all_components() -> None:
    batch = lh.data.Batch.of([[5, 2], [6, 2]], [[7, 2], [8, 2]], index=[3, 4], corpus_size=9)
    rows = mixture().expand_batch(batch)
    assert rows.target[:, 0].tolist() == [5, 5, 5, 6, 6, 6]
    assert rows.source is not None
    assert rows.source[:, 0].tolist() == [7, 7, 7, 8, 8, 8]
    assert (rows.index, rows.size) == (None, 6)
    gates = mixture().choices()["decoder.0.self"].weight
    assert torch.equal(gates, torch.eye(3).double().repeat(2, 1))
    assert mixture().expand_index(torch.tensor([1, 0])).tolist() == [3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize("chunk", [1, 2**19])
def test_weights_are_bayes_rule_after_each_token(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(mixtures.CHUNK, "cpu", chunk)
    state, tokens = mixture(), torch.tensor([[0, 2, 1], [0, 0, 3]])
    scores = torch.randn(6, 3, 5, dtype=torch.float64)
    mixed = torch.cat(
        [state.mix(scores[:, :2], tokens[:, :2]), state.mix(scores[:, 2:], tokens[:, 2:])], 1
    )
    probs = scores.softmax(-1).view(2, 3, 3, 5)
    prior = LOG_PRIOR.exp()
    for sentence in range(2):
        weights = prior
        for position in range(3):
            if position:
                weights = weights * probs[sentence, :, position - 1, tokens[sentence, position]]
            expected = (weights / weights.sum()) @ probs[sentence, :, position]
            torch.testing.assert_close(mixed[sentence, position].exp(), expected)


def test_hypotheses_have_their_own_weights() -> None:
    state = mixture(1)
    tokens = torch.tensor([[[0], [0]]])
    state.mix(torch.randn(3, 2, 1, 5).double(), tokens)
    state.mix(torch.randn(3, 2, 1, 5).double(), torch.tensor([[[1], [3]]]))
    assert state.log_weights is not None
    before = state.log_weights
    assert before.shape == (1, 2, 3)
    log_probs = state.log_probs
    assert log_probs is not None
    state.select(None, torch.tensor([[1, 1, 0]]))
    assert torch.equal(state.log_weights, before[:, [1, 1, 0]])
    state.mix(torch.randn(3, 3, 1, 5).double(), torch.tensor([[[2], [4], [0]]]))
    of_tokens = torch.stack([log_probs[1, :, 2], log_probs[1, :, 4], log_probs[0, :, 0]])
    expected = (before[:, [1, 1, 0]] + of_tokens).log_softmax(-1)
    assert torch.equal(state.log_weights, expected)


def test_weights_keep_their_digits_after_many_tokens() -> None:
    states = [PassMixture(LOG_PRIOR.to(dtype), {}, 1) for dtype in (torch.float64, torch.float32)]
    apart, alike = (torch.randn(number, 1, 7).double().expand(3, 1, 7) for number in (3, 1))
    for scores in (apart, *[alike] * 2000, apart):  # nothing between tells components apart
        token = torch.randint(7, (1, 1))
        exact, rounded = (state.mix(scores.to(state.log_prior), token) for state in states)
    torch.testing.assert_close(rounded.double(), exact, rtol=0, atol=2e-6)


def test_a_prior_of_each_sentence_is_selected_with_it_before_the_first_token_and_after() -> None:
    log_prior = torch.randn(3, 5).double().log_softmax(-1)
    scores = torch.randn(3, 5, 2, 7).double()  # sentence, component, position, vocabulary
    tokens, order = torch.randint(7, (3, 2)), torch.tensor([2, 0, 0])
    for selected_at in range(3):
        state, rows, mixed = PassMixture(log_prior, {}, 3), torch.arange(3), []
        for position in range(3):
            if position == selected_at:
                state.select(order)
                rows = order
            if position < 2:
                part = scores[rows, :, position, None].flatten(0, 1)
                mixed.append(state.mix(part, tokens[rows, position, None]))
        expected = PassMixture(log_prior[order], {}, 3).mix(
            scores[order].flatten(0, 1), tokens[order]
        )
        last = mixed[1] if selected_at < 2 else mixed[1][order]
        torch.testing.assert_close(last, expected[:, 1:])
        assert state.log_weights is not None
        weights = log_prior + scores[:, :, 0].log_softmax(-1).gather(
            -1, tokens[:, None, 1:].expand(-1, 5, -1)
        ).squeeze(-1)
        torch.testing.assert_close(state.log_weights, weights[order].log_softmax(-1))


BLOCK, SITE = "decoder.0.self", "decoder.0.self.head"
END, VOCAB = 2, 5


@dataclass(frozen=True)
class OneHeadOptions(LatentOptions):
    """One head of a block is active in a sentence: which one depends on its source."""

    may_be_summed_out: ClassVar[bool] = True

    def make(self, shape: Any) -> Any:
        return OneHead()


class OneHead(nn.Module, Latent):
    name: ClassVar[str] = "one-head"
    sites, is_summed_out = (SITE,), True  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.evidence = nn.Embedding(SOURCE_TYPES, HEADS)

    @property
    def modules_to_save(self) -> Mapping[str, nn.Module]:
        return {"one_head": self}

    def logits(self, batch: lh.data.Batch) -> Tensor:
        return (3 * self.evidence(batch.source) * batch.source_valid[..., None]).sum(-2)

    def token_distribution(self, model: Any, batch: Any, choices: Any) -> MixtureTokens:
        states = [
            model.states(batch, {BLOCK: Choice(gates)}) for gates in torch.eye(HEADS).double()
        ]
        output = model.output.with_current_weights()
        tokens = make_token_distribution(torch.stack(states), batch.scored_mask, output)
        prior = MixtureChoice(self.logits(batch), tokens)
        return MixtureTokens(SITE, prior, pyro.sample(SITE, prior))

    def decoding_mixture(self, model: Any, batch: lh.data.Batch) -> Passes:
        log_prior = self.logits(batch).log_softmax(-1)
        return Passes(log_prior, {BLOCK: torch.eye(HEADS).double()})


def one_head() -> Any:
    latents = [OneHeadOptions()]
    model = Translation(SOURCE_TYPES, VOCAB, sizes(), latents=latents)
    return jiggle(model, 0.9).double().eval()


SOURCES = [[4, 5, 6, END], [7, END], [8, 9, END]]


@torch.no_grad()
def test_the_priors_of_sentences_differ() -> None:
    priors = (
        one_head().latents["one-head"].logits(lh.data.Batch.of([[END]] * 3, SOURCES)).softmax(-1)
    )
    assert (priors[0] - priors[1]).abs().max() > 0.1
    assert (priors[1] - priors[2]).abs().max() > 0.1


@pytest.mark.parametrize("beams", [1, 3, VOCAB**2])
@torch.no_grad()
def test_decoding_with_a_prior_of_each_sentence_is_exact(beams: int) -> None:
    """Hypotheses have the log p of enumerated components; enough of them are the likeliest."""
    model, length = one_head(), 3
    computed_hypotheses = beam_search(
        model, lh.data.Batch.of([[END]] * 3, SOURCES), beams, max_new_tokens=length
    )
    for source, hypotheses in zip(SOURCES, computed_hypotheses, strict=True):
        exact = {}
        for size in range(length):
            for words in product(range(END + 1, VOCAB), repeat=size):
                batch = lh.data.Batch.of([[*words, END]], [source])
                distribution = model.token_distribution(batch)
                exact[(*words, END)] = float(distribution.log_evidence(batch.scored))
        ended = [h for h in hypotheses if h.tokens[-1] == END and tuple(h.tokens) in exact]
        assert ended
        for hypothesis in ended:
            expected = exact[tuple(hypothesis.tokens)]
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-9)
        if beams == VOCAB**2:
            best = max(exact.values())
            assert max(hypothesis.log_prob for hypothesis in ended) == pytest.approx(best)
