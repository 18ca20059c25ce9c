"""Two Gaussian heads that explain one number together: what guides of each family can reach.

Each head draws three logits, N(0, s^2) each, and says o, the mean of -1, 0 and 1 under its weights.
The number is their sum or their product, with noise: given a sum they lie on a ridge, given a
product in two modes. A head says one number, so log p is a double sum over a table, and what every
family lacks of it is known to the noise of 8,192 quasi-random draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from latentheads.distributions import HeadContext, NormalHeads
from latentheads.families import (
    Cascade,
    CholeskyFactor,
    Correlated,
    Family,
    Gaussian,
    HeadScale,
    Identity,
)
from latentheads.guides.autoregressive import NonLinear
from latentheads.inference.bound import Importance, closed_form
from latentheads.mask import PairMask
from latentheads.names import Block

HEADS, KEYS, HIDDEN = 2, 3, 4
VALUES = torch.tensor([-1.0, 0.0, 1.0])


@dataclass(frozen=True)
class Number:
    """What both heads explain: a function of what they say, seen with noise.

    Attributes:
        mean: The function.
        scale: Of the logits under the prior.
        noise: Of the number.
        seen: The number.
    """

    mean: Callable[[Tensor, Tensor], Tensor]
    scale: float
    noise: float
    seen: float

    def log_prob(self, first: Tensor, second: Tensor) -> Tensor:
        """Of the number, given what the heads say."""
        return Normal(self.mean(first, second), self.noise).log_prob(torch.tensor(self.seen))


NUMBERS = {
    "sum": Number(torch.add, 1.0, 0.3, 1.0),
    "product": Number(torch.mul, 2.0, 0.2, 0.4),
}


def said(logits: Tensor) -> Tensor:
    """What heads say by their logits."""
    return (logits.softmax(-1) * VALUES.to(logits)).sum(-1)


@cache
def table(number: str) -> tuple[float, Tensor, Tensor]:
    """Log p, and the posterior of what both heads say, by quadrature: of one head, a line."""
    x, w = map(torch.tensor, np.polynomial.hermite_e.hermegauss(64))
    pairs, weights = torch.cartesian_prod(x, x), torch.cartesian_prod(w, w).prod(1)
    pairs, weights = pairs[weights > 1e-9], weights[weights > 1e-9]
    # the weights of three logits are those of two differences, whose correlation is one half
    first = math.sqrt(2) * pairs[:, 0]
    second = first / 2 + math.sqrt(1.5) * pairs[:, 1]
    heads = said(NUMBERS[number].scale * torch.stack([first, 0 * first, second], -1))
    log_prior = (weights / weights.sum()).log()
    joint = NUMBERS[number].log_prob(heads[:, None], heads) + log_prior[:, None] + log_prior
    evidence = joint.flatten().logsumexp(0)
    return evidence.item(), heads, (joint - evidence).exp()


class OneScaleALogit(Family):
    """The product over all six logits, which our mean-field guide is not: it has one a head."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(HEADS, 1, KEYS))

    def forward(self, context: HeadContext) -> NormalHeads:
        """Normal around the scores."""
        return NormalHeads(context.scores, context, self.log_scale.exp())


class InTwoBlocks(nn.ModuleList):
    """The second head in a block above the first, which it reads."""

    def __init__(self) -> None:
        above = Cascade(Block("decoder-cross", 1, 1), HIDDEN, link=False)
        first, second = (Gaussian(item, HeadScale(1, learned=True)) for item in (Identity(), above))
        super().__init__([first, second])


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "mean-field": lambda: Gaussian(Identity(), HeadScale(HEADS, learned=True)),
    "a scale a logit": OneScaleALogit,
    "cholesky": lambda: Correlated(Identity(), CholeskyFactor(HEADS, 1.0)),
    "cascaded": InTwoBlocks,
    "inverse": lambda: NonLinear(HEADS, HIDDEN, 1.0, "inverse"),
    "masked": lambda: NonLinear(HEADS, HIDDEN, 1.0, "masked"),
}
SOURCE = "latentheads.distributions.heads.standard_normal"
UPDATES = 50

GAPS = {
    # The table has .483 and 1.218 for a product over logits, .419 and 1.049 for cholesky. Ours of
    # mean-field has one scale a head. A net that reads all logits of the first head had .235 and
    # .323: ours reads the one at the same key, as all that mixes heads does. In two blocks the
    # second head's mean alone reads the first.
    ("sum", "mean-field"): (0.555, 0.01),
    ("sum", "a scale a logit"): (0.483, 0.01),
    ("sum", "cholesky"): (0.419, 0.01),
    ("sum", "cascaded"): (0.403, 0.01),
    ("sum", "inverse"): (0.32, 0.01),
    ("sum", "masked"): (0.32, 0.01),
    ("product", "mean-field"): (1.295, 0.03),
    ("product", "a scale a logit"): (1.218, 0.03),
    ("product", "cholesky"): (1.049, 0.04),
    ("product", "cascaded"): (1.05, 0.05),
    ("product", "inverse"): (0.85, 0.06),
    ("product", "masked"): (0.85, 0.06),
}
CORRELATIONS = {
    **{(number, name): 0.0 for number in NUMBERS for name in ("mean-field", "a scale a logit")},
    ("sum", "cholesky"): -0.26,
    ("sum", "cascaded"): -0.29,
    ("sum", "inverse"): -0.35,
    ("sum", "masked"): -0.35,
    ("product", "cholesky"): 0.37,
    ("product", "cascaded"): 0.39,
    ("product", "inverse"): 0.45,
    ("product", "masked"): 0.45,
}


