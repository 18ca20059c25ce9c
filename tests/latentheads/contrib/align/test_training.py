"""Training: what rises, what agrees, what jumps learn."""

from __future__ import annotations

import pytest
import torch

from latentheads.contrib.align.bitext import make_bitext
from latentheads.contrib.align.jumps import Jumps, initial_jumps
from latentheads.contrib.align.lexicon import TranslationTable
from latentheads.contrib.align.model import LinkModel
from latentheads.contrib.align.training import AlignerOptions, train_directions
from tests.latentheads.contrib.align.tiny_chains import tiny_batch, tiny_bitext, tiny_model

TEXT = [
    (["the", "house"], ["das", "haus"]),
    (["the", "book"], ["das", "buch"]),
    (["a", "book"], ["ein", "buch"]),
    (["a", "red", "house"], ["ein", "rotes", "haus"]),
]


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


def test_words_have_jumps_of_their_own_and_new_words_those_of_all() -> None:
    batch = tiny_batch()
    weights = initial_jumps(2, 0.25, 1.0).weights.clone()
    weights[1, 13] = 7.0
    moves = Jumps(weights, 0.25, 1.0).moves(batch)
    shared = initial_jumps(2, 0.25, 1.0).moves(batch)
    longest = 2
    words = batch.source[longest].tolist()
    for position, word in enumerate(words, 1):
        is_same = torch.equal(moves[longest, position], shared[longest, position])
        assert is_same == (word != 0 or position == len(words))


@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
def test_training_finds_the_words_of_a_text(agreement: float) -> None:
    text = make_bitext(TEXT)
    done: list[tuple[int, int]] = []
    options = AlignerOptions(iterations=5, agreement=agreement)
    forward, backward = train_directions(text, options, lambda *step: done.append(step))
    assert done == [(step, 5) for step in range(1, 6)]
    for direction in (forward, backward):
        table = direction.lexicon.predictive(direction.counts).links
        source = direction.lexicon.bitext.source
        entries = (
            direction.lexicon.bitext.pair_source
            == source.encode(["house" if "house" in source.words else "haus"])[0]
        )
        best = direction.lexicon.bitext.pair_target[entries][table[:-1][entries].argmax()]
        assert direction.lexicon.bitext.target.words[best] in ("haus", "house")


def test_expected_counts_are_those_of_the_posterior_of_the_last_step() -> None:
    text = make_bitext(TEXT)
    forward, _ = train_directions(text, AlignerOptions(iterations=1, agreement=0.0))
    lexicon = forward.lexicon
    jumps = initial_jumps(len(text.source), 0.2, 20.0)
    model = LinkModel(lexicon.associations(), jumps)
    counts = lexicon.new_counts()
    for batch in text.batches:
        posterior = model.posterior(batch)
        counts.add(batch, posterior.marginals, posterior.null_marginals)
    torch.testing.assert_close(forward.counts.links, counts.links)
    torch.testing.assert_close(forward.counts.null, counts.null)
    total = float(counts.links.sum() + counts.null.sum())
    assert total == pytest.approx(9.0)


def test_null_is_likelier_by_its_weight() -> None:
    text, batch = tiny_bitext(), tiny_batch()
    model = tiny_model(text)
    heavier = LinkModel(TranslationTable(model.table.links, 9 * model.table.null), model.jumps)
    null = [m.posterior(batch).null_marginals[batch.target_mask] for m in (model, heavier)]
    assert bool((null[1] > null[0]).all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"null_probability": 1.0}, "null_probability must lie between 0 and 1, got 1.0"),
        ({"agreement": 1.5}, "agreement must be at most 1"),
        ({"jump_smoothing": -1.0}, "jump_smoothing must be at least 0"),
    ],
)
def test_options_out_of_range_are_one_line(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AlignerOptions(**options)  # type: ignore[arg-type]
