"""What evaluation prints is a bound, and it disturbs nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest import mock

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.corpora import batches, windows
from latentheads.guide import ModelGuide
from latentheads.guides import Cascaded, Exact, Tied
from latentheads.handlers import PlugIn
from latentheads.inference.bound import Importance, terms
from latentheads.inference.evaluation import Report, eval_no_grad, evaluate, plug_in_log_likelihood
from latentheads.inference.sentences import part_bounds, sentence_bounds
from latentheads.latents.alignments.distribution import Alignments
from latentheads.model import HeadModel
from latentheads.models.network import PreNorm
from latentheads.noise import fixed_noise
from latentheads.passes import evaluation_mode
from tests.crossing import pairwise
from tests.latentheads.corpora.texts import TEXTS, running, story
from tests.latentheads.latents.alignments.models import SHAPES, SOFT, aligned, telling
from tests.tiny import (
    ADAPTIVE,
    SOURCES,
    TARGETS,
    attach,
    bernoulli_gate,
    build,
    counting,
    jiggle,
    rows,
    small_batch,
)
from tests.typechecking import unchecked


def pair(name: str = "cascaded", **changes: object) -> tuple:
    model = build(**changes)
    return model, attach(name, model)


def test_evaluation_turns_dropout_and_smoothing_off_and_on_again() -> None:
    model, guide = pair(dropout=0.5, label_smoothing=0.1)
    first = evaluate(model, guide, [small_batch()], num_samples=2, seed=3)
    again = evaluate(model, guide, [small_batch()], num_samples=2, seed=3)
    assert first == again
    assert model.training
    assert guide.training


def test_the_noise_of_evaluation_has_a_seed_of_its_own() -> None:
    model, guide = pair()
    state = torch.get_rng_state()
    one = evaluate(model, guide, [small_batch()], seed=1)
    other = evaluate(model, guide, [small_batch()], seed=2)
    assert one.elbo != other.elbo
    assert torch.equal(state, torch.get_rng_state())


def test_sums_are_divided_by_the_tokens_once() -> None:
    model, guide = pair()
    batch = small_batch()
    report = evaluate(model, guide, [batch], num_samples=1, seed=5)
    model.eval(), guide.eval()
    with fixed_noise(5, torch.device("cpu")):
        expected = terms(model, guide, batch)
    assert report.tokens == 9
    assert report.elbo == pytest.approx(float(expected.elbo.sum() / 9), abs=1e-12)
    assert report.kl == pytest.approx(sum(report.kl_by_site.values()), abs=1e-12)
    assert report.log_likelihood - report.kl == pytest.approx(report.elbo, abs=1e-12)


def test_splitting_the_part_into_batches_changes_no_deterministic_figure() -> None:
    model, guide = pair("tied", prior="delta")
    whole = evaluate(model, guide, [small_batch()])
    split = evaluate(model, guide, [rows(small_batch(), [2]), rows(small_batch(), [0, 1])])
    assert whole.elbo == pytest.approx(split.elbo, abs=1e-12)
    assert whole.plug_in == pytest.approx(whole.elbo, abs=1e-12)


@pytest.mark.parametrize("name", ["tied", "cascaded"])
def test_iwae_is_at_least_the_mean_log_weight(name: str) -> None:
    model, guide = pair(name)
    report = evaluate(model, guide, [small_batch()], num_samples=30)
    single = evaluate(model, guide, [small_batch()], num_samples=1)
    assert 1 <= report.effective_sample_size <= 30
    assert 0 <= report.pareto_k <= 1
    assert single.pareto_k is None
    assert single.pareto_unknown is None
    assert single.effective_sample_size == pytest.approx(1)
    assert report.iwae >= report.elbo - 0.05


def test_weights_that_tie_are_counted_apart() -> None:
    """A gate that rarely opens: where that helps, most weights are equal and a few are larger."""
    model = build("language-model", blocks="none", gate=bernoulli_gate(0.05), heads=1, layers=1)
    report = evaluate(model, attach("tied", model), [small_batch()], num_samples=30, seed=3)
    assert report.pareto_k == 0
    assert report.pareto_unknown == pytest.approx(2 / 3)
    surer = evaluate(*pair("cascaded"), [small_batch()], num_samples=30)
    assert surer.pareto_unknown == 0


def test_a_tail_above_seven_tenths_is_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = torch.tensor([0.69, 0.71, math.nan])
    monkeypatch.setattr(Importance, "pareto_k", property(lambda weights: shapes))
    report = evaluate(*pair("tied", prior="delta"), [small_batch()], num_samples=30)
    assert (report.pareto_k, report.pareto_unknown) == pytest.approx((1 / 3, 1 / 3))


def test_the_plug_in_likelihood_is_that_of_the_same_network_without_noise() -> None:
    torch.manual_seed(1)
    noisy = build(prior="independent")
    torch.manual_seed(1)
    plain = build(prior="delta")
    plain.load_state_dict(noisy.state_dict())
    batch: Batch = small_batch()
    likelihood = plain.likelihood(plain.states(batch), batch)
    assert torch.allclose(plug_in_log_likelihood(noisy, batch), likelihood.log_prob(batch.target))


def test_truth_is_given_a_token() -> None:
    model, guide = pair("tied", prior="delta")
    report = evaluate(model, guide, [small_batch()], truth=[-9.0, -4.0, -5.0])
    assert report.truth == -2.0
    assert report.truth_sentences == report.sentences == 3
    assert report.truth_elbo == pytest.approx(report.elbo, abs=1e-12)
    assert math.isfinite(report.scores()["elbo"])


def test_truth_and_its_bound_are_of_the_sentences_that_it_is_known_of() -> None:
    """Batches in another order than the part: the truth is found by a sentence's place."""
    model, guide = pair()
    first, last = (small_batch(index=places, corpus_size=6) for places in ([5, 0, 3], [4, 1, 2]))
    truth = [-1.0, math.nan, -2.0, math.nan, math.nan, math.nan]
    report = evaluate(model, guide, [first, last], num_samples=2, truth=truth)
    with fixed_noise(0, torch.device("cpu")), eval_no_grad(model, guide):
        drawn = [torch.stack([terms(model, guide, b).elbo for _ in "12"]) for b in (first, last)]
    nats = drawn[0].mean(0)[1] + drawn[1].mean(0)[2]
    assert (report.truth_sentences, report.sentences) == (2, 6)
    assert report.truth == -3 / 5
    assert report.truth_elbo == pytest.approx(float(nats / 5), abs=1e-12)
    assert report.truth_elbo != pytest.approx(report.elbo, abs=1e-3)


