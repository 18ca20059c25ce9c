"""Blocks that select their heads: against every choice, against networks cut by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, pairwise, product
from typing import Any

import pyro
import pytest
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from latentheads.attention.disagreement import KINDS, Disagreement
from latentheads.batch import Batch
from latentheads.contrib.heads import Recording
from latentheads.decoding.beam_search import beam_search
from latentheads.families import Family, Identity, Point, RunningSum
from latentheads.guides import MeanField, Tied
from latentheads.handlers import PlugIn, SharedSamples
from latentheads.inference.bound import importance, terms
from latentheads.inference.evaluation import evaluate
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.latents.network import Choice
from latentheads.latents.selection.strategies import STRATEGIES, Strategy, make_selector
from latentheads.latents.selector import Selector
from latentheads.models import Block, LanguageModel, Prior, Translation, make_prior
from latentheads.noise import fixed_noise
from tests.crossing import in_turn
from tests.tiny import (
    FORMS,
    SOURCE_TYPES,
    SOURCES,
    TARGET_TYPES,
    TARGETS,
    NoiseTape,
    attach,
    attentions_of,
    counting,
    jiggle,
    sizes,
)
from tests.typechecking import unchecked

HEADS, CANDIDATES = 3, 6
every_law = pytest.mark.parametrize(
    "strategy", [strategy for strategy in STRATEGIES if strategy != "static"]
)


def selector(strategy: Strategy, **changes: Any) -> Selector:
    chains = ("encoder-self", "decoder-self")
    plain = {"attention_types": chains, "sources": 2, "targets": 3}
    return make_selector(strategy, HEADS, CANDIDATES, **{**plain, **changes})


def make(strategy: Strategy, prior: str = "delta", layers: int = 2, **changes: Any) -> Any:
    model = Translation(
        SOURCE_TYPES,
        TARGET_TYPES,
        sizes(layers=layers),
        latents=[Logits(make_prior(prior)), selector(strategy, **changes)],
    )
    return jiggle(model, 0.4).double().eval()


def two_tasks() -> Batch:
    tasks = torch.tensor([0, 1, 0]), torch.tensor([2, 0, 1])
    return replace(Batch.of(TARGETS, SOURCES), source_task=tasks[0], target_task=tasks[1])


def alone(batch: Batch, index: int) -> Batch:
    """One sentence, with its padding."""
    assert batch.source is not None
    assert batch.source_task is not None
    assert batch.target_task is not None
    keep = slice(index, index + 1)
    tasks = batch.source_task[keep], batch.target_task[keep]
    return Batch(batch.target[keep], batch.source[keep], None, 0, None, 0, *tasks, True)


def choices(strategy: Strategy, heads: int, candidates: int) -> list[list[float]]:
    every = [list(c) for c in product((0.0, 1.0), repeat=candidates)]
    if strategy == "bernoulli":
        return every
    if strategy == "subset":
        return [c for c in every if sum(c) == heads]
    return [c for c in every if all(sum(c[g::heads]) == 1 for g in range(heads))]


def held(values: dict[str, Tensor]) -> SharedSamples:
    shared_samples = SharedSamples()
    shared_samples.values = values
    return shared_samples


@every_law
def test_bounds_stay_below_the_exact_likelihood_of_all_choices(strategy: Strategy) -> None:
    """Two tasks, one block: log p(D) sums the choices of both, drawn once for all sentences."""
    torch.manual_seed(1)
    number = 4 if strategy == "group" else 3
    small = make_selector(strategy, 2, number, ("encoder-self",), 2, 1)
    network = sizes(heads=2, layers=1)
    prior = make_prior("delta")
    model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[Logits(prior), small])
    model = jiggle(model, 0.7).double().eval()
    guide = jiggle(Tied(model).double(), 0.6)
    batch = replace(Batch.of(TARGETS, SOURCES), source_task=torch.tensor([0, 1, 0]))
    (site,) = guide.shared_posteriors
    log_p, log_q, log_likelihood, bounds = [], [], [], []
    q, p = guide.selections["encoder_0_self"](), small.prior("encoder-self", torch.ones(1).double())
    for pair in product(choices(strategy, 2, number), repeat=2):
        value = torch.tensor(pair, dtype=torch.float64)
        with held({site: value}):
            bound_terms = terms(model, guide, batch)
        log_p.append(p.log_prob(value).sum())
        log_q.append(q.log_prob(value).sum())
        log_likelihood.append(bound_terms.log_likelihood.sum())
        bounds.append(bound_terms.bound)
        assert bound_terms.how[site] == "analytic"
        torch.testing.assert_close(bound_terms.shared_log_ratio, log_p[-1] - log_q[-1])
    lp, lq, ll = map(torch.stack, (log_p, log_q, log_likelihood))
    weights = lp + ll - lq
    exact = (lp + ll).logsumexp(0)
    elbo = (lq.exp() * weights).sum()
    two = torch.logaddexp(weights[:, None], weights[None, :]) - math.log(2)
    iwae = (lq.exp()[:, None] * lq.exp()[None, :] * two).sum()
    torch.testing.assert_close(lp.logsumexp(0), torch.zeros(()))
    torch.testing.assert_close((lq.exp() * torch.stack(bounds)).sum(), elbo)
    assert elbo < iwae < exact
    torch.manual_seed(0)
    draws = torch.cat([importance(model, guide, batch, num_samples=2).bound for _ in range(20)])
    assert draws.mean() == pytest.approx(iwae.item(), abs=4 * draws.std().item() / math.sqrt(20))


def cut(model: Any, batch: Batch, picked: dict[str, Choice], index: int) -> Tensor:
    """The states of one sentence in a network that has only its chosen heads, weights copied."""
    plain = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=())
    plain = plain.double().eval()
    values = dict(model.state_dict())
    for module in model.selecting_blocks:
        choice = picked[module.block.name]
        assert choice.index is not None
        rows = choice.index if choice.common else choice.index[index]
        for name in ("in_weight", "in_bias"):
            key = next(k for k, m in model.named_modules() if m is module) + f".attention.{name}"
            parts = values[key].unflatten(0, (3, CANDIDATES, -1))
            values[key] = parts[:, rows].flatten(0, 2)
    plain.load_state_dict(values)
    one = alone(batch, index)
    with PlugIn():
        return plain.states(replace(one, source_task=None, target_task=None))


@pytest.mark.parametrize("strategy", ["subset", "group"])
def test_a_mixed_batch_its_sentences_alone_and_a_network_of_the_chosen_agree(
    strategy: Strategy,
) -> None:
    model, batch = make(strategy), two_tasks()
    with PlugIn(), WithSelection(jiggle(Tied(model).double(), 1.0)):
        picked = model.select_heads(batch)
        mixed = model.states(batch)
        separate = [model.states(alone(batch, position)) for position in range(len(batch))]
    for index, single in enumerate(separate):
        torch.testing.assert_close(mixed[index], single[0], rtol=1e-10, atol=1e-12)
        in_memory = cut(model, batch, picked, index)
        torch.testing.assert_close(single, in_memory, rtol=1e-10, atol=1e-12)


def test_candidates_that_do_not_speak_are_not_computed_and_change_nothing() -> None:
    model, batch = make("bernoulli"), alone(two_tasks(), 1)
    guide = jiggle(Tied(model).double(), 1.0)
    with PlugIn(), WithSelection(guide):
        picked = model.select_heads(batch)
        fast = model.states(batch, picked)
        masks = {
            name: Choice(guide.selections[name.replace(".", "_")]().mode[task])
            for name, task in ((n, 1 if n.startswith("encoder") else 0) for n in picked)
        }
        slow = model.states(batch, masks)
    assert all(choice.active_only for choice in picked.values())
    torch.testing.assert_close(fast, slow)


class SumAboveLowest(Prior):
    """No noise; all blocks but the lowest of each attention type read the logits below."""

    deterministic = True

    def __call__(self, block: Block) -> Family:
        return Point(Identity() if block.is_lowest else RunningSum())


def test_candidates_whose_logits_are_read_above_are_computed() -> None:
    batch = alone(two_tasks(), 1)
    model: Any = Translation(
        SOURCE_TYPES,
        TARGET_TYPES,
        sizes(),
        latents=[Logits(SumAboveLowest()), selector("bernoulli")],
    )
    jiggle(model, 0.4).double().eval()
    with PlugIn(), WithSelection(jiggle(Tied(model).double(), 1.0)):
        fast, slow = model.states(batch), model.states(replace(batch, one_task=False))
    torch.testing.assert_close(fast, slow)


def test_a_candidate_that_is_not_computed_is_told_as_silent() -> None:
    model, batch = make("bernoulli"), alone(two_tasks(), 1)
    guide, term, messages = (
        jiggle(Tied(model).double(), 1.0),
        Disagreement(KINDS, diagonal=False),
        [],
    )
    for chosen in (batch, replace(batch, one_task=False)):
        with (
            PlugIn(),
            WithSelection(guide),
            Recording(model) as heads,
            term.record_agreement(model) as recorded,
        ):
            model.states(chosen)
        messages.append((heads, recorded))
    (fast, agreed), (slow, expected) = messages
    torch.testing.assert_close(agreed, expected)
    for module in model.selecting_blocks:
        mine, whole = (heads[module.block.name] for heads in (fast, slow))
        silent = ~mine.active
        assert 0 < silent.sum() < CANDIDATES
        assert torch.equal(mine.active, whole.active)
        torch.testing.assert_close(mine.outputs, whole.outputs)
        torch.testing.assert_close(mine.logits[~silent], whole.logits[~silent])
        assert not mine.logits[silent].any()
        assert whole.logits[silent].any()


def flops(model: Any, batch: Batch, guide: Any) -> int:
    with FlopCounterMode(display=False) as counter, PlugIn(), WithSelection(guide), torch.no_grad():
        model.states(batch)
    return counter.get_total_flops()


@pytest.mark.parametrize("strategy", ["subset", "group"])
def test_a_batch_of_one_task_costs_what_the_chosen_heads_cost(strategy: Strategy) -> None:
    model, batch = make(strategy), alone(two_tasks(), 0)
    plain = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[Logits()]).double()
    assert flops(model, batch, Tied(model)) == flops(plain, batch, None)


def test_a_candidate_more_that_speaks_costs_as_much_as_every_other() -> None:
    model, batch = make("bernoulli"), alone(two_tasks(), 0)
    guide = Tied(model)
    counts = []
    for speaking in range(1, CANDIDATES + 1):
        for family in guide.selections.values():
            with torch.no_grad():
                family.weight.fill_(-1)[:, :speaking] = 1
        counts.append(flops(model, batch, guide))
    steps = {later - before for before, later in pairwise(counts)}
    assert len(steps) == 1
    assert min(steps) > 0


@every_law
def test_all_logits_get_a_gradient_and_the_selection_counts_once(strategy: Strategy) -> None:
    model = make(strategy)
    guide = jiggle(Tied(model).double(), 0.4)
    batch = two_tasks()
    losses = []
    for size in (3, 30):
        whole = replace(batch, index=torch.arange(3), corpus_size=size)
        torch.manual_seed(2)
        with pyro.validation_enabled(False):
            losses.append(Head_ELBO(analytic=True)(model, guide)(whole))
    torch.manual_seed(2)
    bound_terms = terms(model, guide, batch)
    shared = sum(kl.sum() for kl in bound_terms.shared_kl.values())
    torch.testing.assert_close(losses[0].detach(), shared - bound_terms.log_likelihood.sum())
    torch.testing.assert_close(losses[1].detach(), shared - 10 * bound_terms.log_likelihood.sum())
    (losses[1] - losses[0]).backward()  # what the selection costs is in both
    for family in guide.selections.values():
        assert (family.weight.grad != 0).all()


def test_candidates_that_are_silent_get_a_gradient_in_evaluation_too() -> None:
    model, one = make("bernoulli"), alone(two_tasks(), 0)
    guide, losses = jiggle(Tied(model).double(), 0.4), []
    for size in (1, 10):
        torch.manual_seed(2)
        with pyro.validation_enabled(False):
            batch = replace(one, index=torch.arange(1), corpus_size=size)
            losses.append(Head_ELBO(analytic=True)(model, guide)(batch))
    (losses[1] - losses[0]).backward()
    for name, family in guide.selections.items():
        assert (family.weight.grad[0 if name.startswith("encoder") else 2] != 0).all()


@in_turn(strategy=[strategy for strategy in STRATEGIES if strategy != "static"], form=FORMS)
def test_every_guide_learns_logits_and_selection_together(strategy: Strategy, form: str) -> None:
    model = make(strategy, "independent")
    guide = attach(form, model, 0.05)
    bound_terms = terms(model, guide, two_tasks())
    kinds = {site.rsplit(".", 1)[1] for site in bound_terms.how}
    assert kinds == {"logits", "selection"}
    assert len(bound_terms.shared_kl) == len(model.selecting_blocks) == 4
    report = evaluate(model, guide, [two_tasks(), two_tasks()], num_samples=3)
    assert math.isfinite(report.elbo + report.iwae)
    assert report.kl == pytest.approx(sum(report.kl_by_site.values()))
    assert report.kl_by_site.keys() == bound_terms.how.keys()
    one = evaluate(model, guide, [two_tasks()], num_samples=1)
    shared = sum(one.kl_by_site[site] for site in bound_terms.shared_kl)
    again = sum(report.kl_by_site[site] for site in bound_terms.shared_kl)
    assert again == pytest.approx(shared / 2)


@pytest.mark.parametrize("strategy", ["subset", "group"])
def test_a_mean_field_posterior_stands_at_the_heads_that_were_drawn(strategy: Strategy) -> None:
    torch.manual_seed(2)
    model = make(strategy, "independent")
    guide = MeanField(model, learned_scale=False).double()
    with torch.no_grad():
        for family in guide.selections.values():
            family.weight[:] = 3 * (torch.arange(CANDIDATES) >= HEADS).double()
    bound_terms = terms(model, guide, two_tasks())
    first = bound_terms.kl["encoder.0.self.logits"]
    torch.testing.assert_close(first, torch.zeros_like(first), rtol=0, atol=1e-9)


def test_a_task_pays_for_its_own_selection_alone() -> None:
    model = make("group")
    guide = jiggle(Tied(model).double(), 1.0)
    batch = two_tasks()
    whole = evaluate(model, guide, [batch], truth=[-1.0] * len(batch))
    assert whole.truth_elbo == pytest.approx(whole.elbo)
    one = evaluate(model, guide, [alone(batch, 0)])
    kl = terms(model, guide, batch).shared_kl
    own = [kl[site][0 if site.startswith("encoder") else 2] for site in kl]
    assert one.kl * one.tokens == pytest.approx(sum(own).item())
    with fixed_noise(0, torch.device("cpu")):
        drawn = terms(model, guide, alone(batch, 0))
    paid = [r[0 if s.startswith("encoder") else 2] for s, r in drawn.shared_log_ratios.items()]
    assert one.iwae * one.tokens == pytest.approx((drawn.log_weight.sum() + sum(paid)).item())
    assert whole.kl * whole.tokens == pytest.approx(sum(k.sum() for k in kl.values()).item())


def test_the_plug_in_network_asks_for_the_guide_that_selects() -> None:
    model = make("group")
    with pytest.raises(ValueError, match=r"the selection of heads comes from the guide"), PlugIn():
        model.states(two_tasks())


def test_a_network_without_noise_that_selects_is_run_for_every_draw() -> None:
    model = make("group")
    guide = jiggle(Tied(model).double(), 1.0)
    with counting(model) as seen:
        report = evaluate(model, guide, [two_tasks(), two_tasks()], num_samples=4)
    assert seen.count("encoder.0.self") == 2 * (4 + 1)
    twice = evaluate(model, guide, [two_tasks()], num_samples=4)
    assert report.log_likelihood == pytest.approx(twice.log_likelihood)
    assert 1 <= report.effective_sample_size <= 4
    single = evaluate(model, guide, [two_tasks(), two_tasks()], num_samples=1)
    assert single.effective_sample_size == pytest.approx(1)


@in_turn(strategy=STRATEGIES, kind=["translation", "language-model"])
def test_decoding_keeps_the_likeliest_heads_at_every_step(strategy: Strategy, kind: str) -> None:
    torch.manual_seed(3)
    model, batch = make(strategy), two_tasks()
    if kind == "language-model":
        network = sizes(norm="pre")
        model = LanguageModel(TARGET_TYPES, network, latents=[selector(strategy)])
        model = jiggle(model, 0.4).double().eval()
    guide = jiggle(Tied(model).double(), 1.0)
    with WithSelection(guide):
        computed_hypotheses = beam_search(model, batch, num_beams=3)
        again = beam_search(model, batch, num_beams=3)
    assert computed_hypotheses == again
    for index, hypotheses in enumerate(computed_hypotheses):
        assert batch.source is not None
        assert batch.source_task is not None
        assert batch.target_task is not None
        for hypothesis in hypotheses:
            tokens = torch.tensor([hypothesis.tokens])
            tasks = batch.source_task[index, None], batch.target_task[index, None]
            one = Batch(tokens, batch.source[index, None], None, 0, None, 0, *tasks)
            with PlugIn(), WithSelection(guide):
                law_of_tokens = model.likelihood(model.states(one), one)
            expected = law_of_tokens.log_prob(tokens).item()
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-9)


def test_draws_of_heads_share_the_likeliest_selection() -> None:
    model, batch = make("group"), two_tasks()
    with WithSelection(jiggle(Tied(model).double(), 1.0)):
        plain, drawn = (
            beam_search(model, batch, num_beams=2, num_samples=k, max_new_tokens=5) for k in (0, 3)
        )
    for one, other in zip(chain(*plain), chain(*drawn), strict=True):
        assert one.tokens == other.tokens
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-10)


class Recorder(Messenger):
    """Keeps the selections that were drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Tensor] = {}

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"].endswith(".selection"):
            self.values[msg["name"]] = msg["value"]


