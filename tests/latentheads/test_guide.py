"""What a family may not return, said in one line before anything is drawn."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from torch import nn

from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.distributions import HeadContext, NormalHeads
from latentheads.families import Family, Gaussian, HeadScale, Identity
from latentheads.families.guide import check_options
from latentheads.guide import ON_TEXT, ModelGuide
from latentheads.guides import GUIDES, Guide, MeanField, Tied
from latentheads.handlers import SharedSamples
from latentheads.inference.bound import terms
from latentheads.inference.objective import Head_ELBO
from latentheads.names import Block
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import FORMS, HEADS, KINDS, attach, build, jiggle
from tests.typechecking import unchecked

SITE = "^site 'decoder.0.self.logits': a family must return a distribution of heads"
WRONG: dict[str, tuple[Callable[[HeadContext], Any], str]] = {
    "tensor": (lambda c: c.scores, rf"{SITE}, such as NormalHeads, got Tensor$"),
    "nothing": (lambda c: None, rf"{SITE}, such as NormalHeads, got NoneType$"),
    "no event": (
        lambda c: dist.Normal(c.scores, 1.0),
        rf"{SITE}, queries and keys of shape \(3, 4, 4\), sentences \(3,\); "
        r"got shape \(\), sentences \(3, 3, 4, 4\)$",
    ),
    "too few heads": (
        lambda c: NormalHeads(c.scores[:, :2], c),
        rf"{SITE}, .*; got shape \(2, 4, 4\), sentences \(3,\)$",
    ),
    "too few sentences": (
        lambda c: NormalHeads(c.scores[:2], c),
        rf"{SITE}, .*; got shape \(3, 4, 4\), sentences \(2,\)$",
    ),
    "scale of heads as of keys": (
        lambda c: NormalHeads(c.scores, c, torch.ones(HEADS)),
        r"^scale must spread over heads, queries and keys \(3, 4, 4\), such as \(3, 1, 1\), "
        r"got \(3,\)$",
    ),
    "negative scale": (
        lambda c: NormalHeads(c.scores, c, -0.5),
        r"^scale must be positive and finite, got -0.5$",
    ),
}
every_mistake = pytest.mark.parametrize("mistake", WRONG)


class Mistaken(Family):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake = mistake

    def forward(self, context: HeadContext) -> Any:
        return WRONG[self.mistake][0](context)


class MistakenGuide(Guide):
    def __init__(self, model: Any, mistake: str) -> None:
        super().__init__(model)
        self.mistake = mistake

    def family(self, block: Block) -> Family:
        return Mistaken(self.mistake)

    def posterior(self, block: Block, context: HeadContext) -> Any:
        return self.families[block.key](context)


@every_mistake
def test_a_guide_is_refused_what_is_no_law_of_its_heads(mistake: str, batch: Batch) -> None:
    model = build("language-model").eval()
    guide = MistakenGuide(model, mistake)
    for ask in (terms, Head_ELBO(analytic=True).loss):
        with pytest.raises(ValueError, match=WRONG[mistake][1]):
            ask(model, guide, batch)


@every_mistake
def test_so_is_a_prior(mistake: str, batch: Batch) -> None:
    model = build("language-model").eval()
    model.decoder.layers[0].inner.prior = Mistaken(mistake).eval()
    with pytest.raises(ValueError, match=WRONG[mistake][1]):
        terms(model, attach("tied", model), batch)


class Negative(Family):
    def forward(self, context: HeadContext) -> NormalHeads:
        return NormalHeads(
            context.scores, context, torch.tensor([0.5, -0.5, 2.0]).view(HEADS, 1, 1)
        )


class NegativeGuide(Guide):
    def family(self, block: Block) -> Family:
        return Negative()


def test_a_negative_scale_of_a_tensor_is_refused_while_validation_is_on(batch: Batch) -> None:
    model = build("language-model").eval()
    guide, expected = (
        NegativeGuide(model),
        (
            "^site 'decoder.0.self.logits': the scale of the posterior of NegativeGuide must be "
            "positive, got -0.5$"
        ),
    )
    for loss in (Head_ELBO(), Trace_ELBO()):
        with pyro.validation_enabled(True), pytest.raises(ValueError, match=expected):
            loss.loss(model, guide, batch)
    with pyro.validation_enabled(True), pytest.raises(ValueError, match=expected):
        terms(model, guide, batch)
    with pyro.validation_enabled(False):
        assert terms(model, guide, batch).elbo.isnan().all()


def test_a_scale_that_training_made_0_is_no_mistake_of_the_user(batch: Batch) -> None:
    model = build("language-model").eval()
    guide = attach("cascaded", model)
    for family in guide.families.values():
        family.scale.log.data.fill_(-1e4)
    expected = "^site 'decoder.0.self.logits': the scale of the posterior of Cascaded must be pos"
    with pyro.validation_enabled(True), pytest.raises(FloatingPointError, match=expected):
        terms(model, guide, batch)


class Childless(Guide):
    """One whose author forgot to return."""

    def family(self, block: Any) -> Any:
        self.made = block


def test_a_guide_that_makes_no_family_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"^Childless\.family must return a Family, .*, got None$"):
        Childless(build())


class Answering(ModelGuide):
    def __init__(self, model: Any, answer: Callable[[Any], Any]) -> None:
        super().__init__(model)
        self.answer = answer

    def get_posterior(self, name: str, prior: Any) -> Any:
        return self.answer(prior)


ANSWERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "nothing": (lambda prior: None, "distribution of Pyro, such as the prior itself, got NoneType"),
    "torch's": (
        lambda prior: torch.distributions.Normal(0.0, 1.0),
        "distribution of Pyro, such as the prior itself, got Normal",
    ),
    "no event": (
        lambda prior: dist.Normal(0.0, 1.0),
        r"distribution of event_shape \(\d, \d.*\) and batch_shape \(3,\), as the prior, "
        r"got event_shape \(\) and batch_shape \(\)",
    ),
    "too many": (
        lambda prior: dist.Normal(torch.zeros(7, *prior.event_shape), 1).to_event(prior.event_dim),
        r"distribution of .* batch_shape \(3,\), as the prior, got .* batch_shape \(7,\)",
    ),
    "a number": (
        lambda prior: torch.tensor(0.0),
        r"distribution of .*, as the prior, got event_shape \(\) and batch_shape \(\)",
    ),
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("shape", ["logits", "alignments"])
def test_a_guide_that_answers_with_no_law_is_named(answer: str, shape: str, batch: Batch) -> None:
    model = aligned(SHAPES["one head"]) if shape == "alignments" else build("language-model")
    given, message = ANSWERS[answer]
    guide = Answering(model.eval(), given)
    with pytest.raises(ValueError, match=rf"^site '.*': get_posterior must return a {message}$"):
        terms(model, guide, batch)


class ForeignPrior(Family):
    def forward(self, context: HeadContext) -> Any:
        return dist.Laplace(context.scores, 1.0).to_event(3)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "tied"])
def test_a_guide_asks_a_law_of_another_library_for_nothing(form: str, batch: Batch) -> None:
    model = build("language-model").eval()
    model.decoder.layers[0].inner.prior = ForeignPrior().eval()
    assert terms(model, attach("tied", model), batch).elbo.isfinite().all()
    message = (
        "^site 'decoder.0.self.logits': a prior .* must be a HeadVariable, .*; got Independent$"
    )
    with pytest.raises(ValueError, match=message):
        terms(model, attach(form, model), batch)


def test_one_law_for_all_sentences_is_a_law_for_each(batch: Batch) -> None:
    class Alike(Guide):
        def family(self, block: Block) -> Family:
            return Constant()

    class Constant(Family):
        def forward(self, context: HeadContext) -> NormalHeads:
            return NormalHeads(torch.zeros(context.scores.shape[-3:]), context)

    model = build("language-model").eval()
    assert terms(model, Alike(model), batch).elbo.shape == (3,)


class Behind(Guide):
    def __init__(self, model: Any, start: float = 0.5) -> None:
        super().__init__(model)
        self.start = start

    def family(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads, self.start, learned=True))


class Ahead(Behind):
    def __init__(self, model: Any, start: float = 0.5) -> None:
        self.start = start
        super().__init__(model, start)


class Further(Behind):
    def __init__(self, model: Any, factor: float, start: float = 0.5) -> None:
        super().__init__(model, start)
        self.factor = factor

    def family(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads, self.factor * self.start, learned=True))


@pytest.mark.parametrize(
    ("made", "scale", "options"),
    [
        (partial(Behind, start=0.3), 0.3, {"start": 0.3}),
        (partial(Ahead, start=0.3), 0.3, {"start": 0.3}),
        (partial(Further, factor=3), 1.5, {"factor": 3}),
        (lambda model: Further(model, 2, 0.7), 1.4, {"factor": 2, "start": 0.7}),
    ],
)
def test_families_are_made_when_every_constructor_is_through(
    made: Callable[[Any], Any], scale: float, options: dict[str, Any]
) -> None:
    model = build("language-model")
    guide = made(model)
    for item in (guide, copy.copy(guide), copy.deepcopy(guide), pickle.loads(pickle.dumps(guide))):
        computed_scale = item.families[model.blocks[0].key].scale().flatten()
        assert torch.allclose(computed_scale, torch.full((HEADS,), scale))
        assert item.config == options


OF_LOGITS = {
    "cascaded": {"hidden": 7, "link": True, "scale": 0.1, "learned_scale": False},
    "mean-field": {"hidden": 7, "scale": 0.1, "learned_scale": False},
    "autoregressive": {"form": "masked", "hidden": 7, "scale": 0.1},
}
CHANGES = [
    *(
        (name, "logits", *option)
        for name, options in OF_LOGITS.items()
        for option in options.items()
    ),
    *((name, ON_TEXT, "condition_on", "prefix") for name in OF_LOGITS),
]


@pytest.mark.parametrize(("name", "what", "option", "value"), CHANGES)
def test_an_option_that_acts_on_nothing_is_refused(
    name: str, what: str, option: str, value: Any
) -> None:
    pointing = aligned(SHAPES["two blocks"])
    model = pointing if what == "logits" else build(blocks="encoder-self")
    kind = GUIDES[name]
    message = f"^guide.{option} applies only to {what}, and this model has none$"
    with pytest.raises(ValueError, match=message):
        kind(model, **{option: value})
    default = signature(kind).parameters[option].default
    assert kind(model, **{option: default}).config == {option: default}
    both = aligned(SHAPES["two blocks"], prior="independent", blocks="all")
    assert getattr(kind(both, **{option: value}), option) == value
    assert list(signature(Further).parameters) == ["model", "factor", "start"]


def test_a_guide_of_logits_is_refused_where_no_logits_are_random() -> None:
    class OfLogits(Guide):
        def family(self, block: Block) -> Family:
            return Gaussian(Identity(), HeadScale(block.heads, 0.5))

    with pytest.raises(ValueError, match=r"^OfLogits has a posterior of logits, and only alignme"):
        OfLogits(aligned(SHAPES["one head"]))
    for model in (build(), aligned(SHAPES["one head"], prior="independent", blocks="all")):
        assert OfLogits(model).families


@pytest.mark.parametrize(
    ("option", "value", "kind"), [("hidden", 2.5, "whole number"), ("scale", "1", "number")]
)
def test_an_option_of_another_kind_is_refused(option: str, value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^guide\.{option} must be a {kind}, got "):
        unchecked(check_options)(**{"hidden": 4, "scale": 1.0, option: value})


@pytest.mark.parametrize("method", ["post_init", "get_posterior", "latent_posterior"])
def test_a_guide_with_a_posterior_of_ones_own_is_not_refused(method: str) -> None:
    class Own(Guide):
        def family(self, block: Block) -> Family:
            raise AssertionError

    setattr(Own, method, lambda self, *given: getattr(Guide, method)(self, *given))
    assert not Own(aligned(SHAPES["one head"])).families


def test_a_guide_of_ones_own_may_put_an_option_to_another_use() -> None:
    class Own(MeanField):
        def __init__(self, model: Any, scale: float = 1.0) -> None:
            super().__init__(model, hidden=5)
            self.start = scale

    guide = Own(aligned(SHAPES["one head"]), scale=0.3)
    assert (guide.start, guide.hidden, guide.config) == (0.3, 5, {"scale": 0.3})


class Amortised(Guide):
    """Moves the logits of every query by what one network, shared by all blocks, reads there."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.reader = nn.Linear(model.network.width, 1)
        self.seen: dict[str, HeadContext] = {}

    def family(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads))

    def posterior(self, block: Block, context: HeadContext) -> NormalHeads:
        self.seen[block.name] = context
        assert context.key.shape[-1] == context.query.shape[-1]
        shift = self.reader(context.query).unsqueeze(-3)
        return NormalHeads(context.scores + shift, context, self.families[block.key].scale())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mixers", ["attention", "ngram"])
