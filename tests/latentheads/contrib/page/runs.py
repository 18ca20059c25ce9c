"""Tiny runs that learned nothing, with a folder that says what they reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from latentheads.corpora import Corpus, Part, Processor, Rows, Words
from latentheads.decoding.options import Decoding
from latentheads.guides import Cascaded
from latentheads.latents.bernoulli_heads.options import BernoulliHeadsOptions
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.logits.latent import Logits
from latentheads.models import LanguageModel, Network, Translation, make_prior
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from tests.figures import FIGURES, rows_of
from tests.latentheads.latents.alignments.models import SHAPES
from tests.tiny import jiggle, sizes

BREAKS_OUT = "</script><b>"
"""A token that would end the page, were it not told as data."""

WORDS = [*"abcdefg", BREAKS_OUT, "$x$"]

LATENTS = {
    "copy": CopyOptions(),
    "bernoulli": BernoulliHeadsOptions("decoder.0.cross"),
    "gates": GateOptions(),
    "two bernoulli blocks": BernoulliHeadsOptions("decoder.0.self,decoder.1.cross", "cascaded"),
}


def some_part(targets: list[list[int]], sources: list[list[int]] | None, **more: Any) -> Part:
    """Sentences of token ids."""
    return Part(Rows.of(targets), None if sources is None else Rows.of(sources), **more)


def small_corpus(long: bool = False, text: bool = False) -> Corpus:
    """Three sentences to test on; if asked, one of 60 target and 200 source tokens among them.

    Training and validation have others: nobody can take one part for another unnoticed.
    """
    vocabulary = Words(WORDS)
    targets = [[4, 5, 6, 2], [7, 11, 2], [12, 2]]
    sources = [[5, 4, 2], [11, 8, 9, 10, 2], [6, 2]]
    if long:
        targets[2], sources[2] = [4, 5] * 30 + [2], [6, 7] * 100 + [2]
    links = [frozenset({(1, 0), (0, 2)}), frozenset(), frozenset({(0, 0)})]
    test = some_part(targets, None if text else sources, links=() if text else links)
    train = some_part([[9, 4, 2]], None if text else [[10, 2]])
    valid = some_part([[6, 10, 2], [4, 9, 9, 2]], None if text else [[12, 7, 2], [6, 2]])
    source = None if text else vocabulary
    return Corpus("by hand", train, valid, test, Processor(vocabulary, source))


def make_run(
    folder: Path,
    corpus: Corpus,
    prior: str = "independent",
    aligned: str = "",
    network: Network | None = None,
    **results: Any,
) -> Run:
    """A run whose weights are noise, and whose folder says what it reported.

    Args:
        folder: Made here.
        corpus: What it reads.
        prior: Of its heads.
        aligned: The form of its alignments, of ``SHAPES``; or a name of ``LATENTS``.
        network: Its sizes, and what mixes positions.
        **results: More of ``results.json``.
    """
    network, types = network or sizes(), len(corpus.target)
    latents: list[Any] = [Logits(make_prior(prior))]
    if aligned:
        latents.append(LATENTS.get(aligned) or SHAPES[aligned])
    torch.manual_seed(5)
    if corpus.source is None:
        model: Any = LanguageModel(types, network, latents)
    else:
        model = Translation(types, types, network, latents)
    model = jiggle(model, 0.3).double().eval()
    guide = jiggle(Cascaded(model).double(), 0.3).eval()
    write_folder(folder, **results)
    source, target = corpus.source, corpus.target
    settings = Settings(decode=Decoding(max_new_tokens=5))
    return Run(folder, settings, Processor(target, source), model, guide, 7, None, corpus)


def write_folder(folder: Path, **results: Any) -> None:
    """What a finished run leaves."""
    folder.mkdir(parents=True)
    options = {
        "valid": rows_of(FIGURES),
        "test": rows_of(FIGURES),
        "kl_by_site": {"decoder.0.self.logits": 0.25, "decoder.1.self.logits": 0.5},
        "kl_how": {"decoder.0.self.logits": "analytic", "decoder.1.self.logits": "sampled"},
        "parameters": 11,
        "tokens_per_second": 13.0,
        "head_divergence": None,
        "head_divergence_by_attention_type": {},
        **results,
    }
    (folder / "results.json").write_text(json.dumps(options))
    records = [
        {
            "step": step,
            "objective": -2.0,
            "tokens_per_second": 13.0,
            "valid": FIGURES,
            "kl_by_site": {"decoder.0.self.logits": 0.25, "decoder.1.self.logits": 0.5},
        }
        for step in (1, 2, 3)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
