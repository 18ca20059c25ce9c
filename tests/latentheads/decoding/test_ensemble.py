"""Ensembles: the next token is of the mean probability of the networks."""

from __future__ import annotations

import pytest
import torch

from latentheads.batch import BOS, EOS, Batch
from latentheads.decoding.ensemble import ensemble_search
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import search
from latentheads.handlers import PlugIn
from tests.tiny import FORMS, build, jiggle


def test_a_token_is_the_likeliest_by_the_mean_of_the_probabilities(batch: Batch) -> None:
    """Not by the sum of what networks with other normalisers say."""
    differs = False
    for seed in range(5):
        torch.manual_seed(seed)
        models = [jiggle(build(prior="delta"), 0.5).eval() for _ in range(2)]
        with PlugIn(), torch.no_grad():
            start = torch.full((len(batch), 1), BOS)
            scores = torch.stack([model.step(start, model.begin(batch))[:, 0] for model in models])
        words = scores.softmax(-1).sum(0)[:, EOS + 1 :].argmax(-1) + EOS + 1
        decoding = Decoding(max_new_tokens=1, min_new_tokens=1)
        guides = [FORMS["tied"](model) for model in models]
        hypotheses = ensemble_search(models, guides, batch, decoding)
        assert [tokens[0] for tokens in hypotheses] == words.tolist()
        unnormalised = scores.exp().sum(0)[:, EOS + 1 :].argmax(-1) + EOS + 1
        differs |= not torch.equal(words, unnormalised)
    assert differs


@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_network_beside_itself_searches_as_it_does_alone(batch: Batch, num_beams: int) -> None:
    """The states of both follow the hypotheses that are kept."""
    for seed in range(3):
        torch.manual_seed(seed)
        model = jiggle(build(prior="delta"), 0.7).eval()
        decoding = Decoding(num_beams=num_beams, max_new_tokens=6, min_new_tokens=4)
        together = ensemble_search([model, model], [None, None], batch, decoding)
        assert together == search(model, batch, decoding, 0)
