"""Two heads that explain one word together: what guides of each form can and cannot reach.

See :mod:`tests.latentheads.latents.alignments.logic`; guides of a model are in ``tests/guides``.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.latents.alignments.exact import IndependentWords
from tests.latentheads.latents.alignments.logic import KEYS, WORDS, table

every_word = pytest.mark.parametrize("word", WORDS)


def make_parameters(
    first: Tensor, second: Tensor, pair: Tensor | None, blocks: int
) -> list[CategoricalParameters]:
    """A distribution of two heads, side by side in one block or one above the other."""
    pairs = {} if pair is None else {(1, 0): pair[None, None]}
    if blocks == 1:
        return [CategoricalParameters(torch.stack([first, second])[None, None], pairs)]
    above = CategoricalParameters(second[None, None, None], pairs, 1)
    return [CategoricalParameters(first[None, None, None]), above]


def summed(word: str, blocks: int = 1) -> IndependentWords:
    even = torch.zeros(KEYS, dtype=torch.float64)
    return IndependentWords(
        make_parameters(even, even, None, blocks), table(word), torch.ones(1, 1, dtype=torch.bool)
    )


def improve(here: IndependentWords, given: list[Tensor], blocks: int = 1) -> float:
    """Moves scores to where a distribution of their form lacks least, and says how much that is."""
    search = torch.optim.LBFGS(given, max_iter=200, line_search_fn="strong_wolfe")
    pair = given[1] if len(given) > 1 else None

    def gap() -> Tensor:
        search.zero_grad()
        posterior = make_parameters(given[0][0], given[0][1], pair, blocks)
        value = torch.stack(here.gap(posterior)).sum()
        value.backward()
        return value

    search.step(gap)
    return gap().item()


def best_gap(word: str, blocks: int, condition_on: bool, starts: int = 6) -> float:
    """The gap of the best posterior of a form, of several starts: some end in a worse mode."""
    actual = []
    for seed in range(starts):
        torch.manual_seed(seed)
        scores = torch.randn(2, KEYS, dtype=torch.float64, requires_grad=True)
        pair = torch.randn(KEYS, KEYS, dtype=torch.float64, requires_grad=True)
        given = [scores, pair] if condition_on else [scores]
        actual.append(improve(summed(word, blocks), given, blocks))
    return min(actual)


@every_word
def test_log_p_and_what_the_prior_lacks(word: str) -> None:
    here = summed(word)
    assert here.log_evidence.item() == pytest.approx(WORDS[word][1], abs=5e-5)
    assert here.gap(here.priors)[0].item() == pytest.approx(WORDS[word][3], abs=5e-4)


@every_word
@pytest.mark.parametrize("blocks", [1, 2])
def test_how_much_the_word_tells_one_head_of_the_other(word: str, blocks: int) -> None:
    """The product of the posterior's marginals of each head lacks their mutual information."""
    here = summed(word, blocks)
    joint = here.log_posterior[0, 0]
    first, second = joint.logsumexp(1), joint.logsumexp(0)
    total = (joint.exp() * (joint - first[:, None] - second)).sum().item()
    assert total == pytest.approx(WORDS[word][4], abs=5e-4)
    entropies = -sum(
        (distribution.exp() * distribution).sum().item() for distribution in (first, second)
    )
    assert entropies - here.posterior_entropy.item() == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize(("word", "blocks"), [*((word, 1) for word in WORDS), ("xor", 2)])
def test_heads_apart_lack_what_couples_them(word: str, blocks: int) -> None:
    assert best_gap(word, blocks, condition_on=False) == pytest.approx(WORDS[word][2], abs=5e-4)


@pytest.mark.parametrize(("word", "blocks"), [*((word, 1) for word in WORDS), ("xor", 2)])
def test_heads_that_read_each_other_lack_nothing(word: str, blocks: int) -> None:
    assert best_gap(word, blocks, condition_on=True, starts=2) == pytest.approx(0, abs=1e-4)


def test_which_form_reads_which_heads() -> None:
    from latentheads.latents.alignments.posterior import AlignmentPosterior

    wanted = {
        ("mean-field", 1): [],
        ("autoregressive", 1): ["1_0"],
        ("cascaded", 1): [],
        ("mean-field", 2): [],
        ("autoregressive", 2): [],
        ("cascaded", 2): ["1_0"],
    }
    for (form, blocks), pairs in wanted.items():
        posterior = AlignmentPosterior(blocks, 2 // blocks, 6, form, "target", size=4)  # type: ignore[arg-type]
        assert list(posterior.pairs) == pairs


def test_a_product_has_two_ends_where_the_word_has_two_reasons() -> None:
    tilt, even = torch.tensor([1.0, 0.0, 0.0]), torch.zeros(KEYS)
    priors = make_parameters(tilt.double(), even.double(), None, 1)
    here = IndependentWords(priors, table("xor"), torch.ones(1, 1, dtype=torch.bool))
    bounds = []
    for head in (0, 1):
        start = torch.zeros(2, KEYS, dtype=torch.float64)
        start[head, 0], start[1 - head, 0] = 3.0, -3.0
        lacking = improve(here, [start.requires_grad_()])
        bounds.append(here.log_evidence.item() - lacking)
    assert bounds == pytest.approx([-0.951, -1.898], abs=5e-4)
