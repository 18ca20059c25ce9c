"""Options that act only beside others: refused alone, taken together, none forgotten."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from latentheads.runs.settings import Settings
from tests.experiments.programs import assert_one_line, inside

TIED = {"guide": "tied"}
LOGITS = {"prior": "independent", "alignments": 0}
NOISY = {**LOGITS, "guide": "tied"}
PLAIN = {"guide": "tied", "prior": "delta", "alignments": 0}
GROUP = {"select": "group"}
SCORE = {**GROUP, "select_gradient": "score"}
PAIRS = {"data": "corpus"}
MADE = {"data": "grammar"}
TASKS = {"tasks": "velu,tamir"}
LANGUAGE_MODEL = {"task": "language-model"}
TEXT = {"data": "corpus", "task": "language-model"}
GATES = {"gates": "all"}
NGRAM = {"mixers": "ngram"}
SPEECH = {"data": "corpus", "task": "recognition"}
SPOKEN = {"data": "corpus", "task": "speech-translation"}
ALIGNED = {"alignments": 1}
ALONE = {**ALIGNED, "prior": "delta"}

EXAMPLES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # the options, what they do not act beside, what they act beside
    ({"language": "tamir"}, LANGUAGE_MODEL, MADE),
    ({"language": "tamir"}, TASKS, MADE),
    ({"language": "tamir"}, PAIRS, MADE),
    ({"sentences": 9}, {**TASKS, "task_sizes": (3, 4)}, TASKS),
    ({"sentences": 9}, PAIRS, LANGUAGE_MODEL),
    ({"held_out": 9}, PAIRS, MADE),
    ({"source": "fr"}, MADE, PAIRS),
    ({"source": "fr"}, TEXT, PAIRS),
    ({"source": "fr"}, {**PAIRS, "tasks": "en-de,x:fr-en"}, {**PAIRS, "tasks": "en-de,x:de"}),
    ({"target": "fr", "max_source": 5}, {**PAIRS, "tasks": "fr"}, PAIRS),
    ({"target": "fr", "max_source": 5}, MADE, PAIRS),
    ({"references": "refs"}, {"data": "multi30k"}, PAIRS),
    ({"references": "refs"}, {**PAIRS, "tasks": "fr"}, PAIRS),
    ({"joint": False, "tokenised": True, "max_length": 9, "max_ratio": 2.0}, TEXT, PAIRS),
    ({"joint": False, "tokenised": True, "max_length": 9, "max_ratio": 2.0}, MADE, PAIRS),
    ({"lowercase": True}, MADE, TEXT),
    ({"max_line": 9}, MADE, PAIRS),
    ({"max_line": 9}, {**TEXT, "block": 5}, TEXT),
    ({"train_name": "a", "valid_name": "b", "test_name": "c"}, {"data": "wmt14"}, TEXT),
    ({"train_name": "a", "valid_name": "b", "test_name": "c"}, MADE, PAIRS),
    ({"types": 300}, TEXT, {**TEXT, "unit": "subword"}),
    ({"types": 300}, MADE, PAIRS),
    ({"unit": "subword", "block": 5}, PAIRS, TEXT),
    ({"unit": "subword", "block": 5}, {**MADE, **LANGUAGE_MODEL}, {"data": "pydoc"}),
    ({"minimum": 2}, {**TEXT, "unit": "subword"}, TEXT),
    ({"context": 3}, TEXT, {**TEXT, "block": 5}),
    ({"first": 5}, MADE, PAIRS),
    ({"first": 5}, {**PAIRS, "tasks": "fr", "task_sizes": (3,)}, {**PAIRS, "tasks": "fr"}),
    ({"cache": "cache"}, MADE, {"data": "pydoc"}),
    ({"hub_path": "here"}, MADE, {"data": "mine"}),
    ({"hub_config": "some"}, PAIRS, {"data": "mine", "hub_path": "here"}),
    (
        {"task_sizes": (3, 4), "task_temperature": 5.0, "one_task": True, "tell_apart": "domain"},
        {},
        {"tasks": "news:velu,talk:tamir"},
    ),
    ({"types": 300}, LANGUAGE_MODEL, SPEECH),
    ({"bins": 40, "top_frequency": 3800, "max_seconds": 9.0}, PAIRS, SPEECH),
    ({"channels": 64, "spec_augment": "LD", "ctc": 0.3}, PAIRS, SPOKEN),
    ({"decoder_layers": 3}, LANGUAGE_MODEL, MADE),
    ({"paper_wer": True}, SPOKEN, SPEECH),
    ({"paper_bleu": True}, SPEECH, SPOKEN),
    ({"rouge": True, "accuracy": True}, SPOKEN, PAIRS),
    ({"joint": False, "max_source": 5}, SPEECH, PAIRS),
    ({"final_norm": False}, {}, {"norm": "pre"}),
    ({"cutoffs": (5, 9)}, {}, LANGUAGE_MODEL),
    (
        {"adaptive_factor": 2, "adaptive_dropout": 0.1},
        LANGUAGE_MODEL,
        {**LANGUAGE_MODEL, "cutoffs": (5, 9)},
    ),
    ({"attention_dropout": 0.1}, {**LANGUAGE_MODEL, **NGRAM}, NGRAM),
    ({"windows": "3"}, {}, {"mixers": "local"}),
    ({"windows": "3"}, {**LANGUAGE_MODEL, "mixers": "decoder=attention encoder=local"}, NGRAM),
    (
        {"ngram_heads": 2, "ngram_width": "3", "ngram_slices": True, "ngram_noise": 0.3},
        {"mixers": "local"},
        NGRAM,
    ),
    ({"ngram_context": True}, {"mixers": "decoder=ngram"}, NGRAM),
    ({"ngram_context": True}, {**LANGUAGE_MODEL, **NGRAM}, NGRAM),
    (
        {"alignment_heads": 2, "alignment_prior": "independent", "alignment_width": 5},
        LOGITS,
        ALIGNED,
    ),
    ({"alignment_reach": 2}, ALIGNED, {}),
    ({"alignment_reach": 2}, {"alignments": 1}, {**ALIGNED, "alignment_prior": "chain"}),
    ({"alignment_components": 5}, ALIGNED, {**ALIGNED, "alignment_prior": "mixture"}),
    ({"objective": "marginal"}, {**TIED, "prior": "delta", "alignment_prior": "soft"}, {}),
    ({"objective": "marginal"}, LOGITS, ALIGNED),
    ({"alignment_window": 3}, ALIGNED, {**ALIGNED, **LANGUAGE_MODEL}),
    ({"objective_draws": 7}, {**ALIGNED, "objective": "sampled"}, {**ALIGNED, "objective": "rws"}),
    ({"objective_draws": 7}, {**LOGITS, "objective": "iwae"}, {**ALIGNED, "objective": "iwae"}),
    ({"kl": "sampled"}, ALONE, {**ALIGNED, "prior": "independent"}),
    (
        {"kl_warmup_steps": 5, "max_kl_weight": 0.5, "free_bits": 0.1},
        {**ALONE, "objective": "marginal"},
        ALONE,
    ),
    (
        {"kl_warmup_steps": 5, "max_kl_weight": 0.5, "free_bits": 0.1},
        {**ALONE, "objective": "iwae"},
        {**ALONE, "objective": "sampled"},
    ),
    ({"start_with": "encoder"}, SPEECH, {**SPEECH, "start": "runs/other"}),
    ({"start_with": "encoder"}, {"start": "runs/other"}, {**SPOKEN, "start": "runs/other"}),
    ({"start_with": "model"}, {}, {"start": "runs/other"}),
    ({"momentum": 0.5}, {}, {"optimiser": "nag"}),
    ({"period": 5, "least_rate": 1e-4}, {}, {"decay": "cosine"}),
    ({"period_growth": 2.0, "shrink": 0.5}, {"decay": "cosine"}, {"decay": "cosine", "period": 5}),
    ({"kl": "sampled"}, NOISY, LOGITS),
    ({"kl_warmup_steps": 5, "max_kl_weight": 0.5}, TIED, {"guide": "cascaded"}),
    (
        {"kl": "sampled", "kl_warmup_steps": 5, "max_kl_weight": 0.5},
        {**LOGITS, "latent": "none"},
        LOGITS,
    ),
    ({"kl_warmup_steps": 5, "max_kl_weight": 0.5}, {**ALONE, **GATES}, ALONE),
    (
        {"kl_warmup_steps": 5, "max_kl_weight": 0.5},
        {**PLAIN, "select": "static"},
        {**PLAIN, **GROUP},
    ),
    ({"min_kl_weight": 0.5}, {}, {"kl_warmup_steps": 5}),
    ({"free_bits": 0.1}, {**TIED, **GROUP}, {}),
    ({"free_bits": 0.1}, SCORE, GROUP),
    ({"noise_warmup_steps": 5}, {}, LOGITS),
    (
        {"noise_warmup_steps": 5},
        {**LOGITS, "latent": "none"},
        {**PLAIN, **NGRAM, "ngram_noise": 0.3},
    ),
    ({"latent": "none"}, {}, LOGITS),
    ({"latent": "decoder-self"}, PLAIN, {**PLAIN, **NGRAM, "ngram_noise": 0.3}),
    ({"select_gradient": "score"}, {"select": "static"}, GROUP),
    ({"temperature": 2.0, "least_temperature": 0.5}, SCORE, GROUP),
    ({"temperature": 2.0, "least_temperature": 0.5}, {"select": "static"}, GROUP),
    ({"patience": 3}, GATES, {}),
    (
        {
            "disagreement_weight": 0.1,
            "disagreement_chains": "decoder-self",
            "disagreement_diagonal": False,
        },
        {},
        {"disagreement": "output"},
    ),
    ({"candidates": 8}, {"select": "static"}, GROUP),
    ({"select_chains": "all"}, {}, {"select": "static"}),
    ({"families": "velu,tamir"}, {"select": "static"}, {"select": "static", **TASKS}),
    ({"families": "velu,tamir"}, {**TASKS, **GROUP}, {"select": "static", **TASKS}),
    (
        {
            "gate_open": 0.3,
            "gate_start": 1.0,
            "gate_temperature": 0.5,
            "gate_penalty": 0.1,
            "gate_heads": 3,
        },
        {},
        GATES,
    ),
    ({"gate_rate": 0.1}, GATES, {**GATES, "gate_heads": 3}),
    (
        {
            "beam": 3,
            "min_tokens": 2,
            "max_tokens": 9,
            "no_repeat": 2,
            "paper_bleu": True,
            "rouge": True,
            "accuracy": True,
        },
        LANGUAGE_MODEL,
        {},
    ),
    ({"length_penalty": 0.5}, {}, {"beam": 2}),
    ({"draws": 3}, {}, LOGITS),
    ({"draws": 3}, {**LOGITS, **LANGUAGE_MODEL}, {**PLAIN, **GATES}),
]


@pytest.fixture(scope="module")
def plain() -> Any:
    """The defaults of a run."""
    return import_module("latentheads.experiments.cli.options").make_parser("run.py", "", None)[1]


def idle(plain: Any, **options: Any) -> dict[str, Any]:
    from jsonargparse import Namespace

    from latentheads.experiments.cli.needs import find_idle
    from latentheads.runs.recipes import class_path

    kept = plain.clone()
    for name, value in options.items():
        named = name in ("guide", "prior")
        kept[name] = Namespace(class_path=class_path(name, value)) if named else value
    return find_idle(kept, plain)


EACH = [
    pytest.param(name, value, without, beside, id=f"{name}-{place}")
    for place, (options, without, beside) in enumerate(EXAMPLES)
    for name, value in options.items()
]


@pytest.mark.parametrize(("name", "value", "without", "beside"), EACH)
def test_an_option_is_refused_without_what_it_needs_and_taken_with_it(
    plain: Any, name: str, value: Any, without: dict[str, Any], beside: dict[str, Any]
) -> None:
    from latentheads.experiments.cli.options import refuse_idle

    assert name not in idle(plain, **beside, **{name: value})
    assert name not in idle(plain, **without), "what is at its default is never refused"
    need = idle(plain, **without, **{name: value})[name]
    with pytest.raises(ValueError) as refused:
        refuse_idle({name: need}, [f"--{name}={value}"], "run.py")
    assert str(refused.value) == f"--{name} acts on nothing here: it needs {need.what}"


ALWAYS = (
    *("config", "preset", "recipe", "guide", "prior"),
    *("data", "task", "tasks"),
    *("width", "feed_forward", "heads", "layers", "norm", "share", "mixers"),
    *("dropout", "activation_dropout", "label_smoothing"),
    *("steps", "tokens", "accumulate", "optimiser", "learning_rate", "warmup_steps", "decay"),
    *("weight_decay", "clip", "precision", "report_every", "checkpoint_every", "metric"),
    *("keep", "average", "disagreement"),
    *("select", "gates", "alignments", "adapters", "start", "train"),
    *("seed", "samples", "out", "overwrite", "tensorboard", "device", "verbose", "trust", "report"),
    *("recipes", "seeds", "head_numbers", "jobs", "devices", "shard"),
    *("launcher", "launcher_options"),
)
"""Options that act on every run, or refuse themselves what they cannot be together with."""


def test_every_option_stands_in_the_table_or_acts_always() -> None:
    from latentheads.experiments.cli.needs import NEEDS
    from latentheads.experiments.sweep import extend

    make_parser = import_module("latentheads.experiments.cli.options").make_parser
    parser, _ = make_parser("sweep.py", "", extend)
    known = {action.dest for action in parser._actions} - {"help", "print_config", "print_shtab"}
    options = {name for name in known if not name.endswith(".help")}
    needy = [name for need in NEEDS for name in need.options]
    assert len({*needy, *ALWAYS}) == len([*needy, *ALWAYS]), "an option stands there twice"
    assert options == {*needy, *ALWAYS}
    assert {name for options, *_ in EXAMPLES for name in options} == set(needy)


def test_all_that_acts_on_nothing_is_said_in_one_line(tmp_path: Path) -> None:
    words = ["--decay=linear", "--period", "5", "--shrink=.5", "--least_rate=1e-4", "--windows=3"]
    done = inside("run.py", *words, "--out", str(tmp_path / "run"))
    assert_one_line(done, "run.py")
    assert done.stderr == (
        "run.py: error: --windows acts on nothing here: it needs --mixers with local or ngram "
        "layers; --period, --least_rate act on nothing here: they need --decay cosine; --shrink "
        "acts on nothing here: it needs --decay cosine with --period\n"
    )
    assert not list(tmp_path.iterdir())


def test_what_acts_on_nothing_in_a_file_is_told_and_left_at_its_default(
    settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("data: grammar\nblock: 5\nmomentum: 0.5\nperiod: 7\nfamilies: de,nl\n")
    read = settings("--config", str(file))
    assert (read.data.block, read.training.momentum, read.training.period) == (0, 0.99, 0)
    assert read.selecting.families == ""
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4
    assert said[1] == "run.py: note: --momentum acts on nothing here: it needs --optimiser nag"
    assert "momentum: 0.5" in read.to_yaml(), "the same file is the same run, as before it was told"
    import_module("latentheads.experiments.cli.options").read_settings(
        ["--config", str(file)], "", ""
    )
    assert capsys.readouterr().err == "", "who only loads a run is told nothing"
    taken = settings("--config", str(file), "--decay=cosine", "--optimiser=nag", "--select=static")
    assert (taken.training.momentum, taken.training.period) == (0.5, 7)
    with pytest.raises(SystemExit):
        settings("--config", str(file), "--momentum=0.3")
    assert "--momentum acts on nothing here" in capsys.readouterr().err.splitlines()[-1]


def test_a_run_whose_options_act_on_nothing_is_the_same_run_when_it_is_read_again(
    settings: Any, tmp_path: Path
) -> None:
    from latentheads.runs.folder import Folder

    known, out = tmp_path / "config.yaml", tmp_path / "run"
    known.write_text("recipe: transformer\nkl_warmup_steps: 9\nmomentum: 0.5\ntypes: 300\n")
    before = settings("--config", str(known), "--out", str(out))
    assert "kl_warmup_steps: 9" in before.to_yaml()
    Folder(out, before.to_yaml()).begin()
    again = settings("--config", str(out / "config.yaml"), "--out", str(out))
    assert again.to_yaml() == before.to_yaml()
    assert not Folder(out, again.to_yaml()).fresh
    assert again.training.kl_warmup_steps == before.training.kl_warmup_steps == 0


def test_options_of_one_direction_in_a_file_act_on_nothing_beside_tasks(
    settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "some.yaml", tmp_path / "run.yaml"
    file.write_text("data: own\nsource: de\ntasks: fr\nreferences: refs\nmax_source: 5\n")
    read = settings("--config", str(file))
    said = capsys.readouterr().err
    assert "--references acts on nothing here" in said
    assert "--max_source acts on nothing here" in said
    run.write_text(read.to_yaml())
    for again in (settings("--config", str(run)), Settings.read(run)):
        assert again.to_yaml() == read.to_yaml()
        assert (again.data.references, again.data.max_source) == ("", 0)
    alone = settings("--config", str(run), "--tasks=")
    assert (alone.data.references, alone.data.max_source) == ("refs", 5)


@pytest.mark.parametrize("program", ["compare.py", "sweep.py"])
def test_a_comparison_takes_what_acts_on_one_of_its_recipes(program: str, tmp_path: Path) -> None:
    from latentheads.experiments.cli.comparison import _plan, check_comparison

    words = ["--kl_warmup_steps=5", "--candidates=8", "--noise_warmup_steps", "4"]
    recipes = ["transformer", "coda", "cascaded+group"]
    check_comparison(words, recipes, "0", program)
    plain, noisy, full = (_plan(words, recipe, 0, tmp_path, program)[0] for recipe in recipes)
    found = [(p.training.kl_warmup_steps, p.training.noise_warmup_steps) for p in (plain, noisy)]
    assert found == [(0, 0), (0, 4)]
    assert (full.training.kl_warmup_steps, full.selecting.candidates) == (5, 8)
    assert "kl_warmup_steps: 0" in plain.to_yaml()
    done = inside(program, *words, "--recipes=transformer,coda", "--seeds=0")
    assert_one_line(done, program)
    assert "--candidates acts on nothing here: it needs --select selection," in done.stderr
    assert "--kl_warmup_steps acts on nothing here" in done.stderr
    assert "noise_warmup_steps" not in done.stderr


@pytest.mark.parametrize(
    ("words", "sizes", "trained"),
    [
        ("", (8000, 8000, 4000, 4000, 1500, 1500), 20_000),
        ("--sentences 1500", (), 1500),
        ("--sentences=20000", (), 20_000),
        ("--tasks velu,tamir,korin-en", (), 20_000),
        ("--tasks velu,tamir --task_sizes [7,9]", (7, 9), 20_000),
    ],
)
def test_sizes_on_the_command_line_take_the_place_of_those_of_a_preset(
    settings: Any, words: str, sizes: tuple[int, ...], trained: int
) -> None:
    data = settings("--preset", "grammar-languages", *words.split()).data
    assert (tuple(data.task_sizes), data.sentences) == (sizes, trained)


def test_what_a_guide_reads_is_of_alignments_and_of_logits(
    settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--guide=cascaded", "--guide.reads=prefix")
    aligned = settings(*words, "--alignments=1")
    assert aligned.guide.options["reads"] == "prefix"
    text = ("--task=language-model", "--cutoffs=50", "--adaptive_factor=2")
    for more in ((), text):
        noisy = settings(*words, "--prior=independent", "--alignments=0", *more)
        assert noisy.guide.options["reads"] == "prefix"
    local = ("--prior=independent", "--alignments=0", "--mixers=local")
    assert settings(*words, *local).guide.options["reads"] == "prefix"  # by the cross-attention
    with pytest.raises(SystemExit):
        settings(*words, *local, "--task=language-model")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        settings(*words, "--prior=independent", "--latent=encoder-self", "--alignments=0")
    assert capsys.readouterr().err == (
        "run.py: error: --guide.reads acts on nothing here: it needs --alignments, with "
        "a prior other than soft, or a prior with noise in a decoder's attention to all positions\n"
    )
    file = tmp_path / "some.yaml"
    file.write_text("guide:\n  class_path: cascaded\n  init_args:\n    reads: prefix\n")
    idle = ("--prior=independent", "--latent=encoder-self", "--alignments=0")
    read = settings("--config", str(file), *idle)
    assert read.guide.options["reads"] == "prefix"
    assert "note: --guide.reads acts on nothing here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "recipe", "blocks"),
    [
        ("", "cascaded+alignments", 2),
        ("--guide tied", "tied+alignments", 2),
        ("--alignment_heads 2", "cascaded+alignments", 1),
        ("--alignment_prior chain", "cascaded+alignments", 1),
        ("--task language-model", "cascaded+alignments", 1),
        ("--recipe exact+alignments", "exact+alignments", 2),
        ("--recipe cascaded+alignments+group", "cascaded+alignments+group", 2),
        ("--guide cascaded+group", "cascaded+alignments+group", 2),
        ("--recipe cascaded", "cascaded", 0),
        ("--prior independent", "cascaded", 0),
        ("--prior.scale 0.3", "cascaded", 0),
        ("--guide group", "transformer+group", 0),
        ("--recipe coda --alignments 1", "cascaded+tied+alignments", 1),
        ("--guide tied --alignment_prior soft", "transformer+soft", 2),
        ("--preset wikitext2-small", "cascaded+alignments", 1),
        ("--preset wikitext103", "cascaded", 0),
    ],
)
def test_what_is_said_decides_what_is_drawn(
    settings: Any, words: str, recipe: str, blocks: int
) -> None:
    found = settings(*words.split())
    assert (found.recipe, found.alignment.alignments) == (recipe, blocks)


def test_a_recipe_on_the_command_line_has_the_last_word_over_a_file(
    settings: Any, tmp_path: Path
) -> None:
    aligned, plain = tmp_path / "aligned.yaml", tmp_path / "plain.yaml"
    aligned.write_text(settings().to_yaml())
    plain.write_text(settings("--recipe", "coda").to_yaml())
    assert settings("--config", str(aligned), "--recipe", "transformer").recipe == "transformer"
    words = ["--config", str(plain), "--recipe", "tied+alignments"]
    assert settings(*words).recipe == "tied+alignments"
    assert settings(*words, "--alignments", "1").alignment.alignments == 1


def test_options_of_a_guide_that_act_on_nothing_are_refused(tmp_path: Path) -> None:
    done = inside("run.py", "--guide=autoregressive", "--guide.form=masked", "--out", str(tmp_path))
    assert_one_line(done, "run.py")
    assert "--guide.form acts on nothing here: it needs a prior with noise" in done.stderr
    prior = inside("run.py", "--recipe=coda", "--guide.reads=prefix", "--out", str(tmp_path))
    assert prior.returncode == 2


def test_guide_exact_is_refused_where_nothing_points(tmp_path: Path) -> None:
    words = ["--prior=independent", "--guide=exact", "--out", str(tmp_path / "run")]
    done = inside("run.py", *words)
    assert_one_line(done, "run.py")
    assert "guide exact needs latent alignments" in done.stderr