def test_batches_that_tell_no_places_follow_each_other() -> None:
    model, guide = pair("tied", prior="delta")
    alone = [Batch.of([target], [source]) for target, source in zip(TARGETS, SOURCES, strict=True)]
    truth = [float(sentence_bounds(model, guide, item, num_samples=1).nats) for item in alone]
    report = evaluate(model, guide, alone, truth=truth)
    assert report.truth == pytest.approx(report.elbo, abs=1e-12)
    assert report.leak is None
    with pytest.raises(ValueError, match="a number for every sentence, here 3, got 2"):
        evaluate(model, guide, alone, truth=truth[:2])


def test_a_truth_that_is_known_of_no_sentence_is_none() -> None:
    model, guide = pair("tied", prior="delta")
    for truth in (None, [math.nan] * 3):
        report = evaluate(model, guide, [small_batch()], truth=truth)
        assert (report.truth, report.truth_elbo, report.truth_sentences) == (None, None, 0)


class Unpaid(Exact):
    """Tells the model that what it read of the target had been the prior."""

    def _pyro_sample(self, msg: Any) -> None:
        super()._pyro_sample(msg)
        if isinstance(msg["fn"], Alignments):
            msg["infer"]["prior"] = msg["fn"]


def aligned_pair(guide: type[ModelGuide]) -> tuple[Any, ModelGuide, Batch, Tensor]:
    """A model with alignments, a guide, sentences, and their log p under the model."""
    model = telling("one head")
    batch = Batch(torch.randint(3, 13, (30, 2)), torch.randint(3, 11, (30, 5)))
    return model, guide(model), batch, plug_in_log_likelihood(model, batch).detach()


