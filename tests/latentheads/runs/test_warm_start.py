"""What of a finished run another one begins with: all, its model, or an encoder of speech."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from latentheads.contrib.speech.features import Filterbank
from latentheads.contrib.speech.vocabulary import Positions
from latentheads.corpora import Corpus, Part, Processor, Rows, Vocabulary, Words
from latentheads.options import merge
from latentheads.runs.build import make_model
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from latentheads.runs.warm_start import describe_initialisation, initialise_from, load_initial_run
from latentheads.training.checkpoints import weights

NOTHING = Part(Rows.of([[2]]), Rows.of([[4]]))
SMALL = {"width": 6, "feed_forward": 7, "heads": 2, "layers": 2, "speech": {"channels": 4}}
PLAIN = {"data": {"class": "speech", "folder": "here"}, "network": SMALL, "ctc": 0.3}
PLAIN |= {"latents": "logits", "logits": {"prior": "cascaded"}, "guide": "tied"}
HEARS = Positions(Filterbank(5, 3800))


def settings(**changed: object) -> Settings:
    return Settings.from_options(merge(PLAIN, changed))


def select(strategy: str, **options: str) -> dict[str, Any]:
    return {"latents": "logits+selection", "selection": {"strategy": strategy, **options}}


def gate(blocks: str) -> dict[str, Any]:
    return {"latents": "logits+gates", "gates": {"blocks": blocks}}


def recognise(tasks: str) -> dict[str, Any]:
    return {"data": {"tasks": {"names": tasks}}}


def translate(tasks: str) -> dict[str, Any]:
    return {"data": {"task": "translation", "tasks": {"names": tasks}}}


def run_of(given_settings: Settings, target: Vocabulary, source: Vocabulary = HEARS) -> Run:
    torch.manual_seed(len(target))
    model = make_model(given_settings, target, source)
    pair = model, given_settings.pair.make_guide(model)
    return Run(
        Path("before"), given_settings, given_settings.data.processor(target, source), *pair, 0
    )


def initialise(before: Run, given_settings: Settings, now: Run) -> None:
    """Gives a run the weights of one before it."""
    corpus = Corpus("spoken", NOTHING, NOTHING, NOTHING, Processor(now.target, HEARS))
    initialise_from(before, given_settings, corpus, now.model, now.guide)


@pytest.fixture
def load_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Has the run that is named for a start be this one."""
    name = "latentheads.runs.warm_start.load_finished"
    return lambda run: monkeypatch.setattr(name, lambda *_: run)


def test_an_encoder_is_taken_and_nothing_else() -> None:
    before = run_of(settings(), Words(["eins", "zwei"]))
    new_settings = settings(
        start="before", start_with="encoder", network={"decoder_layers": 1}, ctc=0.0
    )
    now = run_of(new_settings, Words(["one"]))
    was = {name: element.clone() for name, element in now.model.named_parameters()}
    initialise(before, new_settings, now)
    given = dict(before.model.named_parameters())
    taken = {n for n, element in now.model.named_parameters() if not torch.equal(element, was[n])}
    assert any("fusion" in name for name in taken)
    assert any(name.startswith("source_embedding.subsampler") for name in taken)
    for name, item in now.model.named_parameters():
        if name.startswith(("source_embedding.", "encoder.")):
            assert torch.equal(item, given[name])
        else:
            assert name not in taken


def test_what_is_not_of_the_encoder_may_differ(load_as: Callable[[Run], None]) -> None:
    before = run_of(settings(**select("group"), **recognise("de,fr")), Words(["eins"]))
    load_as(before)
    new = {"start": "before", **translate("de-en"), **select("group")}
    narrow = {"network": {"decoder_layers": 1}}
    assert load_initial_run(settings(**new, **narrow, start_with="encoder")) is before
    own = select("static", blocks="decoder-self")
    decoder = run_of(settings(**own, **recognise("de,fr")), Words(["eins"]))
    load_as(decoder)
    assert load_initial_run(settings(**{**new, **own}, start_with="encoder")) is decoder
    without = {"start": "before", **translate("de-en"), "start_with": "encoder"}
    assert load_initial_run(settings(**without)) is decoder  # whose encoder chose nothing
    gated = run_of(settings(**gate("decoder-self,decoder-cross")), Words(["eins"]))
    load_as(gated)
    assert load_initial_run(settings(**without)) is gated
    load_as(before)
    for given_settings, differs in (
        (settings(**without), r"selection\.strategy group th"),
        (
            settings(**new, start_with="encoder", network={"layers": 3}),
            r"network\.layers 2 there, 3",
        ),
        (settings(**new, **narrow), r"network\.decoder_layers 0 th"),
    ):
        with pytest.raises(ValueError, match=f"before has another network: {differs}"):
            load_initial_run(given_settings)


