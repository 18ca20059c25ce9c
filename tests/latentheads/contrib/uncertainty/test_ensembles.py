"""Committees: exact where they can be counted, and one network where they are one."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from latentheads.batch import BOS, EOS, PAD, Batch
from latentheads.contrib.speech.front_end import SpeechOptions
from latentheads.contrib.uncertainty.ensembles import (
    DeepEnsemble,
    Ensemble,
    HeadSamples,
    MCDropout,
    NoisyEnsemble,
    SingleModel,
    dropout_enabled,
    has_dropout,
)
from latentheads.contrib.uncertainty.prediction import Prediction, mix_distributions
from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import search
from latentheads.guides import Tied
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad, plug_in_log_likelihood
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.exact import block_log_probs, broadcast_sum
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.latents.output_heads import OutputState
from latentheads.models import Translation
from latentheads.noise import fixed_noise
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.latentheads.latents.bernoulli_heads import models as gated
from tests.tiny import KINDS, SOURCE_TYPES, TARGET_TYPES, build, jiggle, sizes, small_batch
from tests.typechecking import unchecked

DECODING = Decoding(max_new_tokens=4)
LONG = Decoding(max_new_tokens=6, min_new_tokens=6, no_repeat_ngram_size=1)
"""Seven different tokens: who writes by another distribution writes others."""
CPU = torch.device("cpu")
FIGURES = ("log_probs", "mean_log_prob", "data_uncertainty", "reverse_mutual_information")


def assert_same(one: Prediction, other: Prediction, valid: Tensor) -> None:
    for name in FIGURES:
        first, second = getattr(one, name), getattr(other, name)
        assert torch.allclose(first[valid], second[valid], atol=1e-9), name


def positions_of(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all alignments of a word, and of all words given each: one by one."""
    with torch.no_grad(), PlugIn():
        alignment_pass = model.token_distribution(batch).alignment_pass
        heads = len(alignment_pass.vectors)
        places = torch.cartesian_prod(*[torch.arange(alignment_pass.vectors[0].shape[-2])] * heads)
        shape = (*batch.target.shape, heads)
        states = [
            alignment_pass.aligned_states(index.expand(shape)) for index in places.view(-1, heads)
        ]
        token_log_probs = torch.stack([model.output(state).log_softmax(-1) for state in states])
    if isinstance(alignment_pass.priors[0], ChainParameters):
        return walk(alignment_pass.priors[0], token_log_probs, batch.target), token_log_probs
    return broadcast_sum(block_log_probs(alignment_pass.priors)).flatten(2).movedim(
        -1, 0
    ), token_log_probs


