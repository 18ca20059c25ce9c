"""Links of words from the cross-attention of a translation network, without a label.

    python experiments/run.py --recipe transformer --data data/hansards --data.source en \
        --data.target fr --out runs/plain
    python experiments/studies/bench_word_links.py runs/plain data/hansards --out links.json

``lh.alignment_heads`` takes words of a source in place of positions of a sound: its profiles show
which heads attend to the word that is translated, how many words beside it, and at which step of
the decoder; a chain of jumps between source words is summed out. It is learned from the first lines
of the training text. Beside it stand the best head by itself, and the mean of all heads and of the
best four, each at the step that predicts a word and at the step that has it as its input. Chosen on
``trial`` alone: the best heads, the number of views, and the draws that attention counts as.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundaries.chain import jump_chain
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.heads.record import record_heads
from latentheads.contrib.heads.switch import label_head
from latentheads.contrib.heads.word_attention import Head, WordAttention
from latentheads.corpora.batches import batches
from latentheads.corpora.text import read_lines
from latentheads.data.pairs import Pairs
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.parser import Parser, positive
from latentheads.experiments.studies.word_aligners.measures import Gold, measure_links, read_gold
from latentheads.files import write_text
from latentheads.metrics.alignment import Links, count_links
from latentheads.metrics.resampling import Resamples
from latentheads.runs.generation import encode_pairs, raise_on_skip
from latentheads.runs.loading import load_run
from latentheads.runs.run import Run

COUNTS = (3.0, 8.0)
"""Draws that the attention of a word may count as."""

VIEWS = (2, 4, 8)
"""Numbers of views, a head at one of two steps, that may be chosen."""

STEPS = ("predicts", "input")
"""Whether a head is seen at the step that predicts a word, or at the step whose input it is."""

RESAMPLES = 2000
"""Resamples of lines that intervals are made of."""

GROUPS = {"learning": ("lines",), "output": ("out", "revision", "help")}


@dataclass(frozen=True)
class Text:
    """Pairs of lines with what heads attend to, and their manual links if there are any.

    Attributes:
        attentions: The attention of every head in both views at each target word; positions are
            source words.
        gold: The manual links.
    """

    attentions: Sequence[WordAttention]
    gold: Gold | None = None


def record_text(run: Run, sources: Sequence[str], targets: Sequence[str]) -> list[WordAttention]:
    """The attention of every head of cross-attention between the words of each pair of lines."""
    encoded = encode_pairs(run, sources, targets, None, raise_on_skip)
    if len(encoded.indices) != len(sources):
        raise ValueError("every line must have words on both sides, and not too many")
    vocabulary = run.source
    assert vocabulary is not None
    words: dict[int, WordAttention] = {}
    parts = batches(encoded.part, 2048, shuffle=False)
    for batch, recorded in record_heads(run.model, parts):
        blocks = [b for b in recorded.attention_blocks if b.attention_type == "decoder-cross"]
        weights = torch.cat([recorded[block.name].weights for block in blocks], 1)
        assert batch.source is not None
        for row, index in enumerate(batch.sentences.tolist()):
            word_ids = (
                vocabulary.word_ids(batch.source[row].tolist()),
                run.target.word_ids(batch.target[row].tolist()),
            )
            words[index] = join_words(weights[row].double(), *word_ids)
    return [words[index] for index in range(len(sources))]


def join_words(
    weights: Float[Tensor, "head token key"],
    source: Sequence[int | None],
    target: Sequence[int | None],
) -> WordAttention:
    """Attention between words, given that between tokens, whose words are given."""
    keys = torch.zeros(weights.shape[-1], 1 + max(w for w in source if w is not None))
    for token, word in enumerate(source):
        if word is not None:
            keys[token, word] = 1
    tokens: dict[int, list[int]] = {}
    for token, word in enumerate(target):
        if word is not None:
            tokens.setdefault(word, []).append(token)
    rows = [tokens[word] for word in sorted(tokens)]
    by_word = weights @ keys.double()
    # step t predicts token t, and step t + 1 has it as its input
    at_output = torch.stack([by_word[:, row[0]] for row in rows], 1)
    at_input = torch.stack([by_word[:, row[-1] + 1] for row in rows], 1)
    unknown = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    return WordAttention(torch.cat([at_output, at_input]), unknown, unknown)


def read_text(run: Run, folder: Path, part: str, lines: int | None = None) -> Text:
    """The attention of a part of a folder of pairs, with its links if it has any."""
    data = run.settings.data
    if not isinstance(data, Pairs):
        raise ValueError(f"{run.path} has no pairs of texts")
    sides = [
        list(read_lines(folder / f"{part}.{language}"))[:lines]
        for language in (data.source, data.target)
    ]
    links = folder / f"{part}.links"
    return Text(record_text(run, *sides), read_gold(links) if links.exists() else None)


def link_likeliest(scores: Sequence[Float[Tensor, "word position"]]) -> list[Links]:
    """Links every target word with its likeliest source word."""
    return [frozenset((int(key), word) for word, key in enumerate(s.argmax(-1))) for s in scores]


def mean_views(text: Text, views: Sequence[int]) -> list[Tensor]:
    """The mean attention of some views."""
    return [attention.weights[list(views)].mean(0) for attention in text.attentions]


def posteriors(heads: AlignmentHeads, text: Text) -> list[Tensor]:
    """The exact posterior of the source word of every target word."""
    return [heads.marginals(attention) for attention in text.attentions]


def aer(links: Sequence[Links], gold: Gold) -> float:
    """The alignment error rate."""
    return count_links(links, gold.sure, gold.possible).aer


def heads_of(run: Run) -> list[Head]:
    """The heads of cross-attention, in the order of the first half of the views."""
    network = run.settings.network
    return [(layer, head) for layer in range(network.layers) for head in range(network.heads)]


def fit(heads: Sequence[Head], text: Text, counts: float, views: int) -> AlignmentHeads:
    """Alignment heads of unlabelled text."""
    options = FitOptions(views=views, reach=4, width=0.3, counts=counts)
    chain = jump_chain()
    return fit_alignment_heads(heads, text.attentions, options=options, chain=chain)


def score_views(text: Text) -> Float[Tensor, " view"]:
    """The alignment error rate of every view by itself."""
    assert text.gold is not None
    number = len(text.attentions[0].weights)
    rates = [aer(link_likeliest(mean_views(text, [view])), text.gold) for view in range(number)]
    return torch.tensor(rates)


def measure(systems: Mapping[str, Sequence[Tensor]], gold: Gold) -> dict[str, Any]:
    """The scores of every system, each with the interval of its difference to the first."""
    links = {name: link_likeliest(scores) for name, scores in systems.items()}
    first, *_ = links
    resamples = Resamples(len(gold.sure), RESAMPLES, 0)
    counts = {name: _line_counts(predicted, gold) for name, predicted in links.items()}
    rows = {}
    for name in links:
        difference = _rates(counts[name], resamples) - _rates(counts[first], resamples)
        low, high = np.quantile(difference, (0.025, 0.975))
        rows[name] = measure_links(links[name], gold) | {
            "aer_less_first": [
                round(float(value), 5)
                for value in (aer(links[name], gold) - aer(links[first], gold), low, high)
            ]
        }
    return rows


def _line_counts(links: Sequence[Links], gold: Gold) -> np.ndarray:
    """Sure and possible links that are predicted, and all links, of each line."""
    rows = zip(links, gold.sure, gold.possible, strict=True)
    return np.array([(len(a & s) + len(a & p), len(a) + len(s)) for a, s, p in rows])


def _rates(counts: np.ndarray, resamples: Resamples) -> np.ndarray:
    """Alignment error rates of resampled lines."""
    right, total = np.array([counts[lines].sum(0) for lines in resamples]).T
    return 1 - right / total


def choose(heads: Sequence[Head], text: Text, trial: Text) -> tuple[AlignmentHeads, dict[str, Any]]:
    """Alignment heads of unlabelled text, with the settings that are best on trial."""
    assert trial.gold is not None
    rows, fits = [], []
    for counts, views in itertools.product(COUNTS, VIEWS):
        fits.append(fit(heads, text, counts, views))
        rate = aer(link_likeliest(posteriors(fits[-1], trial)), trial.gold)
        rows.append({"counts": counts, "views": views, "aer": round(rate, 5)})
    best = min(range(len(rows)), key=lambda index: rows[index]["aer"])
    return fits[best], {"chosen": rows[best], "tried": rows}


def measure_run(run: Run, folder: Path, lines: int) -> dict[str, Any]:
    """All systems on test, with what was chosen on trial."""
    heads = heads_of(run)
    trial, test, text = (
        read_text(run, folder, *part) for part in (("trial",), ("test",), ("train", lines))
    )
    assert test.gold is not None
    rates = score_views(trial)
    order = rates.argsort().tolist()
    path, chosen = choose(heads, text, trial)
    systems = {
        "alignment heads, path summed out": posteriors(path, test),
        "best head": mean_views(test, order[:1]),
        "mean of the best four views": mean_views(test, order[:4]),
        "mean of all heads": mean_views(test, range(len(heads))),
    }
    names = [f"{label_head(*head)} {step}" for step in STEPS for head in heads]
    return {
        "test": measure(systems, test.gold),
        "lines": {"test": len(test.attentions), "learning": lines},
        "best_views": [names[view] for view in order[:4]],
        "settings": chosen,
        "heads": [repr(row) for row in path.table()],
        "jumps": [round(float(value), 4) for value in path.model.chain.jumps[0].exp()],
    }


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("bench_word_links.py", __doc__, GROUPS, "[options] RUN FOLDER")
    parser.add_argument("run", help="run folder of a translation network")
    parser.add_argument("folder", type=Path, help="folder with train.en, trial.links, ...")
    parser.add_argument("--lines", type=positive, default=100, help="lines that heads learn from")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--revision", default="", help="revision of the code, for the record")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("bench_word_links.py"):
        results = measure_run(load_run(options.run), options.folder, options.lines)
        command = f"bench_word_links.py RUN {options.folder.name} --lines {options.lines}"
        record = {"command": command, "revision": options.revision, "results": results}
        write_text(options.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
