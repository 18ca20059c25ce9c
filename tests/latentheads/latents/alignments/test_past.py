"""Alignments of a language model over its own past, against sums made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.latents.alignments import passes
from latentheads.latents.alignments.jumps import JumpsAfterNull
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.priors import CascadedPrior, ChainPrior
from tests.latentheads.latents.alignments.models import SHAPES, SOFT, WINDOWED, aligned
from tests.tiny import TARGET_TYPES

SHORT = AlignmentOptions(1, 1, ChainPrior(reach=1), 5)
EXACT = {**SHAPES, **WINDOWED, "chain of short jumps": SHORT}
every_shape = pytest.mark.parametrize("shape", EXACT)
TEXT = torch.tensor([[5, 6, 7, 2]])
WORDS = TEXT.shape[1]


def model_of(shape: str, kind: str = "language-model") -> Any:
    return aligned({**EXACT, **SOFT}[shape], kind=kind)


def jump(jumps: JumpsAfterNull, reach: int, before: int, key: int) -> Tensor:
    """What one key says of another; key 0 is null."""
    if not key:
        return jumps.null[0 if not before else 1]
    if not before:
        return torch.zeros(())
    return jumps.value[max(-reach, min(reach, key - before)) + reach]


class PlainTransformer:
    """One sentence's distribution by the formulas, a position at a time."""

    def __init__(self, model: Any, words: Tensor) -> None:
        self.states = model.states(Batch(words))[0]
        self.output, self.blocks = model.output, list(model.alignments.blocks)
        self.rows = [model.alignments.null, *self.states]  # what key s is of: null, then states
        self.words = words[0]
        self.window, self.prior = model.alignments.window, model.alignments.prior

    def keys(self, t: int) -> list[int]:
        """Null, and the states before a word's own that are near enough."""
        nearest = range(1, t + 1)
        return [0, *(nearest[-self.window :] if self.window else nearest)]

    def heads(self) -> list[tuple[Any, int]]:
        """The block of every head, and its place there."""
        return [(block, index) for block in self.blocks for index in range(block.block.heads)]

    def key(self, head: int, s: int) -> Tensor:
        block, index = self.heads()[head]
        keys = block.key(block.norm(self.rows[s])).view(block.block.heads, -1)
        tensor: Tensor = keys[index]
        return tensor

    def log_prior(
        self, head: int, t: int, drawn: list[int], before: int | None
    ) -> dict[int, Tensor]:
        """Of every key that a word may point at."""
        block, index = self.heads()[head]
        query = block.query(self.states[t]).view(block.block.heads, -1)[index]
        scores = []
        for s in self.keys(t):
            score = query @ self.key(head, s) / block.size**0.5
            if isinstance(self.prior, ChainPrior) and before is not None:
                score = score + jump(block.prior.jumps, self.prior.reach, before, s)
            for lower in range(block.first_head) if isinstance(self.prior, CascadedPrior) else ():
                content = self.key(lower, drawn[lower]) @ block.prior.contents[f"{head}_{lower}"]
                score = score + content @ self.key(head, s) / block.size**0.5
                jumps = block.prior.jumps[f"{head}_{lower}"]
                score = score + jump(jumps, self.prior.reach, drawn[lower], s)
            scores.append(score)
        return dict(zip(self.keys(t), torch.stack(scores).log_softmax(0), strict=True))

    def log_prob(self, t: int, drawn: list[int]) -> Tensor:
        """Of a word given where its heads point."""
        state = self.states[t]
        for (block, index), s in zip(self.heads(), drawn, strict=True):
            if s:
                vectors = block.lexicon(block.norm(self.rows[s])).view(block.block.heads, -1)
                state = state + vectors[index]
        log_probability: Tensor = self.output(state).log_softmax(0)[self.words[t]]
        return log_probability

    def joint(self, alignment: list[list[int]]) -> Tensor:
        """Of the words and one alignment of them all."""
        total = torch.zeros(())
        for t, drawn in enumerate(alignment):
            for head, s in enumerate(drawn):
                before = alignment[t - 1][head] if t else None
                total = total + self.log_prior(head, t, drawn, before)[s]
            total = total + self.log_prob(t, drawn)
        return total

    def alignments(self) -> Iterator[list[list[int]]]:
        """Every way to point back."""
        heads = len(self.heads())
        of_words = [
            [list(row) for row in product(self.keys(t), repeat=heads)]
            for t in range(len(self.words))
        ]
        yield from map(list, product(*of_words))


