"""Presets: read without data, and as large as the papers say."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from latentheads.batch import SPECIALS
from latentheads.contrib.speech.audio import load_features
from latentheads.contrib.speech.frames import pack_frames
from latentheads.contrib.speech.vocabulary import Positions
from latentheads.corpora import Words
from latentheads.data import Data
from latentheads.models.network import AdaptiveOptions
from latentheads.runs.build import make_model
from latentheads.runs.settings import Settings
from latentheads.training.options import NAGOptimizer
from tests.experiments.programs import ROOT
from tests.latentheads.contrib.speech.sounds import write_noise

FUSION = {4: 24 * 16 + 9 * 4, 8: 24 * 64 + 9 * 8}


def words(size: int) -> Words:
    """A vocabulary of some size."""
    return Words([str(index) for index in range(size - len(SPECIALS))])


def size(settings: Settings, target: int, source: int | None = None) -> int:
    """Parameters of a translation model, or, with one vocabulary, of a language model."""
    right = words(target)
    left = None if source is None else right if source == target else words(source)
    with torch.device("meta"):
        model = make_model(settings, right, left)
    return sum(parameter.numel() for parameter in model.parameters())


def first_command(preset: str) -> list[str]:
    """The words behind ``run.py`` of the first command in a preset's comments."""
    lines = (ROOT / "experiments" / "presets" / f"{preset}.yaml").read_text("utf-8").splitlines()
    command = next(line for line in lines if line.startswith("#   run.py "))
    return shlex.split(command.removeprefix("#   run.py "), comments=True)


@pytest.mark.parametrize(
    ("preset", "types", "plain", "released"),
    [
        ("iwslt14", (8848, 6632), 39_469_056, "39.477"),
        ("wmt14", (32768, 32768), 60_915_712, "60.945"),
    ],
)
def test_networks_are_as_large_as_the_published_ones(
    settings: Any, preset: str, types: tuple[int, int], plain: int, released: str
) -> None:
    """The published cascade also counts a fusion in the first block of each chain, never used."""
    assert size(settings("--preset", preset, "--recipe", "transformer"), *types[::-1]) == plain
    plan = settings("--preset", preset, "--recipe", "coda-released")
    unused = 3 * FUSION[plan.network.heads]
    assert f"{(size(plan, *types[::-1]) + unused) / 1e6:.3f}" == released


def test_transformer_tiny_has_two_point_six_million_parameters(settings: Any) -> None:
    plan = settings("--preset", "multi30k", "--recipe", "transformer")
    assert size(plan, 10_000, 10_000) == pytest.approx(2.6e6, rel=0.01)


@pytest.mark.parametrize(
    ("recipe", "unused", "published"),
    [("transformer", 0, "246.93"), ("coda-released", FUSION[8], "246.96")],
)
def test_the_language_model_of_wikitext_103_is_as_large_as_the_published_one(
    settings: Any, recipe: str, unused: int, published: str
) -> None:
    """With the vocabulary of the papers; as above, one fusion of theirs is never used."""
    plan = settings("--preset", "wikitext103", "--recipe", recipe)
    parameters = size(plan, 267_744)
    assert f"{(parameters + unused) / 1e6:.2f}" == f"{parameters / 1e6:.2f}" == published


def test_a_small_language_model_fits_two_cores(settings: Any) -> None:
    plan = settings("--preset", "wikitext2-small", "--recipe", "coda")
    assert size(plan, 33_281) < 12e6


@pytest.mark.parametrize(
    ("preset", "types", "parameters"),
    [
        ("librispeech", 10_000, 52_293_632),  # the 52M of Loem et al. 2022
        ("librispeech-100", 10_000, 29_536_256 + 257 * 10_000),  # S of fairseq S2T, and CTC's head
        # S with its tags; queries, keys and values of twice as many heads in 18 blocks
        ("mtedx", 8_008, 29_536_256 - 256 * 1_992 + 18 * 3 * 257 * 256),
    ],
)
def test_networks_that_hear_are_as_large_as_the_published_ones(
    settings: Any, preset: str, types: int, parameters: int
) -> None:
    plan = settings(*first_command(preset))
    with torch.device("meta"):
        model = make_model(plan, words(types), Positions(plan.data.audio_options.filterbank))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("preset", ["librispeech", "librispeech-100"])
