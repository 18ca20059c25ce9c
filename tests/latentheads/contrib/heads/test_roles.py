"""Detectors find planted heads and none in random ones, and count as a hand does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from latentheads.batch import BOS, EOS, PAD, UNK, Batch
from latentheads.contrib.heads import (
    RELATIONS,
    AttentionView,
    Detector,
    Heads,
    PositionalDetector,
    RareWordDetector,
    Role,
    SyntacticDetector,
    detect,
    frequency_ranks,
    grammar_arcs,
    role_map,
)
from latentheads.contrib.heads.roles import argmax_pairs, count_by_offset
from latentheads.corpora.grammar import Arc
from latentheads.names import Block
from tests.latentheads.contrib.heads.planted import (
    along,
    at,
    at_random,
    at_rarest,
    grammar,
    view_of,
)
from tests.tiny import KINDS, attach, build, small_batch
from tests.typechecking import unchecked

TOP = 40
"""Of the grammar's few types, so many are too frequent to be rare."""
CASES = [(relation, down) for relation in RELATIONS for down in (True, False)]


def ranks_of(batch: Batch, words: Any) -> Tensor:
    return frequency_ranks(batch.target.flatten(), len(words))


def names(roles: list[Role], block: str = "encoder.0.self") -> dict[int, list[str]]:
    assert {role.block for role in roles} <= {block}
    return {n: [r.detail for r in item] for n, item in role_map(roles).get(block, {}).items()}


# Planted and random heads.


def test_planted_positional_heads_are_found_and_nothing_else() -> None:
    sentences, words, batch = grammar()
    arcs = [sentence.arcs for sentence in sentences]
    rare = at_rarest(batch, ranks_of(batch, words))
    follower = along(arcs, "dobj", True)
    detector = PositionalDetector()
    detector.update(view_of(batch, [at(-1), at_random, at(1), rare, follower, at(0), at(2)]))
    result = detector.result()
    assert names(result.roles) == {0: ["-1"], 2: ["+1"], 5: ["+0"], 6: ["+2"]}
    assert result.share["encoder.0.self"][0] == 1


@pytest.mark.parametrize(("size", "expected"), [(2, 7), (20, 0)])
def test_on_few_sentences_heads_are_syntactic_by_chance(size: int, expected: int) -> None:
    syntactic = 0
    for seed in range(6):
        sentences, _, batch = grammar(size, seed)
        detector = SyntacticDetector([sentence.arcs for sentence in sentences])
        detector.update(view_of(batch, [at_random] * 24, noise=seed))
        syntactic += len(names(detector.result().roles))
    assert syntactic == expected


@pytest.mark.parametrize(("relation", "down"), CASES)
def test_a_planted_syntactic_head_is_found_as_what_it_is(relation: str, down: bool) -> None:
    sentences, _, batch = grammar()
    arcs = [sentence.arcs for sentence in sentences]
    detector = SyntacticDetector(arcs)
    detector.update(view_of(batch, [at_random, along(arcs, relation, down), at(-1), at(1)]))
    result = detector.result()
    name = f"{relation} to {'dependent' if down else 'governor'}"
    (case,) = (case for case in result.cases if case.name == name)
    assert result.accuracy["encoder.0.self"][result.cases.index(case), 1] == 1
    assert (name == "amod to dependent") == (case.baseline == 1), "no head is better than that"
    assert names(result.roles) == ({} if case.baseline == 1 else {1: [name]})


def test_planted_rare_word_heads_are_found_and_nothing_else() -> None:
    sentences, words, batch = grammar()
    ranks = ranks_of(batch, words)
    follower = along([sentence.arcs for sentence in sentences], "nsubj", False)
    detector = RareWordDetector(ranks, top=TOP)
    detector.update(view_of(batch, [at_random, at(-1), at_rarest(batch, ranks), follower, at(1)]))
    result = detector.result()
    assert names(result.roles) == {2: ["two rarest"]}
    assert result.rarest["encoder.0.self"][2] == 1
    assert 0 < int(result.count["encoder.0.self"][2]) < int(batch.source_valid.sum())


