"""Beam search against all sentences there are, and against a search written in loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any
from zlib import crc32

import pytest
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from latentheads.attention.cache import AttentionCache
from latentheads.batch import BOS, EOS, PAD, UNK, Batch, pad
from latentheads.decoding.beam_search import Hypothesis, _limits, beam_search
from latentheads.handlers import PlugIn
from latentheads.latents.logits.latent import Logits
from latentheads.models import PRIORS, LanguageModel, Translation, make_prior
from tests.crossing import in_turn, pairwise
from tests.tiny import HEADS, KINDS, NOISY, SOURCE_TYPES, SOURCES, jiggle, rows, sizes, small_batch

TYPES = 7
WIDE = 100
every_kind = pytest.mark.parametrize("kind", KINDS)


def small(kind: str = "translation", prior: str = "cascaded") -> Any:
    """A model of few target types with an opinion about them."""
    logit_prior = make_prior(prior)
    model = (
        Translation(SOURCE_TYPES, TYPES, sizes(), latents=[Logits(logit_prior)])
        if kind == "translation"
        else LanguageModel(TYPES, sizes(), latents=[Logits(logit_prior)])
    )
    return jiggle(model, 0.4).double().eval()


# An independent search: one sentence, no cache, all hypotheses computed again for every token.

Sentences = Sequence[Sequence[int]]
LogProb = Callable[[Sentences], Tensor]
"""Maps token sequences to their log-probability, of whole sentences or of their beginnings."""


def repeats(tokens: Sequence[int], n: int) -> bool:
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return n > 0 and len(set(grams)) < len(grams)


def naive(
    log_prob: LogProb,
    beam: int,
    penalty: float,
    limit: int,
    least: int = 1,
    no_repeat_ngram_size: int = 0,
) -> list[Hypothesis]:
    alive: list[list[int]] = [[]]
    ended: list[Hypothesis] = []
    for length in range(1, limit + 1):
        allowed = {EOS} if length == limit else set(range(TYPES)) - {PAD, BOS}
        grown = []
        for before in alive:
            free = {t for t in allowed - {EOS} if not repeats([*before, t], no_repeat_ngram_size)}
            if length >= least or not free:
                free |= {EOS}
            grown += [[*before, token] for token in free]
        scored = sorted(zip(log_prob(grown).tolist(), grown), reverse=True)[: 2 * beam]
        for score, tokens in scored[:beam]:
            if tokens[-1] == EOS and len(ended) < beam:
                ended.append(Hypothesis(tokens, score / length**penalty, score))
        if len(ended) == beam:
            break
        alive = [tokens for _, tokens in scored if tokens[-1] != EOS][:beam]
    return sorted(ended, key=lambda hypothesis: -hypothesis.score)


def exhaustive(
    log_prob: LogProb, penalty: float, limit: int, least: int = 1, no_repeat_ngram_size: int = 0
) -> list[Hypothesis]:
    words = [token for token in range(TYPES) if token not in (PAD, BOS, EOS)]
    lengths = range(least - 1, limit)
    every = [[*y, EOS] for length in lengths for y in product(words, repeat=length)]
    every = [y for y in every if not repeats(y, no_repeat_ngram_size)]
    computed_hypothesis = [
        Hypothesis(y, score / len(y) ** penalty, score)
        for y, score in zip(every, log_prob(every).tolist(), strict=True)
    ]
    return sorted(computed_hypothesis, key=lambda hypothesis: -hypothesis.score)


@torch.no_grad()
def of_whole(model: Any, source: Tensor | None, sentences: Sentences) -> Tensor:
    several = None if source is None else source.expand(len(sentences), -1)
    batch = Batch(pad(sentences), several)
    return model.likelihood(model.states(batch), batch).log_prob(batch.target)


def plugged(model: Any, batch: Batch, index: int) -> LogProb:
    source = rows(batch, [index]).source

    def log_prob(sentences: Sentences) -> Tensor:
        with PlugIn():
            return of_whole(model, source, sentences)

    return log_prob


def agree(hypothesis: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [one_hypothesis.tokens for one_hypothesis in hypothesis] == [
        one_hypothesis.tokens for one_hypothesis in expected
    ]
    for one, other in zip(hypothesis, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-10)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-10)


# The plug-in network.


@in_turn(kind=KINDS, prior=sorted(PRIORS), penalty=[0.0, 0.6, 1.0, 2.0])
def test_a_wide_beam_finds_all_sentences_in_order(kind: str, prior: str, penalty: float) -> None:
    model, batch = small(kind, prior), small_batch()
    hypotheses = beam_search(model, batch, WIDE, penalty, max_new_tokens=3)
    for index in range(len(batch)):
        expected = exhaustive(plugged(model, batch, index), penalty, 4)
        assert len(expected) == 1 + 4 + 16 + 64
        agree(hypotheses[index], expected)


@in_turn(kind=KINDS[::-1], prior=sorted(PRIORS), beam=[1, 2, 3, 4])
def test_it_follows_the_rules(kind: str, prior: str, beam: int) -> None:
    torch.manual_seed(beam)
    model, batch = small(kind, prior), small_batch()
    hypotheses = beam_search(model, batch, beam, 0.6, max_new_tokens=6)
    for index in range(len(batch)):
        agree(hypotheses[index], naive(plugged(model, batch, index), beam, 0.6, 7))


@every_kind
def test_the_batch_does_not_matter(kind: str) -> None:
    model, batch = small(kind), small_batch()
    together = beam_search(model, batch, num_beams=3)
    for order in ([0], [1], [2], [2, 0], [1, 1, 0]):
        apart = beam_search(model, rows(batch, order), num_beams=3)
        for actual, index in zip(apart, order, strict=True):
            agree(actual, together[index])


def test_a_text_is_begun_anew_whatever_stood_before_it() -> None:
    model, batch = small("language-model"), small_batch()
    cut = replace(batch, before=torch.tensor([4, 5, 6]))
    for hypothesis, expected in zip(*(beam_search(model, b, 2) for b in (cut, batch)), strict=True):
        agree(hypothesis, expected)


class Watched:
    """A model that notes the shapes of what it is fed."""

    def __init__(self, model: Any) -> None:
        self.model, self.shapes = model, list[torch.Size]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def density_dtype(self) -> torch.dtype:
        return self.model.density_dtype

    def begin(self, batch: Batch) -> Any:
        return self.model.begin(batch)

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        self.shapes.append(tokens.shape)
        return self.model.step(tokens, state)


def leaning(model: Any, towards_the_end: float) -> Any:
    """Changes the logits of EOS."""
    predict = model.predict

    def changed(states: Tensor) -> Tensor:
        logits = predict(states)
        logits[..., EOS] += towards_the_end
        return logits

    model.predict = changed
    return model


@pairwise(kind=KINDS, least=[1, 2, 4], no_repeat_ngram_size=[0, 1, 2])
def test_a_wide_beam_finds_all_sentences_that_keep_the_rules(
    kind: str, least: int, no_repeat_ngram_size: int
) -> None:
    model, batch = small(kind), small_batch()
    hypotheses = beam_search(
        model,
        batch,
        WIDE,
        0.6,
        max_new_tokens=3,
        min_new_tokens=least - 1,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    for index in range(len(batch)):
        agree(
            hypotheses[index],
            exhaustive(plugged(model, batch, index), 0.6, 4, least, no_repeat_ngram_size),
        )


@pairwise(kind=KINDS, beam=[1, 3], rules=[(5, 0), (1, 1), (3, 2), (7, 3), (7, 1)])
def test_it_keeps_length_and_repeats_nothing(kind: str, beam: int, rules: tuple[int, int]) -> None:
    (least, no_repeat_ngram_size), model, batch = rules, small(kind), small_batch()
    kept = {
        "max_new_tokens": 8,
        "min_new_tokens": least - 1,
        "no_repeat_ngram_size": no_repeat_ngram_size,
    }
    for index, hypothesis in enumerate(beam_search(model, batch, beam, 0.6, **kept)):
        agree(
            hypothesis,
            naive(plugged(model, batch, index), beam, 0.6, 9, least, no_repeat_ngram_size),
        )
        assert not any(
            repeats(one_hypothesis.tokens, no_repeat_ngram_size) for one_hypothesis in hypothesis
        )


@pairwise(num_samples=[0, 2], no_repeat_ngram_size=[0, 7])
def test_a_limit_of_its_own_comes_before_the_least(
    num_samples: int, no_repeat_ngram_size: int
) -> None:
    model, rules = small(), {"min_new_tokens": 17, "no_repeat_ngram_size": no_repeat_ngram_size}
    hypotheses = beam_search(model, small_batch(), num_beams=2, num_samples=num_samples, **rules)
    for row, source in zip(hypotheses, SOURCES, strict=True):
        assert row
        assert {len(hypothesis.tokens) for hypothesis in row} <= set(
            range(min(17, 10 + 2 * len(source)), 99)
        )


@pytest.mark.parametrize("num_samples", [0, 2])
def test_a_sentence_that_is_done_is_fed_no_more(num_samples: int) -> None:
    model, batch = Watched(leaning(small(), 4)), small_batch()
    beam_search(model, batch, num_beams=4, num_samples=num_samples, max_new_tokens=49)
    fed = [shape[0] for shape in model.shapes]
    assert len(fed) < 50
    assert fed[0] == len(batch) * max(num_samples, 1)
    assert fed == sorted(fed, reverse=True)
    assert fed[-1] < fed[0]
    assert {shape[1:] for shape in model.shapes[2:]} == {(4, 1)}


def test_a_transcript_has_at_most_nine_tokens_more_than_its_positions() -> None:
    text, counts = small_batch(), [len(row) for row in SOURCES]
    frames = torch.zeros(len(counts), max(counts), 2)
    speech = replace(text, frames=frames, frame_counts=torch.tensor(counts))
    assert _limits(speech, None).tolist() == [10 + count for count in counts]
    assert _limits(text, None).tolist() == [10 + 2 * count for count in counts]
    assert _limits(speech, 3).tolist() == [4] * len(counts)


def test_a_sentence_ends_at_the_limit_of_its_own_source() -> None:
    for hypothesis, source in zip(
        beam_search(leaning(small(), -50), small_batch(), num_beams=3), SOURCES, strict=True
    ):
        assert [len(one_hypothesis.tokens) for one_hypothesis in hypothesis] == [
            10 + 2 * len(source)
        ] * 3
        assert all(
            one_hypothesis.tokens.index(EOS) == len(one_hypothesis.tokens) - 1
            for one_hypothesis in hypothesis
        )
        assert all(item.log_prob < -50 for item in hypothesis)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_no_token_leaves_the_empty_sentence(num_beams: int) -> None:
    model, batch = small(), small_batch()
    for index, hypothesis in enumerate(beam_search(model, batch, num_beams, max_new_tokens=0)):
        agree(hypothesis, exhaustive(plugged(model, batch, index), 1.0, 1))


def test_half_precision_scores_in_float32() -> None:
    model, batch = small().float(), small_batch()
    with torch.autocast("cpu", torch.bfloat16):
        half = beam_search(model, batch, num_beams=WIDE, max_new_tokens=2)
    for actual, expected in zip(
        half, beam_search(model, batch, WIDE, max_new_tokens=2), strict=True
    ):
        exact = {tuple(hypothesis.tokens): hypothesis.score for hypothesis in expected}
        assert {tuple(hypothesis.tokens) for hypothesis in actual} == exact.keys()
        assert all(
            abs(hypothesis.score - exact[tuple(hypothesis.tokens)]) < 0.1 for hypothesis in actual
        )
        mass = sum(
            math.exp(hypothesis.log_prob) for hypothesis in actual if len(hypothesis.tokens) == 1
        )
        assert torch.tensor(mass) != torch.tensor(mass).bfloat16()


def test_a_translation_needs_a_source() -> None:
    with pytest.raises(ValueError, match="this batch has no source"):
        beam_search(small(), Batch(small_batch().target))


# Draws of the heads. The script gives each row of logits the noise that belongs to its draw and
# sentence (a number), its site and the tokens before it, whoever computes it and when.


@cache
def noise(*about: object) -> Tensor:
    generator = torch.Generator().manual_seed(crc32(repr(about).encode()))
    return torch.randn(HEADS, 12, generator=generator)


class Script(Messenger):
    """Draws every latent from noise that depends on its meaning alone.

    Attributes:
        numbers: Of the rows of the batch.
        before: For every row the prefixes it runs on, of its hypotheses or of its positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.before: list[list[tuple[int, ...]]] = []

    def _pyro_sample(self, msg: Any) -> None:
        name, distribution = msg["name"], msg["fn"]
        if name.endswith(".logits"):
            msg["value"] = distribution._from_noise(self._noise(name, distribution.location))

    def _noise(self, name: str, like: Tensor) -> Tensor:
        queries: Iterator[Sequence[object]] = iter(self.before)
        if name.startswith("encoder"):
            queries = iter([range(like.shape[-2])] * len(self.numbers))
        expected = zip(self.numbers, queries, strict=True)
        drawn = torch.stack([torch.stack([noise(n, name, q) for q in row]) for n, row in expected])
        drawn = drawn[..., : like.shape[-1]]
        return drawn.unsqueeze(-2) if like.ndim == 5 else drawn.transpose(1, 2)


