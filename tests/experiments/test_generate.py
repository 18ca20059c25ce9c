"""Text from a language model: prompts in, continuations out, mistakes in one line."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from latentheads.batch import EOS
from latentheads.data import PythonDocs
from latentheads.runs import generation
from tests.experiments.programs import SHORT, SMALL, Say, ask, assert_refused, succeed

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

LM = ["--data=grammar-text"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generate") / "run"
    succeed("run.py", *LM, *SMALL, *SHORT, "--recipe=coda", "--out", str(out))
    return out


@pytest.fixture
def say(run: Path) -> Say:
    return partial(ask, "generate.py", str(run))


@pytest.fixture
def running(run: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Takes the run for one of running text, with a line's end after three tokens drawn.

    Notes what text is drawn with.
    """
    from latentheads.experiments import generate
    from latentheads.runs.loading import load_run

    computed_run = load_run(run)
    data = PythonDocs(block_size=6, context=2)
    processor = data.processor(computed_run.target, computed_run.source)
    settings = replace(computed_run.settings, data=data)
    loaded = replace(computed_run, settings=settings, processor=processor)
    monkeypatch.setattr(generate, "open_any_run", lambda *_: loaded)
    seen: dict[str, Any] = {"vocabulary": loaded.target}
    draw = generation.sample_text

    def noted(model: Any, prompts: Any, **options: Any) -> Any:
        seen.update(options, prompts=prompts)
        actual = draw(model, prompts, **options)
        for text in actual:
            text[3] = EOS
        return actual

    monkeypatch.setattr(generation, "sample_text", noted)
    return seen


def test_the_same_seed_gives_the_same_text(say: Say) -> None:
    words = ["--num_return_sequences=3", "--max_new_tokens=12", "--sample_heads"]
    status, lines, error = say("the men\n\n", *words, "--seed=5")
    assert (status, error) == (0, "")
    assert len(lines) == 3 + 3
    assert all(line.startswith("the men") for line in lines[:3])
    assert len(set(lines)) > 4
    assert say("the men\n\n", *words, "--seed=5") == (0, lines, "")
    assert say("the men\n\n", *words, "--seed=6")[1] != lines


# Prompts.