def test_a_posterior_reads_the_states_of_its_block(kind: str, mixers: str, batch: Batch) -> None:
    model = build(kind, mixers=mixers, ngram_noise=0.3 * (mixers == "ngram")).eval()
    guide = jiggle(Amortised(model).double(), 0.3)
    assert "reader.weight" in dict(guide.named_parameters())
    assert not guide.config
    bound_terms = terms(model, guide, batch)
    for site, pairs in bound_terms.kl.items():
        name = site.rpartition(".")[0]
        context = guide.seen.pop(name)
        assert context.block.name == name
        assert context.batch is batch
        assert (pairs > 0).any()
    assert not guide.seen
    for objective in (Head_ELBO(), Head_ELBO(analytic=True)):
        guide.zero_grad()
        objective(model, guide)(batch).backward()
        assert guide.reader.weight.grad.abs().sum() > 0


def test_what_is_added_to_the_scores_of_the_first_block_is_read_off_its_embeddings(
    batch: Batch,
) -> None:
    model = build("language-model").eval()
    guide = jiggle(Amortised(model).double(), 0.3)
    kl = terms(model, guide, batch).kl["decoder.0.self.logits"]
    shift = guide.reader(model.embedding(batch.decoder_input))
    latent = guide.seen["decoder.0.self"].mask.latent
    assert torch.allclose(kl, HEADS * 0.5 * (shift.square() * latent).sum((-1, -2)))


