"""The interface of a latent: what model, guide, bound, decoder and pruning ask of it.

A kind of latent is a folder beside this file. Its options (:mod:`latentheads.latents.options`) make
the latent of a model, and :mod:`latentheads.latents.registry` names it. Nothing outside its folder
names a kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast, runtime_checkable

from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.checks import check_instance
from latentheads.latents.network import Choice, LatentNetwork, NetworkBlock, Passes
from latentheads.names import Block

P = TypeVar("P", bound="LatentPosterior")

Structure = Literal["mean-field", "autoregressive", "cascaded"]
"""Heads that a head is conditioned on in a posterior: none; lower ones of its block; those of lower
blocks."""

ConditionOn = Literal["source", "prefix", "target"]
"""The text that a posterior is conditioned on: the source; also the target before a token; or also
the whole target."""

AutoConditionOn = Literal["auto", "source", "prefix", "target"]
"""The guide's option: auto is the target for discrete latents and those of your own, and the source
for logits."""


class LatentPosterior(nn.Module, ABC):
    """The posterior of a latent under a guide, with parameters of its own."""

    @abstractmethod
    def posterior_of(self, prior: Any, batch: Batch) -> Any:
        """The posterior at a site; the prior itself leaves it unchanged.

        Args:
            prior: The prior at the site, in this pass.
            batch: The sentences that the guide is conditioned on, with their targets.
        """

    def by_site(self, sites: Collection[str]) -> Mapping[str, LatentPosterior]:
        """The posterior of each site; by default this one of all.

        Args:
            sites: Those that the latent names.
        """
        return dict.fromkeys(sites, self)

    def set_progress(self, step: int, steps: int, relaxes: bool) -> None:
        """Prepares a step of training, as by the temperature of a relaxation; by default nothing.

        Args:
            step: The step, counted from 0.
            steps: Steps of the whole training.
            relaxes: Whether the loss learns what is discrete by a relaxation.
        """


class BlockPosteriors(nn.ModuleDict):
    """The posteriors of a latent that has one for each block, by the block's key.

    Args:
        posteriors: The posterior of each block.
        word: What the latent is called in the blocks' sites.
    """

    def __init__(self, posteriors: Mapping[Block, LatentPosterior], word: str) -> None:
        super().__init__({block.key: posterior for block, posterior in posteriors.items()})
        self._keys = {block.site(word): block.key for block in posteriors}

    def by_site(self, sites: Collection[str]) -> Mapping[str, LatentPosterior]:
        """The posterior of each block's site."""
        return {site: cast(LatentPosterior, self[key]) for site, key in self._keys.items()}


@runtime_checkable
class HasPosteriors(Protocol):
    """What a latent sees of a guide."""

    def find_posteriors(self, kind: type[P]) -> dict[str, P]:
        """The posteriors of a class, by site."""