@pytest.mark.parametrize("noise", range(3))
def test_random_heads_have_no_role(noise: int) -> None:
    sentences, words, batch = grammar(seed=noise)
    syntactic = SyntacticDetector([sentence.arcs for sentence in sentences])
    rare = RareWordDetector(ranks_of(batch, words), top=TOP)
    view = view_of(batch, [at_random] * 7, noise=noise)
    for detector in (PositionalDetector(), syntactic, rare):
        detector.update(view)
        assert detector.result().roles == []


def test_thresholds_are_those_of_the_paper() -> None:
    """90 % at one offset, ten points above an offset, half of what is outside the first 500."""
    rare = RareWordDetector(torch.arange(3))
    assert (PositionalDetector().threshold, SyntacticDetector([]).margin) == (0.9, 0.1)
    assert (rare.top, rare.threshold) == (500, 0.5)


# By hand.


def test_a_head_points_to_its_largest_weight_among_the_pairs() -> None:
    weights = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]])[None, None]
    pairs = torch.tensor([[False, True, True], [True, True, True], [False, False, False]])
    pairs = pairs[None, None]
    expected = [[False, False, True], [False, False, True], [False, False, False]]
    assert argmax_pairs(weights, pairs)[0, 0].tolist() == expected


def test_pairs_are_counted_by_offset() -> None:
    pairs = torch.tensor([[[True, True, False], [True, False, True]]] * 2)
    counts = {offset: int(count) for offset, count in count_by_offset(pairs).items()}
    assert counts == {-1: 2, 0: 2, 1: 4, 2: 0}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_equally_frequent_offsets_the_least_is_taken_in_any_order(order: Any) -> None:
    short = Batch.of([[5, 6, 2]] * 2, [[5, 6, 2]] * 2)
    long = Batch.of([[5, 6, 7, 8, 2]] * 2, [[5, 6, 7, 8, 2]] * 2)
    views = [view_of(short, [lambda *_: 1]), view_of(long, [lambda _, q: 0 if q else 3])]
    arcs = [[Arc("nsubj", 1, 0)], [Arc("nsubj", 0, 3)]]
    positional = PositionalDetector()
    syntactic = SyntacticDetector(arcs, relations=["nsubj"])
    for index in order:
        positional.update(views[index])
        syntactic.update(replace(views[index], sentence_indices=[index] * 2))
    result = positional.result()
    assert result.offset["encoder.0.self"].tolist() == [-3]  # as often as -2, -1, 0, 1 and 3
    assert result.share["encoder.0.self"].tolist() == [1.0]
    assert [case.offset for case in syntactic.result().cases] == [-1, -3]


def test_the_first_word_is_not_asked_for_the_word_before_it() -> None:
    batch = Batch.of([[2]], [[4, 5, 6, 7, EOS]])
    detector = PositionalDetector()
    detector.update(view_of(batch, [at(-1)]))
    assert detector.result().share["encoder.0.self"].tolist() == [1.0]


def test_positions_in_a_decoder_leave_out_its_first_token_and_forced_words() -> None:
    batch = Batch.of([[4, 5, 6, 7, EOS]])
    detector = PositionalDetector()
    detector.update(view_of(batch, [at(-1), at(0)], "decoder-self"))
    result = detector.result()
    assert result.offset["decoder.0.self"].tolist() == [-1, 0]
    assert detector._possible["decoder.0.self"][-1].tolist() == [3, 3]


