"""Energy of a sound: words are loud, pauses are quiet."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from latentheads.contrib.heads.boundaries.chain import chain_posterior, monotone_chain
from latentheads.contrib.heads.boundaries.energy import (
    energy_offsets,
    energy_scores,
    speech_log_ratio,
)
from latentheads.contrib.heads.word_attention import WordAttention

STARTS, ENDS = torch.tensor([5.0, 23.0]).double(), torch.tensor([17.0, 31.0]).double()


def make_energy(positions: int = 40, later: float = 0.0) -> Tensor:
    """Loud from each start to the end, both some positions later."""
    at = torch.arange(positions)[:, None] + 0.5 - later
    loud = ((at > STARTS) & (at < ENDS)).any(1)
    ripple = torch.linspace(0, 9, positions).sin()
    return torch.where(loud, 2 + 0.3 * ripple, -1 + 0.2 * ripple).double()


def test_loud_positions_are_within_words() -> None:
    energy = make_energy()
    loud = energy > 0
    ratio = speech_log_ratio(energy)
    assert ratio[loud].min() > 1
    assert ratio[~loud].max() < -1
    moved = speech_log_ratio(0.1 * energy - 7)  # on any scale
    torch.testing.assert_close(moved, ratio)
    torch.testing.assert_close(speech_log_ratio(-energy), -ratio)
    assert speech_log_ratio(torch.zeros(9).double()).isfinite().all()


def test_the_log_ratio_is_that_of_two_normal_distributions() -> None:
    normal = torch.distributions.Normal(torch.tensor(0.0).double(), 1.0)
    quiet, loud = (normal.icdf((torch.arange(n) + 0.5) / n) for n in (299, 99))
    energy = torch.cat([quiet, 5 + loud])
    expected = (5 * energy - 12.5).clamp(-3, 3)
    torch.testing.assert_close(speech_log_ratio(energy), expected, rtol=0, atol=0.1)


def test_a_path_has_the_sum_of_its_words() -> None:
    energy = make_energy()
    ratio = speech_log_ratio(energy)
    scores = energy_scores(energy, torch.zeros(2).double())
    # from the middle of position 5 to that of position 16
    expected = 0.3 * (ratio[5] / 2 + ratio[6:16].sum() + ratio[16] / 2)
    torch.testing.assert_close(scores[0, 5] + scores[1, 16], expected)
    later = energy_scores(energy, torch.tensor([2.0, -1.0]).double())
    torch.testing.assert_close(later[0, 5], scores[0, 7])
    torch.testing.assert_close(later[1, 5], scores[1, 4])


def test_positions_are_exact_whatever_the_default_type_is() -> None:
    energy, offsets = torch.rand(1001).double(), torch.zeros(2).double()
    expected = energy_scores(energy, offsets)
    torch.set_default_dtype(torch.bfloat16)
    assert torch.equal(energy_scores(energy, offsets), expected)


def test_offsets_are_those_of_labels() -> None:
    energy = make_energy(later=2.0)
    weights = torch.zeros(1, 2, 40).double()
    labelled = WordAttention(weights, STARTS, ENDS, energy)
    assert energy_offsets([labelled]).tolist() == [2.0, 2.0]
    no_ends = replace(labelled, ends=torch.full_like(ENDS, torch.nan))
    assert energy_offsets([no_ends]).tolist() == [2.0, 0.0]
    assert energy_offsets([replace(labelled, energy=None)]).tolist() == [0.0, 0.0]


def test_where_no_pause_is_between_words_the_energy_has_no_offset() -> None:
    starts = torch.tensor([10.0, 30.0, 50.0]).double()
    ends = torch.tensor([29.5, 49.5, 70.0]).double()
    loud = (torch.arange(80) > 9) & (torch.arange(80) < 70)
    energy = torch.where(loud, 2.0, -1.0).double()
    weights = torch.zeros(1, 3, 80).double()
    assert energy_offsets([WordAttention(weights, starts, ends, energy)]).tolist() == [0.0, 0.0]


def test_boundaries_are_where_the_energy_changes_in_long_sounds_too() -> None:
    for positions in (40, 3000):
        energy = make_energy(positions)
        energy[50:] = 2.0
        scores = energy_scores(energy, torch.zeros(2).double())
        emissions = scores.repeat(2, 1)
        posterior = chain_posterior(monotone_chain([8.0, 5.0]), emissions)
        assert posterior.log_evidence.isfinite()
        assert posterior.marginals.isfinite().all()
        if positions == 40:
            middles = posterior.marginals.argmax(-1).mT.flatten() + 0.5
            assert (middles - torch.tensor([5, 17, 23, 31])).abs().max() == 0.5


def test_what_is_quieter_than_pauses_is_no_word() -> None:
    pause, word = torch.linspace(0.9, 1.1, 50), torch.linspace(2.0, 8.0, 50)
    energy = torch.cat([pause, word, torch.tensor([-3.0])]).double()
    assert float(speech_log_ratio(energy)[-1]) < 0