@every_law
@pytest.mark.parametrize("tasks", [True, False])
def test_decoding_with_draws_averages_over_selections(strategy: Strategy, tasks: bool) -> None:
    torch.manual_seed(3)
    model = make(strategy) if tasks else make(strategy, sources=1, targets=1)
    batch = two_tasks() if tasks else Batch.of(TARGETS, SOURCES)
    guide = jiggle(Tied(model).double(), 0.1)
    with Recorder() as seen, PlugIn(), WithSelection(guide, 3):
        computed_hypotheses = beam_search(model, batch, num_beams=2, num_samples=3)
    assert len(seen.values) == 4
    for name, value in seen.values.items():
        one_value = value.unflatten(0, (3, -1))
        assert value.shape[0] == 3 * model.selector.num_tasks(name[:7])
        assert not torch.equal(one_value[0], one_value[1]) or not torch.equal(
            one_value[1], one_value[2]
        )
    for index, hypotheses in enumerate(computed_hypotheses):
        assert batch.source is not None
        tokens = torch.tensor([hypotheses[0].tokens])
        own = (
            None if t is None else t[index, None] for t in (batch.source_task, batch.target_task)
        )
        one = Batch(tokens, batch.source[index, None], None, 0, None, 0, *own)
        terms_of = []
        for draw in range(3):
            values = {n: v.unflatten(0, (3, -1))[draw] for n, v in seen.values.items()}
            with PlugIn(), SharedSamples(values):
                terms_of.append(model.likelihood(model.states(one), one).log_prob(tokens))
        expected = torch.stack(terms_of).logsumexp(0) - math.log(3)
        assert hypotheses[0].log_prob == pytest.approx(expected.item(), abs=1e-9)


