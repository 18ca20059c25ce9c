"""Alignments above the decoder of somebody else's network: exact, from where it stands."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import latentheads as lh
from latentheads.guides import Cascaded, Exact, MeanField, Tied
from tests.latentheads.contrib.hf.networks import (
    IDS,
    REAL,
    TARGETS,
    TYPES,
    WRITERS,
    bert,
    gemma3,
    grouped,
    inputs_of,
    labels_of,
    network,
    refuse,
    source_of,
)
from tests.tiny import jiggle

OPTIONS = {
    "one": {"blocks": 1, "prior": "independent"},
    "two": {"blocks": 2},
    "pair": {"blocks": 1, "heads": 2},
    "chain": {"blocks": 1, "prior": "chain"},
    "soft": {"blocks": 1, "prior": "soft"},
    "mixture": {"blocks": 1, "prior": {"class": "mixture", "components": 2}},
}
FORMS = dict(zip(WRITERS, ["two", "chain", "soft", "one", "pair", "chain", "two"], strict=True))
"""A form of alignments for each network."""


def build(name: str, form: str = "one", size: float = 0.0, **options: Any) -> tuple[Any, Any]:
    """A network whose output has a bias where it knows one, and alignments of some form."""
    made = network(name)
    if hasattr(made, "final_logits_bias"):
        made.final_logits_bias = torch.linspace(-1, 1, TYPES)[None]
    alignment_options = lh.latents.AlignmentOptions(width=2, **OPTIONS[form], **options)
    model = lh.latent(made, latents=[alignment_options]).eval()
    jiggle(model.alignments, size)
    return model, model.batch(inputs_of(made), labels_of(name))


def evidence(model: Any, batch: Any) -> Tensor:
    """Log-probability of every sentence, all alignments summed."""
    tokens = model.token_distribution(batch)
    summed = getattr(tokens, "exact_inference", None)
    return tokens.log_prob(batch.scored) if summed is None else summed(batch.scored).log_evidence


def log_likelihood(logits: Tensor, batch: Any) -> Tensor:
    """Log-probability of every sentence by the network's own scores; the last predicts nothing."""
    log_probs = logits[:, : batch.scored.shape[1]].log_softmax(-1)
    words = log_probs.gather(-1, batch.scored[..., None])[..., 0]
    return (words * batch.scored_mask).sum(-1)


@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_at_the_start_the_likelihood_is_that_of_the_network(name: str) -> None:
    model, batch = build(name, FORMS[name])
    computed_evidence = evidence(model, batch)
    made = lh.contrib.hf.plain(model)
    expected = log_likelihood(made(**batch.inputs).logits, batch)
    torch.testing.assert_close(computed_evidence, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", OPTIONS)
def test_texts_of_one_token_predict_nothing(form: str) -> None:
    model, _ = build("gpt2", form, 0.5)
    batch = model.batch({"input_ids": IDS[:, :1]})
    guide = Tied(model)
    if form == "chain":
        with pytest.raises(ValueError, match="chain needs texts of two tokens or more in a batch"):
            lh.terms(model, guide, batch)
        return
    for objective in ("bound", "marginal") if form != "soft" else ("bound",):
        loss = lh.Head_ELBO(objective=objective).differentiable_loss(model, guide, batch)
        loss.backward()
        assert loss.item() == 0


@pytest.mark.parametrize("name", ["gpt2", "marian"])
@torch.no_grad()
def test_the_sum_is_over_every_place_that_a_head_may_point_at(name: str) -> None:
    model, batch = build(name, size=0.5)
    made, block = model.network, model.alignments.blocks[0]
    with model._aligned_decoder.recording():
        statement = model.run(batch)
        states = model._aligned_decoder._states
    bias = getattr(made, "final_logits_bias", torch.zeros(TYPES))
    table = torch.cat([made.lm_head.weight, bias.view(-1, 1)], 1)
    if name == "gpt2":
        table, states = table[:, :-1], states[:, :-1]
        memory = torch.cat([model.alignments.null.expand(3, 1, -1), states[:, :-1]], 1)
        readable = torch.ones(4, 4, dtype=torch.bool).tril().expand(3, 4, 4)
    else:
        memory, states = statement.encoder_last_hidden_state, states
        memory, states = (torch.nn.functional.pad(x, (0, 1), value=1.0) for x in (memory, states))
        readable = REAL.bool()[:, None].expand(3, 3, 5)
    normed = block.norm(memory)
    scores = block.query(states) @ block.key(normed).mT / 2**0.5
    prior = scores.masked_fill(~readable, -1e9).softmax(-1)
    moved = states[:, :, None] + block.lexicon(normed)[:, None]
    if name == "gpt2":
        moved[:, :, 0] = states
    probabilities = (moved @ table.T).softmax(-1)
    words = (prior[..., None] * probabilities).sum(2).gather(-1, batch.scored[..., None])[..., 0]
    want = (words.log() * batch.scored_mask).sum(-1)
    torch.testing.assert_close(evidence(model, batch), want)


@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_the_network_itself_speaks_with_all_alignments(name: str) -> None:
    model, batch = build(name, FORMS[name], 0.5)
    logits = model.network(**batch.inputs).logits
    torch.testing.assert_close(log_likelihood(logits, batch), evidence(model, batch))
    if FORMS[name] != "soft" and not hasattr(model.network, "final_logits_bias"):
        torch.testing.assert_close(logits.logsumexp(-1), torch.zeros_like(logits[..., 0]))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("beams", [1, 2])
@torch.no_grad()
def test_a_text_is_written_by_the_sum(name: str, beams: int) -> None:
    model, _ = build(name, FORMS[name], 0.5)
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "num_beams": beams}
    past = not model.network.config.is_encoder_decoder
    side = {key: value[:1] for key, value in source_of(model.network).items()}
    needs_all = past or FORMS[name] == "chain"
    written = model.network.generate(**side, **options, use_cache=not needs_all)
    assert torch.equal(written, model.network.generate(**side, **options, use_cache=False))
    if needs_all:
        with pytest.raises(ValueError, match="use_cache=False"):
            model.network.generate(**side, **options)
    if beams == 1:
        given = written[:, :-1]
        messages = {"input_ids": given} if past else {**side, "decoder_input_ids": given}
        assert model.network(**messages).logits[0, -1].argmax() == written[0, -1]


