"""The posterior over subsets of heads of prompts, its penalty, temperature and interactions."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from latentheads.contrib.circuits import (
    CircuitPosterior,
    SubsetScorer,
    calibrate,
    circuit_posterior,
    decide,
    interactions,
)
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.names import Block
from tests.latentheads.contrib.circuits.tiny import PROMPTS, network
from tests.latentheads.contrib.hf.networks import gpt2
from tests.typechecking import unchecked

LABELS = ["L0H0", "L0H1", "L0H2"]
CHOSEN = [("decoder.0.self", head) for head in range(3)]

EFFECTS = torch.tensor([-0.5, 0.7, 0.9], dtype=torch.float64)


def make_posterior(
    benefit: torch.Tensor, penalty: float = 0.1, tau: float = 1.0
) -> CircuitPosterior:
    """Heads that bring so much to each prompt, each by itself: prompt, head."""
    subsets = all_subsets(3, benefit)
    rows = -benefit @ (1 - subsets).mT
    blocks = [Block("decoder-self", 0, 3)]
    tokens = torch.ones(len(rows), dtype=torch.float64)
    return CircuitPosterior(blocks, rows, tokens, tau, 0.5, CHOSEN, LABELS, penalty)


def test_a_head_is_included_for_more_than_its_penalty() -> None:
    benefit = torch.tensor([[0.3, 0.1, 0.0], [0.1, 0.1, 0.02]], dtype=torch.float64)
    posterior = make_posterior(benefit, tau=0.5)
    expected = (benefit - 0.1).sum(0) / 0.5
    torch.testing.assert_close(posterior.log_odds, expected)
    torch.testing.assert_close(posterior.inclusion, expected.sigmoid())
    assert posterior.best[0] == 1
    assert posterior.best[2] == 0
    assert repr(posterior).endswith(
        "penalty 0.1, tau 0.5; inclusion L0H0 0.599, L0H1 0.500, L0H2 0.411)"
    ), repr(posterior)
    twice = posterior.on(torch.tensor([0, 0])).with_penalty(0.2)
    torch.testing.assert_close(twice.log_odds, 2 * (benefit[0] - 0.2) / 0.5)
    assert posterior.most_probable(1)[0].heads == {"decoder.0.self": [0]}
    assert posterior.bootstrap(50).width[0] > posterior.bootstrap(50).width[1] - 1e-12


def test_heads_of_two_layers_have_the_table_of_a_network() -> None:
    scorer = SubsetScorer(network(), PROMPTS, [(0, 1), (1, 0), (1, 2)])
    posterior = circuit_posterior(scorer, penalty=0.01, tau=0.1)
    assert posterior.heads == [
        ("decoder.0.self", 1),
        ("decoder.1.self", 0),
        ("decoder.1.self", 2),
    ]
    assert posterior.smallest_subset(1e9).heads == {"decoder.0.self": [], "decoder.1.self": []}
    assert posterior.log_likelihoods.shape == (3, 8)
    torch.testing.assert_close(
        posterior.log_likelihoods[:, 5], scorer(torch.tensor([[1.0, 0.0, 1.0]]))[0]
    )


def test_more_heads_than_a_table_holds_are_for_samplers() -> None:
    scorer = SubsetScorer(
        gpt2(n_embd=14, n_head=7).eval(), PROMPTS, [f"decoder.{i}.self" for i in (0, 1)]
    )
    with pytest.raises(ValueError, match=r"^a table of subsets is of at most 12 heads, got 14: sa"):
        circuit_posterior(scorer, penalty=0.0, tau=1.0)
    with pytest.raises(ValueError, match=r"^penalty must be at least 0, got -1.0$"):
        circuit_posterior(scorer, penalty=-1.0, tau=1.0)


def test_the_temperature_makes_probabilities_frequencies() -> None:
    """Benefits with spread 1: the mean of 10 is normal, of spread 1/sqrt(10)."""
    torch.manual_seed(0)
    benefit = [
        0.1 + 0.3 * torch.randn(3) + torch.randn(400, 3, dtype=torch.float64) for _ in range(6)
    ]
    posteriors = [make_posterior(rows) for rows in benefit]
    tau = calibrate(posteriors, 10, (0.05, 0.2, 0.8, 3.2, 12.8), resamples=20).tau
    assert tau in (0.8, 3.2)
    decisions = decide(posteriors, 10, tau, 40, seed=1)
    assert len(decisions.needed) == 6 * 40 * 3
    fifths = (5 * decisions.probability).long()
    for fifth in fifths.unique():
        stated, share = (
            x[fifths == fifth].mean() for x in (decisions.probability, decisions.needed)
        )
        torch.testing.assert_close(share, stated, rtol=0, atol=0.15)
    sharp = decide(posteriors, 10, tau / 16, 40, seed=1)
    assert sharp.score < decisions.score - 0.1


def test_the_search_goes_on_only_where_the_best_is_at_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def score(_: Any, __: Any, tau: float, *___: Any) -> Any:
        power = math.log2(tau)
        return SimpleNamespace(score=-abs(power) if power < 5 else 2 * power - 15)

    monkeypatch.setattr("latentheads.contrib.circuits.calibration.decide", score)
    calibration = calibrate(make_posterior(EFFECTS.expand(16, 3)))
    assert (calibration.tau, calibration.temperatures[-1]) == (1, 2.0**6)


def test_a_posterior_is_calibrated_by_halves_of_its_prompts() -> None:
    torch.manual_seed(0)
    posterior = make_posterior(EFFECTS + torch.randn(17, 3, dtype=torch.float64))
    taus = (0.001, 2.0, 1000.0)
    calibration = calibrate(posterior, None, taus)
    assert calibration == calibrate(iter([posterior]), 8, iter(taus))  # each is read once
    assert calibration.tau == calibration.close[0] == 2.0
    assert repr(calibration) == "Calibration(tau 2, within .01 nats 2 to 2)"
    assert calibration.to_frame().score.idxmax() == 1
    assert len(decide(posterior, None, 1.0, 5).needed) == 15
    for too_few in ([], [2.0, 2.0]):
        with pytest.raises(ValueError, match=r"^temperatures must be at least two to choose from"):
            calibrate(posterior, None, too_few)
    with pytest.raises(ValueError, match="posteriors must be at least one, got none"):
        calibrate([])
    for other in (posterior.log_odds, [posterior, 3], None):
        with pytest.raises(ValueError, match=r"^posteriors must be what circuit_posterior or lh"):
            unchecked(calibrate)(other)


def test_sentences_are_calibrated_as_prompts_are() -> None:
    """At tau 1 chance makes heads without an effect certain; calibrated they are not."""
    subsets = all_subsets(3, EFFECTS)
    certain = {1.0: 0, None: 0}
    for seed in range(5):
        torch.manual_seed(seed)
        likelihoods = torch.randn(41, 3, dtype=torch.float64) @ subsets.mT
        tokens = torch.ones(41, dtype=torch.float64)
        posterior = HeadPosterior([Block("decoder-self", 0, 3)], likelihoods, tokens)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no temperature is identified
            tau = calibrate(posterior, resamples=50).tau
        for chosen in certain:
            inclusion = posterior.with_temperature(chosen or tau).inclusion
            certain[chosen] += int((abs(inclusion - 0.5) > 0.45).sum())
    assert certain[1.0] >= 7
    assert certain[None] <= 1


def test_a_temperature_beyond_the_first_ones_is_found() -> None:
    torch.manual_seed(0)
    scale = 2.0**10
    benefit = EFFECTS + torch.randn(17, 3, dtype=torch.float64)
    small, large = (
        calibrate(make_posterior(benefit * x, 0.1 * x), resamples=50) for x in (1.0, scale)
    )
    assert large.tau == small.tau * scale > 64
    assert large.is_identified


def test_a_temperature_that_no_split_shows_is_warned_of() -> None:
    benefit = torch.tensor([[0.3, 0.0, 0.2]], dtype=torch.float64)
    agreed = make_posterior(benefit.expand(17, 3))
    with pytest.warns(UserWarning, match=r"^tau is not identified: splits agree on every head"):
        calibration = calibrate(agreed, resamples=5)
    # the largest at which probabilities are 0 and 1 up to the tolerance, and not the end of a grid
    assert min(calibration.temperatures) < calibration.tau < 1
    assert decide(agreed, None, 2 * calibration.tau, 5).score < -1e-3
    assert repr(calibration).endswith(", not identified)")
    flat = make_posterior(torch.zeros(17, 3, dtype=torch.float64), penalty=0.0)
    with pytest.warns(UserWarning, match=r"^tau is not identified: all temperatures score alike"):
        assert calibrate(flat, resamples=5).tau == 2.0**-3
    torch.manual_seed(0)
    noise = make_posterior(torch.randn(18, 3, dtype=torch.float64), penalty=0.0)
    assert noise.tokens.sum() == 18
    with pytest.warns(UserWarning, match=r"hardly predicts what the rest needs, and each tau from"):
        calibration = calibrate(noise, resamples=50)
    assert 1 < calibration.tau < max(calibration.temperatures)


def test_few_prompts_are_warned_of() -> None:
    torch.manual_seed(0)
    posterior = make_posterior(torch.randn(15, 3, dtype=torch.float64))
    with pytest.warns(UserWarning, match=r"^a temperature of 15 prompts or sentences makes probab"):
        calibrate(posterior, None, (0.001, 1.0, 100.0))


def test_a_split_leaves_prompts_that_decide() -> None:
    with pytest.raises(ValueError, match=r"^size must leave prompts that decide, got 2 of 2$"):
        decide([make_posterior(torch.zeros(2, 3, dtype=torch.float64))], 2, 1.0)
    with pytest.raises(ValueError, match=r"^posteriors must be of two prompts or sentences"):
        calibrate(make_posterior(torch.zeros(1, 3, dtype=torch.float64)))


def test_interactions_are_discrete_derivatives() -> None:
    torch.manual_seed(0)
    value = {
        tuple(row): float(x)
        for row, x in zip(all_subsets(3, torch.ones(())).tolist(), torch.randn(8), strict=True)
    }
    values = torch.tensor(list(value.values()))
    sets, pairs = interactions(values, 2)
    assert sets == [(0, 1), (0, 2), (1, 2)]
    whole = value[1, 1, 1] - value[0, 1, 1] - value[1, 0, 1] + value[0, 0, 1]
    without = value[1, 1, 0] - value[0, 1, 0] - value[1, 0, 0] + value[0, 0, 0]
    assert float(pairs[0]) == pytest.approx(whole, abs=1e-6)
    average = interactions(values, 2, "average")[1]
    assert float(average[0]) == pytest.approx((whole + without) / 2, abs=1e-6)
    triple = interactions(values, 3)[1]
    assert float(triple[0]) == pytest.approx(whole - without, abs=1e-6)
    torch.testing.assert_close(triple, interactions(values, 3, "average")[1])
    rows = interactions(torch.stack([values, 2 * values]), 1)[1]
    torch.testing.assert_close(rows[1], 2 * rows[0])
    with pytest.raises(ValueError, match=r"^values of all subsets of 4 or more heads are needed"):
        interactions(values, 4)
