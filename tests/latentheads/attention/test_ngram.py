"""N-gram heads as the library sees heads: drawn, gated, chosen, removed, read and compared."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch
from pyro import poutine
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import normalize

from latentheads.attention.block import HeadBlock
from latentheads.attention.disagreement import Disagreement, agreement
from latentheads.batch import BOS, Batch
from latentheads.contrib.heads import (
    Recording,
    gradient_importance,
    measure,
    propagate,
    to_datatree,
)
from latentheads.contrib.heads.divergence import divergence
from latentheads.contrib.heads.roles import detect
from latentheads.decoding.beam_search import beam_search
from latentheads.families import Family, Gaussian, HeadScale, OwnMLP
from latentheads.guides import MeanField
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import evaluate, plug_in_log_likelihood
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.latents.selection.strategies import STRATEGIES, Strategy, make_selector
from latentheads.mask import AttentionMask
from latentheads.models import LanguageModel, Translation, make_prior
from latentheads.names import ATTENTION_TYPES
from latentheads.pruning import all_heads, fold_selection, remove_heads
from tests.crossing import in_turn, pairwise
from tests.tiny import FORMS, HEADS, KINDS, NoiseTape, attach, build, jiggle, kept_of, sizes

NOISE, SIZE = 0.3, 5
NGRAMS = {"mixers": "ngram", "windows": "2,3", "ngram_width": str(SIZE)}
MIXED = {"mixers": "attention,ngram,attention", "windows": "2", "layers": 3, "ngram_width": "5"}
CHOICES: dict[str, dict[str, Any]] = {
    "ngram": NGRAMS,
    "slices": {**NGRAMS, "ngram_slices": True},
    "mixed": MIXED,
}
CHAIN = {"translation": ATTENTION_TYPES, "language-model": ATTENTION_TYPES[1:2]}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_choice = pytest.mark.parametrize("choice", CHOICES)


def noisy(kind: str = "translation", choice: str = "ngram", **options: Any) -> Any:
    return build(kind, **{**CHOICES[choice], "ngram_noise": NOISE, **options}).eval()


def ngrams(model: Any) -> list[Any]:
    return [m for m in model.modules() if getattr(m, "latent", "") == "outputs"]


def fed_twice(batch: Batch) -> Batch:
    """Longer sentences, the first two tokens of which are read and not scored."""
    twice = torch.cat([torch.full((3, 2), 7), batch.target], 1)
    return Batch(twice, batch.source, context=2)


# Drawn.


@every_kind
@every_choice
def test_every_ngram_of_a_latent_chain_has_a_site(kind: str, choice: str, batch: Batch) -> None:
    model = noisy(kind, choice)
    nodes = poutine.trace(model).get_trace(batch).nodes
    sites = {name for name in nodes if name.endswith(".outputs")}
    assert sites == {module.site for module in ngrams(model)} != set()
    assert not {s.removesuffix("outputs") + "logits" for s in sites} & set(nodes)
    for module in ngrams(model):
        length = (batch.target if "decoder" in module.site else batch.source).shape[1]
        assert nodes[module.site]["value"].shape == (3, HEADS, length, SIZE)
    fewer = noisy(kind, choice, blocks=ATTENTION_TYPES[2] if kind == "translation" else "none")
    assert not [n for n in poutine.trace(fewer).get_trace(batch).nodes if n.endswith("outputs")]


def test_the_prior_is_noise_around_what_a_head_computes(batch: Batch) -> None:
    model = noisy("language-model")
    decoder_0_self_outputs = poutine.trace(model).get_trace(batch).nodes["decoder.0.self.outputs"]
    module = model.decoder.layers[0].inner
    x, reach = model.embedding(batch.decoder_input), model.attention_mask(batch.target_latent)
    assert torch.equal(
        decoder_0_self_outputs["fn"].location, module._compute_heads(x, reach, None, None)
    )
    normal = Normal(decoder_0_self_outputs["fn"].location, NOISE)
    total = normal.log_prob(decoder_0_self_outputs["value"]).sum((-3, -1))
    expected = (total * batch.target_valid).sum(-1)
    assert torch.allclose(
        decoder_0_self_outputs["fn"].log_prob(decoder_0_self_outputs["value"]), expected, atol=1e-12
    )
    states = module.out(decoder_0_self_outputs["value"].transpose(-2, -3).flatten(-2))
    assert torch.equal(
        poutine.condition(
            module, {decoder_0_self_outputs["name"]: decoder_0_self_outputs["value"]}
        )(x, reach),
        states,
    )


@pairwise(kind=KINDS, choice=CHOICES, form=[form for form in FORMS if form != "tied"])
def test_the_divergence_is_that_of_the_textbook(
    kind: str, choice: str, form: str, batch: Batch
) -> None:
    model = noisy(kind, choice, options={"learned_scale": True})
    guide = attach(form, model)
    bound_terms = terms(model, guide, batch)
    for module in ngrams(model):
        family, site = guide.families[module.block.key], guide.trace.nodes[module.site]
        q, p = site["fn"], site["infer"]["prior"]
        computed = q.context.scores
        moved = computed * (1 + family.location.gain) + family.location.bias
        scales = family.scale.log.exp(), module.prior.scale.log.exp()
        assert torch.equal(q.scale, scales[0])
        normals = Normal(moved, scales[0]), Normal(p.location, scales[1])
        textbook = torch.distributions.kl_divergence(*normals)
        real = batch.target_valid if "decoder" in module.site else batch.source_valid
        expected = (textbook.sum((-3, -1)) * real).sum(-1)
        assert torch.allclose(bound_terms.kl[module.site], expected, atol=1e-10)
        assert bound_terms.how[module.site] == "analytic"
        assert (bound_terms.kl[module.site] > 0).all()


@every_kind
@every_choice
def test_tied_costs_nothing_and_a_guide_starts_at_the_prior(
    kind: str, choice: str, batch: Batch
) -> None:
    model = noisy(kind, choice)
    bound_terms = terms(model, FORMS["tied"](model).double().eval(), batch)
    sites = [module.site for module in ngrams(model)]
    assert all(
        bound_terms.how[site] == "tied" and (bound_terms.kl[site] == 0).all() for site in sites
    )
    assert (bound_terms.log_ratio == 0).all()
    if choice == "ngram":
        started = terms(model, FORMS["cascaded"](model).double().eval(), batch)
        assert all((started.kl[site].abs() < 1e-12).all() for site in sites)


@pairwise(kind=KINDS, form=[form for form in FORMS if form != "tied"], choice=["ngram", "mixed"])
def test_a_context_is_drawn_from_the_prior_and_costs_nothing(
    kind: str, form: str, choice: str, batch: Batch, tape: NoiseTape
) -> None:
    model, behind = noisy(kind, choice), fed_twice(batch)
    guide = attach(form, model)
    bound_terms = terms(model, guide, behind)
    sites = [name for name, node in guide.trace.nodes.items() if "prior" in node["infer"]]
    for module in (m for m in ngrams(model) if "decoder" in m.site):
        node = guide.trace.nodes[module.site]
        q, p, value = node["fn"], node["infer"]["prior"], node["value"]
        assert torch.equal(p.context.mask.latent[..., 0] > 0, behind.target_latent)
        tape.rewind(site=sites.index(module.site))
        of_prior = p.rsample()
        assert torch.equal(value[:, :, :2], of_prior[:, :, :2])
        assert not torch.isclose(value[:, :, 2], of_prior[:, :, 2]).any()
        elsewhere = value.clone()
        elsewhere[:, :, :2] += 1
        assert torch.allclose(q.log_prob(elsewhere), q.log_prob(value), atol=1e-10)
        counted = Normal(q.location, q.scale), Normal(p.location, NOISE)
        tensor = torch.distributions.kl_divergence(*counted).sum((-3, -1)) * behind.target_latent
        assert torch.allclose(bound_terms.kl[module.site], tensor.sum(-1), atol=1e-10)


def test_locations_of_a_strict_product_depend_on_no_draw(batch: Batch) -> None:
    model = noisy(choice="mixed")
    guide = attach("mean-field", model)
    locations = []
    for _ in range(2):
        terms(model, guide, batch)
        locations.append({m.site: guide.trace.nodes[m.site]["fn"].location for m in ngrams(model)})
    assert all(torch.equal(value, locations[1][site]) for site, value in locations[0].items())
    with PlugIn(), poutine.trace() as plain:
        model.states(batch)
    for module in ngrams(model):
        value, family = plain.trace.nodes[module.site]["value"], guide.families[module.block.key]
        expected = value * (1 + family.location.gain) + family.location.bias
        assert torch.allclose(locations[0][module.site], expected, atol=1e-12)


@pairwise(kind=KINDS, choice=CHOICES, form=["tied", "mean-field", "cascaded"])
def test_every_parameter_of_the_outputs_learns(
    kind: str, choice: str, form: str, batch: Batch
) -> None:
    model = noisy(kind, choice, options={"learned_scale": True}).train()
    guide = attach(form, model)
    with pyro.validation_enabled(False):
        Head_ELBO(analytic=True).loss_and_grads(model, guide, batch)
    for module in ngrams(model):
        parts = [*module.named_parameters()]
        if form != "tied":
            parts += guide.families[module.block.key].named_parameters()
        for name, parameter in parts:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().sum() > 0, name


@every_kind
@every_choice
def test_the_plug_in_network_is_that_without_noise(kind: str, choice: str, batch: Batch) -> None:
    model, plain = noisy(kind, choice), build(kind, **CHOICES[choice]).eval()
    plain.load_state_dict(model.state_dict())
    expected = plug_in_log_likelihood(plain, batch)
    assert torch.equal(plug_in_log_likelihood(model, batch), expected)
    assert not torch.equal(model.states(batch), model.states(batch))
    report = evaluate(model, attach("cascaded", model), [batch], num_samples=3)
    assert {module.site for module in ngrams(model)} <= set(report.kl_by_site)
    assert report.elbo == pytest.approx(report.log_likelihood - sum(report.kl_by_site.values()))


def test_a_network_of_ngrams_without_noise_is_run_once(batch: Batch) -> None:
    model = build("language-model", "delta", **NGRAMS).eval()
    report = evaluate(model, FORMS["tied"](model), [batch], num_samples=30)
    assert report.elbo == report.iwae == report.plug_in


@pairwise(kind=KINDS, choice=CHOICES, plugged=[True, False], pruned=[True, False])
def test_token_by_token_is_the_whole(
    kind: str, choice: str, plugged: bool, pruned: bool, batch: Batch, tape: Any
) -> None:
    """Under noise too: the same noise meets the same rows; of the smaller network too."""
    model = noisy(kind, choice, blocks=ATTENTION_TYPES[1])
    if pruned:
        remove_heads(model, {**kept_of(model, KEPT), "decoder.1.self": [1]})
    tape.rewind()
    with PlugIn() if plugged else nullcontext():
        whole, state = model.predict(model.states(batch)), model.begin(batch)
        steps = []
        for t in range(batch.decoder_input.shape[1]):
            tape.rewind(query=t)
            steps.append(model.step(batch.decoder_input[:, [t]], state))
    valid = batch.target_valid
    assert torch.allclose(torch.cat(steps, 1)[valid], whole[valid], atol=1e-10)


def test_a_row_of_padding_has_a_bound_of_0_and_no_gradient_with_a_context_too(batch: Batch) -> None:
    model = build("translation", "delta", **NGRAMS, ngram_context=True).eval()
    assert batch.source is not None
    padding = (torch.zeros_like(ids[:1]) for ids in (batch.target, batch.source))
    rows = zip((batch.target, batch.source), padding, strict=True)
    log_probs = plug_in_log_likelihood(model, Batch(*(torch.cat(row) for row in rows)))
    torch.testing.assert_close(log_probs[:-1], plug_in_log_likelihood(model, batch))
    assert log_probs[-1] == 0
    log_probs.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_hypotheses_share_a_sentence_and_not_its_draws(batch: Batch) -> None:
    model = noisy("language-model", "ngram")
    with poutine.trace() as trace:
        state = model.begin(batch)
        model.step(torch.full((3, 2, 1), BOS), state)
    value = trace.trace.nodes["decoder.0.self.outputs"]["value"]
    assert value.shape == (3, 2, HEADS, 1, SIZE)
    assert not torch.equal(value[:, 0], value[:, 1])


def test_what_heads_say_is_drawn_in_float32_at_least(batch: Batch) -> None:
    module = noisy("language-model").decoder.layers[0].inner.bfloat16()
    x = torch.randn(3, 4, 6, dtype=torch.bfloat16)
    with poutine.trace() as trace:
        output = module(x, AttentionMask(batch.target_latent))
    node = trace.trace.nodes["decoder.0.self.outputs"]
    assert node["fn"].context.scores.dtype == node["value"].dtype == torch.float32
    assert output.dtype == torch.bfloat16


# Gated.


def gated(
    kind: str = "translation",
    choice: str = "ngram",
    heads: int = 2,
    prior: str = "independent",
    **more: Any,
) -> Any:
    """A model whose n-gram blocks have another number of heads than attention has."""
    network = sizes(**{**CHOICES[choice], "ngram_heads": heads, **more})
    return made_with(kind, Gating(HEADS, CHAIN[kind]), network, prior)


def made_with(kind: str, selector: Any, network: Any, prior: str = "independent") -> Any:
    """A model that selects its heads, or gates them."""
    logit_prior = make_prior(prior)
    if kind == "translation":
        model: Any = Translation(11, 13, network, latents=[Logits(logit_prior), selector])
    else:
        model = LanguageModel(13, network, latents=[Logits(logit_prior), selector])
    return jiggle(model, 0.1).double().eval()


def spread(model: Any, form: str = "tied") -> Any:
    """A guide whose first gate of every block is closed, the last one between, the rest open."""
    guide = FORMS[form](model).double().eval()
    with torch.no_grad():
        for family in guide.selections.values():
            family.weight.fill_(4.0 / Gating.gain)
            family.weight[:, 0] = -4.0 / Gating.gain
            family.weight[:, -1] = 0.9 / Gating.gain
    return guide


def test_a_gate_multiplies_what_its_head_says(batch: Batch) -> None:
    model = gated("language-model")
    guide = spread(model)
    value = guide.selections["decoder_0_self"]().mode[0].detach()
    module = model.decoder.layers[0].inner
    x, reach = model.embedding(batch.decoder_input), model.attention_mask(batch.target_latent)
    heads = module._compute_heads(x, reach, None, None) * value[:, None, None]
    expected = module.out(heads.transpose(-2, -3).flatten(-2))
    with PlugIn(), WithSelection(guide):
        output = module(x, reach, None, model.select_heads(batch)["decoder.0.self"])
    assert torch.allclose(output, expected, atol=1e-12)
    assert 0 < float(value[-1]) < 1


def test_heads_behind_closed_gates_are_not_compared(batch: Batch) -> None:
    model = gated("language-model", heads=4)
    guide, term = spread(model), Disagreement(("output",), diagonal=False)
    recording, record = Recording(model), term.record_agreement(model)
    with PlugIn(), WithSelection(guide), recording as heads, record as computed_record:
        model.states(batch)
    statement = normalize(heads["decoder.0.self"].outputs[:, 1:], dim=-1)
    tensor = agreement(statement, diagonal=False) * batch.target_valid
    expected = tensor.sum(-1) / batch.target_valid.sum(-1)
    assert torch.allclose(computed_record["decoder.0.self"], expected, atol=1e-12)


@pairwise(
    kind=KINDS, choice=CHOICES, lines=[("independent", 0.0), ("independent", NOISE), ("delta", 0.0)]
)
def test_closed_gates_are_removed_with_equal_outputs(
    kind: str, choice: str, lines: tuple[str, float], batch: Batch
) -> None:
    prior, noise = lines
    model = gated(kind, choice, prior=prior, ngram_noise=noise)
    guide = spread(model, "cascaded")
    small, cut = copy.deepcopy((model, guide))
    distributions = fold_selection(small, cut)
    kept = {
        name: distribution.mode[0].nonzero().flatten().tolist()
        for name, distribution in distributions.items()
    }
    remove_heads(small, kept, cut)
    assert not small.selecting_blocks
    assert "l0_penalty.value" not in small.state_dict()
    assert len([*cut.parameters()]) < len([*guide.parameters()])
    assert all_heads(small).keys() == all_heads(model).keys() == distributions.keys()
    assert all(len(h) == len(all_heads(model)[n]) - 1 for n, h in all_heads(small).items())
    whole = plug_in_log_likelihood(model, batch, guide)
    assert torch.allclose(plug_in_log_likelihood(small, batch, cut), whole, rtol=0, atol=1e-12)
    with WithSelection(guide):
        one = beam_search(model, batch, num_beams=2, max_new_tokens=5)
    other = beam_search(small, batch, num_beams=2, max_new_tokens=5)
    for mine, theirs in zip(one, other, strict=True):
        assert [h.tokens for h in mine] == [h.tokens for h in theirs]
        assert [h.log_prob for h in mine] == pytest.approx([h.log_prob for h in theirs], abs=1e-10)
    assert terms(small, cut, batch).elbo.isfinite().all()


# Chosen.


@pairwise(kind=KINDS, choice=CHOICES, strategy=STRATEGIES)
def test_candidates_fill_the_places_of_every_task(
    kind: str, choice: str, strategy: Strategy, batch: Batch
) -> None:
    selector = make_selector(strategy, HEADS, 2 * HEADS, CHAIN[kind][:2], 2, 2)
    model = made_with(kind, selector, sizes(**CHOICES[choice]))
    guide = FORMS["tied"](model).double().eval()
    own = torch.tensor([0, 1, 1])
    several = replace(batch, source_task=own, target_task=own)
    with PlugIn(), WithSelection(guide):
        together = plug_in_log_likelihood(model, several, guide)
        for row, task in enumerate(own.tolist()):
            tasks = torch.full((3,), task)
            one = replace(batch, source_task=tasks, target_task=tasks, one_task=True)
            alone = plug_in_log_likelihood(model, one, guide)
            assert torch.allclose(alone[row], together[row], atol=1e-10)
    bound_terms = terms(model, guide, several)
    selecting = {module.block.name for module in model.selecting_blocks}
    assert {module.block.name for module in ngrams(model)} <= selecting
    expected = set() if strategy == "static" else {f"{name}.selection" for name in selecting}
    assert set(bound_terms.shared_kl) == expected


def test_a_chosen_candidate_reads_the_slice_of_its_place(batch: Batch) -> None:
    selector = make_selector("group", HEADS, 2 * HEADS, ATTENTION_TYPES[1:2])
    model = made_with("language-model", selector, sizes(**CHOICES["slices"]), "delta")
    plain = build("language-model", "delta", **CHOICES["slices"]).eval()
    chosen = torch.tensor([3, 1, 5])
    mine = model.state_dict()
    for name, tensor in plain.state_dict().items():
        picked = mine[name] if tensor.shape == mine[name].shape else mine[name][chosen]
        tensor.copy_(picked)
    value = torch.zeros(1, 6).index_fill(1, chosen, 1.0)
    drawn = {f"decoder.{layer}.self.selection": value for layer in range(2)}
    states = model.states(batch, model.select_heads(batch, drawn))
    assert torch.allclose(states, plain.states(batch), atol=1e-12)


def test_a_selection_of_other_numbers_of_heads_is_refused() -> None:
    selector = make_selector("group", HEADS, 2 * HEADS, ATTENTION_TYPES[1:2])
    network = sizes(**NGRAMS, ngram_heads=2)
    with pytest.raises(ValueError, match="ngram_heads must be 3 too, got 2"):
        LanguageModel(13, network, latents=[selector])
    mixed = sizes(mixers="encoder=ngram", ngram_heads=2)
    model = Translation(11, 13, mixed, latents=[selector])
    types = {module.block.attention_type for module in model.selecting_blocks}
    assert types == {ATTENTION_TYPES[1]}


# Removed.

KEPT = {"encoder.0.self": [2], "encoder.1.self": [], "decoder.0.self": [0, 2]}


def test_a_head_takes_its_weights_and_no_others(batch: Batch) -> None:
    model = build("language-model", **CHOICES["slices"])
    before = copy.deepcopy(model.decoder.layers[0].inner)
    remove_heads(model, {"decoder.0.self": [0, 2]})
    after = model.decoder.layers[0].inner
    assert torch.equal(after.weight, before.weight[[0, 2]])
    assert torch.equal(after.bias, before.bias[[0, 2]])
    columns = before.out.weight.unflatten(1, (HEADS, SIZE))[:, [0, 2]].flatten(1)
    assert torch.equal(after.out.weight, columns)
    assert torch.equal(after.out.bias, before.out.bias)
    assert after.out.in_features == 2 * SIZE
    assert (after.block.heads, after.slice_of_head) == (2, [0, 2])
    twice = copy.deepcopy(model)
    remove_heads(twice, {"decoder.0.self": [1]})
    assert twice.decoder.layers[0].inner.slice_of_head == [2]


@in_turn(form=FORMS, choice=CHOICES)
def test_scales_and_moves_go_with_their_heads(form: str, choice: str, batch: Batch) -> None:
    model = noisy(choice=choice, options={"learned_scale": True})
    guide = attach(form, model)
    small, cut = copy.deepcopy((model, guide))
    remove_heads(small, kept_of(model, KEPT), cut)
    bound_terms = terms(small, cut, batch)
    assert {m.site for m in small.latent_outputs} <= set(bound_terms.kl)
    assert bound_terms.elbo.isfinite().all()
    for module in ngrams(model):
        heads = KEPT.get(module.block.name, [0, 1, 2])
        rest = next(m for m in ngrams(small) if m.block.name == module.block.name)
        assert (rest.prior is None) == (not heads)
        assert (module.site in bound_terms.kl) == bool(heads)
        if not heads:
            assert module.block.key not in getattr(cut, "families", {})
        elif form != "tied":
            family, before = (g.families[module.block.key] for g in (cut, guide))
            assert torch.equal(family.location.gain, before.location.gain[heads])
            assert torch.equal(family.location.bias, before.location.bias[heads])
            assert torch.equal(family.scale.log, before.scale.log[heads])
        if heads:
            assert torch.equal(rest.prior.scale.log, module.prior.scale.log[heads])


class MixingOutputs(MeanField):
    """What one n-gram head says is drawn in the light of what all say."""

    def outputs(self, module: HeadBlock) -> Family:
        heads = module.block.heads
        return Gaussian(OwnMLP(heads, 2), HeadScale(heads))


def test_heads_that_are_drawn_together_are_removed_together(batch: Batch) -> None:
    model = noisy("language-model")
    guide = MixingOutputs(model).double().eval()
    before = terms(model, guide, batch)
    message = "^block 'decoder.0.self': in the prior or guide a head depends on others, and an"
    with pytest.raises(ValueError, match=message):
        remove_heads(model, {"decoder.0.self": [0, 2]}, guide)
    assert terms(model, guide, batch).kl.keys() == before.kl.keys()
    remove_heads(model, {"decoder.0.self": []}, guide)
    after = terms(model, guide, batch)
    assert set(before.kl) - set(after.kl) == {"decoder.0.self.outputs"}


# Read and compared.


@every_kind
@every_choice
def test_importance_is_the_gradient_of_a_mask(kind: str, choice: str, batch: Batch) -> None:
    model = noisy(kind, choice)
    importances = gradient_importance(model, [batch], normalise=False)
    assert importances.keys() == all_heads(model).keys()
    module = ngrams(model)[0]
    expected = torch.zeros(HEADS)
    for sentence in range(3):
        mask = torch.ones(HEADS, requires_grad=True)

        def multiply(_: Any, inputs: tuple[Tensor], mask: Tensor = mask) -> Tensor:
            heads = inputs[0].unflatten(-1, (HEADS, SIZE)) * mask[:, None]
            return heads.flatten(-2)

        handle = module.out.register_forward_pre_hook(multiply)
        loss = -plug_in_log_likelihood(model, batch)[sentence]
        expected += torch.autograd.grad(loss, mask)[0].abs() / 3
        handle.remove()
    assert torch.allclose(importances[module.block.name], expected, atol=1e-10)


def test_a_recording_tells_what_was_said(batch: Batch) -> None:
    model = noisy(choice="mixed")
    with Recording(model) as heads, poutine.trace() as trace:
        model.states(batch)
    site = "decoder.1.self.outputs"
    assert torch.equal(heads[site].outputs, trace.trace.nodes[site]["value"])
    names = [block.name for block in heads.attention_blocks]
    assert "decoder.1.self" in {block.name for block in heads.blocks} - set(names)
    with pytest.raises(ValueError, match=r"block 'decoder.1.self' has no weights"):
        heads[site].weights  # noqa: B018
    assert set(to_datatree(heads)["decoder-self"]["weights"].coords["layer"].values) == {0, 2}


def test_similarity_takes_what_ngram_heads_say(batch: Batch) -> None:
    model = noisy(choice="mixed")
    measures = measure(model, [batch])
    with Recording(model) as heads, PlugIn():
        model.states(batch)
    outputs = heads["decoder.1.self"].outputs
    unit = normalize(outputs, dim=-1)
    tensor = torch.einsum("bitd,bjtd->bijt", unit, unit) * batch.target_valid[:, None, None]
    expected = tensor.sum((0, -1)) / batch.target_valid.sum()
    assert torch.allclose(measures.cosine["decoder.1.self"], expected, atol=1e-12)
    assert "decoder.1.self" not in measures.entropy.keys() | measures.confidence.keys()
    assert "decoder.0.self" in measures.entropy
    sites = divergence(model, [batch]).summed
    assert set(sites) == {block.site() for block in model.blocks}


def test_disagreement_takes_what_ngram_heads_say(batch: Batch) -> None:
    model = noisy("language-model")
    term = Disagreement(("output", "subspace"))
    with term.record_agreement(model) as recorded, poutine.trace() as traced:
        model.states(batch)
    value = traced.trace.nodes["decoder.0.self.outputs"]["value"]
    tensor = agreement(normalize(value, dim=-1)) * batch.target_valid
    expected = tensor.sum(-1) / batch.target_valid.sum(-1)
    assert torch.allclose(recorded["decoder.0.self"], expected, atol=1e-12)
    assert Disagreement(("position", "subspace")).blocks(model) == []
    model.disagreement = term
    nodes = poutine.trace(model.train()).get_trace(batch).nodes
    terms_of = {name for name in nodes if "disagree" in name}
    assert terms_of == {f"decoder.{layer}.self.disagreement" for layer in range(2)}


@pytest.mark.parametrize("choice", ["ngram", "mixed"])
def test_relevance_passes_through_what_is_drawn(choice: str, batch: Batch) -> None:
    model, plain = noisy(choice=choice), build(**CHOICES[choice]).eval()
    plain.load_state_dict(model.state_dict())
    mine, theirs = propagate(model, batch), propagate(plain, batch)
    assert torch.allclose(mine.inputs, theirs.inputs, atol=1e-10)
    assert set(mine.heads) == set(all_heads(model))
    assert torch.allclose(mine.inputs[mine.valid], mine.logit[mine.valid], atol=1e-5)


def test_roles_need_weights(batch: Batch) -> None:
    with pytest.raises(ValueError, match="roles need attention weights"):
        detect(noisy("language-model"), [batch], [])
