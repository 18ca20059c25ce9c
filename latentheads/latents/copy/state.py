r"""The decoding states of copy heads: the distribution of the next token, summed over all choices.

.. math:: p(v) = p_g(v) \Bigl(\pi_g + \sum_{m, s} \epsilon_m \pi_{ms}\Bigr)
                 + \sum_{m, s: w_s = v} (1 - \epsilon_m)\, \pi_{ms}
                 + \sum_s \pi_{\ell s}\, p(v \mid u_s),

the last sum with a lexicon head :math:`\ell` only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.latents.alignments.bands import make_next_token_distribution
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.forward import ForwardAlgorithm
from latentheads.latents.alignments.past import PastAlignmentState
from latentheads.latents.copy.emission import GENERATE, copy_emissions
from latentheads.latents.copy.scorer import CopyScorer
from latentheads.latents.network import EncoderDecoderStates
from latentheads.latents.output_heads import DecomposableState
from latentheads.layers.numeric import exp, full_precision
from latentheads.layers.output import RowOutput


class CopyState(DecomposableState):
    """The decoding state of copy heads, for a batch of sentences.

    Args:
        heads: The copy heads.
        hidden: The memory, with the key of generate in front; its states have length 0.
        output: The output layer.
    """

    def __init__(self, heads: CopyScorer, hidden: EncoderDecoderStates, output: RowOutput) -> None:
        self.heads, self.hidden, self.output = heads, hidden, output
        self._keys = heads.keys(hidden.memory)
        # key 0 is generate: nothing is added to the state
        vectors = [F.pad(rows, (0, 0, 1, 0)) for rows in heads.vectors(hidden.memory[:, 1:])]
        self._aligned = make_next_token_distribution(output, vectors) if vectors else None
        self._pending: Tensor | None = None
        self._forward = ForwardAlgorithm(self._emissions)
        self._scored: tuple[Tensor, Tensor, Tensor] | None = None

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        self._forward.select(sentences, hypotheses)
        if sentences is None:
            return
        hidden = self.hidden
        assert hidden.tokens is not None
        parts = (hidden.states, hidden.memory, hidden.attn_mask)
        states, memory, attn_mask = (part.index_select(0, sentences) for part in parts)
        tokens = hidden.tokens.index_select(0, sentences)
        self.hidden = EncoderDecoderStates(states, memory, attn_mask, tokens=tokens)
        self._keys = self._keys.index_select(0, sentences)
        if self._aligned is not None:
            self._aligned.select(sentences)
        if self._pending is not None:
            self._pending = self._pending.index_select(0, sentences)

    def scores(
        self,
        states: Float[Tensor, "sentence *hypothesis new dim"],
        tokens: Int[Tensor, "sentence *hypothesis new"],
    ) -> Float[Tensor, "sentence *hypothesis new vocab"]:
        rows = states.flatten(1, -2)
        generated = full_precision(self.output(rows)).log_softmax(-1)
        choice_mask = self.heads.choice_mask(self.hidden)
        prior = self.heads.prior_parameters(rows, self._keys, choice_mask)
        if isinstance(prior, ChainParameters):
            log_prior = self._forward(prior, tokens, rows, generated)
        else:
            log_prior = prior.scores[..., 0, :].log_softmax(-1)
        self._scored = rows, generated, log_prior
        return self._mix(rows, generated, log_prior).view(*states.shape[:-1], -1)

    def extend(
        self, states: Float[Tensor, "sentence new dim"], tokens: Int[Tensor, "sentence new"]
    ) -> None:
        """Append states as keys, each with the token that followed it.

        The last state waits for the token that follows.
        """
        self._drop_keys_outside_window()
        hidden, new = self.hidden, tokens.shape[1]
        assert hidden.tokens is not None
        # a state becomes a key with the token that it predicted, the input of the next state
        if self._pending is None:
            appended, next_tokens = states[:, :-1], tokens[:, 1:]
        else:
            appended, next_tokens = torch.cat([self._pending, states[:, :-1]], 1), tokens
        self._pending = states[:, -1:]
        memory = torch.cat([hidden.memory, appended], 1)
        key_tokens = torch.cat([hidden.tokens, next_tokens], 1)
        self._keys = torch.cat([self._keys, self.heads.keys(appended)], 1)
        if self._aligned is not None:
            self._aligned.extend(self.heads.vectors(appended))
        keys = torch.arange(memory.shape[1], device=tokens.device)
        last = memory.shape[1] - new + torch.arange(new, device=tokens.device)[:, None]
        attn_mask = keys <= last
        if window := self.heads.window:
            in_window = keys > last - window
            attn_mask = attn_mask & (in_window | (keys == 0))  # key 0 is generate
        attn_mask = attn_mask.expand(len(memory), -1, -1)
        self.hidden = EncoderDecoderStates(states, memory, attn_mask, tokens=key_tokens)
        self._forward.extend(self.heads.heads * appended.shape[1])

    def _drop_keys_outside_window(self) -> None:
        """Drop the keys that neither the next token nor the one before may point at."""
        hidden, window, heads = self.hidden, self.heads.window, self.heads.heads
        keys = hidden.memory.shape[1]
        if not window or keys <= window + 1:
            return
        kept = torch.arange(keys, device=hidden.memory.device)[-window:]
        # position k of head m is choice 1 + (k - 1) H + m; generate, 0, always stays
        choices = 1 + (kept[:, None] - 1) * heads + torch.arange(heads, device=kept.device)
        first = kept.new_zeros(1)
        kept, choices = torch.cat([first, kept]), torch.cat([first, choices.flatten()])
        assert hidden.tokens is not None
        self.hidden = EncoderDecoderStates(
            hidden.states,
            hidden.memory.index_select(1, kept),
            hidden.attn_mask.index_select(-1, kept),
            tokens=hidden.tokens.index_select(1, kept),
        )
        self._keys = self._keys.index_select(1, kept)
        if self._aligned is not None:
            self._aligned.keep_positions(kept)
        self._forward.keep_keys(choices)

    def _mix(
        self,
        rows: Float[Tensor, "sentence row dim"],
        generated: Float[Tensor, "sentence row vocab"],
        log_prior: Float[Tensor, "sentence row choice"],
    ) -> Float[Tensor, "sentence row vocab"]:
        """The log-probability of every token of the vocabulary, summed over all choices."""
        slip = self.heads.slip(log_prior)
        of_heads = log_prior[..., 1:].unflatten(-1, (-1, self.heads.heads))
        copies = of_heads[..., : len(slip.log)]
        index = self._position_tokens().expand(*copies.shape[:-1])
        weights = exp(copies + slip.log_kept).sum(-1)
        copied = torch.zeros_like(generated).scatter_add_(-1, index, weights).gather(-1, index)
        # sums of logarithms: probabilities below the least float32 would be 0
        slipped = torch.cat([log_prior[..., :1], (copies + slip.log).flatten(-2)], -1)
        log_weight = slipped.logsumexp(-1, keepdim=True)
        if self._aligned is None:
            of_network = generated + log_weight
        else:
            log_weights = torch.cat([log_weight, of_heads[..., -1]], -1)
            of_network = self._aligned.log_probs(rows, log_weights)
        # no other token is copied, and the logarithm of 0 takes ten times as long as another
        both = torch.logaddexp(of_network.gather(-1, index), copied.log())
        return of_network.scatter_(-1, index, both)

    def _position_tokens(self) -> Int[Tensor, "sentence 1 position"]:
        """The token at every position; 0 where it cannot be copied."""
        assert self.hidden.tokens is not None
        return self.hidden.tokens[:, None, 1:].clamp(min=0)

    def _emissions(self, kept: Sequence[Tensor], words: Tensor) -> Tensor:
        """Log-probability of tokens for each choice; kept are states and the network's values."""
        assert self.hidden.tokens is not None
        rows, generated = kept
        of_words = generated.gather(-1, words[..., None])[..., 0]
        matches = words[..., None] == self.hidden.tokens[:, None, 1:]
        aligned = None
        if self._aligned is not None:
            aligned = self._aligned.word_log_probs(rows, words)[..., 1:]
        return copy_emissions(of_words, matches, self.heads.slip(generated), aligned)

    def decompose_uncertainty(
        self, probs: Float[Tensor, "sentence row vocab"], tokens: Int[Tensor, "sentence row"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self._scored is None:
            raise ValueError("there are no choices to compare: score tokens first")
        rows, generated, log_prior = self._scored
        prior = exp(log_prior)
        log_probs = self._emissions((rows, generated), tokens)
        entropies, mean_log_probs = self._entropies(rows, generated, probs)
        aleatoric, mean_log, cross_entropy = (
            (prior * values).sum(-1) for values in (entropies, log_probs, mean_log_probs)
        )
        return aleatoric, mean_log, torch.xlogy(probs, probs).sum(-1) - cross_entropy

    def _entropies(
        self,
        rows: Float[Tensor, "sentence row dim"],
        generated: Float[Tensor, "sentence row vocab"],
        probs: Float[Tensor, "sentence row vocab"],
    ) -> tuple[Float[Tensor, "sentence row choice"], Float[Tensor, "sentence row choice"]]:
        r"""The entropy of the token for each choice, and its expected log-probability under probs.

        Copying gives the position's token the probability :math:`\epsilon p_g + 1 - \epsilon`, and
        every other one :math:`\epsilon p_g`. So sums over the others are those of the network over
        all tokens, less the term of the position's, and no vocabulary is needed for each position.
        """
        slip = self.heads.slip(generated)
        index = self._position_tokens().expand(*generated.shape[:-1], -1)
        log_p, weight = (values.gather(-1, index)[..., None] for values in (generated, probs))
        entropy, mean_log = -(generated.exp() * generated).sum(-1), (probs * generated).sum(-1)
        slipped = log_p + slip.log
        log_copied = torch.logaddexp(slipped, slip.log_kept.expand_as(slipped))
        # sum of p_g log p_g over the other tokens, then of (eps p_g) log(eps p_g)
        others = -entropy[..., None, None] - log_p.exp() * log_p
        others = slip.log.exp() * (others + slip.log * (1 - log_p.exp()))
        entropies = [-(others + log_copied.exp() * log_copied)]
        # sum of w log(eps p_g) over the other tokens, with the weights w of probs
        others = mean_log[..., None, None] - weight * log_p + slip.log * (1 - weight)
        mean_logs = [others + weight * log_copied]
        if self._aligned is not None:
            entropies.append(self._aligned.word_entropies(rows)[..., 1:, None])
            mean_logs.append(self._aligned.mean_log_probs(rows, probs)[..., 1:, None])
        return _by_choice(entropy, entropies), _by_choice(mean_log, mean_logs)


def _by_choice(
    generate: Float[Tensor, "sentence row"],
    heads: Sequence[Float[Tensor, "sentence row position _"]],
) -> Float[Tensor, "sentence row choice"]:
    """The values of generate and of every head's positions, in the order of choices."""
    return torch.cat([generate[..., None], torch.cat([*heads], -1).flatten(-2)], -1)


class PastCopyState(PastAlignmentState):
    """The decoding state of copy heads that point at the text's own past.

    Every hypothesis has a past of its own, so each is stored like a sentence.
    """

    def __init__(self, heads: CopyScorer, output: RowOutput) -> None:
        self.heads, self.output = heads, output
        self._state = None
        self._shape = torch.Size()

    def _begin(self, rows: Float[Tensor, "text new dim"]) -> CopyState:
        """The state of empty texts: generate is their only key."""
        empty = rows[:, :0]
        attn_mask = rows.new_ones(len(rows), 1, 0, dtype=torch.bool)
        tokens = torch.full(rows[:, :0].shape[:2], GENERATE, device=rows.device)
        hidden = EncoderDecoderStates(empty, empty, attn_mask, tokens=tokens)
        return CopyState(self.heads, self.heads.with_generate(hidden), self.output)
