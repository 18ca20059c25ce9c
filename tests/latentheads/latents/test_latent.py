"""What a latent is that says nothing of itself, and what model and guide do with several."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import product
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

import latentheads as lh
from latentheads.batch import Batch
from latentheads.guides import GUIDES
from latentheads.latents.latent import Latent, LatentPosterior, check_model
from latentheads.latents.network import Choice
from latentheads.models import Translation
from latentheads.names import block_of
from latentheads.training.engine import Engine
from latentheads.training.options import Training
from tests.latentheads.latents.tempered import TemperatureOptions
from tests.latentheads.training.engines import part
from tests.tiny import HEADS, SOURCE_TYPES, TARGET_TYPES, build, sizes, small_batch

SITE = "encoder.0.self.mood"


class Plain(Latent):
    """A latent that leaves all to the defaults."""

    name = "plain"


class Selecting(Plain):
    """A latent that decides about one block."""

    selects_heads = True

    def __init__(self, block: str = "decoder.0.self") -> None:
        self.block = block

    def select_heads(
        self, model: Any, batch: Any, values: Mapping[str, Tensor] | None = None
    ) -> dict[str, Choice]:
        return {self.block: Choice(torch.ones(3))}


class Running(Plain):
    """A latent that runs the network."""

    def token_distribution(self, model: Any, batch: Any, choices: Any) -> Any:
        return model.likelihood(model.states(batch, choices), batch)


def test_a_latent_that_says_nothing_changes_nothing() -> None:
    latent, model, batch = Plain(), build(), small_batch()
    assert not any([latent.modules_to_save, latent.sites, latent.fixed_blocks])
    assert not any([latent.is_summed_out, latent.has_posterior, latent.has_penalty])
    assert not any([latent.before_blocks, latent.runs_network])
    assert latent.decodes
    assert not Running().decodes
    assert (latent.is_shared, latent.objective, latent.posterior_name) == (False, None, "plain")
    latent.check_loss(model, lh.Head_ELBO())
    assert latent.select_heads(model, batch) == {}
    assert latent.token_distribution(model, batch, None) is None
    assert latent.decoding_mixture(model, batch) is None
    assert latent.make_posterior(model, "cascaded", "source") is None
    prior = object()
    assert latent.exact_posterior(prior, batch) is prior


@pytest.mark.parametrize(("kind", "other"), [*product((Plain, Selecting, Running), repeat=2)])
def test_two_of_one_role_exclude_each_other_and_no_others_do(
    kind: type[Latent], other: type[Latent]
) -> None:
    assert kind().excludes(other()) == other().excludes(kind())
    assert kind().excludes(other()) == (kind is other is not Plain)


def test_a_model_joins_the_choices_of_its_latents() -> None:
    model = build()
    model.latents = {"first": Selecting(), "second": Selecting("encoder.1.self")}
    assert set(model.select_heads(small_batch())) == {"decoder.0.self", "encoder.1.self"}


@pytest.mark.parametrize("value", [nn.Linear(2, 2), None, Plain()])
def test_what_is_no_model_of_heads_is_named(value: object) -> None:
    check_model(build())
    with pytest.raises(ValueError, match=r"^model must be one of heads, as .*, got "):
        check_model(value)
    with pytest.raises(ValueError, match=f"got the class {type(value).__name__}$"):
        check_model(type(value))


class MoodPosterior(LatentPosterior):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(1.5))
        self.progress: list[tuple[int, int, bool]] = []

    def posterior_of(self, prior: Any, batch: Batch) -> dist.Normal:
        return dist.Normal(self.mean, 1.0)

    def set_progress(self, step: int, steps: int, relaxes: bool) -> None:
        self.progress.append((step, steps, relaxes))


def test_a_posterior_of_a_sampled_latent_is_conditioned_on_the_text_that_a_guide_names() -> None:
    model = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[TemperatureOptions()])
    assert model.has_latent_posteriors
    assert GUIDES["mean-field"](model).condition_on == "target"
    assert GUIDES["mean-field"](model, condition_on="prefix").condition_on == "prefix"
    assert not moody().latents["mood"].has_posterior


def test_options_that_make_another_kind_than_they_name_are_refused() -> None:
    options = type("Others", (TemperatureOptions,), {"kind": Plain})()
    message = r"^Others.kind must be the class of what it makes, Temperature, got the class Plain$"
    with pytest.raises(ValueError, match=message):
        Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[options])


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
    latents = [lh.latents.AlignmentOptions(1), lh.latents.LogitsOptions("independent"), Mood()]
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
