r"""Which heads a corpus needs: the posterior over subsets of heads of a trained network.

One subset b of the heads of some blocks holds for all sentences D of a corpus,

.. math:: p(b \mid D) \propto p(b) \prod_{(x, y) \in D} p(y \mid x, b)^{1/\tau},

with independent :math:`p(b_h = 1) = \rho`. All :math:`2^H` likelihoods are computed; nothing is
trained. With :math:`\tau = 1` a corpus of some size leaves one subset. A larger temperature
:math:`\tau` counts :math:`\tau` sentences as one, as in tempered posteriors (Grünwald and van Ommen
2017, https://arxiv.org/abs/1412.3730).

All other heads are active. Noise of attention logits is set to its mean.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import Batch, with_indices
from latentheads.checks import (
    check_as_many,
    check_choice,
    check_least,
    check_list,
    check_number,
    check_positive,
    check_seed,
    split_items,
)
from latentheads.corpora.batches import iterate_batches
from latentheads.frames import make_frame
from latentheads.handlers import PlugIn
from latentheads.inference.non_finite import describe_non_finite_parameter
from latentheads.latents.bernoulli_heads.options import (
    check_number_of_subsets,
    check_temperature_and_rate,
)
from latentheads.latents.bernoulli_heads.passes import GatedPass
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.latents.latent import check_model
from latentheads.model import HeadModel
from latentheads.names import Block
from latentheads.passes import evaluation_mode
from latentheads.training.progress import ProgressDisplay

if TYPE_CHECKING:
    import pandas as pd

    from latentheads.attention.block import HeadBlock
    from latentheads.corpora.part import Part

INTERVAL = 0.95

SHOWN_RESAMPLES = 200
"""Resamples of the intervals that a posterior is shown with."""

CHUNK = 2**22
"""Resamples times sentences, or times subsets, that are held in memory at once."""


@dataclass(frozen=True)
class Subset:
    """A subset of heads.

    Attributes:
        heads: The active heads of every block, by its name; of a circuit those that were listed.
        probability: Its posterior probability.
        nats: Nats per target token that are lost compared with all heads active, on the sentences
            of the posterior; others lose more, since the subset was chosen on these.
    """

    heads: dict[str, list[int]]
    probability: float
    nats: float

    @property
    def size(self) -> int:
        """Number of active heads."""
        return sum(map(len, self.heads.values()))


@dataclass(frozen=True)
class HeadIntervals:
    """Bootstrap intervals over sentences.

    Attributes:
        low: Lower end of the 95 % interval of every head's inclusion probability; NaN for a single
            sentence, or none.
        high: Upper end.
        inclusion: The inclusion probability of every head in every resample.
        log_odds: The same for its log-odds.
    """

    low: Float[Tensor, " head"]
    high: Float[Tensor, " head"]
    inclusion: Float[Tensor, "resample head"]
    log_odds: Float[Tensor, "resample head"]

    def __repr__(self) -> str:
        ends = zip(self.low.tolist(), self.high.tolist(), strict=True)
        intervals = ", ".join(f"[{low:.3f}, {high:.3f}]" for low, high in ends)
        return f"HeadIntervals({len(self.inclusion):,} resamples; {intervals})"

    @property
    def width(self) -> Float[Tensor, " head"]:
        """The width of every interval."""
        return self.high - self.low

    def to_frame(self) -> pd.DataFrame:
        """A row for each head, in the order of the posterior: low and high."""
        return make_frame({"low": self.low, "high": self.high})


@dataclass(frozen=True, repr=False)
class HeadPosterior:
    """The posterior over subsets of the heads of some blocks.

    Row h of ``inclusion`` and others is a head: those of the first block, then those of the next.

    Attributes:
        blocks: The blocks, from the lowest.
        log_likelihoods: Log p(y | x, b) of every sentence and subset.
        tokens: Number of target tokens of every sentence.
        tau: The temperature.
        rate: The prior probability of a head to be active.

    Example:
        >>> posterior = lh.head_posterior(model, corpus.test, tau=10)
        >>> posterior.inclusion.shape, posterior.covariance.shape
        (torch.Size([2]), torch.Size([2, 2]))
        >>> posterior.smallest_subset(within=1e9).size
        0
    """

    blocks: Sequence[Block]
    log_likelihoods: Float[Tensor, "sentence subset"]
    tokens: Float[Tensor, " sentence"]
    tau: float = 1.0
    rate: float = 0.5

    def __post_init__(self) -> None:
        check_temperature_and_rate(self.tau, self.rate)

    def __repr__(self) -> str:
        names = ", ".join(block.name for block in self.blocks)
        sentences, subsets = self.log_likelihoods.shape
        columns = self.inclusion, *self._shown_ends
        rows = zip(*(column.tolist() for column in columns), strict=True)
        inclusion = ", ".join(f"{x:.3f} [{low:.3f}, {high:.3f}]" for x, low, high in rows)
        return (
            f"HeadPosterior({names}: {subsets:,} subsets, {sentences:,} sentences, "
            f"tau {self.tau:g}; inclusion {inclusion})"
        )

    @cached_property
    def _shown_ends(self) -> tuple[Tensor, Tensor]:
        intervals = self.bootstrap(SHOWN_RESAMPLES)
        return intervals.low, intervals.high

    def with_temperature(self, tau: float) -> Self:
        """The posterior at another temperature; no pass of the network is needed."""
        return replace(self, tau=tau)

    @property
    def heads(self) -> list[tuple[str, int]]:
        """The block and the index of every head."""
        return [(block.name, head) for block in self.blocks for head in range(block.heads)]

    def to_frame(self) -> pd.DataFrame:
        """A row for each head, with its inclusion probability and the log-odds of it.

        Example:
            >>> posterior = lh.head_posterior(model, corpus.test, tau=10)
            >>> list(posterior.to_frame().join(posterior.bootstrap(50).to_frame()))
            ['block', 'head', 'inclusion', 'log_odds', 'low', 'high']
        """
        block, head = zip(*self.heads, strict=True)
        probabilities = {"inclusion": self.inclusion, "log_odds": self.log_odds}
        return make_frame({"block": block, "head": head, **probabilities})

    @cached_property
    def subsets(self) -> Float[Tensor, "subset head"]:
        """The gates of every subset."""
        return all_subsets(len(self.heads), self.log_likelihoods)

    @property
    def log_prior(self) -> Float[Tensor, " subset"]:
        """Log p(b)."""
        sizes = self.subsets.sum(-1)
        rest = len(self.heads) - sizes
        return sizes * math.log(self.rate) + rest * math.log1p(-self.rate)

    @property
    def costs(self) -> Float[Tensor, " subset"]:
        """What every subset costs for a sentence, beside its log-likelihood: nothing here."""
        return torch.zeros_like(self.log_likelihoods[0])

    @property
    def nats(self) -> Float[Tensor, " subset"]:
        """Log-likelihood of the corpus with each subset, per target token."""
        return self.log_likelihoods.sum(0) / self.tokens.sum().clamp_min(1)

    def _log_probs(self, total: Float[Tensor, "*resample subset"]) -> Float[Tensor, "*r subset"]:
        return (self.log_prior + total / self.tau).log_softmax(-1)

    @cached_property
    def log_probs(self) -> Float[Tensor, " subset"]:
        """Log-probability of every subset."""
        return self._log_probs(self.log_likelihoods.sum(0))

    @property
    def inclusion(self) -> Float[Tensor, " head"]:
        """The probability of every head to be in the subset."""
        return self.log_probs.exp() @ self.subsets

    @property
    def log_odds(self) -> Float[Tensor, " head"]:
        """Log-odds of every head's inclusion; they rank heads whose probability rounds to 1."""
        return self._log_odds(self.log_probs)

    def _log_odds(self, log_probs: Float[Tensor, "*r subset"]) -> Float[Tensor, "*r head"]:
        lower = len(self.heads) // 2
        table = log_probs.unflatten(-1, (-1, 2**lower))  # a row for each subset of the others
        halves = table.logsumexp(-2), table.logsumexp(-1)
        columns = [  # from sums over the other half of the heads, which are many times smaller
            sums[..., active].logsumexp(-1) - sums[..., ~active].logsumexp(-1)
            for sums, heads in zip(halves, (lower, len(self.heads) - lower), strict=True)
            for active in all_subsets(heads, log_probs).bool().unbind(-1)
        ]
        return torch.stack(columns, -1)

    @property
    def covariance(self) -> Float[Tensor, "head head"]:
        """Covariance of the gates; negative where two heads can stand in for each other."""
        centred = self.subsets - self.inclusion
        return (centred * self.log_probs.exp()[:, None]).mT @ centred

    @property
    def entropy(self) -> float:
        """Entropy of the subset, in nats."""
        return -float((self.log_probs.exp() * self.log_probs).sum())

    def most_probable(self, number: int = 5) -> list[Subset]:
        """The most probable subsets.

        Args:
            number: How many.
        """
        check_least({"number": number}, number=1)
        order = self.log_probs.argsort(descending=True, stable=True)[:number]
        return [self._subset(int(index)) for index in order]

    def smallest_subset(self, within: float) -> Subset:
        """The fewest heads that lose at most ``within``; of several such sets the likeliest.

        Args:
            within: Nats per target token that may be lost compared with all heads active, on these
                sentences; on others more are lost (``docs/bernoulli-heads.md``).
        """
        check_number("within", within)
        if not within >= 0:
            raise ValueError(f"within must be at least 0, got {within}")
        nats = self.nats
        allowed = (nats >= nats[-1] - within).nonzero()[:, 0]
        sizes = self.subsets.sum(-1)[allowed]
        smallest = allowed[sizes == sizes.min()]
        return self._subset(int(smallest[nats[smallest].argmax()]))

    def _subset(self, index: int) -> Subset:
        active: dict[str, list[int]] = {block.name: [] for block in self.blocks}
        for (name, head), gate in zip(self.heads, self.subsets[index].tolist(), strict=True):
            if gate:
                active[name].append(head)
        loss = float(self.nats[-1] - self.nats[index])
        return Subset(active, float(self.log_probs[index].exp()), loss)

    def on(self, sentences: Tensor) -> Self:
        """The posterior on some of the sentences.

        Args:
            sentences: Their indices, which may repeat.
        """
        rows, tokens = self.log_likelihoods[sentences], self.tokens[sentences]
        return replace(self, log_likelihoods=rows, tokens=tokens)

    def grouped(self, groups: Sequence[Hashable] | Int[Tensor, " sentence"]) -> Self:
        """The posterior of the means over groups of sentences, such as prompts with one text.

        ``calibrate`` and :meth:`bootstrap` take sentences as independent, which those of a group
        are not. All groups count alike.

        Args:
            groups: The group of each sentence, such as the name of its text.

        Example:
            >>> posterior = lh.head_posterior(model, corpus.test, tau=10)
            >>> len(posterior.grouped([index // 2 for index in range(len(corpus.test))]).tokens)
            3
        """
        check_as_many("groups", groups, "sentences", self.tokens)
        if isinstance(groups, Tensor):
            groups = groups.tolist()
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        members = F.one_hot(torch.tensor([*map(numbers.__getitem__, groups)])).mT.to(self.tokens)
        members = members / members.sum(-1, keepdim=True)
        rows = members.to(self.log_likelihoods) @ self.log_likelihoods
        return replace(self, log_likelihoods=rows, tokens=members @ self.tokens)

    @property
    def best(self) -> Float[Tensor, " head"]:
        """The gates of the subset with the largest mean log-likelihood less its cost."""
        return self.best_on(torch.arange(len(self.tokens))[None])[0]

    def best_on(
        self, sentences: Int[Tensor, "resample sentence"]
    ) -> Float[Tensor, "resample head"]:
        """The best subset on each of several resamples of the sentences.

        Args:
            sentences: Their indices, which may repeat.
        """
        mean = self._count(sentences) @ self.log_likelihoods / sentences.shape[1]
        return self.subsets[(mean - self.costs).argmax(-1)]

    def log_odds_on(
        self, sentences: Int[Tensor, "resample sentence"]
    ) -> Float[Tensor, "resample head"]:
        """Log-odds of every head's inclusion, on each of several resamples of the sentences."""
        total = self._count(sentences) @ self.log_likelihoods
        # the prior may depend on how many sentences there are
        return self._log_odds(self.on(sentences[0])._log_probs(total))

    def _count(
        self, sentences: Int[Tensor, "resample index"]
    ) -> Float[Tensor, "resample sentence"]:
        """How often every sentence is in each resample."""
        counts = self.log_likelihoods.new_zeros(len(sentences), len(self.tokens))
        return counts.scatter_add(1, sentences, counts.new_ones(sentences.shape))

    def bootstrap(self, resamples: int = 1000, seed: int = 0) -> HeadIntervals:
        """Intervals of the inclusion probabilities, by resampling sentences.

        They are for the probability that the mean effects of all such sentences give; fewer of them
        hold that of as many other sentences. They are widened by Student's t, which matters with
        few sentences. The temperature is held fixed: its own uncertainty is not in them. Sentences
        are taken as independent: of copies, or prompts that share a text, they are too narrow.

        Args:
            resamples: Number of resamples.
            seed: Their seed.
        """
        check_least({"resamples": resamples}, resamples=2)
        check_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        chunk = max(1, CHUNK // max(self.log_likelihoods.shape))
        sizes = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
        rows = [self._resample(size, generator) for size in sizes]
        inclusion, log_odds = (torch.cat(columns) for columns in zip(*rows, strict=True))
        tail = (1 - INTERVAL) / 2
        ends = log_odds.quantile(torch.tensor([tail, 1 - tail]).to(log_odds), 0)
        # of a single sentence all resamples are the same, and the factor is NaN
        wider = self.log_odds + _student_factor(len(self.tokens)) * (ends - self.log_odds)
        low, high = wider.sigmoid()
        return HeadIntervals(low, high, inclusion, log_odds)

    def _resample(self, resamples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inclusion probabilities and their log-odds in some resamples of the sentences."""
        sentences = len(self.tokens)
        resampled = torch.randint(max(sentences, 1), (resamples, sentences), generator=generator)
        log_probs = self._log_probs(self._count(resampled) @ self.log_likelihoods)
        return log_probs.exp() @ self.subsets, self._log_odds(log_probs)


def _student_factor(sentences: int) -> float:
    """How much wider Student's t interval of a mean is than that of a bootstrap; NaN of one."""
    from scipy import special  # slow to import

    if sentences < 2:
        return math.nan
    quantile = float(special.stdtrit(sentences - 1, (1 + INTERVAL) / 2))
    normal = float(special.ndtri((1 + INTERVAL) / 2))
    return math.sqrt(sentences / (sentences - 1)) * quantile / normal


def posterior_of_blocks(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    blocks: str | Sequence[str] = "",
    *,
    tau: float,
    rate: float = 0.5,
    gibibytes: float = 4.0,
    quiet: bool = False,
) -> HeadPosterior:
    """Compute the posterior over subsets of the heads of some blocks of a model, jointly.

    :func:`latentheads.head_posterior` has its arguments, and takes networks too.
    """
    check_model(model)
    all_batches = list(iterate_batches(batches, "batches"))
    modules = _find_blocks(model, blocks)
    addresses = [replace(m.block, heads=m.num_active_heads) for m in modules]
    check_number_of_subsets(addresses)
    HeadPosterior(addresses, torch.zeros(1, 1), torch.ones(1), tau, rate)  # checks both numbers
    if gibibytes != math.inf:
        check_positive("gibibytes", gibibytes)
    rows, tokens, indices = [], [], []
    display = ProgressDisplay(sum(map(len, all_batches)), quiet=quiet, unit="sentence")
    with display, evaluation_mode(model), torch.no_grad():
        for batch, index in with_indices(all_batches):
            on_device = batch.to(model.device)
            gated_pass = GatedPass(model, on_device, modules, {}, gibibytes, PlugIn)
            log_probs = gated_pass.log_probs_of_subsets(on_device.scored).double().cpu()
            if log_probs.isnan().any():
                where = describe_non_finite_parameter(model=model) or "of some sentences"
                raise FloatingPointError(f"log p(y | x, b) is NaN: {where}")
            rows.append(log_probs)
            tokens.append(on_device.scored_mask.sum(-1).double().cpu())
            indices.append(index)
            display.advance(display.done + len(batch))
    order = torch.cat(indices).argsort(stable=True)
    log_likelihoods = torch.cat(rows)[order]
    return HeadPosterior(addresses, log_likelihoods, torch.cat(tokens)[order], tau, rate)


def _split_names(blocks: str | Sequence[str]) -> list[str]:
    """The names of a list, or of a text with commas between."""
    if isinstance(blocks, str):
        return split_items(blocks) if blocks else []
    check_list("blocks", blocks)
    return list(blocks)


def _find_blocks(model: HeadModel, blocks: str | Sequence[str]) -> list[HeadBlock]:
    """The blocks of a model by name, from the lowest."""
    available: Mapping[str, HeadBlock] = {m.block.name: m for m in model.head_blocks}
    names = _split_names(blocks) or list(available)[-1:]
    for name in names:
        check_choice("blocks", name, available)
    if model.selecting_blocks:
        raise ValueError("blocks select their heads already: their posterior is the guide's")
    for latent in model.latents.values():
        if latent.fixed_blocks:
            raise ValueError(
                f"latents {latent.name} decide about heads of each sentence: a corpus has no "
                "subset beside them"
            )
    return [module for name, module in available.items() if name in names]
