"""Tiny models, guides, batches and noise that can be replayed; shared by the tests.

Sizes are distinct primes where they can be, so that a wrong axis cannot pass unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.attention.latent import LatentAttention
from latentheads.batch import PAD, Batch
from latentheads.distributions import HeadContext
from latentheads.guides import GUIDES
from latentheads.latents.logits.latent import Logits
from latentheads.mask import PairMask
from latentheads.models import PRIORS, LanguageModel, Network, Prior, Translation, make_prior
from latentheads.names import parse_attention_types
from latentheads.pruning import all_heads

SOURCE_TYPES, TARGET_TYPES, HEADS = 11, 13, 3
TARGETS = [[5, 6, 7, 2], [8, 2], [9, 10, 2]]
SOURCES = [[4, 5, 6, 2], [7, 2], [5, 5, 8, 5, 2]]

KINDS = ("translation", "language-model")
ADAPTIVE = {"adaptive": {"cutoffs": (5, 9), "div_value": 2}}
"""What makes a language model one of the kind "adaptive": a softmax of three bands."""
NOISY = sorted(name for name in PRIORS if not getattr(PRIORS[name], "deterministic", False))


def _with(model: Any, name: str, options: dict[str, Any], **more: Any) -> Any:
    """A guide with options, which are not said where the model draws nothing that they act on."""
    kind = GUIDES[name]
    return kind(model, **({} if kind.unused_options(model, options) else options), **more)


FORMS: dict[str, Callable[..., Any]] = {
    # "exact" is of alignments, which these models have not: see tests/guides/test_alignments.py
    **{name: guide for name, guide in GUIDES.items() if name not in ("autoregressive", "exact")},
    **{
        form: partial(_with, name="autoregressive", options={"form": form})
        for form in ("cholesky", "inverse", "masked")
    },
    **{
        f"{name} of target": partial(_with, name=name, options={"condition_on": "target"})
        for name in ("mean-field", "cascaded")
    },
}


def sizes(**changes: Any) -> Network:
    plain = {"width": 6, "feed_forward": 7, "heads": HEADS, "layers": 2, "dropout": 0.0}
    return Network(**{**plain, **changes})


def small_batch(**options: Any) -> Batch:
    return Batch.of(TARGETS, SOURCES, **options)


def build(
    kind: str = "translation", prior: str = "independent", gate: Any = None, **changes: Any
) -> Any:
    """A model with random biases and norms too, so that no parameter's place goes unnoticed.

    With a gate every block draws a latent of the user's own too; see :func:`add_gates`.
    """
    options = changes.pop("options", {})
    changes = {**ADAPTIVE, **changes} if kind == "adaptive" else changes
    own = {k: changes.pop(k) for k in ("label_smoothing",) if k in changes}
    latents = [latent_logits(make_prior(prior, **options), changes.pop("blocks", "all"))]
    network = sizes(**changes)
    if kind == "translation":
        model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents, **own)
    else:
        model = LanguageModel(TARGET_TYPES, network, latents, **own)
    if gate is not None:
        add_gates(model, gate)
    return jiggle(model, 0.1).double()


def latent_logits(prior: Prior, blocks: str = "all") -> Logits:
    """Latent logits of some attention types: all, none, or their names with commas between."""
    return Logits(prior, parse_attention_types(blocks))


def attentions_of(model: nn.Module) -> list[LatentAttention]:
    """The blocks of attention of a model."""
    return [module for module in model.modules() if isinstance(module, LatentAttention)]


def kept_of(model: Any, kept: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """The heads to keep of those blocks that a model has; what is not named stays whole."""
    return {name: heads for name, heads in kept.items() if name in all_heads(model)}


def add_gates(model: nn.Module, distribution: Callable[[HeadContext], Any]) -> None:
    """Adds a latent that the library knows nothing of: gates, for every sentence and block.

    A block draws them behind its heads, at ``<block>.gate``, and multiplies what the heads say.

    Args:
        model: Changed in place.
        distribution: Of the gates of a block, event ``head``; a module is trained with the model.
    """
    for module in attentions_of(model):
        _add_gate(module, distribution)


def _add_gate(module: LatentAttention, distribution: Callable[[HeadContext], Any]) -> None:
    draw_heads, drawn = module._sample_heads, []
    module.gate = distribution  # type: ignore[assignment]

    def draw(given_context: HeadContext) -> Tensor:
        logits = draw_heads(given_context)
        drawn.append(pyro.sample(module.block.site("gate"), distribution(given_context)))
        return logits

    def close(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        heads = inputs[0].unflatten(-1, (module.block.heads, -1))
        return (heads * drawn.pop()[..., None, :, None]).flatten(-2)

    module._sample_heads = draw  # type: ignore[method-assign]
    module.attention.can_fuse = lambda *_: False  # type: ignore[method-assign]
    module.projection.register_forward_pre_hook(close)


@torch.no_grad()
def jiggle(module: Any, size: float) -> Any:
    """Moves every parameter off its start, where zeros would hide mistakes."""
    for parameter in module.parameters():
        parameter.add_(size * torch.randn_like(parameter))
    return module


def attach(name: str, model: Any, size: float = 0.2) -> Any:
    """A guide away from its start, so that no KL is 0 by initialisation."""
    return jiggle(FORMS[name](model).double(), size)


def padded(batch: Batch, target: int, source: int) -> Batch:
    return Batch(
        F.pad(batch.target, (0, target), value=PAD),
        None if batch.source is None else F.pad(batch.source, (0, source), value=PAD),
    )


def rows(batch: Batch, order: Sequence[int]) -> Batch:
    """Some sentences of a batch, in some order, padding trimmed to the longest left."""

    def trim(tokens: Tensor) -> Tensor:
        kept = tokens[list(order)]
        return kept[:, (kept != PAD).any(0)]

    return Batch(trim(batch.target), None if batch.source is None else trim(batch.source))


def latents(model: Any, batch: Batch) -> list[str]:
    """The latent sites of one pass, in their order."""
    nodes = poutine.trace(model).get_trace(batch).stochastic_nodes
    return [name for name in nodes if name != "sentences"]


class NoiseTape:
    """Replays noise by particle, site, sentence, head, query and key, whatever stands around."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        shape = (3, 16, 4, 4, 12, 12)
        self.noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        self.rewind()

    def rewind(
        self, order: Sequence[int] | None = None, site: int = 0, query: int = 0, particle: int = 0
    ) -> None:
        self.order, self.site, self.query, self.particle = order, site, query, particle

    def __call__(self, like: Tensor, shape: torch.Size | None = None) -> Tensor:
        *particles, batch, heads, queries, keys = like.shape if shape is None else shape
        order = torch.arange(batch) if self.order is None else torch.as_tensor(self.order)
        noise = self.noise[:, self.site, order, :heads]
        noise = noise[..., self.query : self.query + queries, :keys]
        self.site += 1
        assert noise.shape[1:] == (batch, heads, queries, keys), "the tape is too short"
        chosen = noise[: particles[0]] if particles else noise[self.particle]
        return chosen.to(like.dtype)