@every_law
def test_every_task_has_heads_of_its_own_law_in_every_draw(strategy: Strategy) -> None:
    model = make(strategy)
    guide = Tied(model).double()
    for family in guide.selections.values():
        tasks = torch.arange(len(family.weight))[:, None]
        order = (tasks + torch.arange(CANDIDATES)) % CANDIDATES
        family.weight.data = 50 * (order - 2.5) / family.gain
    with Recorder() as seen, WithSelection(guide, 3):
        model.select_heads(two_tasks().repeated(3))
    assert len(seen.values) == 4
    for site, value in seen.values.items():
        sure = guide.shared_posteriors[site]().mode
        assert not torch.equal(sure[0], sure[1])
        assert all(torch.equal(item, sure) for item in value.unflatten(0, (3, -1)))


def test_draws_of_which_the_batch_does_not_know_are_refused() -> None:
    """Three sentences, each under a draw of its own."""
    model = make("group")
    guide, batch = Tied(model).double(), two_tasks()
    with PlugIn(), WithSelection(guide, 3):
        with pytest.raises(ValueError, match="6 rows for 2 tasks and 1 samples: a batch must"):
            model.states(batch)
        assert model.states(replace(batch, num_samples=3)).shape[0] == 3


@pytest.mark.parametrize("mixers", ["attention", "ngram"])
@pytest.mark.parametrize("particles", [2, 3])
def test_vectorised_particles_share_a_static_choice(
    particles: int, mixers: str, tape: NoiseTape
) -> None:
    """With as many particles as sentences, the one might be taken for the other."""
    drawn = {"windows": "2", "ngram_noise": 0.3} if mixers == "ngram" else {}
    network = sizes(mixers=mixers, **drawn)
    prior, static = make_prior("independent"), selector("static")
    model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[Logits(prior), static])
    guide = attach("cascaded", jiggle(model, 0.4).double())
    losses = []
    for particle in range(particles):
        tape.rewind(particle=particle)
        losses.append(Head_ELBO(analytic=True)(model, guide)(two_tasks()))
    tape.rewind()
    options = {"num_particles": particles, "vectorize_particles": True, "max_plate_nesting": 1}
    together = Head_ELBO(analytic=True, **options)(model, guide)(two_tasks())
    torch.testing.assert_close(together, torch.stack(losses).mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("best", 3, 6), "strategy must be one of bernoulli, subset, group, static"),
        (("group", 3, 7), "candidates must be a multiple of the 3 heads for group, got 7"),
        (("subset", 3, 3), "candidates must be more than the 3 heads, got 3"),
        (("group", 3, 6, ("self",)), "attention type must be one of encoder-self"),
    ],
)
def test_wrong_selectors_are_refused(options: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unchecked(make_selector)(*options)


def test_blocks_outside_the_chains_keep_their_heads() -> None:
    model = make("group", attention_types=("decoder-cross",))
    blocks = attentions_of(model)
    assert {m.block.attention_type for m in blocks if m.selector} == {"decoder-cross"}
    assert {m.block.heads for m in blocks} == {HEADS}
