"""Relevance is conserved, and is what the rule says, neuron by neuron."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from latentheads.batch import EOS, Batch
from latentheads.contrib.heads import Propagated, Recording, propagate, relevance
from latentheads.guides import Tied
from latentheads.handlers import PlugIn
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.models import Translation, make_prior
from latentheads.models.adapters import Adapters
from latentheads.models.network import PreNorm
from latentheads.names import ATTENTION_TYPES
from latentheads.pruning import remove_heads
from tests.crossing import pairwise
from tests.tiny import (
    ADAPTIVE,
    HEADS,
    KINDS,
    SOURCE_TYPES,
    TARGET_TYPES,
    build,
    jiggle,
    padded,
    rows,
    sizes,
    small_batch,
)
from tests.typechecking import unchecked

TINY = 1e-13
UNEVEN = (4.0, -4.0, 0.9)
"""log alpha of an open gate, of a closed one, and of one between."""
every_norm = pytest.mark.parametrize("norm", ["pre", "post"])


def wide(kind: str = "translation", prior: str = "cascaded", **changes: Any) -> Any:
    """A model whose feed-forward layers are never off as a whole."""
    return build(kind, prior, feed_forward=23, **changes).eval()


def gated(gates: Sequence[float], prior: str = "cascaded", **changes: Any) -> Any:
    """A model with gates in all chains, and a guide whose gates have these log alphas."""
    network, logit_prior = sizes(feed_forward=23, **changes), make_prior(prior)
    model = Translation(
        SOURCE_TYPES,
        TARGET_TYPES,
        network,
        latents=[Logits(logit_prior), Gating(HEADS, ATTENTION_TYPES)],
    )
    model = jiggle(model, 0.1).double().eval()
    guide = Tied(model).double()
    for family in guide.selections.values():
        family.weight.data = torch.tensor([gates]) / Gating.gain
    return model, guide


def conserved(propagated: Propagated, within: float = 1e-9) -> bool:
    return torch.allclose(
        propagated.inputs[propagated.valid], propagated.logit[propagated.valid], atol=within
    )


@pairwise(kind=KINDS, norm=["pre", "post"], prior=["delta", "residual", "independent", "cascaded"])
def test_all_of_the_logit_arrives_at_the_inputs(kind: str, norm: str, prior: str) -> None:
    model, batch = wide(kind, prior, norm=norm), small_batch()
    propagation = propagate(model, batch, stabiliser=TINY)
    with PlugIn():
        top = model.predict(model.states(batch)).amax(-1)
    assert torch.allclose(propagation.logit, top)
    assert conserved(propagation)
    assert propagation.logit.abs().min() > 0.1


@every_norm
def test_it_is_conserved_behind_gates_and_in_a_network_without_latents(norm: str) -> None:
    model, guide = gated(UNEVEN, norm=norm)
    with WithSelection(guide):
        assert conserved(propagate(model, small_batch(), stabiliser=TINY))
    assert conserved(propagate(wide(blocks="none", norm=norm), small_batch(), stabiliser=TINY))


@pairwise(
    kind=KINDS, norm=["pre", "post"], stack=[("ngram,attention", "2"), ("local,ngram", "2,3")]
)
def test_it_is_conserved_by_every_mixer(kind: str, norm: str, stack: tuple[str, str]) -> None:
    mixers, windows = stack
    options = {"mixers": mixers, "windows": windows, "ngram_width": "11"}
    model = wide(kind, norm=norm, ngram_context=kind == "translation", **options)
    assert conserved(propagate(model, small_batch(), stabiliser=TINY))


@pairwise(kind=KINDS, norm=["pre", "post"])
def test_it_is_conserved_by_ngrams_that_read_slices(kind: str, norm: str) -> None:
    options = {"mixers": "ngram", "windows": "2", "ngram_width": "11", "ngram_slices": True}
    model = wide(kind, norm=norm, ngram_context=kind == "translation", **options)
    assert conserved(propagate(model, small_batch(), TINY), 1e-6)


@pairwise(norm=["pre", "post"], common=[True, False])
def test_it_is_conserved_by_adapters(norm: str, common: bool) -> None:
    shape = {"network": sizes(feed_forward=23, norm=norm), "adapters": Adapters(17, 2, 2)}
    model = Translation(SOURCE_TYPES, TARGET_TYPES, latents=(), **shape)
    model = jiggle(model, 0.1).double().eval()
    tasks = torch.tensor([1, 1, 1] if common else [0, 1, 0])
    batch = replace(small_batch(), source_task=tasks, target_task=tasks, one_task=common)
    assert conserved(propagate(model, batch, TINY), 1e-6)


@every_norm
def test_it_is_conserved_where_nobody_says_anything(norm: str) -> None:
    """Heads that are removed or closed, and units that are all off, leave their biases alone."""

    pruned = wide(norm=norm, prior="delta")
    remove_heads(pruned, {"encoder.0.self": [], "decoder.1.cross": [], "decoder.0.self": [1]})
    off = wide(norm=norm)
    for name, parameter in off.named_parameters():
        if "feed_forward.inner.bias" in name:
            nn.init.constant_(parameter, -99.0)
    closed, guide = gated([-4.0] * HEADS, norm=norm)
    with WithSelection(guide):
        for model in (pruned, off, closed):
            assert conserved(propagate(model, small_batch(), TINY), 1e-6)


@every_norm
def test_a_bias_hands_its_part_on_as_a_linear_layers_does(norm: str) -> None:
    """Sliced n-grams of one head compute what whole ones do, by other functions."""
    options = {"mixers": "ngram", "windows": "2", "ngram_heads": 1, "norm": norm}
    whole = wide("language-model", **options)
    sliced = wide("language-model", ngram_slices=True, **options)
    sliced.load_state_dict(whole.state_dict())
    computed_heads = [propagate(model, small_batch()).heads for model in (whole, sliced)]
    for name, heads in computed_heads[0].items():
        assert torch.allclose(heads, computed_heads[1][name], atol=1e-10)


@every_norm
def test_it_is_conserved_in_single_precision(norm: str) -> None:
    changes = {"width": 24, "layers": 5, "norm": norm, "prior": "cascaded"}
    model = jiggle(build(feed_forward=53, **changes), 0.2).float().eval()
    assert conserved(propagate(model, small_batch()), 1e-4)


def test_a_head_behind_a_closed_gate_has_no_relevance() -> None:
    model, guide = gated(UNEVEN)
    with WithSelection(guide):
        propagation = propagate(model, small_batch())
    for heads in propagation.heads.values():
        assert not heads[..., 1].any()
        assert heads[..., 0].any()


def test_a_large_stabiliser_takes_relevance() -> None:
    model, batch = wide(), small_batch()
    loss = [
        (propagation.inputs - propagation.logit)[propagation.valid].abs().max()
        for propagation in (propagate(model, batch, stabiliser=size) for size in (1e-12, 0.01))
    ]
    assert loss[0] < 1e-6 < 1e-3 < loss[1]


class Rule:
    """The rule, one neuron at a time."""

    def __call__(
        self, weight: Tensor, bias: Tensor | None, inputs: Tensor, above: Tensor
    ) -> Tensor:
        """Relevance of the inputs of ``weight inputs + bias`` from that of the outputs."""
        actual = torch.zeros_like(inputs)
        for v, relevant in enumerate(above.tolist()):
            parts = (weight[v] * inputs).tolist()
            if bias is not None:
                size = sum(abs(part) for part in parts)
                parts = [part + float(bias[v]) * abs(part) / size for part in parts]
            for u, part in enumerate(parts):
                actual[u] += part / sum(parts) * relevant
        return actual

    def linear(self, layer: nn.Linear, inputs: Tensor, above: Tensor) -> Tensor:
        return self(layer.weight, layer.bias, inputs, above)

    def norm(self, layer: nn.LayerNorm, x: Tensor, above: Tensor) -> Tensor:
        scale = layer.weight / (x.var(unbiased=False) + layer.eps).sqrt()
        centring = torch.eye(len(x)) - 1 / len(x)
        return self(scale[:, None] * centring, layer.bias, x, above)


@torch.no_grad()
def by_loops(model: Any, batch: Batch, index: int, rule: Rule) -> tuple[Tensor, float]:
    """Relevance of the heads and of the inputs for one prediction of one layer."""
    layer = model.decoder.layers[0]
    own, forward = layer.inner.attention, layer.feed_forward
    first, second, pre = layer.inner_step.norm, layer.feed_forward_step.norm, layer.inner_step.pre
    with PlugIn(), Recording(model) as heads:
        state = model.states(batch)[0, index]
    recorded = heads["decoder.0.self"]
    weights, o = recorded.weights[0, :, index], recorded.joined[0, index]
    x = model.embedding(batch.decoder_input)[0]
    read = first(x) if pre else x
    sum1 = x[index] + own.out(o)
    y = sum1 if pre else first(sum1)
    read2 = second(y) if pre else y
    hidden = forward.inner(read2).relu()
    sum2 = y + forward.outer(hidden)

    logits = model.output.table.weight @ state
    top = int(logits.argmax())
    r = rule(model.output.table.weight[top : top + 1], None, state, logits[top : top + 1])
    r = rule.norm(model.decoder.norm if pre else second, sum2, r)
    r_hidden = rule.linear(forward.outer, hidden, r * (sum2 - y) / sum2)
    r_read = rule.linear(forward.inner, read2, r_hidden)
    r = r * y / sum2 + (rule.norm(second, y, r_read) if pre else r_read)
    r = r if pre else rule.norm(first, sum1, r)
    r_o = rule.linear(own.out, o, r * (sum1 - x[index]) / sum1)
    arrived = float((r * x[index] / sum1).sum())
    width = len(o)
    weight, bias = own.in_weight[2 * width :], own.in_bias[2 * width :]
    for s in range(index + 1):
        value = weight @ read[s] + bias
        r_value = weights[:, s].repeat_interleave(width // HEADS) * value / o * r_o
        r_read = rule(weight, bias, read[s], r_value)
        arrived += float((rule.norm(first, x[s], r_read) if pre else r_read).sum())
    return r_o.unflatten(-1, (HEADS, -1)).sum(-1), arrived


@every_norm
def test_it_is_the_rule_neuron_by_neuron(norm: str) -> None:
    model = wide("language-model", layers=1, norm=norm)
    batch = Batch.of([[5, 9, 4, EOS]])
    propagation = propagate(model, batch, TINY)
    for index in range(4):
        heads, arrived = by_loops(model, batch, index, Rule())
        assert torch.allclose(propagation.heads["decoder.0.self"][0, index], heads, atol=1e-7)
        assert float(propagation.inputs[0, index]) == pytest.approx(arrived, abs=1e-6)
        assert arrived == pytest.approx(float(propagation.logit[0, index]), abs=1e-6)


def test_without_biases_it_is_input_times_gradient_at_constant_weights() -> None:
    """A network of one linear path: the gradient itself is the rule."""
    model = wide("language-model", layers=1, norm=PreNorm(final_norm=False))
    for name, parameter in model.named_parameters():
        if "bias" in name or "feed_forward.outer" in name:
            nn.init.zeros_(parameter)
    batch = rows(small_batch(), [0])
    with torch.enable_grad(), PlugIn(), Recording(model, keep_gradients=True) as heads:
        logits = model.predict(model.states(batch))
    joined = heads["decoder.0.self"].joined
    (gradient,) = torch.autograd.grad(logits[0, 2].max(), joined)
    expected = (joined * gradient)[0, 2].unflatten(-1, (HEADS, -1)).sum(-1)
    decoder_0_self = propagate(model, batch, stabiliser=TINY).heads["decoder.0.self"][0, 2]
    assert torch.allclose(decoder_0_self, expected, atol=1e-9)


def test_a_prediction_hears_no_later_word_and_no_padding() -> None:
    model, batch = wide(), small_batch()
    propagation = propagate(model, batch, stabiliser=TINY)
    more = propagate(model, padded(batch, 2, 3), stabiliser=TINY)
    for name, heads in propagation.heads.items():
        assert torch.allclose(
            more.heads[name][:, :4][propagation.valid], heads[propagation.valid], atol=1e-8
        )
    longer = Batch(torch.cat([batch.target[:1, :2], torch.tensor([[9, EOS]])], 1), batch.source[:1])
    other = propagate(model, longer, stabiliser=TINY)
    for name, heads in propagation.heads.items():
        assert torch.allclose(other.heads[name][0, :3], heads[0, :3], atol=1e-8)


def test_shares_of_a_block_add_up_and_means_are_over_predictions() -> None:
    model, batch = wide(), small_batch()
    propagation = propagate(model, batch)
    relevances = relevance(model, [rows(batch, [0, 1]), rows(batch, [2])])
    assert relevances.predictions == int(batch.target_valid.sum())
    assert relevances.inputs == pytest.approx(relevances.logit)
    for name, heads in propagation.heads.items():
        rows_ = heads[propagation.valid]
        share = rows_ / rows_.abs().sum(-1, keepdim=True)
        assert torch.allclose(relevances.shares[name], share.mean(0), atol=1e-6)
        assert torch.allclose(relevances.raw[name], rows_.mean(0), atol=1e-6)


def test_an_adaptive_softmax_has_a_logit_too() -> None:
    changes = {"width": 12, **ADAPTIVE, "norm": "pre"}
    model = wide("language-model", **changes)
    batch = Batch.of([[4, 10, 6, 2], [12, 2]])
    propagation = propagate(model, batch, stabiliser=TINY)
    assert conserved(propagation)


def test_it_leaves_no_trace_and_names_what_is_wrong() -> None:
    model, batch = wide(dropout=0.5).train().requires_grad_(False), small_batch()
    with torch.no_grad():
        relevance(model, [batch])
    assert model.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    with pytest.raises(ValueError, match=r"stabiliser must be positive and finite, got 0.0"):
        propagate(model, batch, stabiliser=0.0)
    with pytest.raises(ValueError, match="a model runs on a Batch, got list"):
        unchecked(propagate)(model, [batch])
    with pytest.raises(ValueError, match="batches must be at least one batch, got none"):
        relevance(model, [])
    nameless = build("language-model")
    nameless.words = nameless._modules.pop("embedding")
    with pytest.raises(ValueError, match="model must have a child whose name ends in embedding"):
        propagate(nameless, batch)


def test_the_output_layer_is_differentiated_once_for_all_positions() -> None:
    model, passes = wide(), 0
    predict = model.predict

    def counted(states: Tensor) -> Tensor:
        def count(gradient: Tensor) -> None:
            nonlocal passes
            passes += 1

        logits: Tensor = predict(states)
        if logits.requires_grad:
            logits.register_hook(count)
        return logits

    with mock.patch.object(model, "predict", counted):
        propagated = propagate(model, small_batch())
    assert propagated.valid.shape[1] > 1
    assert passes == 1
