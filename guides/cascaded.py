"""A posterior that reads the logits below: the paper's cascade, with a KL that does not cancel.

Zheng, Wu and Kong 2021, eq. 4, https://aclanthology.org/2021.acl-long.45.
"""

from __future__ import annotations

from latentheads.alignment.posterior import AutoConditionOn
from latentheads.families import Cascade, Family, Gaussian, HeadScale
from latentheads.guide import Guide, check_options
from latentheads.model import HeadModel
from latentheads.names import Block

__all__ = ["Cascaded"]


class Cascaded(Guide):
    r"""Scores plus fused logits below, along each chain, with a scale of its own.

    .. math:: q(z^l \mid z^{l-1}) = N(c^l + \sigma(z^{l-1}), s^2)

    Against the prior N(c, 1) the KL of a block is
    :math:`\tfrac12 \sum [\sigma(z^{l-1})^2 + s^2 - 1 - 2 \log s]`: the price of the cascade.

    Args:
        model: The model to read.
        hidden: Hidden width of the fusion over the number of heads.
        link: Give the fusion the residual link of the paper's App. A. Against an independent prior
            the link alone costs half the squared logits below.
        scale: Where the posterior's standard deviation starts.
        learned_scale: Whether to learn it, one number a head.
        reads: What the posterior reads: source, prefix (the words before too) or target (the whole
            target too). auto: of alignments the target, of logits the source.

    Example:
        >>> bound = lh.terms(model, Cascaded(model, scale=0.5), batch)
        >>> bound.kl["decoder.0.self.logits"] > 0
        tensor([True, True])
    """

    tied_prior = "cascaded"
    alignment_form = "cascaded"
    of_logits = ("hidden", "link", "scale", "learned_scale")
    of_text = ("reads",)

    def __init__(
        self,
        model: HeadModel,
        hidden: int = 4,
        link: bool = False,
        scale: float = 1.0,
        learned_scale: bool = True,
        reads: AutoConditionOn = "auto",
    ) -> None:
        super().__init__(model)
        check_options(hidden, scale)
        self.hidden, self.link = hidden, link
        self.scale, self.learned_scale = scale, learned_scale
        self.reads = reads

    def family(self, block: Block) -> Family:
        """Scores plus fused logits below, with its own scale."""
        location = Cascade(block, self.hidden, self.link, zero=True)
        return Gaussian(location, HeadScale(block.heads, self.scale, self.learned_scale))
