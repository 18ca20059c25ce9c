"""Mixers: what reaches what, padding, parameters, decoding, chains."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from pyro import poutine
from torch import Tensor
from torch.nn import functional as F

from latentheads.attention.band import Band, BandMask
from latentheads.attention.disagreement import KINDS as KINDS_OF_DISAGREEMENT
from latentheads.attention.disagreement import Disagreement
from latentheads.attention.ngram import NGram
from latentheads.batch import Batch
from latentheads.contrib.heads import Recording
from latentheads.contrib.heads.divergence import divergence
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms
from latentheads.latents.logits.latent import Logits
from latentheads.latents.selection.strategies import STRATEGIES, Strategy, make_selector
from latentheads.mask import AttentionMask
from latentheads.models import PRIORS, Translation, make_prior
from latentheads.models.mixers import Mixer, SelfAttention
from latentheads.names import Block
from tests.crossing import in_turn, pairwise
from tests.models.hypotheses import assert_each_continues
from tests.tiny import (
    HEADS,
    KINDS,
    NOISY,
    NoiseTape,
    attach,
    build,
    counting,
    jiggle,
    latents,
    padded,
    sizes,
    small_batch,
)

WIDTH, LENGTH = 6, 7
MIXED = "ngram,local,attention"
"""A stack in which a chain begins late and changes its layout."""

CHOICES: dict[str, dict[str, Any]] = {
    "local": {"mixers": "local", "windows": "2"},
    "ngram": {"mixers": "ngram", "windows": "2,3"},
    "slices": {"mixers": "ngram", "windows": "2", "ngram_slices": True},
    "mixed": {"mixers": MIXED, "windows": "3,2,5", "layers": 3},
    "local above": {"mixers": "attention,local,local", "windows": "1,2,3", "layers": 3},
}
every_choice = pytest.mark.parametrize("choice", CHOICES)
every_kind = pytest.mark.parametrize("kind", KINDS)
both_ways = pytest.mark.parametrize("causal", [True, False])


def reach_of(causal: bool, lengths: tuple[int, ...] = (LENGTH,)) -> AttentionMask:
    valid = torch.arange(LENGTH) < torch.tensor(lengths)[:, None]
    return AttentionMask(valid, None if causal else valid, dtype=torch.float64)


def ngram(window: int, causal: bool, heads: int = HEADS, **options: Any) -> NGram:
    block = Block("decoder-self" if causal else "encoder-self", 0, heads)
    made = NGram(block, WIDTH, options.pop("head_width", 5), Band(window, causal), **options)
    return jiggle(made, 0.2)


def made(kind: str, window: int, causal: bool) -> Any:
    if kind in ("ngram", "slices"):
        return ngram(window, causal, slices=kind == "slices")
    if kind == "context":
        return ngram(window, causal, context=True)
    block = Block("decoder-self" if causal else "encoder-self", 0, HEADS)
    if kind == "attention":
        return jiggle(SelfAttention(block, WIDTH, None), 0.2)
    return jiggle(SelfAttention(block, WIDTH, None, band=Band(window, causal)), 0.2)


@every_choice
def test_every_python_sees_that_it_is_a_mixer(choice: str) -> None:
    """From Python 3.12 on isinstance() does not see the modules that a module registers."""
    for layer in build(**CHOICES[choice]).decoder.layers:
        for name in (*Mixer.__annotations__, "mix", "cache"):
            inspect.getattr_static(layer.inner, name)


# What reaches what.


@pairwise(
    causal=[True, False], kind=["attention", "local", "ngram", "slices"], window=[1, 2, 3, 11]
)
def test_exactly_the_window_reaches_an_output(kind: str, window: int, causal: bool) -> None:
    module, lengths = made(kind, window, causal), (LENGTH, 5)
    x = torch.randn(2, LENGTH, WIDTH, requires_grad=True)
    out, _ = module.mix(x, reach_of(causal, lengths), None)
    for row, length in enumerate(lengths):
        for t in range(length):
            # a projection that no dead ReLU can hide
            (gradient,) = torch.autograd.grad(out[row, t].square().sum(), x, retain_graph=True)
            reached = (gradient.abs().sum(-1) > 0).nonzero().tolist()
            far = LENGTH if kind == "attention" else window
            first, last = max(0, t - far + 1), t if causal else min(length - 1, t + far - 1)
            assert reached == [[row, s] for s in range(first, last + 1)]


def test_a_context_reaches_everything_but_padding() -> None:
    module, x = made("context", 1, False), torch.randn(2, LENGTH, WIDTH)
    reach = reach_of(False, (LENGTH, 4))
    before = module(x, reach)
    x[1, 4:] += 100
    assert torch.equal(module(x, reach)[1, :4], before[1, :4])
    x[:, 3] += 100
    assert (module(x, reach)[:, :4] != before[:, :4]).any(-1).all()


@pairwise(kind=KINDS, choice=CHOICES, context=[True, False])
def test_padding_changes_no_sentence(kind: str, choice: str, context: bool) -> None:
    options = CHOICES[choice]
    if context and (kind != "translation" or "ngram" not in options["mixers"]):
        return
    model, batch = build(kind, ngram_context=context, **options).eval(), small_batch()
    with PlugIn():
        plain, longer = model.states(batch), model.states(padded(batch, 3, 2))
    valid = batch.target_valid
    assert torch.allclose(longer[:, : valid.shape[1]][valid], plain[valid], atol=1e-12)


# What they compute.


@both_ways
@pytest.mark.parametrize("slices", [True, False])
@pytest.mark.parametrize("context", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_an_ngram_follows_its_equation(n: int, causal: bool, slices: bool, context: bool) -> None:
    x = torch.randn(LENGTH, WIDTH)
    module = ngram(n, causal, slices=slices, context=context)
    read = WIDTH // HEADS if slices else WIDTH
    zero, after = torch.zeros(WIDTH), 0 if causal else n - 1
    actual = module(x[None], reach_of(causal))[0]
    for t in range(LENGTH):
        heads = []
        for k in range(HEADS):
            mine = slice(k * read, (k + 1) * read) if slices else slice(None)
            near = range(t - n + 1, t + after + 1)
            window = torch.cat([(x[s] if 0 <= s < LENGTH else zero)[mine] for s in near])
            hidden = module.weight[k] @ window + module.bias[k]
            if module.context is not None:
                hidden = hidden + module.context[k] @ x.amax(0)[mine]
            heads.append(F.relu(hidden))
        assert torch.allclose(actual[t], module.out(torch.cat(heads)), atol=1e-12)


@every_kind
@pytest.mark.parametrize("prior", sorted(PRIORS))
def test_a_window_as_long_as_the_sentence_is_attention(kind: str, prior: str) -> None:
    batch = small_batch()
    whole = build(kind, prior=prior).eval()
    local = build(kind, prior=prior, mixers="local", windows="5").eval()
    local.load_state_dict(whole.state_dict())
    with PlugIn():
        states, expected = local.states(batch), whole.states(batch)
    valid = batch.target_valid
    assert torch.allclose(states[valid], expected[valid], atol=1e-12)


def test_dropout_of_local_attention_and_of_ngrams_acts_while_training_alone() -> None:
    batch = small_batch()
    for choice, option in (("local", "attention_dropout"), ("ngram", "activation_dropout")):
        model = build("language-model", "delta", **CHOICES[choice], **{option: 0.5})
        for layer in model.decoder.layers:
            layer.feed_forward.dropout = 0.0
        assert not torch.equal(model.states(batch), model.states(batch))
        model.eval()
        assert torch.equal(model.states(batch), model.states(batch))


# Parameters.


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("slices", [True, False])
@pytest.mark.parametrize("context", [True, False])
@both_ways
def test_parameters_by_formula(heads: int, slices: bool, context: bool, causal: bool) -> None:
    n, w, d = 3, 5, WIDTH
    module = ngram(n, causal, heads, slices=slices, context=context)
    inputs = (n if causal else 2 * n - 1) + context
    read = d // heads if slices else d
    expected = heads * w * (inputs * read + 1) + (heads * w + 1) * d
    assert sum(p.numel() for p in module.parameters()) == expected


@pytest.mark.parametrize("slices", [True, False])
def test_an_n_gram_starts_as_one_matrix_or_as_one_for_each_slice(slices: bool) -> None:
    """Those of Glorot and Bengio 2010: the limit is that of what is read and what is made of it."""
    block, d, w, heads = Block("decoder-self", 0, 3), 12, 7, 3
    module = NGram(block, d, w, Band(5, causal=True), slices, context=True)
    fans = 6 * d // heads + w if slices else 6 * d + w * heads
    assert module.context is not None
    for weight in (module.weight, module.context):
        limit = (6 / fans) ** 0.5
        assert 0.9 * limit < weight.abs().max() <= limit


@pairwise(n=[1, 5, 9], slices=[True, False], context=[True, False], heads=[1, 4, 8])
def test_without_a_width_a_layer_is_as_large_as_attention(
    n: int, slices: bool, context: bool, heads: int
) -> None:
    d, band = 256, Band(n, causal=False)
    module = NGram(Block("encoder-self", 0, heads), d, 0, band, slices, context)
    total, attends = sum(p.numel() for p in module.parameters()), 4 * d**2 + 4 * d
    assert total == pytest.approx(attends, rel=0.05)


def test_a_network_says_heads_and_width_of_its_ngrams() -> None:
    model = build(mixers="encoder=ngram", windows="2,3", ngram_heads=2, ngram_width="5,7")
    actual = [layer.inner for layer in model.encoder.layers]
    assert [(m.block.heads, m.weight.shape[1], m.band.window) for m in actual] == [
        (2, 5, 2),
        (2, 7, 3),
    ]
    assert all(isinstance(layer.inner, SelfAttention) for layer in model.decoder.layers)


@pytest.mark.parametrize(
    "options",
    [
        {"mixers": "encoder=ngram"},
        {"windows": "encoder=3"},
        {"ngram_width": "encoder=3"},
        {"ngram_context": True},
    ],
)
def test_a_language_model_has_no_encoder(options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(ValueError, match=rf"^{name} (of an encoder|is for a model with an)"):
        build("language-model", **{"mixers": "ngram", **options})


# Decoding.


@pairwise(
    kind=KINDS,
    choice=CHOICES,
    prior=["cascaded", "released", "autoregressive"],
    parts=[(1, 1, 1, 1), (2, 2), (1, 3)],
)
def test_token_by_token_is_the_whole(
    kind: str, choice: str, prior: str, parts: tuple[int, ...], batch: Batch
) -> None:
    model = build(kind, prior=prior, **CHOICES[choice]).eval()
    with PlugIn():
        state, whole = model.begin(batch), model.predict(model.states(batch))
        steps = [model.step(part, state) for part in batch.decoder_input.split(parts, 1)]
    assert torch.allclose(torch.cat(steps, 1), whole, atol=1e-10)


@every_kind
@every_choice
def test_hypotheses_go_on_with_their_own_past(kind: str, choice: str, batch: Batch) -> None:
    model = build(kind, prior="cascaded", **CHOICES[choice]).eval()
    assert_each_continues(model, batch)


@every_choice
def test_a_cache_holds_no_more_than_the_window(choice: str, batch: Batch) -> None:
    model = build(**CHOICES[choice]).eval()
    with PlugIn():
        state = model.begin(batch)
        for token in batch.decoder_input.split(1, 1):
            model.step(token, state)
    for mixing, layer in zip(model.decoder.layers, CHOICES[choice]["mixers"].split(",") * 3):
        cache = state.caches[mixing.inner.block.name]
        held = getattr(cache, "inputs", None) if layer == "ngram" else cache.keys
        last = batch.decoder_input.shape[1] if layer == "attention" else mixing.inner.band.before
        assert held.shape[-2] == min(last, batch.decoder_input.shape[1])


# Latents.


def test_sites_keep_the_layer_of_the_stack(batch: Batch) -> None:
    model = build(mixers="encoder=ngram,attention decoder=ngram")
    sites = ["encoder.1.self.logits", "decoder.0.cross.logits", "decoder.1.cross.logits"]
    assert latents(model, batch) == sites
    first = model.blocks[0]
    assert (first.is_lowest, first.layer, first.first_layer) == (True, 1, 1)


@pytest.mark.parametrize("prior", ["cascaded", "released"])
def test_the_first_block_of_a_late_chain_has_no_fusion(prior: str) -> None:
    model = build(prior=prior, mixers="encoder=ngram,local,attention", layers=3)
    with_fusion = {
        name.partition(".inner")[0]
        for name, _ in model.encoder.named_parameters()
        if "fusion" in name
    }
    assert with_fusion == {"layers.2"}


class Chained:
    """The logits that the blocks of the encoder drew, and what each saw below."""

    def __init__(self, model: Any, batch: Batch) -> None:
        nodes = poutine.trace(model).get_trace(batch).nodes
        names = [f"encoder.{layer}.self.logits" for layer in range(3)]
        self.drawn = {n: nodes[s]["value"] for n, s in enumerate(names) if s in nodes}
        self.context = {n: nodes[s]["fn"].context for n, s in enumerate(names) if s in nodes}


def test_a_chain_passes_by_ngrams(batch: Batch) -> None:
    chained = Chained(build(prior="residual", mixers="attention,ngram,attention", layers=3), batch)
    assert chained.context[0].below is None
    assert torch.equal(chained.context[2].below, chained.drawn[0])


def test_a_chain_changes_its_layout(batch: Batch) -> None:
    options = {"mixers": "local,local,attention", "windows": "2,3,5", "layers": 3}
    chained = Chained(build(prior="independent", **options), batch)
    narrow, wide, below = chained.drawn[0], chained.drawn[1], chained.context[1].below
    assert (narrow.shape[-1], wide.shape[-1]) == (3, 5)
    assert torch.equal(below[..., 1:-1], narrow)
    assert not below[..., [0, -1]].any()
    every, _ = chained.context[1].mask.to_dense(wide)
    assert torch.equal(chained.context[2].below, every)
    chained = Chained(build(mixers="attention,local,ngram", windows="2", layers=3), batch)
    expected = Band(2, causal=False).from_dense(chained.drawn[0])
    assert torch.equal(chained.context[1].below, expected)


@in_turn(choice=CHOICES, form=["tied", "mean-field", "cascaded"], kind=KINDS)
def test_padding_changes_no_bound(
    kind: str, form: str, choice: str, batch: Batch, tape: NoiseTape
) -> None:
    noise = {"ngram_noise": 0.3} if "ngram" in CHOICES[choice]["mixers"] else {}
    model = build(kind, prior="cascaded", **noise, **CHOICES[choice]).eval()
    guide = attach(form, model).eval()
    elbos = []
    for one in (batch, padded(batch, 2, 3)):
        tape.rewind()
        elbos.append(terms(model, guide, one).elbo)
    assert torch.allclose(*elbos, atol=1e-10)


@pytest.mark.parametrize("prior", NOISY)
def test_the_band_is_the_event(prior: str, batch: Batch) -> None:
    model = build(prior=prior, **CHOICES["local"])
    node = poutine.trace(model).get_trace(batch).nodes["encoder.1.self.logits"]
    assert node["value"].shape == (3, HEADS, 5, 3)
    assert isinstance(node["fn"].context.mask, BandMask)
    pairs = node["fn"].context.mask.pairs
    assert pairs.tolist() == [4 * 3 - 2, 2 * 3 - 2, 5 * 3 - 2]


# Reading.


def test_recordings_show_a_band_among_all_keys(batch: Batch) -> None:
    whole, local = build(prior="delta"), build(prior="delta", mixers="local", windows="5")
    local.load_state_dict(whole.state_dict())
    with Recording(whole) as expected, Recording(local) as recording:
        whole.states(batch)
        local.states(batch)
    for name, valid in (
        ("encoder.0.self", batch.source_valid),
        ("decoder.1.self", batch.target_valid),
    ):
        seen, right = recording[name].weights, expected[name].weights
        real = valid[:, None, :, None].expand_as(right)
        assert torch.allclose(seen[real], right[real], atol=1e-12)


def test_disagreement_of_a_full_band_is_that_of_attention(batch: Batch) -> None:
    whole, local = build(prior="delta"), build(prior="delta", mixers="local", windows="5")
    local.load_state_dict(whole.state_dict())
    term = Disagreement(tuple(KINDS_OF_DISAGREEMENT), 1.0, None, True)
    values: list[dict[str, Tensor]] = []
    for model in (whole, local):
        with term.record_agreement(model) as recorded:
            model.states(batch)
        values.append(recorded)
    for name, value in values[0].items():
        assert torch.allclose(values[1][name], value, atol=1e-10)


def test_no_block_runs_where_ngrams_stand(batch: Batch) -> None:
    model = build("language-model", mixers="ngram")
    with counting(model) as seen:
        assert torch.isfinite(model(batch)).all()
    assert seen == []
    assert divergence(model, [batch]).average() is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_band_of_selected_heads_is_attention_where_it_holds_all(
    strategy: Strategy, batch: Batch
) -> None:
    chooses, actual = (
        make_selector(strategy, HEADS, 2 * HEADS, ("encoder-self", "decoder-self")),
        [],
    )
    for mixers in ("attention", "local"):
        network, prior = sizes(mixers=mixers, windows="" if mixers == "attention" else "5"), "delta"
        model = (
            Translation(11, 13, network, latents=[Logits(make_prior(prior)), chooses])
            .double()
            .eval()
        )
        if actual:
            model.load_state_dict(actual[0][0].state_dict())
        torch.manual_seed(1)
        actual.append((model, poutine.block(model.states)(batch)))
    valid = batch.target_valid
    assert torch.allclose(actual[0][1][valid], actual[1][1][valid], atol=1e-12)
