"""The Python of the pages runs as it stands."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from pyro import poutine
from pyro.infer import TraceMeanField_ELBO

import latentheads as lh
from latentheads.contrib.heads.word_attention import ForcedExample
from latentheads.contrib.speech.timing import TimedWords
from latentheads.contrib.speech.word_times import WordTime
from latentheads.distributions import NormalHeads
from latentheads.families import Gaussian, HeadScale, Identity
from latentheads.guides import RECIPES, Cascaded, Exact, Guide, MeanField, Tied
from latentheads.inference.bound import traces
from latentheads.latents.alignments.distribution import NOWHERE
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.logits.latent import Logits
from latentheads.latents.registry import LATENTS
from latentheads.metrics.scores import Scores
from latentheads.models import Network, Translation, make_prior
from latentheads.runs.results import Results
from tests.docs.pages import PAGES, README, ROOT, Page
from tests.latentheads.contrib.hf.networks import FRAMES, bart, gpt2, whisper
from tests.latentheads.contrib.page.runs import make_run, small_corpus
from tests.tiny import sizes, small_batch

SHOWN = {
    "README.md": 1,
    "docs/align.md": 3,
    "docs/alignments.md": 3,
    "docs/api.md": 1,
    "docs/architecture.md": 2,
    "docs/bernoulli-heads.md": 3,
    "docs/circuits.md": 5,
    "docs/comparing.md": 2,
    "docs/copy.md": 1,
    "docs/first-hour.md": 2,
    "docs/guides.md": 5,
    "docs/head-mask.md": 1,
    "docs/latents.md": 4,
    "docs/own-text.md": 1,
    "docs/papers-in-miniature.md": 1,
    "docs/pretrained.md": 6,
    "docs/analysis.md": 3,
    "docs/alignment-heads.md": 6,
    "docs/pruning.md": 1,
    "docs/report.md": 1,
    "docs/selecting.md": 1,
}
"""Blocks of Python on every page; each is run below, or with the examples or the first hour."""


def snippets(name: str) -> list[str]:
    return Page(ROOT / name).blocks("python")


def run(snippet: str, names: dict[str, Any]) -> None:
    exec(compile(snippet, "a page", "exec", dont_inherit=True), names)


def test_no_block_is_forgotten() -> None:
    counts = {str(page): len(page.blocks("python")) for page in PAGES}
    assert {name: number for name, number in counts.items() if number} == SHOWN


@pytest.mark.usefixtures("as_the_programs_do")
def test_two_texts_are_aligned() -> None:
    names: dict[str, Any] = {}
    run(snippets("docs/align.md")[0], names)
    assert names["aligned"].links == [[(0, 0), (1, 1)]] * 3
    assert names["more"].links == [[(0, 0), (1, 1)]]


def test_links_of_files_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "links").write_text("0-0:0.93 1-1:0.55\n0-0 1-2\n")
    (tmp_path / "gold.links").write_text("0-0 1p1\n0-0 1-1\n")
    monkeypatch.chdir(tmp_path)
    run(snippets("docs/align.md")[1], {})
    printed = capsys.readouterr().out
    assert re.match(r"AER 0\.286 \[0\.\d+, 0\.\d+\], precision 0\.750 \[0\.\d+, ", printed)
    assert printed.endswith("; 2 lines\n")


@pytest.mark.usefixtures("as_the_programs_do")
def test_spans_are_carried() -> None:
    names: dict[str, Any] = {}
    run(snippets("docs/align.md")[2], names)
    assert 0 < names["carried"][0][0].probability <= 1


def test_the_guide_of_twenty_lines_trains_in_the_notebooks_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guide, notebook, loss, *_ = snippets("docs/guides.md")
    reading, *_ = snippets("docs/analysis.md")
    names: dict[str, Any] = {}
    run(guide, names)
    run(notebook, names)
    assert len(names["losses"]) == 3
    assert set(names["bound"].how.values()) == {"analytic"}
    assert "analytic" in capsys.readouterr().out
    before = [parameter.clone() for parameter in names["guide"].parameters()]
    run(loss, names)
    # each is trained, as the conformance tests want it of a guide in the table
    assert not any(map(torch.equal, before, names["guide"].parameters()))
    run(reading, names)
    assert "torch.Size([2, 2, 4, 4])" in capsys.readouterr().out


def gate_log_probs(model: Any, batch: Any, gates: torch.Tensor) -> torch.Tensor:
    """Log p(y | x) of a network whose gates are given."""
    with poutine.condition(data={"decoder.1.cross.active": gates.expand(len(batch), -1)}):
        distribution = model.token_distribution(batch)
    return distribution.log_prob(batch.scored).detach()


def test_a_copy_head_has_a_posterior_with_generate_in_front() -> None:
    (snippet,) = snippets("docs/copy.md")
    names: dict[str, Any] = {}
    run(snippet.replace("latents=", "heads=2, width=8, latents="), names)
    batch = names["batch"]
    assert names["exact"].shape == (
        *batch.target.shape[:1],
        1,
        *batch.target.shape[1:],
        batch.source.shape[1] + 1,
    )
    gap = sum(names["bound"].enumeration.gap().values())
    torch.testing.assert_close(
        names["bound"].elbo + gap,
        names["bound"].enumeration.log_evidence.double(),
        check_dtype=False,
    )
    *_, aligned = snippets("docs/guides.md")
    run(aligned, names)
    small = {"heads": 2, "width": 8, "latents": [lh.latents.CopyOptions()]}
    model = Translation.of(names["corpus"], **small).eval()
    guide = names["Lexical"](model)
    bounds = []
    for trust in (0.0, 1.0):
        torch.nn.init.constant_(guide.trust, trust)
        bounds.append(float(lh.terms(model, guide, batch).elbo.sum()))
    exact = float(lh.terms(model, Exact(model), batch).elbo.sum())
    assert bounds[0] < bounds[1] < exact


@pytest.mark.usefixtures("as_the_programs_do")
def test_circuits_have_a_posterior(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for snippet in snippets("docs/circuits.md"):
        run(snippet, names)
    assert names["posterior"].labels == ["L0H2", "L1H0", "L1H1", "L1H2"]
    assert len(names["posterior"].tokens) == 32
    assert 1 <= len(names["others"]) <= 3
    expected = names["posterior"].inclusion
    torch.testing.assert_close(names["samples"].inclusion, expected, rtol=0, atol=0.25)
    assert names["own"](torch.zeros(1, 1)).shape == (1, 32)
    assert names["importances"].scores.keys() == {(0, 2), (1, 0), (1, 1), (1, 2)}


@pytest.mark.filterwarnings("ignore:a temperature of 5 prompts", "ignore:tau is not identified")
def test_subsets_of_heads_have_a_posterior() -> None:
    snippet, own_guide, of_corpus = snippets("docs/bernoulli-heads.md")
    small = {"latents=": "heads=2, width=8, latents=", "sentences=500": "sentences=40, held_out=5"}
    for text, smaller in small.items():
        snippet = snippet.replace(text, smaller)
    names: dict[str, Any] = {}
    run(snippet, names)
    corpus, batch = names["corpus"], names["batch"]
    model, enumeration = names["model"], names["bound"].enumeration
    posterior = enumeration.log_posterior
    assert posterior.shape == (len(batch), 4)
    torch.testing.assert_close(posterior.exp().sum(-1), torch.ones(len(batch)).to(posterior))
    rate = torch.tensor([0.8, 0.2]).log()
    of_columns = torch.stack([2 * rate[1], *[rate.sum()] * 2, 2 * rate[0]])
    torch.testing.assert_close(enumeration.log_prior.expand(4), of_columns)
    of_one = gate_log_probs(model, batch, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(enumeration.log_likelihoods[:, 1], of_one)
    run(own_guide, names)
    guide = names["OneLogit"](model)
    torch.nn.init.constant_(guide.logit, 0.3)
    own = lh.terms(model, guide, batch)
    p = torch.tensor(0.3).sigmoid()
    kl = p * (p / 0.8).log() + (1 - p) * ((1 - p) / 0.2).log()
    torch.testing.assert_close(own.total_kl.to(kl), (2 * kl).expand(len(batch)))
    names["model"] = Translation.of(corpus, latents=(), heads=2, width=8)
    run(of_corpus, names)
    assert names["posterior"].inclusion.shape == (4,)


def test_a_latent_of_ones_own_is_summed_out_trained_and_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    latent, training, comparing, registering = snippets("docs/latents.md")
    code = [line for line in latent.splitlines() if line.strip()]
    assert len([line for line in code if not line.startswith(("import", "from"))]) <= 50
    names: dict[str, Any] = {}
    run(latent, names)
    for text, here in (("sentences=500", "sentences=60, held_out=5"), ("steps=20", "steps=2")):
        assert text in training
        training = training.replace(text, here)
    run(training.replace("warmup_steps=5", "warmup_steps=1, quiet=True"), names)
    assert "exact log p" in capsys.readouterr().out
    run(comparing.replace("steps=20, warmup_steps=5", "steps=1, warmup_steps=1"), names)
    assert len(names["gaps"]) == 3
    assert min(names["gaps"]) > 0
    model, batch = names["model"].double(), names["batch"]
    states = model.states(batch)
    of_styles = [
        model.likelihood(states + v, batch).log_prob(batch.scored) for v in model.styles.vectors
    ]
    exact = (torch.stack(of_styles, -1) + model.styles.logits.log_softmax(-1)).logsumexp(-1)
    for kind in (Cascaded, Exact, Tied):
        bound = lh.terms(model, kind(model).double(), batch)
        torch.testing.assert_close(bound.enumeration.log_evidence, exact.detach())
        gap = sum(bound.enumeration.gap().values())
        torch.testing.assert_close(bound.elbo + gap, exact.detach())
        assert (gap.abs() < 1e-9).all() == (kind is Exact)
    with torch.no_grad():
        state = model.begin(batch)
        steps = [model.step(token, state) for token in batch.decoder_input.split(1, 1)]
    log_probs = torch.cat(steps, 1).log_softmax(-1).gather(-1, batch.target[..., None])[..., 0]
    torch.testing.assert_close((log_probs * batch.target_valid).sum(-1), exact.detach())
    check_registering(registering, names, tmp_path, monkeypatch)


def check_registering(
    snippet: str, names: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before, a latent of one's own has a run folder once it is registered."""
    monkeypatch.chdir(folder)
    corpus = names["corpus"]
    names["model"] = Translation.of(corpus, latents=[names["StyleOptions"](5)], width=8)
    names["guide"] = MeanField(names["model"])
    unregistered = "^latents: no run folder can name StyleOptions: add its options to LATENTS of"
    with pytest.raises(ValueError, match=unregistered):
        lh.Trainer(names["model"], names["guide"], corpus, steps=2)
    monkeypatch.setitem(LATENTS, "styles", names["StyleOptions"])  # taken back after the test
    run(snippet.replace("steps=20, warmup_steps=5", "steps=2, num_samples=2, quiet=True"), names)
    opened = names["run"]
    assert opened.settings.recipe == "mean-field+styles"
    assert opened.settings.latents[0].styles == 5
    weights = names["model"].styles.vectors
    torch.testing.assert_close(opened.model.styles.vectors, weights.detach(), check_dtype=False)


