"""Re-computation is the same network as the cache, and the benchmark's command keeps its word."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from latentheads.batch import BOS, EOS, Batch
from latentheads.handlers import PlugIn
from latentheads.models import PRIORS
from tests.experiments.programs import succeed
from tests.tiny import TARGET_TYPES, build

LIMIT = 5
SMALL = "--width 8 --feed_forward 8 --layers 1 --heads 2 --batch 3 --length 5 --vocabulary 9"
QUICK = ["--quick", "--rounds", "1", "--limit", "3", *SMALL.split()]


@pytest.fixture
def bench_decoding() -> ModuleType:
    return import_module("latentheads.experiments.studies.bench_decoding")


@pytest.mark.parametrize("prior", sorted(PRIORS))
@torch.no_grad()
def test_recomputation_scores_as_the_cache_does(
    prior: str, batch: Batch, bench_decoding: ModuleType
) -> None:
    model = build(prior=prior).eval()
    again = bench_decoding.Recomputing(model)
    with PlugIn():
        kept, read = model.begin(batch), again.begin(batch)
        tokens = torch.full((len(batch), 1, 1), BOS)
        for sentences, beam in ((None, 2), (None, 4), ([2, 0], 4), (None, 3), ([1], 1)):
            logits = model.step(tokens, kept)
            torch.testing.assert_close(again.step(tokens, read), logits, rtol=0, atol=1e-5)
            rows = None if sentences is None else torch.tensor(sentences)
            number = len(tokens) if sentences is None else len(sentences)
            parents = torch.randint(tokens.shape[1], (number, beam))
            kept.select(rows, parents)
            read.select(rows, parents)
            tokens = torch.randint(4, TARGET_TYPES, (number, beam, 1))


@pytest.mark.parametrize("beam", [1, 3])
def test_both_rows_find_the_same_sentences_as_long_as_the_limit(
    beam: int, batch: Batch, bench_decoding: ModuleType
) -> None:
    model = build(prior="cascaded").eval()
    setting = bench_decoding.Setting()
    kept, again = bench_decoding.make_searchers(model, batch, beam, LIMIT, setting)
    for searcher in (kept, again, kept):
        assert searcher.timed(0) > 0
    assert bench_decoding.ties([kept, again], model) == 0
    assert len(kept.found) == len(batch)
    for hypotheses in kept.found:
        assert len(hypotheses) == beam
        assert {hypothesis.tokens.index(EOS) for hypothesis in hypotheses} == {LIMIT - 1}


def spoil(bench_decoding: ModuleType, monkeypatch: pytest.MonkeyPatch, dtypes: set[object]) -> None:
    """Lets re-computation be wrong in some precisions."""
    step = bench_decoding.Recomputing.step

    def wrong(self: object, tokens: Tensor, state: object) -> Tensor:
        logits = step(self, tokens, state)
        return logits.flip(-1) if logits.dtype in dtypes else logits

    monkeypatch.setattr(bench_decoding.Recomputing, "step", wrong)


def test_what_only_float64_finds_the_same_is_a_tie(
    batch: Batch, bench_decoding: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(bench_decoding, monkeypatch, {torch.float32})
    model = build().float().eval()
    searchers = bench_decoding.make_searchers(model, batch, 2, LIMIT, bench_decoding.Setting())
    for searcher in searchers:
        searcher.timed(0)
    assert bench_decoding.ties(searchers, model) == len(batch)
    assert model.dtype == torch.float32


def test_every_row_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "decoding.json"
    words = [*QUICK, "--beam", "1", "--beam", "2", "--json", str(file)]
    done = succeed("bench_decoding.py", *words, "--threads", "1")
    assert not done.stderr
    written = json.loads(file.read_text())
    assert {"torch", "pyro", "threads", "device", "plan", "setting"} <= set(written["metadata"])
    assert written["metadata"]["plan"]["limit"] == 3
    rows = {(row["recipe"], row["beam"], row["row"]): row for row in written["rows"]}
    assert len(rows) == len(written["rows"]) == 3 * 2 * 2
    for recipe in ("transformer", "coda", "cascaded"):
        for beam in (1, 2):
            kept, again = (rows[recipe, beam, row] for row in ("cache", "re-computation"))
            assert kept["ratio"] == kept["ratio_low"] == kept["ratio_high"] == 1.0
            assert 0 < again["ratio_low"] <= again["ratio"] <= again["ratio_high"]
            assert kept["sentences_per_second"] == pytest.approx(3e3 / kept["ms"])
            assert kept["ties"] == again["ties"] <= 3
    assert len(done.stdout.splitlines()) == 2 + 1 + len(rows)