class Scripted(Watched):
    """A model that tells the script the prefixes of its hypotheses, which its state carries."""

    def __init__(self, model: Any, script: Script) -> None:
        super().__init__(model)
        self.script = script

    def begin(self, batch: Batch) -> Any:
        numbers = torch.arange(len(batch))[:, None, None]
        self.script.numbers = numbers.flatten().tolist()
        state = self.model.begin(batch)
        state.caches["history"] = AttentionCache(numbers, numbers)
        return state

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        history = state.caches["history"]
        history.keys = history.values = torch.cat([history.keys, tokens], -1)
        self.script.numbers = history.keys[:, 0, 0].tolist()
        self.script.before = [[tuple(y[2:]) for y in row] for row in history.keys.tolist()]
        return super().step(tokens, state)


def drawn(model: Any, batch: Batch, index: int, draws: int) -> LogProb:
    source = rows(batch, [index]).source

    def log_prob(sentences: Sentences) -> Tensor:
        longest = max(map(len, sentences))
        item = []
        for draw in range(draws):
            with Script() as script:
                script.numbers = [draw * len(batch) + index] * len(sentences)
                script.before = [[tuple(y[:t]) for t in range(longest)] for y in sentences]
                item.append(of_whole(model, source, sentences))
        return torch.stack(item).exp().mean(0).log()

    return log_prob


