"""Planted heads are recovered, with their lags, with and without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch
from torch import Tensor

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundaries.anchor import anchor_shift, sound_onset
from latentheads.contrib.heads.boundaries.chain import monotone_chain, noisy_quantiles, quantiles
from latentheads.contrib.heads.boundaries.fit import (
    ERRORS,
    FitOptions,
    left_out_error,
    left_out_information,
    make_model,
    view_information,
)
from latentheads.contrib.heads.word_attention import WordAttention
from tests.terminal import showing_progress

HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]
LAGS = {1: -2, 3: 3}
"""Planted lags of two heads; others attend anywhere."""

OPTIONS = FitOptions(views=2, rounds=2, steps=2, reach=7, width=0.8)


def _plant(seed: int, words: int = 5, positions: int = 53) -> WordAttention:
    """Attention around the true starts of words; the energy rises where words start."""
    random = torch.Generator().manual_seed(seed)
    jumps = torch.randint(6, 11, (words,), generator=random)
    starts = jumps.cumsum(0)
    weights = 0.2 * torch.rand(8, words, positions, generator=random).double()
    for head, lag in LAGS.items():
        weights[head, range(words), starts + lag] += 20.0
    sound = torch.zeros(positions, dtype=torch.float64)
    for start in starts.tolist():
        sound[start : start + 4] += torch.tensor([1.0, 2.0, 2.0, 1.0])
    weights = weights / weights.sum(-1, keepdim=True)
    ends = torch.full((words,), torch.nan).double()
    return WordAttention(weights, starts + 0.25, ends, sound, 0.5)


def _unlabel(attention: WordAttention) -> WordAttention:
    unknown = torch.full_like(attention.starts, torch.nan)
    return replace(attention, starts=unknown, ends=unknown)


@cache
def _fit(labelled: int, number: int = 6) -> AlignmentHeads:
    examples = [_plant(seed) for seed in range(number)]
    attentions = [e if i < labelled else _unlabel(e) for i, e in enumerate(examples)]
    return fit_alignment_heads(HEADS, attentions, options=OPTIONS)


def test_learning_shows_how_far_it_is() -> None:
    with showing_progress() as terminal:
        _fit.__wrapped__(2, 2)
    for what in ("learning heads", "testing heads", "testing labels"):
        assert what in terminal.getvalue()


def test_a_table_seeds_no_generator_of_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = _fit(1, 2)
    monkeypatch.setattr(torch, "manual_seed", pytest.fail)  # it would seed those of all devices
    before = torch.get_rng_state()
    assert heads.table() == heads.table()
    assert repr(heads).startswith("AlignmentHeads(")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("labelled", [0, 1, 3])
def test_planted_heads_and_lags_are_found(labelled: int) -> None:
    heads = _fit(labelled)
    tolerance = 0.4 if labelled else 0.7  # energy shows a shift up to a position
    assert {h for h, p in heads.probabilities.items() if p > 0.5} == {(0, 1), (1, 1)}
    rows = {row.head: row for row in heads.table()}
    assert list(heads.probabilities) == list(rows)  # the most informative first
    frame = heads.to_frame().set_index(["layer", "head"])
    assert list(frame.index) == list(rows)
    assert frame.lag.tolist() == [row.lag for row in rows.values()]
    assert frame.information_high.tolist() == [row.information[2] for row in rows.values()]
    for index, lag in LAGS.items():
        assert rows[HEADS[index]].lag == pytest.approx(0.5 * lag, abs=tolerance)
        assert not rows[HEADS[index]].at_input
        low, high = rows[HEADS[index]].information[1:]
        assert low <= rows[HEADS[index]].information[0] <= high
    new = _plant(99)
    times = heads.times(_unlabel(new))["starts"]
    torch.testing.assert_close(times.median, 0.5 * new.starts, atol=tolerance, rtol=0)
    assert ((times.low < times.median) & (times.median < times.high)).all()
    assert len(heads.sufficient()) == 1


def _blur(attention: WordAttention, seed: int) -> WordAttention:
    """Attention that comes up to two positions earlier or later at every word."""
    random = torch.Generator().manual_seed(seed)
    weights = attention.weights.clone()
    for view, word in product(*map(range, weights.shape[:2])):
        shift = int(torch.randint(-2, 3, (1,), generator=random))
        weights[view, word] = weights[view, word].roll(shift)
    return replace(attention, weights=weights)


def _planted_information(heads: AlignmentHeads, examples: Sequence[WordAttention]) -> Tensor:
    """The mean over examples, with profiles as they were learned."""
    marginals = [heads.model.posterior(example).marginals for example in examples]
    return view_information(heads.model, examples, marginals)[:, 0].mean(0)[list(LAGS)]


def test_information_is_that_of_fresh_examples_with_an_interval() -> None:
    fresh = [_blur(_plant(seed), seed) for seed in range(20, 50)]
    rows = []
    for first in (5, 10):
        examples = [_blur(_plant(seed), seed) for seed in range(first, first + 5)]
        heads = fit_alignment_heads(HEADS, examples, options=OPTIONS)
        by_head = {row.head: row.information for row in heads.table()}
        estimates = torch.tensor([by_head[HEADS[index]] for index in LAGS])
        expected, in_sample = (_planted_information(heads, e) for e in (fresh, examples))
        rows.append(torch.stack([in_sample - expected, *(estimates.mT - expected)]))
    own, mean, low, high = torch.cat(rows, -1)
    assert own.mean() > 0.08  # profiles fit the examples that they were learned from too well
    assert mean.mean().abs() < 0.05
    assert (low < 0).all()
    assert (high > 0).all()


def test_examples_that_are_left_out_together_are_not_learned_from() -> None:
    examples = [_plant(seed) for seed in range(6)]  # the first and the last are one part
    others = [*examples[:-1], _blur(examples[-1], 7)]
    model = fit_alignment_heads(HEADS, examples, options=OPTIONS).model
    first, second = (left_out_information(model, rows, OPTIONS) for rows in (examples, others))
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])


def test_an_error_is_that_of_labels_that_are_not_learned_from() -> None:
    examples, errors = [_plant(seed) for seed in range(2)], []
    apart = [replace(e, starts=e.starts + shift) for e, shift in zip(examples, (-3, 3))]
    for labelled in (examples, apart):
        model = fit_alignment_heads(HEADS, labelled, options=OPTIONS).model
        errors.append(float(left_out_error(model, labelled, labelled, OPTIONS)))
    assert errors[0] < 0.6
    assert 5 < errors[1] < 7  # labels of one are 6 positions from where those of the other say


def test_words_that_are_not_in_the_sound_are_warned_of() -> None:
    heads, new = _fit(0), _unlabel(_plant(99))
    wrong = replace(new, weights=new.weights.flip(1))  # words in another order
    assert heads.evidence(wrong) < 0 < heads.evidence(new)
    heads.times(new)
    with pytest.warns(UserWarning, match=r"^attention does not fit its text: log evidence of -"):
        heads.times(wrong)


@pytest.mark.parametrize(("share", "is_misfit"), [(0.2, True), (0.3, False)])
def test_a_misfit_has_at_most_a_quarter_of_the_usual_evidence(
    monkeypatch: pytest.MonkeyPatch, share: float, is_misfit: bool
) -> None:
    heads, new = _fit(2, 2), _plant(99)
    usual = sorted(map(heads.evidence, heads.attentions))
    assert heads.usual_evidence == sum(usual) / 2
    monkeypatch.setattr(AlignmentHeads, "evidence", lambda *_: heads.usual_evidence * share)
    assert heads.is_misfit(new) == is_misfit


def test_one_example_has_no_interval() -> None:
    heads = fit_alignment_heads(HEADS, [_plant(0)], options=OPTIONS)
    mean, *bounds = heads.table()[0].information
    assert mean > 0
    assert all(map(math.isnan, bounds))
    assert heads.to_frame().information_low.isna().all()


def test_labels_of_ends_alone_say_nothing_of_the_error_of_starts() -> None:
    examples = [replace(e, starts=e.ends, ends=e.starts + 3) for e in map(_plant, range(3))]
    options = replace(OPTIONS, kinds=2)
    model = fit_alignment_heads(HEADS, examples, options=options).model
    assert model.error[0] == make_model(examples, options).error[0]
    assert model.error[1] in ERRORS


def test_an_error_is_half_a_position_at_least_where_words_are_short() -> None:
    examples = [_unlabel(_plant(seed)) for seed in range(2)]  # 10.6 positions a word
    assert fit_alignment_heads(HEADS, examples, options=OPTIONS).model.error.tolist() == [0.5]


def test_starts_without_labels_are_anchored_in_the_energy() -> None:
    examples = [_plant(seed) for seed in range(6)]
    ended = [replace(_unlabel(e), ends=e.starts + 3) for e in examples]
    options = replace(OPTIONS, kinds=2, energy=False)
    heads = fit_alignment_heads(HEADS, ended, options=options)
    assert heads.model.shift[1] == 0.0
    new = _plant(99)
    times = heads.times(_unlabel(new))
    torch.testing.assert_close(times["starts"].median, 0.5 * new.starts, atol=0.5, rtol=0)
    torch.testing.assert_close(times["ends"].median, 0.5 * new.starts + 1.5, atol=0.5, rtol=0)


def test_labels_of_ends_are_no_labels_where_starts_alone_are_learned() -> None:
    examples = [_unlabel(_plant(seed)) for seed in range(3)]
    ended = [replace(e, ends=_plant(0).starts + 3) for e in examples]
    expected, model = (
        fit_alignment_heads(HEADS, attentions, options=OPTIONS).model
        for attentions in (examples, ended)
    )
    assert torch.equal(model.shift, expected.shift)
    assert torch.equal(model.chosen, expected.chosen)


def test_labels_in_another_order_have_no_path() -> None:
    example = _plant(0, words=50, positions=997)
    starts = torch.tensor([990.0, 0.0] * 25).double()
    chain = monotone_chain([1.0])
    with pytest.raises(ValueError, match=r"no path .* the chain jumps 0 to 29 positions"):
        fit_alignment_heads(HEADS, [replace(example, starts=starts)], options=OPTIONS, chain=chain)


def test_attention_has_two_views_of_each_head() -> None:
    examples = [_plant(0), replace(_plant(1), weights=_plant(1).weights[1:])]
    for heads, index, views in ((HEADS[:3], 0, 8), (HEADS, 1, 7)):
        message = rf"^attentions\[{index}\] must have two views of each of {len(heads)} heads, got "
        with pytest.raises(ValueError, match=f"{message}{views}$"):
            fit_alignment_heads(heads, examples)


def test_attention_of_any_precision_is_learned_from() -> None:
    examples = [_plant(seed) for seed in range(2)]
    rounded = [replace(e, weights=e.weights.float(), starts=e.starts.float()) for e in examples]
    expected, rows = (fit_alignment_heads(HEADS, x, options=OPTIONS) for x in (examples, rounded))
    torch.testing.assert_close(rows.information, expected.information, atol=1e-4, rtol=0)


def test_an_interval_of_information_has_the_variance_of_cross_validation() -> None:
    heads = _fit(3, 3)
    best = heads.table()[0]
    view = heads.heads.index(best.head) + len(heads.heads) * best.at_input
    values = heads.information[:, 0, view]
    half = 2.919986 * (values.var() / 3 * (1 + 3 / 2)).sqrt()  # t of two degrees of freedom
    expected = torch.stack([values.mean(), values.mean() - half, values.mean() + half])
    torch.testing.assert_close(torch.tensor(best.information).double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("number", "right", "likely"), [(2, 414, 464), (5, 439, 457)])
def test_a_probability_of_two_examples_is_too_sure(number: int, right: int, likely: int) -> None:
    """Of heads whose mean information is known: how many with P above .9 have a nat."""
    random = torch.Generator().manual_seed(0)
    mean = 1 + 0.5 * torch.randn(1280, generator=random, dtype=torch.float64)
    first = mean + 0.4 * torch.randn(number, 1280, generator=random, dtype=torch.float64)
    information = torch.cat([first, first - 9], 1)[:, None]  # the other view has none
    unknown = torch.full((1,), torch.nan)
    example = WordAttention(torch.ones(2560, 1, 3) / 3, unknown, unknown)
    model = make_model([example], replace(OPTIONS, reach=1))
    names = [(0, head) for head in range(1280)]
    heads = AlignmentHeads(model, names, information, [example] * number, 1.0, math.nan)
    is_likely = torch.tensor([p > 0.9 for _, p in sorted(heads.probabilities.items())])
    assert (int((mean[is_likely] >= 1).sum()), int(is_likely.sum())) == (right, likely)


def test_a_wider_level_has_wider_intervals() -> None:
    heads, new = _fit(3), _unlabel(_plant(98))
    narrow, wide = (heads.times(new, level)["starts"] for level in (0.5, 0.95))
    assert (wide.low < narrow.low).all()
    assert (narrow.high < wide.high).all()
    torch.testing.assert_close(wide.median, narrow.median)


def test_energy_anchors_starts_and_ends() -> None:
    example = _plant(3)
    marginals = torch.zeros(2, *example.weights.shape[1:], dtype=torch.float64)
    index = torch.arange(len(example.starts))
    starts = example.starts.long()
    marginals[0, index, starts - 2] = 1.0
    marginals[1, index, starts + 4 + 3] = 1.0  # sound has ended at + 4
    assert anchor_shift([example], [marginals], 0) == pytest.approx(1.5, abs=1)
    assert anchor_shift([example], [marginals], 1) == pytest.approx(-3.5, abs=1)
    assert example.energy is not None
    for energy in (None, torch.ones_like(example.energy)):
        silent = replace(example, energy=energy)
        assert anchor_shift([silent], [marginals], 0) == 0.0
    assert sound_onset(example.energy, int(starts[1])) == starts[0]


def test_sound_before_the_silence_is_not_that_of_the_first_word() -> None:
    energy = torch.tensor([0, 0, 0, 1, *[0] * 5, 1, 1, 0, 1, *[0] * 6, 1]).double()
    assert sound_onset(energy, 8) == 3
    assert sound_onset(energy, 18) == 9
    assert sound_onset(energy) == 19
    assert sound_onset(energy[9:]) == 10


@pytest.mark.parametrize("lead", [0, 1, 20])
def test_a_pause_after_the_first_word_is_not_the_silence_before_it(lead: int) -> None:
    word = [1.0, 0.9, 0.0, 0.0, 0.8, 0.7, *[0.0] * 4]
    energy = torch.tensor([0.0] * lead + word * 5).double()
    marginals = torch.zeros(1, 5, len(energy)).double()
    for shift in (-2, 0, 15 if lead > 15 else 0):
        index = lead - shift + 10 * torch.arange(5)
        marginals.zero_()[0, range(5), index] = 1.0
        example = replace(_plant(0), energy=energy)
        assert sound_onset(energy, int(index[0]) + 9) == lead
        assert anchor_shift([example], [marginals], 0) == pytest.approx(shift - 1, abs=1)


@pytest.mark.parametrize("words", [1, 3])
def test_energy_moves_boundaries_by_no_more_than_the_reach(words: int) -> None:
    index = 5 + 30 * torch.arange(words)
    energy, marginals = torch.zeros(150).double(), torch.zeros(1, words, 150).double()
    energy[index + 40], marginals[0, range(words), index] = 1.0, 1.0
    example = replace(_plant(0), energy=energy)
    assert 21 <= anchor_shift([example], [marginals], 0) <= 25


def _uniform(positions: int) -> Tensor:
    return torch.full((1, positions), 1 / positions, dtype=torch.float64)


def test_quantiles_lie_within_positions() -> None:
    levels = torch.tensor([0.0, 0.05, 0.5, 0.95, 1.0]).double()
    torch.testing.assert_close(quantiles(_uniform(7), levels)[:, 0], 7 * levels)
    levels = levels[1:-1]
    point = torch.tensor([[0.0, 1.0, 0.0]]).double()
    torch.testing.assert_close(quantiles(point, levels)[:, 0], 1 + levels)


def test_an_error_is_that_of_laplace() -> None:
    point = torch.zeros(1, 21, dtype=torch.float64)
    point[0, 10] = 1.0
    levels = torch.tensor([0.05, 0.5, 0.95]).double()
    low, median, high = noisy_quantiles(point, 2.0, levels)[:, 0]
    assert median == pytest.approx(10.5, abs=0.05)
    # a Laplace error of scale 2 has its 5 % quantile at -2 log 10; the position adds little
    assert median - low == pytest.approx(2 * torch.tensor(10.0).log().item(), abs=0.1)
    assert high - median == pytest.approx(float(median - low), abs=0.01)


def test_a_silence_that_ends_after_the_boundary_of_the_first_word_is_before_it() -> None:
    energy = torch.tensor([1.0] * 2 + [0.0] * 14 + [1.0] * 3 + [0.0] * 9).double()
    marginals = torch.zeros(1, 1, len(energy)).double()
    marginals[0, 0, 10] = 1.0
    example = replace(_plant(0), energy=energy)
    assert anchor_shift([example], [marginals], 0) == 5.5


def test_a_bend_that_goes_on_beyond_the_window_moves_boundaries_half_a_position() -> None:
    energy, marginals = torch.zeros(60).double(), torch.zeros(1, 2, 60).double()
    energy[10:17], energy[34], energy[35:42] = 3.5, 1.0, 3.5
    marginals[0, range(2), [10, 30]] = 1.0
    example = replace(_plant(0), energy=energy)
    assert anchor_shift([example], [marginals], 0) == 3.5  # not that of the parabola, 4.5
