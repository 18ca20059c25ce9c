"""Guides: posteriors that are computed inside the model's own pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, ClassVar, TypeVar, cast, get_args

from pyro import poutine
from pyro.infer.util import is_validation_enabled
from pyro.poutine import Trace
from pyro.poutine.guide import GuideMessenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor, nn

from latentheads.arguments import Configured
from latentheads.batch import Batch, check_batch
from latentheads.checks import check_choice
from latentheads.distributions.heads import HeadVariable
from latentheads.families.family import Dependence
from latentheads.latents.latent import (
    AutoConditionOn,
    Latent,
    LatentModel,
    LatentPosterior,
    Structure,
    check_model,
)
from latentheads.latents.network import NetworkBlock
from latentheads.layers.output import RowOutput
from latentheads.names import Block
from latentheads.parameters import register_parameters
from latentheads.posterior_lookup import as_distribution, check_latent_pairs

P = TypeVar("P", bound=LatentPosterior)

ON_TEXT = "discrete latents and, where words have rows, to logits of a decoder over all positions"
"""The latents whose posterior can be conditioned on a text."""

GUIDE_INFER = "guide_infer"
"""The key of a site's message for the guide's ``infer``, which ``poutine.replay`` replaces."""


def check_argument_order(model: object, guide: object) -> None:
    """Check that the first argument is a model, and the second no class of guides."""
    if isinstance(poutine.unwrap(model), GuideMessenger):
        raise ValueError("model and guide are swapped: give the model first")
    if isinstance(guide, type):
        raise ValueError(
            f"guide must be one such as Cascaded(model), got the class {guide.__name__}"
        )


def check_own_model(model: object, guide: object) -> None:
    """Check that a guide belongs to the model: the guide runs its own, and would ignore another."""
    check_argument_order(model, guide)
    unwrapped = poutine.unwrap(guide)
    if not isinstance(unwrapped, GuideMessenger) or unwrapped.model is model:
        return
    if getattr(model, "module", None) is unwrapped.model:
        raise ValueError(
            f"the guide runs the model itself, not the {type(model).__name__} around it: put that "
            "around both, which stand in one module, Head_ELBO()(model, guide)"
        )
    raise ValueError(
        "this guide belongs to another model: make a guide of this one; handlers such as "
        "poutine.condition go around the call, not around the model"
    )


def check_pair(model: object, guide: object) -> None:
    """Check that a guide is a :class:`ModelGuide` of this model."""
    check_argument_order(model, guide)
    if not isinstance(guide, ModelGuide):
        more = "; Pyro's SVI trains any guide" * callable(guide)
        raise ValueError(
            f"guide must be one such as Cascaded(model), got {type(guide).__name__}{more}"
        )
    if guide.model is not model:
        raise ValueError(
            "guide must be one of this model: it belongs to another; a pair is copied by "
            "deepcopy((model, guide))"
        )


class ModelGuide(Configured, GuideMessenger, nn.Module):
    """A guide that runs inside the model's own pass: one pass computes prior and posterior.

    At every latent site, except those that all sentences share, Pyro calls :meth:`get_posterior`
    with the site's prior, conditioned on all earlier samples. Pairs that carry no latent, which no
    density counts, are sampled from the prior. Unlike Pyro's ``AutoMessenger`` this is a plain
    ``torch.nn.Module``: it registers its parameters in each pass, and they never enter the global
    parameter store.

    Attributes:
        needs_trace: Whether it uses distributions in ``self.trace``. Otherwise training frees them
            as soon as their KL is computed; values are always kept.
        passes: Number of passes of the network for one bound of latent logits.
        is_tied: Whether every posterior is the prior itself: q = p.
        tied_prior: Name of the prior that has this guide's form, for ``--logits.prior tied``.
        structure: Which heads a head of a discrete latent, such as an alignment, is conditioned on
            in the posterior; None: the guide has no posterior of such latents.
        condition_on: The text that the posterior is conditioned on: source, prefix (also the target
            before the word) or target (also the whole target). auto is the target for discrete
            latents and those of your own, and the source for logits; a guide that is constructed
            has the target in its place if it has posteriors of such latents, else the source.
        of_logits: Options for latent logits only. A subclass lists its own, since it may use an
            option in another way.
        of_text: Options of posteriors that are conditioned on a text: those of discrete latents,
            and of the logits of :func:`get_conditioned_block`.
        latent_posteriors: The posteriors of discrete latents and those of your own, by site.
        shared_posteriors: The posteriors of latents that all sentences share, such as a selection
            of heads, by site. Every guide has them.
    """

    num_inputs = 1
    trace: Any
    needs_trace = False
    passes = 1
    is_tied: ClassVar[bool] = False
    tied_prior: str | None = None
    structure: Structure | None = None
    condition_on: AutoConditionOn = "auto"
    of_logits: ClassVar[tuple[str, ...]] = ()
    of_text: ClassVar[tuple[str, ...]] = ()
    _conditioning_batch: Batch | None = None

    def __init__(self, model: LatentModel) -> None:
        check_model(model)
        super().__init__(model)

    @classmethod
    def unused_options(cls, model: LatentModel, options: Mapping[str, Any]) -> dict[str, str]:
        """The changed options that are unused in a model, with the latent that they need."""
        # not inherited: a subclass may use an option of its base in another way
        attributes = vars(cls)
        unused: dict[str, str] = {}
        if not modules_with_noise(model):
            unused |= dict.fromkeys(attributes.get("of_logits", ()), "logits")
        if not model.has_latent_posteriors and get_conditioned_block(model) is None:
            unused |= dict.fromkeys(attributes.get("of_text", ()), ON_TEXT)
        parameters = signature(cls).parameters
        default = {name: parameters[name].default for name in unused}
        return {n: what for n, what in unused.items() if options.get(n, default[n]) != default[n]}

    def post_init(self) -> None:
        """Make the posteriors of latents, after all constructors, on the device of the model.

        Raises:
            ValueError: Options that were given have no effect in this model.
        """
        check_choice("condition_on", self.condition_on, get_args(AutoConditionOn))
        for option, what in self.unused_options(self.model, self.config).items():
            raise ValueError(f"guide.{option} applies only to {what}, and this model has none")
        if self.condition_on == "auto":
            infers = self.structure is not None and self.model.has_latent_posteriors
            self.condition_on = "target" if infers else "source"
        self.latent_posteriors: dict[str, LatentPosterior] = {}
        self.shared_posteriors: dict[str, LatentPosterior] = {}
        structure = self.structure or "mean-field"
        for latent in self.model.latents.values():
            if self.structure is None and not latent.is_shared:
                continue
            posterior = latent.make_posterior(self.model, structure, self.condition_on)
            if posterior is not None:
                # a submodule; the dictionaries below only find it, and hold no parameters
                setattr(self, latent.posterior_name, posterior)
                if not posterior.by_site(latent.sites):
                    raise ValueError(
                        f"latent {latent.name!r} has a posterior, and its sites name no sample site"
                    )
                posteriors = self.shared_posteriors if latent.is_shared else self.latent_posteriors
                posteriors.update(posterior.by_site(latent.sites))
        self.to(self.model.device)

    def latent_posterior(self, name: str, prior: Any) -> Any:
        """The posterior at a site of a discrete latent; at any other site the prior itself.

        Args:
            name: The site.
            prior: The prior there, in this pass.
        """
        posterior = self.latent_posteriors.get(name)
        return prior if posterior is None else posterior.posterior_of(prior, self.batch)

    @property
    def is_target_conditioned(self) -> bool:
        """Whether a posterior is conditioned on a text, which :attr:`condition_on` then names.

        A class that computes posteriors of its own sets its attribute ``condition_on`` for this.
        """
        return bool(self.latent_posteriors) or type(self).condition_on != "auto"

    @abstractmethod
    def get_posterior(self, name: str, prior: Any) -> Any:
        """Return the posterior of a latent site; the prior itself leaves the site unchanged."""

    def prepare(self) -> None:
        """Hook before the pass; does nothing unless overridden."""

    def dependence(self, block: Block) -> Dependence:
        """What the posterior of a head of a block depends on; anything unless overridden."""
        return Dependence()

    def prune(self, block: Block, heads: Sequence[int]) -> None:
        """Keep some heads of a block, and drop the parameters of those that the model pruned."""

    @property
    def posteriors(self) -> dict[str, LatentPosterior]:
        """The posteriors of all latents that have one beside the families of blocks, by site."""
        return self.shared_posteriors | self.latent_posteriors

    def find_posteriors(self, kind: type[P]) -> dict[str, P]:
        """The posteriors of a class, by site."""
        return {site: part for site, part in self.posteriors.items() if isinstance(part, kind)}

    def remove_posterior(self, latent: Latent) -> None:
        """Drop the posterior of a latent that the model no longer samples."""
        for site in getattr(self, latent.posterior_name).by_site(latent.sites):
            self.shared_posteriors.pop(site, None)
            self.latent_posteriors.pop(site, None)
        delattr(self, latent.posterior_name)

    def _posterior_at(self, name: str, prior: Any) -> Any:
        """The posterior of a site, as a distribution of the prior's shape."""
        # a subclass that overrides get_posterior, such as the tied one, has these all the same
        if (shared := self.shared_posteriors.get(name)) is not None:
            return as_distribution(name, shared.posterior_of(prior, self.batch), prior)
        return as_distribution(name, self.get_posterior(name, prior), prior)

    def _pyro_sample(self, msg: Any) -> None:
        """Puts the posterior in the place of the prior, which moves to ``infer``.

        As in Pyro's ``GuideMessenger``: :meth:`get_traces` takes the model's trace from there.
        """
        if not (msg["is_observed"] or site_is_subsample(msg)):
            prior = msg["infer"]["prior"] = msg["fn"]
            msg["fn"] = self._posterior_at(msg["name"], prior)
        # a handler around the guide may still replace this dictionary
        msg[GUIDE_INFER] = msg["infer"]
        prior, posterior = msg["infer"].get("prior"), msg["fn"]
        # pairs that no density counts still affect the block above: if they were not sampled from
        # the prior, they would change the likelihood without a KL
        are_heads = isinstance(prior, HeadVariable) and isinstance(posterior, HeadVariable)
        if are_heads and posterior is not prior:
            posterior.restrict(prior)

    def _pyro_post_sample(self, msg: Any) -> None:
        """Undoes what handlers around the guide did to the prior, before the trace records it.

        Before a site is sampled they run after the guide, and then before it: Pyro's stack is
        passed from the innermost handler to the outermost and back from there.
        """
        guide_infer = msg.pop(GUIDE_INFER, msg["infer"])
        if msg["infer"] is not guide_infer:
            # that of poutine.replay has the prior of the pass that is replayed
            msg["infer"] = msg["infer"] | guide_infer
        if msg["is_observed"] and "prior" in msg["infer"]:
            # observed by poutine.condition around the guide: a likelihood, of the prior alone
            msg["fn"] = msg["infer"].pop("prior").expand(msg["fn"].batch_shape)
        prior, posterior = msg["infer"].get("prior"), msg["fn"]
        # a distribution of another class cannot be restricted: its sample is, after the fact
        if isinstance(prior, HeadVariable) and not isinstance(posterior, HeadVariable):
            msg["value"] = prior.expand(posterior.batch_shape).complete(msg["value"])
        # on a GPU the check would synchronise
        checks = is_validation_enabled() and self.model.device.type == "cpu"
        if checks and isinstance(prior, HeadVariable) and posterior is not prior:
            check_latent_pairs(msg["name"], posterior, prior, msg["value"])
        super()._pyro_post_sample(msg)

    def get_traces(self) -> tuple[Trace, Trace]:
        """The traces of the last pass: the model's and the guide's.

        Raises:
            ValueError: A handler sampled a site without the guide.
        """
        for name, site in self.trace.nodes.items():
            handled = site["type"] != "sample" or "prior" in site["infer"]
            if not (handled or site["is_observed"] or site_is_subsample(site)):
                raise ValueError(
                    f"site {name!r} was sampled by a handler such as poutine.do or "
                    "poutine.uncondition, so that there is no bound: give values by "
                    "poutine.condition or poutine.replay"
                )
        for name in self.posteriors:
            if name not in self.trace.nodes:
                raise ValueError(
                    f"site {name!r} has a posterior, and the model samples no such site: the sites "
                    "of a latent must be those that it samples"
                )
        return cast(tuple[Trace, Trace], super().get_traces())

    def __getstate__(self) -> dict[str, Any]:
        """Everything except the trace of the last pass, whose tensors have a graph."""
        return self.__dict__ | {"trace": Trace()}

    @property
    def model(self) -> LatentModel:
        """The model; not a submodule."""
        return cast(tuple[LatentModel], self._model)[0]

    @property
    def batch(self) -> Batch:
        """The batch that the guide is conditioned on, with its target."""
        return self.model_batch if self._conditioning_batch is None else self._conditioning_batch

    @property
    def model_batch(self) -> Batch:
        """The batch that the model runs on; see :meth:`conditioned_on`."""
        args, kwargs = self.args_kwargs
        batch = args[0] if args else kwargs["batch"]
        check_batch(batch)
        return cast(Batch, batch)

    @contextmanager
    def conditioned_on(self, batch: Batch) -> Iterator[None]:
        """Context in which the guide is conditioned on another batch than the model runs on.

        Args:
            batch: Sentences of the same lengths.
        """
        outer, self._conditioning_batch = self._conditioning_batch, batch
        try:
            yield
        finally:
            self._conditioning_batch = outer

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Run the model with all latents sampled from their posteriors; return all values."""
        self.args_kwargs, self.trace = (args, kwargs), Trace()  # frees the last pass's graph
        try:
            self.prepare()
            with self:
                register_parameters("guide", self)
                self.model(*args, **kwargs)
        finally:
            del self.args_kwargs
        sites = self.trace.nodes.items()
        return {name: site["value"] for name, site in sites if site["type"] == "sample"}


def modules_with_noise(model: LatentModel) -> list[NetworkBlock]:
    """The blocks whose logits have noise."""
    return [
        module
        for module in model.latent_blocks
        if module.has_attention_weights and module.has_noise
    ]


def get_conditioned_block(model: LatentModel) -> NetworkBlock | None:
    """The block whose posterior of logits can be conditioned on the target.

    It is the top decoder block of cross-attention with latent logits, else of causal self-attention
    without a window. None: there is no such block, or the output layer has no row for each token.
    """
    if not isinstance(model.output, RowOutput):
        return None
    candidates = [module for module in modules_with_noise(model) if module.band is None]
    for attention_type in ("decoder-cross", "decoder-self"):
        if blocks := [
            module for module in candidates if module.block.attention_type == attention_type
        ]:
            return max(blocks, key=lambda module: module.block.layer)
    return None
