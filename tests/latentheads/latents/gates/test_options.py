"""Gates on the command line: trained, taken up again, begun from another run, removed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from latentheads.guides import Tied
from latentheads.latents.gates.hard_concrete import HardConcrete
from latentheads.latents.gates.options import GateOptions, TargetHeads
from latentheads.models import LanguageModel, Translation
from latentheads.options import OptionError
from latentheads.runs.settings import Settings
from latentheads.training.callbacks import Callback
from latentheads.training.checkpoints import weights
from tests.experiments.programs import TINY, report_of, results_of, status_of
from tests.latentheads.runs.trained import load
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, sizes
from tests.typechecking import unchecked

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

FEW = [
    *TINY,
    "--network.layers=1",
    "--data.held_out=3",
    "--num_samples=1",
    "--train.tokens=128",
]
GATED = ["--latents=gates", "--gates.blocks=encoder-self,decoder-cross"]
PRESSED = [*GATED, "--gates.penalty=5", "--train.steps=60"]
PRESSED += ["--train.report_every=60", "--train.warmup_steps=1", "--train.learning_rate=0.01"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain run, and one with gates that begins with its weights."""
    from latentheads.experiments import run

    top = tmp_path_factory.mktemp("gates")
    short = ["--train.steps=3", "--train.report_every=3"]
    assert run.main([*FEW, "--latents=none", *short, "--out", str(top / "plain")]) == 0
    gated = [*FEW, *PRESSED, "--start", str(top / "plain"), "--out", str(top / "gated")]
    assert run.main(gated) == 0
    return top


def settings(*words: str) -> Any:
    from latentheads.experiments.cli.options import read_settings

    return read_settings([*FEW, *words], "run.py", "")[0]


def trainer(*words: str) -> Any:
    from latentheads.experiments.cli.options import read_settings, trainer_of

    settings, options, _ = read_settings([*FEW, *words], "run.py", "")
    return trainer_of(settings, options)


def test_gates_are_made_as_the_options_say() -> None:
    gates = GateOptions("decoder-self,encoder-self", open=0.3, start=1.7, temperature=0.7)
    made = gates.gating(3)
    assert made is not None
    assert made.attention_types == ("encoder-self", "decoder-self")
    assert (made.heads, made.gate_open, made.gate_start) == (3, 0.3, 1.7)
    assert made.gate_temperature == 0.7
    of_decoder = gates.gating(3, ("decoder-self",))
    assert of_decoder is not None
    assert of_decoder.attention_types == ("decoder-self",)
    assert gates.gating(3, ("decoder-cross",)) is None
    default = GateOptions().gating(3)
    assert default is not None
    assert (default.gate_start, default.gate_temperature) == (3.0, 0.33)  # as docs/papers.md says


def test_the_controller_of_gates_is_made_as_the_options_say() -> None:
    gates = GateOptions(penalty=2.0, heads={"number": 3, "rate": 0.02})
    types = (SOURCE_TYPES, TARGET_TYPES)
    model = Translation(*types, sizes(), latents=[gates.gating(sizes().heads)])
    closing = gates.make_callback(model, Tied(model), steps=7, tokens=11)
    assert closing is not None
    assert (closing.gate_heads, closing.gate_rate) == (3, 0.02)
    assert (closing.steps, closing.tokens) == (7, 11)
    assert float(closing.l0_penalty.value) == 22
    assert GateOptions().make_callback(model, Tied(model), 7, 11) is None


def test_the_penalty_adapts_only_towards_a_number_of_heads() -> None:
    assert GateOptions().heads is None
    assert GateOptions(heads=3) == GateOptions(heads=TargetHeads(3, 1e-4))
    for options in ({"rate": 0.1}, {"heads": {"rate": 0.1}}, {"heads": {"number": 3, "rate": 0}}):
        with pytest.raises(OptionError, match=r"heads\.(rate|number)"):
            unchecked(GateOptions)(**options)
    settings_of_heads = settings("--latents=gates", "--gates.heads=3", "--gates.heads.rate=.5")
    assert settings_of_heads.latents == (GateOptions(heads=TargetHeads(3, 0.5)),)
    assert Settings.from_options(settings_of_heads.to_options()) == settings_of_heads


def test_the_figures_count_every_gate_that_lets_something_through() -> None:
    gates = GateOptions("decoder-self", heads=2)
    gating = gates.gating(sizes().heads, ("decoder-self",))
    model = LanguageModel(TARGET_TYPES, sizes(), latents=[gating])
    guide = Tied(model)
    start = torch.tensor([[-4.0, -0.5, 4.0]])
    for family in guide.selections.values():
        family.weight.data = start / family.gain
    assert model.l0_penalty is not None
    model.l0_penalty.value.fill_(22.0)
    opened = (start - 0.33 * math.log(0.1 / 1.1)).sigmoid()
    assert gates.facts(model, guide, tokens=11) == {
        "gated": 6,
        "open": 4,
        "expected": pytest.approx(2 * float(opened.sum())),
        "wanted": 2,
        "lambda": 2.0,
    }


def test_what_the_penalty_has_closed_is_removed_with_equal_figures(runs: Path) -> None:
    from latentheads.experiments import prune

    gated = load(runs / "gated")
    assert set(gated.guide.selections) == {"encoder_0_self", "decoder_0_cross"}
    assert all((family().mode == 0).all() for family in gated.guide.selections.values())
    assert gated.model.l0_penalty.value > 0
    out = runs / "removed"
    words = [str(runs / "gated"), "--by=gates", "--timed=2", "--rounds=1", "--out", str(out)]
    assert prune.main(words) == 0
    whole, small = json.loads((out / "curve.json").read_text())["curve"]
    assert (whole["heads"], small["heads"]) == (6, 2)
    results = results_of(runs / "gated")
    for point in (whole, small):
        assert point["valid"]["plug_in"] == pytest.approx(results["valid"]["plug_in"], abs=1e-5)
        assert point["test"]["bleu"] == pytest.approx(results["test"]["bleu"])
    pruned = results_of(out / "heads-2")
    assert (pruned["latents"], pruned["selection"]) == ({}, {})
    loaded = load(out / "heads-2")
    assert not loaded.model.selecting_blocks
    assert loaded.model.l0_penalty is None


