"""Two heads that explain one word together: what guides of each form can and cannot reach.

Each head points at one of three positions, the first of which carries the signal; the word says
with a noise of .02 whether both heads together say OR, XOR, AGREE or DIFFER. Exact log p, and what
the best product over heads and the prior lack, were computed apart from this library.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from latentheads.alignment.law import Pointing
from latentheads.alignment.summed import SummedWords

NOISE, KEYS = 0.02, 3
WORDS = {
    "or": (lambda a, b: (a == 0) | (b == 0), -0.5918, 0.322, 1.158),
    "xor": (lambda a, b: (a == 0) ^ (b == 0), -0.8059, 0.664, 1.376),
    "agree": (lambda a, b: a == b, -1.0788, 1.047, 1.536),
    "differ": (lambda a, b: a != b, -0.4155, 0.816, 0.902),
}
every_word = pytest.mark.parametrize("word", WORDS)


def table(word: str) -> Tensor:
    """Log-probability of a word that says yes, for all positions of both heads."""
    places = torch.arange(KEYS)
    yes = WORDS[word][0](places[:, None], places)
    return torch.where(yes, math.log(1 - NOISE), math.log(NOISE)).double()[None, None]


def law(first: Tensor, second: Tensor, pair: Tensor | None, blocks: int) -> list[Pointing]:
    """A law of two heads, side by side in one block or one above the other."""
    pairs = {} if pair is None else {(1, 0): pair[None, None]}
    if blocks == 1:
        return [Pointing(torch.stack([first, second])[None, None], pairs)]
    above = Pointing(second[None, None, None], pairs, 1)
    return [Pointing(first[None, None, None]), above]


def summed(word: str, blocks: int = 1) -> SummedWords:
    even = torch.zeros(KEYS, dtype=torch.float64)
    return SummedWords(
        law(even, even, None, blocks), table(word), torch.ones(1, 1, dtype=torch.bool)
    )


def improve(here: SummedWords, given: list[Tensor], blocks: int = 1) -> float:
    """Moves scores to where a law of their form lacks least, and says how much that is."""
    search = torch.optim.LBFGS(given, max_iter=200, line_search_fn="strong_wolfe")
    pair = given[1] if len(given) > 1 else None

    def gap() -> Tensor:
        search.zero_grad()
        posterior = law(given[0][0], given[0][1], pair, blocks)
        value = torch.stack(here.gap(posterior)).sum()
        value.backward()
        return value

    search.step(gap)
    return gap().item()


def best_gap(word: str, blocks: int, reads: bool, starts: int = 6) -> float:
    """What the best law of a form lacks, of several starts: some are caught in a worse mode."""
    found = []
    for seed in range(starts):
        torch.manual_seed(seed)
        scores = torch.randn(2, KEYS, dtype=torch.float64, requires_grad=True)
        pair = torch.randn(KEYS, KEYS, dtype=torch.float64, requires_grad=True)
        given = [scores, pair] if reads else [scores]
        found.append(improve(summed(word, blocks), given, blocks))
    return min(found)


@every_word
def test_log_p_and_what_the_prior_lacks(word: str) -> None:
    here = summed(word)
    assert here.log_evidence.item() == pytest.approx(WORDS[word][1], abs=5e-5)
    assert here.gap(here.priors)[0].item() == pytest.approx(WORDS[word][3], abs=5e-4)


@every_word
@pytest.mark.parametrize("blocks", [1, 2])
def test_heads_apart_lack_what_couples_them(word: str, blocks: int) -> None:
    assert best_gap(word, blocks, reads=False) == pytest.approx(WORDS[word][2], abs=5e-4)


@every_word
@pytest.mark.parametrize("blocks", [1, 2])
def test_heads_that_read_each_other_lack_nothing(word: str, blocks: int) -> None:
    assert best_gap(word, blocks, reads=True, starts=2) == pytest.approx(0, abs=1e-4)


def test_which_form_reads_which_heads() -> None:
    from latentheads.alignment.aligner import Aligner
    from latentheads.alignment.options import AlignmentOptions
    from latentheads.alignment.posterior import AlignmentPosterior

    wanted = {
        ("mean-field", 1): [],
        ("autoregressive", 1): ["1_0"],
        ("cascaded", 1): [],
        ("mean-field", 2): [],
        ("autoregressive", 2): [],
        ("cascaded", 2): ["1_0"],
    }
    for (form, blocks), pairs in wanted.items():
        aligner = Aligner(AlignmentOptions(blocks, 2 // blocks, "independent", 3), 6)
        posterior = AlignmentPosterior(aligner, 6, form, "target", 4)  # type: ignore[arg-type]
        assert list(posterior.pairs) == pairs


def test_a_product_has_two_ends_where_the_word_has_two_reasons() -> None:
    tilt, even = torch.tensor([1.0, 0.0, 0.0]), torch.zeros(KEYS)
    priors = law(tilt.double(), even.double(), None, 1)
    here = SummedWords(priors, table("xor"), torch.ones(1, 1, dtype=torch.bool))
    bounds = []
    for head in (0, 1):
        start = torch.zeros(2, KEYS, dtype=torch.float64)
        start[head, 0], start[1 - head, 0] = 3.0, -3.0
        lacking = improve(here, [start.requires_grad_()])
        bounds.append(here.log_evidence.item() - lacking)
    assert bounds == pytest.approx([-0.951, -1.898], abs=5e-4)
