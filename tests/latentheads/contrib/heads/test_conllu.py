"""CoNLL-U files, good and broken, and words that a vocabulary cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.batch import EOS, UNK
from latentheads.contrib.heads import ParsedSentence, encode_parsed, read_conllu
from latentheads.corpora.grammar import Arc
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.vocabulary import Words


def line(location: str, form: str, head: str = "0", relation: str = "dep", misc: str = "_") -> str:
    return "\t".join([location, form, "_", "_", "_", "_", head, relation, "_", misc])


def written(folder: Path, *lines: str) -> Path:
    path = folder / "some.conllu"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


SENTENCE = (
    "# text = Dogs don't see it.",
    line("1", "Dogs", "4", "nsubj"),
    line("2-3", "don't"),
    line("2", "do", "4", "aux", "SpaceAfter=No|x=1"),
    line("3", "n't", "4", "advmod"),
    line("4", "see", "0", "root"),
    line("4.1", "empty"),
    line("5", "it", "4", "obj", "SpaceAfter=No"),
    line("6", ".", "4", "punct"),
)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, *SENTENCE, "", "", "# next", line("1", "Sleep"), "")
    first, second = read_conllu(path)
    assert first.words == ("Dogs", "do", "n't", "see", "it", ".")
    relations = {0: "nsubj", 1: "aux", 2: "advmod", 4: "dobj", 5: "punct"}
    assert set(first.arcs) == {Arc(name, 3, index) for index, name in relations.items()}
    assert first.text == "Dogs don't see it."
    assert second == ParsedSentence(("Sleep",), (), (False,))


def test_the_last_sentence_needs_no_empty_line_and_subtypes_are_relations(tmp_path: Path) -> None:
    path = written(tmp_path, line("1", "seen"), line("2", "was", "1", "nsubj:pass"))
    assert read_conllu(path) == [
        ParsedSentence(("seen", "was"), (Arc("nsubj:pass", 0, 1),), (False, False))
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1 a"], r"some.conllu, line 1: 10 columns between tabs are expected, got 1"),
        (["# x", line("2", "a")], r"line 2: ID 1 is expected, got '2'"),
        ([line("1", "a"), line("1", "b")], r"line 2: ID 2 is expected, got '1'"),
        ([line("one", "a")], r"line 1: ID 1 is expected, got 'one'"),
        ([line("1", "a", "_")], r"line 1: HEAD must be the ID of a word or 0, got '_'"),
        ([line("1", "a", "2")], r"line 1: HEAD must be another of the 1 words or 0, got 2"),
        ([line("1", "a", "1")], r"line 1: HEAD must be another of the 1 words or 0, got 1"),
        (["# nothing", ""], r"some.conllu holds no sentence"),
    ],
)
def test_a_broken_file_gets_one_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_conllu(written(tmp_path, *lines))
    assert "\n" not in str(caught.value)


def parsed(*words: str, no_space_after: str = "") -> ParsedSentence:
    marks = no_space_after.ljust(len(words), " ")
    return ParsedSentence(words, (), tuple(mark == "+" for mark in marks))


def test_whole_words_are_their_own_tokens() -> None:
    words = Words(["dogs", "see"])
    rows, owners = encode_parsed([parsed("dogs", "never", "see")], words)
    assert rows[0].tolist() == [4, UNK, 5, EOS]
    assert owners == [[0, 1, 2]]


@pytest.mark.parametrize("tokenised", [True, False])
def test_pieces_belong_to_the_word_they_were_cut_from(tokenised: bool) -> None:
    subwords = Subwords.train(["low lower", "low"] * 2, 270, tokenised=tokenised)
    rows, (owner,) = encode_parsed([parsed("lower", "wool", "low")], subwords)
    assert len(rows[0]) == len(owner) + 1
    for word, form in enumerate(("lower", "wool", "low")):
        own = [int(t) for t, w in zip(rows[0], owner, strict=False) if w == word]
        assert subwords.decode(own).strip() == form


def test_text_as_it_stood_is_cut_by_characters() -> None:
    line = "It's a café, isn't it?"
    subwords = Subwords.train([line] * 3, 300, lowercase=True)
    words = ("It", "'s", "a", "café", ",", "is", "n't", "it", "?")
    sentence = parsed(*words, no_space_after="+  + + + ")
    assert sentence.text == line
    rows, (owner,) = encode_parsed([sentence], subwords, spaced=False)
    assert subwords.decode(rows[0].tolist()) == line.lower()
    assert sorted(set(owner)) == list(dict.fromkeys(owner))
    by_word = {w: [int(t) for t, o in zip(rows[0], owner, strict=False) if o == w] for w in owner}
    assert subwords.decode(by_word[3]).strip() == "café"
    assert subwords.decode(by_word[4]).strip() == ","


def test_bytes_of_a_character_belong_to_its_word() -> None:
    subwords = Subwords.train(["a b"], 260)
    sentence = parsed("é", "鱼", "x")
    rows, (owner,) = encode_parsed([sentence], subwords, spaced=False)
    assert len(rows[0]) == len(" é 鱼 x".encode()) + 1
    assert owner == [0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_a_vocabulary_that_does_not_fit_is_named() -> None:
    words = Words(["dogs"])
    with pytest.raises(ValueError, match="sentence 1: the vocabulary does not decode to 'cats'"):
        encode_parsed([parsed("cats")], words, spaced=False)
    with pytest.raises(ValueError, match="sentence 2: the vocabulary does not split it at word"):
        encode_parsed([parsed("dogs"), parsed("dogs", "\u3000")], words)
