"""Heads behind gates, and heads removed from a network of transformers for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyro
import pytest
import torch
import transformers
from torch.nn import functional
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

import latentheads as lh
from latentheads.contrib.heads import measure
from latentheads.contrib.hf import from_pretrained
from latentheads.contrib.hf.addresses import find_heads
from latentheads.contrib.hf.removal import check_prunable, effective_weight
from latentheads.guides import Cascaded, MeanField, Tied
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.logits.priors import Independent
from latentheads.pruning import all_heads, fold_selection, remove_heads
from tests.latentheads.contrib.hf.networks import (
    IDS,
    REAL,
    bart,
    gpt2,
    grouped,
    image,
    inputs_of,
    labels_of,
    network,
)
from tests.tiny import jiggle

KEPT: dict[str, dict[str, list[int]]] = {
    "gpt2": {"decoder.0.self": [2], "decoder.1.self": []},
    "llama": {"decoder.0.self": [1, 3], "decoder.1.self": [2, 3]},
    "bert": {"encoder.1.self": [0, 2]},
    "bart": {"encoder.0.self": [], "decoder.0.self": [1], "decoder.1.cross": [0]},
}


def silence(model: Any, kept: dict[str, list[int]]) -> None:
    """Has the heads that are to go say nothing."""
    for block in model._pretrained_blocks():
        gone = set(range(block.block.heads)) - set(kept.get(block.block.name, range(9)))
        with torch.no_grad():
            weight = block.output_weight.unflatten(1, (block.block.heads, -1))
            weight[:, sorted(gone)] = 0


@pytest.mark.parametrize("name", KEPT)
@torch.no_grad()
def test_a_smaller_network_says_the_same_and_is_kept_in_a_folder(name: str, tmp_path: Path) -> None:
    model = lh.latent(network(name), "delta")
    batch = model.batch(inputs_of(model.network), labels_of(name))
    silence(model, KEPT[name])
    tokens, size = (
        model.token_distribution(batch),
        sum(p.numel() for p in model.network.parameters()),
    )
    want, whole = tokens.log_prob(batch.scored), all_heads(model)
    remove_heads(model, KEPT[name])
    assert sum(p.numel() for p in model.network.parameters()) < size
    counts = {n: len(h) for n, h in all_heads(model).items()}
    assert counts == {n: len(KEPT[name].get(n, h)) for n, h in whole.items()}
    torch.testing.assert_close(model.token_distribution(batch).log_prob(batch.scored), want)
    made = lh.contrib.hf.plain(model)
    made.save_pretrained(tmp_path)
    opened = from_pretrained(tmp_path).double().eval()
    assert type(opened) is type(made)
    assert opened.config.kept_heads == KEPT[name]
    again = lh.latent(opened, "delta")
    left = {n: len(h) or 1 for n, h in all_heads(model).items()}  # one is silent where all went
    assert {n: len(h) for n, h in all_heads(again).items()} == left
    torch.testing.assert_close(again.token_distribution(batch).log_prob(batch.scored), want)


@torch.no_grad()
def test_a_module_that_reshapes_by_its_number_of_keys_has_fewer() -> None:
    made = jiggle(grouped("StableLm"), 0.3).double().eval()
    inputs, block = {"input_ids": IDS, "attention_mask": REAL}, "decoder.0.self"
    with lh.heads(made).off([(block, 0), (block, 1)]):
        want = made(**inputs).logits
    model = lh.latent(made, "delta")
    remove_heads(model, {block: [2, 3]})
    torch.testing.assert_close(lh.contrib.hf.plain(model)(**inputs).logits, want)


def test_heads_removed_twice_are_known_by_the_places_they_began_with(tmp_path: Path) -> None:
    model = lh.latent(network("bert"), "delta")
    remove_heads(model, {"encoder.0.self": [0, 2]})
    remove_heads(model, {"encoder.0.self": [1]})
    assert model.network.config.kept_heads == {"encoder.0.self": [2]}
    model.network.save_pretrained(tmp_path)  # while it is latent
    opened = from_pretrained(tmp_path).double().eval()
    messages = {"input_ids": IDS, "attention_mask": REAL}
    with torch.no_grad():
        torch.testing.assert_close(
            opened(**messages).logits, lh.contrib.hf.plain(model)(**messages).logits
        )


@pytest.mark.parametrize(
    ("name", "block"), [("llama", "decoder.0.self"), ("bert", "encoder.1.self")]
)
@torch.no_grad()
def test_heads_of_an_opened_network_are_removed_too(name: str, block: str, tmp_path: Path) -> None:
    model = lh.latent(network(name), "delta")
    remove_heads(model, KEPT[name])
    lh.contrib.hf.plain(model).save_pretrained(tmp_path / "once")
    again = lh.latent(from_pretrained(tmp_path / "once").double().eval(), "delta")
    batch = again.batch(inputs_of(again.network), labels_of(name))
    silence(again, {block: [1]})
    want = again.token_distribution(batch).log_prob(batch.scored)
    remove_heads(again, {block: [1]})
    lh.contrib.hf.plain(again).save_pretrained(tmp_path / "twice")
    opened = from_pretrained(tmp_path / "twice").double().eval()
    assert opened.config.kept_heads == {**KEPT[name], block: KEPT[name][block][1:]}
    smaller = lh.latent(opened, "delta")
    assert all_heads(smaller)[block] == [0]
    torch.testing.assert_close(smaller.token_distribution(batch).log_prob(batch.scored), want)


def test_a_whole_network_whose_heads_nobody_finds_is_opened_too(tmp_path: Path) -> None:
    config = transformers.XLNetConfig(vocab_size=13, d_model=6, n_layer=1, n_head=3, d_inner=7)
    transformers.XLNetModel(config).save_pretrained(tmp_path)
    assert type(from_pretrained(tmp_path)) is transformers.XLNetModel


@torch.no_grad()
def test_a_network_whose_weights_have_other_names_in_a_folder_is_opened(tmp_path: Path) -> None:
    made = jiggle(image(), 0.3).eval().vit
    model = lh.latent(made, "delta")
    silence(model, kept := {"encoder.0.self": [1]})
    pixels = {"pixel_values": torch.randn(2, 1, 4, 4)}
    want = made(**pixels).last_hidden_state
    remove_heads(model, kept)
    lh.contrib.hf.plain(model).save_pretrained(tmp_path)
    opened = from_pretrained(tmp_path).double().eval()
    torch.testing.assert_close(opened(**pixels).last_hidden_state, want)


def test_a_guide_forgets_the_heads_that_go() -> None:
    model = lh.latent(jiggle(grouped(), 0.3).eval(), Independent(1.0, True))
    batch = model.batch({"input_ids": IDS, "attention_mask": REAL})
    remove_heads(model, {"decoder.0.self": [0, 1]}, guide := Tied(model))
    bound = lh.terms(model.eval(), guide, batch)
    assert bound.kl["decoder.0.self.logits"].tolist() == [0, 0, 0]
    assert [block.heads for block in model.blocks] == [2, 4]


def test_gates_are_pressed_and_folded_into_the_network() -> None:
    model = lh.latent(network("gpt2"), "delta", latents=[Gating(3, ("decoder-self",))])
    for parameter in model.network.parameters():
        parameter.requires_grad_(False)
    batch, guide = model.batch({"input_ids": IDS, "attention_mask": REAL}), Tied(model)
    assert model.l0_penalty is not None
    model.l0_penalty.value.fill_(100.0)
    with pyro.validation_enabled(False):
        lh.Head_ELBO(analytic=True).loss_and_grads(model.train(), guide, batch)
    assert all((family.weight.grad > 0).all() for family in guide.selections.values())
    model.eval()
    starts = [[-3.0, 0.5, 3.0], [3.0, -3.0, 0.5]]
    with torch.no_grad():
        for family, start in zip(guide.selections.values(), starts, strict=True):
            family.weight.copy_(torch.tensor([start]) / family.gain)
    with torch.no_grad(), lh.inference.PlugIn(), lh.latents.WithSelection(guide):
        want = model.token_distribution(batch).log_prob(batch.scored)
        written = model.network.generate(IDS, max_new_tokens=3, do_sample=False)
    bound = lh.terms(model, guide, batch)
    assert set(bound.shared_kl) == {"decoder.0.self.selection", "decoder.1.self.selection"}
    fold_selection(model, guide)
    remove_heads(model, {"decoder.0.self": [1, 2], "decoder.1.self": [0, 2]}, guide)
    with torch.no_grad():
        torch.testing.assert_close(model.token_distribution(batch).log_prob(batch.scored), want)
        made = lh.contrib.hf.plain(model)
        assert torch.equal(made.generate(IDS, max_new_tokens=3, do_sample=False), written)


def test_a_removal_that_would_change_the_network_is_refused_and_changes_nothing() -> None:
    def refuse(model: Any, kept: dict[str, list[int]], *messages: str, guide: Any = None) -> None:
        before = all_heads(model)
        with pytest.raises(ValueError) as refused:
            remove_heads(model, kept, guide)
        assert all(words in str(refused.value) for words in messages)
        assert all_heads(model) == before

    shared = lh.latent(grouped(), "delta")
    refuse(shared, {"decoder.0.self": [0], "decoder.1.self": [0, 1, 2]}, "decoder.1.self", "groups")
    model = lh.latent(gpt2(), "cascaded")
    refuse(model, {"decoder.0.self": [0]}, "decoder.0.self", "uses the logits")
    model = lh.latent(bart(), "independent")
    refuse(model, {"encoder.1.self": [0]}, "encoder.1.self", guide=Cascaded(model))
    refuse(lh.latent(network("t5"), "delta"), {"encoder.1.self": [0]}, "T5Attention", "a bias")
    seen = lh.latent(image("Beit", use_relative_position_bias=True), "delta")
    refuse(seen, {"encoder.0.self": [0]}, "BeitAttention", "a bias for each head")
    apart = lh.latent(grouped("StableLm", qk_layernorm=True), "delta")
    refuse(apart, {"decoder.0.self": [0, 2]}, "StableLmAttention", "the use of")


def test_code_that_is_decorated_is_read_too() -> None:
    class Wide(GPT2Attention):
        @torch.no_grad()
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.embed_dim, super().forward(*args, **kwargs)

    address = find_heads(gpt2())[0]
    check_prunable(address, [0])
    address.attention.__class__ = Wide
    with pytest.raises(ValueError, match="the layout of its weights is unknown"):
        check_prunable(address, [0])


def test_a_folder_within_a_folder_is_opened_and_what_a_folder_says_is_not_given(
    tmp_path: Path,
) -> None:
    made = network("bert")
    made.save_pretrained(tmp_path / "inner")
    assert type(from_pretrained(tmp_path, subfolder="inner")) is type(made)
    with pytest.raises(ValueError, match=r"^config cannot be given"):
        from_pretrained(tmp_path / "inner", config=made.config)
    with pytest.raises(ValueError, match=r"^output_loading_info cannot be given"):
        from_pretrained(tmp_path / "inner", output_loading_info=True)


class Adapted(torch.nn.Module):
    """An output projection with an adapter, as peft wraps it: the weight is that of the base."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base, self.weight, self.in_features = base, base.weight, base.in_features

    def forward(self, states: Any) -> Any:
        return self.base(states) + states.sum(-1, keepdim=True)