def noise(draws: int, seed: int) -> Tensor:
    """Normal numbers that fill their space evenly, one sentence a draw."""
    engine = torch.quasirandom.SobolEngine(HEADS * KEYS, scramble=True, seed=seed)
    even = engine.draw(draws, dtype=torch.float64).clamp(1e-9, 1 - 1e-9)
    return torch.special.ndtri(even).view(draws, HEADS, 1, KEYS)


@dataclass(frozen=True)
class Draws:
    """What a family's posterior says of some draws.

    Attributes:
        log_likelihood: Of the number given each draw.
        kl: From the posterior to the prior, of every sentence.
        log_ratio: Log p(z) - log q(z) of every sentence.
        heads: What both heads say.
    """

    log_likelihood: Tensor
    kl: Tensor
    log_ratio: Tensor
    heads: Tensor


class Posterior:
    """A family and where it is centred, both learned."""

    def __init__(self, number: str, family: str, patch: pytest.MonkeyPatch) -> None:
        torch.manual_seed(0)
        self.number, self.patch = NUMBERS[number], patch
        self.family = FAMILIES[family]().double()
        with torch.no_grad():
            for parameter in self.family.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        self.scores = (0.5 * torch.randn(1, HEADS, 1, KEYS)).requires_grad_()

    def improve(self) -> None:
        """Moves both to where the bound of some draws is best."""
        learned = [p for p in self.family.parameters() if p.requires_grad]
        search = torch.optim.LBFGS(
            [self.scores, *learned], max_iter=UPDATES, line_search_fn="strong_wolfe"
        )
        # the draws as queries of one sentence: a family treats all pairs alike, and is faster so
        draws = noise(512, 0).transpose(0, 2)

        def loss() -> Tensor:
            search.zero_grad()
            actual = self.draw(draws)
            value = (actual.kl.sum() - actual.log_likelihood.sum()) / draws.shape[2]
            value.backward()
            return value

        search.step(loss)

    def draw(self, draws: Tensor) -> Draws:
        """Turns noise into logits, block after block."""
        shape = draws.shape[0], draws.shape[2], KEYS
        mask = PairMask.build(torch.ones(shape).bool(), torch.ones(shape[:2]).bool(), draws.dtype)
        scores = self.scores.expand(draws.shape)
        blocks = list(self.family) if isinstance(self.family, nn.ModuleList) else [self.family]
        heads, values, below = HEADS // len(blocks), list[Tensor](), None
        kl = ratio = torch.zeros(shape[0])
        for index, family in enumerate(blocks):
            own = slice(index * heads, (index + 1) * heads)
            here = draws[:, own]
            self.patch.setattr(SOURCE, lambda *_, here=here: here)
            context = HeadContext(scores[:, own], below, mask)
            this_family = family(context)
            prior = NormalHeads(torch.zeros_like(context.scores), context, self.number.scale)
            below = this_family.rsample()
            values.append(below)
            sampled = this_family.log_prob(below) - prior.log_prob(below)
            exact = closed_form(this_family, prior)
            kl, ratio = kl + (sampled if exact is None else exact), ratio - sampled
        first, second = said(torch.cat(values, 1)).unbind(1)
        return Draws(self.number.log_prob(first, second), kl, ratio, torch.stack([first, second]))


@pytest.mark.parametrize("number", NUMBERS)
def test_log_p_and_the_posterior_of_what_heads_say(number: str) -> None:
    evidence, heads, posterior = table(number)
    wanted = {"sum": (-1.7043, -0.58), "product": (-0.7589, 0.70)}[number]
    assert evidence == pytest.approx(wanted[0], abs=4e-3)  # its histogram had steps
    mean = (posterior.sum(1) * heads).sum()
    spread = (posterior.sum(1) * heads.square()).sum() - mean.square()
    together = (posterior * heads[:, None] * heads).sum() - mean.square()
    assert (together / spread).item() == pytest.approx(wanted[1], abs=5e-3)
    if number == "product":  # both positive or both negative
        share = posterior[heads > 0].sum() / posterior[heads != 0].sum()
        assert share.item() == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(("number", "family"), GAPS)
def test_what_a_family_lacks_at_its_best(
    number: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, posterior = table(number)[0], Posterior(number, family, monkeypatch)
    posterior.improve()
    with torch.no_grad():
        pointing = posterior.draw(noise(8192, 1))
    bound = (pointing.log_likelihood.mean() - pointing.kl.mean()).item()
    wanted, error = GAPS[number, family]
    assert evidence - bound == pytest.approx(wanted, abs=error)
    weights = (pointing.log_likelihood.flatten() + pointing.log_ratio).view(32, -1)
    many = Importance(weights).bound.mean().item()
    assert bound < many < evidence + 0.01
    if number == "sum":  # the bound of 32 draws is near log p of all: it cannot tell them apart
        assert many > evidence - 0.05
    both = torch.corrcoef(pointing.heads.flatten(1))[0, 1].item()
    assert both == pytest.approx(CORRELATIONS[number, family], abs=0.05)
