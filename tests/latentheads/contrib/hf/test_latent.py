"""A network of transformers made latent: what it computed before, bounds, and plain again."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import accelerate
import pyro
import pytest
import torch
import transformers
from pyro import poutine
from pyro.infer import SVI
from pyro.optim import Adam
from torch import Tensor
from torch.nn import functional as F

import latentheads as lh
from latentheads.contrib.heads import (
    PositionalDetector,
    RareWordDetector,
    Recording,
    analyse,
    detect,
    gradient_importance,
    likeliest_links,
    measure,
    name_queries_and_keys,
    relevance,
)
from latentheads.contrib.heads.tokens import attention_tokens
from latentheads.contrib.hf.addresses import NAME, find_heads
from latentheads.guides import Cascaded, Guide, Tied
from latentheads.latents.copy.heads import CopyHeads
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.selection.static import StaticSelector
from latentheads.models import PRIORS, make_prior
from latentheads.names import ATTENTION_TYPES
from latentheads.pruning import remove_heads
from tests.latentheads.contrib.hf.networks import (
    IDS,
    NETWORKS,
    PATCHES,
    REAL,
    TARGETS,
    WRITERS,
    bart,
    bert,
    gemma3,
    gpt2,
    grouped,
    image,
    inputs_of,
    labels_of,
    network,
    qwen2vl,
    refuse,
    source_of,
)
from tests.tiny import NoiseTape, attach, jiggle
from tests.typechecking import unchecked


def made_latent(name: str, prior: Any = "independent", **options: Any) -> tuple[Any, Any]:
    model = lh.latent(network(name), prior, **options).eval()
    return model, model.batch(inputs_of(model.network), labels_of(name))


def counted(message: Any, real: Tensor = REAL) -> Tensor:
    """The logits at real positions; padding is nobody's."""
    logits = message.logits
    same = logits.ndim == 3 and logits.shape[:2] == real.shape
    return logits[real.bool()] if same else logits


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_without_noise_a_latent_network_says_what_it_said_before(name: str) -> None:
    made = network(name)
    inputs = inputs_of(made)
    before, kind = counted(made(**inputs)), made.config._attn_implementation
    model = lh.latent(made, "delta")
    assert made.config._attn_implementation != kind
    through_model = model.run(model.batch(inputs, labels_of(name)))
    for message in (through_model, made(**inputs)):
        torch.testing.assert_close(counted(message), before, rtol=0, atol=1e-12)
    assert lh.contrib.hf.plain(model) is made
    assert made.config._attn_implementation == kind
    assert torch.equal(counted(made(**inputs)), before)


