"""Training: what rises, what agrees, what jumps learn."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from latentheads.contrib.align import training
from latentheads.contrib.align.aligner import LEAST_COUNT, train_aligner
from latentheads.contrib.align.bitext import END, PairBatch, make_bitext
from latentheads.contrib.align.counts import CountTable
from latentheads.contrib.align.dictionary import format_dictionary, make_dictionary
from latentheads.contrib.align.jumps import LEAST_WEIGHT, MAX_JUMP, Jumps, initial_jumps
from latentheads.contrib.align.lexicon import (
    CLASS_CONCENTRATION,
    CONCENTRATION,
    NULL_CONCENTRATION,
    UNSEEN,
    BatchTable,
    Lexicon,
    TranslationTable,
)
from latentheads.contrib.align.model import LinkModel
from latentheads.contrib.align.training import AlignerOptions, Training, train_directions
from tests.latentheads.contrib.align.tiny_chains import (
    spelled_alike,
    tiny_batch,
    tiny_bitext,
    tiny_model,
)

TEXT = [
    (["the", "house"], ["das", "haus"]),
    (["the", "book"], ["das", "buch"]),
    (["a", "book"], ["ein", "buch"]),
    (["a", "red", "house"], ["ein", "rotes", "haus"]),
]


def test_a_line_that_is_left_out_of_its_posterior_alone_changes_no_training() -> None:
    jumps = [
        train_directions(make_bitext(TEXT), AlignerOptions(iterations=3, leave_one_out=number))
        .directions[0]
        .jumps.weights
        for number in (0, 1, 2)
    ]
    assert torch.equal(jumps[0], jumps[1])
    assert not torch.equal(jumps[0], jumps[2])


def test_pairs_of_words_that_either_direction_counts_are_kept() -> None:
    aligner, trained = train_aligner(TEXT, AlignerOptions(iterations=5, agreement=0.0))
    forward, backward = (direction.counts.links[:-1] for direction in trained.directions)
    assert ((forward <= LEAST_COUNT) & (backward > LEAST_COUNT)).any()
    assert aligner.entries.shape[1] == (torch.maximum(forward, backward) > LEAST_COUNT).sum()


def test_jumps_are_learned_after_a_dictionary_and_kept_after_lines() -> None:
    dictionary = make_dictionary([("house", "haus", 3.0)])
    lines = train_aligner(TEXT)[0]
    for start, is_kept in ((dictionary, False), (lines, True)):
        more, _ = train_aligner(TEXT, start=start)
        before, after = start.forward.jumps.weights[0], more.forward.jumps.weights[0]
        assert torch.equal(before, after) == is_kept


def test_each_direction_of_a_kept_aligner_has_counts_of_its_own() -> None:
    aligner, _ = train_aligner(TEXT, AlignerOptions(iterations=2, agreement=0.0))
    tables = []
    for factor in (1.0, 3.0):
        counts = factor * aligner.forward.counts
        other = replace(aligner, forward=replace(aligner.forward, counts=counts))
        lines = other.read(TEXT)
        (batch,) = lines.batches
        tables.append([model.table.linked(batch) for model in other.models(lines, batch)])
    assert not torch.allclose(tables[0][0], tables[1][0])
    assert torch.equal(tables[0][1], tables[1][1])


def test_a_dictionary_has_the_mean_of_both_directions_without_ends() -> None:
    aligner, _ = train_aligner(TEXT)
    forward = replace(aligner.forward, counts=3 * aligner.backward.counts)
    written = [line.split("\t") for line in format_dictionary(replace(aligner, forward=forward))]
    counts = {(source, target): float(count) for source, target, count in written}
    expected = {}
    for source, target, count in zip(*aligner.entries, aligner.backward.counts, strict=True):
        pair = aligner.source.words[source], aligner.target.words[target]
        if END not in pair:
            expected[pair] = float(2 * count)
    assert counts == pytest.approx(expected, rel=1e-3)


def test_new_words_that_are_spelt_alike_share_the_mass_of_the_others() -> None:
    aligner, _ = train_aligner(TEXT)
    weights = []
    for alike in (0.0, aligner.forward.alike):
        same = replace(aligner, forward=replace(aligner.forward, alike=alike))
        lines = same.read([(["zebra"], ["zebras"])])
        forward, _ = same.models(lines, lines.batches[0])
        weights.append(float(forward.table.linked(lines.batches[0])[0, 0, 0]))
    share = aligner.forward.alike
    assert 0 < share < 1
    assert weights[1] == pytest.approx((1 - share) * weights[0] + share, rel=1e-9)


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_new_word_counts_as_one_more_of_its_classes(is_trained: bool) -> None:
    pairs = [("mouse", "tooth", 4.0), ("bird", "leg", 3.0), ("fox", "tooth", 2.0)]
    aligner = train_aligner(TEXT)[0] if is_trained else make_dictionary(pairs)
    sides = (*aligner.source.words, "mousetrap"), (*aligner.target.words, new := "hausboot")
    line = [word for word in sides[0] if word != END]
    lines = aligner.read([(line, [new])])
    (batch,) = lines.batches
    forward, _ = aligner.models(lines, batch)
    counts = torch.zeros(len(sides[0]), len(sides[1]))
    counts[aligner.entries[0], aligner.entries[1]] = aligner.forward.counts
    u = torch.nn.functional.pad(aligner.forward.frequencies, (0, 1)) + UNSEEN
    u = u / u[:-1].sum()  # what was added to the words of the text
    for position, word in enumerate(line):
        mean = u[-1]
        for letters in (2, 3, 4, 5, 6):
            source, target = (
                torch.tensor([other[:letters] == own[:letters] for other in words])
                for words, own in zip(sides, (word, new), strict=True)
            )
            share, total = u[target].sum() / u[-1], counts[source].sum() + CLASS_CONCENTRATION
            linked = counts[source][:, target].sum()
            mean = (linked + CLASS_CONCENTRATION * mean * share) / total / share
        total = counts[sides[0].index(word)].sum() + CONCENTRATION
        actual = forward.table.linked(batch)[0, 0, position]
        torch.testing.assert_close(actual, CONCENTRATION * mean / total)


def test_padding_is_no_word_of_the_first_ones_class() -> None:
    """As many places of padding as its class counts would leave it with a frequency of 0."""
    source, target = [f"s{n}" for n in range(6)], ["abcdefg", "abcdefh", "w", "x", "y", "z"]
    text = make_bitext([(source, target), (["t"], ["u", "v", "r"])])
    assert [tuple(batch.target.shape) for batch in text.batches] == [(2, 6)]
    (batch,) = text.batches
    models = train_directions(text, AlignerOptions()).models(0)
    for model, side in zip(models, (batch, batch.reverse()), strict=True):
        assert model.posterior(side).log_normaliser.isfinite().all()


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_step_from_counts_adds_the_posteriors_by_their_tables(factor: float) -> None:
    before, _ = train_aligner(TEXT)
    counts = factor * before.backward.counts  # those of both directions may differ
    before = replace(before, backward=replace(before.backward, counts=counts))
    once = AlignerOptions(iterations=1, leave_one_out=0)
    _, trained = train_aligner(TEXT[:2], once, start=before)
    (batch,) = trained.bitext.batches
    pairs, both = trained.bitext.pairs, (batch, batch.reverse())
    tables, chains = [], []
    for side, kept in enumerate((before.forward, before.backward)):
        links = torch.zeros(pairs.entries + 1)
        for first, second, count in zip(*before.entries, kept.counts, strict=True):
            links[:-1][(pairs.pair_source == first) & (pairs.pair_target == second)] = count
        table = CountTable(pairs, trained.directions[0].counts.spelling, links)
        table = table.reverse() if side else table
        words = both[side].target[both[side].target_mask]
        frequencies = kept.frequencies + torch.bincount(words, minlength=len(kept.frequencies))
        lexicon = Lexicon(table.pairs, frequencies, kept.alike)
        tables.append(table)
        chains.append(
            LinkModel(lexicon.predictive(table, kept.null), kept.jumps).posterior(both[side])
        )
    shared = (chains[0].marginals * chains[1].marginals.mT).sqrt()
    for side, kept in enumerate((before.forward, before.backward)):
        direction, own = trained.directions[side], shared.mT if side else shared
        links = tables[side].links.index_add(0, both[side].entries.flatten(), own.flatten())
        torch.testing.assert_close(direction.counts.links[:-1], links[:-1])
        mask = both[side].target_mask
        null = kept.null.index_add(0, both[side].target[mask], (1 - own.sum(-1))[mask])
        torch.testing.assert_close(direction.null, null)


def test_no_jump_becomes_impossible() -> None:
    jumps = initial_jumps(1, 0.2, 0.0)
    counts = jumps.new_counts()
    counts.taken[:, 13] = 1e6
    counts.offered.copy_(1e6 * jumps.weights)
    assert jumps.update(counts).weights.min() == LEAST_WEIGHT


@pytest.mark.parametrize("smoothing", [0.25, 3.0])
def test_jumps_of_a_word_are_smoothed_by_those_of_all(smoothing: float) -> None:
    model, batch = tiny_model(), tiny_batch()
    jumps = replace(model.jumps, smoothing=smoothing)
    posterior, counts = model.posterior(batch), jumps.new_counts()
    jumps.add_counts(counts, batch, posterior.weights.moves, posterior.expected_moves)
    shared = jumps.weights[0] * counts.taken.sum(0) / counts.offered.sum(0).clamp(min=1e-9)
    shared = (shared / shared.sum()).clamp(min=1e-6)
    for row in range(len(jumps.weights)):
        departures = counts.offered[row] / jumps.weights[row]
        expected = (counts.taken[row] + smoothing * shared) / (departures + smoothing)
        torch.testing.assert_close(jumps.update(counts).weights[row], expected)


def test_steps_of_jumps_raise_the_likelihood() -> None:
    text, batch = tiny_bitext(), tiny_batch()
    model = tiny_model(text)
    jumps = Jumps(model.jumps.weights, model.jumps.null_probability, smoothing=0.0)
    log_probs = []
    for _ in range(4):
        posterior = LinkModel(model.table, jumps).posterior(batch)
        log_probs.append(float(posterior.log_normaliser.sum()))
        counts = jumps.new_counts()
        jumps.add_counts(counts, batch, posterior.weights.moves, posterior.expected_moves)
        assert float(counts.taken.sum()) == pytest.approx(float(counts.offered.sum()))
        jumps = jumps.update(counts)
    assert log_probs == sorted(log_probs)
    assert log_probs[-1] > log_probs[0] + 0.01


def test_words_that_were_not_seen_have_the_jumps_of_all() -> None:
    """The last row is of the start of a sentence."""
    model, batch = tiny_model(), tiny_batch()
    posterior, counts = model.posterior(batch), model.jumps.new_counts()
    model.jumps.add_counts(counts, batch, posterior.weights.moves, posterior.expected_moves)
    counts.taken[1], counts.offered[1] = 0, 0
    jumps = model.jumps.update(counts)
    more = jumps.with_words(len(jumps.weights) - 1)
    torch.testing.assert_close(jumps.weights[1], jumps.weights[0])
    assert torch.equal(more.weights[:-2], jumps.weights[:-1])
    assert torch.equal(more.weights[-2:], jumps.weights[[0, -1]])


def test_moves_are_distributions_over_the_words_of_each_sentence() -> None:
    batch = tiny_batch()
    jumps = initial_jumps(2, 0.25, 1.0)
    moves = jumps.moves(batch)
    lengths = batch.source_mask.sum(-1)
    for row, length in enumerate(lengths.tolist()):
        sums = moves[row].sum(-1)
        torch.testing.assert_close(sums[: length + 1], torch.full((length + 1,), 0.75))
        assert not sums[length + 1 :].any()
        assert not moves[row, :, length + 1 :].any()
    assert not moves[..., 0].any()
    # from the start the first word is likelier than the second by the ratio of their weights
    assert float(moves[2, 0, 1] / moves[2, 0, 2]) == pytest.approx(float(torch.tensor(0.5).exp()))


def test_longer_jumps_have_the_weight_of_the_longest_either_way() -> None:
    positions = [*range(MAX_JUMP + 3)]
    expected = [
        [max(-MAX_JUMP, min(MAX_JUMP, s - b)) + MAX_JUMP for s in positions] for b in positions
    ]
    assert initial_jumps(1, 0.2, 1.0).distances(len(positions)).tolist() == expected


def test_words_have_jumps_of_their_own_and_new_words_those_of_all() -> None:
    batch = tiny_batch()
    weights = initial_jumps(2, 0.25, 1.0).weights.clone()
    weights[1, 13], weights[-1, 11] = 7.0, 9.0  # the last row is of the start alone
    moves = Jumps(weights, 0.25, 1.0).moves(batch)
    shared = initial_jumps(2, 0.25, 1.0).moves(batch)
    longest = 2
    words = batch.source[longest].tolist()
    for position, word in enumerate(words, 1):
        is_same = torch.equal(moves[longest, position], shared[longest, position])
        assert is_same == (word != 0 or position == len(words))


@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("leave_one_out", [0, 1, 9])
def test_training_finds_the_words_of_a_text(agreement: float, leave_one_out: int) -> None:
    text = make_bitext(TEXT)
    done: list[tuple[int, int]] = []
    options = AlignerOptions(iterations=5, agreement=agreement, leave_one_out=leave_one_out)
    training = train_directions(text, options, lambda *step: done.append(step))
    assert done == [(step, 5) for step in range(1, 6)]
    for direction in training.directions:
        table = direction.lexicon.predictive(direction.counts, direction.null).links
        pairs = direction.lexicon.pairs
        word = "house" if "house" in pairs.source.words else "haus"
        entries = pairs.pair_source == pairs.source.encode([word])[0]
        best = pairs.pair_target[entries][table[:-1][entries].argmax()]
        assert pairs.target.words[best] in ("haus", "house")


@pytest.mark.parametrize("iterations", [1, 2])
def test_expected_counts_are_those_of_the_posterior_of_the_last_step(iterations: int) -> None:
    text = make_bitext(TEXT)
    first, forward = (
        train_directions(
            text, AlignerOptions(iterations=number, agreement=0.0, leave_one_out=0)
        ).directions[0]
        for number in (1, iterations)
    )
    jumps = initial_jumps(len(text.pairs.source), 0.2, 20.0)
    model = LinkModel(forward.lexicon.associations(text), jumps)
    if iterations == 2:
        model = LinkModel(first.lexicon.variational(first.counts, first.null), first.jumps)
    links, null = torch.zeros_like(forward.counts.links), torch.zeros_like(forward.null)
    for batch in text.batches:
        posterior = model.posterior(batch)
        links.index_add_(0, batch.entries.flatten(), posterior.marginals.flatten())
        words = batch.target.clamp(min=0).flatten()
        null.index_add_(0, words, posterior.null_marginals.flatten())
    torch.testing.assert_close(forward.counts.links, links)
    torch.testing.assert_close(forward.null, null)
    assert float(links.sum() + null.sum()) == pytest.approx(9.0)


SEVERAL = [
    *TEXT,
    (["hose", "houseboat", "the", "house"], ["ein", "hausboot", "das", "haus", "das"]),
]


class Without:
    """Everything that both directions count, of all lines but one, added up line by line."""

    def __init__(self, training: Training, left_out: int) -> None:
        self.pairs = training.bitext.pairs
        sizes = len(self.pairs.source), len(self.pairs.target)
        self.links = [torch.zeros(sizes), torch.zeros(sizes)]
        self.null = [torch.zeros(sizes[1]), torch.zeros(sizes[0])]
        self.frequencies = [torch.zeros(sizes[1]), torch.zeros(sizes[0])]
        for batch, own in zip(training.bitext.batches, training.own, strict=True):
            for row, index in enumerate(batch.indices):
                if index != left_out:
                    source = batch.source[row][batch.source_mask[row]].long()
                    target = batch.target[row][batch.target_mask[row]].long()
                    links = [x.dense()[row, : len(target), : len(source)] for x in own]
                    self._add(links, source, target)

    def _add(self, links: list[Tensor], source: Tensor, target: Tensor) -> None:
        for direction, (own, words) in enumerate(((links[0], target), (links[1].mT, source))):
            for row, word in enumerate(words):
                self.frequencies[direction][word] += 1
                self.null[direction][word] += (1 - own[row].sum()).clamp(min=0)
        for direction in (0, 1):
            for s, t in product(range(len(source)), range(len(target))):
                self.links[direction][source[s], target[t]] += links[direction][t, s]

    def table(self, direction: int, alike: float) -> tuple[Tensor, Tensor]:
        """p(f | e) of all words, from the definition, and p(f) without a link."""
        sides = [self.pairs.source.words, self.pairs.target.words]
        counts = self.links[direction]
        generating, generated = sides if direction == 0 else sides[::-1]
        counts = counts if direction == 0 else counts.mT
        u = self.frequencies[direction] + UNSEEN
        u = u / u.sum()
        mean = u.expand(counts.shape)
        for letters in (2, 3, 4, 5, 6):
            same = [
                torch.tensor([[a[:letters] == b[:letters] for b in words] for a in words]).double()
                for words in (generating, generated)
            ]
            classes = same[1] @ u
            total = (same[0] @ counts).sum(1, keepdim=True)
            pairs = same[0] @ counts @ same[1]
            smoothed = pairs + CLASS_CONCENTRATION * mean * classes / u
            mean = smoothed / (total + CLASS_CONCENTRATION) * u / classes
        is_alike = torch.zeros_like(mean)
        is_alike[spelled_alike(generating, generated)] = 1
        is_alike *= self._together(direction)
        number = is_alike.sum(1, keepdim=True)
        weight = alike * (number > 0)
        mean = (1 - weight) * mean + weight * is_alike / number.clamp(min=1)
        table = (counts + CONCENTRATION * mean) / (counts.sum(1, keepdim=True) + CONCENTRATION)
        null = self.null[direction] + NULL_CONCENTRATION * u
        return table, null / null.sum()

    def _together(self, direction: int) -> Tensor:
        """Whether two words stand in one line of the text."""
        together = torch.zeros(len(self.pairs.source), len(self.pairs.target))
        together[self.pairs.pair_source, self.pairs.pair_target] = 1
        return together if direction == 0 else together.mT


@pytest.mark.parametrize("agreement", [0.5, 1.0])
def test_posteriors_of_a_line_are_those_by_the_counts_of_all_other_lines(agreement: float) -> None:
    text = make_bitext(SEVERAL)
    training = train_directions(text, AlignerOptions(iterations=3, agreement=agreement))
    worst = 0.0
    for index, batch in enumerate(text.batches):
        for row, line in enumerate(batch.indices):
            without = Without(training, line)
            for side, (direction, model) in enumerate(
                zip(training.directions, training.models(index), strict=True)
            ):
                both = batch.reverse() if side else batch
                source, target = both.source[row], both.target[row]
                table, null = without.table(side, direction.lexicon.alike)
                is_word = both.source_mask[row] & both.target_mask[row][:, None]
                linked = table[source.clamp(min=0), target.clamp(min=0)[:, None]] * is_word
                left_out = BatchTable(linked[None], null[target.clamp(min=0)][None, :, None])
                alone = PairBatch((0,), source[None], target[None])
                expected = LinkModel(left_out, direction.jumps).posterior(alone).marginals[0]
                difference = model.posterior(both).marginals[row] - expected
                worst = max(worst, float(difference.abs().max()))
    assert worst < 1e-10


def test_what_rounding_takes_out_too_much_leaves_no_count_below_zero() -> None:
    text = make_bitext(TEXT)
    trained = train_directions(text, AlignerOptions())
    own = 1.01 * trained.own[0][0].dense()
    cells = trained.directions[0].counts.cells(text.batches[0], own)
    for counts in (*cells.links, *cells.source.sums, *cells.target.sums):
        assert float(counts.min()) == 0


def test_null_is_likelier_by_its_weight() -> None:
    text, batch = tiny_bitext(), tiny_batch()
    model = tiny_model(text)
    heavier = LinkModel(TranslationTable(model.table.links, 9 * model.table.null), model.jumps)
    null = [m.posterior(batch).null_marginals[batch.target_mask] for m in (model, heavier)]
    assert bool((null[1] > null[0]).all())


def test_a_large_text_takes_fewer_passes_unless_their_number_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = make_bitext(TEXT)
    done: list[int] = []

    def passes(**options: int) -> int:
        train_directions(text, AlignerOptions(**options), lambda _, total: done.append(total))  # type: ignore[arg-type]
        return done[-1] // len(text.batches)

    assert [passes(), passes(iterations=5)] == [6, 5]
    monkeypatch.setattr(training, "LARGE_TEXT", text.size - 1)
    assert [passes(), passes(iterations=5)] == [3, 5]
    assert AlignerOptions(leave_one_out=0).passes(text.size) == (3, 0)
    assert AlignerOptions().passes(text.size) == (3, 2)
    assert AlignerOptions().passes(text.size - 1) == (6, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"null_probability": 1.0}, "null_probability must be above 0 and below 1, got 1.0"),
        ({"agreement": 1.5}, "agreement must lie in 0 ... 1"),
        ({"jump_smoothing": -1.0}, "jump_smoothing must be at least 0"),
    ],
)
def test_options_out_of_range_are_one_line(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AlignerOptions(**options)  # type: ignore[arg-type]