def test_a_bound_above_the_truth_raises_the_alarm() -> None:
    model, guide, batch, truth = aligned_pair(Unpaid)
    report = evaluate(model, guide, [batch], truth=truth.tolist())
    assert report.kl == 0
    assert report.leak is not None
    assert report.leak.startswith("the mean bound lies ")
    assert report.leak.endswith("something conditions on what is predicted")
    assert "leak" not in report.scores()
    assert str(report).endswith(f"\nnot in the report: a true bound: {report.leak}")
    above = batch.target_valid.sum() * (report.elbo - report.truth)
    assert f"lies {above / len(batch):.4f} nats per sentence above" in report.leak


@pytest.mark.parametrize("guide", [Tied, Exact])
def test_an_honest_bound_raises_no_alarm(guide: type[ModelGuide]) -> None:
    model, own, batch, truth = aligned_pair(guide)
    # sentences to which the model gives a higher probability than their distribution does
    noise = torch.randn(len(batch))
    for expected in (truth, truth + noise - noise.mean(), truth - 1e-5):
        assert evaluate(model, own, [batch], truth=expected.tolist()).leak is None
    alone = rows(batch, [0])
    assert evaluate(model, own, [alone], truth=(truth[:1] - 1).tolist()).leak is None


def test_an_exact_log_p_above_the_truth_raises_the_alarm_whatever_the_guide() -> None:
    model, guide, batch, truth = aligned_pair(Tied)
    report = evaluate(model, guide, [batch], truth=(truth - 2e-4).tolist())
    assert report.truth_elbo < report.truth
    assert report.leak.startswith("the mean exact log p lies 0.0002 nats per sentence above")


@pytest.mark.parametrize(("number", "errors"), [(2, 10050.0), (5, 17.4), (30, 4.7)])
def test_the_alarm_is_raised_beyond_four_standard_errors_and_of_few_sentences_beyond_more(
    number: int, errors: float
) -> None:
    model, guide, batch, truth = aligned_pair(Exact)
    batch, truth = rows(batch, list(range(number))), truth[:number]
    apart = torch.linspace(-1, 1, number)
    error = apart.std() / math.sqrt(number)
    for factor, alarm in ((1.01, True), (0.99, False)):
        excess = apart + factor * errors * error
        report = evaluate(model, guide, [batch], truth=(truth - excess).tolist())
        assert (report.leak is not None) == alarm


def test_log_p_given_a_draw_of_other_heads_raises_no_alarm() -> None:
    model = aligned(SHAPES["one head"], prior="independent", blocks="decoder-self")
    guide, batch = Tied(model), small_batch()
    with fixed_noise(0, torch.device("cpu")), eval_no_grad(model, guide):
        drawn = terms(model, guide, batch)
    assert drawn.enumeration is not None
    truth = drawn.enumeration.log_evidence - 0.01
    assert drawn.elbo.mean() < truth.mean()
    assert evaluate(model, guide, [batch], truth=truth.tolist()).leak is None


@pytest.mark.parametrize("site", ["topic.z", "topic.choice"])
def test_log_p_is_exact_by_what_is_drawn_and_not_by_what_it_is_called(site: str) -> None:
    model, batch = aligned(SHAPES["one head"]), small_batch()

    def move(_: nn.Module, __: object, states: Tensor) -> Tensor:
        return states * pyro.sample(site, dist.Normal(torch.ones(3), 1.0))[:, None, None]

    model.decoder.register_forward_hook(move)
    report = evaluate(model, Tied(model), [batch], num_samples=2)
    assert report.how == {site: "tied", "decoder.0.alignment.choice": "tied"}
    assert report.exact is None
    assert report.plug_in != report.log_likelihood
    bounds = sentence_bounds(model, Tied(model), batch, num_samples=2)
    assert bounds.varies
    assert bounds.exact is None


