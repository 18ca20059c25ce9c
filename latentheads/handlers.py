"""Effect handlers: the plug-in network, shared samples, stray parameters; evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pyro
from pyro import poutine
from pyro.distributions import MaskedDistribution
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor, nn
from torch.distributions import Independent, constraints

from latentheads.distributions.heads import HeadVariable
from latentheads.latents.active_heads import Selection
from latentheads.names import SENTENCES, TARGET
from latentheads.passes import one_at_a_time


def plug_in_value(distribution: Any) -> Tensor:
    """The value that a plug-in network uses: a mean, or the mode of a discrete distribution."""
    if isinstance(distribution, HeadVariable):
        return distribution.location
    if isinstance(distribution, Selection):
        return distribution.mode
    if isinstance(distribution, Independent | MaskedDistribution):
        return plug_in_value(distribution.base_dist)
    if distribution.support is constraints.boolean:  # its mode is NaN if both are equally likely
        return (distribution.mean > 0.5).to(distribution.mean.dtype)
    try:
        return distribution.mode if distribution.support.is_discrete else distribution.mean
    except NotImplementedError:
        raise ValueError(
            "a plug-in network uses the mode of discrete distributions and the mean of others: "
            f"{type(distribution).__name__} implements neither"
        ) from None


class PlugIn(Messenger):
    """Set every latent site to its prior's mean or mode: a deterministic network.

    Its likelihood is that of *another* model, and no bound on this one.

    Example:
        >>> with lh.inference.PlugIn():
        ...     once, again = model.token_distribution(batch), model.token_distribution(batch)
        >>> once.log_prob(batch.target) == again.log_prob(batch.target)
        tensor([True, True])
    """

    def _pyro_sample(self, msg: Any) -> None:
        latent = not (msg["is_observed"] or site_is_subsample(msg) or msg["name"] == TARGET)
        if latent and msg["value"] is None:
            msg["value"] = plug_in_value(msg["fn"])
            msg["infer"]["unselected"] = isinstance(msg["fn"], Selection)

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["infer"].get("unselected"):
            raise ValueError(
                f"site {msg['name']!r}: the selection of heads comes from the guide; use the "
                "plug-in network under lh.latents.WithSelection(guide)"
            )


def blocked_from_tracers() -> Any:
    """Hide a pass from outer handlers, except for selections of heads."""
    return poutine.block(hide_fn=lambda site: not isinstance(site["fn"], Selection))


class SharedSamples(Messenger):
    """Sample latents that all sentences share once, and reuse them in all later passes.

    Args:
        values: Values by site, if known already.
    """

    def __init__(self, values: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.values = dict(values or {})

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.values:
            msg["value"] = self.values[msg["name"]]

    def _pyro_post_sample(self, msg: Any) -> None:
        frames = {frame.name for frame in msg["cond_indep_stack"]}
        if not (SENTENCES in frames or msg["is_observed"] or site_is_subsample(msg)):
            self.values[msg["name"]] = msg["value"]


@contextmanager
def isolated_param_store() -> Iterator[None]:
    """Context with an empty Pyro parameter store; only one thread enters at a time.

    The store is global and keyed by name: the second of two Pyro guides would share the parameters
    of the first.
    """
    store = pyro.get_param_store()
    with one_at_a_time(), ExitStack() as contexts:
        # names of tensors outside the store, which its scope forgets
        contexts.callback(setattr, store, "_param_to_name", store._param_to_name)
        contexts.enter_context(store.scope())
        yield


class StrayParameters(Messenger):
    """Record the ``pyro.param`` statements that are no parameters of a module.

    They are not trained.

    Attributes:
        names: Names of the other parameters.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.names: list[str] = []

    def _pyro_post_param(self, msg: Any) -> None:
        value = msg["value"]
        parameter = value.unconstrained() if hasattr(value, "unconstrained") else value
        trained = self.module.parameters()
        if not any(
            parameter is other or parameter.data_ptr() == other.data_ptr() for other in trained
        ):
            self.names.append(msg["name"])