def test_pairs_of_ones_own_are_trained_on_and_translated() -> None:
    (script,) = snippets("docs/own-text.md")
    for value, smaller in (("steps=20", "steps=2, quiet=True"), ("width=32", "width=8")):
        assert value in script
        script = script.replace(value, smaller)
    names: dict[str, Any] = {}
    run(script, names)
    (translation,) = names["translations"]
    assert isinstance(translation, str)
    assert names["model"].vocabulary_sizes["target"] == len(names["corpus"].target)


def test_a_law_of_ones_own_is_a_prior_with_any_guide() -> None:
    *_, distribution, _ = snippets("docs/guides.md")
    names: dict[str, Any] = {}
    run(distribution, names)
    network, batch = Network(width=4, feed_forward=3, heads=2, layers=2), small_batch()
    model = Translation(13, 11, network, latents=[Logits(names["HeavyPrior"]())]).eval()
    torch.manual_seed(0)
    bound = lh.terms(model, Cascaded(model), batch)
    assert set(bound.how.values()) == {"sampled"}
    heads = traces(model, Tied(model), batch)[0].nodes["encoder.1.self.logits"]
    far = (heads["fn"].rsample(torch.Size([500])) - heads["fn"].location).detach().abs()
    assert float(far.mean()) == pytest.approx(1, abs=0.02)
    peak = -network.heads * heads["fn"].context.mask.pairs * math.log(2)
    assert torch.allclose(heads["fn"].log_prob(heads["fn"].location), peak)


