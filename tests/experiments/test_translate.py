"""Text in, text out: as many lines, in the same order, whatever the text is."""

from __future__ import annotations

import io
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from latentheads.runs import generation
from latentheads.training import checkpoints
from tests.experiments.processes import ended, talking
from tests.experiments.programs import Say, ask, assert_refused, status_of, succeed
from tests.latentheads.corpora.folders import LANGUAGES, write_corpus
from tests.latentheads.runs.trained import train
from tests.tiny import jiggle

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

LINES = [
    "the gap",
    "ça  of 😀",
    "x\u0085y the",
    "<eos> — Straße the of gap naïve",
    "ﬁ \ufeff gap",
    "a",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose corpus is gone, with weights so large that every line has its own translation."""
    top = tmp_path_factory.mktemp("translate")
    data, out = write_corpus(top / "corpus"), top / "run"
    words = [
        "--data",
        str(data),
        *LANGUAGES,
        "--recipe=coda",
        "--train.steps=3",
        "--decode.num_beams=2",
    ]
    trained = train(out, *words)
    shutil.rmtree(data)
    torch.manual_seed(0)
    best = checkpoints.weights(model=jiggle(trained.model, 0.7), guide=trained.guide)
    checkpoints.save(out / "checkpoints" / "best.safetensors", best, {"step": 3})
    return out


@pytest.fixture
def say(run: Path) -> Say:
    return partial(ask, "translate.py", str(run))


def text(lines: list[str], end: str = "\n") -> str:
    return "".join(f"{line}{end}" for line in lines)


@pytest.fixture(scope="module")
def expected(run: Path) -> list[str]:
    """The translations of `LINES`, each asked for alone."""
    from latentheads.runs.generation import translate_lines
    from latentheads.runs.loading import load_run

    loaded = load_run(run)
    alone = [translate_lines(loaded, [line], loaded.settings.decode) for line in LINES]
    return [line for lines in alone for line in lines]


def test_lines_keep_their_order_and_their_count(say: Say, expected: list[str]) -> None:
    assert len(set(expected)) == len(LINES)
    for words in (("--buffer=1",), ("--buffer=4",), ("--buffer=100",)):
        assert say(text(LINES), *words) == (0, expected, "")
    assert say(text(LINES[::-1]))[1] == expected[::-1]


def test_a_blank_line_stays_empty(say: Say, expected: list[str]) -> None:
    blank = ["", "  ", "\t", "\xa0", "\u0085", "\u2028 "]
    mixed = [line for pair in zip(blank, [LINES[0], LINES[5]] * 3, strict=True) for line in pair]
    wanted = ["", expected[0], "", expected[5]] * 3
    for words in ((), ("--buffer=1",), ("--buffer=3",)):
        assert say(text(mixed), *words) == (0, wanted, "")
    assert say(text(blank)) == (0, [""] * 6, "")
    assert say("\n") == (0, [""], "")
    assert say("") == (0, [], "")


def test_several_runs_write_together(
    run: Path, say: Say, expected: list[str], tmp_path: Path
) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    best = other / "checkpoints" / "best.safetensors"
    tensors, messages = checkpoints.load(best)
    checkpoints.save(best, {name: -tensor for name, tensor in tensors.items()}, messages)
    assert say(text(LINES), str(run)) == (0, expected, "")
    status, together, error = say(text(LINES), str(other))
    assert (status, error) == (0, "")
    assert together != expected
    assert say(text(LINES), str(other), "--buffer=2")[1] == together
    for word, says in (
        ("--alignments=links.txt", "--alignments and --confidence are for one RUN, got 2"),
        ("--num_samples=2", "num_samples must be 0 for an ensemble of runs, got 2"),
    ):
        assert_refused("translate.py", str(run), str(other), word, says=says, text=text(LINES))


def test_line_ends_of_every_kind_are_no_text(say: Say, expected: list[str]) -> None:
    assert say(text(LINES, "\r\n"))[1] == expected
    assert say(text(LINES).removesuffix("\n"))[1] == expected
    assert say(text(LINES, "\r\n").removesuffix("\r\n"))[1] == expected
    assert say("\ufeff" + text(LINES))[1] == expected
    assert say("\r\n\r\n")[1] == ["", ""]


def test_characters_that_look_like_line_ends_split_no_line(say: Say) -> None:
    for mark in ("\u0085", "\u2028", "\u2029", "\v", "\f", "\x1c", "\r", "\0"):
        assert len(say(f"a{mark}of\na\n", "--num_beams=1")[1]) == 2


def test_a_line_longer_than_any_in_training_is_translated(say: Say, expected: list[str]) -> None:
    status, printed, error = say(text([LINES[0], " ".join(["ça"] * 30), LINES[1]]), "--num_beams=1")
    assert (status, len(printed), error) == (0, 3, "")
    assert len(printed[1]) > 60
    again = say(text(LINES[:2]), "--num_beams=1")[1]
    assert [printed[0], printed[2]] == again


def test_a_newline_that_the_model_writes_splits_no_line(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentheads.corpora.subwords import Subwords

    monkeypatch.setattr(Subwords, "decode", lambda *_: "a\nb\u0085c\n")
    assert say("one line\n") == (0, ["a b\u0085c "], "")


@pytest.mark.parametrize("words", [("--buffer=2",)])
def test_lines_around_one_that_is_too_long_are_translated(
    say: Say, expected: list[str], words: tuple[str, ...]
) -> None:
    """One by its tokens; one by its characters alone, which are a megabyte."""
    tokens, letters = "gap " * 1025, "漢" * 350_000
    status, printed, error = say(text([*LINES[:2], letters, "", tokens, *LINES[2:]]), *words)
    assert (status, printed) == (1, [*expected[:2], "", "", "", *expected[2:]])
    first, second = error.splitlines()
    stays = "of the input stays empty"
    assert first == (
        f"translate.py: line 3 {stays}: 350,000 characters, too many for max_line 1,024"
    )
    assert second.startswith(f"translate.py: line 5 {stays}: ")
    assert second.endswith(" tokens, more than max_line 1,024")


NO_MEMORY = RuntimeError(
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
)


def test_a_batch_too_large_for_memory_is_cut_until_it_fits(
    say: Say, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    sizes: list[int] = []
    translate = generation.translate

    def narrow(model: Any, guide: Any, target: Any, batch: Any, how: Any) -> list[str]:
        sizes.append(len(batch))
        long = model.training or batch.source.shape[1] > 40
        if len(batch) > 2 or long:
            raise NO_MEMORY
        return translate(model, guide, target, batch, how)

    monkeypatch.setattr(generation, "translate", narrow)
    status, printed, error = say(text([*LINES[:4], "ça " * 50, *LINES[4:]]))
    assert (status, printed) == (1, [*expected[:4], "", *expected[4:]])
    why = "out of memory: 9 bytes asked for at once"
    assert error == f"translate.py: line 5 of the input stays empty: {why}\n"
    assert max(sizes) == 7
    assert sizes.count(1) <= 3


def test_an_error_that_is_not_of_memory_is_not_hidden(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> list[str]:
        raise RuntimeError("our own")

    monkeypatch.setattr("latentheads.runs.generation.translate", breaks)
    with pytest.raises(RuntimeError, match="our own"):
        say("a\n")


@pytest.mark.parametrize("words", [(), ("--buffer=2",)])
def test_broken_text_ends_the_output_at_its_line(
    say: Say, expected: list[str], words: tuple[str, ...]
) -> None:
    data = text(LINES[:3]).encode() + b"gap \xff\n" + text(LINES).encode()
    status, printed, error = say(data, *words)
    assert (status, printed) == (1, expected[:3])
    assert error == "translate.py: error: line 4 of the input is not UTF-8\n"
    assert say(b"\xff\n", *words)[:2] == (1, [])


def test_length_and_repetition_are_kept_as_asked(say: Say, expected: list[str]) -> None:
    plain = ("--min_new_tokens=0", "--max_new_tokens=0", "--no_repeat_ngram_size=0")
    assert say(text(LINES), *plain)[1] == expected
    exactly_one = ("--max_new_tokens=1", "--min_new_tokens=1")
    assert [len(line.split()) for line in say(text(LINES), *exactly_one)[1]] == [1] * len(LINES)
    assert all(say(text(LINES), "--min_new_tokens=9", "--no_repeat_ngram_size=1")[1])
    status, _, error = say("a", "--min_new_tokens=5", "--max_new_tokens=4")
    assert status == 2
    assert "max_new_tokens must be at least min_new_tokens, 5, got 4" in error


def test_options_reach_the_search(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def note(model: Any, guide: Any, target: Any, batch: Any, decoding: Any) -> list[str]:
        seen.append(decoding)
        return [""] * len(batch)

    monkeypatch.setattr("latentheads.runs.generation.translate", note)
    say("a")
    say("a", "--num_beams=3", "--length_penalty=0.5", "--num_samples=4")
    actual = [(d.num_beams, d.length_penalty, d.num_samples) for d in seen]
    assert actual == [(2, 1.0, 0), (3, 0.5, 4)]


def test_draws_are_repeated_by_their_seed(say: Say) -> None:
    given = text(LINES)
    one, two, other = (say(given, "--num_samples=1", f"--seed={seed}")[1] for seed in (5, 5, 6))
    assert one == two
    assert one != other
    assert len(other) == len(LINES)


MISTAKES = [
    ("--num_beams 2000", "num_beams must be at most 1,000, got 2,000"),
    ("--seed 3", "seed has no effect here: it needs --num_samples or --confidence"),
    ("--seed -1", "--seed: must be at least 0, got -1"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_status_two(run: Path, words: str, message: str) -> None:
    assert_refused("translate.py", str(run), *words.split(), says=message, text=text(LINES))


def test_a_full_disk_costs_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import translate

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the gap\n")))
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert status_of(translate.main, str(run)) == 1
    error = capsys.readouterr().err
    assert error == "translate.py: error: [Errno 28] No space left on device\n"


def test_output_comes_while_input_is_read_and_a_closed_pipe_ends_it(
    run: Path, expected: list[str], tmp_path: Path
) -> None:
    with talking("translate.py", str(run), "--buffer=2", path=tmp_path / "said") as talk:
        for start in (0, 2):
            talk.given.write(text(LINES[start : start + 2]).encode())
            answers = [talk.out.readline().decode() for _ in range(2)]
            assert answers == [f"{line}\n" for line in expected[start : start + 2]]
        talk.out.close()
        talk.given.write(text(LINES).encode())
        talk.given.close()
        assert ended(talk.process) == 141
    assert talk.said.read_text() == ""


def test_words_that_the_run_does_not_know_are_told_once(tmp_path: Path) -> None:
    """A run on the grammar has words for tokens."""
    out = tmp_path / "run"
    train(out, "--data=grammar", "--recipe=transformer", "--data.sentences=40", "--data.held_out=5")
    message = "translate.py: not in the vocabulary: "
    for given, warned in (
        ("the\n", ""),
        ("the zork\nzork quux\n", f"{message}zork\n{message}quux\n"),
    ):
        words = (str(out), "--checkpoint=last", "--buffer=1")
        done = succeed("translate.py", *words, text=given)
        assert (done.stdout.count("\n"), done.stderr) == (given.count("\n"), warned)


def test_a_run_that_ended_early_is_told_in_one_line(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, early := tmp_path / "early")
    (early / "metrics.jsonl").write_text('{"step": 2}\n')
    status, lines, printed = ask("translate.py", str(early), "the gap\n")
    note = f"note: {early} is not finished: its weights are of step 3 of 3"
    assert (status, len(lines), printed) == (0, 1, f"translate.py: {note}\n")