def test_the_bound_of_a_network_without_noise_is_its_exact_log_p() -> None:
    model = build(prior="delta")
    guide = attach("tied", model)
    report = evaluate(model, guide, [small_batch()], num_samples=2)
    assert {*report.how.values()} == {"fixed"}
    assert report.exact == report.elbo == report.plug_in
    assert report.perplexities()["exact"] == math.exp(-report.elbo)
    assert report.gap is None
    assert "plug-in" not in str(report)
    assert "no bound" not in report._repr_html_()
    noisy = build(prior="independent")
    assert evaluate(noisy, attach("tied", noisy), [small_batch()]).exact is None


def test_figures_of_alignments_are_means_over_the_draws_of_other_heads() -> None:
    model = aligned(SHAPES["two blocks"], prior="independent", blocks="decoder-self")
    guide = jiggle(Cascaded(model).double(), 0.3)
    report = evaluate(model, guide, [small_batch()], num_samples=3, seed=5)
    with fixed_noise(5, torch.device("cpu")), eval_no_grad(model, guide):
        drawn = [terms(model, guide, small_batch()).enumeration for _ in range(3)]

    def a_token(nats: Callable[[Any], Tensor]) -> Any:
        mean = sum(float(nats(item).sum()) for item in drawn) / 3
        return pytest.approx(mean / report.tokens, rel=1e-12)

    assert report.exact is None
    assert len(report.gap_by_site) == 2
    for site, gap in report.gap_by_site.items():
        assert gap == a_token(lambda item, site=site: item.gap()[site])
    assert report.gap == a_token(lambda item: sum(item.gap().values()))
    for name in ("prior_gap", "prior_entropy", "posterior_entropy", "information"):
        assert getattr(report, name) == a_token(lambda item, of=name: getattr(item.inference, of))


@pytest.mark.parametrize("shape", ["one head", "two heads", "two blocks"])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_cannot_be_negative_is_not_by_rounding(shape: str, seed: int) -> None:
    torch.manual_seed(seed)
    model = aligned(SHAPES[shape], size=0.0).float()  # prior and posterior are equal
    report = evaluate(model, Tied(model), [small_batch()])
    names = ("gap", "prior_gap", "prior_entropy", "posterior_entropy", "information")
    figures = [*(getattr(report, name) for name in names), *report.gap_by_site.values()]
    assert min(figures) >= 0


def test_evaluating_restores_the_mode_after_an_error() -> None:
    model, guide = pair()
    guide.eval()

    def broken() -> None:
        with eval_no_grad(model, guide):
            assert not model.training
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert model.training
    assert not guide.training


def test_no_samples_are_refused_in_one_line() -> None:
    model, guide = pair()
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        evaluate(model, guide, [small_batch()], num_samples=0)


def test_what_is_no_model_and_its_guide_is_refused_in_one_line() -> None:
    model, guide = pair()
    for given, text in (
        ((guide, model), "model and guide are swapped: give the model first"),
        ((model, None), r"guide must be one such as Cascaded\(model\), got NoneType"),
        ((model, Tied), r"guide must be one such as Cascaded\(model\), got the class Tied"),
        ((model, print), "guide must be .*, got builtin.*; Pyro's SVI trains any guide"),
        ((model, deepcopy(guide)), r"guide must be one .* by deepcopy\(\(model, guide\)\)"),
    ):
        with pytest.raises(ValueError, match=f"^{text}$"):
            unchecked(evaluate)(*given, [small_batch()])


def test_a_whole_corpus_is_refused_in_one_line() -> None:
    model, guide = pair()
    with pytest.raises(ValueError, match=r"^batches must be a part of the corpus, as corpus.test"):
        unchecked(evaluate)(model, guide, story())
    with pytest.raises(ValueError, match=r"or batches, got Batch$"):
        unchecked(evaluate)(model, guide, small_batch())

    class Mapped:
        """As a data set of torch is: no iterable by its type."""

        def __getitem__(self, index: int) -> Batch:
            return [small_batch()][index]

    actual = unchecked(evaluate)(model, guide, Mapped(), num_samples=1)
    assert actual == evaluate(model, guide, [small_batch()], num_samples=1)


