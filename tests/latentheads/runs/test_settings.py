"""Settings: plain values that read and write a file, each by its own type."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import torch
import yaml

from latentheads.contrib.speech.front_end import SpeechOptions
from latentheads.corpora.batches import batches
from latentheads.data import Grammar, InMemory, Tasks
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.latent import Latent
from latentheads.latents.logits.options import LogitsOptions, PriorSpec
from latentheads.latents.options import LatentOptions
from latentheads.latents.registry import LATENTS
from latentheads.options import UnusedOptionError
from latentheads.runs.build import make_model
from latentheads.runs.pairs import GuideSpec
from latentheads.runs.settings import DisagreementOptions, Settings, complete_options, trusted_paths
from latentheads.training.engine import make_loss
from latentheads.training.losses import HeadELBOLoss
from latentheads.training.options import AdamWOptimizer, LinearSchedule, Training, make_training
from tests.experiments.programs import ROOT
from tests.latentheads.latents.tempered import NAME, TemperatureOptions
from tests.tiny import jiggle

PRESETS = sorted((ROOT / "experiments" / "presets").glob("*.yaml"))

HEARD = {"class": "speech", "folder": "folder"}


def refused(**message: Any) -> str:
    with pytest.raises(ValueError) as caught:
        Settings.from_options(message)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(settings: Settings) -> Settings:
    return Settings.from_options(yaml.safe_load(settings.to_yaml()))


def test_classes_are_equal_where_their_options_at_their_default_are() -> None:
    assert GuideSpec("cascaded", {"scale": 2}) == GuideSpec("cascaded", {"scale": 2.0, "hidden": 4})
    assert GuideSpec("cascaded") != GuideSpec("mean-field")
    assert written(Settings()) == Settings()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guide": "nix"}, "guide must be one of tied, "),
        ({"latents": ("alignments",)}, "latents must be AlignmentOptions, "),
        ({"latents": (AlignmentOptions,)}, "latents must be AlignmentOptions, "),
        ({"label_smoothing": 1.0}, "label_smoothing must be below 1, got 1"),
    ],
)
def test_settings_of_python_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Settings(**options)
    assert str(caught.value).startswith(message)


def test_numbers_beyond_a_machine_and_unused_options_are_refused() -> None:
    refusal = refused(latents="gates", gates={"start": 1e300})
    assert refusal.startswith("gates.start must be below 3.4028")
    assert refused(start_with="encoder") == "start_with encoder needs the option start"
    refusal = refused(latents="logits", train={"loss": "relaxed"})
    assert refusal.endswith(" needs a latent that is summed out, such as bernoulli-heads")


class Own(AdamWOptimizer):
    """An optimizer that is not in the table."""


class OwnSchedule(LinearSchedule):
    """A schedule that is not in the table."""


def test_a_class_that_no_file_can_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^optimizer must be one of muon, .*; got Own\("):
        Training(optimizer=Own())
    with pytest.raises(ValueError, match=r"^schedule must be one of linear, .*; got OwnSchedule"):
        Training(schedule=OwnSchedule())


def test_what_is_written_is_read_the_same() -> None:
    settings = Settings(
        guide=GuideSpec("autoregressive", {"form": "inverse"}),
        latents=(
            LogitsOptions(PriorSpec("cascaded", {"hidden": 2}), "decoder-self,decoder-cross"),
        ),
        data=Grammar(tasks=Tasks("velu,tamir", sizes=(3, 4))),
        train=Training(steps=7, clip=1e-5),
        disagreement=DisagreementOptions("output"),
    )
    again = written(settings)
    assert again == settings
    assert again.to_yaml() == settings.to_yaml()
    assert again.data == settings.data
    assert again.train.clip == 1e-5
    assert (again.pair.prior_name, again.pair.guide_name) == ("cascaded", "autoregressive")
    assert again.logits is not None
    assert again.logits.blocks == "decoder-self,decoder-cross"
    assert again.disagreement_term == settings.disagreement_term is not None


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_is_read_as_the_command_line_reads_it(path: Path) -> None:
    from latentheads.experiments.cli.options import read_settings

    mine = Settings.read(path)
    theirs, _, _ = read_settings(["--config", str(path)], "", "")
    assert theirs.to_yaml() == mine.to_yaml()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": {"width": 10**9}}, "network.width must be at most 65,536, got 1,000,000,000"),
        ({"network": {"layers": 10**8}}, "network.layers must be at most 1,000, got 100,000,000"),
        (
            {"decode": {"num_samples": 10**9}},
            "decode.num_samples must be at most 1,000, got 1,000,000,000",
        ),
        (
            {"alignments": {"width": 10**9}},
            "alignments.width must be at most 65,536, got 1,000,000,000",
        ),
        (
            {"alignments": {"prior": "soft", "blocks": 10**6}},
            "alignments.blocks must be at most 1,000,",
        ),
        (
            {"alignments": {"prior": "soft", "heads": 10**6}},
            "alignments.heads must be at most 1,000,",
        ),
        ({"data": 3}, "data must be one of grammar, grammar-text, pairs"),
        ({"data": {"class": "pairs"}}, "data.folder must name a folder"),
        ({"train_only": "adapters"}, "train_only adapters needs the option start"),
        ({"adapters": 10**8}, "adapters must be at most 65,536, got 100,000,000"),
        ({"latents": "noise"}, "latent must be one of alignments, copy"),
        (
            {"latents": "logits", "logits": {"blocks": "encoder"}},
            "attention type must be one of encoder-self",
        ),
        ({"guide": "cascadid"}, "exact, or module:Class for your own"),
        ({"recipe": "codda"}, "recipe must be one of autoregressive"),
        ({"recipe": "coda", "guide": "tied"}, "recipe coda sets prior and guide: drop guide"),
        ({"recipe": "cody"}, "GUIDE+alignments, GUIDE+copy, GUIDE+bernoulli-heads, or PRIOR+GUIDE"),
        ({"latents": "logits", "guide": "exact"}, "guide exact needs latents alignments"),
        ({"latents": "gates+selection"}, "latents selection and gates exclude each other"),
    ],
)
def test_a_mistake_names_the_option_and_what_is_accepted(
    options: dict[str, Any], message: str
) -> None:
    assert message in refused(**options)


def test_a_number_that_yaml_takes_for_a_text_is_one() -> None:
    text = "train: {learning_rate: 1e-3}\nnetwork: {dropout: 0}\n"
    settings = Settings.from_options(yaml.safe_load(text))
    assert settings.train.learning_rate == 1e-3
    assert type(settings.network.dropout) is float


def test_another_order_and_what_is_left_at_its_default_are_the_same_run() -> None:
    short = {"guide": "cascaded", "train": {"steps": 5}}
    long = yaml.safe_load(Settings(train=Training(steps=5)).to_yaml())
    assert complete_options(short) == complete_options(dict(reversed(long.items()))) == long
    assert complete_options({"a": 1}) == {"a": 1}


def test_a_corpus_in_memory_is_called_so() -> None:
    settings = Settings(data=InMemory(task="language-model", block_size=7))
    assert yaml.safe_load(settings.to_yaml())["data"]["class"] == "in-memory"
    assert written(settings).in_memory
    assert written(settings).data.block_size == 7


def test_a_class_that_is_not_trusted_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from latentheads.guides import Tied\nclass Mine(Tied):\n    pass\n"
    (tmp_path / "my_tied.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    options = {"guide": "my_tied:Mine"}
    assert "trust my_tied:Mine" in refused(**options)
    assert "my_tied" not in sys.modules
    assert Settings.from_options(options, "my_tied:Mine").pair.guide_name == "my_tied:Mine"
    sys.modules.pop("my_tied")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("a: [")
    for path, text in ((tmp_path, "it is a folder$"), (tmp_path / "README.md", "not YAML")):
        with pytest.raises(ValueError, match=f"^{path} cannot be read: {text}"):
            Settings.read(path)


def test_a_value_of_a_file_is_what_its_option_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    data = "{class: pairs, folder: 2020-01-01, source: no, target: en, lowercase: off}"
    path.write_text(f"data: {data}\ntrain: {{learning_rate: 1e-3, steps: 012}}")
    settings = Settings.read(path)
    assert (settings.data.source, settings.data.folder) == ("no", "2020-01-01")
    assert settings.data.lowercase is False
    assert (settings.train.learning_rate, settings.train.steps) == (1e-3, 12)
    path.write_text("train: {steps: 12:30}")
    with pytest.raises(ValueError, match=r"^train\.steps must be a whole number, got '12:30'$"):
        Settings.read(path)


def test_what_is_trusted_is_a_class_or_its_path_or_several() -> None:
    for trusted in ("fractions:Fraction", Fraction, ["fractions:Fraction"], (Fraction,)):
        assert trusted_paths(trusted) == {"fractions:Fraction"}
    assert trusted_paths("a:B, c.d:E") == {"a:B", "c.d:E"}


def test_a_recipe_names_what_is_latent() -> None:
    assert Settings().recipe == "cascaded+alignments"
    logits = LogitsOptions(PriorSpec("independent"))
    assert Settings(latents=(logits,)).recipe == "cascaded"
    both = Settings(latents=(AlignmentOptions(1), logits))
    assert both.recipe == "independent+cascaded+alignments"
    tied = Settings.from_options({"recipe": "tied+alignments"}).latent("alignments")
    assert tied is not None
    assert tied.blocks == 2


def test_the_title_of_a_picture_names_recipe_corpus_and_seed() -> None:
    settings = Settings.from_options({"data": {"language": "tamir"}, "seed": 3})
    assert settings.title == "cascaded+alignments, grammar-tamir, seed 3"
    assert settings.title == settings.title_of(settings.data.name)
    assert "a corpus in memory" in replace(settings, data=InMemory()).title
    four, two = (Grammar(tasks=Tasks(names)) for names in ("velu,tamir,ostan,korin", "velu,tamir"))
    assert "grammar 4 tasks, seed 3" in replace(settings, data=four).title
    assert "en-velu,en-tamir" in replace(settings, data=two).title


def test_a_module_that_fails_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails_here.py").write_text("raise RuntimeError('one\\ntwo')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"guide 'fails_here:G' cannot be imported: one two$"):
        Settings.from_options({"guide": "fails_here:G"}, "fails_here:G")


def test_a_guide_alone_is_not_trained_by_what_trains_the_model() -> None:
    options = {"train_only": "guide", "start": "before", "guide": "cascaded"}
    line = refused(**options, train={"loss": "marginal"})
    assert line.startswith("train.loss marginal trains the model, which stays as it is")
    assert Settings.from_options(options | {"train": {"loss": "sampled"}}).train_only == "guide"


@dataclass(frozen=True)
class Styles(LatentOptions):
    may_be_summed_out: ClassVar[bool] = True


def test_a_latent_without_label_and_phrase_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LATENTS, "styles", Styles)
    settings = Settings(latents=(Styles(),))
    assert settings.recipe == "cascaded+styles"
    assert settings.description.startswith("model: styles, deterministic attention")


def test_a_sampled_latent_of_ones_own_has_the_guides_of_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(LATENTS, NAME, TemperatureOptions)
    assert Settings.from_options({"latents": NAME}).recipe == f"cascaded+{NAME}"
    for recipe in (f"mean-field+{NAME}", f"tied+{NAME}", f"independent+mean-field+{NAME}"):
        settings = Settings.from_options({"recipe": recipe})
        assert settings.recipe == recipe
        assert settings.latent_names == ("logits", NAME)[-recipe.count("+") :]
        assert settings.equal_guides == []
    assert refused(latents=NAME, guide="exact").startswith("guide exact needs latents alignments")
    monkeypatch.setattr(TemperatureOptions, "kind", Latent)
    assert "whose options name its kind" in refused(latents=NAME, guide="mean-field")


NOISY_NGRAMS = {"latents": "none", "guide": "cascaded"} | {
    "network": {"mixers": "encoder=ngram decoder=ngram", "ngram_noise": 0.5}
}
OF_KL: dict[str, Any] = {"kl": "sampled", "kl_weight": 0.5, "kl_warmup": 5, "free_bits": 30.0}
KLS: list[tuple[dict[str, Any], str, set[str]]] = [
    ({"recipe": "transformer"}, "Head_ELBO", set()),
    ({"recipe": "coda"}, "Head_ELBO", set()),
    ({"latents": "logits", "logits": {"prior": "tied"}}, "Head_ELBO", set()),
    ({"recipe": "cascaded"}, "Head_ELBO", {*OF_KL}),
    (NOISY_NGRAMS, "Head_ELBO", {*OF_KL}),
    ({"recipe": "cascaded+alignments"}, "Head_ELBO", {*OF_KL} - {"kl"}),
    ({"recipe": "cascaded+alignments"}, "marginal", set()),
    ({"recipe": f"mean-field+{NAME}"}, "Head_ELBO", {*OF_KL}),
    ({"recipe": f"tied+{NAME}"}, "Head_ELBO", set()),
    ({"latents": "logits+alignments", "guide": "cascaded"}, "marginal", {*OF_KL}),
    ({"latents": "logits+alignments", "guide": "exact"}, "Head_ELBO", {*OF_KL} - {"kl"}),
    ({"latents": "logits+alignments", "guide": "exact"}, "iwae", set()),
    ({"recipe": "transformer+group"}, "Head_ELBO", {*OF_KL} - {"free_bits"}),
    (
        {"recipe": "transformer+group", "selection": {"strategy": {"gradient": "score"}}},
        "Head_ELBO",
        {"kl_weight", "kl_warmup"},
    ),
]


@pytest.mark.parametrize(("options", "loss", "acting"), KLS)
def test_an_option_of_a_kl_is_refused_where_no_gradient_changes_with_it(
    options: dict[str, Any], loss: str, acting: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LATENTS, NAME, TemperatureOptions)
    corpus = Grammar(sentences=20, held_out=8).load()
    sizes = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 1, "dropout": 0.0}
    options = {**options, "network": sizes | options.get("network", {})}
    plain = Settings.from_options(options | {"train": {"loss": loss}})
    torch.manual_seed(0)
    model = jiggle(make_model(plain, corpus.target, corpus.source).double(), 0.2)
    guide = jiggle(plain.pair.make_guide(model).double(), 0.3)
    batch = next(batches(corpus.valid, 99))

    learned = [*model.parameters(), *guide.parameters()]

    def gradient(options: Mapping[str, Any]) -> list[float]:
        training = make_training({"loss": {"class": loss, **options}})
        elbo: Any = make_loss(training, model)
        elbo.kl_weight = cast(HeadELBOLoss, training.loss).kl_weight_at(1)
        torch.manual_seed(1)
        loss_value = elbo.differentiable_loss(model, guide, batch)
        gradients = torch.autograd.grad(loss_value, learned, materialize_grads=True)
        return [float(part.norm()) for part in gradients]

    for name, other in OF_KL.items():
        given_options = options | {"train": {"loss": {"class": loss, name: other}}}
        if name in acting:
            assert Settings.from_options(given_options)
            assert gradient({name: other}) != pytest.approx(gradient({}), rel=1e-9, abs=1e-9), name
        else:
            with pytest.raises(UnusedOptionError, match=f"^train.loss.{name} acts on a KL.* here$"):
                Settings.from_options(given_options)
            if name != "free_bits" or "selection" not in options:  # scores take none
                assert gradient({name: other}) == pytest.approx(gradient({}), rel=1e-9, abs=1e-9), (
                    name
                )


@pytest.mark.parametrize("options", [{"recipe": "cascaded"}, NOISY_NGRAMS], ids=str)
def test_noise_is_warmed_up_where_there_is_some(options: dict[str, Any]) -> None:
    train = {"noise_warmup_steps": 5}
    assert Settings.from_options(options | {"train": train}).train.noise_warmup_steps == 5
    line = refused(recipe="tied+alignments", train=train)
    assert line.startswith("train.noise_warmup_steps acts on the noise of logits and of n-gram")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": {"speech": {"channels": 4}}}, "network.speech is for speech, and grammar-mi"),
        ({"ctc": 0.3}, "ctc is for speech, and grammar-mirel is not"),
        ({"data": "grammar-text", "ctc": 0.3}, "ctc is for speech, and grammar-sources is not"),
        ({"network": {"adaptive": [3]}}, "network.adaptive is for a language model, and grammar-m"),
        (
            {"data": "grammar-text", "network": {"decoder_layers": 2}},
            "network.decoder_layers is for translation or speech, and grammar-sources ",
        ),
        (
            {"data": "grammar-text", "decode": {"num_beams": 2}},
            "decode.num_beams is for translation or speec",
        ),
        (
            {"data": "grammar-text", "decode": {"rouge": True}},
            "decode.rouge is for translation",
        ),
        (
            {"decode": {"paper_wer": True}},
            "decode.paper_wer is for the recognition of speech, and ",
        ),
        ({"data": HEARD, "decode": {"paper_bleu": True}}, "decode.paper_bleu is for translation"),
        (
            {"data": {**HEARD, "task": "translation"}, "decode": {"paper_wer": True}},
            "decode.paper_wer is for the recognition of speech",
        ),
    ],
)
def test_an_option_of_another_kind_of_data_is_refused(
    options: dict[str, Any], message: str
) -> None:
    assert refused(**options).startswith(message)


def test_speech_has_its_options_without_being_told() -> None:
    heard = Settings.from_options({"data": HEARD})
    assert heard.network.speech == SpeechOptions()
    assert Settings.from_options({"data": HEARD, "network": {"speech": {}}}) == heard
    assert Settings.from_options({}).network.speech is None
    for kept in ({"ctc": 0.3}, {"decode": {"num_beams": 2, "paper_wer": True}}):
        assert Settings.from_options({"data": HEARD, **kept}) != heard


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"norm": {"final_norm": False}}, "network.norm.final_norm is not an option of post, but"),
        ({"final_norm": True}, "network.final_norm is not an option: did you mean network.norm.fi"),
        ({"adaptive": {"dropout": 0.1}}, "network.adaptive.cutoffs is missing"),
        ({"adaptive": []}, "network.adaptive.cutoffs must hold at least one"),
    ],
)
def test_an_option_stands_in_the_group_that_it_acts_with(
    network: dict[str, Any], message: str
) -> None:
    assert refused(network=network).startswith(message)
