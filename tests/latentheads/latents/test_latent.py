"""A latent that all sentences share: its posterior is its own affair, under every guide."""

from __future__ import annotations

import copy
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

import latentheads as lh
from latentheads import Batch
from latentheads.guides import GUIDES
from latentheads.latents.latent import Latent, LatentPosterior
from latentheads.latents.network import Choice
from latentheads.models import Translation
from latentheads.names import block_of
from latentheads.training.engine import Engine
from latentheads.training.options import Training
from tests.latentheads.training.engines import part
from tests.tiny import HEADS, SOURCE_TYPES, TARGET_TYPES, sizes, small_batch

SITE = "encoder.0.self.mood"


class MoodPosterior(LatentPosterior):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(1.5))
        self.progress: list[tuple[int, int, bool]] = []

    def posterior_of(self, prior: Any, batch: Batch) -> dist.Normal:
        return dist.Normal(self.mean, 1.0)

    def set_progress(self, step: int, steps: int, relaxes: bool) -> None:
        self.progress.append((step, steps, relaxes))


class Mood(Latent):
    """A number with the prior N(0, 1), by which the heads of a block are multiplied."""

    name = "mood"
    sites = (SITE,)
    is_shared = True

    def select_heads(self, model: Any, batch: Batch, values: Any = None) -> dict[str, Choice]:
        prior = dist.Normal(torch.tensor(0.0, dtype=model.dtype), 1.0)
        mood = pyro.sample(SITE, prior) if values is None else values[SITE]
        return {block_of(SITE): Choice(mood.expand(HEADS))}

    def make_posterior(self, model: Any, structure: Any, condition_on: Any) -> MoodPosterior:
        return MoodPosterior()


def moody() -> Translation:
    latents = [lh.AlignmentOptions(1), lh.LogitsOptions("independent"), Mood()]
    network = sizes(layers=1)
    return Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=latents).double().eval()


@pytest.mark.parametrize("name", GUIDES)
def test_every_guide_has_the_posterior_of_a_latent_that_all_sentences_share(name: str) -> None:
    model = moody()
    guide = GUIDES[name](model).double()
    bound = lh.terms(model, guide, small_batch())
    torch.testing.assert_close(bound.shared_kl[SITE], torch.tensor(1.5**2 / 2).double())
    assert "mood.mean" in dict(guide.named_parameters())
    own = guide.find_posteriors(MoodPosterior)
    assert own == guide.shared_posteriors
    assert own[SITE] is copy.copy(guide).posteriors[SITE]


def test_a_copy_of_a_guide_has_posteriors_of_its_own() -> None:
    guide = GUIDES["tied"](moody())
    twin = copy.deepcopy(guide)
    assert twin.posteriors[SITE] is twin.get_submodule("mood")
    assert twin.posteriors[SITE] is not guide.posteriors[SITE]


def test_a_latent_that_is_taken_away_takes_its_posterior_along() -> None:
    model = moody()
    guide = GUIDES["cascaded"](model).double()
    guide.remove_posterior(model.latents["mood"])
    model.remove_latent("mood")
    assert SITE not in lh.terms(model, guide, small_batch()).how
    assert [name for name in dict(guide.named_parameters()) if "mood" in name] == []


@pytest.mark.parametrize(("loss", "relaxes"), [("Head_ELBO", True), ("Trace_ELBO", False)])
def test_a_posterior_is_told_each_step_of_training(loss: Any, relaxes: bool) -> None:
    model = moody()
    guide = GUIDES["tied"](model).double()
    engine = Engine(model, guide, part(), Training(steps=2, loss=loss))
    engine.run(lambda progress: None)
    posterior = guide.find_posteriors(MoodPosterior)[SITE]
    assert posterior.progress == [(0, 2, relaxes), (1, 2, relaxes)]


def test_what_all_sentences_share_needs_the_size_of_their_corpus() -> None:
    model = moody()
    guide = GUIDES["tied"](model).double()
    with pytest.raises(ValueError, match="batches of a function must say corpus_size"):
        lh.fit(model, guide, lambda epoch: [small_batch()], [small_batch()], steps=1, quiet=True)