@torch.no_grad()
@pytest.mark.parametrize("condition_on", ["prefix", "target"])
def test_weights_that_are_not_stored_as_they_are_used_are_read(condition_on: Any) -> None:
    made = jiggle(bart(), 0.3).eval()
    for layer in made.model.decoder.layers:
        layer.encoder_attn.out_proj = Adapted(layer.encoder_attn.out_proj)
    model = lh.latent(made, "independent", latents=[lh.latents.AlignmentOptions()])
    base = model.heads[-1].address.projection.base
    base.weight[:, :3], base.bias[:] = -1, 0  # to the weight the adapter adds 1
    batch = model.batch(inputs_of(made), labels_of("bart"))
    guide = MeanField(model, condition_on=condition_on)
    assert lh.terms(model, guide, batch).elbo.isfinite().all()
    entropy = measure(model, [batch]).entropy["decoder.1.cross"]
    assert entropy.isnan().tolist() == [True, False]


class Dropped(Adapted):
    """One that drops outputs in training."""

    def forward(self, states: Any) -> Any:
        return functional.dropout(super().forward(states), 0.5, self.training)


def test_a_weight_is_read_without_bias_and_dropout() -> None:
    base = torch.nn.Linear(5, 3)
    part = Dropped(base).train()
    torch.testing.assert_close(effective_weight(part), base.weight + 1)
    assert part.training