def test_the_bound_counts_the_gates_from_their_prior(runs: Path) -> None:
    results = results_of(runs / "gated")
    sites = [site for site in results["kl_by_site"] if site.endswith("selection")]
    assert len(sites) == 2
    assert results["recipe"] == "transformer+gates"
    tokens = results["test"]["tokens"]
    nats = sum(results["kl_by_site"][site] for site in sites) * tokens
    assert 4 * 0.6 < nats < 4 * 0.7


def test_training_begins_with_the_weights_of_a_run(runs: Path, tmp_path: Path) -> None:
    plain = load(runs / "plain")
    begun = trainer("--start", str(runs / "plain"), "--latents=gates", f"--out={tmp_path / 'a'}")
    start_weights = weights(model=plain.model, guide=plain.guide)
    begun_weights = weights(model=begun.model, guide=begun.guide)
    assert all(torch.equal(begun_weights[name], start_weights[name]) for name in start_weights)
    again = trainer("--start", str(runs / "gated"), *GATED, f"--out={tmp_path / 'b'}")
    gated = load(runs / "gated")
    for family, other in zip(
        again.guide.selections.values(), gated.guide.selections.values(), strict=True
    ):
        assert torch.equal(family.logits, other.logits)


class StopsAfter(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> bool:
        return bool(record["step"] == self.step)


def test_gates_are_taken_up_again_where_they_were(tmp_path: Path) -> None:
    words = ["--latents=gates", "--gates.heads=3", "--train.steps=4", "--train.report_every=2"]
    whole = trainer(*words, f"--out={tmp_path / 'whole'}")
    whole.train(quiet=True)
    whole.folder.release()
    half = trainer(*words, f"--out={tmp_path / 'half'}")
    half.callbacks.append(StopsAfter(2))
    half.train(quiet=True)
    half.folder.release()
    resumed = trainer(*words, f"--out={tmp_path / 'half'}")
    assert resumed.engine.step == 2
    assert float(resumed.model.l0_penalty.value) == float(half.model.l0_penalty.value) > 0
    resumed.engine.stopped = False
    resumed.train(quiet=True)
    one, other = (weights(model=r.model, guide=r.guide) for r in (whole, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--latents=gates --gates.blocks=encoder", "attention type must be one of encoder-self, "),
        ("--latents=gates --loss.kl=sampled", "closed form of a KL: use "),
        ("--latents=gates --gates.heads=6", "gates.heads must lie in 1 ... 5, got 6"),
        ("--latents=gates --gates.rate=1", "did you mean --gates.heads.rate?"),
        ("--latents=gates --gates.heads.rate=1", "--gates.heads.number is missing"),
        ("--start={runs}/plain --network.width=16", "network.width 8 there, 16 here"),
        (
            "--start={runs}/plain --data.language=tamir --latents=none",
            "has another vocabulary than this corpus: data.language mirel there, tamir here",
        ),
        (
            "--start={runs}/gated --latents=none",
            "has another network: gates.blocks encoder-self,decoder-cross there, None here",
        ),
    ],
)
def test_a_mistake_costs_one_line_and_status_two(
    words: str, message: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import run

    given = [*FEW, *words.format(runs=runs).split(), f"--out={tmp_path / 'out'}"]
    assert status_of(run.main, *given) == 2
    error = capsys.readouterr().err
    assert message.format(runs=runs) in error
    assert len(error.strip().splitlines()) == 1


def test_a_run_without_gates_or_without_closed_ones_is_not_pruned_by_them(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentheads.experiments import prune

    def refusal(run: str, *words: str) -> str:
        out = tmp_path / "out"
        assert status_of(prune.main, str(runs / run), "--by=gates", *words, f"--out={out}") == 2
        assert not out.exists()
        return capsys.readouterr().err

    assert "has no gates: train it with --latents gates, or prune by gradient" in refusal("plain")
    assert "has no gates in decoder-self" in refusal("gated", "--blocks=decoder-self")
    monkeypatch.setattr(
        HardConcrete, "mode", property(lambda distribution: torch.ones_like(distribution.logits))
    )
    assert "has no closed gate, so there is nothing to remove" in refusal("gated")


def test_the_table_tells_of_gates_and_names_every_kl(runs: Path) -> None:
    from latentheads.experiments.cli.tables import result_table

    results = report_of(runs / "gated")
    gates = results.latents["gates"]
    assert (gates["gated"], gates["open"], gates["wanted"]) == (4, 0, None)
    assert 0 <= gates["expected"] < 1
    assert gates["lambda"] == pytest.approx(5)
    lines = [re.split(" {2,}", line.strip()) for line in result_table(results).splitlines()]
    options = {line[0]: line[-1] for line in lines}
    assert options["gates open at test time, of 4"] == "0"
    assert options["lambda, nats per token for an open gate"] == "5.0000"
    assert [name for name in options if name.endswith(" gates")] == [
        "encoder-self gates",
        "decoder-cross gates",
    ]
    wanted = result_table(replace(results, latents={"gates": {**gates, "wanted": 3}}))
    assert "wanted by --gates.heads, missed by 3" in wanted
    reached = result_table(replace(results, latents={"gates": {**gates, "wanted": 0}}))
    assert "wanted by --gates.heads  " in reached