def test_states_are_let_go_when_the_heads_are_drawn(batch: Batch) -> None:
    model = build("language-model").eval()
    guide = Amortised(model).double()
    guide(batch)
    for name in ("query", "key"):
        message = rf"^the {name} states of decoder.0.self are not available"
        with pytest.raises(ValueError, match=message):
            getattr(guide.seen["decoder.0.self"], name)
        bare = replace(guide.seen["decoder.0.self"], block=None, states=None)
        with pytest.raises(ValueError, match=f"^the {name} states are not available"):
            getattr(bare, name)


def test_a_prior_is_told_its_block_but_no_target(batch: Batch) -> None:
    seen: list[HeadContext] = []

    class Curious(Family):
        def forward(self, context: HeadContext) -> NormalHeads:
            assert context.query.shape == context.key.shape == (3, 4, 6)
            seen.append(context)
            return NormalHeads(context.scores, context)

    model = build("language-model").eval()
    model.decoder.layers[1].inner.prior = Curious().eval()
    terms(model, attach("cascaded", model), batch)
    assert [expected.block.site() for expected in seen] == ["decoder.1.self.logits"]
    assert seen[0].batch is None


@pytest.mark.parametrize("mixers", ["attention", "ngram"])
def test_while_decoding_a_memory_alone_is_told_as_keys(mixers: str, batch: Batch) -> None:
    seen: dict[str, bool] = {}

    class Curious(Family):
        def forward(self, context: HeadContext) -> NormalHeads:
            assert context.block is not None
            assert context.states is not None
            assert context.query.shape == (3, 1, 6)
            seen[context.block.name] = context.states.key is not None
            return NormalHeads(context.scores, context)

    model = build(mixers=mixers).eval()
    for module in (m for m in model.modules() if isinstance(m, HeadBlock)):
        if module.block.attention_type.startswith("decoder"):
            module.prior = Curious()
    model.step(batch.decoder_input[:, :1], model.begin(batch))
    assert seen == {block: "cross" in block for block in seen}
    assert len(seen) == 4