@torch.no_grad()
def test_a_network_that_makes_a_mask_of_each_kind_of_layer_itself_leaves_out_padding() -> None:
    made = jiggle(gemma3(), 0.3).eval()
    model = lh.latent(made, latents=[lh.latents.AlignmentOptions(1)]).eval()
    jiggle(model.alignments, 0.5)
    padded, mask = IDS[1:2].flip(1), REAL[1:2].flip(1)
    alone = made(input_ids=padded[:, 3:]).logits
    for outputs in (made(input_ids=padded, attention_mask=mask), made(padded, None, mask)):
        torch.testing.assert_close(outputs.logits[:, 3:], alone)


@pytest.mark.parametrize("name", ["gpt2", "bart"])
@torch.no_grad()
def test_a_mixture_points_at_nothing_and_takes_a_cache(name: str) -> None:
    model, batch = build(name, "mixture", 0.5)
    logits = model.network(**batch.inputs).logits
    torch.testing.assert_close(log_likelihood(logits, batch), evidence(model, batch))
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False}
    side = {key: value[:1] for key, value in source_of(model.network).items()}
    cached = model.network.generate(**side, **options)
    assert torch.equal(cached, model.network.generate(**side, **options, use_cache=False))


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_every_guide_has_its_gap(name: str) -> None:
    model, batch = build(name, "two", 0.5)
    with torch.no_grad():
        exact = float(evidence(model, batch).sum())
    reports = {}
    for kind in (Tied, MeanField, Cascaded, Exact):
        guide = jiggle(kind(model), 0.1).eval()
        report = reports[kind] = lh.evaluate(model, guide, [batch], num_samples=2)
        assert report.exact == pytest.approx(exact / report.tokens)
        assert report.elbo + report.gap == pytest.approx(report.exact)
        kinds = {site: how for site, how in report.how.items() if "alignment" in site}
        assert set(kinds.values()) == {"tied" if kind is Tied else "enumerated"}
    distributions = lh.contrib.heads.alignment_distributions(model, Exact(model), batch)
    torch.testing.assert_close(distributions.guide, distributions.posterior)
    torch.testing.assert_close(
        distributions.prior.sum(-1), torch.ones_like(distributions.prior[..., 0])
    )
    assert reports[Exact].gap == pytest.approx(0, abs=1e-12)
    assert reports[Tied].kl == 0 < reports[Tied].gap


