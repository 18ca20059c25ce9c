"""What the heads of finished runs do: the library's numbers, one-line errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pandas as pd
import pytest
import torch

from latentheads.batch import EOS, UNK
from latentheads.contrib import plot
from latentheads.contrib.heads import (
    PositionalDetector,
    RareWordDetector,
    SyntacticDetector,
    detect,
    frequency_ranks,
    gradient_importance,
    grammar_arcs,
    measure,
    relevance,
)
from latentheads.contrib.heads.divergence import divergence
from latentheads.corpora import Part, Rows, batches
from latentheads.experiments.analyse import make_parser, remove_earlier
from latentheads.experiments.analysis.tables import _best_relation, summary
from latentheads.experiments.analysis.texts import texts
from latentheads.names import ATTENTION_TYPES
from tests.experiments.programs import SHORT, TINY, assert_refused, succeed
from tests.latentheads.contrib.plot.drawn import head_report as make_head_report
from tests.latentheads.contrib.plot.drawn import symmetric
from tests.latentheads.corpora.folders import LANGUAGES, write_corpus
from tests.latentheads.runs.trained import train

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

NAMES = ("transformer-seed0", "cascaded-seed0")
SENTENCES, TOP = 9, 30


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two finished runs on the grammar."""
    out = tmp_path_factory.mktemp("runs")
    words = ["--recipes=transformer,cascaded", "--seeds=0", *TINY, *SHORT, "--out", str(out)]
    succeed("compare.py", *words)
    return [str(out / name) for name in NAMES]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a folder of text beside it, taken for a finished one."""
    top = tmp_path_factory.mktemp("text")
    data = write_corpus(top / "corpus")
    train(top / "run", "--data", str(data), *LANGUAGES, "--recipe=coda")
    (top / "run" / "results.json").write_text("{}")
    return top / "run"


def text_of(run: str) -> Any:
    return texts(make_parser().parse_args([run, "--sentences", str(SENTENCES)]))[0]


def close(actual: Any, expected: torch.Tensor) -> bool:
    mine = torch.as_tensor(actual, dtype=torch.float64)
    return torch.allclose(mine, expected.double(), rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def analysed(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("analysis") / "new"
    words = ["--sentences", str(SENTENCES), "--top", str(TOP), "--out", str(out)]
    done = succeed("analyse.py", *runs, *words)
    assert (out / "table.md").read_text() in done.stdout
    assert done.stdout.endswith(f"written to {out}\n")
    assert done.stderr == ""  # progress is for a terminal
    return out


def test_everything_is_written(analysed: Path) -> None:
    figures = {"divergence.png", "heads.png", "roles.png"}
    figures |= {f"divergence-{name}.png" for name in NAMES} | {"alignments.png"}
    tables = {"table.md", "table.csv", "heads.csv", "alignments.csv", "analysis.json"}
    assert {path.name for path in analysed.iterdir()} == figures | tables
    assert all((analysed / name).read_bytes().startswith(b"\x89PNG") for name in figures)
    written = json.loads((analysed / "analysis.json").read_text())
    assert written["options"]["sentences"] == SENTENCES
    assert written["options"]["part"] == "valid"
    assert torch.__version__.startswith(written["versions"]["torch"])  # without +cu130
    assert written["same_text"]
    assert [run["summary"]["run"] for run in written["runs"]] == list(NAMES)


@pytest.mark.parametrize("index", range(2))
def test_the_numbers_are_the_librarys(runs: list[str], analysed: Path, index: int) -> None:
    text = text_of(runs[index])
    model, corpus = text.run.model, text.run.corpus
    parts = list(batches(text.part, 4096, shuffle=False))
    assert sorted(parts[0].sentences.tolist()) == list(range(SENTENCES))
    written = json.loads((analysed / "analysis.json").read_text())["runs"][index]
    blocks = {block["block"]: block for block in written["blocks"]}
    apart, measures = divergence(model, parts), measure(model, parts)
    importance, propagated = gradient_importance(model, parts), relevance(model, parts)
    positions = PositionalDetector()
    for chain, side, words in (
        ("encoder-self", corpus.train.sources, corpus.source),
        ("decoder-self", corpus.train.targets, corpus.target),
        ("decoder-cross", corpus.train.sources, corpus.source),
    ):
        rarity = RareWordDetector(frequency_ranks(torch.tensor(side.tokens), len(words)), TOP)
        detect(model, parts, [positions, rarity], chain)
        rare = rarity.result()
        for name in rare.two:
            assert close(blocks[name]["two_rarest"], rare.two[name])
            assert blocks[name]["rare_queries"] == rare.count[name].tolist()
            assert (rare.count[name] > 0).all()
    result = positions.result()
    assert set(blocks) == set(result.share) == set(measures.entropy)
    for name, block in blocks.items():
        assert close(block["divergence"], apart.summed[f"{name}.logits"])
        assert close(block["divergence_per_query"], apart.normalised[f"{name}.logits"])
        assert block["divergence_average"] == pytest.approx(block["divergence"][0][1], rel=1e-5)
        assert close(block["entropy"], measures.entropy[name])
        assert close(block["confidence"], measures.confidence[name])
        assert close(block["cosine"], measures.cosine[name])
        assert close(block["importance"], importance[name])
        assert close(block["relevance"], propagated.shares[name])
        assert close(block["offset_share"], result.share[name])
    summary = written["summary"]
    assert summary["jsd"] == pytest.approx(apart.average(), rel=1e-4)
    assert summary["jsd decoder-cross"] == pytest.approx(apart.average("decoder-cross"), rel=1e-4)
    assert summary["jsd_per_query"] < summary["jsd"]
    entropies = torch.cat(list(measures.entropy.values()))
    assert summary["entropy"] == pytest.approx(float(entropies.mean()), rel=1e-4)
    assert summary["positional"] == len({(role.block, role.head) for role in result.roles})
    for kind in ("syntactic", "rare-word"):
        heads = {(role["block"], role["head"]) for role in written["roles"] if role["role"] == kind}
        assert summary[kind.replace("-", "_")] == len(heads)
    assert written["tokens"]["target"] == sum(map(len, text.part.targets))


def test_dependencies_of_the_grammar_are_known(runs: list[str], analysed: Path) -> None:
    text = text_of(runs[0])
    sources = [row for row in text.part.sources if UNK not in row]
    lines = [text.run.corpus.source.decode(row.tolist()) for row in sources]
    assert 0 < len(sources) == len(text.parses.part)
    relations = SyntacticDetector(grammar_arcs(lines))
    shown = batches(Part(Rows.of([[EOS]] * len(sources)), Rows.of(sources)), 4096, shuffle=False)
    detect(text.run.model, shown, [relations], "encoder-self")
    written = json.loads((analysed / "analysis.json").read_text())["runs"][0]["syntactic"]
    assert (written["origin"], written["sentences"]) == ("the grammar", len(sources))
    for name, item in relations.result().accuracy.items():
        assert close(written["accuracy"][name], item)
    cases = relations.result().cases
    assert [case["baseline"] for case in written["cases"]] == [case.baseline for case in cases]


def test_there_is_a_row_a_run_and_a_row_a_head(analysed: Path) -> None:
    table, heads = pd.read_csv(analysed / "table.csv"), pd.read_csv(analysed / "heads.csv")
    assert list(table.run) == list(NAMES)
    assert list(table.recipe) == ["transformer", "cascaded"]
    assert len(heads) == table["heads"].sum()
    assert not heads.duplicated(["run", "block", "head"]).any()
    for row in table.itertuples():
        own = heads[heads.run == row.run]
        assert own.entropy.mean() == pytest.approx(row.entropy, rel=1e-4, abs=1e-5)
        assert own.divergence.mean() == pytest.approx(row.jsd, rel=1e-4, abs=1e-5)
        assert own.cosine.mean() == pytest.approx(row.cosine, rel=1e-4, abs=1e-5)
        assert (
            own.roles.astype(object).fillna("").astype(str).str.contains("positional").sum()
            == row.positional
        )
    first = (analysed / "table.md").read_text().splitlines()[2]
    assert first.startswith("| `transformer-seed0` | `transformer` | ")
    assert f" {table.jsd[0]:.2f} |" in first


def test_the_table_says_of_how_many_queries_roles_of_rare_words_are(analysed: Path) -> None:
    runs = json.loads((analysed / "analysis.json").read_text())["runs"]
    most = [max(n for block in run["blocks"] for n in block["rare_queries"]) for run in runs]
    note = f"Rare-word roles: of at most {' / '.join(map(str, most))} queries of a head."
    assert note in (analysed / "table.md").read_text()


def test_error_rates_of_links_stand_beside_their_interval(analysed: Path) -> None:
    table = (analysed / "table.md").read_text()
    for row in pd.read_csv(analysed / "alignments.csv").itertuples():
        aer = f"{row.aer:.3f} [{row.aer_low:.3f}, {row.aer_high:.3f}]"
        assert f"| `{row.run}` | {row.links} | {row.head} | {aer} |" in table
    assert "on validation and scored there, so that its AER is too low; before:" in table
    assert "its interval is over sentences, and too narrow for fewer than 30." in table


def test_every_pair_of_heads_counts_alike_whatever_its_block() -> None:
    head_report = make_head_report(chains=ATTENTION_TYPES[:1])
    small, large = symmetric(2), symmetric(5)
    large[1], large[:, 1] = torch.nan, torch.nan
    for block, item in zip(head_report.blocks, (small, large), strict=True):
        head_report.measures.cosine[block.name] = item
        head_report.divergence.summed[block.site()] = item
    text: Any = SimpleNamespace(
        name="a",
        run=SimpleNamespace(
            settings=SimpleNamespace(recipe="tied"), corpus=SimpleNamespace(name="by hand")
        ),
        part=Part(Rows.of([[EOS]]), None),
    )
    row = summary(text, head_report)
    heard = large[[0, 2, 3, 4]][:, [0, 2, 3, 4]]
    mean = (small.sum() + heard.sum()) / (2 + 12)
    assert row["cosine"] == pytest.approx(float(mean))
    assert row["jsd"] == pytest.approx(float(mean))


def conllu(path: Path, *sentences: str) -> Path:
    """Every word depends on the one before it, as its object."""
    lines = []
    for sentence in sentences:
        for index, word in enumerate(sentence.split(), 1):
            relation = "obj" if index > 1 else "root"
            row = [str(index), word, "_", "_", "_", "_", str(index - 1), relation, "_", "_"]
            lines.append("\t".join(row))
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_runs_on_other_text_are_warned_of_and_may_be_parsed(
    runs: list[str], other: Path, tmp_path: Path
) -> None:
    file, out = conllu(tmp_path / "some.conllu", "the gap of", "of the gap"), tmp_path / "out"
    words = [runs[0], str(other), "--sentences=4", "--relevance=0", "--out", str(out)]
    with mock.patch.object(plot, "save") as save:
        succeed("analyse.py", *words, "--conllu", str(file))
    titles = {call.args[1].name: call.args[0].get_suptitle() for call in save.call_args_list}
    warned = {name for name, title in titles.items() if "not all runs were analysed" in title}
    assert warned == {"alignments.png", "divergence.png", "heads.png", "roles.png"}
    named = {name for name, title in titles.items() if "Plug-in heads" in title}
    assert named == {*titles} - {name for name in titles if name.startswith("alignments")}
    table = (out / "table.md").read_text()
    assert "Warning: not all runs were analysed on the same tokens" in table
    assert f"sentences parsed by {file}: 2." in table
    assert "Syntactic roles were not detected" not in table
    written = json.loads((out / "analysis.json").read_text())
    assert not written["same_text"]
    parsed = written["runs"][1]["syntactic"]
    assert parsed["origin"] == str(file)
    down, up = (case for case in parsed["cases"] if case["relation"] == "dobj")
    assert (down["offset"], up["offset"], down["count"], up["count"]) == (1, -1, 4, 4)
    assert set(parsed["accuracy"]) == {"encoder.0.self"}
    printed = succeed("analyse.py", *words).stdout
    assert "Syntactic roles were not detected in run: no parses" in printed
    assert "Rare-word roles were not detected: every word is too frequent" in printed
    written = json.loads((out / "analysis.json").read_text())["runs"][1]
    assert written["syntactic"] is written["summary"]["syntactic"] is None
    assert written["summary"]["rare_word"] is None


MISTAKES = [
    ("unfinished", "unfinished is not a finished run: it has no results.json"),
    ("run ./run", "every run must be given once"),
    ("run --exclude all", "--exclude"),
    ("run --positional 1.5", "positional must be at most 1, got 1.5"),
    (
        "run --num_samples 2",
        "--num_samples has no effect here: it needs a run that samples its heads",
    ),
    ("run --conllu some.conllu", "--conllu is for runs on other text: the parses of the grammar"),
    ("changed", "changed was trained with another vocabulary than its corpus gives now"),
    ("run --out some.conllu", "--out: cannot write some.conllu"),
    ("", "runs"),
]


@pytest.fixture(scope="module")
def folder(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    for name in ("run", "unfinished", "changed"):
        shutil.copytree(runs[0], path / name)
    (path / "unfinished" / "results.json").unlink()
    configuration = path / "changed" / "config.yaml"
    text = configuration.read_text()
    configuration.write_text(text.replace("  sentences: 60\n", "  sentences: 61\n"))
    (path / "empty").mkdir()
    conllu(path / "some.conllu", "the gap")
    return path


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_status_two(
    folder: Path, words: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert_refused("analyse.py", *words.split(), says=message)


def test_figures_of_runs_of_an_earlier_call_are_removed(tmp_path: Path) -> None:
    names = ("divergence-a.png", "alignments-a.png", "alignments.csv", "divergence.png", "mine.png")
    for name in names:
        (tmp_path / name).touch()
    remove_earlier(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names}, "no analysis wrote them"
    (tmp_path / "analysis.json").touch()
    remove_earlier(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"divergence.png", "mine.png", "analysis.json"}


def test_the_relation_of_a_head_is_that_in_which_it_is_furthest_above_the_baseline() -> None:
    syntactic: Any = SimpleNamespace(
        cases=[SimpleNamespace(name="subject"), SimpleNamespace(name="object")],
        accuracy={"encoder.0.self": torch.tensor([[0.9], [0.6]])},
        baseline={"encoder.0.self": torch.tensor([[0.85], [0.2]])},
    )
    assert _best_relation(syntactic, "encoder.0.self", 0)["relation"] == "object"