def test_every_prompt_begins_its_texts_as_it_was_typed(say: Say) -> None:
    prompts = [
        "the",
        "",
        "old  men",
        " the [1,2] ",
        "null",
        "3",
        "{a: b}",
        "--num_return_sequences",
    ]
    status, lines, _ = say(
        "ignored\n", *(f"--prompt={p}" for p in prompts), "--num_return_sequences=2"
    )
    assert status == 0
    assert len(lines) == 2 * len(prompts)
    for index, line in enumerate(lines):
        assert line.startswith(prompts[index // 2])
        assert not line.endswith(" ") or line == " the [1,2] "


def test_lines_of_standard_input_are_prompts_too(say: Say) -> None:
    words = ("--temperature=0", "--max_new_tokens=6")
    typed = say("", "--prompt=the", "--prompt=", "--prompt=old men", *words)
    assert say("the\n\nold men\n", *words) == typed
    assert say("the\r\n\r\nold men", *words) == typed


def test_without_any_prompt_it_says_how_to_give_one(say: Say) -> None:
    line = (
        "generate.py: error: standard input has no prompt: give --prompt TEXT, or --prompt= for an "
        "empty one\n"
    )
    assert say("") == (1, [], line)


class Terminal(io.TextIOWrapper):
    """Somebody may be typing."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_begins_from_nothing(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = say("\n", "--num_return_sequences=2")
    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    assert say("not read", "--num_return_sequences=2") == expected
    assert len(expected[1]) == 2


def test_unknown_words_are_told_in_one_line(say: Say) -> None:
    status, lines, error = say("the zork <eos> the zork men Ölberg\nthe\n", "--max_new_tokens=3")
    assert (status, len(lines)) == (0, 2)
    assert lines[0].startswith("the zork <eos> the zork men Ölberg ")
    assert error == "generate.py: not in the vocabulary: zork, <eos>, Ölberg\n"
    assert say("the <unk>\n")[2] == ""


def test_prompts_around_one_that_is_too_long_are_continued(say: Say) -> None:
    """One by its tokens; one by its characters alone."""
    short = "the", "a"
    given = "".join(f"{line}\n" for line in (short[0], "the " * 1024, short[1], "a" * 10**6))
    status, printed, error = say(given, "--num_return_sequences=2", "--max_new_tokens=3")
    assert status == 1
    assert [bool(line) for line in printed] == [True, True, False, False, True, True, False, False]
    stays = "of the input stays empty"
    assert error == (
        f"generate.py: prompt 2 {stays}: 1,025 tokens, more than max_line 1,024\n"
        f"generate.py: prompt 4 {stays}: 1,000,000 characters, too many for max_line 1,024\n"
    )


def test_a_prompt_that_memory_does_not_suffice_for_stays_empty(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:

    draw = generation.sample_text

    def narrow(model: Any, prompts: Any, **options: Any) -> Any:
        if any(len(prompt) > 2 for prompt in prompts):
            raise MemoryError
        return draw(model, prompts, **options)

    monkeypatch.setattr(generation, "sample_text", narrow)
    status, printed, error = say("the\nthe the the\nthe\n", "--max_new_tokens=2")
    assert (status, len(printed), printed[1]) == (1, 3, "")
    assert error == "generate.py: prompt 2 of the input stays empty: out of memory\n"


def test_broken_text_ends_the_output_at_its_line(say: Say) -> None:
    status, lines, error = say(b"the\n\xff\nthe\n")
    assert (status, len(lines)) == (1, 1)
    assert error == "generate.py: error: line 2 of the input is not UTF-8\n"


# Text.


def test_a_sentence_is_a_line_of_no_more_tokens_than_asked_for(say: Say) -> None:
    lines = say("", "--prompt=", "--num_return_sequences=200", "--max_new_tokens=4")[1]
    lengths = [len(line.split()) for line in lines]
    assert len(lines) == 200
    assert max(lengths) == 4
    assert min(lengths) < 4
    assert not any("<eos>" in line for line in lines)


def test_a_prompt_that_ends_at_once_is_told(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "note: prompt 2 of the input is not continued: EOS comes first\n"

    def end(_: Any, prompts: Any, **__: Any) -> list[list[int]]:
        return [[EOS] if len(prompt) == 2 else [9, EOS] for prompt in prompts]

    monkeypatch.setattr(generation, "sample_text", end)
    status, lines, error = say("the\nthe the\nthe\n", "--num_return_sequences=2")
    assert (status, lines[2:4], error) == (0, ["the the"] * 2, f"generate.py: {note}")


def test_options_reach_the_draw(say: Say) -> None:
    given = ("--prompt=the", "--max_new_tokens=8")
    likeliest = say("", *given, "--temperature=0")[1]
    assert say("", *given, "--top_k=1", "--temperature=2", "--sample_heads", "--seed=3")[0] == 0
    assert say("", *given, "--top_k=1", "--temperature=2", "--seed=3")[1] == likeliest
    assert say("", *given, "--temperature=2", "--seed=3")[1] != likeliest
    drawn = say("", *given, "--temperature=0", "--num_return_sequences=9", "--sample_heads")[1]
    assert len(set(drawn)) > 1


def test_running_text_goes_on_behind_the_end_of_a_line(say: Say, running: dict[str, Any]) -> None:
    status, lines, error = say("", "--prompt=the\nold", "--prompt=the", "--max_new_tokens=40")
    assert (status, error) == (0, "")
    assert lines[0] == "the"
    assert lines[1].startswith("old ")
    assert len(lines[1].split()) <= 4
    assert lines[-1] == ""
    assert (running["block_size"], running["context"]) == (6, 2)
    assert (running["stop_at_eos"], running["sample_heads"]) == (False, False)
    assert (running["start_token"], running["unknown"]) == (EOS, False)
    *the, _ = running["vocabulary"].encode("the")
    assert running["prompts"] == [the]
    say("", "--prompt=the", "--max_new_tokens=9", "--context=3", "--unknown")
    assert (running["context"], running["unknown"]) == (3, True)
    words = len(" ".join(lines).split())
    lines_ended = len(lines) - 4  # each text: its last line and an empty one
    assert words + lines_ended == 3 + 2 * 40 + 1


# Mistakes.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--max_new_tokens 0", "--max_new_tokens must be at least 1, got 0"),
        ("--num_return_sequences 0", "--num_return_sequences: must be at least 1, got 0"),
        ("--context 100", "--context must be 0 without a block, got 100"),
        ("--temperature 0 --top_k 3", "--top_k has no effect here: temperature 0 takes the"),
        (
            "--temperature 0 --num_return_sequences 3",
            "--num_return_sequences has no effect here: with temperature 0 all texts",
        ),
    ],
)
def test_a_mistake_costs_one_line_and_status_two(run: Path, words: str, message: str) -> None:
    assert_refused("generate.py", str(run), *words.split(), says=message, text="the\n")