@pytest.mark.parametrize("name", ["cascaded", "mean-field"])
def test_what_is_no_batch_is_refused_in_one_line(name: str) -> None:
    model, guide = pair(name)
    with pytest.raises(ValueError, match=r"^batches must be made of Batch, got dict: make one by"):
        unchecked(evaluate)(model, guide, [{}])
    model.eval()
    run = unchecked(HeadModel.forward)
    for given in ({}, [], torch.ones(1), story().test):
        message = f"^a model runs on a Batch, got {type(given).__name__}"
        with mock.patch.object(HeadModel, "forward", run), pytest.raises(ValueError, match=message):
            terms(model, guide, given)


def test_a_truth_of_too_few_sentences_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^truth must have a number for every sentence, here 3, "):
        evaluate(*pair(), [small_batch()], truth=[-9.0, -4.0])


def test_nothing_to_predict_is_refused_in_one_line() -> None:
    model, guide = pair()
    nothing = Batch(torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"^batches have no token to predict: there is no"):
        evaluate(model, guide, [nothing])
    for ask in (evaluate, part_bounds):
        with pytest.raises(ValueError, match=r"^batches must be at least one batch, got none$"):
            ask(model, guide, [])


def token_by_token(model: Any, text: list[int], block: int, context: int) -> list[float]:
    """Every token's log-probability, from a pass of its own over the window it stands in."""
    log_probabilities = []
    for index, token in enumerate(text):
        fresh = block - context
        start = 0 if index < block else ((index - block) // fresh + 1) * fresh
        before = None if start == 0 else torch.tensor([text[start - 1]])
        prefix = Batch(torch.tensor([text[start : index + 1]]), before=before)
        with PlugIn():
            states = model.states(prefix)
        log_probabilities.append(model.predict(states)[0, -1].log_softmax(-1)[token].item())
    return log_probabilities


@pairwise(
    prior=["delta", "cascaded", "released"],
    output=[{}, ADAPTIVE],
    norms=[{"norm": "pre"}, {"norm": PreNorm(final_norm=False)}, {"norm": "post"}],
    texts=[TEXTS[::2], TEXTS[1::2]],
)
def test_windows_are_brute_force_token_by_token(
    prior: str, output: Any, norms: Any, texts: list[tuple[int, int, int]]
) -> None:
    model = build("language-model", prior, **norms, **output).eval()
    for length, block, context in texts:
        part, token_log_prob = running(length, block), []
        expected = token_by_token(model, part.targets.tokens.tolist(), block, context)
        parts = list(windows(part, context, 11))
        for batch in parts:
            with PlugIn():
                likelihood = model.likelihood(model.states(batch), batch)
            token_log_prob += likelihood.token_log_prob(batch.scored).flatten().tolist()
        assert token_log_prob == pytest.approx(expected, abs=1e-10)
        report = evaluate(model, attach("tied", model), parts)
        assert report.tokens == length
        assert report.plug_in * length == pytest.approx(sum(expected), abs=1e-9)


def test_more_context_is_another_figure_and_none_is_that_of_the_blocks() -> None:
    model = build("language-model", "delta").eval()
    part = running(17, 5)

    def figure(parts: Iterable[Batch]) -> float:
        return evaluate(model, attach("tied", model), parts).plug_in

    blocks = figure(batches(part, 11, shuffle=False))
    assert figure(windows(part, 0, 11)) == pytest.approx(blocks, abs=1e-12)
    assert abs(figure(windows(part, 4, 11)) - blocks) > 1e-6


def test_the_bound_of_a_point_prior_is_its_plug_in_figure_in_windows_too() -> None:
    model = build("language-model", "residual", norm="pre")
    report = evaluate(model, attach("tied", model), windows(running(17, 5), 2, 11))
    assert report.elbo == report.plug_in == report.iwae
    assert report.kl == 0


def passes(model: Any, name: str, samples: int, parts: int = 2) -> tuple[Any, int]:
    guide = attach(name, model)
    batch = Batch(small_batch().target)
    with counting(model) as ran:
        report = evaluate(model, guide, [batch] * parts, num_samples=samples, seed=3)
    return report, len(ran) // (len(model.decoder.layers) * parts)


def by_its_own_pass(model: Any, report: Report) -> Any:
    """What the plug-in likelihood must be, by a pass that is made for it alone."""
    batch = Batch(small_batch().target)
    with torch.no_grad(), evaluation_mode(model):
        nats = plug_in_log_likelihood(model, batch).sum()
    return pytest.approx(float(nats) * report.sentences / len(batch) / report.tokens, rel=1e-13)


@pytest.mark.parametrize("prior", ["delta", "residual"])
def test_a_network_without_noise_is_run_once_whatever_the_draws(prior: str) -> None:
    model = build("language-model", prior)
    once, least = passes(model, "tied", 1)
    for samples in (3, 7, 30):
        report, number = passes(model, "tied", samples)
        assert number == least == 1, "the network of the bound is the plug-in network"
        for name in ("elbo", "log_likelihood", "kl", "plug_in", "tokens"):
            assert getattr(report, name) == getattr(once, name)
        assert report.elbo == report.plug_in == by_its_own_pass(model, report)
        assert report.iwae == pytest.approx(once.iwae, abs=1e-13)
        assert report.effective_sample_size == pytest.approx(samples)
        assert report.pareto_k == (None if samples < 30 else 0)
        assert report.iwae_k == samples


def test_deterministic_chains_are_run_once_too() -> None:
    assert passes(build("language-model", "cascaded", blocks="none"), "tied", 5)[1] == 1


@pytest.mark.parametrize("shape", ["two heads", "two blocks", "chain", "soft"])
def test_where_alignments_alone_are_drawn_the_network_is_run_once(shape: str) -> None:
    model = aligned({**SHAPES, **SOFT}[shape], kind="language-model")
    report, number = passes(model, "tied", 5)
    assert number == 1
    assert report.plug_in == by_its_own_pass(model, report)


@pytest.mark.parametrize(
    "options",
    [
        {"prior": "independent"},
        {"prior": "delta", "gate": bernoulli_gate()},
        {"blocks": "none", "gate": bernoulli_gate()},
    ],
)
def test_a_network_that_draws_anything_is_run_for_each_draw(options: Any) -> None:
    report, number = passes(build("language-model", **options), "tied", 5)
    assert number == 6
    assert 1 <= report.effective_sample_size < 5


def test_perplexities_are_named_and_may_be_of_words() -> None:
    model, guide = pair("cascaded", kind="language-model")
    report = evaluate(model, guide, windows(running(17, 5), 2, 11), num_samples=3)
    for count in (17, 11):
        perplexities = report.perplexities(count)
        assert list(perplexities) == ["elbo", "iwae", "plug_in"]
        for name, value in perplexities.items():
            assert value == pytest.approx(math.exp(-17 * getattr(report, name) / count))
    assert report.perplexities() == report.perplexities(None) == report.perplexities(17)
    hopeless = replace(report, plug_in=-math.inf, elbo=-1e9).perplexities()
    assert all(math.isfinite(value) for value in hopeless.values())


@pytest.mark.parametrize("kind", ["model", "guide"])
def test_the_parameter_that_makes_a_bound_nan_is_named(kind: str) -> None:
    modules = dict(zip(("model", "guide"), pair("mean-field"), strict=True))
    parameters = modules[kind].named_parameters()
    name, parameter = next((n, p) for n, p in parameters if "scale" not in n)
    parameter.data.fill_(math.nan)
    message = f"^the bound is NaN: the {kind}'s parameter {name} is not finite$"
    with pytest.raises(FloatingPointError, match=message):
        evaluate(modules["model"], modules["guide"], [small_batch()])


def test_the_site_that_makes_a_bound_nan_is_named() -> None:
    model, guide = pair()
    norm = next(module for module in model.modules() if isinstance(module, nn.LayerNorm))
    norm.register_forward_hook(lambda _, __, output: output * math.nan)
    with pytest.raises(FloatingPointError, match=r"^the bound is NaN: site \S+: "):
        evaluate(model, guide, [small_batch()])