def test_a_guide_of_alignments_gains_by_reading_the_target() -> None:
    *_, aligned = snippets("docs/guides.md")
    names: dict[str, Any] = {}
    run(aligned, names)
    options = AlignmentOptions(blocks=1, prior="independent", width=4)
    network = Network(width=4, feed_forward=3, heads=2, layers=1, dropout=0.0)
    model = Translation(13, 11, network, latents=[options])
    assert model.alignments is not None
    torch.nn.init.normal_(model.alignments.blocks[0].lexicon.weight)
    guide, batch = names["Lexical"](model.eval()), small_batch()
    assert (guide.is_target_conditioned, guide.condition_on) == (True, "target")
    start = lh.terms(model, guide, batch)
    assert all((nats == 0).all() for nats in start.kl.values())
    torch.nn.init.ones_(guide.trust)
    bounds = [start, lh.terms(model, guide, batch), lh.terms(model, Exact(model), batch)]
    prior, lexical, exact = (float(bound.elbo.sum()) for bound in bounds)
    assert prior < lexical < exact


def test_a_notebook_trains_opens_and_reads_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (script,) = README.blocks("python")
    for text, here in (
        ("sentences=5000", "sentences=60, held_out=5"),
        ("steps=500", "steps=2, num_samples=2"),
        ("width=64", "width=8"),
    ):
        assert text in script
        script = script.replace(text, here)
    run(script, {})
    assert "exact log p" in capsys.readouterr().out
    assert (tmp_path / "runs" / "mine" / "results.json").is_file()
    _, every_way, heads = snippets("docs/analysis.md")
    names: dict[str, Any] = {"lh": lh}
    assert 'f"runs/{name}-seed0"' in every_way
    run(every_way.replace('f"runs/{name}-seed0"', '"runs/mine"'), names)
    assert [report.name for report in names["reports"]] == ["mine", "mine"]
    for text, here in (("head", "mine"), ("53", "3"), ("400", "2"), ("row=2", "row=1")):
        assert text in heads
        heads = heads.replace(text, here, 1)
    run(heads, names)
    assert "decoder.1.cross, 2 samples" in names["figure"].get_suptitle()


