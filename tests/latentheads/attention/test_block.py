"""A latent of a new kind at a block: what its class says is all that is written for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from latentheads.attention.block import BlockCache, HeadBlock, gather_selected
from latentheads.batch import Batch
from latentheads.distributions import HeadContext
from latentheads.families import Family, Gaussian, HeadScale, Identity
from latentheads.families.normal import make_posterior
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import evaluate
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.network import Choice
from latentheads.mask import AttentionMask
from latentheads.names import Block
from latentheads.pruning import remove_heads
from tests.tiny import FORMS, HEADS, attach, build

SIZE = 2


class Summary(HeadBlock):
    """What each head says of a token alone, with noise, at ``<block>.summary``."""

    latent = "summary"

    def __init__(self, block: Block, width: int, prior: Family | None) -> None:
        super().__init__(block, None)
        self.read = nn.Linear(width, block.heads * SIZE)
        self.out = nn.Linear(block.heads * SIZE, width)
        self.prior = prior

    @property
    def projection(self) -> nn.Linear:
        return self.out

    @property
    def size(self) -> int:
        return SIZE

    def make_posterior(self) -> Family:
        return make_posterior(Identity(), self.prior, self.block.heads)

    def mix(
        self,
        x: Tensor,
        reach: AttentionMask,
        below: Tensor | None,
        cache: Any = None,
        choice: Any = None,
        keeps_logits: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        if not self.block.heads:
            return self.out.bias.expand(x.shape), below
        statement = self.read(x).unflatten(-1, (-1, SIZE)).transpose(-2, -3)
        heads = self._sample_heads(HeadContext(statement, None, reach.outputs(SIZE), self.block))
        return self.out(heads.transpose(-2, -3).flatten(-2)), below

    def cache(self) -> BlockCache:
        return BlockCache()

    def _prune_weights(self, computed: Sequence[int], active: Sequence[int]) -> None:
        rows = torch.arange(len(self.read.bias)).view(-1, SIZE)[list(active)].flatten()
        self.read.weight = nn.Parameter(self.read.weight[rows])
        self.read.bias = nn.Parameter(self.read.bias[rows])
        self.out.weight = nn.Parameter(self.out.weight[:, rows])


def summing(scale: float = 0.7) -> Any:
    """A language model whose lower layer sums tokens up, and attends above."""
    model = build("language-model")
    block = Block("decoder-self", 0, HEADS)
    prior = Gaussian(Identity(), HeadScale(HEADS, scale))
    model.decoder.layers[0].inner = Summary(block, model.network.width, prior).double()
    return model.eval()


@pytest.mark.parametrize("form", FORMS)
def test_every_guide_has_a_posterior_of_it_and_its_divergence_is_told(
    form: str, batch: Batch
) -> None:
    model = summing()
    guide = attach(form, model)
    bound_terms = terms(model, guide, batch)
    assert list(bound_terms.kl) == ["decoder.0.self.summary", "decoder.1.self.logits"]
    tied = form == "tied"
    assert bound_terms.how["decoder.0.self.summary"] == ("tied" if tied else "analytic")
    assert (bound_terms.kl["decoder.0.self.summary"] > 0).all() != tied
    report = evaluate(model, guide, [batch], num_samples=2)
    assert set(report.kl_by_site) == set(bound_terms.kl)
    model.train()
    loss = Head_ELBO(analytic=True)(model, guide)(batch)
    loss.backward()
    assert loss.isfinite()


def test_its_posterior_starts_at_the_prior(batch: Batch) -> None:
    model = summing()
    guide = FORMS["cascaded"](model).double()
    kl = terms(model, guide, batch).kl["decoder.0.self.summary"]
    assert torch.allclose(kl, torch.zeros(3), atol=1e-6)


def test_its_heads_can_be_removed_with_their_posterior(batch: Batch) -> None:
    model = summing()
    guide = attach("cascaded", model)
    module = model.decoder.layers[0].inner
    with torch.no_grad():
        module.out.weight[:, :SIZE] = 0
    with PlugIn():
        whole = model.states(batch)
        remove_heads(model, {"decoder.0.self": [1, 2]}, guide)
        assert torch.allclose(model.states(batch), whole)
    assert terms(model, guide, batch).elbo.isfinite().all()


@pytest.mark.parametrize("in_front_of", ["heads", "choice"])
def test_particles_may_be_in_front_of_heads_or_of_their_choice(in_front_of: str) -> None:
    heads, index = torch.randn(2, 5, 7, 3), torch.tensor([[4, 0, 4], [1, 2, 3]])
    expected = torch.stack([of[chosen] for of, chosen in zip(heads, index, strict=True)])
    if in_front_of == "heads":
        heads = heads.expand(11, *heads.shape)
    else:
        index = index.expand(11, *index.shape)
    selected = gather_selected(heads, Choice(torch.ones(index.shape), index))
    torch.testing.assert_close(selected, expected.expand(11, *expected.shape))
