"""The words of a command line, files and presets as nested values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from latentheads.experiments.cli.command_line import (
    CommandLine,
    name_data,
    presets,
    read_command_line,
    split_words,
)
from latentheads.options import Flag


@pytest.mark.parametrize(
    ("words", "nested"),
    [
        ("--seed 3", {"seed": "3"}),
        ("--seed=3 --seed 4", {"seed": "4"}),
        ("--train.steps=3 --train.tokens 9", {"train": {"steps": "3", "tokens": "9"}}),
        ("--data pairs --data.folder F", {"data": {"class": "pairs", "folder": "F"}}),
        ("--data.folder F --data pairs", {"data": {"class": "pairs", "folder": "F"}}),
        ("--loss marginal", {"train": {"loss": "marginal"}}),
        (
            "--loss iwae --loss.num_samples 10",
            {"train": {"loss": {"class": "iwae", "num_samples": "10"}}},
        ),
        ("--loss.kl_warmup.start=.5", {"train": {"loss": {"kl_warmup": {"start": ".5"}}}}),
        ("--out=", {"out": ""}),
        ("--seed -1", {"seed": "-1"}),
    ],
)
def test_words_are_nested_values(words: str, nested: dict[str, Any]) -> None:
    assert split_words(words.split()) == nested


def test_an_option_that_stands_alone_is_true() -> None:
    given = split_words(["--verbose", "--seed", "3", "--overwrite"])
    assert given == {"verbose": "true", "seed": "3", "overwrite": "true"}
    assert isinstance(given["verbose"], Flag)


@pytest.mark.parametrize(
    "word", ["foo", "-x", "--", "--=3", "---x", "--.a", "--a.", "--a..b", "--a.=1"]
)
def test_a_word_that_is_no_option_is_named(word: str) -> None:
    with pytest.raises(ValueError, match=r"^unrecognized argument .*: an option begins with --$"):
        split_words([word])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--preset", "preset needs a value"),
        ("--config", "config needs a value"),
        ("--config.x=3", "config must be a text, got {'x': '3'}"),
        ("--recipe", "recipe needs a value"),
        ("--recipe.x=3", "recipe must be one of .*"),
    ],
)
def test_what_must_be_a_text_is_no_group(words: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        read_command_line(words.split())


def read_file(folder: Path, text: str, *words: str) -> CommandLine:
    (folder / "some.yaml").write_text(text)
    return read_command_line(["--config", str(folder / "some.yaml"), *words])


@pytest.mark.parametrize("text", ["recipe: [coda]", "recipe: {a: 1}"])
def test_a_file_of_other_kinds_of_values_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"some.yaml: recipe must be one of .*; got .*$"):
        read_file(tmp_path, text)


@pytest.mark.parametrize("name", ["preset", "config", "trust", "print_config", "help"])
def test_what_a_file_may_not_say_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"some.yaml: {name} belongs on the command line$"):
        read_file(tmp_path, f"{name}: x")


def test_what_lacks_in_a_group_of_a_file_is_sought_in_the_file(tmp_path: Path) -> None:
    line = read_file(tmp_path, "data: {class: pairs}\ntrain: {3: 4}\n", "--network.width", "8")
    actual = {path: line.source_of(path) for path in ("data.folder", "train.3", "network.layers")}
    file = str(tmp_path / "some.yaml")
    assert actual == {"data.folder": file, "train.3": file, "network.layers": ""}


def test_words_lie_above_a_file_and_a_file_above_a_preset(tmp_path: Path) -> None:
    config = tmp_path / "some.yaml"
    config.write_text("train: {steps: 7, tokens: 5}\nnetwork: {width: 12}\n")
    words = ["--preset", "grammar", "--config", str(config), "--train.steps", "9"]
    line = read_command_line(words)
    assert line.options["train"] == {**line.options["train"], "steps": "9", "tokens": 5}
    assert line.options["network"]["width"] == 12
    assert [name for name, _ in line.sources] == ["preset grammar", str(config), ""]
    actual = {path: line.source_of(path) for path in ("train.steps", "train.tokens", "train.keep")}
    assert actual == {"train.steps": "", "train.tokens": str(config), "train.keep": ""}
    assert line.words == {"train": {"steps": "9"}}


def test_a_beam_of_one_leaves_the_length_penalty_of_a_preset() -> None:
    words = ["--preset", "wmt14", "--decode.num_beams"]
    assert read_command_line([*words, "2"]).options["decode"]["length_penalty"] == 0.6
    decode = read_command_line([*words, "1", "--decode.num_samples", "3"]).options["decode"]
    assert decode == {"num_beams": "1", "num_samples": "3", "paper_bleu": True}
    given = read_command_line([*words, "1", "--decode.length_penalty", "2"]).options["decode"]
    assert given["length_penalty"] == "2"


def test_a_recipe_and_what_a_program_has_not_are_replaced(tmp_path: Path) -> None:
    config = tmp_path / "some.yaml"
    config.write_text("recipe: coda\nseed: 3\nselection: {candidates: 5}\n")
    line = read_command_line(["--config", str(config)])
    assert "recipe" not in line.options
    assert (line.options["latents"], line.options["guide"]) == ("logits", "tied")
    assert "selection" in line.options, "for Settings to refuse"
    line = read_command_line(["--config", str(config), "--latents", "gates"])
    assert "selection" not in line.options, "the words have replaced what the file says"
    line = read_command_line(
        ["--config", str(config)], {"recipe": "recipes", "latents": "recipes", "seed": ""}
    )
    assert line.options == {"selection": {"candidates": 5}}
    assert line.left_out == dict.fromkeys(("recipe", "seed"), str(config))


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("train.txt", {"class": "running-text"}),
        ("train.txt.gz", {"class": "running-text"}),
        ("train.tsv", {"class": "speech"}),
        ("train.en", {"class": "pairs"}),
    ],
)
def test_a_folder_stands_for_the_data_that_it_holds(
    file: str, options: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / file).touch()
    assert name_data(str(tmp_path)) == {**options, "folder": str(tmp_path)}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grammar-text", {"class": "grammar-text"}),
        ("GrammarText", {"class": "GrammarText"}),
        ("python_docs", {"class": "python_docs"}),
        ("multi30k", {"class": "hub", "corpus": "multi30k"}),
        ("wikitext-2", {"class": "hub-text", "corpus": "wikitext-2"}),
    ],
)
def test_a_corpus_is_known_by_its_name(name: str, options: dict[str, str]) -> None:
    assert name_data(name) == options


def test_options_of_data_stay_where_another_class_has_them_too(tmp_path: Path) -> None:
    (tmp_path / "train.en").touch()
    words = ["--preset", "multi30k", "--data", str(tmp_path), "--data.test_name", "old"]
    data = read_command_line(words).options["data"]
    assert (data["class"], data["folder"], data["test_name"]) == ("pairs", str(tmp_path), "old")
    assert (data["source"], data["target"], data["joint"]) == ("en", "de", True)
    assert "corpus" not in data


def test_classes_that_the_words_name_are_trusted_and_those_of_a_file_are_not(
    tmp_path: Path,
) -> None:
    config = tmp_path / "some.yaml"
    config.write_text("guide: theirs:Guide\n")
    for words in (["--trust", "m:C, n:D"], ["--trust=m:C,n:D"], ["--trust=m:C", "--trust", "n:D"]):
        line = read_command_line([*words, "--config", str(config)])
        assert line.trusted == {"m:C", "n:D"}
    words = ["--guide=mine:Guide", "--latents", "logits", "--logits.prior", "mine:Prior"]
    assert read_command_line(words).trusted == {"mine:Guide", "mine:Prior"}
    for option in ("--recipe", "--recipes"):
        assert read_command_line([option, "mine:Prior+tied"]).trusted == {"mine:Prior"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (": : [", "not YAML"),
        ("", "some.yaml must name options with their values, got None"),
        ("# nothing", "some.yaml must name options"),
        ("- recipe: coda", "must name options with their values, got [{'recipe': 'coda'}]"),
        ("data: pears", "some.yaml: data must be one of grammar, "),
        ("a: &a [*a]", "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text(text)
    with pytest.raises(ValueError) as refused:
        read_command_line(["--config", str(tmp_path / "some.yaml")])
    assert message in str(refused.value)


def test_presets_are_those_that_ship() -> None:
    assert {"multi30k", "grammar", "wikitext2-small"} <= set(presets())
    assert all(path.is_file() for path in presets().values())