def test_the_amortised_guide_shifts_some_keys_more_than_others() -> None:
    script, _ = snippets("docs/architecture.md")
    names = {"Guide": Guide, "Gaussian": Gaussian, "Identity": Identity, "HeadScale": HeadScale}
    names |= {"NormalHeads": NormalHeads, "nn": torch.nn}
    run(script, names)
    network = Network(width=4, feed_forward=3, heads=2, layers=1)
    model = Translation(13, 11, network, latents=[Logits(make_prior("independent"))])
    guide = names["Amortised"](model.eval())
    assert all((nats == 0).all() for nats in lh.terms(model, guide, small_batch()).kl.values())
    torch.nn.init.normal_(guide.reader.weight)
    bound = lh.terms(model, guide, small_batch())
    assert set(bound.how.values()) == {"analytic"}
    assert all((nats > 0).all() for nats in bound.kl.values())
    prior_trace, posterior_trace = (trace.nodes for trace in traces(model, guide, small_batch()))
    for site in bound.kl:
        shift = posterior_trace[site]["fn"].location - prior_trace[site]["fn"].location
        assert (shift.std(-1) > 0).all()  # a constant would change no attention weight
    losses = lh.Head_ELBO().differentiable_loss(model, guide, small_batch())
    losses.backward()
    assert guide.reader.weight.grad.abs().sum() > 0


def test_a_network_of_ones_own_has_the_bound_of_pyro() -> None:
    _, script = snippets("docs/architecture.md")
    names: dict[str, Any] = {}
    run(script, names)
    model = names["Reader"](13, 11).double().eval()
    guide = MeanField(model, condition_on="target").double().eval()
    for parameter in guide.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    torch.manual_seed(0)
    bound = lh.terms(model, guide, small_batch())
    assert bound.how == {"decoder.0.cross.logits": "analytic"}
    torch.manual_seed(0)
    loss = TraceMeanField_ELBO().loss(model, guide, small_batch())
    assert float(bound.elbo.sum()) == pytest.approx(-loss)
    assert lh.fit(model, guide, [small_batch()], steps=1, warmup_steps=1, quiet=True).report.kl > 0


@torch.no_grad()
def test_a_prior_of_alignments_of_ones_own_divides_the_scores() -> None:
    script, *_ = snippets("docs/alignments.md")
    names: dict[str, Any] = {}
    run(script, names)
    own = names["options"]
    batch, priors = small_batch(), []
    for options in (own, replace(own, prior="independent")):
        torch.manual_seed(0)
        model = Translation(11, 13, sizes(), latents=[options])
        priors.append(model.token_distribution(batch).alignment_pass.priors[0])
    tempered, plain = (prior.scores for prior in priors)
    assert torch.equal(tempered, plain.where(plain == NOWHERE, plain / 4))
    assert (plain == NOWHERE).any()