@every_shape
@pytest.mark.parametrize("kind", ["language-model", "adaptive"])
@torch.no_grad()
def test_log_p_is_the_sum_over_all_ways_to_point_back(kind: str, shape: str) -> None:
    words = TEXT[:, :3] if "two" in shape else TEXT
    model = model_of(shape, kind)
    by_loops = PlainTransformer(model, words)
    wanted = torch.stack(
        [by_loops.joint(alignment) for alignment in by_loops.alignments()]
    ).logsumexp(0)
    log_likelihood = plug_in_log_likelihood(model, Batch(words))[0]
    assert log_likelihood.item() == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize("shape", [*SHAPES, *SOFT])
def test_a_word_without_a_past_has_the_law_of_the_plain_network(shape: str) -> None:
    model, one = model_of(shape), Batch(TEXT[:, :1])
    plain = model.predict(model.states(one)).log_softmax(-1)[0, 0, TEXT[0, 0]]
    assert plug_in_log_likelihood(model, one).item() == pytest.approx(plain.item(), rel=1e-13)


@every_shape
def test_no_prior_and_no_word_reads_a_later_token(shape: str) -> None:
    model, index = model_of(shape), 2
    changed = TEXT.clone()
    changed[0, index] = 9
    one, other = (
        model.token_distribution(Batch(item)).exact_inference(item) for item in (TEXT, changed)
    )
    for prior, changed_prior in zip(one.priors, other.priors, strict=True):
        probs = [item.scores.log_softmax(-1).exp()[:, :, 0] for item in (prior, changed_prior)]
        assert torch.allclose(
            probs[0][:, : index + 1], probs[1][:, : index + 1], rtol=0, atol=1e-13
        )
        assert not torch.allclose(probs[0][:, index + 1], probs[1][:, index + 1])
    words = [item.word_log_evidence[0] for item in (one, other)]
    assert torch.allclose(words[0][:index], words[1][:index], rtol=1e-13, atol=0)
    assert not torch.isclose(words[0][index], words[1][index])


@pytest.mark.parametrize("shape", [name for name in EXACT if "chain" not in name])
def test_what_is_read_and_not_scored_may_be_pointed_at(shape: str) -> None:
    model = model_of(shape)
    whole = model.token_distribution(Batch(TEXT)).exact_inference(TEXT).word_log_evidence
    window = Batch(TEXT, context=2)
    tokens = model.token_distribution(window)
    assert torch.allclose(
        tokens.exact_inference(window.scored).word_log_evidence, whole[:, 2:], rtol=1e-12, atol=0
    )
    assert tokens.alignment_pass.priors[0].scores.shape[1:] == (2, EXACT[shape].heads, WORDS)


def test_a_chain_begins_at_the_first_word_that_is_scored() -> None:
    window = Batch(TEXT, context=2)
    model = model_of("chain")
    exact_inference = model.token_distribution(window).exact_inference(window.scored)
    own = model.token_distribution(Batch(TEXT)).exact_inference(TEXT)
    first = own.emissions[:, 2] + own.priors[0].scores[:, 2, 0].log_softmax(-1)
    assert torch.allclose(exact_inference.word_log_evidence[:, 0], first.logsumexp(-1), rtol=1e-12)


@pytest.mark.parametrize("shape", WINDOWED)
def test_token_by_token_a_window_is_the_same(shape: str) -> None:
    model, text = model_of(shape), Batch(torch.tensor([[5, 6, 7, 8, 9, 2]]))
    wanted = model.token_distribution(text).exact_inference(text.target).word_log_evidence
    state = model.begin(text)
    parts = [model.step(part, state) for part in text.decoder_input.split([1, 2, 1, 1, 1], 1)]
    window = model.alignments.window
    assert state.output_heads._state.hidden.memory.shape[1] == 1 + window + 1 + 1
    actual = torch.cat(parts, 1).log_softmax(-1).gather(-1, text.target[..., None])[..., 0]
    assert torch.allclose(actual, wanted, rtol=1e-12, atol=0)