def walk(prior: ChainParameters, token_log_probs: Tensor, words: Tensor) -> Tensor:
    """Where each word of a chain may point, given the words before it."""
    one_words = words.expand(len(token_log_probs), -1, -1)[..., None]
    came = token_log_probs.gather(-1, one_words)[..., 0].exp()
    probabilities = prior.initial_log_probs.exp()
    actual = [probabilities]
    steps_of_words = (prior.scores[:, 1:, 0, None, :] + prior.transition_scores).softmax(-1)
    for word, steps in enumerate(steps_of_words.unbind(1)):
        probabilities = probabilities * came[:, :, word].T
        probabilities = (
            (probabilities / probabilities.sum(-1, keepdim=True))[:, :, None] * steps
        ).sum(1)
        actual.append(probabilities)
    return torch.stack(actual, 1).log().movedim(-1, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_positions_differ_by_is_a_sum_over_all_of_them(shape: str, kind: str) -> None:
    model, batch = aligned(SHAPES[shape], kind=kind), small_batch()
    prediction = SingleModel(model).predict(batch)
    log_prior, token_log_probs = positions_of(model, batch)
    weights, valid = log_prior.exp(), batch.target_valid
    mean = (log_prior[..., None] + token_log_probs).logsumexp(0)
    entropies = -(token_log_probs.exp() * token_log_probs).sum(-1)
    reverse = (mean.exp() * (mean - token_log_probs)).sum(-1)
    came = token_log_probs.gather(-1, batch.target.expand(len(token_log_probs), -1, -1)[..., None])[
        ..., 0
    ]
    expected = Prediction(mean, *((weights * item).sum(0) for item in (came, entropies, reverse)))
    assert_same(prediction, expected, valid)
    given_valid = valid if kind == "translation" else valid & (torch.arange(valid.shape[1]) > 0)
    assert (
        float(prediction.knowledge_uncertainty[given_valid].min()) > 1e-6
    )  # a text's first word has null alone


@pytest.mark.parametrize("shape", [*SHAPES, "none"])
def test_the_law_of_a_reference_is_the_likelihood_of_the_network(shape: str) -> None:
    model = aligned(SHAPES.get(shape))
    batch = small_batch()
    actual = SingleModel(model).predict(batch).log_probs.gather(-1, batch.target[..., None])[..., 0]
    with torch.no_grad():
        expected = plug_in_log_likelihood(model, batch)
    assert torch.allclose((actual * batch.target_valid).sum(-1), expected)


def test_subsets_are_summed_and_their_disagreement_is_data_uncertainty() -> None:
    model, batch = gated.build(), small_batch()
    prediction = SingleModel(model).predict(batch)
    of_tokens = prediction.log_probs.gather(-1, batch.target[..., None])[..., 0]
    log_evidence = model.token_distribution(batch).log_evidence(batch.scored)
    torch.testing.assert_close((of_tokens * batch.scored_mask).sum(-1), log_evidence)
    assert not prediction.reverse_mutual_information.any()


def test_draws_that_are_held_give_the_probability_that_a_search_finds() -> None:
    model = build(prior="cascaded").eval()
    batch = Batch.of([[2]], [[4, 5, 6, 2]])
    with fixed_noise(3, CPU):
        ((best,),) = beam_search(model, batch, 1, 1.0, 3, max_new_tokens=0)
    with fixed_noise(3, CPU):
        prediction = HeadSamples(model, members=3).predict(batch)
    assert best.tokens == [2]
    assert float(prediction.log_probs[0, 0, 2]) == pytest.approx(best.log_prob)


def test_draws_of_heads_that_have_no_noise_are_the_network_alone() -> None:
    model, batch = build(prior="delta").eval(), small_batch()
    assert not model.samples_heads
    assert build().samples_heads
    for ensemble in (
        HeadSamples(model, members=3),
        MCDropout(model, members=3),
        NoisyEnsemble(model, members=3, scale=0.0),
        DeepEnsemble([model, model]),
    ):
        assert_same(ensemble.predict(batch), SingleModel(model).predict(batch), batch.target_valid)
        assert ensemble.translate(batch, DECODING) == SingleModel(model).translate(batch, DECODING)


def test_noise_from_outside_is_the_noise_of_a_prior_of_its_scale() -> None:
    plain, noisy = build(prior="delta").eval(), build(options={"scale": 0.7}).eval()
    plain.load_state_dict(noisy.state_dict())
    batch = small_batch()
    predictions = []
    for ensemble in (NoisyEnsemble(plain, members=2, scale=0.7), HeadSamples(noisy, members=2)):
        with fixed_noise(5, CPU):
            predictions.append(ensemble.predict(batch))
    assert_same(*predictions, batch.target_valid)
    assert float(predictions[0].knowledge_uncertainty.max()) > 1e-6


def test_dropout_drops_and_leaves_every_module_as_it_was() -> None:
    model, batch = build(prior="delta", dropout=0.3, label_smoothing=0.1).eval(), small_batch()
    model.encoder.train()
    before = [part.training for part in model.modules()]
    ensemble = MCDropout(model, members=4)
    prediction = ensemble.predict(batch)
    assert [part.training for part in model.modules()] == before
    assert float(prediction.knowledge_uncertainty[batch.target_valid].min()) > 1e-6
    with dropout_enabled(model):
        assert not model.training
        assert all(part.training for part in model.decoder.modules())
    assert ensemble.translate(batch, DECODING) == SingleModel(model).translate(batch, DECODING)


class Halving(nn.Module):
    """Leaves out half of what it reads while training, where it acts at all."""

    def __init__(self, acts: bool) -> None:
        super().__init__()
        self.rate, self.acts = 0.5, acts

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.rate, self.training and self.acts)


