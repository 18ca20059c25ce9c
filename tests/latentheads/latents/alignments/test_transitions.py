"""Chains whose words share a matrix, against those that have one each, and their memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentheads.latents.alignments.chain import ChainInference, ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.transitions import SharedTransitions, WordTransitions
from tests.latentheads.latents.alignments.memory import Largest

SENTENCES, WORDS, KEYS = 2, 7, 11


def chain(words: int = 1, far: float = 1.0, seed: int = 0) -> ChainParameters:
    """A random chain; the first sentence lacks the last position."""
    torch.manual_seed(seed)
    scores = far * torch.randn(SENTENCES, WORDS, 1, KEYS, dtype=torch.float64)
    scores[0, ..., -1] = NOWHERE
    steps = far * torch.randn(SENTENCES, words, KEYS, KEYS, dtype=torch.float64)
    return ChainParameters(scores.requires_grad_(), transition_scores=steps.requires_grad_())


def summed(
    prior: CategoricalParameters, dtype: torch.dtype = torch.float64, far: float = 3.0
) -> ChainInference:
    """All alignments of some words; the last of the last sentence is padding."""
    torch.manual_seed(1)
    words = torch.randn(SENTENCES, WORDS, KEYS, dtype=torch.float64) * far
    valid = torch.ones(SENTENCES, WORDS, dtype=torch.bool)
    valid[-1, -1] = False
    return ChainInference([prior], words.to(dtype), valid)


@pytest.mark.parametrize("far", [1.0, 30.0])
def test_both_forms_have_the_same_figures_and_gradients(far: float) -> None:
    one, other = chain(far=far), chain(far=far)
    other = ChainParameters(
        other.scores.detach() + 1, transition_scores=other.transition_scores.detach() * 0.5
    )

    def figures(form: type[SharedTransitions] | type[WordTransitions]) -> list[Tensor]:
        words = 1 if form is SharedTransitions else WORDS
        first, second = (
            form(
                distribution.scores[..., 0, :],
                distribution.transition_scores.expand(-1, words, -1, -1),
            )
            for distribution in (one, other)
        )
        actual = [first.marginals, first.entropy, first.kl(second)]
        return [
            *actual,
            *torch.autograd.grad(actual[-1].sum(), [one.scores, one.transition_scores]),
        ]

    pairs = zip(figures(SharedTransitions), figures(WordTransitions), strict=True)
    for shared, by_word in pairs:
        assert shared.abs().sum() > 0
        torch.testing.assert_close(shared, by_word, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("far", [300.0, 1e3, 1e4])
def test_positions_that_are_nearly_impossible_have_finite_figures_and_gradients(far: float) -> None:
    for seed in range(29):
        prior, guide = chain(far=far, seed=seed), chain(far=far, seed=seed + 1)
        here = summed(prior, far=far)
        actual = [*here.kl([guide]), *here.gap([guide]), here.information, here.log_evidence]
        torch.stack(actual).sum().backward()
        for tensor in (*actual, prior.scores.grad, prior.transition_scores.grad, guide.scores.grad):
            assert tensor is not None
            assert tensor.isfinite().all(), seed


def test_what_a_row_of_steps_has_in_common_cancels() -> None:
    prior = chain()
    scores, steps = prior.scores.detach(), prior.transition_scores.detach()
    far = torch.tensor([0.0, -1e3, 500.0]).repeat(KEYS)[:KEYS, None]
    one, other = (
        summed(ChainParameters(scores, transition_scores=item)) for item in (steps, steps + far)
    )
    for name in ("log_evidence", "information", "prior_entropy", "posterior_entropy"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)


def test_single_precision_keeps_the_sum_over_a_long_text() -> None:
    torch.manual_seed(0)
    length, keys = 211, 13
    words = (torch.randn(1, length, keys) * 5 - 5).float()
    scores = (torch.randn(1, length, 1, keys) * 3).float()
    steps = torch.randn(1, keys, keys).float()
    here = ChainInference(
        [ChainParameters(scores, transition_scores=steps)], words, torch.ones(1, length) > 0
    )
    distribution = scores[0, 0, 0].double().log_softmax(-1) + words[0, 0]
    for own, word in zip(scores[0, 1:, 0].double(), words[0, 1:], strict=True):
        distribution = (distribution[:, None] + (own + steps[0]).log_softmax(-1)).logsumexp(
            0
        ) + word
    assert here.log_evidence.dtype == torch.float32
    assert float(here.log_evidence[0]) == pytest.approx(float(distribution.logsumexp(0)), rel=1e-6)
    assert abs(float(here.gap(here.posterior())[0])) < 1e-5


@pytest.mark.parametrize("words", [1, WORDS])
def test_autocast_narrows_nothing(words: int) -> None:
    summed_chain, other = chain(words), chain(words, far=0.5)
    guide = ChainParameters(
        summed_chain.scores.detach().float(),
        transition_scores=summed_chain.transition_scores.detach().float(),
    )
    prior = ChainParameters(
        other.scores.detach().float(),
        transition_scores=other.transition_scores[:, :1].detach().float(),
    )
    here = summed(prior, torch.float32)
    wanted = [
        here.log_evidence,
        here.expected_log_likelihood([guide]),
        *here.kl([guide]),
        *here.gap([guide]),
    ]
    with torch.autocast("cpu", torch.bfloat16):
        here = summed(prior, torch.float32)
        actual = [
            here.log_evidence,
            here.expected_log_likelihood([guide]),
            *here.kl([guide]),
            *here.gap([guide]),
        ]
    torch.testing.assert_close(actual, wanted, rtol=1e-6, atol=1e-6)


def test_a_matrix_for_every_word_is_refused_of_a_prior() -> None:
    with pytest.raises(
        ValueError, match=r"^transition_scores of a prior must be one matrix .*, got 7$"
    ):
        summed(chain(words=WORDS))


def test_a_shared_matrix_is_copied_for_no_word() -> None:
    own = chain()
    prior = ChainParameters(
        own.scores, transition_scores=own.transition_scores[0].detach().requires_grad_()
    )
    drawn = torch.zeros(SENTENCES, WORDS, 1, dtype=torch.long)
    with Largest() as made:
        here = summed(prior)
        tensor = here.log_evidence + here.information + here.posterior_entropy
        tensor = (
            tensor
            + here.expected_log_likelihood(here.posterior())
            + prior.word_log_prob(drawn).sum(-1)
        )
        tensor.sum().backward()
    assert made.size == SENTENCES * KEYS * KEYS
