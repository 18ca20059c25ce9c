"""What a command line may say."""

from __future__ import annotations

from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from latentheads.data import Pairs
from latentheads.experiments import prune
from latentheads.experiments.cli.options import read_settings
from latentheads.experiments.cli.parser import Parser
from latentheads.models.network import AdaptiveOptions
from latentheads.runs.settings import Settings
from tests.experiments.programs import deserted, module_of, plans_of, status_of


def refusal_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a mistake in these words costs."""
    with pytest.raises(SystemExit) as left:
        read_settings([*words], "run.py", "")
    stderr = capsys.readouterr().err
    assert (left.value.code, stderr.count("\n")) == (2, 1)
    return stderr


def test_no_option_is_known_by_its_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    for parser in (Parser("some.py", "", {}), Parser("other.py", None, {})):
        parser.add_argument("--recipe", type=str)
        with pytest.raises(SystemExit) as left:
            parser.parse_args(["--recip", "coda"])
        assert left.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("error: --recip is not an option: did you mean --recipe?")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--stpes", "--stpes is not an option: did you mean --steps?"),
        ("--hidden_size", "--hidden_size is not an option: did you mean --width?"),
        ("--batch-size=3", "--batch_size is not an option: did you mean --tokens?"),
        ("--no_such", "--no_such is not an option: choose from help, version, steps, width, tok"),
        ("more", "unexpected argument 'more'"),
    ],
)
def test_an_option_of_another_name_is_told(
    word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Parser("some.py", "", {})
    for option in ("--steps", "--width", "--tokens"):
        parser.add_argument(option)
    with pytest.raises(SystemExit):
        parser.parse_args([word])
    assert f"error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "tokenised"),
    [
        (["--data.tokenised"], True),
        (["--data.tokenised", "--data.lowercase", "false"], True),
        (["--data.lowercase=false", "--data.tokenised", "false"], False),
        (["--data.tokenised=true", "--data.tokenised=no"], False),
    ],
)
def test_an_option_that_is_true_or_false_may_stand_alone(words: list[str], tokenised: bool) -> None:
    pairs = ["--data=pairs", "--data.folder=F", "--data.source=en", "--data.target=de"]
    data = read_settings([*pairs, *words], "run.py", "")[0].data
    assert isinstance(data, Pairs)
    assert (data.tokenised, data.lowercase) == (tokenised, False)


def test_so_may_an_option_of_a_prior(capsys: pytest.CaptureFixture[str]) -> None:
    latents = ["--latents=logits", "--logits.prior.zero", "--logits.prior=cascaded"]
    more = ["--logits.prior.link=false", "--logits.prior.learned_scale"]
    options = read_settings([*latents, *more], "run.py", "")[0].prior.options
    assert (options["zero"], options["link"], options["learned_scale"]) == (True, False, True)
    options = refusal_of(capsys, latents[0], "--logits.prior.scale", "--verbose")
    assert options == "run.py: error: --logits.prior.scale needs a value\n"


def test_importance_may_be_said_to_be_normalised() -> None:
    parser = prune.make_parser()
    assert parser.parse_args(["RUN", "--normalise"]).normalise
    assert not parser.parse_args(["RUN", "--normalise", "false"]).normalise


@pytest.mark.parametrize(
    ("typed", "cutoffs"),
    [("2000,10000", (2000, 10000)), (" [2000, 10000]", (2000, 10000)), ("7", (7,))],
)
def test_numbers_are_typed_with_commas_or_as_a_list(typed: str, cutoffs: tuple[int, ...]) -> None:
    for words in (["--network.adaptive", typed], [f"--network.adaptive.cutoffs={typed}"]):
        settings, *_ = read_settings(["--preset", "wikitext2-small", *words], "run.py", "")
        assert settings.network.adaptive == AdaptiveOptions(cutoffs, div_value=2, dropout=0.2)


def test_a_file_of_another_encoding_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some.yaml").write_bytes("train: {steps: 9}\n".encode("utf-16"))
    refusal = refusal_of(capsys, "--config", str(tmp_path / "some.yaml"))
    assert refusal.startswith(f"run.py: error: {tmp_path / 'some.yaml'} cannot be read: ")
    refusal = refusal_of(capsys, "--config", str(tmp_path / "none.yaml"))
    assert refusal.endswith("none.yaml cannot be read: No such file or directory\n")


def test_the_printed_options_are_read_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--preset=multi30k", "--recipe=cascaded+group", "--train.optimizer=nag"]
    with pytest.raises(SystemExit) as left:
        read_settings([*words, "--print-config"], "run.py", "")
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["train"]["optimizer"]["class"] == "nag"
    (tmp_path / "some.yaml").write_text(printed)
    again, *_ = read_settings(["--config", str(tmp_path / "some.yaml")], "run.py", "")
    assert again.to_options() == read_settings(words, "run.py", "")[0].to_options()


@pytest.mark.parametrize("name", ["run.py", "compare.py"])
def test_printed_options_that_cannot_be_written_cost_no_traceback(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = import_module(module_of(name)).main
    with deserted():
        assert status_of(main, "--print_config") == 141
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it is Linux that has such a disk")
def test_printed_options_that_a_full_disk_does_not_take_cost_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main = import_module(module_of("run.py")).main
    with Path("/dev/full").open("w") as full, redirect_stdout(full):
        assert status_of(main, "--print_config") == 1
    says = "run.py: error: cannot write standard output: No space left on device\n"
    assert capsys.readouterr() == ("", says)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"--train.learning_rate={'9' * 400}", "--train.learning_rate must be "),
        (f"--train.steps={'9' * 5000}", "--train.steps must be a whole number, got '999"),
        (
            "--width 8",
            "--width is not an option: did you mean --network.width or --alignments.width",
        ),
        ("--lr 3", "--lr is not an option: did you mean --train.learning_rate?"),
        ("--overwirte", "--overwirte is not an option: did you mean --overwrite?"),
        ("--trian.steps 3", "--trian is not an option: did you mean --train?"),
        ("--qqq 1", "--qqq is not an option: choose from guide, "),
        ("--config", "--config needs a value"),
        ("--train.learning-rate x", "--train.learning_rate must be a number, got 'x'"),
        ("--a-b 3", "--a_b is not an option: choose from guide, "),
        (
            "--train guide",
            "--train is a group of options: did you mean --train.steps or --train.tokens or "
            "--train.accumulate?",
        ),
        (
            "--guide null",
            "--guide must be one of tied, mean-field, autoregressive, cascaded, exact, "
            "or module:Class for your own; got 'null'",
        ),
        ("--latents", "--latents needs a value"),
        ("--recipe --seed 1", "--recipe needs a value"),
        ("--trust", "--trust needs a value"),
        ("--guide nowhere:Mine", "--guide 'nowhere:Mine' cannot be imported: No module named "),
        ("--alignments.window 7", "--alignments.window is for a language model: drop it"),
        ("--data pears", "--data must be one of grammar, grammar-text, pairs, "),
        ("--data ./nowhere", "--data must be an existing folder, got './nowhere'"),
        ("--copy.slip .1", "--copy is not latent: latents are alignments"),
        ("--latents alignment", "latent must be one of alignments, copy, "),
        (
            "--recipe multi30k",
            "--recipe 'multi30k' is a preset: did you mean --preset multi30k?",
        ),
        ("--out=", "--out must be a folder, got ''"),
        ("foo", "unrecognized argument 'foo': an option begins with --"),
    ],
)
def test_a_mistake_costs_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal_of(capsys, *words.split()).startswith(f"run.py: error: {message}")


def test_a_group_of_a_file_without_content_has_its_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.yaml"
    words = ["--preset=multi30k", "--config", str(path), "--recipes=coda", "--seeds=0"]
    for group in ("data", "train"):
        path.write_text(f"{group}:\n")
        settings, *_ = read_settings(words[:3], "run.py", "")
        assert getattr(settings, group) == getattr(Settings(), group)
        (plan,) = plans_of(tmp_path, *words)
        assert getattr(plan.settings, group) == getattr(Settings(), group)
    path.write_text("data: []\n")
    assert f"{path}: data must be one of " in refusal_of(capsys, "--config", str(path))


def test_a_mistake_in_a_file_is_named_as_the_file_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.yaml"
    for text, message in (
        ("train: {stpes: 3}", "train.stpes is not an option: did you mean train.steps?"),
        ("lr: 3", "lr is not an option: did you mean train.learning_rate?"),
        ("network: {width: 8, heads: 3}", "network.heads must divide the width 8, got 3"),
    ):
        path.write_text(text)
        refusal = refusal_of(capsys, "--config", str(path))
        assert refusal == f"run.py: error: {path}: {message}\n"