@pytest.mark.parametrize("acts", [False, True])
def test_what_drops_out_is_known_by_what_it_does(acts: bool) -> None:
    model, batch = build(), small_batch()
    assert not has_dropout(model, batch)
    model.decoder.norm = Halving(acts)
    assert has_dropout(model, batch) == acts


def test_dropout_and_draws_of_heads_go_together() -> None:
    model, batch = build(dropout=0.3).eval(), small_batch()
    with fixed_noise(1, CPU):
        still = MCDropout(model, members=2).predict(batch)
    with fixed_noise(1, CPU):
        both = MCDropout(model, members=2, heads=True).predict(batch)
    assert not torch.allclose(still.log_probs, both.log_probs)


def test_an_ensemble_is_the_mean_of_its_networks() -> None:
    """Each at the location of its heads, noise or none."""
    one, other = build(prior="delta").eval(), build().eval()
    batch = small_batch()
    prediction = DeepEnsemble([one, other]).predict(batch)
    members = [SingleModel(model).predict(batch).log_probs for model in (one, other)]
    assert_same(prediction, mix_distributions(members, batch.target), batch.target_valid)
    assert repr(DeepEnsemble([one, other])) == "DeepEnsemble(members=2)"
    (written, *_) = DeepEnsemble([one, other]).translate(batch, Decoding(max_new_tokens=1))
    assert written == [EOS + prediction.log_probs[0, 0, EOS:].argmax(), EOS]  # no PAD, no BOS


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="scale must be at least 0, got -1"):
        NoisyEnsemble(build(prior="delta"), scale=-1.0)
    with pytest.raises(ValueError, match="members must be at least 1, got 0"):
        HeadSamples(build(), members=0)
    with pytest.raises(ValueError, match="models must be at least one, got none"):
        DeepEnsemble([])


class ScoresOnly:
    """The state of a latent that has only what decoding needs."""

    def __init__(self, state: OutputState) -> None:
        self.select, self.scores = state.select, state.scores


def test_a_latent_that_cannot_decompose_uncertainty_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = aligned(SHAPES["one head"])
    heads = model.output_heads
    begin = heads.begin
    monkeypatch.setattr(heads, "begin", lambda *memory: ScoresOnly(begin(*memory)))
    with pytest.raises(ValueError, match=r"^alignments cannot decompose uncertainty: ScoresOnly"):
        SingleModel(model).predict(small_batch())


@pytest.mark.parametrize("options", [{}, {"prior": "delta", "blocks": "none"}])
def test_noise_is_put_around_quiet_sites_alone(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^noise is added to heads that are sites and have"):
        NoisyEnsemble(build(**options))


def test_what_is_hidden_of_sound_is_no_dropout() -> None:
    bins = 5
    for dropout, differs in ((0.0, False), (0.3, True)):
        network = sizes(speech=SpeechOptions(2, "LD"), dropout=dropout)
        model = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=(), bins=bins)
        frames = torch.randn(1, 24, bins)
        lengths = torch.tensor([24])
        sound = torch.ones(1, 6).long()  # a token for four frames
        batch = Batch(torch.tensor([[5, 2]]), sound, frames=frames, frame_counts=lengths)
        assert has_dropout(model.eval(), batch) == differs


@pytest.mark.parametrize("kind", [SingleModel, HeadSamples, DeepEnsemble])
def test_a_model_that_does_not_decode_is_refused(kind: type[Ensemble]) -> None:
    network, made = torch.nn.Linear(2, 3), object.__new__(kind)
    with pytest.raises(ValueError, match=r"^model must be one that decodes, .*Linear"):
        unchecked(kind.__init__)(made, [network] if kind is DeepEnsemble else network)


def test_a_guide_of_another_model_is_refused() -> None:
    (model, _), (_, guide) = choosing(), choosing()
    for make in (SingleModel, HeadSamples, lambda *pair: DeepEnsemble(*([part] for part in pair))):
        with pytest.raises(ValueError, match=r"^guide must be one of this model"):
            make(model, guide)