def test_how_a_selection_is_learned_may_differ(load_as: Callable[[Run], None]) -> None:
    before = run_of(settings(**select("group")), Words(["eins"]))
    load_as(before)
    straight = {"class": "straight-through", "temperature": 2}
    for gradient in ("score", straight):
        learned = {"strategy": {"class": "group", "gradient": gradient}}
        now = settings(latents="logits+selection", selection=learned, start="before")
        assert load_initial_run(now) is before
    more = {"strategy": {"class": "group", "candidates": 6}}
    with pytest.raises(ValueError, match=r"selection\.strategy\.candidates 0 there, 6 here"):
        load_initial_run(settings(latents="logits+selection", selection=more, start="before"))


def test_a_latent_with_weights_may_not_be_left_out(load_as: Callable[[Run], None]) -> None:
    before = run_of(settings(latents="alignments+logits"), Words(["eins"]))
    load_as(before)
    new_settings = settings(latents="logits", start="before")
    with pytest.raises(
        ValueError, match=r"has latents alignments: say latents alignments\+logits$"
    ):
        initialise(before, new_settings, run_of(new_settings, Words(["eins"])))


def test_latents_that_exclude_each_other_are_not_named_together(
    load_as: Callable[[Run], None],
) -> None:
    words = Words(["eins"])
    pairs = {"class": "pairs", "folder": "here", "source": "en", "target": "de"}
    text = {"data": pairs, "network": {"width": 6, "heads": 2}, "guide": "cascaded"}
    before, now = (
        run_of(Settings.from_options({**text, "latents": latents}), words, words)
        for latents in ("alignments", "copy")
    )
    load_as(before)
    corpus = Corpus("text", NOTHING, NOTHING, NOTHING, Processor(words, words))
    with pytest.raises(ValueError, match=r": model\.alignments\.\S+ has no place in this one$"):
        initialise_from(before, now.settings, corpus, now.model, now.guide)


@pytest.mark.parametrize("own", [select("static"), {"adapters": 3}])
def test_an_encoder_with_weights_of_each_language_may_begin_to_translate_them(
    own: dict[str, Any], load_as: Callable[[Run], None]
) -> None:
    before = run_of(settings(**own, **recognise("de,fr")), Words(["eins"]))
    load_as(before)
    new = {**own, "start": "before", "start_with": "encoder"}
    new_settings = settings(**new, **translate("de-en,fr-en,fr-de"))
    now = run_of(new_settings, Words(["one", "two"]))
    assert load_initial_run(new_settings) is before
    initialise(before, new_settings, now)
    given = dict(before.model.named_parameters())
    for name, item in now.model.named_parameters():
        assert torch.equal(item, given[name]) or not name.startswith("encoder."), name
    with pytest.raises(ValueError, match=r"weights of its own for de, fr there, for fr, de here$"):
        load_initial_run(settings(**new, **translate("fr-en,de-en")))


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [(select("group"), {0: 2, 2: 0}), (gate("all"), {0: 0})],  # gates are of all tasks
)
def test_an_encoder_brings_what_it_chose_for_each_language(
    chosen: dict[str, Any], kept: dict[int, int]
) -> None:
    before = run_of(settings(**chosen, **recognise("de,fr,es")), Words(["eins"]))
    new = {**chosen, "start": "before", "start_with": "encoder"}
    new_settings = settings(**new, **translate("es-en,pt-en,de-en"))
    now = run_of(new_settings, Words(["one", "two"]))
    expected = {
        name: one_weight.detach().clone() for name, one_weight in weights(guide=now.guide).items()
    }
    for name, weight in weights(guide=before.guide).items():
        if name.startswith("guide.selections.encoder"):
            for index, theirs in kept.items():
                expected[name][index] = weight[theirs]
    initialise(before, new_settings, now)
    for name, weight in weights(guide=now.guide).items():
        assert torch.equal(weight, expected[name]), name


