"""Scores against hand-counted cases and sacreBLEU's own program."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from latentheads.metrics import translation
from latentheads.metrics.resampling import References
from latentheads.metrics.scores import compare_systems
from latentheads.metrics.translation import split_compounds
from tests.latentheads.metrics.systems import paired_bootstrap, score, signature

RIGHT = [f"The well-known dog {i} saw, on day {i * i}, a state-of-the-art cat!" for i in range(60)]
CLOSE = [line.replace("cat", "hat") if i % 5 == 0 else line for i, line in enumerate(RIGHT)]
POOR = [*RIGHT[:1], *(" ".join(line.split()[::-1]) for line in RIGHT[1:])]


def test_a_perfect_translation_scores_a_hundred() -> None:
    scores = score(RIGHT, RIGHT, protocol="iwslt14")
    assert scores.bleu == pytest.approx(100)
    assert scores.chrf == pytest.approx(100)
    assert scores.paper_bleu == pytest.approx(100)


def test_the_references_of_several_systems_are_read_once() -> None:
    with mock.patch.object(
        BLEU, "_extract_reference_info", autospec=True, side_effect=BLEU._extract_reference_info
    ) as read:
        compare_systems([RIGHT, CLOSE, POOR], References(RIGHT), resamples=40)
    assert read.call_count == len(RIGHT)


def test_of_many_lines_the_n_grams_of_few_references_are_held_at_once() -> None:
    expected = compare_systems([CLOSE, POOR], References(RIGHT), resamples=40)
    with (
        mock.patch.object(translation, "CHUNK", 7),
        mock.patch.object(
            BLEU, "_cache_references", autospec=True, side_effect=BLEU._cache_references
        ) as read,
    ):
        assert compare_systems([CLOSE, POOR], References(RIGHT), resamples=40) == expected
    assert max(len(call.args[1][0]) for call in read.mock_calls) == 7


def test_bleu_is_tested_where_one_of_two_systems_has_a_4_gram() -> None:
    backwards = [" ".join(line.split()[::-1]) for line in RIGHT]
    three = [" ".join(line.split()[:3]) for line in RIGHT]
    for baseline, other, is_tested in (
        (backwards, backwards, False),
        (three, three, False),
        (backwards, RIGHT, True),
        (RIGHT, backwards, True),
    ):
        _, row = compare_systems([baseline, other], References(RIGHT), resamples=40)
        assert (row["bleu"].p is not None, row["bleu"].untested == "") == (is_tested, is_tested)


def test_bleu_of_a_hand_counted_case() -> None:
    scores = score(["a b c d e f"], ["a b c d e g"], tokenised=True)
    matches = 5 / 6 * 4 / 5 * 3 / 4 * 2 / 3
    assert scores.bleu == pytest.approx(100 * matches**0.25)


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        ("a well-known dog", "a well ##AT##-##AT## known dog"),
        ("state-of-the-art", "state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("a-é-b", "a ##AT##-##AT## é ##AT##-##AT## b"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("a - b -c d-", "a - b -c d-"),
    ],
)
def test_compounds_are_cut_as_perl_cuts_them(line: str, cut: str) -> None:
    assert split_compounds(line) == cut


def test_the_papers_bleu_is_the_bleu_of_its_steps_by_hand() -> None:
    cut = Tokenizer13a()
    texts = [[split_compounds(cut(line).lower()) for line in side] for side in (CLOSE, RIGHT)]
    in_memory = BLEU(tokenize="none", force=True).corpus_score(texts[0], [texts[1]]).score
    scores = score(CLOSE, RIGHT, protocol="iwslt14")
    assert scores.paper_bleu == pytest.approx(in_memory)
    assert scores.bleu == score(CLOSE, RIGHT).bleu != scores.paper_bleu


def test_the_papers_bleu_gives_credit_for_a_part_of_a_compound() -> None:
    scores = score(["one two three well-read"], ["one two three well-fed"], True, "iwslt14")
    plain = (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25  # no 4-gram of 1: half a match
    cut = (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert scores.bleu == pytest.approx(100 * plain)
    assert scores.paper_bleu == pytest.approx(100 * cut)


def test_case_counts_in_the_papers_bleu_of_wmt14_and_not_of_iwslt14() -> None:
    shouted, right = ["THE CAT SAT ON IT"], ["the cat sat on it"]
    scores = score(shouted, right, protocol="iwslt14")
    assert scores.bleu == 0
    assert scores.paper_bleu == pytest.approx(100)
    cased = score(shouted, right, protocol="wmt14")
    assert cased.paper_bleu == 0
    assert "case:mixed|eff:no|tok:13a|smooth:exp|compound:split|" in signature(cased, "paper_bleu")
    lower = score(shouted, right, protocol="wmt14", lowercase=True)
    assert lower.paper_bleu == pytest.approx(100)


def test_case_counts_for_nothing_in_any_score_where_it_shall_not() -> None:
    shouted, right = ["THE CAT SAT ON IT"] * 2, ["the cat sat on it"] * 2
    scores = score(shouted, right, lowercase=True)
    (beside,) = paired_bootstrap(shouted, [], right, resamples=40, lowercase=True)
    whole = [scores.bleu, scores.chrf, beside.bleu.score, beside.chrf.score]
    assert whole == pytest.approx([100] * 4)
    assert "case:lc" in signature(scores, "bleu")
    assert "case:lc" in signature(scores, "chrf")


def test_text_is_tokenised_and_tokens_are_not() -> None:
    raw, cut = ["I saw it, once."], ["I saw it , once ."]
    assert score(raw, cut).bleu == pytest.approx(100)
    assert score(raw, cut, tokenised=True).bleu < 50
    assert score(raw, cut, tokenised=True, protocol="iwslt14").paper_bleu < 50


def test_signatures_say_what_was_done() -> None:
    scores = score(CLOSE, RIGHT, protocol="iwslt14")
    assert "case:mixed|eff:no|tok:13a|" in signature(scores, "bleu")
    assert "compound" not in signature(scores, "bleu")
    assert "nc:6|nw:0" in signature(scores, "chrf")
    assert "case:lc|eff:no|tok:13a|smooth:exp|compound:split|" in signature(scores, "paper_bleu")
    cut = score(CLOSE, RIGHT, tokenised=True, protocol="iwslt14")
    assert "case:mixed|eff:no|tok:none|" in signature(cut, "bleu")
    assert "case:lc|eff:no|tok:none|" in signature(cut, "paper_bleu")
    plain = score(CLOSE, RIGHT)
    assert (plain.paper_bleu, plain.row("paper_bleu")) == (None, None)


@pytest.mark.parametrize("tokenised", [False, True])
def test_scores_are_those_of_sacrebleus_own_program(tmp_path: Path, tokenised: bool) -> None:
    for name, lines in (("right", RIGHT), ("close", CLOSE)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    words = ["right", "-i", "close", "-m", "bleu", "chrf", "-b", "-w", "9", "--force"]
    if tokenised:
        words += ["-tok", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *words, "-f", "text"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    scores = score(CLOSE, RIGHT, tokenised)
    expected = [float(line) for line in done.stdout.split()]
    assert [scores.bleu, scores.chrf] == pytest.approx(expected, abs=1e-8)


def test_an_estimate_holds_the_score_of_the_whole_corpus_and_its_interval() -> None:
    (base,) = paired_bootstrap(CLOSE, [], RIGHT, protocol="iwslt14", resamples=200, seed=7)
    whole = score(CLOSE, RIGHT, protocol="iwslt14")
    assert (base.bleu.score, base.chrf.score) == (whole.bleu, whole.chrf)
    assert base.paper_bleu is not None
    assert base.paper_bleu.score == whole.paper_bleu
    assert base.bleu.low < base.bleu.score < base.bleu.high
    assert base.bleu.signature.startswith("nrefs:1|case:mixed|")
    assert base.bleu.signature.endswith("|bs:200|seed:7|p:two-sided")
    assert "|case:lc|" in base.paper_bleu.signature
    assert "|compound:split|" in base.paper_bleu.signature


def test_the_seed_decides_and_the_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first = paired_bootstrap(CLOSE, [POOR], RIGHT, resamples=100, seed=3)
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert paired_bootstrap(CLOSE, [POOR], RIGHT, resamples=100, seed=3) == first
    assert os.environ["SACREBLEU_SEED"] == "none"
    other = paired_bootstrap(CLOSE, [POOR], RIGHT, resamples=100, seed=4)
    assert other[0].bleu.mean != first[0].bleu.mean
    assert capfd.readouterr() == ("", "")


def test_empty_translations_score_nothing() -> None:
    base, empty = paired_bootstrap(RIGHT, [[""] * len(RIGHT)], RIGHT, resamples=50)
    assert empty.bleu.score == empty.chrf.score == 0
    assert base.bleu.score == pytest.approx(100)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="translations must be as many as references, 2, got 1"):
        score(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="references must be at least one"):
        score([], [])
    with pytest.raises(ValueError, match="all 2 references are empty: there is nothing to score"):
        score(["a", "b"], ["", " "])
    assert score(["a", "b"], ["", "b"]).chrf > 0
    with pytest.raises(ValueError, match="resamples must be at least 40, got 39"):
        paired_bootstrap(["a"], [], ["a"], resamples=39)
    with pytest.raises(ValueError, match=r"seed must be at least 0, got -1"):
        paired_bootstrap(["a"], [], ["a"], seed=-1)
    with pytest.raises(ValueError, match="translations must be as many as references, 2"):
        paired_bootstrap(["a", "b"], [["a"]], ["a", "b"])
