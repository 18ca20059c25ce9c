"""A posterior conditioned on the logits below: the paper's cascade, with a KL that is not 0.

Zheng, Wu and Kong 2021, eq. 4, https://aclanthology.org/2021.acl-long.45.
"""

from __future__ import annotations

from latentheads.families.family import Family
from latentheads.families.guide import Guide, check_options
from latentheads.families.location import Cascade
from latentheads.families.normal import Gaussian
from latentheads.families.scale import HeadScale
from latentheads.latents.latent import AutoConditionOn, LatentModel
from latentheads.names import Block


class Cascaded(Guide):
    r"""Scores plus fused logits of the block below of the same attention type, with a free scale.

    .. math:: q(z^l \mid z^{l-1}) = N(c^l + \sigma(z^{l-1}), s^2)

    The KL of a block to the prior N(c, 1) is
    :math:`\tfrac12 \sum [\sigma(z^{l-1})^2 + s^2 - 1 - 2 \log s]`.

    Args:
        model: The model.
        hidden: Hidden width of the fusion, as a multiple of the number of heads.
        link: Use the residual connection of the paper's App. A in the fusion. At the start the KL
            to a prior N(c, 1) is then half the sum of the squared logits below, with a scale of 1.
        scale: Initial standard deviation of the posterior.
        learned_scale: Whether to learn the scale, one number for each head.
        condition_on: The text that the posterior is conditioned on: source, prefix (also the target
            before the word) or target (also the whole target). auto: the target for discrete
            latents, the source for logits.

    Example:
        >>> bound = lh.terms(model, Cascaded(model, scale=0.5), batch)
        >>> bound.kl["decoder.0.self.logits"] > 0
        tensor([True, True])
    """

    tied_prior = "cascaded"
    structure = "cascaded"
    of_logits = ("hidden", "link", "scale", "learned_scale")
    of_text = ("condition_on",)

    def __init__(
        self,
        model: LatentModel,
        hidden: int = 4,
        link: bool = False,
        scale: float = 1.0,
        learned_scale: bool = True,
        condition_on: AutoConditionOn = "auto",
    ) -> None:
        super().__init__(model)
        check_options(hidden, scale)
        self.hidden, self.link = hidden, link
        self.scale, self.learned_scale = scale, learned_scale
        self.condition_on = condition_on

    def family(self, block: Block) -> Family:
        """The family of scores plus fused logits below, with a free scale."""
        location = Cascade(block, self.hidden, self.link, zero=True)
        return Gaussian(location, HeadScale(block.heads, self.scale, self.learned_scale))