@pytest.mark.parametrize("condition_on", ["source", "target"])
def test_a_guide_stands_above_a_network_in_half_precision(condition_on: str) -> None:
    model, batch = build("gpt2", "two", 0.5)
    model.bfloat16()
    assert_bounds_add_up(model, batch, condition_on)


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_heads_above_a_network_in_half_precision_are_not(name: str) -> None:
    model, batch = build(name, "two", 0.5)
    model.network.bfloat16()
    assert_bounds_add_up(model, batch, "target")
    halved = lh.latent(network(name).bfloat16(), latents=[lh.latents.AlignmentOptions()])
    assert {parameter.dtype for parameter in halved.alignments.parameters()} == {torch.float32}
    assert_bounds_add_up(halved.eval(), batch, "target")


def assert_bounds_add_up(model: Any, batch: Any, condition_on: str) -> None:
    bound = lh.terms(model, jiggle(Cascaded(model, condition_on=condition_on), 0.1).eval(), batch)
    gap = sum(bound.enumeration.gap().values())
    torch.testing.assert_close(bound.elbo + gap, bound.enumeration.log_evidence, check_dtype=False)


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_padding_changes_neither_the_sum_nor_a_bound(name: str) -> None:
    model, batch = build(name, "two", 0.5)
    guide = jiggle(Cascaded(model), 0.1).eval()
    labels = labels_of(name)
    whole = lh.terms(model, guide, batch)
    sides = {"input_ids": IDS[1:2, :2], "attention_mask": REAL[1:2, :2]}
    alone = model.batch(sides, None if labels is None else labels[1:2, :2])
    short = lh.terms(model, guide, alone)
    torch.testing.assert_close(short.elbo, whole.elbo[1:2])
    torch.testing.assert_close(evidence(model, alone), evidence(model, batch)[1:2])
    if name == "gpt2":
        left = {"input_ids": IDS.clone(), "attention_mask": REAL.flip(-1)}
        left["input_ids"][1, -2:] = IDS[1, :2]
        turned = evidence(model, model.batch(left))
        torch.testing.assert_close(turned[1:2], short.enumeration.log_evidence)
        logits = model.network(**left, position_ids=torch.tensor([[0, 0, 0, 0, 1]] * 3)).logits
        words = logits[1, 3].log_softmax(-1)[left["input_ids"][1, 4]]
        torch.testing.assert_close(words[None], turned[1:2])


def test_a_text_without_a_word_to_predict_has_a_bound_of_nothing() -> None:
    model, _ = build("gpt2", "one", 0.5)
    batch = model.batch(
        {"input_ids": IDS[:2], "attention_mask": torch.tensor([[1] * 5, [1, 0, 0, 0, 0]])}
    )
    bound = lh.terms(model, Cascaded(model).eval(), batch)
    assert bound.elbo[0] < 0 == bound.elbo[1]


def test_blocks_are_fitted_above_a_frozen_network() -> None:
    model, batch = build("bart")
    model.network.requires_grad_(False)
    with torch.no_grad():
        before = float(evidence(model, batch).sum())
    plan = {"steps": 5, "warmup_steps": 1, "learning_rate": 0.1, "loss": "marginal"}
    fitted = lh.fit(model, Cascaded(model), [batch], quiet=True, **plan)
    assert fitted.report.exact * fitted.report.tokens > before + 0.1
    assert fitted.report.gap > 0


def test_logits_may_have_noise_beside_alignments() -> None:
    options = lh.latents.AlignmentOptions(1, width=2)
    model = lh.latent(network("bart"), "independent", "0", latents=[options]).eval()
    batch = model.batch(inputs_of(model.network), TARGETS)
    bound = lh.terms(model, Cascaded(model).eval(), batch)
    assert list(bound.how.values()) == ["analytic"] * 3 + ["enumerated"]
    model.network(**batch.inputs)  # holds states with a graph, for a cache
    copy = deepcopy(model)
    lh.contrib.hf.plain(model)
    with torch.no_grad(), lh.inference.PlugIn():
        alone = evidence(copy, batch)
        model.network.lm_head.weight.zero_()
        assert torch.equal(evidence(copy, batch), alone)