@torch.no_grad()
def test_what_words_say_is_seldom_moved_while_a_text_grows() -> None:
    model, text = model_of("one head"), Batch(torch.randint(4, 13, (2, 60)))
    state, where = model.begin(text), set()
    for token in text.decoder_input.split(1, 1):
        model.step(token, state)
        (side,) = state.output_heads._state.next_token.exponentials
        where.add(side.storage.data_ptr())
        state.select(None)
        assert state.output_heads._state.next_token.exponentials[0] is side
    assert len(where) < 20


@pytest.mark.parametrize("context", [0, 3])
def test_a_short_window_costs_no_more_than_it_reaches(
    context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, whole = [], passes.compute_emission_log_probs

    def noted(
        output: Any, states: Tensor, lexicons: Any, words: Tensor, smoothing: float
    ) -> Tensor:
        seen.append((states.shape[1], *(rows.shape[1] for rows in lexicons)))
        return whole(output, states, lexicons, words, smoothing=smoothing)

    monkeypatch.setattr(passes, "compute_emission_log_probs", noted)
    text = Batch(torch.randint(4, 13, (2, 8)), context=context)
    model_of("window of two heads").token_distribution(text).exact_inference(text.scored)
    # two words at a time: their own two windows overlap in all but one key, and null
    assert seen[-1] == ((2, 4, 4) if not context else (1, 3, 3))
    assert sum(words for words, *_ in seen) == 8 - context


def test_labels_are_smoothed_in_a_window_too() -> None:
    model, text = model_of("window of two heads"), Batch(TEXT)
    emissions = [
        model.token_distribution(text).exact_inference(torch.full_like(TEXT, v)).emissions
        for v in range(TARGET_TYPES)
    ]
    wanted = 0.7 * model.token_distribution(text).exact_inference(
        TEXT
    ).emissions + 0.3 * torch.stack(emissions).mean(0)
    model.label_smoothing, model.training = 0.3, True
    assert torch.allclose(
        model.token_distribution(text).exact_inference(TEXT).emissions, wanted, rtol=1e-12, atol=0
    )


def test_nothing_points_at_padding_wherever_it_stands() -> None:
    model, valid = model_of("one head"), torch.tensor([[True, False, True, True]])
    readable = model.alignments.causal_states(torch.randn(1, 4, 6), valid).attn_mask
    assert readable[0, 3].tolist() == [True, True, False, True]


def test_padding_points_at_null_alone(batch: Batch) -> None:
    model = model_of("one head")
    hidden = model.alignments.causal_states(model.states(batch), batch.target_valid)
    wanted = torch.ones(4, 4, dtype=torch.bool).tril().repeat(3, 1, 1)
    wanted &= batch.target_valid[..., None]
    wanted[..., 0] = True
    assert torch.equal(hidden.attn_mask, wanted)
    assert not hidden.attn_mask[1, 2:, 1:].any()


def test_null_adds_nothing_and_its_key_is_learned(batch: Batch) -> None:
    model = model_of("two blocks")
    memory = model.alignments.prepend_null(model.states(batch))
    assert all((rows[:, 0] == 0).all() for rows in model.alignments.vectors(memory))
    model.token_distribution(batch).exact_inference(batch.scored).log_evidence.sum().backward()
    assert (model.alignments.null.grad != 0).any()
    assert (model.alignments.blocks[1].prior.jumps["1_0"].null.grad != 0).all()


@torch.no_grad()
@every_shape
def test_hypotheses_are_selected_from_hypotheses(shape: str) -> None:
    model, texts = model_of(shape), Batch(torch.tensor([[5, 6, 2], [8, 9, 2]]))
    state = model.begin(texts)
    model.step(texts.decoder_input[:, None, :1], state)
    state.select(None, torch.zeros(2, 2, dtype=torch.long))
    second = torch.tensor([[5, 6], [8, 9]])
    model.step(second[..., None], state)
    sentences, hypotheses = torch.tensor([1, 0]), torch.tensor([[1, 0, 0], [0, 1, 1]])
    state.select(sentences, hypotheses)
    scores = model.step(torch.full((2, 3, 1), 4), state)[:, :, 0]
    words = second[sentences].gather(1, hypotheses).flatten()
    rows = torch.stack([torch.ones_like(words), words, torch.full_like(words, 4)], 1)
    whole = model.step(rows, model.begin(Batch(rows)))[:, -1].view_as(scores)
    torch.testing.assert_close(scores, whole)