def test_accuracy_and_the_best_offset_by_hand() -> None:
    arcs = [
        (Arc("nsubj", 1, 0), Arc("dobj", 1, 3), Arc("amod", 3, 2)),
        (Arc("nsubj", 2, 0), Arc("dobj", 2, 3)),
        (Arc("nsubj", 1, 0), Arc("advmod", 1, 2), Arc("advmod", 1, 3)),
    ]
    batch = Batch.of([[2]] * 3, [[4, 5, 6, 7, EOS]] * 3)
    to_subject = along(arcs, "nsubj", True)
    detector = SyntacticDetector(arcs)
    detector.update(view_of(batch, [to_subject, at(-1), at(2), along(arcs, "advmod", True)]))
    result = detector.result()
    table = result.accuracy["encoder.0.self"]
    cases = {case.name: (case, row) for case, row in zip(result.cases, table)}
    case, row = cases["nsubj to dependent"]
    assert (case.offset, case.count) == (-1, 3)
    assert case.baseline == pytest.approx(2 / 3)
    assert row[:2].tolist() == pytest.approx([1, 2 / 3])
    case, row = cases["dobj to dependent"]
    assert (case.count, case.baseline) == (2, 0.5)
    assert float(row[2]) == 0.5
    case, row = cases["advmod to dependent"]
    assert (case.count, case.baseline, float(row[3])) == (1, 1, 1)
    case, row = cases["advmod to governor"]
    assert (case.count, case.baseline) == (2, 0.5)
    assert cases["amod to governor"][0].offset == 1
    assert result.needed(case.baseline) == pytest.approx(0.6)
    assert [role.detail for role in result.roles if role.head == 0] == ["nsubj to dependent"]


def test_dependencies_are_read_in_a_language_model_as_far_as_it_reads() -> None:
    sentences, _, batch = grammar(60)
    arcs = [sentence.arcs for sentence in sentences]
    aims = [along(arcs, "nsubj", True, shift=1), along(arcs, "dobj", True, shift=1), at_random]
    detector = SyntacticDetector(arcs)
    detector.update(view_of(Batch(batch.target), aims, "decoder-self"))
    result = detector.result()
    expected = {0: ["nsubj to dependent"], 1: ["dobj to dependent"]}
    assert names(result.roles, "decoder.0.self") == expected
    counts = {case.name: case.count for case in result.cases}
    assert counts["nsubj to governor"] == counts["amod to governor"] == 0
    assert counts["dobj to dependent"] < counts["dobj to governor"]


def test_weights_of_pieces_are_summed_over_keys_and_averaged_over_queries() -> None:
    """Words of 1, 2 and 1 pieces; the verb is cut, and no piece of it is the largest."""
    batch = Batch.of([[2]], [[4, 5, 6, 7, EOS]])
    rows = [[0.4, 0.3, 0.3, 0, 0], [0.5, 0, 0.1, 0.4, 0], [0.3, 0.1, 0.1, 0.5, 0]]
    weights = torch.tensor([*rows, [0.2, 0.2, 0.3, 0.3, 0], [0.2] * 5])
    scored = weights.clamp_min(1e-9).log()[None, None], torch.zeros(1, 1, 5, 5)
    heads = Heads(Block("encoder-self", 0, 1), torch.zeros(1, 5, 2), scored)
    arcs = [(Arc("nsubj", 1, 0), Arc("dobj", 1, 2))]
    detector = SyntacticDetector(arcs, words=[[0, 1, 1, 2]])
    detector.update(AttentionView.of(heads, batch))
    result = detector.result()
    right = {c.name: float(row) for c, row in zip(result.cases, result.accuracy["encoder.0.self"])}
    assert right["nsubj to governor"] == 1  # 0.3 + 0.3 against 0.4
    assert right["dobj to governor"] == 1  # 0.2 + 0.3 against 0.3
    assert right["dobj to dependent"] == 1  # (0.4 + 0.5) / 2 against (0.5 + 0.3) / 2
    assert right["nsubj to dependent"] == 0


def test_rare_words_by_hand() -> None:
    ranks = torch.tensor([0, 0, 0, 0, 10, 20, 30, 40])
    alike = [7, 7, EOS]  # no word is rarer than the other
    batch = Batch.of([[2]] * 3, [[4, 5, 6, 7, EOS], [4, 5, 4, EOS], alike])

    def to_rarest(row: int, query: int) -> int:
        return 3 if query < 2 else 2

    detector = RareWordDetector(ranks, top=40)  # the rank of token 7, which counts still
    detector.update(view_of(batch, [to_rarest, at(0)]))
    result = detector.result()
    block = "encoder.0.self"
    assert result.count[block].tolist() == [4, 4]
    assert result.rarest[block].tolist() == [0.5, 0.25]
    assert result.two[block].tolist() == [1.0, 0.5]
    assert result.chance[block].tolist() == [0.5, 0.5]
    assert [role.head for role in result.roles] == [0]


