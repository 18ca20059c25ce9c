r"""Posteriors of alignments: networks of their own that may read the target.

A guide that reads the source alone, or what stands before a word, is worth no more than the prior
that it is trained with: in the prior's place it leaves the likelihood as it is and its KL is 0. One
that reads the word itself is worth more. Deng et al. 2018, https://arxiv.org/abs/1807.03756,
section 3, read the whole target in both directions; so does this. It starts at the prior, and
whatever it takes from the model is detached: it reaches the likelihood through where it points
alone. Of a language model, the states that a word may point at stand in the place of the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.alignment.aligner import Aligner, AlignmentContext, AlignmentPass
from latentheads.alignment.block import point
from latentheads.alignment.chain import ChainParameters
from latentheads.alignment.distribution import NOWHERE, CategoricalParameters, Pair
from latentheads.batch import Batch
from latentheads.checks import check_words
from latentheads.layers.numeric import full_precision
from latentheads.layers.position import sinusoidal_positions
from latentheads.layers.target_encoder import TargetEncoder

__all__ = ["AlignmentPosterior", "AutoConditionOn", "ConditionOn", "Form"]

Form = Literal["mean-field", "autoregressive", "cascaded"]
"""The other heads that a posterior reads: none; those of its block; those of blocks below."""

ConditionOn = Literal["source", "prefix", "target"]
"""The text that a posterior reads, beside the prior's scores that it starts with: the source; also
the words before; or the whole target too."""

AutoConditionOn = Literal["auto", "source", "prefix", "target"]
"""As a guide is asked for it: auto is the target where alignments are drawn, and of logits the
source."""


class _PairScores(nn.Module):
    """Scores of the positions of two heads together, given the word; zero at the start.

    Args:
        size: Width of the states of words and positions.
        told: Whether the word itself is read.
    """

    def __init__(self, size: int, told: bool) -> None:
        super().__init__()
        self.word = nn.Linear(size, size)
        self.before = nn.Linear(size, size)
        self.own = nn.Linear(size, size)
        self.explained = nn.Parameter(torch.zeros(())) if told else None
        nn.init.zeros_(self.word.weight)
        nn.init.zeros_(self.word.bias)

    def forward(
        self,
        word: Float[Tensor, "*batch target size"],
        memory: Float[Tensor, "*batch key size"],
        evidence: Sequence[Float[Tensor, "*batch target key"]],
    ) -> Float[Tensor, "*batch target before key"]:
        """Scores every pair of positions, for every word.

        Args:
            word: What is known of the word.
            memory: What is known of the positions.
            evidence: What each position says of the word, for the head that is read and its reader;
                empty where the word is not read.
        """
        both = self.word(word).unsqueeze(-2) * self.before(memory).unsqueeze(-3)
        scores = full_precision(both @ self.own(memory).mT.unsqueeze(-3))
        if self.explained is not None:
            lower, own = evidence
            # a head need not explain a word that another explains already
            scores = scores + self.explained * lower.softmax(-1)[..., None] * own[..., None, :]
        return scores


class AlignmentPosterior(nn.Module):
    """The posterior of all alignment blocks of a model.

    Args:
        aligner: The model's blocks.
        width: Model width.
        form: What a head reads of others.
        reads: What it reads of the sentence pair.
        size: Its own width.
    """

    def __init__(
        self, aligner: Aligner, width: int, form: Form, reads: ConditionOn, size: int = 64
    ) -> None:
        super().__init__()
        check_words({"reads": reads}, reads=get_args(ConditionOn))
        self.form, self.reads = form, reads
        heads = aligner.options.heads
        self.chain = aligner.options.chained and form == "cascaded"
        self.source = nn.Linear(width, size)
        self.state = None if reads == "source" else nn.Linear(width, size)
        self.target = TargetEncoder(width, size) if reads == "target" else None
        self.query = nn.Linear(size, heads * size)
        self.key = nn.Linear(size, heads * size)
        nn.init.zeros_(self.query.weight)
        nn.init.zeros_(self.query.bias)
        self.lexical = nn.Parameter(torch.zeros(heads)) if reads == "target" else None
        self.pairs = nn.ModuleDict()
        for head, lower in self._read_pairs(aligner):
            self.pairs[f"{head}_{lower}"] = _PairScores(size, told=reads == "target")

    def _read_pairs(self, aligner: Aligner) -> list[Pair]:
        """Every head with every other that it reads."""
        if self.chain:
            return [(0, 0)]
        each = aligner.options.alignment_heads
        pairs = [(head, low) for head in range(aligner.options.heads) for low in range(head)]
        within = {"mean-field": (), "autoregressive": (True,), "cascaded": (False,)}[self.form]
        return [(head, low) for head, low in pairs if (head // each == low // each) in within]

    def forward(self, context: AlignmentContext, batch: Batch) -> CategoricalParameters:
        """The posterior of one block.

        Args:
            context: What the block knows.
            batch: The sentences, their target included.
        """
        aligned, prior = context.aligned, context.prior
        words, valid = batch.scored, batch.counted
        memory = torch.tanh(self.source(self._take(aligned.hidden.memory)))
        with torch.no_grad():
            rows = aligned.output.rows_of(words) if self.reads == "target" else None
        known = self._read_words(aligned, rows, valid)
        size = known.shape[-1]
        # a slice, for an index that is a list is copied to the device and waited for
        own = slice(prior.heads.start, prior.heads.stop)
        query = self.query(known).unflatten(-1, (-1, size))[..., own, :]
        key = self.key(memory).unflatten(-1, (-1, size))[..., own, :]
        scores = prior.scores.detach() + point(query, key, aligned.hidden.readable)
        evidence: list[Tensor] = []
        if self.lexical is not None:
            assert rows is not None
            wide = full_precision(rows)
            with torch.autocast(wide.device.type, enabled=False):  # as the table of words is made
                evidence = [wide @ full_precision(each.detach()).mT for each in aligned.vectors]
            said = torch.stack([evidence[head] for head in prior.heads], -2)
            scores = scores + self.lexical[own, None] * said
        readable = aligned.hidden.readable
        read = {
            pair: self._read_pair(pair, prior, known, memory, evidence, readable)
            for pair in self._of(prior)
        }
        if self.chain:
            return ChainParameters(scores, steps=read[0, 0])
        return CategoricalParameters(scores, read, prior.first)

    def _of(self, prior: CategoricalParameters) -> list[Pair]:
        """The pairs that the heads of a block read."""
        named = [tuple(map(int, name.split("_"))) for name in self.pairs]
        return [(head, low) for head, low in named if head in prior.heads]

    def _read_pair(
        self,
        pair: Pair,
        prior: CategoricalParameters,
        known: Tensor,
        memory: Tensor,
        evidence: Sequence[Tensor],
        readable: Bool[Tensor, "*mask #target key"],
    ) -> Float[Tensor, "*batch target before key"]:
        """Adds the scores of two heads together to those of the prior."""
        head, lower = pair
        said: list[Tensor] = []
        if evidence:  # of what may be pointed at alone: padding explains nothing
            said = [evidence[lower].masked_fill(~readable, NOWHERE), evidence[head]]
        scores: Tensor = self.pairs[f"{head}_{lower}"](known, memory, said)
        if pair in prior.between:
            return scores + prior.between[pair].detach()
        return scores

    def _read_words(
        self,
        aligned: AlignmentPass,
        rows: Float[Tensor, "sentence target dim"] | None,
        valid: Bool[Tensor, "sentence target"],
    ) -> Float[Tensor, "*batch target size"]:
        """States of every word: of its place, of the words before it, or of the whole target."""
        states = self._take(aligned.hidden.states)
        length = states.shape[-2]
        size = self.source.out_features
        if self.state is None:
            place = sinusoidal_positions(length, size, states.device, states.dtype)
            return place.expand(*states.shape[:-1], size)
        known = self.state(states)
        if self.target is not None:
            assert rows is not None
            known = known + self.target(rows.to(known.dtype), valid)
        return torch.tanh(known)

    def _take(self, told: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """A tensor of the model, detached and in the guide's own type: the model's may be half."""
        return told.detach().to(self.source.weight.dtype)