def test_links_of_a_run_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    _, script, _ = snippets("docs/alignments.md")
    corpus = lh.data.Grammar(language="velu", sentences=60, held_out=5).load()
    options = AlignmentOptions(blocks=1, prior="independent", width=4)
    sizes = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 1}
    model = Translation.of(corpus, latents=[options], **sizes)

    guide, processor = Exact(model), corpus.processor
    opened = SimpleNamespace(model=model, guide=guide, corpus=corpus, processor=processor)
    monkeypatch.setattr(lh, "load_run", lambda _: opened)
    names: dict[str, Any] = {}
    with torch.no_grad():
        run(script, names)
    assert names["distributions"].posterior.shape[0] == 1
    assert {"prior", "guide", "posterior"} <= {score.distribution for score in names["scores"]}
    assert names["heads"]


@pytest.mark.usefixtures("as_the_programs_do")
def test_tasks_select_their_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (script,) = snippets("docs/selecting.md")
    script = script.replace("sentences=500", "sentences=40, held_out=5").replace(
        "width=32", "width=8"
    )
    run(script.replace("steps=20", "steps=2, quiet=True"), {})
    assert "'decoder.0.self': [" in capsys.readouterr().out


def test_links_of_own_text_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.links").write_text("0-0 1-2\n\n0-1\n")
    actual = [{(0, 0), (1, 1)}, set(), {(0, 1)}]
    monkeypatch.setattr(lh.contrib.heads, "align", lambda run, sentences, translations: actual)
    *_, script = snippets("docs/alignments.md")
    run(script, {"run": None, "sentences": ["a b", "", "c"], "translations": ["a b c", "", "d"]})
    assert capsys.readouterr().out == "AER 0.333, precision 0.667, recall 0.667\n"


def test_heads_of_ones_choice_are_removed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = lh.data.Grammar(sentences=30, held_out=4).load()
    model = Translation.of(corpus, latents=(), width=8, heads=2, layers=2)
    options: Any = {"steps": 1, "num_samples": 1, "quiet": True, "out": tmp_path / "run"}
    lh.Trainer(model, Tied(model), corpus, **options).fit()
    trained = lh.load_run(tmp_path / "run")
    (script,) = snippets("docs/pruning.md")
    run(script, {"run": trained})
    kept = lh.load_run("runs/by-hand")
    assert kept.heads is not None
    assert kept.heads["decoder.1.cross"] == [0]
    assert kept.heads["decoder.0.cross"] == [0, 1]
    with pytest.raises(ValueError, match="by-hand is a run folder: choose another out"):
        run(script, {"run": trained})


def test_the_page_of_runs_is_shown_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = partial(lh.contrib.page.report, num_samples=2, shown=1)
    monkeypatch.setattr(lh.contrib.page, "report", quick)
    one, other = (make_run(tmp_path / name, small_corpus()) for name in ("one", "other"))
    run(*snippets("docs/report.md"), {"run": one, "other": other})
    assert "<title>latentheads: one, other</title>" in (tmp_path / "report.html").read_text()


def test_translations_of_runs_are_scored_with_an_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = lh.data.Grammar(sentences=30, held_out=40).load()
    right = list(corpus.test.references)
    outputs = right, [*right[:20], *reversed(right[20:])]
    first, second = (SimpleNamespace(corpus=corpus, translate=lambda _, o=o: o) for o in outputs)
    run(snippets("docs/comparing.md")[1], {"first": first, "second": second})
    score, low, high, p = map(float, capsys.readouterr().out.split())
    assert 0 < low < score < high < 100
    assert p < 0.01


def test_runs_are_compared_over_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def open_run(path: str) -> SimpleNamespace:
        recipe, _, seed = path.removeprefix("runs/three/").partition("-seed")
        results = Results(seed=int(seed), test=Scores.of({"elbo": -float(len(recipe))}))
        return SimpleNamespace(settings=SimpleNamespace(recipe=recipe), results=results)

    monkeypatch.setattr(lh, "load_run", open_run)
    run(snippets("docs/comparing.md")[0], {})
    _, plain, coda = (tmp_path / "bounds.csv").read_text().splitlines()
    assert (plain, coda) == ("0,transformer,-11.0,0.0,0.0", "1,coda,-4.0,7.0,7.0")
    assert (tmp_path / "bounds.pdf").stat().st_size > 0


