"""Alignment blocks above the decoder of a network of ``transformers``.

Hooks insert them between the decoder's last states and the network's own output layer; the network
itself is not changed. Heads point at the states of the encoder or, in a decoder-only network, at
the states of earlier tokens.

A bias of the output layer, as in Marian, becomes one more column of its matrix, and a constant 1 in
every state.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.contrib.hf.arguments import device_of_inputs, get_cache
from latentheads.contrib.hf.likelihoods import Likelihood, NextToken, TargetToken
from latentheads.latents.latent import Latent
from latentheads.latents.network import EncoderDecoderStates
from latentheads.latents.options import LatentOptions, ModelShape, make_latents
from latentheads.latents.output_heads import OutputHeads, OutputState
from latentheads.layers.linear_output import LinearOutput, MatrixOutput

NEAR = 1e-3
"""Tolerance for rounding, relative and absolute, when scores are compared."""


class NetworkOutput(LinearOutput):
    """The output layer of a network, including its bias; it has no weights of its own."""

    zero: Tensor

    def __init__(self, network: Any) -> None:
        super().__init__()
        layer = network.get_output_embeddings()
        if not isinstance(layer, nn.Linear):
            raise ValueError(
                f"{type(network).__name__} has no linear output layer: alignments need one"
            )
        logits_bias = getattr(network, "final_logits_bias", None)
        self._layer_and_network = layer, network  # a tuple, so that they are not submodules
        zero = torch.zeros((), dtype=torch.promote_types(network.dtype, torch.float32))
        self.register_buffer("zero", zero, persistent=False)  # converted as the heads are
        self.biased = layer.bias is not None or (
            logits_bias is not None and bool(logits_bias.any())
        )

    @property
    def layer(self) -> nn.Linear:
        """The network's own output layer."""
        return self._layer_and_network[0]

    @property
    def added_bias(self) -> Float[Tensor, "1 vocab"] | float:
        """The bias that the network adds to the scores of its output layer."""
        bias = getattr(self._layer_and_network[1], "final_logits_bias", None)
        return bias if self.biased and bias is not None else 0.0

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the heads: not half as the network's may be, since small steps are lost."""
        return self.zero.dtype

    @property
    def weight(self) -> Float[Tensor, "vocab dim"]:
        """The matrix, with the bias as its last column."""
        weight = self.layer.weight.to(self.dtype)
        if not self.biased:
            return weight
        bias = torch.zeros_like(weight[:, 0]) + self.added_bias
        if self.layer.bias is not None:
            bias = bias + self.layer.bias
        return torch.cat([weight, bias.view(-1, 1)], 1)

    def widen(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch wide"]:
        """Appends a 1 to states if there is a bias; in the dtype of the heads."""
        states = states.to(self.dtype)
        return F.pad(states, (0, 1), value=1.0) if self.biased else states


@dataclass
class _Call:
    """The arguments of the decoder in a call of the network.

    Attributes:
        tokens: The input tokens.
        valid: The padding mask of the tokens.
        memory: The states of the encoder.
        memory_valid: The padding mask of the memory.
        num_cached: Number of tokens in the cache.
    """

    tokens: Tensor | None
    valid: Tensor | None
    memory: Tensor | None
    memory_valid: Tensor | None
    num_cached: int

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> _Call:
        cache = get_cache(arguments)
        return cls(
            arguments.get("input_ids"),
            arguments.get("attention_mask"),
            arguments.get("encoder_hidden_states"),
            arguments.get("encoder_attention_mask"),
            0 if cache is None else int(cache.get_seq_length()),
        )


class AlignedDecoder:
    """Alignment blocks between a decoder and its output layer, connected by hooks.

    Inside :meth:`recording` it stores the states for the alignment blocks. In any other call of the
    network, such as a step of ``generate``, it replaces the scores by log-probabilities that are
    marginalised over all alignments.
    """

    def __init__(self, network: Any, heads: OutputHeads, output: NetworkOutput) -> None:
        self.network, self.heads, self.output = network, heads, output
        self._decoder = network.get_decoder()
        if self._decoder is network.get_output_embeddings():  # ModernBERT's output layer is decoder
            self._decoder = network.base_model
        self._takes = inspect.signature(self._decoder.forward)
        self._recording = self._checked = False
        self._call: _Call | None = None
        self._mask: Tensor | None = None
        self._states: Tensor | None = None
        self._last_scores: Tensor | None = None
        self._cached_state: tuple[Tensor, OutputState] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything except the tensors of the last call, which have a graph."""
        of_call = "_call", "_mask", "_states", "_last_scores", "_cached_state"
        return self.__dict__ | dict.fromkeys(of_call)

    @property
    def past(self) -> bool:
        """Whether heads point at the decoder's own earlier states."""
        return not self.network.config.is_encoder_decoder

    def attach(self) -> list[Any]:
        """Registers the hooks, and returns their handles."""
        layer = self.output.layer
        return [
            self.network.register_forward_pre_hook(self._score_all, with_kwargs=True),
            self._decoder.register_forward_pre_hook(self._record_call, with_kwargs=True),
            layer.register_forward_pre_hook(self._record_states),
            layer.register_forward_hook(self._replace_scores),
            self.network.register_forward_hook(self._check_scores),
        ]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records the states of a call; the network then scores only one position."""
        outer = self._recording, self._call, self._states, self._last_scores
        self._recording = True
        try:
            yield
        finally:  # passes may be nested, such as that of a guide
            self._recording, self._call, self._states, self._last_scores = outer

    def recorded_states(
        self,
        label_likelihood: Likelihood,
        target: Bool[Tensor, "batch input"] | None,
        source: Bool[Tensor, "batch source"] | None,
    ) -> EncoderDecoderStates:
        """The states of the recorded call, for the alignment blocks.

        Args:
            label_likelihood: Selects the positions that predict a label.
            target: The decoder's padding mask; None: no padding.
            source: The encoder's padding mask; None: no padding.
        """
        assert self._call is not None
        assert self._states is not None
        states = self.output.widen(label_likelihood.scored_positions(self._states))
        if self.past:
            target = self._all_real(self._states) if target is None else target
            valid = label_likelihood.scored_positions(target)
            tokens = self._following_tokens(self._call)
            if tokens is not None:
                tokens = label_likelihood.scored_positions(tokens)
            return self.heads.causal_states(states, valid, tokens)
        return self._states_with_source(states, source)

    def _states_with_source(
        self, states: Float[Tensor, "batch target dim"], source: Tensor | None
    ) -> EncoderDecoderStates:
        assert self._call is not None
        memory = self._call.memory
        if memory is None:
            raise ValueError(
                f"{type(self.network).__name__}: alignments need the states of the encoder, which "
                "the decoder is not given"
            )
        memory = self.output.widen(memory)
        valid = self._all_real(memory) if source is None else source.bool()
        return EncoderDecoderStates(states, memory, valid.unsqueeze(-2))

    @staticmethod
    def _all_real(states: Tensor) -> Bool[Tensor, "batch position"]:
        return states.new_ones(states.shape[:2], dtype=torch.bool)

    def _score_all(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Makes the network return the states of all positions, which heads point at.

        Raises:
            ValueError: The output layer was replaced after the heads were made.
        """
        if self.network.get_output_embeddings() is not self.output.layer:
            raise ValueError(
                f"the output layer of {type(self.network).__name__} was replaced: do so, as by "
                "resize_token_embeddings, before lh.latent"
            )
        names = inspect.signature(network.forward).parameters if args else ()
        self._mask = (dict(zip(names, args)) | kwargs).get("attention_mask")
        return (args, kwargs | {"logits_to_keep": 0}) if "logits_to_keep" in kwargs else None

    def _record_call(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = self._takes.bind_partial(*args).arguments | kwargs
        if isinstance(arguments.get("attention_mask"), dict):  # one of each kind of layer, Gemma 3
            arguments["attention_mask"] = self._mask
        self._call = _Call.of(arguments)

    def _record_states(self, _: nn.Module, args: tuple[Tensor]) -> tuple[Tensor] | None:
        if not self._recording:
            return None
        self._states = args[0]
        return (args[0][:, :1],)

    def _replace_scores(self, _: nn.Module, args: tuple[Tensor], scores: Tensor) -> Tensor | None:
        """Replaces the scores by marginal log-probabilities, unless states are being recorded."""
        replaced = None
        if not self._recording:
            log_probs = self._score_vocabulary(args[0].detach()).to(scores.dtype)
            replaced = _ReplacedScores.apply(scores, log_probs - self.output.added_bias)
        self._last_scores = (scores if replaced is None else replaced)[:1, -1:].detach()
        return replaced

    @torch.no_grad()
    def _score_vocabulary(
        self, states: Float[Tensor, "batch input dim"]
    ) -> Float[Tensor, "batch input vocab"]:
        """Log-probabilities of the vocabulary, marginalised over all alignments."""
        call = self._call
        assert call is not None
        tokens = torch.zeros_like(states[..., 0], dtype=torch.long)
        if self.heads.is_chained:
            tokens = self._decoder_tokens(call)
        if call.num_cached and (self.heads.is_chained or (self.past and self.heads.points)):
            raise ValueError(
                "the latent heads need the states of all tokens before, which a cache has not: "
                "generate(..., use_cache=False)"
            )
        return self._alignment_state(call, states).scores(self.output.widen(states), tokens)

    def _alignment_state(self, call: _Call, states: Tensor) -> OutputState:
        """The decoding state of the alignments; reused while a text is generated with a cache."""
        if (
            self._cached_state is not None
            and call.num_cached
            and self._cached_state[0] is call.memory
        ):
            return self._cached_state[1]
        wide_states = self.output.widen(states)
        if self.past:
            valid = self._all_real(states) if call.valid is None else call.valid.bool()
            hidden = self.heads.causal_states(wide_states, valid, self._following_tokens(call))
        else:
            hidden = self._states_with_source(wide_states, call.memory_valid)
        state = self.heads.begin(hidden, MatrixOutput(self.output.weight))
        self._cached_state = None if call.memory is None else (call.memory, state)
        return state

    def _following_tokens(self, call: _Call) -> Int[Tensor, "batch input"] | None:
        """The token after each input token, which copy heads copy; nothing follows the last one."""
        if not self.heads.copies:
            return None
        return F.pad(_tokens_of(call)[:, 1:], (0, 1))

    def _decoder_tokens(self, call: _Call) -> Int[Tensor, "batch input"]:
        """The input tokens of the decoder from the first on."""
        if call.valid is not None and not call.valid[:, 0].all():
            raise ValueError("alignments in a chain begin at the first token: pad on the right")
        return _tokens_of(call)

    def _check_scores(self, _: nn.Module, args: Any, outputs: Any) -> None:
        """Raises an error if scores are not those of the output layer; small ones may be near.

        On a GPU, which each check would wait for, at the first call alone.
        """
        logits, expected_scores = getattr(outputs, "logits", None), self._last_scores
        if not self._recording:
            self._call = self._mask = self._last_scores = None
        if expected_scores is None or logits is None:
            return
        if self._checked and logits.device.type != "cpu":
            return
        expected = expected_scores + self.output.added_bias
        actual = logits[:1, -1:].to(expected.dtype)
        if not torch.allclose(actual, expected, rtol=NEAR, atol=NEAR, equal_nan=True):
            raise ValueError(
                f"{type(self.network).__name__} changes the scores of its output layer, by a scale "
                "or a softcap: alignments cannot stand above it"
            )
        self._checked = True


def _tokens_of(call: _Call) -> Int[Tensor, "batch input"]:
    if call.tokens is None:
        raise ValueError("copy heads and chains need the tokens: give the network input_ids")
    return call.tokens


class _ReplacedScores(torch.autograd.Function):
    """Replaces scores; their gradient raises an error."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, replacement: Tensor) -> Tensor:
        return replacement.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise ValueError(
            "the network's own call gives no gradient of alignments: train with lh.fit or Head_ELBO"
        )


def make_output_heads(
    network: Any,
    latents: Sequence[Latent | LatentOptions],
    label_likelihood: Likelihood | None,
) -> tuple[OutputHeads, NetworkOutput] | None:
    """Makes the heads above the decoder of a network; None without such a latent."""
    options = [latent for latent in latents if not latent.kind.selects_heads]
    if not options:
        return None
    if len(options) > 1:
        raise ValueError(
            f"a pre-trained network has one latent above its decoder, got {len(options)}"
        )
    if not isinstance(label_likelihood, NextToken | TargetToken):
        raise ValueError(
            f"alignments explain the tokens of a decoder: {type(network).__name__} predicts none"
        )
    output, is_causal = NetworkOutput(network), not network.config.is_encoder_decoder
    shape = ModelShape(0, (), output.weight.shape[1], is_causal=is_causal)
    (heads,) = make_latents(options, shape, before_blocks=False)
    if not isinstance(heads, OutputHeads):
        raise ValueError(
            f"a pre-trained network has no latents {heads.name}: give it alignments, copy heads, "
            "gates or bernoulli-heads"
        )
    return heads.to(device_of_inputs(network), output.dtype), output
