r"""Markov-chain alignments: a word's position given that of the previous word.

.. math:: p(z_t = s \mid z_{t-1} = s') \propto \exp(c_{ts} + r_t(s', s))

The prior has :math:`r(s', s) = J[s - s']`, a score for each jump up to a maximal width. The forward
algorithm computes log p(y | x). The exact posterior is a chain with the same :math:`r`, whose
:math:`c_t` the backward algorithm computes. Hidden Markov alignments: Vogel et al. 1996,
https://aclanthology.org/C96-2141; in a neural network: Wu and Cotterell 2019,
https://arxiv.org/abs/1905.06319.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.latents.alignments.distribution import CategoricalParameters, Pair
from latentheads.latents.alignments.exact import ExactInference
from latentheads.latents.alignments.transitions import (
    SharedTransitions,
    Transitions,
    WordTransitions,
    later_transitions,
    vecmat,
)
from latentheads.layers.numeric import exp, log_softmax


@dataclass(frozen=True)
class ChainParameters(CategoricalParameters):
    """The parameters of a Markov chain over the words of a sentence, for one head.

    Attributes:
        transition_scores: Scores of each pair of the previous word's position and the word's own;
            ``NOWHERE`` where a transition is masked. One matrix may serve all words: it is then not
            copied, if all distributions that are compared share theirs, and scores more than 200
            below the maximum of their row are clamped.
    """

    chained: ClassVar[bool] = True
    transition_scores: Float[Tensor, "*#batch #target before key"] = field(kw_only=True)

    @property
    def pair_scores(self) -> Mapping[Pair, Float[Tensor, "*#batch #target before key"]]:
        """The transition scores, as those of the head with itself."""
        return {(self.first_head, self.first_head): self.transition_scores}

    @property
    def shared(self) -> bool:
        """Whether all words have the same matrix."""
        return self.transition_scores.shape[-3] == 1

    def transitions(self, shared: bool) -> Transitions:
        """The transition probabilities of the chain.

        Args:
            shared: Whether to use the form for chains whose words share a matrix.
        """
        form = SharedTransitions if shared else WordTransitions
        return form(self.scores[..., 0, :], self.transition_scores)

    def detached(self) -> ChainParameters:
        return replace(
            self, scores=self.scores.detach(), transition_scores=self.transition_scores.detach()
        )

    @property
    def marginals(self) -> Float[Tensor, "*batch target head key"]:
        return self.transitions(self.shared).marginals.to(self.scores.dtype).unsqueeze(-2)

    def word_log_prob(
        self, positions: Int[Tensor, "*sample target head"]
    ) -> Float[Tensor, "*out target"]:
        """Log-probability of each word's alignment given the previous one."""
        position = positions[..., 0]
        first = self.initial_log_probs.expand(*position.shape[:-1], -1).gather(
            -1, position[..., :1]
        )
        transition_scores = later_transitions(self.transition_scores)
        matrices, keys = transition_scores.shape[-3], transition_scores.shape[-1]
        # words that share a matrix take their rows from it at once: it is not copied for each
        previous = position[..., :-1].unflatten(
            -1, (matrices, (position.shape[-1] - 1) // matrices)
        )
        row_scores = transition_scores.expand(*previous.shape[:-1], *transition_scores.shape[-2:])
        row_scores = row_scores.gather(
            -2, previous[..., None].expand(*previous.shape, keys)
        ).flatten(-3, -2)
        later = log_softmax(self.scores[..., 1:, 0, :] + row_scores)
        return torch.cat([first, later.gather(-1, position[..., 1:, None])[..., 0]], -1)

    def choose_sequentially(
        self, below: Int[Tensor, "*sample target lower"], choose: Callable[[Tensor], Tensor]
    ) -> Int[Tensor, "*sample target head"]:
        """Choose positions word by word, each given the previous one."""
        shape = below.shape[:-2]
        positions = [choose(self.initial_log_probs.expand(*shape, -1))]
        last_matrix = self.transition_scores.shape[-3] - 1  # 0 where all words share one
        for index in range(1, self.scores.shape[-3]):
            transition_scores = self.transition_scores[..., min(index, last_matrix), :, :]
            transition_scores = transition_scores.expand(*shape, *transition_scores.shape[-2:])
            previous = positions[-1][..., None, None].expand(*shape, 1, transition_scores.shape[-1])
            row_scores = transition_scores.gather(-2, previous)[..., 0, :]
            positions.append(choose(log_softmax(self.scores[..., index, 0, :] + row_scores)))
        return torch.stack(positions, -1)[..., None]


def _as_chain(parameters: CategoricalParameters) -> ChainParameters:
    """View independent words as a chain whose transition scores are 0."""
    if isinstance(parameters, ChainParameters):
        return parameters
    num_keys = parameters.scores.shape[-1]
    return ChainParameters(
        parameters.scores, transition_scores=parameters.scores.new_zeros(1, num_keys, num_keys)
    )


@dataclass(frozen=True)
class ChainInference(ExactInference):
    """Exact inference where alignments are a Markov chain, for one head.

    The prior has one transition matrix for all words; a posterior may have one for each.
    """

    def __post_init__(self) -> None:
        if not self._prior_parameters.shared:
            raise ValueError(
                "transition_scores of a prior must be one matrix for all words, "
                f"got {self._prior_parameters.transition_scores.shape[-3]}"
            )

    @property
    def _prior_parameters(self) -> ChainParameters:
        (prior,) = self.priors
        assert isinstance(prior, ChainParameters)
        return prior

    @cached_property
    def _transition_cache(
        self,
    ) -> dict[tuple[int, bool, bool], tuple[CategoricalParameters, Transitions]]:
        """Cached transitions by the id of their parameters, which are kept alive."""
        return {}

    def _transitions(self, *parameters: CategoricalParameters) -> list[Transitions]:
        """The transitions of some parameters, all in one form; cached."""
        shared = all(chain.shared for chain in map(_as_chain, parameters))
        transitions = []
        for chain in parameters:
            key = id(chain), shared, torch.is_grad_enabled()
            if key not in self._transition_cache:
                self._transition_cache[key] = chain, _as_chain(chain).transitions(shared)
            transitions.append(self._transition_cache[key][1])
        return transitions

    @cached_property
    def _prior(self) -> SharedTransitions:
        (prior,) = self._transitions(*self.priors)
        assert isinstance(prior, SharedTransitions)
        return prior

    @cached_property
    def _masked_emissions(self) -> Float[Tensor, "*batch target key"]:
        """Emission log-probabilities, 0 at padding, so that padding changes no sum."""
        return (self.emissions * self.valid[..., None]).double()

    @cached_property
    def _joint(self) -> Float[Tensor, "*batch target key"]:
        """Scores of positions plus the emission of the target token."""
        return self._prior.scores + self._masked_emissions

    @cached_property
    def _weights(self) -> tuple[Tensor, Tensor]:
        """``exp`` of the joint scores, relative to their maximum, and that maximum."""
        log_scale = self._joint.detach().amax(-1, keepdim=True)
        return exp(self._joint - log_scale), log_scale[..., 0]

    @cached_property
    def word_log_evidence(self) -> Float[Tensor, "*batch target"]:
        """Exact log-probability of every token given those before: the forward algorithm."""
        weights, log_scale = self._weights
        # a message is divided by its sum, for it would underflow in a long sentence; the sum is
        # then the probability of a token given those before, up to the scale of the weights
        forward = weights[..., 0, :] / self._prior.first_normaliser
        sums = [forward.sum(-1)]
        for normaliser, weight in self._prior.later_words(weights):
            # of transitions from the previous position: it divides before the product
            previous = forward / (sums[-1][..., None] * normaliser)
            forward = vecmat(previous, self._prior.transition_weights) * weight
            sums.append(forward.sum(-1))
        return ((torch.stack(sums, -1).log() + log_scale) * self.valid).to(self.emissions.dtype)

    @cached_property
    def _posterior(self) -> ChainParameters:
        """The exact posterior: the backward algorithm."""
        weights, _ = self._weights
        backward = [torch.ones_like(weights[..., 0, :])]
        for normaliser, weight in self._prior.later_words(weights)[::-1]:
            message = vecmat(backward[-1] * weight, self._prior.transition_weights.mT) / normaliser
            # any scale will do, for scores are normalised; it has no gradient
            backward.append(message / message.detach().amax(-1, keepdim=True))
        scores = self._joint + torch.stack(backward[::-1], -2).log()
        prior = self._prior_parameters
        return replace(prior, scores=scores.to(prior.scores.dtype).unsqueeze(-2))

    def posterior(self) -> list[CategoricalParameters]:
        """The exact posterior: a chain with the prior's transition scores and other scores."""
        return [self._posterior]

    def expected_log_likelihood(
        self, posterior: Sequence[CategoricalParameters]
    ) -> Float[Tensor, "*batch"]:
        (transitions,) = self._transitions(*posterior)
        return self._total((transitions.marginals * self._masked_emissions).sum(-1))

    def _entropy(self, parameters: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        (transitions,) = self._transitions(*parameters)
        return self._total(transitions.entropy)

    def _kl(
        self, q: Sequence[CategoricalParameters], p: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*batch"]]:
        q_transitions, p_transitions = self._transitions(*q, *p)
        return [self._total(q_transitions.kl(p_transitions))]

    def _total(self, values: Float[Tensor, "*batch target"]) -> Float[Tensor, "*batch"]:
        """Sum over real tokens."""
        return (values * self.valid).sum(-1).to(self.emissions.dtype)
