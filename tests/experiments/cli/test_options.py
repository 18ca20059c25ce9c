"""What a command line may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from latentheads.experiments.cli.names import load_yaml, named_classes

from latentheads.experiments import prune
from latentheads.experiments.cli import parser as parsers
from latentheads.experiments.cli.options import Parser, read_settings


def test_no_option_is_known_by_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    for parser in (Parser(prog="some.py"), parsers.OneLineErrorParser("some.py", None, {})):
        parser.add_argument("--recipe", type=str)
        with pytest.raises(SystemExit) as left:
            parser.parse_args(["--recip", "coda"])
        assert left.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("unrecognized arguments: --recip coda: did you mean --recipe?")


@pytest.mark.parametrize(
    ("words", "tokenised"),
    [
        (["--data.tokenised"], True),
        (["--data.tokenised", "--data.lowercase", "false"], True),
        (["--data.lowercase=false", "--data.tokenised", "false"], False),
        (["--data.tokenised=true", "--data.tokenised=false"], False),
    ],
)
def test_an_option_that_is_true_or_false_may_stand_alone(words: list[str], tokenised: bool) -> None:
    folder = ["--data=FOLDER", "--data.source=en", "--data.target=de"]
    settings, _ = read_settings([*folder, *words], "run.py", "")
    assert (settings.data.tokenised, settings.data.lowercase) == (tokenised, False)


def test_so_may_an_option_of_a_prior(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--logits.prior.zero",
        "--logits.prior=cascaded",
        "--logits.prior.link=false",
        "--logits.prior.learned_scale",
    ]
    settings, _ = read_settings(words, "run.py", "")
    said = settings.prior.options
    assert (said["zero"], said["link"], said["learned_scale"]) == (True, False, True)
    with pytest.raises(SystemExit):
        read_settings(
            ["--logits.prior=independent", "--logits.prior.scale", "--verbose"], "run.py", ""
        )
    assert (
        capsys.readouterr().err == "run.py: error: --logits.prior.scale: expected float, got True\n"
    )


def test_importance_may_be_said_to_be_normalised() -> None:
    parser = prune.make_parser()
    assert parser.parse_args(["RUN", "--normalise"]).normalise
    assert not parser.parse_args(["RUN", "--normalise", "false"]).normalise


@pytest.mark.parametrize("words", [["--trust", "m:C,n:D"], ["--trust=m:C,n:D"]])
def test_an_equals_sign_stands_for_a_space(words: list[str]) -> None:
    assert named_classes(words) == {"m.C", "n.D"}


@pytest.mark.parametrize(
    ("typed", "cutoffs"),
    [("2000,10000", (2000, 10000)), (" [2000, 10000]", (2000, 10000)), ("7", (7,)), ("", ())],
)
def test_numbers_are_typed_with_commas_or_as_a_list(typed: str, cutoffs: tuple[int, ...]) -> None:
    for words in (["--network.cutoffs", typed], [f"--network.cutoffs={typed}"]):
        settings, _ = read_settings(["--preset", "wikitext2-small", *words], "run.py", "")
        assert settings.network.cutoffs == cutoffs


def test_a_list_in_a_file_is_written_as_on_a_command_line_or_by_yaml() -> None:
    found = load_yaml("cutoffs: 5,10\nseeds: 0\nrecipes: [coda, transformer]\nsteps: 7\n")
    assert found == {"cutoffs": [5, 10], "seeds": "0", "recipes": "coda,transformer", "steps": 7}
    found = load_yaml("cutoffs: 5\ntask_sizes: [3, 4]\nlatent: true\n")
    assert found == {"cutoffs": [5], "task_sizes": [3, 4], "latent": True}
    with pytest.raises(ValueError, match=r"^cutoffs must be whole numbers with commas between"):
        load_yaml("cutoffs: 5,many\n")


def test_a_file_of_another_encoding_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some.yaml").write_bytes("steps: 9\n".encode("utf-16"))
    with pytest.raises(SystemExit):
        read_settings(["--config", str(tmp_path / "some.yaml")], "run.py", "")
    said = f"run.py: error: --config {tmp_path / 'some.yaml'} cannot be read: "
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [f"--train.learning_rate={'9' * 310}"],
            "a number is too large: at most 1.8e308 is accepted",
        ),
        (
            ["--data.sentences=1000000000000"],
            "sentences must be at most 1,000,000, got 1,000,000,000,",
        ),
    ],
)
def test_a_number_without_bounds_costs_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        read_settings(words, "run.py", "")
    said = capsys.readouterr().err
    assert (left.value.code, said.count("\n")) == (2, 1)
    assert message in said