def test_a_corpus_of_frequent_words_has_no_rare_one() -> None:
    _, words, batch = grammar(20)
    ranks = ranks_of(batch, words)
    detector = RareWordDetector(ranks)
    detector.update(view_of(batch, [at_rarest(batch, ranks)]))
    assert detector.result().count["encoder.0.self"].tolist() == [0]
    assert detector.result().roles == []


def test_ranks_go_by_frequency_and_words_that_are_none_come_last() -> None:
    ranks = frequency_ranks(torch.tensor([EOS, 4, 5, 5, EOS, 6, 5, 6, EOS, EOS, UNK]), 8)
    assert ranks[[5, 6, UNK, 4, 7]].tolist() == [0, 1, 2, 3, 4]
    assert sorted(ranks[[PAD, BOS, EOS]].tolist()) == [5, 6, 7]
    ranks = frequency_ranks(torch.tensor([0, 0, 5, 7]), 8, special_ids=[7])
    assert ranks[[0, 5, 7]].tolist() == [0, 1, 7]


def test_the_arcs_of_the_grammar_are_parsed_back() -> None:
    sentences, _, _ = grammar(30)
    arcs = grammar_arcs(" ".join(sentence.source) for sentence in sentences)
    assert arcs == [sentence.arcs for sentence in sentences]
    with pytest.raises(ValueError, match="source must be a sentence of the grammar"):
        grammar_arcs(["the the"])


# On a model.


class Seen(Detector):
    def __init__(self) -> None:
        self.views: list[AttentionView] = []

    def update(self, view: AttentionView) -> None:
        self.views.append(view)


@pytest.mark.parametrize("kind", KINDS)
def test_detectors_see_every_block_of_a_chain(kind: str) -> None:
    model, batch, seen = build(kind), small_batch(), Seen()
    unchecked(detect)(model, [batch, batch], iter([seen]))
    stack = "encoder" if kind == "translation" else "decoder"
    assert [view.block for view in seen.views] == [f"{stack}.{n}.self" for n in (0, 1)] * 2
    detect(model, [batch], [seen], "decoder-self", attach("tied", model))
    assert len(seen.views) == 6
    with pytest.raises(ValueError, match="attention_type must be one of decoder-"):
        detect(model, [batch], [seen], "encoder-cross")
    with pytest.raises(ValueError, match="detectors must be a list, got Seen"):
        unchecked(detect)(model, [batch], Seen())


def test_heads_of_another_side_do_not_stand_in_for_an_encoder_of_ngrams() -> None:
    model = build(mixers="encoder=ngram")
    with pytest.raises(ValueError, match=r"attention_type must be one of .*; got 'encoder-self'"):
        detect(model, [small_batch()], [Seen()])


def test_mistakes_are_named() -> None:
    view = view_of(Batch.of([[2]], [[4, 5, 6, EOS]]), [at(0)])
    cross = view_of(Batch.of([[2]], [[4, 5, 6, EOS]]), [at(0)], "decoder-cross")
    syntactic = SyntacticDetector
    for mistake, message in (
        (lambda: syntactic([]).result(), "not updated with any heads"),
        (lambda: PositionalDetector(90), r"threshold must lie in \(0, 1\], got 90"),
        (
            lambda: RareWordDetector(torch.arange(3), threshold=50),
            r"threshold must lie in \(0, 1\], got 50",
        ),
        (
            lambda: syntactic([(Arc("nsubj", 0, 3),)]).update(view),
            "arcs of sentence 0 must be with",
        ),
        (lambda: syntactic([()], words=[[0, 1]]).update(view), "words of sentence 0 must be 3 tok"),
        (lambda: syntactic([()]).update(cross), "attention_type must be one of self-attention"),
    ):
        with pytest.raises(ValueError, match=message):
            mistake()