class Latent(ABC):
    """A kind of latent of a model, made by its options.

    Attributes:
        name: Its name in the table of latents; the model keeps its modules by this name, and a
            guide its posterior.
        selects_heads: Whether it decides which heads of blocks are active: no two such latents go
            together, and a pruned network has none.
        before_blocks: Whether a model makes its blocks with it: all other latents are made after
            them.
        is_shared: Whether all sentences share its value: then every guide has its posterior, also
            one without a structure, and its KL counts once for the whole corpus.
        copies: Whether its heads may copy the token of the position that they point at.
        temperature: Of the relaxation that the loss ``relaxed`` is of; None: it has none.
    """

    name: ClassVar[str]
    selects_heads: ClassVar[bool] = False
    before_blocks: ClassVar[bool] = False
    is_shared: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    temperature: float | None = None

    @property
    def kind(self) -> type[Latent]:
        """Its class, which its options name too."""
        return type(self)

    @property
    def modules_to_save(self) -> Mapping[str, nn.Module]:
        """Modules with parameters or buffers, by the name that the model keeps them by."""
        return {}

    @property
    def sites(self) -> Collection[str]:
        """The sample sites whose posterior :meth:`make_posterior` makes."""
        return ()

    @property
    def posterior_name(self) -> str:
        """The name that a guide keeps its posterior by, which begins names of its parameters."""
        return self.name

    @property
    def objective(self) -> type[Any] | None:
        """The class of the objective that learns it; None: ``Head_ELBO`` itself."""
        return None

    @property
    def fixed_blocks(self) -> Collection[str]:
        """Names of the blocks none of whose heads can be removed."""
        return ()

    @property
    def is_summed_out(self) -> bool:
        """Whether the distribution of the target is a :class:`SummedOut` over the latent."""
        return False

    @property
    def has_posterior(self) -> bool:
        """Whether guides have a posterior of it for each sentence, in one of several forms."""
        return self.is_summed_out or self.makes_posterior()

    @classmethod
    def makes_posterior(cls) -> bool:
        """Whether it makes a posterior for each sentence."""
        return cls._has("make_posterior") and not cls.is_shared

    @property
    def has_penalty(self) -> bool:
        """Whether its prior has a penalty in training: its KL then has weight 1, in closed form."""
        return False

    def check_blocks(self, model: LatentModel) -> None:  # noqa: B027
        """Raises an error for a model whose blocks it cannot act on; by default none.

        Args:
            model: The model, which has its blocks.
        """

    def check_loss(self, model: LatentModel, loss: object) -> None:  # noqa: B027
        """Raises an error for a loss that does not learn it as its options say; by default none.

        Args:
            model: The model.
            loss: The ``pyro.infer.ELBO`` that training minimises.
        """

    def set_vocabularies(self, source: Any, target: Any) -> None:  # noqa: B027
        """Sets the vocabularies of the model's ids; the default ignores them.

        Args:
            source: The source ``Vocabulary``; None: there is no source.
            target: The target ``Vocabulary``.

        Raises:
            ValueError: The latent cannot be had with these vocabularies.
        """

    @property
    def runs_network(self) -> bool:
        """Whether it has a :meth:`token_distribution`: of all latents of a model at most one."""
        return self._has("token_distribution")

    def excludes(self, other: Latent) -> bool:
        """Whether no model has both: one alone selects heads, and one alone runs the network."""
        both_select = self.selects_heads and other.selects_heads
        return both_select or (self.runs_network and other.runs_network)

    def select_heads(
        self, model: LatentNetwork, batch: Batch, values: Mapping[str, Tensor] | None = None
    ) -> dict[str, Choice]:
        """Which heads are active in this pass, by block; the default decides about none.

        It is called once in a pass, before the first block and outside the plate of sentences.

        Args:
            model: The model.
            batch: The sentences.
            values: Sampled values by site, instead of sampling.
        """
        return {}

    def token_distribution(
        self, model: LatentNetwork, batch: Batch, choices: Mapping[str, Choice] | None
    ) -> TorchDistribution | None:
        """Runs the network and returns the distribution of the scored tokens, a ``Tokens``.

        None: the latent leaves it to the model; see :attr:`runs_network`.

        Args:
            model: The model.
            batch: The sentences.
            choices: The active heads of blocks that select; None: sampled.
        """
        return None

    def decoding_mixture(self, model: LatentNetwork, batch: Batch) -> Passes | None:
        """The passes that decoding runs side by side, for a mixture of whole passes; None: one.

        Args:
            model: The model.
            batch: The sentences.
        """
        return None

    @property
    def decodes(self) -> bool:
        """Whether a model that has it decodes: not if it runs the network in another way."""
        return self._has("decoding_mixture") or not self._has("token_distribution")

    @classmethod
    def _has(cls, method: str) -> bool:
        """Whether its class has a method of its own, in place of the default."""
        return getattr(cls, method) is not getattr(Latent, method)

    def make_posterior(
        self, model: LatentNetwork, structure: Structure, condition_on: ConditionOn
    ) -> LatentPosterior | BlockPosteriors | None:
        """Makes the posterior of a guide; None: guides keep the prior, or have a family by block.

        Args:
            model: The model.
            structure: The guide's structure; mean-field for a shared latent of a guide without.
            condition_on: The text that the posterior is conditioned on.
        """
        return None

    def exact_posterior(self, prior: Any, batch: Batch) -> Any:
        """The exact posterior at a site, for a latent that is summed out.

        Args:
            prior: The prior at the site, in this pass.
            batch: The sentences, with their targets.
        """
        return prior


class LatentModel(LatentNetwork):
    """A network with its latents, as a guide sees it.

    Attributes:
        latents: All latents beside the attention logits, by name.
    """

    latents: dict[str, Latent]

    @property
    @abstractmethod
    def latent_blocks(self) -> Sequence[NetworkBlock]:
        """All blocks with a latent."""

    @property
    def blocks(self) -> list[Block]:
        """The blocks with latent logits, in the order of sampling."""
        return [module.block for module in self.latent_blocks if module.has_attention_weights]

    @property
    def latent_outputs(self) -> Sequence[NetworkBlock]:
        """The latent blocks without attention weights, such as n-grams."""
        return [module for module in self.latent_blocks if not module.has_attention_weights]

    @property
    def is_summed_out(self) -> bool:
        """Whether a latent is summed out: bounds are then sums over all its values."""
        return any(latent.is_summed_out for latent in self.latents.values())

    @property
    def has_latent_posteriors(self) -> bool:
        """Whether guides have a posterior, for each sentence, of a latent beside the logits."""
        return any(latent.has_posterior for latent in self.latents.values())

    def select_heads(
        self, batch: Batch, selections: Mapping[str, Tensor] | None = None
    ) -> dict[str, Choice]:
        """Sample which heads are active, once for all sentences.

        Args:
            batch: The sentences.
            selections: Sampled values by site, instead of sampling.
        """
        choices: dict[str, Choice] = {}
        for latent in self.latents.values():
            choices |= latent.select_heads(self, batch, selections)
        return choices


def check_model(model: object) -> None:
    """Raises an error unless a value is a model with latent heads."""
    accepted = "one of heads, as Translation or lh.latent(network)"
    check_instance("model", model, LatentModel, accepted)