def context(
    batch: int = 2, heads: int = HEADS, queries: int = 5, keys: int = 7, below: bool = False
) -> HeadContext:
    """A context whose last sentence has padded queries and keys, and a row of one key."""
    readable = torch.ones(batch, queries, keys, dtype=torch.bool)
    readable[-1, :, 4:] = False
    readable[0, 1, 1:] = False
    real = torch.ones(batch, queries, dtype=torch.bool)
    real[-1, 3:] = False
    mask = PairMask.build(readable, real, torch.float64)
    shape = (batch, heads, queries, keys)
    return HeadContext(torch.randn(shape), torch.randn(shape) if below else None, mask)


def bernoulli_gate(probability: float = 0.7) -> Callable[[HeadContext], Any]:
    def make_gate(given_context: HeadContext) -> Any:
        shape = given_context.scores.shape[:-2]
        return (
            dist.Bernoulli(given_context.scores.new_tensor(probability)).expand(shape).to_event(1)
        )

    return make_gate


@contextmanager
def counting(model: nn.Module) -> Iterator[list[str]]:
    """Notes the name of every attention block that runs."""
    seen: list[str] = []
    blocks = attentions_of(model)
    hooks = [
        m.register_forward_hook(lambda block, *_: seen.append(block.block.name)) for m in blocks
    ]
    yield seen
    for hook in hooks:
        hook.remove()
