r"""Posteriors of alignments: inference networks that may condition on the target.

A guide conditioned on the source only, or on the prefix of a word, cannot improve on the prior that
it is trained with: used as the prior it gives the same likelihood with a KL of 0. A guide
conditioned on the word itself can. As in Deng et al. 2018, https://arxiv.org/abs/1807.03756,
section 4, this one encodes the whole target in both directions. It is initialised to the prior, or
to the prior times the likelihood ratios of a head that has them. Where its structure leaves out a
coupling of the prior, it starts at the prior's scores without it.
Its inputs from the model are detached, so that the likelihood has a gradient in the guide through
the alignments only. In a language model the states that a word may point at replace the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast, get_args

import torch
from jaxtyping import Bool, Float
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.checks import check_choice
from latentheads.latents.alignments.block import alignment_scores
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import (
    NOWHERE,
    Alignments,
    CategoricalParameters,
    Pair,
    check_parameters,
)
from latentheads.latents.alignments.passes import AlignmentContext, AlignmentPass
from latentheads.latents.alignments.transitions import later_transitions
from latentheads.latents.latent import ConditionOn, LatentPosterior, Structure
from latentheads.layers.numeric import full_precision, version_of
from latentheads.layers.position import sinusoidal_positions
from latentheads.layers.target_encoder import TargetEncoder
from latentheads.names import ALIGNED_POSITION

IMPOSSIBLE = NOWHERE / 2
"""Scores of masked positions lie below this, all others above."""


class _PairScores(nn.Module):
    """Scores of pairs of two heads' positions, for each word; initialised to zero.

    Args:
        size: Width of the states of words and positions.
        target_conditioned: Whether the posterior is conditioned on the word itself.
    """

    def __init__(self, size: int, target_conditioned: bool) -> None:
        super().__init__()
        self.word = nn.Linear(size, size)
        self.before = nn.Linear(size, size)
        self.own = nn.Linear(size, size)
        self.explained = nn.Parameter(torch.zeros(())) if target_conditioned else None
        nn.init.zeros_(self.word.weight)
        nn.init.zeros_(self.word.bias)

    def forward(
        self,
        word: Float[Tensor, "*batch target size"],
        memory: Float[Tensor, "*keys key size"],
        evidence: Sequence[Float[Tensor, "*words target key"]],
    ) -> Float[Tensor, "*batch target before key"]:
        """Score every pair of positions, for every word.

        Args:
            word: States of the words.
            memory: States of the positions.
            evidence: Each position's score of the word, for the lower head and the upper one; empty
                if the posterior is not conditioned on the word.
        """
        both = self.word(word).unsqueeze(-2) * self.before(memory).unsqueeze(-3)
        keys = memory.shape[-2]
        # one product for all words: a product for each would copy the positions' states
        products = both.flatten(-3, -2) @ self.own(memory).mT
        scores = full_precision(products.unflatten(-2, (-1, keys)))
        if self.explained is not None:
            lower, own = evidence
            # explaining away: a head need not explain a word that the lower head explains
            scores = scores + self.explained * lower.softmax(-1)[..., None] * own[..., None, :]
        return scores


class _Inputs(NamedTuple):
    """What the posteriors of all blocks of a pass read.

    Attributes:
        memory: States of the positions.
        word_states: States of the words.
        query: Queries of the words, for each head of the model.
        key: Keys of the positions.
        evidence: Each position's score of each word, for each head; empty if the posterior is not
            conditioned on the word.
    """

    memory: Float[Tensor, "*batch key size"]
    word_states: Float[Tensor, "*batch target size"]
    query: Float[Tensor, "*batch target head size"]
    key: Float[Tensor, "*batch key head size"]
    evidence: Sequence[Float[Tensor, "*batch target key"]]


class AlignmentPosterior(LatentPosterior):
    """The posterior of all alignment blocks of a model.

    Args:
        num_blocks: Number of blocks.
        heads: Heads of each block.
        width: Model width.
        structure: Which heads a head is conditioned on.
        condition_on: The text that the posterior is conditioned on.
        chained: Whether the prior of a word's alignment is conditioned on that of the word before.
        size: Hidden width.
        evidence_weight: The factor of the evidence at the start: 1 where it is a log-likelihood
            ratio, which is added to the prior by Bayes' rule.
    """

    def __init__(
        self,
        num_blocks: int,
        heads: int,
        width: int,
        structure: Structure,
        condition_on: ConditionOn,
        chained: bool = False,
        size: int = 64,
        evidence_weight: float = 0.0,
    ) -> None:
        super().__init__()
        check_choice("condition_on", condition_on, get_args(ConditionOn))
        self.structure, self.condition_on = structure, condition_on
        total_heads = num_blocks * heads
        self.chained = chained and structure == "cascaded"
        self.source = nn.Linear(width, size)
        self.state = None if condition_on == "source" else nn.Linear(width, size)
        self.target = TargetEncoder(width, size) if condition_on == "target" else None
        self.query = nn.Linear(size, total_heads * size)
        self.key = nn.Linear(size, total_heads * size)
        nn.init.zeros_(self.query.weight)
        nn.init.zeros_(self.query.bias)
        weights = torch.full((total_heads,), evidence_weight)
        self.lexical = nn.Parameter(weights) if condition_on == "target" else None
        self.pairs = nn.ModuleDict()
        for head, lower in self._conditioned_pairs(num_blocks, heads):
            self.pairs[f"{head}_{lower}"] = _PairScores(
                size, target_conditioned=condition_on == "target"
            )

    def _conditioned_pairs(self, num_blocks: int, heads: int) -> list[Pair]:
        """Every head with every head that it is conditioned on."""
        if self.chained:
            return [(0, 0)]
        pairs = [(head, lower) for head in range(num_blocks * heads) for lower in range(head)]
        within = {"mean-field": (), "autoregressive": (True,), "cascaded": (False,)}[self.structure]
        return [
            (head, lower) for head, lower in pairs if (head // heads == lower // heads) in within
        ]

    def forward(self, context: AlignmentContext, batch: Batch) -> CategoricalParameters:
        """Compute the posterior of one block."""
        alignment_pass, prior = context.alignment_pass, context.prior
        inputs = self._inputs(alignment_pass, batch, prior)
        attn_mask = alignment_pass.hidden.attn_mask
        # a slice, since an index list would be copied to the device synchronously
        heads = slice(prior.heads.start, prior.heads.stop)
        query, key = inputs.query[..., heads, :], inputs.key[..., heads, :]
        # where a coupling of the prior is left out, a product nearer to the prior is a worse start:
        # it is sharper, so that gradients are too small to leave it
        scores = prior.scores.detach() + alignment_scores(query, key, attn_mask)
        if self.lexical is not None:
            lexical_scores = torch.stack([inputs.evidence[head] for head in prior.heads], -2)
            scores = scores + self.lexical[heads, None] * lexical_scores
        pair_scores = {
            pair: self._scores_of_pair(pair, prior, inputs, attn_mask)
            for pair in self._pairs
            if pair[0] in prior.heads
        }
        if self.chained:
            return ChainParameters(scores, transition_scores=pair_scores[0, 0])
        return CategoricalParameters(scores, pair_scores, prior.first_head)

    def posterior_of(self, prior: Alignments, batch: Batch) -> Alignments:
        """The posterior of one block; the prior itself without its context."""
        if prior.context is None:
            return prior
        return with_parameters(prior, self(prior.context, batch))

    @property
    def _pairs(self) -> list[Pair]:
        """Every head with every head that it is conditioned on."""
        pairs = (name.split("_") for name in self.pairs)
        return [(int(head), int(lower)) for head, lower in pairs]

    def _scores_of_pair(
        self,
        pair: Pair,
        prior: CategoricalParameters,
        inputs: _Inputs,
        attn_mask: Bool[Tensor, "*mask #target key"],
    ) -> Float[Tensor, "*batch target before key"]:
        """Scores of a pair of heads, added to those of the prior."""
        head, lower = pair
        pair_evidence: list[Tensor] = []
        if evidence := inputs.evidence:  # masked: padding explains nothing
            pair_evidence = [evidence[lower].masked_fill(~attn_mask, NOWHERE), evidence[head]]
        states = inputs.word_states, inputs.memory
        scores: Tensor = self.pairs[f"{head}_{lower}"](*states, pair_evidence)
        if pair in prior.pair_scores:
            return scores + prior.pair_scores[pair].detach()
        return scores

    def _inputs(
        self, alignment_pass: AlignmentPass, batch: Batch, prior: CategoricalParameters
    ) -> _Inputs:
        """What the posteriors of all blocks read in a pass; computed for the first of them.

        A block that is asked for again, or other weights, begin anew: the pass may have been kept.
        """
        weights = sum(map(version_of, self.parameters()))
        key = self, id(batch), torch.is_grad_enabled(), weights
        _, inputs, served = alignment_pass.inputs.get(key, (None, None, ()))
        if inputs is None or prior.heads in served:
            inputs, served = self._compute_inputs(alignment_pass, batch), ()
        # with the batch, so that no other has its address
        alignment_pass.inputs[key] = batch, inputs, (*served, prior.heads)
        return cast(_Inputs, inputs)

    def _compute_inputs(self, alignment_pass: AlignmentPass, batch: Batch) -> _Inputs:
        tokens, valid = batch.scored, batch.scored_mask
        memory = torch.tanh(self.source(self._detach(alignment_pass.hidden.memory)))
        rows: Tensor | None = None
        if self.condition_on == "target":
            with torch.no_grad():
                rows = alignment_pass.output.rows_of(tokens)
        word_states = self._word_states(alignment_pass, rows, valid)
        size = word_states.shape[-1]
        query = self.query(word_states).unflatten(-1, (-1, size))
        key = self.key(memory).unflatten(-1, (-1, size))
        evidence = [] if rows is None else alignment_pass.evidence(tokens, rows)
        return _Inputs(memory, word_states, query, key, evidence)

    def _word_states(
        self,
        alignment_pass: AlignmentPass,
        rows: Float[Tensor, "sentence target dim"] | None,
        valid: Bool[Tensor, "sentence target"],
    ) -> Float[Tensor, "*batch target size"]:
        """States of every word: its position encoding, its prefix, or the whole target."""
        states = self._detach(alignment_pass.hidden.states)
        length = states.shape[-2]
        size = self.source.out_features
        if self.state is None:
            encoding = sinusoidal_positions(length, size, states.device, states.dtype)
            return encoding.expand(*states.shape[:-1], size)
        word_states = self.state(states)
        if self.target is not None:
            assert rows is not None
            word_states = word_states + self.target(rows.to(word_states.dtype), valid)
        return torch.tanh(word_states)

    def _detach(self, tensor: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Detach a tensor of the model, in the guide's dtype: the model's may be half."""
        return tensor.detach().to(self.source.weight.dtype)


