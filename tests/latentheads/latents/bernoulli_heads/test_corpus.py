"""The posterior over subsets of heads of a trained network, given a corpus."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

import latentheads as lh
from latentheads.attention.block import HeadBlock
from latentheads.latents.bernoulli_heads import corpus
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.latents.bernoulli_heads.options import (
    BernoulliHeadsOptions,
    check_number_of_subsets,
)
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.network import Choice
from latentheads.models import Translation
from latentheads.names import Block
from latentheads.pruning import remove_heads
from latentheads.training import progress
from tests.latentheads.contrib.hf.networks import IDS, REAL, TARGETS, bart, gpt2
from tests.latentheads.latents.bernoulli_heads.models import every_subset
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, attach, build, jiggle, rows, sizes, small_batch
from tests.typechecking import unchecked

BATCHES = [rows(small_batch(), [0, 2]), rows(small_batch(), [1])]


def made_up(sentences: int = 7, heads: int = 3, **options: Any) -> HeadPosterior:
    torch.manual_seed(0)
    log_likelihoods = torch.randn(sentences, 2**heads, dtype=torch.float64)
    block = Block("decoder-cross", 1, heads)
    return HeadPosterior([block], log_likelihoods, torch.ones(sentences).double(), **options)


def by_choices(model: Any, batch: lh.data.Batch, blocks: list[HeadBlock]) -> Tensor:
    """Log p(y | x, b) of every sentence and subset, a pass of the whole network each."""
    columns = []
    for gates in every_subset(sum(module.num_active_heads for module in blocks)):
        row, choices = torch.tensor(gates, dtype=torch.float64), {}
        for module in blocks:
            number = module.num_active_heads
            choices[module.block.name], row = Choice(row[:number]), row[number:]
        with torch.no_grad(), lh.inference.PlugIn():
            tokens = model.token_distribution(batch, choices)
            log_p = getattr(tokens, "log_evidence", tokens.log_prob)(batch.scored)
        columns.append(log_p)
    return torch.stack(columns, -1)


def blocks_of(model: Any, *names: str) -> list[HeadBlock]:
    return [module for module in model.head_blocks if module.block.name in names]


def aligned() -> Any:
    options = [lh.latents.AlignmentOptions(blocks=1, width=4)]
    arguments = SOURCE_TYPES, TARGET_TYPES, sizes()
    return jiggle(Translation(*arguments, latents=options), 0.3).double()


MODELS = {
    "plain": lambda: build(prior="delta"),
    "noise": lambda: build(prior="independent"),
    "cascade": lambda: build(prior="cascaded"),
    "alignments": aligned,
}


@pytest.mark.parametrize("name", MODELS)
def test_likelihoods_are_those_of_passes_of_the_whole_network(name: str) -> None:
    model, names = MODELS[name](), ("encoder.1.self", "decoder.1.self")
    model.eval()
    if name in ("noise", "alignments"):
        names = names[1:]
    posterior = lh.head_posterior(model, BATCHES, names, tau=1)
    assert f"{', '.join(names)}: " in repr(posterior)
    expected = [by_choices(model, batch, blocks_of(model, *names)) for batch in BATCHES]
    torch.testing.assert_close(posterior.log_likelihoods, torch.cat(expected))
    assert posterior.tokens.tolist() == [4, 3, 2]
    assert posterior.heads[-2] == ("decoder.1.self", 1)


def test_blocks_are_named_in_a_list_or_a_text() -> None:
    model, names = MODELS["plain"]().eval(), ("encoder.1.self", "decoder.1.self")
    by_list, by_text = (
        lh.head_posterior(model, BATCHES, n, tau=1) for n in (names, ",".join(names))
    )
    assert torch.equal(by_text.log_likelihoods, by_list.log_likelihoods)


def test_of_a_language_model_and_after_heads_were_removed() -> None:
    batch = lh.data.Batch(small_batch().target)
    model = build("language-model", "cascaded").eval()
    remove_heads(model, {"decoder.1.self": [0, 2]})
    posterior = lh.head_posterior(model, [batch], tau=1)
    assert [(block.name, block.heads) for block in posterior.blocks] == [("decoder.1.self", 2)]
    expected = by_choices(model, batch, blocks_of(model, "decoder.1.self"))
    torch.testing.assert_close(posterior.log_likelihoods, expected)


@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_of_a_network_of_transformers(kind: str) -> None:
    network = jiggle(gpt2() if kind == "gpt2" else bart(), 0.3).double().eval()
    model = lh.latent(network)
    inputs = {"input_ids": IDS, "attention_mask": REAL}
    labels = {} if kind == "gpt2" else {"labels": TARGETS}
    batch = model.batch(inputs, **labels)
    block = model.head_blocks[-1]
    posterior = lh.head_posterior(model, [batch], tau=1)
    assert [b.name for b in posterior.blocks] == [block.block.name]
    with torch.no_grad():
        expected = by_choices(model, batch, [block])
    torch.testing.assert_close(posterior.log_likelihoods, expected)
    assert posterior.log_likelihoods.std(-1).min() > 1e-6
    lh.contrib.hf.plain(model)


def test_lower_layers_of_a_network_of_transformers_run_once() -> None:
    network = gpt2(n_layer=3).double().eval()
    model, calls = lh.latent(network), list[int]()
    for number, layer in enumerate(network.transformer.h):
        layer.attn.register_forward_pre_hook(lambda *_, number=number: calls.append(number))
    batch = model.batch({"input_ids": IDS, "attention_mask": REAL})
    lh.head_posterior(model, [batch], "decoder.2.self", tau=1)
    assert (calls.count(0), calls.count(1), calls.count(2)) == (1, 1, 1 + 8)
    lh.contrib.hf.plain(model)


def test_sentences_stand_in_the_order_of_the_corpus() -> None:
    model, batch = build(prior="delta").eval(), small_batch()
    whole = lh.head_posterior(model, [batch], tau=1).log_likelihoods
    indexed = [
        lh.data.Batch(b.target, b.source, torch.tensor(index), 3)
        for b, index in ((rows(batch, [2]), [2]), (rows(batch, [0, 1]), [0, 1]))
    ]
    torch.testing.assert_close(lh.head_posterior(model, indexed, tau=1).log_likelihoods, whole)


def test_probabilities_are_shown_with_their_intervals() -> None:
    posterior = made_up()
    ends = posterior.bootstrap(200)
    for probability, low, high in zip(posterior.inclusion, ends.low, ends.high, strict=True):
        assert f"{probability:.3f} [{low:.3f}, {high:.3f}]" in repr(posterior)


def test_bayes_rule_by_hand() -> None:
    posterior = made_up(tau=2.0, rate=0.8)
    log_joint = []
    for index, gates in enumerate(every_subset(3)):
        log_prior = sum(math.log(0.8 if gate else 0.2) for gate in gates)
        log_joint.append(log_prior + float(posterior.log_likelihoods[:, index].sum()) / 2)
    probs = torch.tensor(log_joint).double().softmax(-1)
    torch.testing.assert_close(posterior.log_probs.exp(), probs)
    gates = torch.tensor(list(every_subset(3))).double()
    inclusion = (probs[:, None] * gates).sum(0)
    torch.testing.assert_close(posterior.inclusion, inclusion)
    second = torch.einsum("s,si,sj->ij", probs, gates, gates)
    torch.testing.assert_close(posterior.covariance, second - inclusion.outer(inclusion))
    log_odds = torch.log(inclusion) - torch.log1p(-inclusion)
    torch.testing.assert_close(posterior.log_odds, log_odds)
    assert posterior.entropy == pytest.approx(float(-(probs * probs.log()).sum()))


def test_log_odds_do_not_round() -> None:
    posterior = made_up(tau=0.001)
    assert (posterior.inclusion.round() == posterior.inclusion).all()
    assert posterior.log_odds.isfinite().all()
    assert (posterior.log_odds.abs() > 100).all()


def test_log_odds_of_many_heads_pass_over_their_subsets_twice() -> None:
    posterior, passed = made_up(heads=8), 0
    logsumexp = Tensor.logsumexp

    def counted(values: Tensor, *dim: Any) -> Tensor:
        nonlocal passed
        passed += values.numel()
        return logsumexp(values, *dim)

    with mock.patch.object(Tensor, "logsumexp", counted):
        log_odds = posterior.log_odds
    assert passed < 3 * 2**8
    inclusion = posterior.inclusion
    torch.testing.assert_close(log_odds, torch.log(inclusion) - torch.log1p(-inclusion))


def test_temperature_goes_from_the_best_subset_to_the_prior() -> None:
    posterior = made_up(rate=0.7)
    cold, hot = posterior.with_temperature(1e-4), posterior.with_temperature(1e9)
    best = posterior.log_likelihoods.sum(0).argmax()
    torch.testing.assert_close(cold.inclusion, posterior.subsets[best])
    torch.testing.assert_close(hot.inclusion, torch.full((3,), 0.7).double())
    posterior = made_up(rate=0.5)
    entropies = [posterior.with_temperature(tau).entropy for tau in (0.1, 1.0, 10.0, 100.0)]
    assert entropies == sorted(entropies)


def test_a_sentence_at_temperature_1_is_that_of_two_alike_at_2() -> None:
    one = made_up(sentences=1)
    twice = HeadPosterior(
        one.blocks, one.log_likelihoods.repeat(2, 1), torch.ones(2).double(), tau=2.0
    )
    torch.testing.assert_close(one.log_probs, twice.log_probs)


def test_subsets_by_probability_and_by_size() -> None:
    posterior = made_up()
    first, second = posterior.most_probable(2)
    assert first.probability >= second.probability
    assert first.probability == pytest.approx(float(posterior.log_probs.exp().max()))
    nats = posterior.log_likelihoods.sum(0) / posterior.tokens.sum()
    index = sum(2**head for head in first.heads["decoder.1.cross"])
    assert first.nats == pytest.approx(float(nats[-1] - nats[index]))
    assert posterior.smallest_subset(math.inf).size == 0
    least = posterior.smallest_subset(0.0)
    sizes = posterior.subsets.sum(-1)
    assert least.size == int(sizes[nats >= nats[-1]].min())
    assert least.nats <= 0
    rows = torch.tensor([[-9.0, -3.0, -1.0, 0.0, -2.0, 0.0, 0.0, 0.0]]).double()
    one = replace(posterior, log_likelihoods=rows, tokens=torch.ones(1).double())
    assert one.smallest_subset(3.0).heads == {"decoder.1.cross": [1]}
    nothing = replace(one, log_likelihoods=0 * rows, tokens=torch.zeros(1).double())
    assert nothing.smallest_subset(0.0).nats == 0  # of texts without a token


def test_sentences_of_one_text_count_as_their_mean() -> None:
    posterior = made_up(sentences=5)
    grouped = posterior.grouped(["a", "b", "a", "c", "a"])
    table, tokens = posterior.log_likelihoods, posterior.tokens
    rows = [[0, 2, 4], [1], [3]]
    torch.testing.assert_close(
        grouped.log_likelihoods, torch.stack([table[r].mean(0) for r in rows])
    )
    torch.testing.assert_close(grouped.tokens, torch.stack([tokens[r].mean() for r in rows]))
    by_number = posterior.grouped(torch.tensor([4, 1, 4, 0, 4]))
    torch.testing.assert_close(by_number.log_likelihoods, grouped.log_likelihoods)
    alone = posterior.grouped(range(5))
    torch.testing.assert_close(alone.inclusion, posterior.inclusion)
    copies = posterior.on(torch.arange(5).repeat(7)).grouped([*range(5)] * 7)
    torch.testing.assert_close(copies.bootstrap(50).low, posterior.bootstrap(50).low)
    with pytest.raises(ValueError, match=r"^groups must be as many as sentences, 5, got 2$"):
        posterior.grouped("ab")


def test_bootstrap_intervals() -> None:
    posterior = made_up(sentences=40, tau=20.0)
    intervals = posterior.bootstrap(400, seed=1)
    assert intervals.inclusion.shape == intervals.log_odds.shape == (400, 3)
    assert ((intervals.low < posterior.inclusion) & (posterior.inclusion < intervals.high)).all()
    again = posterior.bootstrap(400, seed=1)
    assert torch.equal(again.inclusion, intervals.inclusion)
    assert not torch.equal(posterior.bootstrap(400, seed=2).inclusion, intervals.inclusion)
    one = posterior.log_likelihoods[:1]
    alike = HeadPosterior(posterior.blocks, one.expand(9, -1), torch.ones(9).double())
    assert (alike.bootstrap(50).width < 1e-12).all()
    ends = [f"[{x:.3f}, {x:.3f}]" for x in alike.inclusion.tolist()]
    assert repr(alike.bootstrap(50)) == f"HeadIntervals(50 resamples; {', '.join(ends)})"


@pytest.mark.parametrize(("number", "share", "other_share"), [(200, 0.94, 0.81), (10, 0.94, 0.84)])
def test_an_interval_holds_p_by_the_mean_effect_and_seldomer_that_of_other_sentences(
    number: int, share: float, other_share: float
) -> None:
    """Figures of docs/bernoulli-heads.md, there of more samples."""
    heads, mean, samples = 3, 0.05, 40
    active, block = torch.tensor([*every_subset(heads)]).double(), Block("decoder-self", 0, heads)
    generator, held, held_other = torch.Generator().manual_seed(0), [], []

    def sample() -> HeadPosterior:
        effects = mean + 0.5 * torch.randn(number, heads, generator=generator, dtype=torch.float64)
        tokens = torch.ones(number).double()
        return HeadPosterior([block], -effects @ (1 - active).mT, tokens, tau=20.0)

    for seed in range(samples):
        intervals, other = sample().bootstrap(100, seed), sample().inclusion
        by_mean = torch.full_like(other, number * mean / 20).sigmoid()
        held.append((intervals.low <= by_mean) & (by_mean <= intervals.high))
        held_other.append((intervals.low <= other) & (other <= intervals.high))
    assert float(torch.cat(held).double().mean()) == pytest.approx(share, abs=0.06)
    assert float(torch.cat(held_other).double().mean()) == pytest.approx(other_share, abs=0.1)


def test_the_smallest_set_loses_more_on_sentences_that_it_was_not_chosen_on() -> None:
    """Figures of docs/bernoulli-heads.md, there of more samples."""
    heads, cost, spread, within, samples = 6, 0.03, 0.3, 0.05, 100
    active, block = torch.tensor([*every_subset(heads)]).double(), Block("decoder-self", 0, heads)
    generator, chosen = torch.Generator().manual_seed(0), []
    for _ in range(samples):
        costs = cost + spread * torch.randn(200, heads, generator=generator, dtype=torch.float64)
        log_likelihoods = -costs @ (1 - active).mT
        posterior = HeadPosterior([block], log_likelihoods, torch.ones(200).double())
        chosen.append(posterior.smallest_subset(within))
    elsewhere = torch.tensor([cost * (heads - subset.size) for subset in chosen])
    here = sum(subset.nats for subset in chosen) / samples
    assert here == pytest.approx(0.034, abs=0.004)
    assert float(elsewhere.mean()) == pytest.approx(0.083, abs=0.006)
    assert float((elsewhere > within).double().mean()) == pytest.approx(0.92, abs=0.06)


@pytest.mark.parametrize("sentences", [0, 1])
def test_one_sentence_or_none_has_no_interval(sentences: int) -> None:
    posterior = made_up(3).on(torch.arange(sentences))
    intervals = posterior.bootstrap(50)
    assert intervals.width.isnan().all()
    assert f"{posterior.inclusion[0]:.3f} [nan, nan]" in repr(posterior)
    torch.testing.assert_close(intervals.inclusion, posterior.inclusion.expand(50, -1))


def test_the_bootstrap_of_a_mean_has_its_standard_error() -> None:
    """With small likelihoods log-odds are linear: their spread is that of a sum."""
    torch.manual_seed(0)
    scores = 0.01 * torch.randn(200).double()
    likelihoods = torch.stack([torch.zeros(200).double(), scores], -1)
    posterior = HeadPosterior([Block("decoder-self", 0, 1)], likelihoods, torch.ones(200).double())
    spread = posterior.bootstrap(4000).log_odds.std()
    torch.testing.assert_close(spread, scores.std() * math.sqrt(200), rtol=0.05, atol=0)
    total = scores.sum()
    torch.testing.assert_close(posterior.inclusion[0].log(), logsigmoid(total))


def test_intervals_of_three_sentences_hold_the_probability() -> None:
    """That of heads of known mean effects; percentiles of the resamples would in 75 %."""
    random = torch.Generator().manual_seed(0)
    blocks, held = [Block("decoder-self", 0, 6)], 0
    for _ in range(30):
        effects = 0.5 + torch.randn(3, 6, generator=random, dtype=torch.float64)
        table = effects @ all_subsets(6, effects).mT
        ends = HeadPosterior(blocks, table, torch.ones(3).double(), tau=1.5).bootstrap(100)
        held += int(((ends.low < 0.7311) & (ends.high > 0.7311)).sum())  # log-odds of 1
    assert 0.9 < held / 180 < 0.98


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.0}, "tau must be positive and finite, got 0"),
        ({"tau": math.nan}, "tau must be"),
        ({"gibibytes": -1.0}, "gibibytes must be positive and finite, got -1"),
        ({"gibibytes": math.nan}, "gibibytes must be positive and finite, got nan"),
        ({"rate": 1.0}, "rate must be above 0 and below 1, got 1"),
        ({"blocks": "decoder.9.self"}, "blocks must be one of "),
        ({"blocks": 3}, "^blocks must be a list, got 3$"),
        (
            {"blocks": ",".join(f"{s}.{n}.self" for s in ("encoder", "decoder") for n in range(3))},
            "have 262,144 subsets of heads together, .*: name fewer blocks$",
        ),
    ],
)
def test_what_cannot_be(options: dict[str, Any], message: str) -> None:
    model = build(prior="delta", layers=3).eval()
    with pytest.raises(ValueError, match=message):
        lh.head_posterior(model, BATCHES, **{"tau": 1, **options})


def test_a_block_of_many_heads_is_refused_by_their_number() -> None:
    line = r"^blocks decoder.0.self have 8,192 subsets .*: a block may have at most 12 heads$"
    with pytest.raises(ValueError, match=line):
        check_number_of_subsets([Block("decoder-self", 0, 13)])
    check_number_of_subsets([Block("decoder-self", 0, 12)])


@pytest.mark.parametrize("latent", [GateOptions(), BernoulliHeadsOptions()])
def test_heads_that_are_latent_already_are_refused(latent: Any) -> None:
    arguments = SOURCE_TYPES, TARGET_TYPES, sizes()
    model = Translation(*arguments, latents=[latent]).double()
    with pytest.raises(ValueError, match=r"select their heads already|decide about heads of each"):
        lh.head_posterior(model, BATCHES, tau=1)


def test_resamples_and_numbers_are_checked() -> None:
    posterior = made_up()
    with pytest.raises(ValueError, match="resamples must be at least 2, got 1"):
        posterior.bootstrap(1)
    with pytest.raises(ValueError, match="number must be at least 1, got 0"):
        posterior.most_probable(0)


def test_a_bootstrap_in_chunks_has_the_same_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = made_up()
    at_once = posterior.bootstrap(50, seed=3)
    monkeypatch.setattr(corpus, "CHUNK", 3 * 8)
    in_chunks = posterior.bootstrap(50, seed=3)
    torch.testing.assert_close(in_chunks.inclusion, at_once.inclusion)
    torch.testing.assert_close(in_chunks.low, at_once.low)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda p: p.smallest_subset(-1), "within must be at least 0, got -1"),
        (lambda p: p.smallest_subset(math.nan), "within must be at least 0, got nan"),
    ],
)
def test_numbers_without_a_subset_or_without_end(work: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        work(made_up())


def test_a_guide_in_place_of_a_model() -> None:
    guide = attach("cascaded", build())
    with pytest.raises(ValueError, match=r"^model must be one of heads, .*, got Cascaded$"):
        unchecked(lh.head_posterior)(guide, BATCHES, tau=1)


def test_weights_that_are_not_finite_are_named() -> None:
    model = build(prior="delta").eval()
    name, parameter = next(p for p in model.named_parameters() if p[0].startswith("decoder"))
    parameter.data.view(-1)[0] = math.nan
    with pytest.raises(FloatingPointError, match=f"NaN: the model's parameter {name} is not fin"):
        lh.head_posterior(model, BATCHES, tau=1)


def test_progress_counts_the_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list[str]()
    monkeypatch.setattr(progress, "FIRST", (0.0, 0.0, 0.0))
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(progress, "print_message", lambda line, file: lines.append(line))
    model = build(prior="delta").eval()
    lh.head_posterior(model, iter(BATCHES), tau=1)
    assert [line.partition(",")[0] for line in lines] == ["sentence 2 of 3", "sentence 3 of 3"]
    lines.clear()
    lh.head_posterior(model, BATCHES, quiet=True, tau=1)
    assert not lines
