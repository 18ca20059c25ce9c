"""The network with latent heads written by hand: plain PyTorch, without Pyro and latentheads.

An independent second implementation of an encoder-decoder Transformer (post-norm, one table for
decoder input and output) for three recipes. It is the yardstick of the benchmark and a reference in
the tests: with the same weights and the same noise it gives the loss of the library.

- ``transformer``: no latents.
- ``coda``: logits = scores + below + MLP(below) + noise; the posterior is the prior, so no KL.
- ``cascaded``: prior N(scores, 1), posterior N(scores + MLP(below), s^2), s one number a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

PAD, BOS = 0, 1
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Pairs:
    """The (query, key) pairs of a block: the softmax's bias, and which pairs carry a latent."""

    bias: Tensor
    latent: Tensor
    count: Tensor

    @classmethod
    def build(cls, readable: Tensor, queries: Tensor, dtype: torch.dtype) -> Pairs:
        """Makes the additive mask and the latent pairs; a row with one key has no latent."""
        counts = readable.sum(-1, keepdim=True)
        bias = torch.zeros(readable.shape, dtype=dtype, device=readable.device)
        bias.masked_fill_(~readable & (counts > 0), -torch.inf)
        latent = (readable & queries[:, :, None] & (counts > 1)).to(dtype)
        return cls(bias[:, None], latent, latent.sum())


def cross_entropy(states: Tensor, table: Tensor, labels: Tensor) -> Tensor:
    """The negative log-likelihood of labels, summed; padding does not count."""
    logits = _wide(F.linear(states, table)).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=PAD, reduction="sum")


def softmax(x: Tensor) -> Tensor:
    """Over the last dimension."""
    return x.softmax(-1)


@dataclass
class PlainTransformer:
    """A step of the network: ``PlainTransformer(...).loss(source, target)``.

    Attributes:
        weights: As :func:`take_weights` gives them.
        recipe: One of those above.
        heads: Heads of every block.
        dropout: Dropout of embeddings and residual steps.
        analytic: Closed-form KL; otherwise the log-ratio of the sample.
        noise: Samples standard normal noise shaped like a tensor.
        drop: Dropout of a tensor, with a probability.
        softmax: Over the last dimension.
        nll: The summed negative log-likelihood of labels, given states and the table.
    """

    weights: Weights
    recipe: str
    heads: int
    dropout: float = 0.0
    analytic: bool = True
    noise: Callable[[Tensor], Tensor] = torch.randn_like
    drop: Callable[[Tensor, float], Tensor] = F.dropout
    softmax: Callable[[Tensor], Tensor] = softmax
    nll: Callable[[Tensor, Tensor, Tensor], Tensor] = cross_entropy

    def __post_init__(self) -> None:
        self.encoder = _layers(self.weights, "encoder", ("self",))
        self.decoder = _layers(self.weights, "decoder", ("self", "cross"))
        self.table = self.weights["output.table.weight"]
        self.source_table = self.weights["source_embedding.table.weight"]
        self.positions = _sinusoids(128, self.table)

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Negative bound of a batch, summed over sentences: cross-entropy plus KL."""
        self.kl = self.table.new_zeros(())
        fed = F.pad(target[:, :-1], (1, 0), value=BOS)
        memory = self.encode(source)
        states = self.decode(fed, memory, source != PAD, target != PAD)
        return self.kl + self.nll(states, self.table, target)

    def encode(self, source: Tensor) -> Tensor:
        """Runs the encoder."""
        valid = source != PAD
        readable = valid[:, None].expand(-1, source.shape[1], -1)
        pairs = Pairs.build(readable, valid, self.table.dtype)
        x, below = self.embed(source, self.source_table), None
        for layer in self.encoder:
            update, below = self.attend(layer["self"], x, None, pairs, below)
            x = self.leave(layer["self"], x, update)
            x = self.leave(layer["feed_forward"], x, self.feed_forward(layer["feed_forward"], x))
        return x

    def decode(self, fed: Tensor, memory: Tensor, valid: Tensor, queries: Tensor) -> Tensor:
        """Runs the decoder on whole sentences."""
        length = fed.shape[1]
        past = torch.ones(length, length, dtype=torch.bool, device=fed.device).tril()
        own = Pairs.build(past.expand(len(fed), -1, -1), queries, self.table.dtype)
        other = Pairs.build(valid[:, None].expand(-1, length, -1), queries, self.table.dtype)
        x, below, across = self.embed(fed, self.table), None, None
        for layer in self.decoder:
            update, below = self.attend(layer["self"], x, None, own, below)
            x = self.leave(layer["self"], x, update)
            update, across = self.attend(layer["cross"], x, memory, other, across)
            x = self.leave(layer["cross"], x, update)
            x = self.leave(layer["feed_forward"], x, self.feed_forward(layer["feed_forward"], x))
        return x

    def embed(self, tokens: Tensor, table: Tensor) -> Tensor:
        """Embeds tokens and adds their positions."""
        if tokens.shape[1] > len(self.positions):
            self.positions = _sinusoids(tokens.shape[1], self.table)
        x = F.embedding(tokens, table, padding_idx=PAD) * table.shape[1] ** 0.5
        return self.drop(x + self.positions[: tokens.shape[1]], self.dropout)

    def leave(self, w: Weights, x: Tensor, update: Tensor) -> Tensor:
        """Closes a residual step with its layer norm."""
        x = x + self.drop(update, self.dropout)
        return F.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"])

    def feed_forward(self, w: Weights, x: Tensor) -> Tensor:
        """Two linear layers with a ReLU between them."""
        hidden = F.relu(F.linear(x, w["inner.weight"], w["inner.bias"]))
        return F.linear(hidden, w["outer.weight"], w["outer.bias"])

    def attend(
        self, w: Weights, x: Tensor, memory: Tensor | None, pairs: Pairs, below: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attends with heads sampled from the recipe's prior, and returns their logits."""
        q, k, v = self.project(w, x, memory)
        if self.recipe == "transformer":
            mixed, logits = F.scaled_dot_product_attention(q, k, v, pairs.bias), None
        else:
            scores = _wide((q * q.shape[-1] ** -0.5) @ k.mT)
            logits = self.sample(w, scores, below, pairs)
            mixed = self.softmax(logits + pairs.bias).to(v.dtype) @ v
        joined = mixed.transpose(1, 2).flatten(2)
        return F.linear(joined, w["attention.out.weight"], w["attention.out.bias"]), logits

    def project(
        self, w: Weights, x: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, ``batch head token dim``; fused where one input feeds them."""
        weight, bias, width = w["attention.in_weight"], w["attention.in_bias"], x.shape[-1]
        if memory is None:
            parts = F.linear(x, weight, bias).chunk(3, -1)
        else:
            ours, theirs = weight.split([width, 2 * width])
            our_bias, their_bias = bias.split([width, 2 * width])
            read = F.linear(memory, theirs, their_bias).chunk(2, -1)
            parts = (F.linear(x, ours, our_bias), *read)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        return q, k, v

    def sample(self, w: Weights, scores: Tensor, below: Tensor | None, pairs: Pairs) -> Tensor:
        """Samples a block's logits and adds its KL."""
        noise = self.noise(scores)
        if self.recipe == "coda":
            sampled = scores + noise
            return sampled if below is None else sampled + below + _fusion(w, below)
        log_scale = w["guide.scale.log"]
        scale = log_scale.exp()
        shift = None if below is None else _fusion(w, below)
        self.kl = self.kl + self.divergence(shift, log_scale, scale, noise, pairs)
        sampled = torch.addcmul(scores, scale, noise)
        return sampled if shift is None else sampled + shift

    def divergence(
        self, shift: Tensor | None, log_scale: Tensor, scale: Tensor, noise: Tensor, pairs: Pairs
    ) -> Tensor:
        """KL of N(c + shift, s^2) from N(c, 1) over the latent pairs: exact, or of this sample."""
        if not self.analytic:
            residual = scale * noise if shift is None else torch.addcmul(shift, scale, noise)
            ratio = 0.5 * (residual.square() - noise.square()).sum(1)
            return (ratio * pairs.latent).sum() - log_scale.sum() * pairs.count
        fixed = (0.5 * (scale**2 - 1) - log_scale).sum() * pairs.count
        if shift is None:
            return fixed
        return fixed + 0.5 * (shift.square().sum(1) * pairs.latent).sum()


def take_weights(model: Mapping[str, Tensor], guide: Mapping[str, Tensor] | None = None) -> Weights:
    """Copies the state dicts of a model and its guide into leaves of one flat dictionary."""
    named = {
        name: tensor for name, tensor in model.items() if not name.startswith("target_embedding")
    }
    for name, tensor in (guide or {}).items():
        block, rest = name.removeprefix("families.").split(".", 1)
        stack, layer, kind = block.split("_")
        part = "inner" if kind == "self" else kind
        named[f"{stack}.layers.{layer}.{part}.guide.{rest}"] = tensor
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in named.items()}


