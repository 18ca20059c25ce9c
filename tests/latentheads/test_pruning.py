"""Removal: a smaller network that says the same as one whose heads were silenced."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pyro import poutine

from latentheads.attention.block import HeadBlock
from latentheads.attention.disagreement import Disagreement
from latentheads.batch import Batch
from latentheads.contrib.heads import Recording, gradient_importance
from latentheads.decoding.beam_search import beam_search
from latentheads.guides import Cascaded
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.latents.selection.strategies import make_selector
from latentheads.models import PRIORS, Translation
from latentheads.names import ATTENTION_TYPES
from latentheads.pruning import all_heads, fold_selection, most_important, remove_heads
from latentheads.training import checkpoints
from latentheads.training.checkpoints import weights
from tests.crossing import pairwise
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import FORMS, KINDS, attach, attentions_of, build, jiggle, kept_of
from tests.typechecking import unchecked

KEPT = {
    "encoder.0.self": [2],
    "encoder.1.self": [],
    "decoder.0.self": [0, 2],
    "decoder.1.self": [1],
    "decoder.0.cross": [],
}
LEARNED = {"learned_scale": True}


@torch.no_grad()
def silenced(model: Any, kept: Mapping[str, Sequence[int]]) -> Any:
    """A copy of the full network in which the output of all other heads is multiplied by zero."""
    model = copy.deepcopy(model)
    for module in (module for module in model.modules() if isinstance(module, HeadBlock)):
        for head in set(range(3)) - set(kept.get(module.block.name, range(3))):
            module.output_weight[:, head * module.size : (head + 1) * module.size] = 0
    return model


def removed(model: Any, kept: Mapping[str, Sequence[int]], guide: Any = None) -> Any:
    pair = copy.deepcopy((model, guide))
    remove_heads(pair[0], kept, pair[1])
    return pair[0] if guide is None else pair


def options(prior: str) -> dict[str, Any]:
    return {} if prior in ("delta", "residual") else LEARNED


NGRAMS = {"mixers": "ngram", "windows": "2,3", "ngram_width": "5"}
MIXED = {"mixers": "ngram,local,attention", "windows": "3,2,5", "layers": 3}
NETWORKS: dict[str, dict[str, Any]] = {
    "attention": {"layers": 3},
    "n-grams": NGRAMS,
    "n-grams of a context": {**NGRAMS, "ngram_context": True},
    "slices": {**NGRAMS, "ngram_slices": True},
    "n-grams between": {**MIXED, "mixers": "attention,ngram,attention", "windows": "2"},
    "a chain that begins late": MIXED,
}


@pairwise(kind=KINDS, prior=PRIORS, network=NETWORKS)
def test_removal_equals_silence(kind: str, prior: str, network: str, batch: Batch) -> None:
    sizes = dict(NETWORKS[network])
    if kind != "translation":
        sizes.pop("ngram_context", None)
    model = build(kind, prior, options=options(prior), **sizes).eval()
    kept = kept_of(model, KEPT)
    small, reference = removed(model, kept), silenced(model, kept)
    log_likelihoods = plug_in_log_likelihood(small, batch)
    assert torch.allclose(
        log_likelihoods, plug_in_log_likelihood(reference, batch), rtol=0, atol=1e-12
    )
    assert not torch.allclose(log_likelihoods, plug_in_log_likelihood(model, batch), atol=1e-6)
    numbers = [sum(p.numel() for p in m.parameters()) for m in (small, model)]
    assert numbers[0] < numbers[1]
    one, other = (beam_search(m, batch, num_beams=2, max_new_tokens=4) for m in (small, reference))
    for mine, theirs in zip(one, other, strict=True):
        assert [h.tokens for h in mine] == [h.tokens for h in theirs]
        assert [h.log_prob for h in mine] == pytest.approx([h.log_prob for h in theirs], abs=1e-10)


@pytest.mark.parametrize(
    ("prior", "form", "drawn"),
    [
        ("independent", "tied", {"encoder": [1, 0, 3], "cross": [0, 3, 2]}),
        ("independent", "inverse", {"encoder": [3, 0, 3], "cross": [0, 3, 3]}),
        ("residual", "tied", {"encoder": [3, 3, 3], "cross": [3, 3, 3]}),
        ("cascaded", "tied", {"encoder": [3, 3, 3], "cross": [3, 3, 3]}),
    ],
)
def test_what_is_drawn_is_what_something_reads(
    prior: str, form: str, drawn: dict[str, list[int]]
) -> None:
    model = build(prior=prior, layers=3)
    remove_heads(model, {**KEPT, "decoder.2.cross": [0, 1]}, attach(form, model))
    blocks = [module.block for module in attentions_of(model)]
    assert {kind: [b.heads for b in blocks if kind in b.name] for kind in drawn} == drawn


def test_a_running_sum_keeps_a_head_along_its_chain_and_no_further() -> None:
    model = build("language-model", "residual", layers=3)
    remove_heads(model, {"decoder.0.self": [0], "decoder.1.self": [2], "decoder.2.self": []})
    assert [module.block.heads for module in attentions_of(model)] == [2, 2, 0]
    assert [module.num_active_heads for module in attentions_of(model)] == [1, 1, 0]
    assert [module.active_heads for module in attentions_of(model)] == [[0], [1], []]
    assert [module.projection.in_features for module in attentions_of(model)] == [2, 2, 0]
    assert [block.layer for block in model.blocks] == [0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_bound_and_guide_of_every_form_survive(form: str, batch: Batch) -> None:
    model = build(prior="independent", options=LEARNED).eval()
    guide = attach(form, model)
    small, cut = removed(model, kept_of(model, KEPT), guide)
    bound_terms = terms(small, cut, batch)
    assert bound_terms.elbo.isfinite().all()
    assert set(bound_terms.kl) == {block.site() for block in small.blocks}
    assert len(small.blocks) < len(model.blocks)
    assert all(
        (kl >= 0).all()
        for site, kl in bound_terms.kl.items()
        if bound_terms.how[site] == "analytic"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_guide_of_alignments_alone_lets_heads_below_them_go(kind: str, batch: Batch) -> None:
    model = aligned(SHAPES["two blocks"], kind=kind, blocks="all")
    kept = kept_of(model, KEPT)
    small, guide = removed(model, kept, Cascaded(model))
    bound_terms = terms(small, guide, batch)
    assert bound_terms.elbo.isfinite().all()
    close = {"rtol": 0, "atol": 1e-12}
    silent = plug_in_log_likelihood(silenced(model, kept), batch)
    assert torch.allclose(plug_in_log_likelihood(small, batch), silent, **close)
    assert not torch.allclose(plug_in_log_likelihood(model, batch), silent, atol=1e-6)


def test_under_noise_the_smaller_network_says_the_same(tape: Any, batch: Batch) -> None:
    """A chain that mixes heads draws all of them, so the same noise meets the same heads."""
    model = build(prior="cascaded").eval()
    kept = {"encoder.0.self": [1], "decoder.1.self": [0, 2], "decoder.1.cross": [2]}
    small, reference = removed(model, kept), silenced(model, kept)
    states = []
    for network in (small, reference):
        tape.rewind()
        states.append(network.states(batch))
    assert torch.allclose(*states, rtol=0, atol=1e-12)


def test_scales_of_a_posterior_are_cut_with_their_heads(batch: Batch) -> None:
    model = build(prior="independent", options=LEARNED, layers=1).eval()
    guide = attach("cascaded", model)
    small, cut = removed(model, {"encoder.0.self": [2], "decoder.0.cross": []}, guide)
    assert cut.families["encoder_0_self"].scale.log.shape[0] == 3
    assert "decoder_0_cross" not in cut.families
    alone = small.encoder.layers[0].inner
    assert alone.block.heads == 3
    tied = removed(model, {"encoder.0.self": [2]}).encoder.layers[0].inner
    whole = model.encoder.layers[0].inner
    assert torch.equal(tied.prior.scale.log, whole.prior.scale.log[[2]])


def test_heads_may_go_in_several_steps(batch: Batch) -> None:
    model = build(prior="residual").eval()
    once, twice = (copy.deepcopy(model) for _ in range(2))
    remove_heads(once, {"encoder.0.self": [2], "encoder.1.self": [], "decoder.0.cross": [1]})
    remove_heads(twice, {"encoder.0.self": [0, 2], "encoder.1.self": [1], "decoder.0.cross": [1]})
    unchecked(remove_heads)(twice, {"encoder.0.self": iter([1]), "encoder.1.self": []})
    remove_heads(twice, {})
    one, other = (weights(model=m) for m in (once, twice))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("prior", ["delta", "cascaded"])
def test_the_smaller_network_is_saved_and_rebuilt(prior: str, batch: Batch, tmp_path: Path) -> None:
    first, second = build(prior=prior).eval(), build(prior=prior).eval()
    for model in (first, second):
        remove_heads(model, kept_of(model, KEPT))
    path = tmp_path / "weights.safetensors"
    checkpoints.save(path, weights(model=first), {"step": 1})
    checkpoints.restore(path, checkpoints.load(path)[0], model=second)
    assert torch.equal(*(plug_in_log_likelihood(model, batch) for model in (first, second)))
    full = sum(p.numel() for p in build(prior=prior).parameters())
    assert sum(p.numel() for p in first.parameters()) < full


def test_the_smaller_network_learns(batch: Batch) -> None:
    model = build(prior="cascaded")
    remove_heads(model, kept_of(model, KEPT))
    model.train().likelihood(model.states(batch), batch).log_prob(batch.scored).sum().backward()
    silent = [m.attention for m in attentions_of(model) if not m.num_active_heads]
    unused = {id(p) for a in silent for p in (a.in_weight, a.in_bias, a.out.weight)}
    for name, parameter in model.named_parameters():
        if id(parameter) not in unused and "embedding" not in name:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


def test_heads_of_the_smaller_network_can_be_read(batch: Batch) -> None:
    model = build(prior="cascaded").eval()
    whole = gradient_importance(silenced(model, KEPT), [batch], normalise=False)
    remove_heads(model, KEPT)
    importances = gradient_importance(model, [batch], normalise=False)
    assert importances.keys() == whole.keys() - {"encoder.1.self", "decoder.0.cross"}
    for name, values in importances.items():
        assert torch.allclose(values, whole[name][list(KEPT.get(name, range(3)))], atol=1e-12)
    with Recording(model) as heads, PlugIn():
        model.states(batch)
    assert heads["decoder.0.self"].weights.shape[1] == 2
    assert heads["decoder.0.self"].outputs.shape[1] == 2


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"encoder.7.self": [0]}, "block must be one of .*; got 'encoder.7.self'"),
        ({"encoder.0.self": [3]}, "block 'encoder.0.self' has 3 heads, got head 3"),
        ({"encoder.0.self": [-1]}, "block 'encoder.0.self' has 3 heads, got head -1"),
        ({"encoder.0.self": [True]}, "a head of block 'encoder.0.self' must be a whole number"),
    ],
)
def test_a_head_that_is_not_there_is_refused(kept: dict[str, list[int]], message: str) -> None:
    model = build()
    before = all_heads(model)
    with pytest.raises(ValueError, match=message):
        remove_heads(model, kept)
    assert all_heads(model) == before


def test_a_guide_of_another_model_is_not_pruned() -> None:
    model, guide = build(), attach("cascaded", build())
    before = all_heads(model)
    for prune in (
        lambda: remove_heads(model, {"encoder.0.self": [0]}, guide),
        lambda: fold_selection(model, guide),
    ):
        with pytest.raises(ValueError, match=r"^guide must be one of this model"):
            prune()
    assert all_heads(model) == before


@pytest.mark.parametrize("kept", [[1], [0, 2]])
def test_a_new_guide_that_reads_another_number_of_heads_below_is_refused(
    kept: list[int], batch: Batch
) -> None:
    model = build("language-model").eval()
    remove_heads(model, {"decoder.0.self": kept})
    message = (
        f"^block 'decoder.1.self' has 3 heads, the one below {len(kept)}: a prior or guide that"
    )
    with pytest.raises(ValueError, match=message):
        terms(model, attach("cascaded", model), batch)
    assert terms(model, attach("mean-field", model), batch).elbo.isfinite().all()


def test_candidates_are_not_removed() -> None:
    selector = make_selector("subset", heads=3, candidates=5, attention_types=ATTENTION_TYPES[:1])
    model = jiggle(Translation(11, 13, latents=[selector]), 0.1)
    with pytest.raises(ValueError, match=r"selects its heads .*; of gates call fold_sel"):
        remove_heads(model, {"decoder.0.self": [0]})


def test_the_least_important_heads_go_first() -> None:
    importance = {
        "encoder.0.self": torch.tensor([0.5, 0.1, 0.9]),
        "decoder.0.self": torch.tensor([0.5, 0.7]),
        "decoder.0.cross": torch.tensor([0.0, 0.2]),
    }
    assert most_important(importance, 7) == {
        name: list(range(len(v))) for name, v in importance.items()
    }
    three = {"encoder.0.self": [0, 2], "decoder.0.self": [1], "decoder.0.cross": []}
    assert most_important(importance, 3) == three
    kept = most_important(importance, 4, ["decoder-self", "decoder-cross"])
    assert kept == {"encoder.0.self": [0, 1, 2], "decoder.0.self": [1], "decoder.0.cross": []}
    importance["encoder.0.self"][2] = torch.nan
    assert most_important(importance, 6)["encoder.0.self"] == [0, 1], "it never speaks"
    with pytest.raises(ValueError, match=r"heads must lie in 3 \.\.\. 7, got 2"):
        most_important(importance, 2, ["decoder-self", "decoder-cross"])
    with pytest.raises(ValueError, match="number must be a whole number, got"):
        unchecked(most_important)(importance, 2.5)
    with pytest.raises(ValueError, match="'encoder'"):
        most_important(importance, 3, ["encoder"])
    lists = {name: values.tolist() for name, values in importance.items()}
    assert unchecked(most_important)(lists, 6) == most_important(importance, 6)


def test_heads_that_are_left_may_be_rewarded_for_differing(batch: Batch) -> None:
    model = build(prior="cascaded")
    remove_heads(model, kept_of(model, KEPT))
    model.disagreement = Disagreement(("output", "subspace", "position"), diagonal=False)
    with poutine.trace() as trace:
        model.train()(batch)
    factors = {name: n["fn"].log_factor for name, n in trace.trace.nodes.items() if "agree" in name}
    assert set(factors) == {"decoder.0.self.disagreement", "decoder.1.cross.disagreement"}
    assert all(value.isfinite().all() for value in factors.values())