def test_heads_are_switched_off_and_scaled() -> None:
    (snippet,) = snippets("docs/head-mask.md")
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    run(snippet, names)
    network, tokens = names["network"], names["tokens"]
    assert not torch.equal(names["without"], network(input_ids=tokens).logits)
    assert names["text"].shape == (1, 7)
    assert names["factor"].grad.abs() > 0


@pytest.mark.filterwarnings("ignore:no head has P above")  # the networks are not trained
def test_alignment_heads_are_learned_from_an_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snippet, sounds, kept, listed, text, decoder_only = snippets("docs/alignment-heads.md")
    inputs = {"input_features": FRAMES[:1].double()}
    example = ForcedExample(inputs, [1, 3, 5, 7, 1], [(1, 3), (3, 4)], starts=[0.01, 0.05])
    names: dict[str, Any] = {"whisper": whisper().double().eval()}
    names |= {"examples": [example], "example": example}
    run(snippet, names)
    run(listed, names)
    heads = names["whisper"].generation_config.alignment_heads
    assert heads == [list(head) for head in sorted(names["listed"])]
    timed_words = TimedWords({"talk": [WordTime("a", 0.1, 0.0, 0.2, 0.3)]}, names["heads"])
    monkeypatch.chdir(tmp_path)
    program = "latentheads.contrib.speech.time_words"
    with mock.patch(program, autospec=True, return_value=timed_words) as timed:
        given = names | {"processor": "processor", "samples": "samples", "true_starts": [0.15]}
        run(sounds, given)
        timed.assert_called_once_with(names["whisper"], "processor", {"talk": "samples"})
        header, row = Path("words.csv").read_text("utf-8").splitlines()
        assert header == ",sound,word,start,low,high,end,end_low,end_high"
        assert row == "0,talk,a,0.1,0.0,0.2,0.3,,"
        assert 'mark = "0.0 to 0.2"' in Path("talk.TextGrid").read_text("utf-8")
        assert given["errors"].summary()["within"]["100 ms"] == [100.0]
        run(kept, given)
    again = timed.call_args.kwargs["heads"].to_frame()
    assert again.equals(names["heads"].to_frame())
    names = {"lh": lh, "bart": bart().eval(), "gpt2": gpt2().eval()}
    names["source"] = torch.tensor([[5, 6, 7]])
    for shown in (text, decoder_only):
        run(shown, names)
        assert names["heads"].marginals(names["heads"].attentions[0]).shape[-1] == 3


def test_a_pretrained_network_is_latent_trained_and_plain_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second, gates, *others = snippets("docs/pretrained.md")
    for shown, smaller in (
        *(("steps=150", "steps=2"), ("steps=300", "steps=60"), ("(64, 4)", "(16, 4)")),
        ("learning_rate=0.05", "learning_rate=0.1"),
    ):
        assert shown in gates
        gates = gates.replace(shown, smaller)
    names: dict[str, Any] = {}
    for snippet in (first, second, gates, *others):
        run(snippet, names)
    assert names["gated"].selector is None
    left = sum(map(len, names["kept"].values()))
    assert 1 <= left <= 3
    with pytest.raises(ValueError, match="not latent"):
        lh.contrib.hf.plain(names["smaller"])
    assert names["fitted"].step <= 20
    assert names["fitted"].report.how["encoder.1.self.logits"] == "analytic"
    assert names["aligned"].report.gap > 0
    out, err = capsys.readouterr()
    kl = names["bound"].kl["decoder.1.self.logits"]
    assert f"{kl.detach()}" in out
    assert (kl > 0).all()
    assert f"{left} of 6 heads are left" in out
    assert (f"{left} of 6 gated heads stay open" in err) == (left != 3)


def test_the_guides_own_lines_are_about_twenty() -> None:
    guide, *_ = snippets("docs/guides.md")
    code = [line for line in guide.splitlines() if line.strip()]
    assert len([line for line in code if not line.startswith(("import", "from"))]) <= 22


def test_every_recipe_stands_in_the_table() -> None:
    text = Page(ROOT / "docs" / "recipes.md").text
    assert [name for name in RECIPES if f"| `{name}` |" not in text] == []