@pytest.mark.parametrize("part", ["all", "encoder"])
def test_what_is_of_training_alone_may_differ(part: str, load_as: Callable[[Run], None]) -> None:
    before = run_of(settings(network={"speech": {"spec_augment": "LB"}}), Words(["eins"]))
    load_as(before)
    new_settings = settings(start="before", start_with=part, network={"dropout": 0.3})
    assert load_initial_run(new_settings) is before


def test_a_head_of_ctc_is_left_behind_where_none_is_trained() -> None:
    before, new_settings = run_of(settings(), Words(["eins"])), settings(start="before", ctc=0.0)
    now = run_of(new_settings, Words(["eins"]))
    torch.nn.init.normal_(before.model.output.weight)
    initialise(before, new_settings, now)
    given = dict(before.model.named_parameters())
    assert given.keys() - dict(now.model.named_parameters()) == {"ctc.head.weight", "ctc.head.bias"}
    for name, item in now.model.named_parameters():
        assert torch.equal(item, given[name]), name


def of(guide: str, hidden: int) -> dict[str, Any]:
    options = {"guide": {"class": guide, "hidden": hidden}, "logits": {"prior": "independent"}}
    return {**options, **select("group"), **recognise("de,fr")}


@pytest.mark.parametrize(
    ("guide", "part", "taken"),
    [
        (("cascaded", 5), "all", False),
        (("mean-field", 3), "all", False),
        (("mean-field", 5), "all", True),
        (("mean-field", 5), "model", False),
    ],
)
def test_a_guide_is_taken_by_the_same_guide_alone(
    guide: tuple[str, int], part: str, taken: bool
) -> None:
    """Its selection of heads by every guide."""
    before = run_of(settings(**of("mean-field", 5)), Words(["eins"]))
    new_settings = settings(**of(*guide), start="before", start_with=part)
    assert describe_initialisation(before, new_settings) == f"model{' and guide' * taken} of before"
    now = run_of(new_settings, Words(["eins"]))
    for parameters in (*before.model.parameters(), *before.guide.parameters()):
        torch.nn.init.normal_(parameters)
    initialise(before, new_settings, now)
    given = weights(model=before.model, guide=before.guide)
    for name, parameters in weights(model=now.model, guide=now.guide).items():
        own = name.startswith("guide.families.")
        same = (
            name in given
            and given[name].shape == parameters.shape
            and torch.equal(given[name], parameters)
        )
        assert same == (taken or not own), name


@pytest.mark.parametrize(
    ("target", "source", "part", "message"),
    [
        (
            "eins",
            Positions(Filterbank(7, 3800)),
            "encoder",
            r"input Positions\(5 bins .*has Positi",
        ),
        ("eins", Words(["a"]), "encoder", "start_with encoder is for speech, but before has text"),
        ("uno", HEARS, "all", r"than this corpus: its text has changed since$"),
    ],
)
def test_another_source_or_vocabulary_is_refused(
    target: str, source: Vocabulary, part: str, message: str
) -> None:
    """Whatever the cache is, which is no reason."""
    before = run_of(settings(data={"cache": "kept"}), Words(["eins"]))
    options = settings(start="before", start_with=part)
    corpus = Corpus("other", NOTHING, NOTHING, NOTHING, Processor(Words([target]), source))
    with pytest.raises(ValueError, match=message):
        initialise_from(before, options, corpus, before.model, before.guide)


def test_what_needs_all_of_a_run_is_refused() -> None:
    with pytest.raises(ValueError, match="train_only guide needs the whole model of start"):
        replace(settings(start="before", start_with="encoder"), train_only="guide")