@torch.no_grad()
def test_gates_are_not_folded_into_a_copy() -> None:
    model = lh.latent(bart(), "delta", latents=[lh.latents.GateOptions(blocks="decoder-cross")])
    guide = MeanField(model)
    torch.nn.utils.parametrizations.weight_norm(model.selecting_blocks[0].address.projection)
    with pytest.raises(ValueError, match="ParametrizedLinear cannot be changed"):
        fold_selection(model, guide)


class Plain(Adapted):
    """One that does not say how many inputs it has."""

    def __init__(self, base: Any) -> None:
        super().__init__(base)
        del self.in_features


@pytest.mark.parametrize("wrap", [Adapted, Plain, torch.nn.utils.parametrizations.weight_norm])
def test_weights_that_are_not_stored_as_they_are_used_are_not_changed(wrap: Any) -> None:
    made = jiggle(grouped(), 0.3).eval()
    attention = made.model.layers[0].self_attn
    attention.o_proj = wrap(attention.o_proj)
    with lh.heads(made).off([(0, 1)]):
        assert made(IDS).logits.isfinite().all()
    model = lh.latent(made, prior="delta")
    with pytest.raises(ValueError, match=r"^the weight of .* cannot be changed: load it without"):
        remove_heads(model, {"decoder.0.self": [1, 3]})
    lh.contrib.hf.plain(model)
    with pytest.raises(ValueError, match=r"^the weight of .* cannot be changed: load it without"):
        lh.latent(made, prior="delta", latents=[lh.latents.GateOptions(blocks="decoder-self")])
