"""The seam: a guide reads the model in the model's own pass."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar, cast, get_args

import torch
from pyro import poutine
from pyro.poutine import Trace
from pyro.poutine.guide import GuideMessenger
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor, nn

from latentheads.alignment.aligner import AlignmentContext
from latentheads.alignment.distribution import Alignments
from latentheads.alignment.posterior import AlignmentPosterior, AutoConditionOn, Form
from latentheads.arguments import WithOptions
from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch, check_batch
from latentheads.checks import check_least, check_number, check_words
from latentheads.distributions import DeltaHeads, HeadContext, HeadVariable
from latentheads.families import (
    Dependence,
    Family,
    TargetConditioned,
    WordScores,
    check_family,
    check_head_distribution,
)
from latentheads.handlers import register_parameters
from latentheads.layers.output import RowOutput
from latentheads.model import HeadModel
from latentheads.names import SELECTION, Block, block_of
from latentheads.posterior_lookup import as_distribution, conditioned, context_of
from latentheads.selection.distribution import Selection
from latentheads.selection.posterior import SelectionFamily

__all__ = [
    "OF_TEXT",
    "TOLD",
    "Guide",
    "ModelGuide",
    "WithSelection",
    "check_options",
    "check_order",
    "check_own_model",
    "check_pair",
    "find_conditioned_block",
]

OF_TEXT = "alignments and, where words have rows, on a decoder's logits over all positions"
"""What a guide may be told a text about."""

TOLD = "told"
"""Where a site keeps what it was told in ``infer`` as its guide was asked, the prior among it."""


def check_options(hidden: int, scale: float) -> None:
    """Refuses options out of range, whether or not a block of the model uses them.

    Args:
        hidden: Hidden units a head.
        scale: Where the posterior's standard deviation starts.
    """
    check_least({"guide.hidden": hidden}, **{"guide.hidden": 1})
    check_number("guide.scale", scale)
    if not 0 < scale < math.inf:
        raise ValueError(f"guide.scale must be positive and finite, got {scale}")


def check_order(model: object) -> None:
    """Refuses a guide in the model's place.

    Raises:
        ValueError: It is one.
    """
    if isinstance(poutine.unwrap(model), GuideMessenger):
        raise ValueError("model and guide are the wrong way round: say the model first")


def check_own_model(model: object, guide: object) -> None:
    """Refuses a model beside a guide that runs another, which would be passed over.

    Raises:
        ValueError: The two have changed places, or the guide runs another model.
    """
    check_order(model)
    reader = poutine.unwrap(guide)
    if not isinstance(reader, GuideMessenger) or reader.model is model:
        return
    if getattr(model, "module", None) is reader.model:
        raise ValueError(
            f"the guide runs the model itself, not the {type(model).__name__} around it: put that "
            "around both, which stand in one module, Head_ELBO()(model, guide)"
        )
    raise ValueError(
        "this guide reads another model: make a guide of this one; handlers such as "
        "poutine.condition stand around the call, not around the model"
    )


def check_pair(model: object, guide: object) -> None:
    """Refuses a guide that is not one of this model.

    Raises:
        ValueError: The two have changed places, the guide is none, or it reads another model.
    """
    check_order(model)
    if not isinstance(guide, ModelGuide):
        raise ValueError(f"guide must be one such as Cascaded(model), got {type(guide).__name__}")
    if guide.model is not model:
        raise ValueError("guide must be one of this model: it reads another")


class ModelGuide(WithOptions, GuideMessenger, nn.Module):
    """A guide that asks for no pass of its own: the model runs once and is answered at each site.

    At every latent site but a block's selection Pyro calls :meth:`get_posterior` with the site's
    prior, conditioned on all that was drawn before. Pairs that carry no latent, which no density
    counts, are drawn from the prior whatever it answers. Unlike Pyro's ``AutoMessenger`` this is a
    plain module: its parameters are told to ``SVI`` in each pass and never stand in the global
    parameter store.

    Where the model's blocks select their heads, every guide has a posterior of the selection too.

    Attributes:
        selections: The posterior of each block's selection.
        reads_trace: Whether it looks at distributions in ``self.trace``, which training else lets
            go of as soon as their KL is known; values are always there.
        passes: Passes of the network that one bound costs.
        is_tied: Whether every posterior is the prior itself.
        tied_prior: Name of the prior that has this guide's form, for ``--prior tied``.
        alignment_form: What a head of an alignment block reads of others in its posterior; None:
            this guide has no such posterior.
        reads: What the posterior reads of a sentence pair: source, prefix (the words before too) or
            target (the whole target too). auto is the target where alignments are drawn, of logits
            the source; it is one of the three as soon as the guide is made.
        of_logits: Options that act on drawn logits alone. A subclass says its own, for it may put
            the same option to another use.
        of_text: The same of what is conditioned on a text: alignments, and the logits of
            :func:`find_conditioned_block`.
        alignments: The posterior of the alignment blocks; None where there are none.

    Args:
        model: The model to read.
    """

    no_options = ("model",)
    trace: Any
    reads_trace = False
    passes = 1
    is_tied: ClassVar[bool] = False
    tied_prior: str | None = None
    alignment_form: Form | None = None
    reads: AutoConditionOn = "auto"
    of_logits: ClassVar[tuple[str, ...]] = ()
    of_text: ClassVar[tuple[str, ...]] = ()
    _told: Batch | None = None

    def __init__(self, model: HeadModel) -> None:
        if not isinstance(model, HeadModel):
            raise ValueError(
                "model must be one of heads, as Translation or lh.latent(network), "
                f"got {type(model).__name__}"
            )
        super().__init__(model)
        self.selections = nn.ModuleDict()
        self._selecting: dict[str, str] = {}
        for module in model.selecting:
            block, like = module.block, module.output_weight
            assert module.selector is not None
            family = module.selector.posterior(block.chain, like)
            if family is not None:
                self.selections[block.key] = family
                self._selecting[block.site(SELECTION)] = block.key

    @classmethod
    def find_idle(cls, model: HeadModel, options: Mapping[str, Any]) -> dict[str, str]:
        """The options that were changed and act on nothing in a model, with what they act on.

        Args:
            model: The model.
            options: Those that were given.
        """
        own, plain = vars(cls), signature(cls).parameters
        idle: dict[str, str] = {}
        if not _noisy_modules(model):
            idle |= dict.fromkeys(own.get("of_logits", ()), "logits")
        if not model.has_latent_alignments and find_conditioned_block(model) is None:
            idle |= dict.fromkeys(own.get("of_text", ()), OF_TEXT)
        default = {name: plain[name].default for name in idle}
        return {n: what for n, what in idle.items() if options.get(n, default[n]) != default[n]}

    def finish(self) -> None:
        """Makes the posterior of alignments, once the constructor of every subclass is through.

        Raises:
            ValueError: Options that were given act on nothing in this model.
        """
        check_words({"reads": self.reads}, reads=get_args(AutoConditionOn))
        for option, what in self.find_idle(self.model, self.options).items():
            raise ValueError(f"guide.{option} acts on {what} alone, and this model draws none")
        self.alignments: AlignmentPosterior | None = None
        model, form = self.model, self.alignment_form
        aligner = model.alignments
        if aligner is not None and form is not None and not aligner.soft:
            width = model.output.width if isinstance(model.output, RowOutput) else 0
            if self.reads == "auto":
                self.reads = "target"
            self.alignments = AlignmentPosterior(aligner, width, form, self.reads)
        elif self.reads == "auto":
            self.reads = "source"

    def alignment_posterior(self, prior: Alignments) -> Alignments:
        """The posterior of a block of alignments, given what the block knows; or the prior itself.

        Args:
            prior: The block's prior, with its context.
        """
        if self.alignments is None or not isinstance(prior.context, AlignmentContext):
            return prior
        return conditioned(prior, self.alignments(prior.context, self.batch))

    @property
    def is_target_conditioned(self) -> bool:
        """Whether a part of it is told a text, as :attr:`reads` says."""
        return self.alignments is not None

    @abstractmethod
    def get_posterior(self, name: str, prior: Any) -> Any:
        """Answers at a latent site: a distribution, or the prior itself to leave it as it is."""

    def prepare(self) -> None:
        """Runs before the pass; does nothing unless overridden."""

    def dependence(self, block: Block) -> Dependence:
        """What the posterior of one head of a block depends on: anything, unless overridden."""
        return Dependence()

    def prune(self, block: Block, heads: Sequence[int]) -> None:
        """Forgets what belongs to other heads of a block, which the model no longer draws."""

    def settle(self, block: Block) -> None:
        """Forgets the selection of a block, which the model no longer draws."""
        del self.selections[block.key]
        del self._selecting[block.site(SELECTION)]

    def _pyro_sample(self, msg: Any) -> None:
        selection = self._selecting.get(msg["name"])
        if selection is not None and not msg["is_observed"]:
            msg["infer"]["prior"] = msg["fn"]
            msg["fn"] = self.selections[selection]().expand(msg["fn"].batch_shape)
            msg[TOLD] = msg["infer"]
            return
        if not (msg["is_observed"] or site_is_subsample(msg)):
            prior = msg["infer"]["prior"] = msg["fn"]
            msg["fn"] = as_distribution(msg["name"], self.get_posterior(msg["name"], prior), prior)
        msg[TOLD] = msg["infer"]
        prior, posterior = msg["infer"].get("prior"), msg["fn"]
        heads = isinstance(prior, HeadVariable) and isinstance(posterior, HeadVariable)
        # pairs that no density counts may be read by the block above: drawn from another law than
        # the prior they would move the likelihood, and nothing would pay for it
        if heads and posterior is not prior:
            posterior.restrict(prior)

    def _pyro_post_sample(self, msg: Any) -> None:
        told = msg.pop(TOLD, msg["infer"])
        if msg["infer"] is not told:  # by poutine.replay, which knows the prior of another pass
            msg["infer"] = msg["infer"] | told
        if msg["is_observed"] and "prior" in msg["infer"]:
            # by a handler around the guide, which Pyro asks after it: the model's law is scored
            msg["fn"] = msg["infer"].pop("prior").expand(msg["fn"].batch_shape)
        prior = msg["infer"].get("prior")
        if isinstance(prior, HeadVariable) and not isinstance(msg["fn"], HeadVariable):
            msg["value"] = prior.expand(msg["fn"].batch_shape).complete(msg["value"])
        super()._pyro_post_sample(msg)

    def get_traces(self) -> tuple[Trace, Trace]:
        """The traces of the last pass: the model's and the guide's.

        Raises:
            ValueError: A handler drew a site that the guide was not asked for.
        """
        for name, site in self.trace.nodes.items():
            asked = site["type"] != "sample" or "prior" in site["infer"]
            if not (asked or site["is_observed"] or site_is_subsample(site)):
                raise ValueError(
                    f"site {name!r} was drawn by a handler such as poutine.do or "
                    "poutine.uncondition, so that there is no bound: give values by "
                    "poutine.condition or poutine.replay"
                )
        return cast(tuple[Trace, Trace], super().get_traces())

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the trace of a pass, whose tensors have a graph; a copy begins one."""
        return self.__dict__ | {"trace": Trace()}

    @property
    def model(self) -> HeadModel:
        """The model that is read; not a submodule."""
        return cast(tuple[HeadModel], self._model)[0]

    @property
    def batch(self) -> Batch:
        """The batch of this pass, the target included."""
        return self.model_batch if self._told is None else self._told

    @property
    def model_batch(self) -> Batch:
        """The batch that the model runs on, whatever the guide is told."""
        args, kwargs = self.args_kwargs
        batch = args[0] if args else kwargs["batch"]
        check_batch(batch)
        return cast(Batch, batch)

    @property
    def selection_families(self) -> list[SelectionFamily]:
        """The posterior of the selection of every block that selects."""
        return [cast(SelectionFamily, family) for family in self.selections.values()]

    @contextmanager
    def told(self, batch: Batch) -> Iterator[None]:
        """Has the guide read another batch than the model runs on; the model's own pass stays.

        Args:
            batch: Sentences of the same lengths.
        """
        self._told = batch
        try:
            yield
        finally:
            self._told = None

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Runs the model once, every latent drawn from its posterior; returns all values."""
        self.args_kwargs = args, kwargs
        try:
            self.prepare()
            with self:
                register_parameters("guide", self)
                self.model(*args, **kwargs)
        finally:
            del self.args_kwargs
        sites = self.trace.nodes.items()
        return {name: site["value"] for name, site in sites if site["type"] == "sample"}


class Guide(ModelGuide):
    """A posterior over the heads of a model: one family a block.

    A subclass says which family stands at a block. What n-gram heads say has a family too,
    :meth:`outputs`. More freedom: override :meth:`posterior`, which is told the block, the batch
    and the states that the block reads, or :meth:`prepare`. A site of anything else, a latent of
    the user's own, keeps its prior. A constructor is written as that of any module; the families
    are asked for when it is through, so what changes them overrides :meth:`finish`.

    Args:
        model: A model that lists its latent ``blocks``.

    Example:
        >>> from latentheads.families import Gaussian, HeadScale, Identity
        >>> class Sharper(Guide):
        ...     def family(self, block):
        ...         return Gaussian(Identity(), HeadScale(block.heads, 0.5, learned=True))
        >>> lh.terms(model, Sharper(model), batch).how["encoder.0.self.logits"]
        'analytic'
    """

    def finish(self) -> None:
        """Makes the families too."""
        reads = self.reads
        super().finish()
        noisy = [module.block for module in _noisy_modules(self.model)]
        maker = f"{type(self).__name__}.family must return"
        self.families = nn.ModuleDict(
            {block.key: check_family(maker, self.family(block)) for block in noisy}
        )
        self._blocks = {block.site(): block for block in noisy}
        told = find_conditioned_block(self.model)
        if told is not None and reads in ("prefix", "target"):
            output, block = cast(RowOutput, self.model.output), told.block
            width = told.output_weight.shape[0]
            scores = WordScores(block.heads, width, output, target=reads == "target")
            self.families[block.key] = TargetConditioned(
                cast(Family, self.families[block.key]), scores
            )
        for module in self.model.latent_outputs:
            self.families[module.block.key] = self.outputs(module)
            self._blocks[module.site] = module.block

    @abstractmethod
    def family(self, block: Block) -> Family:
        """Makes the posterior family of a block."""

    def outputs(self, module: HeadBlock) -> Family:
        """Makes the posterior family of heads without attention weights, such as n-grams.

        The block knows one that starts at the prior.
        """
        return module.make_posterior()

    @property
    def is_target_conditioned(self) -> bool:
        """Whether alignments or a block's logits are told a text."""
        return super().is_target_conditioned or any(
            isinstance(each, TargetConditioned) for each in self.families.values()
        )

    def posterior(self, block: Block, context: HeadContext) -> HeadVariable:
        """Builds the posterior of a block's logits from what the block knows.

        It is asked for the outputs of n-gram heads too, where they are drawn.

        Args:
            block: The block; its family stands at ``self.families[block.key]``.
            context: The batch, scores, logits below, mask, and the states of queries and keys, as
                the model sees them along this sample.
        """
        return self.families[block.key](context)

    def dependence(self, block: Block) -> Dependence:
        """The dependence of the block's family; none where the block has no family."""
        if block.key not in self.families:
            return Dependence(across_heads=False, on_lower_logits=False)
        return cast(Family, self.families[block.key]).dependence

    def prune(self, block: Block, heads: Sequence[int]) -> None:
        """Forgets what belongs to other heads, and a block without heads."""
        if block.key not in self.families:
            return
        if heads:
            cast(Family, self.families[block.key]).prune(heads)
        else:
            del self.families[block.key]
            self._blocks = {site: b for site, b in self._blocks.items() if b.key != block.key}

    def get_posterior(self, name: str, prior: Any) -> Any:
        """Answers with the family of the block, and with the prior elsewhere."""
        if isinstance(prior, Alignments):
            return self.alignment_posterior(prior)
        block = self._blocks.get(name)
        if block is None or isinstance(prior, DeltaHeads):
            return prior
        law = self.posterior(block, replace(context_of(name, prior), batch=self.batch))
        check_head_distribution(name, law, prior.shape())
        return law