def _layers(weights: Weights, stack: str, kinds: tuple[str, ...]) -> list[dict[str, Weights]]:
    """Sorts the weights of a stack by layer and step."""
    depth = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith(f"{stack}."))
    parts = {"self": "inner", "cross": "cross"}
    steps = {kind: parts[kind] for kind in kinds} | {"feed_forward": "feed_forward"}
    return [
        {step: _below(weights, f"{stack}.layers.{n}.{part}") for step, part in steps.items()}
        for n in range(depth)
    ]


def _below(weights: Weights, prefix: str) -> Weights:
    """The weights of a step and of its layer norm, their common prefix cut off."""
    return {
        name.removeprefix(start): tensor
        for start in (f"{prefix}.", f"{prefix}_step.")
        for name, tensor in weights.items()
        if name.startswith(start)
    }


def _fusion(w: Weights, below: Tensor) -> Tensor:
    """A two-layer MLP over the heads of every pair, in full precision."""
    owner = "guide" if "guide.scale.log" in w else "prior"
    layers = f"{owner}.location.fusion.layers"
    with torch.autocast(below.device.type, enabled=False):
        hidden = _over_heads(w[f"{layers}.0.weight"], w[f"{layers}.0.bias"], below.flatten(2))
        mixed = _over_heads(
            w[f"{layers}.1.weight"], w[f"{layers}.1.bias"], F.leaky_relu_(hidden, 0.2)
        )
    return mixed.view_as(below)


def _over_heads(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """A linear layer over the middle dimension of ``batch head pair``."""
    return torch.baddbmm(bias[:, None], weight.expand(len(x), -1, -1), x)


def _wide(x: Tensor) -> Tensor:
    """Half precision to float32."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _sinusoids(length: int, like: Tensor) -> Tensor:
    """Sines in the first half of the width, cosines in the second."""
    half = like.shape[1] // 2
    step = -math.log(10_000.0) / max(half - 1, 1)
    rate = torch.exp(torch.arange(half, device=like.device) * step)
    angle = torch.arange(length, device=like.device)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], 1).to(like.dtype)