@torch.no_grad()
def test_scores_that_a_network_caps_are_capped() -> None:
    network = grouped("Gemma2", attn_logit_softcapping=0.5, head_dim=2)
    network = jiggle(network, 0.5).double().eval()
    network.set_attn_implementation("eager")
    capped = network(IDS).logits
    lh.latent(network, "delta")
    # transformers has that softmax in float32
    torch.testing.assert_close(network(IDS).logits, capped, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_another_network_of_its_configuration_stays_as_it_was(name: str) -> None:
    made = network(name)
    other = type(made)(made.config).to(made.dtype).eval()
    inputs = inputs_of(made)
    before = counted(other(**inputs))
    first = lh.latent(made, "delta")
    assert torch.equal(counted(other(**inputs)), before)
    second = lh.latent(other).eval()
    batch = second.batch(inputs, labels_of(name))
    lh.contrib.hf.plain(first)
    assert set(lh.terms(second, Tied(second), batch).how.values()) == {"tied"}
    made(**inputs)
    lh.contrib.hf.plain(second)
    assert torch.equal(counted(other(**inputs)), before)


@torch.no_grad()
def test_a_network_that_was_told_to_call_other_attention_has_no_bound() -> None:
    model, batch = made_latent("gpt2")
    kept = lh.terms(model, Tied(model), batch).how
    model.network.set_attn_implementation("eager")
    refuse(lambda: lh.terms(model, Tied(model), batch), "eager", "undoes it")
    model.network.set_attn_implementation("latentheads")
    assert lh.terms(model, Tied(model), batch).how == kept


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("beams", [1, 2])
@torch.no_grad()
def test_without_noise_it_writes_the_same_token_for_token(name: str, beams: int) -> None:
    made = network(name)
    options = {"max_new_tokens": 4, "do_sample": False, "num_beams": beams}
    inputs = {key: value.flip(-1) for key, value in source_of(made).items()}
    before = made.generate(**inputs, **options)
    lh.latent(made, "delta")
    assert torch.equal(made.generate(**inputs, **options), before)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_tied_guide_costs_exactly_nothing(name: str) -> None:
    model, batch = made_latent(name, "cascaded")
    bound = lh.terms(model, Tied(model), batch)
    assert set(bound.how.values()) == {"tied"}
    assert all(torch.equal(kl, torch.zeros(3)) for kl in bound.kl.values())
    assert list(bound.kl) == [block.site() for block in model.blocks]
    assert bound.elbo.isfinite().all()


def test_sites_are_named_as_the_librarys_own() -> None:
    model, _ = made_latent("bart")
    names = ["encoder.0.self", "encoder.1.self"]
    names += [f"decoder.{layer}.{side}" for layer in (0, 1) for side in ("self", "cross")]
    assert [block.site() for block in model.blocks] == [f"{name}.logits" for name in names]
    assert [block.heads for block in model.blocks] == [3, 3, 2, 2, 2, 2]


@pytest.mark.parametrize("name", NETWORKS)
def test_padding_changes_no_bound(name: str, tape: NoiseTape) -> None:
    model, batch = made_latent(name)
    guide = attach("cascaded", model).eval()
    whole = lh.terms(model, guide, batch)
    short = {key: value[1:] for key, value in batch.inputs.items() if key != "position_ids"}
    padded = short.keys() & {"input_ids", "attention_mask"}  # sounds have no mask
    short |= {key: short[key][:, :3] for key in padded}
    labels = labels_of(name)
    if labels is not None:
        labels = labels[1:, :3] if labels.shape == IDS.shape else labels[1:]
    tape.rewind(order=[1, 2])
    alone = lh.terms(model, guide, model.batch(short, labels))
    torch.testing.assert_close(alone.log_likelihood, whole.log_likelihood[1:])
    for site, kl in alone.kl.items():
        torch.testing.assert_close(kl, whole.kl[site][1:])
        assert (kl[1] > 0).all()


@pytest.mark.parametrize("name", ["gpt2", "llama", "roberta"])
@torch.no_grad()
def test_a_text_padded_on_the_left_is_the_same_text(name: str) -> None:
    model = lh.latent(network(name), "delta")
    left = {"input_ids": IDS[1:2, :2], "attention_mask": REAL[1:2, :2]}
    actual = model.token_distribution(model.batch(left)), model.batch(left)
    turned = {"input_ids": IDS[:2].flip(-1), "attention_mask": REAL[:2].flip(-1)}
    turned["input_ids"][1, -2:] = IDS[1, :2]
    padded = model.batch(turned)
    torch.testing.assert_close(
        model.token_distribution(padded).log_prob(padded.scored)[1:],
        actual[0].log_prob(actual[1].scored),
    )


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_labels_of_a_text_padded_on_the_left_are_those_of_the_same_text(name: str) -> None:
    """Those that a collator gives: the tokens, and none at padding."""
    model = lh.latent(network(name), "delta")
    tokens = []
    for ids, real in ((IDS, REAL), (IDS.flip(-1), REAL.flip(-1))):
        inputs = {"input_ids": ids, "attention_mask": real}
        own = model.batch(inputs)
        collated = model.batch(inputs, ids.masked_fill(real == 0, -100))
        assert torch.equal(own.scored, collated.scored)
        tokens.append(lh.evaluate(model, Tied(model), [collated]).tokens)
    assert tokens[0] == tokens[1]


def test_the_likelihood_is_the_loss_of_the_network() -> None:
    for name in ("gpt2", "bert", "classifier", "bart"):
        model, batch = made_latent(name, "delta")
        inputs = {k: v for k, v in batch.inputs.items() if k != "position_ids"}
        labels = labels_of(name)
        if labels is None:
            labels = IDS.masked_fill(REAL == 0, -100)
        loss = model.network(**inputs, labels=labels).loss
        tokens = model.token_distribution(batch)
        mean = -tokens.log_prob(batch.scored).sum() / tokens.valid.sum()
        torch.testing.assert_close(mean, loss.double())


@torch.no_grad()
@pytest.mark.parametrize("name", ["Bart", "MBart"])
def test_the_decoder_of_a_classifier_is_fed_the_source_and_not_the_classes(name: str) -> None:
    made = jiggle(bart(name, f"{name}ForSequenceClassification"), 0.3).eval()
    ids, classes = torch.tensor([[3, 4, 5, 1], [6, 7, 1, 2]]), torch.tensor([0, 1])
    inputs = {"input_ids": ids, "attention_mask": (ids != 2).long()}
    expected = made(**inputs).logits.log_softmax(-1)[range(2), classes]
    model = lh.latent(made, "delta")
    batch = model.batch(inputs, classes)
    torch.testing.assert_close(model.token_distribution(batch).log_prob(batch.scored), expected)


@torch.no_grad()
def test_a_network_of_text_and_images_is_a_language_model() -> None:
    made = jiggle(gemma3(), 0.3).eval()
    ids = torch.tensor([[2, 12, 4, 5, 6], [12, 7, 8, 9, 10]])
    pixels = torch.linspace(-1, 1, 2 * 3 * 16).reshape(2, 3, 4, 4)
    inputs = {"input_ids": ids, "attention_mask": (ids != 2).long(), "pixel_values": pixels}
    inputs["token_type_ids"] = (ids == 12).long()
    log_probs = made(**inputs).logits[:, :-1].log_softmax(-1)
    words = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
    words[0, 0] = 0  # follows padding
    model = lh.latent(made, prior="delta", likelihood="language-model")
    bound = lh.terms(model, Tied(model).eval(), model.batch(inputs))
    torch.testing.assert_close(bound.log_likelihood, words.sum(-1), check_dtype=False)


def test_blocks_of_images_that_are_no_rows_of_sentences_are_not_latent() -> None:
    made = jiggle(qwen2vl(), 0.3).eval()
    model = lh.latent(made, likelihood="language-model")
    batch = model.batch(PATCHES)
    refuse(lambda: model(batch), "encoder.0.self", "no rows of 2", "blocks='decoder-self'")
    model = lh.latent(
        lh.contrib.hf.plain(model), blocks="decoder-self", likelihood="language-model"
    )
    bound = lh.terms(model, Tied(model), batch)
    assert [*bound.kl] == ["decoder.0.self.logits"]
    refuse(lambda: gradient_importance(model, [batch]), "encoder.0.self", "one sentence")
    first = {name: value[: len(value) // 2] for name, value in PATCHES.items()}
    importance = gradient_importance(model, [model.batch(first)])
    assert [*importance] == ["encoder.0.self", "decoder.0.self"]


def test_labels_may_stand_among_the_inputs_as_a_collator_puts_them() -> None:
    model, batch = made_latent("bart")
    inputs = {"input_ids": IDS, "attention_mask": REAL, "labels": TARGETS}
    one_batch = model.batch(inputs)
    assert torch.equal(one_batch.target, batch.target)
    assert one_batch.inputs.keys() == batch.inputs.keys()
    assert "labels" in inputs


def test_a_function_of_ones_own_is_a_likelihood() -> None:
    def means(outputs: Any, batch: Any) -> Tensor:
        return outputs.last_hidden_state.mean(1)

    model = lh.latent(bert("BertModel").eval(), likelihood=means)
    batch = model.batch({"input_ids": IDS}, torch.tensor([5, 0, 2]))
    bound = lh.terms(model.eval(), Tied(model), batch)
    assert bound.tokens.tolist() == [1, 1, 1]
    assert (bound.log_likelihood < 0).all()


def test_only_what_a_prediction_reads_carries_a_latent() -> None:
    model, batch = made_latent("gpt2")
    site = poutine.trace(model).get_trace(batch).nodes["decoder.1.self.logits"]
    # of n tokens the last predicts nothing, and the first reads a single key
    assert site["fn"].context.mask.pairs.tolist() == [2 + 3 + 4, 0, 2]


def test_a_call_of_the_network_itself_draws_heads_too() -> None:
    model, _ = made_latent("llama", "cascaded")
    trace = poutine.trace(model.network).get_trace(input_ids=IDS)
    assert trace.stochastic_nodes == ["decoder.0.self.logits", "decoder.1.self.logits"]
    once, again = (model.network(input_ids=IDS).logits for _ in range(2))
    assert not torch.equal(once, again)
    assert model.network.generate(IDS, max_new_tokens=3, do_sample=False).shape[1] > 5


@pytest.mark.parametrize("prior", [name for name in PRIORS if name != "delta"])
def test_a_draw_of_every_prior_moves_a_chain_of_some_blocks(prior: str) -> None:
    made = gpt2(n_layer=4)
    model = lh.latent(made.eval(), prior, blocks="1,3")
    assert [(b.layer, b.first_layer) for b in model.blocks] == [(1, 1), (3, 1)]
    nodes = poutine.trace(model).get_trace(model.batch({"input_ids": IDS})).nodes
    below = nodes["decoder.3.self.logits"]["fn"].context.below
    assert below is nodes["decoder.1.self.logits"]["value"]
    assert nodes["decoder.1.self.logits"]["fn"].context.below is None


def test_layers_that_a_call_drops_leave_nothing_to_the_next() -> None:
    made = bart()
    made.model.encoder.layerdrop = made.model.decoder.layerdrop = 0.5
    model = lh.latent(made.train(), "cascaded")
    batch = model.batch(inputs_of(made), TARGETS)
    for seed in range(8):
        torch.manual_seed(seed)
        made(**batch.inputs).logits.sum().backward()  # twice through one graph is refused


def test_states_are_there_for_an_amortised_guide() -> None:
    seen: dict[str, Any] = {}

    class Amortised(Guide):
        def family(self, block: lh.models.Block) -> Any:
            return make_prior("independent")(block)

        def posterior(self, block: lh.models.Block, context: Any) -> Any:
            read = context.query, context.key, context.batch.decoder_input
            seen[block.name] = tuple(tensor.shape for tensor in read)
            return super().posterior(block, context)

    model, batch = made_latent("marian")
    lh.terms(model, Amortised(model), batch)
    assert seen["encoder.0.self"] == ((3, 5, 6), (3, 5, 6), (3, 3))
    assert seen["decoder.1.cross"] == ((3, 3, 6), (3, 5, 6), (3, 3))
    assert seen["decoder.1.self"] == ((3, 3, 6), (3, 3, 6), (3, 3))


def test_svi_trains_network_prior_and_guide() -> None:
    model, batch = made_latent("bart", make_prior("independent", learned_scale=True))
    guide = Cascaded(model)
    svi = SVI(model, guide, Adam({"lr": 1e-2}), lh.Head_ELBO())
    parts = {**dict(model.named_parameters()), **dict(guide.named_parameters())}
    before = {name: value.detach().clone() for name, value in parts.items()}
    for _ in range(2):
        assert svi.step(batch) > 0
    still = {name for name, value in parts.items() if torch.equal(value, before[name])}
    unread = {n for n in still if "embed_positions" in n}
    assert still == unread
    pyro.clear_param_store()


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_heads_are_measured_where_weights_are_on_a_device_only_while_they_are_used(
    name: str,
) -> None:
    model, batch = made_latent(name)

    def measures(model: Any) -> list[Any]:
        torch.manual_seed(0)
        guide: Any = attach("mean-field", model).eval()
        entropy = measure(model, [batch], guide).entropy
        figures = lh.evaluate(model, guide, [batch])
        return [entropy, gradient_importance(model, [batch], guide), figures.kl_by_site]

    expected, made = measures(model), accelerate.cpu_offload(model.network, torch.device("cpu"))
    assert made.device.type == "meta"
    torch.testing.assert_close(measures(model), expected)
    again = lh.latent(lh.contrib.hf.plain(model)).eval()
    torch.testing.assert_close(measures(again), expected)


@pytest.mark.parametrize("training", [False, True])
def test_a_model_begins_in_the_mode_of_its_network(training: bool) -> None:
    network = grouped(attention_dropout=0.5).train(training)
    assert all(part.training == training for part in lh.latent(network).modules())


def test_a_network_that_draws_heads_compiles_as_a_whole() -> None:
    made = lh.latent(network("llama").train()).network
    compiled, logits, gradients = torch.compile(made, fullgraph=True, backend="eager"), [], []
    for run in (made, compiled):
        torch.manual_seed(0)
        logits.append(run(IDS, use_cache=False).logits)
        gradients.append(torch.autograd.grad(logits[-1].square().sum(), made.lm_head.weight))
    assert torch.equal(*logits)
    torch.testing.assert_close(*gradients)


def test_dropout_of_any_name_makes_no_bound() -> None:
    model = lh.latent(grouped(attention_dropout=0.5).train(), "delta")
    batch = model.batch({"input_ids": IDS})
    refuse(lambda: lh.terms(model, Tied(model), batch), "call model.eval() first")
    once, again = (lh.terms(model.eval(), Tied(model), batch).elbo for _ in range(2))
    assert torch.equal(once, again)


def test_a_frozen_network_of_transformers_drops_nothing() -> None:
    model = lh.latent(bert())
    assert model.train().network.training
    model.network.requires_grad_(False)
    assert not model.train().network.training
    assert model.training


def test_heads_are_read_as_those_of_the_librarys_models() -> None:
    for name in ("gpt2", "bert", "bart"):
        model, batch = made_latent(name)
        with lh.inference.PlugIn(), Recording(model) as heads, torch.no_grad():
            model.states(batch)
        block = model.blocks[0].name
        assert heads[block].weights.shape == (3, 3, 5, 5)
        assert heads[block].outputs.shape == (3, 3, 5, 2)
        importance = gradient_importance(model, [batch])
        counts = {name: len(values) for name, values in importance.items()}
        assert counts == {block.name: block.heads for block in model.blocks}
        assert all((value > 0).any() for value in importance.values())


@pytest.mark.parametrize("name", ["bart", "llama"])
def test_padding_changes_no_importance(name: str) -> None:
    model, batch = made_latent(name, "delta")
    whole = gradient_importance(model, [batch], normalise=False)
    labels, alone = labels_of(name), []
    for row, length in enumerate(REAL.sum(1)):
        own = None if labels is None else labels[row : row + 1][labels[row : row + 1] > 0][None]
        alone.append(model.batch({"input_ids": IDS[row : row + 1, :length]}, own))
    for block, importance in gradient_importance(model, alone, normalise=False).items():
        torch.testing.assert_close(importance, whole[block])


def test_what_is_no_word_is_what_the_network_says() -> None:
    model = lh.latent(gpt2(eos_token_id=[1, 9]).eval(), "delta")
    batch = model.batch({"input_ids": IDS, "attention_mask": REAL})
    assert batch.boundary_ids == (0, 1, 9)
    counted_keys = attention_tokens(batch, "decoder-self").counted_keys()
    assert counted_keys.equal(batch.target_valid & (IDS != 9))
    two, both = made_latent("bart")
    counted_keys = attention_tokens(both, "decoder-cross").counted_queries()
    assert counted_keys.equal(both.target_valid & (both.decoder_input != 1))
    counted_keys = attention_tokens(made_latent("bert")[1], "encoder-self").counted_queries()
    assert counted_keys.equal(REAL.bool())
    links = likeliest_links(torch.rand(3, 1, *both.target.shape[1:], both.source.shape[1]), both)
    real = (both.source_valid & (both.source != 1)).nonzero().tolist()
    keys = {(index, key) for index, (row,) in enumerate(links) for key, _ in row}
    assert keys
    assert keys <= set(map(tuple, real))
    refuse(lambda: relevance(two, [both]), "relevance of pre-trained networks")


def test_a_copy_is_latent_by_itself() -> None:
    model, batch = made_latent("gpt2")
    copy = deepcopy(model)
    lh.contrib.hf.plain(model)
    assert set(lh.terms(copy, Tied(copy), batch).how.values()) == {"tied"}
    assert lh.contrib.hf.plain(copy.network) is copy.network


def test_another_process_opens_a_pickled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = made_latent("gpt2")
    pickled = pickle.dumps(model)
    for interface in (transformers.AttentionInterface, transformers.AttentionMaskInterface):
        monkeypatch.delitem(interface._global_mapping, NAME)  # it has made no latent network yet
    opened = pickle.loads(pickled)
    torch.manual_seed(0)
    expected = lh.terms(model, Tied(model), batch).elbo
    torch.manual_seed(0)
    assert torch.equal(lh.terms(opened, Tied(opened), batch).elbo, expected)


@pytest.mark.parametrize(
    "options",
    [
        {"prior": "cascaded"},
        {"latents": [lh.latents.AlignmentOptions(1)]},
        {"latents": [lh.latents.CopyOptions()]},
        {"prior": "delta", "latents": [GateOptions(blocks="decoder-self")]},
        {"latents": [lh.latents.BernoulliHeadsOptions("decoder.1.self", prior="autoregressive")]},
    ],
)
def test_the_states_of_model_and_guide_are_all_that_was_learned(options: dict[str, Any]) -> None:
    bounds, states = [], list[Any]()
    for _ in range(2):
        model = lh.latent(network("gpt2"), **options).eval()
        guide = Tied(model).eval()
        if not states:
            states = [jiggle(module, 0.5).state_dict() for module in (model, guide)]
        model.load_state_dict(states[0])
        guide.load_state_dict(states[1])
        batch = model.batch(inputs_of(model.network))
        bounds.append(lh.evaluate(model, guide, [batch]).elbo)
    assert bounds[0] == bounds[1]


def test_a_model_is_copied_after_a_call_that_was_broken_off() -> None:
    model, batch = made_latent("gpt2")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for call in (lambda: model.network(**batch.inputs), lambda: model(batch)):
        for module in (model.heads[1].called_module, model.heads[1].called_module.c_attn):
            hook = module.register_forward_pre_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                call()
            hook.remove()
            deepcopy(model)


def test_attention_weights_are_given_on_request() -> None:
    model, batch = made_latent("gpt2", "delta")
    given_network = model.network(**batch.inputs, output_attentions=True)
    assert [weights.shape for weights in given_network.attentions] == [(3, 3, 5, 5)] * 2


def test_positions_of_sound_are_measured_though_they_have_no_tokens() -> None:
    model, batch = made_latent("whisper", "delta")
    output = model.network(**batch.inputs, output_attentions=True)
    weights = output.encoder_attentions[1].double()
    entropy = -(weights * weights.log()).sum(-1).mean((0, 2))
    torch.testing.assert_close(measure(model, [batch]).entropy["encoder.1.self"], entropy)
    text = lh.data.Grammar(sentences=9).load().target
    _, keys = name_queries_and_keys(batch, "decoder-cross", None, text)
    assert keys == list("012345")
    rare = RareWordDetector(torch.arange(20))
    refuse(lambda: detect(model, [batch], [rare], "decoder-cross"), "sound, which has no rare")
    positional = PositionalDetector()
    detect(model, [batch], [positional], "encoder-self")
    refuse(lambda: detect(model, [batch], [positional], "decoder-cross"), "no common positions")
    refuse(lambda: analyse(model), "run must be a run, or its folder", "measure(model, batches)")


def test_pruned_whisper_is_whisper_with_heads_off() -> None:
    model, batch = made_latent("whisper", "delta")
    kept = {"encoder.1.self": [2], "decoder.0.cross": [1], "decoder.1.self": []}
    counts = {block.name: block.heads for block in Recording(model).attention_blocks}
    kept = {name: kept.get(name, list(range(number))) for name, number in counts.items()}
    off = [(name, head) for name in kept for head in range(counts[name]) if head not in kept[name]]
    with lh.heads(model).off(off):
        expected = model.network(**batch.inputs).logits
    remove_heads(model, kept)
    torch.testing.assert_close(model.network(**batch.inputs).logits, expected)
    assert lh.head_posterior(model, [batch], "decoder.1.cross", tau=1).inclusion.shape == (2,)


def test_an_image_has_one_label() -> None:
    seen = image().eval()
    model = lh.latent(seen, "delta")
    batch = model.batch({"pixel_values": torch.randn(2, 1, 4, 4)}, labels=torch.tensor([0, 4]))
    refuse(lambda: measure(model, [batch]), "measures of attention are of tokens")
    log_probabilities = seen(**batch.inputs).logits.log_softmax(-1)[[0, 1], [0, 4]]
    assert torch.allclose(
        lh.terms(model, Tied(model), batch).log_likelihood, log_probabilities.double()
    )


@torch.no_grad()
def test_a_bias_for_each_head_in_the_mask_belongs_to_the_scores() -> None:
    seen = jiggle(image("Beit", use_relative_position_bias=True), 0.3).eval()
    pixels = {"pixel_values": torch.randn(2, 1, 4, 4)}
    before = seen(**pixels).logits
    model = lh.latent(seen, "delta")
    torch.testing.assert_close(model.network(**pixels).logits, before, rtol=0, atol=1e-12)
    mask = torch.zeros(1, 3, 5, 5)
    mask[:, 1, :, 2] = -torch.inf
    block = model._pretrained_blocks()[0]
    given = torch.randn(1, 3, 5, 5), torch.randn(1, 3, 5, 2), mask, 0.0
    refuse(lambda: block.attend(*given), "encoder.0.self", "one attention mask")


def test_what_cannot_be_latent_is_refused_in_a_line() -> None:
    made = network("gpt2")
    refuse(lambda: lh.latent(torch.nn.Linear(2, 2)), "PreTrainedModel", "Linear")
    refuse(lambda: lh.latent(made, blocks="0-1,7"), "'7'", "decoder.0.self")
    refuse(lambda: lh.latent(made, "gaussian"), "prior must be one of ")
    both = [lh.latents.CopyOptions(), lh.latents.AlignmentOptions()]
    refuse(lambda: lh.latent(gpt2(), latents=both), "one latent above its decoder, got 2")
    refuse(lambda: lh.latent(made, likelihood="poisson"), "'poisson'", "language-model")
    refuse(lambda: lh.latent(made, latents=[StaticSelector(3)]), "Gating", "candidates")
    selection = lh.latents.SelectionOptions()  # names types that this network does not have
    refuse(lambda: lh.latent(made, latents=[selection]), "Gating", "candidates")
    latent = unchecked(lh.latent)
    refuse(lambda: latent(made, prior=3), "prior must be a name, or make a Family", "got 3")
    refuse(lambda: lh.latent(network("gpt2"), lambda _: 3), "prior must make a Family", "got 3")
    refuse(lambda: latent(made, blocks=[0, 1]), "blocks must be a text with commas", "[0, 1]")
    refuse(
        lambda: latent(made, latents=[1]), "latents must be options, as AlignmentOptions(), got 1"
    )
    encoder = Gating(3, ("decoder-self", "encoder-self"))
    refuse(lambda: lh.latent(made, latents=[encoder]), "'encoder-self'", "it has decoder-self")
    options = GateOptions("encoder-self,decoder-self")
    refuse(lambda: lh.latent(made, latents=[options]), "'encoder-self'", "it has decoder-self")
    gates = [GateOptions("decoder-self")]
    refuse(lambda: lh.latent(grouped("BitNet"), latents=gates), "normalises its heads together")
    refuse(lambda: lh.contrib.hf.plain(made), "not latent")
    assert made.config._attn_implementation == "sdpa"
    model = lh.latent(made)
    refuse(lambda: lh.latent(made), "already")
    old = model
    model = lh.latent(lh.contrib.hf.plain(old))
    refuse(lambda: old(old.batch({"input_ids": IDS})), "plain gave its network back")
    refuse(lambda: lh.contrib.hf.plain(old), "not latent")
    refuse(lambda: model(lh.data.Batch.of([[3, 2]])), "batch")
    refuse(lambda: model.batch({"input_ids": IDS}).repeated(2), "cannot be repeated")
    refuse(lambda: made(IDS, indices=IDS), "decoder.0.self", "the argument indices")
    for unread in ({"num_items_in_batch": torch.tensor(7)}, {"special_tokens_mask": IDS}):
        assert made(IDS, **unread).logits.isfinite().all()
    made.activation_checkpointing_enable()
    made.train()
    refuse(lambda: model(model.batch({"input_ids": IDS})), "activation_checkpointing_disable")
    refuse(lambda: made(IDS), "activation_checkpointing_disable")


@pytest.mark.parametrize("make", [lambda: network("bart"), bert])
def test_copy_heads_are_refused_before_a_network_is_changed(make: Callable[[], Any]) -> None:
    made = make()
    config = made.config
    for copy in (lh.latents.CopyOptions(), CopyHeads(6)):
        refuse(lambda copy=copy: lh.latent(made, latents=[copy]), "is no language model with a")
    assert made.config is config
    assert config._attn_implementation == "sdpa"


def test_inputs_that_are_no_sentences_in_tensors_are_refused() -> None:
    model = lh.latent(network("gpt2"))
    batch = partial(unchecked(type(model).batch), model)
    refuse(lambda: batch({"input_ids": IDS.tolist()}), "return_tensors='pt'", "input_ids", "list")
    refuse(lambda: batch(IDS), "return_tensors='pt'", "inputs of type Tensor")
    refuse(lambda: batch({"input_ids": IDS[0]}), "input_ids must have a row", "(5,)")
    pairs = {"input_ids": IDS, "attention_mask": torch.ones(3, 1, 5, 5)}
    refuse(lambda: batch(pairs), "attention_mask must have a row", "(3, 1, 5, 5)")
    other = {"input_ids": IDS, "attention_mask": REAL[:, :4]}
    refuse(lambda: batch(other), "attention_mask must have the shape of input_ids", "(3, 4)")
    refuse(lambda: batch({"input_ids": IDS}, IDS.tolist()), "labels must be a tensor, got [[")
    assert batch({"input_ids": IDS}, index=[2, 0, 1]).index.tolist() == [2, 0, 1]


def test_a_mask_of_samples_of_sound_is_refused() -> None:
    sizes = {"hidden_size": 6, "intermediate_size": 7, "num_hidden_layers": 1, "num_labels": 3}
    hearing = {"conv_dim": (5,), "conv_kernel": (4,), "conv_stride": (2,)}
    places = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = transformers.Wav2Vec2Config(
        num_attention_heads=3, num_feat_extract_layers=1, **sizes, **hearing, **places
    )
    heard = transformers.Wav2Vec2ForSequenceClassification(config).eval()
    model = lh.latent(heard, likelihood="classification")
    sound = {"input_values": torch.randn(2, 20)}
    labels = torch.tensor([0, 2])
    assert lh.terms(model, Tied(model), model.batch(sound, labels)).elbo.isfinite().all()
    masked = model.batch(sound | {"attention_mask": torch.ones(2, 20)}, labels)
    refuse(lambda: model(masked), "encoder.0.self", "20 positions, heads have 9")


def test_networks_whose_attention_is_not_chosen_by_name_are_refused() -> None:
    sizes = {"hidden_size": 6, "embedding_size": 6, "intermediate_size": 7, "vocab_size": 13}
    albert = transformers.AlbertConfig(num_attention_heads=3, num_hidden_layers=2, **sizes)
    refuse(lambda: lh.latent(transformers.AlbertModel(albert)), "AlbertModel", "shares")
    xlnet = transformers.XLNetConfig(vocab_size=13, d_model=6, n_layer=1, n_head=3, d_inner=7)
    refuse(lambda: lh.latent(transformers.XLNetModel(xlnet)), "XLNetModel", "AttentionInterface")
    refuse(lambda: lh.heads(grouped("DiffLlama")), "DiffLlamaForCausalLM", "in pairs")
    looped = grouped(n_recurrent_loops=2)  # as Dory, whose layers run twice
    refuse(lambda: lh.heads(looped), "LlamaForCausalLM", "shares")


@pytest.mark.parametrize(
    "make",
    [
        lambda: grouped("Doge"),
        lambda: bart("BigBirdPegasus", "BigBirdPegasusForCausalLM"),
        lambda: bart(kind="BartForCausalLM"),
    ],
)
@torch.no_grad()
def test_heads_of_a_decoder_alone_are_of_decoder_self_attention(make: Callable[[], Any]) -> None:
    made = jiggle(make(), 0.3).double().eval()
    log_probs = made(input_ids=IDS).logits[:, :-1].log_softmax(-1).gather(-1, IDS[:, 1:, None])
    model = lh.latent(made, "delta")
    assert [block.name for block in model.blocks] == ["decoder.0.self", "decoder.1.self"]
    batch = model.batch({"input_ids": IDS})
    expected = log_probs.sum((1, 2))
    torch.testing.assert_close(model.token_distribution(batch).log_prob(batch.scored), expected)


def test_cross_attention_of_a_decoder_alone_is_named_in_its_configuration() -> None:
    made, states = bart(kind="BartForCausalLM").eval(), torch.zeros(3, 2, 6)
    model = lh.latent(made, "delta")
    refuse(lambda: made(IDS, encoder_hidden_states=states), "config.add_cross_attention = True")
    lh.contrib.hf.plain(model)
    made.config.add_cross_attention = True
    assert "decoder.1.cross" in lh.heads(made).addresses
    lh.latent(made, "delta")
    assert made(IDS, encoder_hidden_states=states).logits.isfinite().all()


def test_an_encoder_has_no_likelihood_of_the_next_token() -> None:
    made = bert("BertLMHeadModel")
    for likelihood in (None, "language-model"):
        refuse(lambda name=likelihood: lh.latent(made, likelihood=name), "attends to later tokens")
    lh.latent(bert("BertLMHeadModel", is_decoder=True))
    lh.latent(made, likelihood="masked-language-model")
    refuse(lambda: lh.latent(grouped(is_causal=False)), "attends to later tokens")
    gemma = grouped("Gemma", use_bidirectional_attention=True, head_dim=2)
    refuse(lambda: lh.latent(gemma), "attends to later tokens")


@torch.no_grad()
def test_attention_that_is_not_chosen_by_name_has_the_masks_that_it_had() -> None:
    made = bart("BigBirdPegasus", "BigBirdPegasusForConditionalGeneration")
    made = jiggle(made, 0.3).eval()  # its encoder adds masks to scores
    before = made(**inputs_of(made)).logits
    lh.latent(made, "delta")
    torch.testing.assert_close(made(**inputs_of(made)).logits, before, rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_part_whose_attention_is_not_chosen_by_name_stays_as_it_is() -> None:
    sizes = {"hidden_size": 6, "intermediate_size": 7, "num_attention_heads": 3}
    encoder = transformers.DebertaV2Config(vocab_size=13, num_hidden_layers=1, **sizes)
    decoder = bert("BertLMHeadModel", is_decoder=True, add_cross_attention=True).config
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 0, 2
    made = jiggle(transformers.EncoderDecoderModel(config), 0.3).eval()
    model = lh.latent(made, "delta", likelihood="sequence-to-sequence")
    assert {module.block.attention_type for module in model.heads} == set(ATTENTION_TYPES[1:])
    batch = model.batch({"input_ids": IDS, "attention_mask": REAL}, TARGETS)
    loss = F.cross_entropy(made(**batch.inputs).logits.flatten(0, 1), TARGETS.flatten())
    tokens = model.token_distribution(batch)
    torch.testing.assert_close(-tokens.log_prob(batch.scored).sum() / tokens.valid.sum(), loss)


def test_a_network_without_a_likelihood_says_so_where_it_needs_one() -> None:
    model = lh.latent(bert("BertModel"))
    refuse(lambda: model.batch({"input_ids": IDS}), "BertModel", "likelihood")
    masked = lh.latent(bert())
    refuse(lambda: masked.batch({"input_ids": IDS}), "labels must be given")
    one = lh.latent(bert("BertForSequenceClassification", num_labels=1).eval())
    one_batch = one.batch({"input_ids": IDS}, torch.tensor([0, 0, 0]))
    refuse(lambda: lh.terms(one, Tied(one), one_batch), "two labels")
    refuse(lambda: one.batch({"input_ids": IDS}, torch.zeros(3)), "whole number")


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("gpt2", IDS[:, :2], "(3, 1), and scores for (3, 4)"),
        ("gpt2", IDS + 3, "between 0 and 12, or be -100 where nothing is predicted; got 14"),
        ("bert", IDS[:, :4], "(3, 4), and scores for (3, 5)"),
        ("bert", IDS - 3, "between 0 and 12, or be -100 where nothing is predicted; got -1"),
        ("bart", TARGETS[:, :1], "(3, 1), and scores for (3, 3)"),
        ("classifier", torch.tensor([2, 0, 3]), "between 0 and 2"),
    ],
)
def test_labels_that_are_not_scored_are_refused(name: str, labels: Tensor, message: str) -> None:
    model = lh.latent(network(name), "delta")
    refuse(lambda: model.token_distribution(model.batch(inputs_of(model.network), labels)), message)


def test_labels_that_a_function_does_not_score_are_refused() -> None:
    model = lh.latent(network("bert"), likelihood=lambda message, _: message.logits)
    batch = model.batch({"input_ids": IDS}, IDS[:, 0])
    refuse(lambda: model.token_distribution(batch), "(3, 1)", "(3, 5)")


def test_a_network_of_another_type_than_the_usual_has_priors_of_its_own() -> None:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        model = lh.latent(gpt2().double().eval(), "cascaded")
        bound = lh.terms(model, Tied(model), model.batch({"input_ids": IDS}))
    finally:
        torch.set_default_dtype(usual)
    assert bound.log_likelihood.dtype == torch.double


def test_a_machine_without_transformers_is_told_of_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"latentheads\[transformers\]"):
        lh.latent(None)


def test_a_network_whose_parts_have_blocks_of_one_name_is_refused_in_a_line() -> None:
    with torch.device("meta"):  # three of them
        made = transformers.CLIPSegForImageSegmentation(transformers.CLIPSegConfig())
    refuse(lambda: lh.latent(made), "has two blocks 'encoder.0.self'", "vision_model", "text_model")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.ones(1, 0).long(), r"input_ids has no tokens, got shape \(1, 0\)"),
        (torch.ones(1, 99).long(), "input_ids has 99 tokens, and the network has positions for "),
        (torch.tensor([[5, 99]]), "input_ids has the id 99, and the network's vocabulary has the"),
        (torch.tensor([[5, -1]]), "input_ids has the id -1, and the network's vocabulary has the"),
    ],
)
def test_tokens_that_the_network_cannot_read_are_named(ids: Tensor, message: str) -> None:
    model = lh.latent(gpt2(), make_prior("independent"))
    with pytest.raises(ValueError, match=f"^{message}"):
        model.batch({"input_ids": ids})