def choosing(surely: float = 1.0) -> tuple[Any, Any]:
    """A network, and a guide that leaves one head of three open in every block, if surely."""
    gates = Gating(3)
    model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(heads=3), latents=[Logits(), gates])
    model = jiggle(model, 0.4).double().eval()
    guide = Tied(model).double().eval()
    with torch.no_grad():
        for family in guide.selections.values():
            family.weight.copy_(surely * torch.tensor([[1.0, -1.0, -1.0]]))
    return model, guide


def test_every_committee_has_the_likeliest_heads_of_its_guide() -> None:
    (model, guide), batch = choosing(), small_batch()
    wanted = plug_in_log_likelihood(model, batch, guide).detach()
    with eval_no_grad(model), WithSelection(guide):
        best = search(model, batch, LONG, 0)
    for ensemble in (
        SingleModel(model, guide),
        DeepEnsemble([model, model], [guide, guide]),
        MCDropout(model, guide, members=2),
        NoisyEnsemble(model, guide, members=2, scale=0.0),
    ):
        distribution = ensemble.predict(batch).log_probs.gather(-1, batch.target[..., None])[..., 0]
        assert torch.allclose((distribution * batch.target_valid).sum(-1), wanted)
        assert ensemble.translate(batch, LONG) == best
    assert SingleModel(model, Tied(model).double()).translate(batch, LONG) != best


def test_with_draws_of_the_heads_go_draws_of_which_are_open() -> None:
    model, guide = choosing(surely=0.0)
    batch = small_batch()
    written = []
    for draws in (4, 1):
        with fixed_noise(3, CPU), eval_no_grad(model), WithSelection(guide, draws):
            written.append(search(model, batch, LONG, draws))
    ensemble = HeadSamples(model, guide, members=4)
    with fixed_noise(3, CPU):
        assert ensemble.translate(batch, LONG) == written[0]
    with fixed_noise(3, CPU):
        assert ensemble.translate_with_one_sample(batch, LONG) == written[1]
    assert SingleModel(model, guide).translate(batch, LONG) not in written


def test_an_ensemble_writes_what_is_likeliest_under_its_mean_law() -> None:
    networks = [jiggle(build(prior="delta"), 0.7).eval() for _ in "12"]
    ensemble, batch = DeepEnsemble(networks), small_batch()
    written = ensemble.translate(batch, LONG)
    assert all(len(tokens) == 7 for tokens in written)
    log_probs = ensemble.predict(replace(Batch.of(written), source=batch.source)).log_probs
    for sentence, tokens in enumerate(written):
        for index in range(6):
            log_probs[sentence, index, [PAD, BOS, EOS, *tokens[:index]]] = -torch.inf
    assert log_probs[:, :-1].argmax(-1).tolist() == [tokens[:-1] for tokens in written]


def test_an_ensemble_writes_without_dropout_whatever_the_mode_of_a_network() -> None:
    one, other = (build(prior="delta", dropout=0.5) for _ in "12")
    batch = small_batch()
    still = DeepEnsemble([one.eval(), other.eval()]).translate(batch, LONG)
    assert DeepEnsemble([one.train(), other.train()]).translate(batch, LONG) == still
    assert one.training
    assert other.training


def test_draws_of_a_selection_differ_as_what_is_written_with_as_many() -> None:
    gates = Gating(3, ("encoder-self",))
    network = sizes(heads=3)
    model = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[gates]).double().eval()
    guide, batch = jiggle(Tied(model).double(), 0.3).eval(), small_batch()
    draws = HeadSamples(model, guide, members=4)
    with fixed_noise(3, CPU):
        prediction = draws.predict(batch)
    assert float(prediction.knowledge_uncertainty[batch.target_valid].max()) > 1e-6
    with fixed_noise(3, CPU), WithSelection(guide, 4), torch.no_grad():
        every = batch.repeated(4)
        token_log_probs = model.step(every.decoder_input, model.begin(every)).log_softmax(-1)
    drawn = list(token_log_probs.unflatten(0, (4, -1)))
    assert_same(
        prediction, mix_distributions(drawn, batch.target, sentence_level=True), batch.target_valid
    )
