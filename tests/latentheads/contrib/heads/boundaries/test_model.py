"""Expectation-maximisation of profiles: exact, so that it climbs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import Laplace

from latentheads.contrib.heads.boundaries.model import JUMPS, BoundaryModel, em_step, maximise
from latentheads.contrib.heads.boundaries.profiles import Profiles
from tests.latentheads.contrib.heads.boundaries.tiny import make_attention, make_model


def _draw_probs(profiles: Profiles, head: int, kind: int, boundary: int, positions: int) -> Tensor:
    """The distribution of a draw of a head that follows, bump by bump."""
    share = profiles.background[kind, head]
    probs = torch.zeros(positions, dtype=torch.float64)
    for lag, density in zip(
        range(-profiles.reach, profiles.reach + 1), profiles.densities[kind, head]
    ):
        if 0 <= boundary + lag < positions:
            probs[boundary + lag] += (1 - share) * density
    return probs + share / positions


def test_emissions_are_the_likelihood_of_the_draws() -> None:
    model, attention = make_model(), make_attention()
    profiles, positions = model.profiles, attention.positions
    emissions = profiles.emissions(attention)
    uniform = torch.tensor(1 / positions).double().log()
    for kind, head, word, boundary in torch.cartesian_prod(*map(torch.arange, emissions.shape)):
        draws = profiles.counts * attention.weights[head, word]
        log_probs = _draw_probs(profiles, head, kind, int(boundary), positions).log()
        rho = profiles.follows[kind, head]
        ratio = (draws * (log_probs - uniform)).sum()
        expected = (rho * ratio.exp() + 1 - rho).log()
        torch.testing.assert_close(emissions[kind, head, word, boundary], expected)


def test_labels_have_a_shifted_laplace_error() -> None:
    model, attention = make_model(), make_attention()
    log_probs = model.label_log_probs(attention)
    expected = Laplace(2.5 + model.shift[0], model.error[0]).log_prob(attention.starts[0])
    torch.testing.assert_close(log_probs[0, 0, 2], expected)
    assert (log_probs[0, 1] == 0).all()  # no label


def test_an_error_is_half_a_position_at_least() -> None:
    model, attention = make_model(1), make_attention()
    marginals = torch.eye(attention.positions, dtype=torch.float64)[None, :2]
    labels = torch.tensor([0.5, 1.5], dtype=torch.float64) + model.shift
    exact = replace(attention, starts=labels)
    assert maximise(model, [exact], [marginals], prior=1e-3).error.tolist() == [0.5]
    off = replace(attention, starts=labels + 0.7)
    assert maximise(model, [off], [marginals], prior=1e-9).error.tolist() == pytest.approx([0.7])


def _log_prior(model: BoundaryModel, prior: float) -> Tensor:
    """Log prior of the parameters, up to a constant."""
    profiles = model.profiles
    shares = (profiles.background, profiles.follows)
    return prior * (
        profiles.weights.log().mean(-1).sum()
        + JUMPS * (model.chain.base.exp() * model.chain.jumps).sum()
        + sum((share.log() + (-share).log1p()).sum() for share in shares)
        - (model.error.log() + 1 / model.error).sum()
    )


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_step_never_lowers_the_log_joint(kinds: int, labelled: bool) -> None:
    examples = [make_attention(seed, words, 7) for seed, words in ((2, 2), (3, 3))]
    if not labelled:
        unknown = torch.full_like
        examples = [replace(e, starts=unknown(e.starts, torch.nan)) for e in examples]
    model = make_model(kinds)
    values = []
    for _ in range(12):
        evidence = torch.stack([model.posterior(e).log_evidence for e in examples]).sum()
        values.append(evidence + _log_prior(model, 0.3))
        model, _ = em_step(model, examples, prior=0.3)
    increases = torch.stack(values).diff()
    assert (increases > -1e-9).all()
    assert increases[0] > 1e-3