def test_the_longest_utterance_of_librispeech_is_heard(
    settings: Any, preset: str, tmp_path: Path
) -> None:
    data = settings("--preset", preset).data
    longest = write_noise(tmp_path / "longest.wav", 35.2)
    frames = pack_frames([load_features(longest, data.audio_options)], data.bins)
    assert Positions(data.audio_options.filterbank).rows(frames).lengths.tolist() == [880]
    assert data.max_line >= 880


def test_published_settings_of_speech(settings: Any) -> None:
    group = settings("--preset", "mtedx", "--recipe", "transformer+group")
    ngrams = ["--network.mixers", "ngram", "--network.ngram_context", "true"]
    plan = settings("--preset", "librispeech", "--recipe", "transformer", *ngrams)
    with torch.device("meta"):
        model = make_model(plan, words(10_000), Positions(plan.data.audio_options.filterbank))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 52
    for setting in (group, plan):
        assert 4 * setting.train.tokens * setting.train.accumulate == 320_000  # frames
    assert {mixing.window for mixing in plan.network.stack("encoder")} == {5}
    assert group.data.mixture.tags == ("ar", "de", "el", "es", "fr", "it", "pt", "ru")
    assert group.latent("selection").strategy.candidates == 2 * group.network.heads


def test_every_preset_is_read_without_its_data(settings: Any) -> None:
    for path in (ROOT / "experiments" / "presets").glob("*.yaml"):
        assert isinstance(settings("--preset", path.stem).data, Data)


@pytest.mark.parametrize(
    ("preset", "sources", "targets"),
    [
        ("grammar-languages", "en", "velu tamir korin"),
        ("multi30k-languages", "en", "de fr cs"),
        ("bible", "de fr es it ru", "en"),
        ("libreoffice-help", "en", "de fr es cs it"),
        ("stamps", "be bg ca da el es fr ro ru", "be bg ca da el es fr ro ru"),
        ("stamps-translation", "be bg ca da el es fr ro ru", "en"),
        ("fillets", "cs nl", "en de"),
        ("russian", "read captions telephone", "read captions telephone"),
    ],
)
def test_presets_of_several_languages_say_which(
    settings: Any, preset: str, sources: str, targets: str
) -> None:
    mixture = settings("--preset", preset, "--recipe", "transformer").data.mixture
    assert (mixture.sources, mixture.targets) == (tuple(sources.split()), tuple(targets.split()))


def test_published_settings_of_the_language_model(settings: Any) -> None:
    plan = settings("--preset", "wikitext103", "--recipe", "coda")
    assert plan.data.block_size - plan.data.context == 32
    assert plan.network.adaptive == AdaptiveOptions((20_000, 60_000), 4, 0.2)
    assert isinstance(plan.train.optimizer, NAGOptimizer)
    assert plan.train.tokens * plan.train.accumulate == 65_536


@pytest.mark.parametrize("preset", ["pydoc", "wikitext2-small", "wikitext103"])
@pytest.mark.parametrize("recipe", ["transformer", "coda", "coda-released", "cascaded"])
def test_texts_are_cut_into_blocks_and_reported_by_windows(
    settings: Any, preset: str, recipe: str
) -> None:
    data = settings("--preset", preset, "--recipe", recipe).data
    assert 0 < data.context < data.block_size
    assert data.is_language_model


@pytest.mark.parametrize(
    ("words", "protocol"),
    [
        ("--preset iwslt14", "iwslt14"),
        ("--preset multi30k", "iwslt14"),
        ("--preset wmt14", "wmt14"),
        ("--preset wmt14 --data.lowercase true", "iwslt14"),
        ("--preset wmt14 --decode.paper_bleu false", None),
        ("--data pairs --data.folder corpus --decode.paper_bleu true", "wmt14"),
    ],
)
def test_the_papers_bleu_minds_case_where_the_papers_did(
    settings: Any, words: str, protocol: str | None
) -> None:
    assert settings(*words.split()).protocol == protocol
