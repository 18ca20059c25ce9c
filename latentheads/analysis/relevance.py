r"""Relevance of a head for what a network predicts: layer-wise relevance propagation.

The rule is that of Ding et al. (2017, https://aclanthology.org/P17-1106), which Voita et al. (2019,
https://arxiv.org/abs/1905.09418) use. A neuron
:math:`v = \sum_u W_{vu} u` hands its relevance down by weight ratios,

.. math:: R_u = \sum_v \frac{W_{vu} u}{\sum_{u'} W_{vu'} u'} R_v,
          \qquad\text{so that}\quad \sum_u R_u = \sum_v R_v,

and an activation function passes it through.

**As a gradient.** Write :math:`R_v = v\, g_v`; then :math:`R_u = u \sum_v W_{vu} g_v`. The ratios
are gone: relevance is input times gradient. It is conserved wherever a step is homogeneous in its
inputs, :math:`v = \sum_u u\, \partial v / \partial u`, so a Transformer is differentiated as if it
were:

- Residual sums and ReLU are.
- Attention weights are constants, the W in :math:`o_t = \sum_s a_{ts} v_s`, and so are gates:
  queries and keys get no relevance. What is drawn of an n-gram is its output, and hands it on.
- Layer norm is :math:`\frac\gamma\sigma (x - \bar x) + \beta` with a constant :math:`\sigma`.
- The logit of a type in an adaptive softmax is that of its band, if any, plus its own there.
- A bias gets no share. The rule speaks of none; with :math:`v = z_v + b_v` there are two ways:

  *absolute*, the default, hands its part on by the size of the contributions,
  :math:`b_v = \sum_u b_v |W_{vu} u| / D_v` with a constant :math:`D_v = \sum_u |W_{vu} u|`:

  .. math:: R_u = \sum_v \frac{W_{vu} u + b_v |W_{vu} u| / D_v}{v} R_v

  *ratio* keeps the ratios to the letter, and multiplies the gradient behind a bias by
  :math:`v / z_v`. Where positive and negative inputs cancel and the bias does not, this is huge:
  four layers in float32 can lose all digits.

  A bias is whatever is added and does not depend on the inputs. Where nothing contributes to a
  neuron, as behind a feed-forward layer all of whose units are off or behind heads that are all
  silent, the neuron itself is a bias of the residual sum that it stands in.

Relevance begins as the top-1 logit and ends at the inputs of the first layers, embeddings with
their positions. Where alignments stand above the decoder, it is that of what the network says
without them, and they get no share. It is conserved, but for what the stabiliser takes,
:math:`D_v + \epsilon` or :math:`z_v + \epsilon\, \mathrm{sign}(z_v)`.

The relevance of a head is the sum over its neurons, :math:`\sum_t o_{ht} \cdot g_{ht}`, divided by
that of all heads of its block, and averaged over the predictions of sentences in which it speaks.
Relevances may be negative, which the paper does not speak of: here shares are of the sum of
*absolute* relevances, the same where none is negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from pyro.poutine.messenger import Messenger
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from latentheads.analysis.importance import mask_gradient
from latentheads.analysis.means import Means
from latentheads.analysis.record import Recording
from latentheads.batch import Batch
from latentheads.checks import check_word
from latentheads.corpora import Part
from latentheads.corpora.batches import every_batch
from latentheads.handlers import PlugIn, blocked_from_tracers, evaluation_mode
from latentheads.model import HeadModel
from latentheads.names import latent_of

__all__ = ["BIASES", "SHARES", "Propagated", "Relevance", "propagate", "relevance"]

SHARES = ("absolute", "sum")
BIASES = ("absolute", "ratio")


@dataclass(frozen=True)
class Propagated:
    """Relevance for the top-1 logit of every prediction of a batch, in units of logits.

    Attributes:
        heads: Of every head, by block, summed over the queries at which it spoke.
        inputs: Of all inputs together.
        logit: The logit, where relevance begins.
        real: True at predictions that count.
        speaks: True at the heads that speak in a sentence, by block.
    """

    heads: dict[str, Float[Tensor, "batch target head"]]
    inputs: Float[Tensor, "batch target"]
    logit: Float[Tensor, "batch target"]
    real: Bool[Tensor, "batch target"]
    speaks: dict[str, Bool[Tensor, "batch head"]]


@dataclass(frozen=True)
class Relevance:
    """Relevance of the heads of a model, averaged over predictions.

    Attributes:
        shares: Of every head in its block, by block; NaN of a head that never speaks.
        raw: The same before division, in units of logits.
        logit: The mean top-1 logit, where relevance begins.
        inputs: The mean of the relevance that arrives at the inputs.
        predictions: How many there were.
    """

    shares: dict[str, Float[Tensor, " head"]]
    raw: dict[str, Float[Tensor, " head"]]
    logit: float
    inputs: float
    predictions: int


def relevance(
    model: HeadModel,
    parts: Part | Iterable[Batch],
    shares: str = "absolute",
    biases: str = "absolute",
    stabiliser: float = 1e-9,
) -> Relevance:
    """Propagates relevance for each target token and averages.

    The network is the plug-in one in evaluation mode, and reads the targets of the batches: for
    the paper's generation steps give it what it generated. There is one backward pass a position.

    Args:
        model: A translation or language model.
        parts: A part of a corpus, or batches, each sentence once.
        shares: Divide a head's relevance by the sum over its block of absolute relevances, or by
            their plain sum, which may be near 0: one of ``SHARES``.
        biases: How a bias hands its part on, one of ``BIASES``.
        stabiliser: Keeps denominators off 0.
    """
    check_word("shares", shares, SHARES)
    means, raw = Means(), Means()
    logit = inputs = 0.0
    predictions = 0
    for batch in every_batch(parts, "parts"):
        found = propagate(model, batch.to(model.device), biases, stabiliser)
        for block, each in found.heads.items():
            rows = each[found.real].double()
            speaks = found.speaks[block].unsqueeze(1).expand(each.shape)[found.real]
            means.add(block, _divided(rows, shares), speaks)
            raw.add(block, rows, speaks)
        logit += float(found.logit[found.real].double().sum())
        inputs += float(found.inputs[found.real].double().sum())
        predictions += int(found.real.sum())
    if not predictions:
        raise ValueError("parts must hold a target token")
    return Relevance(
        shares=means.result(),
        raw=raw.result(),
        logit=logit / predictions,
        inputs=inputs / predictions,
        predictions=predictions,
    )


def _divided(rows: Float[Tensor, "prediction head"], shares: str) -> Tensor:
    total = rows.abs().sum(-1, keepdim=True) if shares == "absolute" else rows.sum(-1, keepdim=True)
    return torch.where(total == 0, 0.0, rows / total)


def propagate(
    model: HeadModel, batch: Batch, biases: str = "absolute", stabiliser: float = 1e-9
) -> Propagated:
    """Propagates relevance from the top-1 logit of every target token to all heads and inputs.

    Args:
        model: A translation or language model; its embeddings are its children whose names end in
            ``embedding``.
        batch: Sentences, on the model's device.
        biases: How a bias hands its part on, one of ``BIASES``.
        stabiliser: Keeps denominators off 0.
    """
    check_word("biases", biases, BIASES)
    if stabiliser <= 0:
        raise ValueError(f"stabiliser must be positive, got {stabiliser}")
    logits, heads, inputs = _run(model, batch, biases, stabiliser)
    blocks = {block: heads[block.name].joined for block in heads.blocks}
    reached = [*blocks.values(), *inputs]
    arrived: dict[str, list[Tensor]] = {block.name: [] for block in blocks}
    left: list[Tensor] = []
    for place in range(logits.shape[1]):
        seed = torch.zeros_like(logits)
        seed[:, place] = 1.0
        gradients = torch.autograd.grad(
            logits, reached, seed, retain_graph=True, materialize_grads=True
        )
        for (block, x), gradient in zip(blocks.items(), gradients, strict=False):
            spoken = mask_gradient(x.detach(), gradient, block.heads)
            arrived[block.name].append(spoken.sum(-2))
        ends = zip(inputs, gradients[len(blocks) :], strict=True)
        left.append(torch.stack([(x.detach() * g).sum((-1, -2)) for x, g in ends]).sum(0))
    return Propagated(
        heads={name: torch.stack(each, 1) for name, each in arrived.items()},
        inputs=torch.stack(left, 1),
        logit=logits.detach(),
        real=batch.target_drawn,
        speaks={block.name: heads[block.name].speaks for block in blocks},
    )


def _run(
    model: HeadModel, batch: Batch, biases: str, stabiliser: float
) -> tuple[Tensor, Recording, list[Tensor]]:
    """The top-1 logit of every target token, the heads and the inputs, all in one graph."""
    heads = Recording(model, keep_gradients=True)
    with ExitStack() as around:
        around.enter_context(evaluation_mode(model))
        around.enter_context(_frozen(model))
        around.enter_context(torch.enable_grad())
        inputs = around.enter_context(_inputs(model))
        around.enter_context(heads)
        ratios = _Ratios(biases, stabiliser)
        with blocked_from_tracers(), PlugIn(), _Constants(), ratios:
            states = model.states(batch)
        with torch.no_grad():
            top = model.predict(states).argmax(-1, keepdim=True)
        with ratios:
            logits = model.predict(states).gather(-1, top).squeeze(-1)
    return logits, heads, inputs


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Freezes the parameters, so that only what depends on the inputs has a gradient."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_()


@contextmanager
def _inputs(model: nn.Module) -> Iterator[list[Tensor]]:
    """Makes the outputs of the embeddings the leaves of the graph, and lists them."""
    found: list[Tensor] = []

    def hook(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        found.append(output.detach().requires_grad_())
        return found[-1]

    modules = [part for name, part in model.named_children() if name.endswith("embedding")]
    if not modules:
        raise ValueError(
            "model must have a child whose name ends in embedding, where inputs are; a pre-trained "
            "network has none: its relevance is not known"
        )
    handles = [part.register_forward_hook(hook) for part in modules]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


class _Constants(Messenger):
    """Takes the values of all sites as constants, but for what heads say."""

    def _pyro_post_sample(self, msg: Any) -> None:
        if latent_of(msg["name"]) != "outputs":
            msg["value"] = msg["value"].detach()


class _Ratios(TorchFunctionMode):
    """Runs a network with the same values and with the gradients of the module's docstring.

    Args:
        biases: The rule for them.
        stabiliser: Keeps denominators off 0.
    """

    def __init__(self, biases: str, stabiliser: float) -> None:
        super().__init__()
        self.biases, self.stabiliser = biases, stabiliser
        self.sizes = _Notes[Callable[[], Tensor]]()
        self.bare = _Notes[Tensor]()
        self.rules: dict[Any, Callable[..., Tensor]] = {
            F.linear: self._linear,
            F.layer_norm: self._layer_norm,
            torch.softmax: lambda x, *args, **kwargs: torch.softmax(x, *args, **kwargs).detach(),
            Tensor.log_softmax: lambda x, *_, **__: x,
            **dict.fromkeys((torch.matmul, Tensor.matmul), self._matmul),
            **dict.fromkeys((torch.add, Tensor.add), self._add),
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Replaces the functions that have a rule."""
        return self.rules.get(func, func)(*args, **(kwargs or {}))

    def __exit__(self, *reason: Any) -> None:
        """Forgets the tensors of the pass."""
        self.sizes.notes.clear()
        self.bare.notes.clear()
        super().__exit__(*reason)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        def absolute() -> Tensor:
            return F.linear(x.abs(), weight.abs())

        z = F.linear(x, weight)
        return self.sizes.note(z, absolute) if bias is None else self._biased(z, bias, absolute)

    def _matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.sizes.note(torch.matmul(x, y), lambda: torch.matmul(x.abs(), y.abs()))

    def _layer_norm(
        self,
        x: Tensor,
        shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.detach().square().mean(-1, keepdim=True) + eps).rsqrt()
        if weight is not None:
            scale = scale * weight
        z = centred * scale
        if bias is None:
            return z

        def absolute() -> Tensor:
            size = x.abs()
            return scale.abs() * (size * (1 - 2 / x.shape[-1]) + size.mean(-1, keepdim=True))

        return self._biased(z, bias, absolute)

    def _add(self, x: Any, y: Any, *, alpha: float = 1) -> Tensor:
        """A sum: what does not depend on the inputs is a bias, unless it hides keys by -inf."""
        x, y = torch.as_tensor(x), torch.as_tensor(y if alpha == 1 else alpha * y)
        if y.requires_grad and not x.requires_grad:
            x, y = y, x
        if not y.requires_grad and x.requires_grad and y.isfinite().all():
            return self._biased(x, y.to(x), self.sizes.of(x) or x.abs)
        for carried, added in ((x, y), (y, x)):
            bare = self.bare.of(added)
            if bare is not None:
                bias = added.detach() * bare
                return self._biased(carried, bias, carried.abs) + (added - bias)
        return x + y

    def _biased(self, z: Tensor, bias: Tensor, absolute: Callable[[], Tensor]) -> Tensor:
        """``z + bias``, with the gradient of a function that is homogeneous in the inputs."""
        fixed, total = z.detach(), absolute()
        if self.biases == "ratio":
            denominator = fixed + torch.copysign(torch.full_like(fixed, self.stabiliser), fixed)
            found = fixed + bias + (z - fixed) * ((fixed + bias) / denominator)
        else:
            share = bias / (total.detach() + self.stabiliser)
            found = z + bias + (total - total.detach()) * share
        return self.bare.note(found, total == 0) if (total == 0).any() else found


N = TypeVar("N")


class _Notes(Generic[N]):
    """Notes on single tensors of a pass."""

    def __init__(self) -> None:
        self.notes: dict[int, tuple[Tensor, N]] = {}

    def note(self, x: Tensor, said: N) -> Tensor:
        """Keeps a note on a tensor, and the tensor itself, so that no other gets its id."""
        self.notes[id(x)] = x, said
        return x

    def of(self, x: Tensor) -> N | None:
        """The note on a tensor; None where there is none."""
        return self.notes[id(x)][1] if id(x) in self.notes else None
