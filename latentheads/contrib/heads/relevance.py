r"""Relevance of a head for the predictions of a network: layer-wise relevance propagation (LRP).

The rule is that of Ding et al. (2017, https://aclanthology.org/P17-1106), which Voita et al. (2019,
https://arxiv.org/abs/1905.09418) use. A neuron
:math:`v = \sum_u W_{vu} u` distributes its relevance to its inputs by weight ratios,

.. math:: R_u = \sum_v \frac{W_{vu} u}{\sum_{u'} W_{vu'} u'} R_v,
          \qquad\text{so that}\quad \sum_u R_u = \sum_v R_v,

and an activation function passes it through.

**As a gradient.** Write :math:`R_v = v\, g_v`; then :math:`R_u = u \sum_v W_{vu} g_v`: relevance is
input times gradient. It is conserved wherever a step is homogeneous in its inputs,
:math:`v = \sum_u u\, \partial v / \partial u`, so a Transformer is differentiated as if it were:

- Residual sums and ReLU are homogeneous.
- Attention weights are constants, the W in :math:`o_t = \sum_s a_{ts} v_s`, and so are gates:
  queries and keys get no relevance. The latent of an n-gram is its output, which passes it on.
- Layer norm is :math:`\frac\gamma\sigma (x - \bar x) + \beta` with a constant :math:`\sigma`.
- The logit of a token in an adaptive softmax is that of its cluster, if any, plus its own there.
- A bias gets no relevance, and the rule does not cover biases. With :math:`v = z_v + b_v` the bias
  is distributed by the absolute contributions of the inputs,
  :math:`b_v = \sum_u b_v |W_{vu} u| / D_v` with a constant :math:`D_v = \sum_u |W_{vu} u|`:

  .. math:: R_u = \sum_v \frac{W_{vu} u + b_v |W_{vu} u| / D_v}{v} R_v

  To multiply the gradient by :math:`v / z_v` would be the rule taken literally. Where positive and
  negative inputs cancel and the bias does not, this factor is huge: four layers in float32 can lose
  all digits.

  A bias is any summand that does not depend on the inputs. If no input contributes to a neuron, as
  after a feed-forward layer with all units off or after a block without active heads, the neuron
  itself is a bias of the following residual sum.

Relevance starts as the top-1 logit and ends at the inputs of the first layers: embeddings with
their positions. For a model with alignment heads above the decoder, the logit is the one without
them, and they get no relevance. Relevance is conserved, except for the effect of the stabiliser in
:math:`D_v + \epsilon`.

The relevance of a head is the sum over its neurons, :math:`\sum_t o_{ht} \cdot g_{ht}`, divided by
that of all heads of its block, and averaged over the predictions of sentences in which the head is
active. Relevances may be negative, a case the paper does not discuss: here shares are relative to
the sum of *absolute* relevances, which is the same if none is negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from pyro.poutine.messenger import Messenger
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from latentheads.batch import Batch, check_batch
from latentheads.checks import check_positive
from latentheads.contrib.heads.means import Means
from latentheads.contrib.heads.record import Recording
from latentheads.corpora.batches import iterate_batches
from latentheads.corpora.part import Part
from latentheads.frames import in_one_line, make_head_frame
from latentheads.handlers import PlugIn, blocked_from_tracers
from latentheads.latents.latent import check_model
from latentheads.model import HeadModel
from latentheads.names import latent_of
from latentheads.passes import evaluation_mode, frozen_parameters

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Propagated:
    """Relevance for the top-1 logit of every prediction of a batch, in units of logits.

    Attributes:
        heads: Relevance of every head, by block, summed over its queries.
        inputs: Summed relevance of all inputs.
        logit: The top-1 logit, where relevance starts.
        valid: True at predictions that count.
        active: True at heads that are active in a sentence, by block.
    """

    heads: dict[str, Float[Tensor, "batch target head"]]
    inputs: Float[Tensor, "batch target"]
    logit: Float[Tensor, "batch target"]
    valid: Bool[Tensor, "batch target"]
    active: dict[str, Bool[Tensor, "batch head"]]

    __repr__ = in_one_line


@dataclass(frozen=True)
class Relevance:
    """Relevance of the heads of a model, averaged over predictions.

    Attributes:
        shares: By block: relevance of every head, divided by the sum of absolute relevances of its
            block; may be negative. NaN for a head that is never active.
        raw: By block: relevance of every head before the division, in units of logits.
        logit: The mean top-1 logit, where relevance starts.
        inputs: The mean relevance that arrives at the inputs.
        predictions: Number of predictions.
    """

    shares: dict[str, Float[Tensor, " head"]]
    raw: dict[str, Float[Tensor, " head"]]
    logit: float
    inputs: float
    predictions: int

    __repr__ = in_one_line

    def to_frame(self) -> pd.DataFrame:
        """A row for each head, with its share and its relevance."""
        return make_head_frame({"shares": self.shares, "raw": self.raw})


def relevance(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    stabiliser: float = 1e-9,
) -> Relevance:
    """Propagates relevance for each target token and averages over predictions.

    The network runs in evaluation mode with plug-in heads and teacher forcing; to reproduce the
    paper's generation steps, pass generated targets. There is one backward pass per position.

    Args:
        model: A translation or language model.
        batches: A part of a corpus, or batches, each sentence once.
        stabiliser: Keeps denominators away from 0.
    """
    check_model(model)
    means, raw = Means(), Means()
    logit = inputs = 0.0
    predictions = 0
    for batch in iterate_batches(batches, "batches"):
        propagated = propagate(model, batch.to(model.device), stabiliser)
        for block, head_relevance in propagated.heads.items():
            rows = head_relevance[propagated.valid].double()
            active = (
                propagated.active[block].unsqueeze(1).expand(head_relevance.shape)[propagated.valid]
            )
            total = rows.abs().sum(-1, keepdim=True)
            means.add(block, torch.where(total == 0, 0.0, rows / total), active)
            raw.add(block, rows, active)
        logit += float(propagated.logit[propagated.valid].double().sum())
        inputs += float(propagated.inputs[propagated.valid].double().sum())
        predictions += int(propagated.valid.sum())
    if not predictions:
        raise ValueError("batches must hold a target token")
    return Relevance(
        shares=means.result(),
        raw=raw.result(),
        logit=logit / predictions,
        inputs=inputs / predictions,
        predictions=predictions,
    )


def propagate(model: HeadModel, batch: Batch, stabiliser: float = 1e-9) -> Propagated:
    """Propagates relevance from the top-1 logit of every target token to all heads and inputs.

    Args:
        model: A translation or language model; its embeddings are its children whose names end in
            ``embedding``.
        batch: Sentences, on the model's device.
        stabiliser: Keeps denominators away from 0.
    """
    # a denominator that is 0 would give no number, or a wrong one
    check_positive("stabiliser", stabiliser)
    check_batch(batch)
    states, logits, heads, inputs = _run(model, batch, stabiliser)
    # a logit is of the states at its position, so one pass of the output layer is that of all
    (state_gradients,) = torch.autograd.grad(logits, states, torch.ones_like(logits))
    blocks = {block: heads[block.name].joined for block in heads.blocks}
    tensors = [*blocks.values(), *inputs]
    head_relevance: dict[str, list[Tensor]] = {block.name: [] for block in blocks}
    input_relevance: list[Tensor] = []
    for position in range(logits.shape[1]):
        at_position = torch.zeros_like(state_gradients)
        at_position[:, position] = state_gradients[:, position]
        gradients = torch.autograd.grad(
            states, tensors, at_position, retain_graph=True, materialize_grads=True
        )
        for (block, x), gradient in zip(blocks.items(), gradients, strict=False):
            relevance = (x.detach() * gradient).unflatten(-1, (block.heads, -1)).sum(-1)
            head_relevance[block.name].append(relevance.sum(-2))
        input_gradients = zip(inputs, gradients[len(blocks) :], strict=True)
        summed = [(x.detach() * gradient).sum((-1, -2)) for x, gradient in input_gradients]
        input_relevance.append(torch.stack(summed).sum(0))
    return Propagated(
        heads={name: torch.stack(steps, 1) for name, steps in head_relevance.items()},
        inputs=torch.stack(input_relevance, 1),
        logit=logits.detach(),
        valid=batch.target_latent,
        active={block.name: heads[block.name].active for block in blocks},
    )


def _run(
    model: HeadModel, batch: Batch, stabiliser: float
) -> tuple[Tensor, Tensor, Recording, list[Tensor]]:
    """Returns the states, top-1 logit of every target token, heads and inputs, in one graph."""
    heads = Recording(model, keep_gradients=True)
    with ExitStack() as contexts:
        contexts.enter_context(evaluation_mode(model))
        contexts.enter_context(frozen_parameters(model))
        contexts.enter_context(torch.enable_grad())
        inputs = contexts.enter_context(_inputs(model))
        contexts.enter_context(heads)
        rules = _RelevanceRules(stabiliser)
        with blocked_from_tracers(), PlugIn(), _Constants(), rules:
            states = model.states(batch)
        with torch.no_grad():
            top = model.predict(states).argmax(-1, keepdim=True)
        with rules:
            logits = model.predict(states).gather(-1, top).squeeze(-1)
    return states, logits, heads, inputs


@contextmanager
def _inputs(model: nn.Module) -> Iterator[list[Tensor]]:
    """Makes the outputs of the embeddings the leaves of the graph and returns them."""
    leaves: list[Tensor] = []

    def hook(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    modules = [module for name, module in model.named_children() if name.endswith("embedding")]
    if not modules:
        raise ValueError(
            "model must have a child whose name ends in embedding; relevance of pre-trained "
            "networks, which have none, is not supported"
        )
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield leaves
    finally:
        for handle in handles:
            handle.remove()


class _Constants(Messenger):
    """Detaches the values of all sample sites except outputs of n-gram heads."""

    def _pyro_post_sample(self, msg: Any) -> None:
        if latent_of(msg["name"]) != "outputs":
            msg["value"] = msg["value"].detach()


class _RelevanceRules(TorchFunctionMode):
    """Leaves the values of a network unchanged and replaces its gradients by the rules above."""

    def __init__(self, stabiliser: float) -> None:
        super().__init__()
        self.stabiliser = stabiliser
        # by identity, as tensors are hashed; they are kept, so that no other one has their hash
        self.absolute_sums: dict[Tensor, Callable[[], Tensor]] = {}
        self.without_inputs: dict[Tensor, Tensor] = {}
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
        """Replaces functions that have a rule."""
        return self.rules.get(func, func)(*args, **(kwargs or {}))

    def __exit__(self, *reason: Any) -> None:
        """Drops the tensors of the pass."""
        self.absolute_sums.clear()
        self.without_inputs.clear()
        super().__exit__(*reason)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        def absolute() -> Tensor:
            return F.linear(x.abs(), weight.abs())

        z = F.linear(x, weight)
        if bias is not None:
            return self._biased(z, bias, absolute)
        self.absolute_sums[z] = absolute
        return z

    def _matmul(self, x: Tensor, y: Tensor) -> Tensor:
        z = torch.matmul(x, y)
        self.absolute_sums[z] = lambda: torch.matmul(x.abs(), y.abs())
        return z

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
        """Adds; a summand that does not depend on the inputs is a bias, unless it is a mask."""
        x, y = torch.as_tensor(x), torch.as_tensor(y if alpha == 1 else alpha * y)
        if y.requires_grad and not x.requires_grad:
            x, y = y, x
        if not y.requires_grad and x.requires_grad and y.isfinite().all():
            return self._biased(x, y.to(x), self.absolute_sums.get(x, x.abs))
        for residual, added in ((x, y), (y, x)):
            is_bias = self.without_inputs.get(added)
            if is_bias is not None:
                bias = added.detach() * is_bias
                return self._biased(residual, bias, residual.abs) + (added - bias)
        return x + y

    def _biased(self, z: Tensor, bias: Tensor, absolute: Callable[[], Tensor]) -> Tensor:
        """``z + bias``, with the gradient of a function that is homogeneous in the inputs."""
        total = absolute()
        share = bias / (total.detach() + self.stabiliser)
        result = z + bias + (total - total.detach()) * share
        if (total == 0).any():
            self.without_inputs[result] = total == 0
        return result