@in_turn(kind=KINDS, prior=NOISY, draws=[1, 3, 3, 1])
def test_draws_are_kept_and_their_mean_is_scored(kind: str, prior: str, draws: int) -> None:
    model, batch, script = small(kind, prior), small_batch(), Script()
    for beam, limit in ((WIDE, 3), (3, 5)):
        with script:
            hypotheses = beam_search(Scripted(model, script), batch, beam, 0.6, draws, limit - 1)
        for index in range(len(batch)):
            log_prob = drawn(model, batch, index, draws)
            assert len(hypotheses[index]) == (21 if beam == WIDE else beam)
            if beam == WIDE:
                agree(hypotheses[index], exhaustive(log_prob, 0.6, limit))
            agree(hypotheses[index], naive(log_prob, beam, 0.6, limit))


@every_kind
@pytest.mark.parametrize("prior", sorted(set(PRIORS) - set(NOISY)))
def test_draws_without_noise_are_the_plug_in_network(kind: str, prior: str) -> None:
    model, batch = small(kind, prior), small_batch()
    plain = beam_search(model, batch, num_beams=3)
    for hypothesis, expected in zip(
        beam_search(model, batch, 3, num_samples=3), plain, strict=True
    ):
        agree(hypothesis, expected)


@every_kind
def test_the_same_seed_draws_the_same(kind: str) -> None:
    model, batch = small(kind), small_batch()

    def search(seed: int) -> list[list[Hypothesis]]:
        torch.manual_seed(seed)
        return beam_search(model, batch, num_beams=3, num_samples=2)

    assert search(1) == search(1)
    assert search(1) != search(2)


def test_every_draw_and_hypothesis_has_noise_of_its_own() -> None:
    values: dict[str, Tensor] = {}

    class Note(Messenger):
        def _pyro_post_sample(self, msg: Any) -> None:
            values[msg["name"]] = (msg["value"] - msg["fn"].location).flatten(2)

    with Note():
        beam_search(
            leaning(small(prior="independent"), -50),
            small_batch(),
            2,
            num_samples=2,
            max_new_tokens=2,
        )
    for name, shape in (("encoder.0.self", 6), ("decoder.0.self", 6), ("decoder.1.cross", 6)):
        drawn = values[f"{name}.logits"].flatten()
        assert values[f"{name}.logits"].shape[0] == shape
        assert len(drawn.round(decimals=6).unique()) == len(drawn)


def test_unknown_words_may_come() -> None:
    hypotheses = beam_search(small(), small_batch(), num_beams=WIDE, max_new_tokens=2)
    assert all(any(UNK in hypothesis.tokens for hypothesis in row) for row in hypotheses)
