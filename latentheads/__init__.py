"""latentheads: attention heads as random variables, with priors and guides to swap.

What a notebook needs stands here: ``import latentheads as lh``. A name is loaded when it is first
used, so that the import costs no more than torch and Pyro do.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentheads import contrib as contrib
    from latentheads import data as data
    from latentheads import guides as guides
    from latentheads import models as models
    from latentheads import pruning as pruning
    from latentheads.batch import Batch as Batch
    from latentheads.contrib import plot as plot
    from latentheads.contrib.align.aligner import WordAligner as WordAligner
    from latentheads.contrib.align.api import AlignedText as AlignedText
    from latentheads.contrib.align.api import align as align
    from latentheads.contrib.align.kept import load_aligner as load_aligner
    from latentheads.contrib.align.kept import save_aligner as save_aligner
    from latentheads.contrib.align.training import AlignerOptions as AlignerOptions
    from latentheads.contrib.heads.alignment_heads import alignment_heads as alignment_heads
    from latentheads.contrib.heads.switch import heads as heads
    from latentheads.contrib.hf.model import latent as latent
    from latentheads.contrib.hf.model import plain as plain
    from latentheads.contrib.page.assembly import ReportPage as ReportPage
    from latentheads.contrib.page.assembly import report as report
    from latentheads.corpora.batches import batches as batches
    from latentheads.corpora.corpus import Corpus as Corpus
    from latentheads.decoding.translate import Decoding as Decoding
    from latentheads.distributions import HeadContext as HeadContext
    from latentheads.distributions import HeadVariable as HeadVariable
    from latentheads.guide import Guide as Guide
    from latentheads.guide import ModelGuide as ModelGuide
    from latentheads.handlers import PlugIn as PlugIn
    from latentheads.inference.bound import Importance as Importance
    from latentheads.inference.bound import Terms as Terms
    from latentheads.inference.bound import importance as importance
    from latentheads.inference.bound import terms as terms
    from latentheads.inference.evaluation import Report as Report
    from latentheads.inference.evaluation import evaluate as evaluate
    from latentheads.inference.objective import Head_ELBO as Head_ELBO
    from latentheads.inference.shuffled import shuffled_target as shuffled_target
    from latentheads.latents.alignments.options import AlignmentOptions as AlignmentOptions
    from latentheads.latents.bernoulli_heads.corpus import HeadPosterior as HeadPosterior
    from latentheads.latents.bernoulli_heads.corpus import head_posterior as head_posterior
    from latentheads.latents.bernoulli_heads.corpus import head_posteriors as head_posteriors
    from latentheads.latents.bernoulli_heads.options import (
        BernoulliHeadsOptions as BernoulliHeadsOptions,
    )
    from latentheads.latents.copy.options import CopyOptions as CopyOptions
    from latentheads.latents.gates.options import GateOptions as GateOptions
    from latentheads.latents.handlers import WithSelection as WithSelection
    from latentheads.latents.logits.options import LogitsOptions as LogitsOptions
    from latentheads.latents.selection.options import SelectionOptions as SelectionOptions
    from latentheads.model import Decoder as Decoder
    from latentheads.model import HeadModel as HeadModel
    from latentheads.names import Block as Block
    from latentheads.runs.loading import load_run as load_run
    from latentheads.runs.results import Results as Results
    from latentheads.runs.run import Run as Run
    from latentheads.runs.settings import Settings as Settings
    from latentheads.runs.trainer import Trainer as Trainer
    from latentheads.runs.translation import translate as translate
    from latentheads.training.callbacks import Callback as Callback
    from latentheads.training.fit import Fitted as Fitted
    from latentheads.training.fit import fit as fit

PLACES = {
    "AlignedText": "contrib.align.api",
    "AlignerOptions": "contrib.align.training",
    "AlignmentOptions": "latents.alignments.options",
    "Batch": "batch",
    "BernoulliHeadsOptions": "latents.bernoulli_heads.options",
    "Block": "names",
    "Callback": "training.callbacks",
    "Comparison": "training.comparison",
    "CopyOptions": "latents.copy.options",
    "Corpus": "corpora.corpus",
    "Decoder": "model",
    "Decoding": "decoding.translate",
    "Fitted": "training.fit",
    "GateOptions": "latents.gates.options",
    "Guide": "guide",
    "HeadContext": "distributions",
    "HeadVariable": "distributions",
    "HeadModel": "model",
    "HeadPosterior": "latents.bernoulli_heads.corpus",
    "Head_ELBO": "inference.objective",
    "Importance": "inference.bound",
    "LogitsOptions": "latents.logits.options",
    "ModelGuide": "guide",
    "PlugIn": "handlers",
    "Report": "inference.evaluation",
    "ReportPage": "contrib.page.assembly",
    "Results": "runs.results",
    "Run": "runs.run",
    "SelectionOptions": "latents.selection.options",
    "Settings": "runs.settings",
    "Trainer": "runs.trainer",
    "WithSelection": "latents.handlers",
    "WordAligner": "contrib.align.aligner",
    "Terms": "inference.bound",
    "align": "contrib.align.api",
    "alignment_heads": "contrib.heads.alignment_heads",
    "batches": "corpora.batches",
    "compare": "training.comparison",
    "evaluate": "inference.evaluation",
    "fit": "training.fit",
    "head_posterior": "latents.bernoulli_heads.corpus",
    "head_posteriors": "latents.bernoulli_heads.corpus",
    "heads": "contrib.heads.switch",
    "importance": "inference.bound",
    "latent": "contrib.hf.model",
    "load_aligner": "contrib.align.kept",
    "load_run": "runs.loading",
    "plain": "contrib.hf.model",
    "report": "contrib.page.assembly",
    "save_aligner": "contrib.align.kept",
    "shuffled_target": "inference.shuffled",
    "terms": "inference.bound",
    "translate": "runs.translation",
}
"""The module of every public name."""
FOLDERS = {
    "contrib": "contrib",
    "data": "data",
    "guides": "guides",
    "models": "models",
    "plot": "contrib.plot",
    "pruning": "pruning",
}
"""Parts of the library that are public as a whole, with their module."""

__all__ = [*PLACES, *FOLDERS]


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used."""
    if name == "__version__":
        return version(__name__)
    if name in FOLDERS:
        return import_module(f"{__name__}.{FOLDERS[name]}")
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])
