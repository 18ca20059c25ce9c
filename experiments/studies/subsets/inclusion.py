"""Which heads a corpus needs, block by block: of any run, and of a sentence encoder."""

from __future__ import annotations

from itertools import islice
from typing import Any

import latentheads as lh
from latentheads.checks import split_items
from latentheads.experiments.studies.retrieval.encoder import Encoder
from latentheads.experiments.studies.retrieval.paraphrases import read_pairs
from latentheads.experiments.studies.retrieval.task import Task
from latentheads.experiments.studies.subsets.joint import temperature_rows
from latentheads.pruning import all_heads
from latentheads.runs.run import Run


def inclusion(run: Run, options: Any) -> dict[str, Any]:
    """The posterior of each block of a run, with all other heads active, given test."""
    posteriors = _posteriors(run.model, run.corpus.test.first(options.sentences))
    return {"rows": [row for posterior in posteriors for row in temperature_rows(posterior)]}


def _posteriors(model: Any, sentences: Any, blocks: str = "") -> list[Any]:
    """The posterior of each of some blocks alone; of all that have heads by default."""
    every = [name for name, heads in all_heads(model).items() if heads]
    names = split_items(blocks) if blocks else every
    return [lh.head_posterior(model, sentences, name, tau=1) for name in names]


def encoder(folder: str, options: Any) -> dict[str, Any]:
    """The posterior of each block of an encoder that finds paraphrases among many.

    Args:
        folder: The network and its tokenizer.
        options: The texts, the blocks, and the numbers of questions and of answers.
    """
    network = Encoder(folder)
    pairs, _ = read_pairs(options.english, options.german).split(options.answers)
    task = Task(network, pairs, network.embed_all(pairs.answers), options.batch)
    with task.latent_under("delta") as model:
        questions = list(islice(task.batches(model), options.sentences // options.batch))
        posteriors = _posteriors(model, questions, options.blocks)
    rows = [row for posterior in posteriors for row in temperature_rows(posterior)]
    nats = posteriors[0].nats[-1]
    return {
        "rows": rows,
        "questions": options.sentences // options.batch * options.batch,
        "nats": float(nats),
    }
