"""Heads that take a component in place of a position: a mixture of softmaxes."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

import latentheads as lh
from latentheads.batch import Batch
from latentheads.guides import Exact
from latentheads.inference.evaluation import plug_in_log_likelihood
from tests.latentheads.latents.alignments.models import MIXTURE, SHAPES, SOFT, aligned
from tests.tiny import KINDS


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", MIXTURE)
def test_log_p_is_a_mixture_of_softmaxes(kind: str, shape: str, batch: Batch) -> None:
    model = aligned(MIXTURE[shape], kind=kind)
    (block,), components = model.alignments.blocks, model.alignments.components
    heads, number = block.block.heads, len(components)
    states, rows = model.states(batch), block.norm(components)
    keys = block.key(rows).view(number, heads, -1)
    words = block.lexicon(rows).view(number, heads, -1)
    query = block.query(states).view(*states.shape[:-1], heads, -1)
    log_prior = (torch.einsum("bthd,khd->bthk", query, keys) / block.size**0.5).log_softmax(-1)

    def joint(taken: tuple[int, ...]) -> Tensor:
        moved = states + sum(words[k, head] for head, k in enumerate(taken))
        log_probabilities = (moved @ model.output.table.weight.mT).log_softmax(-1)
        prior = sum(log_prior[..., head, k] for head, k in enumerate(taken))
        return log_probabilities.gather(-1, batch.scored[..., None])[..., 0] + prior

    every = [joint(taken) for taken in product(range(number), repeat=heads)]
    wanted = (torch.stack(every).logsumexp(0) * batch.target_valid).sum(-1)
    assert torch.allclose(plug_in_log_likelihood(model, batch), wanted, rtol=1e-12, atol=0)


def test_its_exact_guide_lacks_nothing_and_it_has_no_links() -> None:
    corpus = lh.data.Grammar(sentences=7, held_out=3).load()
    options = lh.latents.AlignmentOptions(1, prior={"class": "mixture", "components": 3})
    model = lh.models.Translation.of(corpus, latents=[options], width=6, heads=2)
    assert lh.evaluate(model, Exact(model), corpus.test).gap == 0
    with pytest.raises(ValueError, match="no latent alignments, and so no posterior"):
        lh.contrib.heads.score_alignments(model, Exact(model), corpus.test)


@pytest.mark.parametrize(
    ("shape", "draws", "points"),
    [("one head", True, True), ("soft", False, True), ("mixture", False, False)],
)
def test_which_heads_have_links(shape: str, draws: bool, points: bool) -> None:
    model = aligned({**SHAPES, **SOFT, **MIXTURE}[shape])
    assert (model.samples_alignments, model.aligns_with_text) == (draws, points)