def with_parameters(prior: Alignments, parameters: CategoricalParameters) -> Alignments:
    """The distribution of a block's alignments with other parameters: a posterior.

    Positions that are masked in the prior are masked here too.

    Raises:
        ValueError: The parameters do not fit the prior, or, if Pyro's validation is enabled, mask
            all positions of a word.
    """
    site = ALIGNED_POSITION if prior.context is None else prior.context.site
    check_parameters(site, parameters, prior.parameters)
    masked_keys = prior.parameters.scores <= IMPOSSIBLE
    scores = full_precision(parameters.scores).clamp_min(NOWHERE).masked_fill(masked_keys, NOWHERE)
    masked = replace(parameters, scores=scores)
    if is_validation_enabled():
        _check_masks(site, masked, masked_keys, prior.valid)
    return Alignments(masked, prior.valid, prior.below, prior.context)


def _check_masks(
    site: str,
    parameters: CategoricalParameters,
    prior_mask: Bool[Tensor, "*batch target head key"],
    valid: Bool[Tensor, "*inner target"],
) -> None:
    """Check that scores of pairs are finite, and that every real word has a position.

    Args:
        site: The sample site of the alignments, for the message.
        parameters: The posterior's parameters.
        prior_mask: True where the prior masks a position.
        valid: True at real words.

    Raises:
        ValueError: A score is minus infinity, so that there is no KL, or all positions of a word
            are masked, alone or given the heads that it is conditioned on.
    """
    counted, masked = valid[..., None] & ~prior_mask.all(-1), parameters.scores <= IMPOSSIBLE
    unreachable = (counted & masked.all(-1)).any()
    for (head, lower), pair_scores in parameters.pair_scores.items():
        if (pair_scores > IMPOSSIBLE).all():
            continue  # nothing is masked: saves a tensor of all pairs of positions of all words
        if pair_scores.isneginf().any():
            raise ValueError(
                f"site {site!r}: scores of a pair of heads must be finite: mask them by NOWHERE, "
                f"{NOWHERE:g}, for minus infinity has no KL"
            )
        index, below = head - parameters.first_head, lower - parameters.first_head
        scores, valid_words = parameters.scores[..., index, :], counted[..., index, None]
        lower_allowed = ~(masked[..., below, :] if below >= 0 else prior_mask[..., index, :])
        if parameters.chained:
            scores, valid_words, lower_allowed = (
                scores[..., 1:, :],
                valid_words[..., 1:, :],
                lower_allowed[..., :-1, :],
            )
            pair_scores = later_transitions(pair_scores)
        nowhere = (scores[..., None, :] + pair_scores <= IMPOSSIBLE).all(-1)
        unreachable |= (nowhere & lower_allowed & valid_words).any()
    if unreachable:
        raise ValueError(f"site {site!r}: scores mask all positions of a word")
