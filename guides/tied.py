"""The tied guide: the posterior is the prior, q = p, so that every KL is 0. The paper's choice.

Zheng, Wu and Kong 2021, section 4, https://aclanthology.org/2021.acl-long.45.
"""

from __future__ import annotations

from typing import Any

from latentheads.families.family import Dependence
from latentheads.guide import ModelGuide
from latentheads.names import Block


class Tied(ModelGuide):
    """The model's own prior at every site: q = p.

    Training with it maximises the expected likelihood under noise, and is not posterior inference
    (Zheng et al. 2021, section 4): the bound is ``E_p(z|x)[log p(y | z, x)]``.

    Example:
        >>> bound = lh.terms(model, Tied(model), batch)
        >>> bound.how["decoder.0.self.logits"]
        'tied'
        >>> bound.kl["decoder.0.self.logits"]
        tensor([0., 0.], dtype=torch.float64)
    """

    is_tied = True

    def dependence(self, block: Block) -> Dependence:
        return Dependence(across_heads=False, on_lower_logits=False)

    def get_posterior(self, name: str, prior: Any) -> Any:
        return prior