def _noisy_modules(model: HeadModel) -> list[HeadBlock]:
    """The blocks whose logits have noise."""
    return [
        module
        for module in model.latent_blocks
        if module.has_attention_weights and module.has_noise
    ]


def find_conditioned_block(model: HeadModel) -> HeadBlock | None:
    """The block whose logits a guide moves by what it reads of the target.

    It is the uppermost in which a decoder reads its source, or all of its own past where none is
    drawn of those. None: no such logits are drawn, or the words of the model have no rows.
    """
    if not isinstance(model.output, RowOutput):
        return None
    everywhere = [module for module in _noisy_modules(model) if module.band is None]
    for chain in ("decoder-cross", "decoder-self"):
        if found := [module for module in everywhere if module.block.chain == chain]:
            return max(found, key=lambda module: module.block.layer)
    return None


class WithSelection(Messenger):
    """Sets every selection of heads to the likeliest of its posterior: the same at every step.

    Args:
        guide: The guide; one without a selection changes nothing.
        draws: How many selections are drawn from the posterior instead, each for its copy of the
            sentences in a batch that holds as many copies; 0: the likeliest is set.
    """

    def __init__(self, guide: ModelGuide | None, draws: int = 0) -> None:
        super().__init__()
        self.families = nn.ModuleDict() if guide is None else guide.selections
        self.draws = draws

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], Selection) and not msg["is_observed"]:
            block = block_of(msg["name"]).replace(".", "_")
            if block in self.families:
                msg["value"] = self._value_of(self.families[block](), msg["fn"].shape())
                msg["infer"].pop("unselected", None)

    def _value_of(self, law: Selection, shape: torch.Size) -> Tensor:
        if not self.draws:
            return law.mode.expand(shape)
        return law.expand(shape[:-1]).sample(torch.Size([self.draws])).flatten(0, -2)