def test_a_guide_of_no_model_is_refused_in_one_line() -> None:
    message = r"^model must be one of heads, as Translation or lh.latent\(network\), got None$"
    with pytest.raises(ValueError, match=message):
        unchecked(ModelGuide.__init__)(Tied.__new__(Tied), None)


@pytest.mark.parametrize("options", [{}, {"analytic": True}])
@pytest.mark.parametrize("validation", [False, True])
def test_heads_that_are_given_are_scored_by_the_prior(
    validation: bool, options: dict[str, Any], batch: Batch
) -> None:
    """The guide is asked before a handler around it says that they are observed."""
    model = build("language-model", layers=1).eval()
    guide = attach("mean-field", model)
    site, value = "decoder.0.self.logits", torch.randn(3, HEADS, 4, 4)
    given = poutine.condition(data={site: value})
    with given, pyro.validation_enabled(validation):
        loss = Head_ELBO(**options)(model, guide)(batch)
        plain = Trace_ELBO()(model, guide)(batch)
    with given:
        expected = poutine.trace(model).get_trace(batch).log_prob_sum()
    for actual in (loss, plain):
        assert actual.item() == pytest.approx(-expected.item())


@pytest.mark.parametrize("traced", ["guide", "model"])
@pytest.mark.parametrize("options", [{}, {"analytic": True}])
def test_values_that_are_replayed_are_held_against_the_prior_of_this_pass(
    options: dict[str, Any], traced: str, batch: Batch
) -> None:
    """A trace brings what was known of its sites in the pass that it is of, the prior too."""
    model = build("language-model").eval()
    guide = attach("cascaded", model).eval()
    trace = poutine.trace(guide if traced == "guide" else model).get_trace(batch)
    jiggle(model, 0.2), jiggle(guide, 0.2)
    objective = Head_ELBO(**options)(model, guide)
    with SharedSamples({n: trace.nodes[n]["value"] for n in trace.stochastic_nodes}):
        expected, bound = objective(batch), terms(model, guide, batch)
    with poutine.replay(trace=trace):
        assert objective(batch).item() == pytest.approx(expected.item())
        assert terms(model, guide, batch).elbo.tolist() == pytest.approx(bound.elbo.tolist())