def test_labels_that_the_decoder_cannot_read_are_named() -> None:
    model = lh.latent(network("bart"))
    with pytest.raises(ValueError, match=r"^decoder_input_ids has 17 tokens, and the network has"):
        model.batch(inputs_of(network("gpt2")), torch.ones(3, 17, dtype=torch.long))


def test_layers_of_stages_are_counted_on() -> None:
    windows = {"image_size": (4, 8), "window_size": 2, "embed_dim": 6}
    stages = image("Swin", depths=[1, 2], num_attention_heads=[3, 3], **windows)
    assert [address.block.layer for address in find_heads(stages)] == [0, 1, 2]


def test_heads_are_measured_where_they_predict() -> None:
    batch = lh.latent(gpt2()).batch({"input_ids": IDS})
    assert batch.target_valid.all()
    assert batch.target_latent[:, :-1].all()
    assert not batch.target_latent[:, -1].any()


def test_scores_without_a_scale_are_divided_by_the_root_of_the_width() -> None:
    (block, *_), query, key = lh.latent(gpt2()).head_blocks, *torch.randn(2, 1, 3, 4, 2)
    scores = block.score(query, key, None, None, None)
    torch.testing.assert_close(scores, query @ key.mT / 2**0.5)


def test_the_states_of_keys_in_a_cache_are_not_known() -> None:
    block, states = lh.latent(gpt2()).head_blocks[0], torch.ones(1, 1, 6)
    for options, key in (({}, states), ({"past_key_values": object()}, None)):
        block.record_states(block, (states,), options)
        recorded = block._holder.forward_pass.states[block.block.name]
        assert recorded.query is states
        assert recorded.key is key


def test_without_a_mask_queries_behind_a_cache_are_the_last_positions() -> None:
    block = lh.latent(gpt2(), "delta").eval().head_blocks[0]
    heads = block.block.heads
    scores, value = torch.zeros(1, heads, 2, 5), torch.zeros(1, heads, 5, 2)
    _, weights = block.attend(scores, value, None, 0.0)
    expected = torch.tensor([[0.25] * 4 + [0.0], [0.2] * 5])
    torch.testing.assert_close(weights, expected.expand(1, heads, 2, 5))