def test_what_cannot_have_alignments_is_refused_in_a_line() -> None:
    one = lh.latents.AlignmentOptions(1)
    refuse(lambda: lh.latent(bert(), latents=[one]), "BertForMaskedLM predicts none")
    window = lh.latents.AlignmentOptions(1, window=2)
    refuse(lambda: lh.latent(network("bart"), latents=[window]), "window is for a language model")
    capped = grouped("Gemma2", final_logit_softcapping=0.1, head_dim=2).eval()
    model = lh.latent(jiggle(capped, 0.5), latents=[one])
    batch = model.batch({"input_ids": IDS})
    refuse(lambda: model.token_distribution(batch), "Gemma2ForCausalLM", "softcap")
    untrained = grouped("Gemma2", final_logit_softcapping=30.0, head_dim=2).eval()
    model = lh.latent(untrained, latents=[one])
    model.token_distribution(batch)  # such small scores are as they were without the cap
    with torch.no_grad():
        model.network.lm_head.weight.mul_(1000)
    refuse(lambda: model.token_distribution(batch), "Gemma2ForCausalLM", "softcap")
    chained, _ = build("gpt2", "chain")
    left = {"input_ids": IDS, "attention_mask": REAL.flip(-1)}
    unknown = chained.batch({"input_ids": IDS}, IDS + 3)
    message = "labels must lie between 0 and 12"
    refuse(lambda: chained.token_distribution(unknown), message, "got 14")
    refuse(lambda: chained.batch(left), "pad on the right")
    refuse(lambda: chained.network(**left), "pad on the right")
    embeds = chained.network.transformer.wte(IDS)
    refuse(lambda: chained.network(inputs_embeds=embeds), "input_ids")
    model, batch = build("bart")
    loss = model.network(**{**batch.inputs, "labels": TARGETS}).loss
    refuse(lambda: loss.backward(), "lh.fit")
    model, batch = build("llama")
    model.network.resize_token_embeddings(TYPES + 1)
    replaced = "output layer of LlamaForCausalLM was replaced"
    refuse(lambda: model.token_distribution(batch), replaced, "before lh.latent")
    refuse(lambda: model.network(**batch.inputs), replaced)
    none = lh.latent(network("gpt2"))
    assert none.output_heads is None
    assert none.prior(lh.models.Block("decoder-self", 0, 3)) is not None


@pytest.mark.parametrize("condition_on", ["prefix", "target"])
@pytest.mark.parametrize("name", ["gpt2", "marian", "bart"])
def test_logits_below_are_told_a_text_too(name: str, condition_on: str) -> None:
    """Whatever bias the output has, and whether the last token predicts something."""
    made = network(name)
    if hasattr(made, "final_logits_bias"):
        made.final_logits_bias = torch.linspace(-1, 1, TYPES)[None]
    alignment_options = lh.latents.AlignmentOptions(width=2, **OPTIONS["one"])
    model = lh.latent(made, "independent", latents=[alignment_options]).eval()
    batch = model.batch(inputs_of(made), labels_of(name))
    guide = jiggle(Cascaded(model, condition_on=condition_on), 0.1).eval()
    assert guide.is_target_conditioned
    assert lh.inference.importance(model, guide, batch, num_samples=3).bound.isfinite().all()
    if condition_on == "target":
        torch.manual_seed(0)
        own = lh.terms(model, guide, batch).elbo
        other = replace(batch, target=(batch.target + 3) % TYPES)
        torch.manual_seed(0)
        with guide.conditioned_on(other):
            assert not torch.equal(lh.terms(model, guide, batch).elbo, own)


@torch.no_grad()
def test_a_call_without_a_cache_begins_a_chain_anew() -> None:
    model, batch = build("marian", "chain", 0.5)
    encoded = model.network.get_encoder()(**source_of(model.network))
    inputs = {"encoder_outputs": encoded, "decoder_input_ids": batch.decoder_input}
    first, second = (model.network(**inputs, use_cache=False).logits for _ in range(2))
    torch.testing.assert_close(first, second)


@torch.no_grad()
def test_a_text_goes_on_with_its_own_source_after_another_text() -> None:
    model, batch = build("bart", size=0.5)
    network_, (source, other) = model.network, batch.inputs["input_ids"][:2, None]
    target = torch.tensor([[3, 4, 5]])
    encoded = network_.get_encoder()(source)
    begun = network_(encoder_outputs=encoded, decoder_input_ids=target[:, :2], use_cache=True)
    network_(input_ids=other, decoder_input_ids=target)
    name = "cache" if "cache" in begun else "past_key_values"  # of earlier versions
    options = {name: begun[name], "use_cache": True}
    last = network_(encoder_outputs=encoded, decoder_input_ids=target[:, 2:], **options).logits
    whole = network_(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(last, whole[:, 2:])