@pytest.mark.parametrize("handler", [poutine.do, poutine.uncondition])
def test_what_a_handler_draws_in_place_of_the_guide_has_no_bound(
    handler: Callable[..., Any], batch: Batch
) -> None:
    model = build("language-model", layers=1).eval()
    guide = attach("cascaded", model)
    site = "decoder.0.self.logits"
    given = {"data": {site: torch.randn(3, HEADS, 4, 4)}} if handler is poutine.do else {}
    taken = site if given else "target"
    message = rf"^site '{taken}' was sampled by a handler such as poutine.do or .* poutine.replay$"
    handled = handler(guide, **given)
    assert handled(batch)["target"].shape == batch.target.shape
    for bound in (terms, Head_ELBO().loss, Head_ELBO(analytic=True).loss, Trace_ELBO().loss):
        with pytest.raises(ValueError, match=message):
            bound(model, handled, batch)


def test_what_is_wrapped_around_the_model_alone_is_told_to_stand_around_both(batch: Batch) -> None:
    model = build("language-model")
    guide = attach("cascaded", model)
    message = (
        r"^the guide runs the model itself, not the DataParallel around it: .*\(model, guide\)$"
    )
    with pytest.raises(ValueError, match=message):
        Head_ELBO().differentiable_loss(nn.DataParallel(model), guide, batch)
