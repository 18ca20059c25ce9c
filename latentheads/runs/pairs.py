"""A prior and a guide by name, and the pair that they make."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from latentheads.errors import shown
from latentheads.guide import ModelGuide
from latentheads.guides import GUIDES
from latentheads.latents.logits.options import OfGuide, PriorSpec
from latentheads.latents.logits.priors import PRIORS, Prior
from latentheads.model import HeadModel
from latentheads.options import ClassSpec, name_of


class GuideSpec(ClassSpec):
    """A guide and its options, which waits for its model."""

    base: ClassVar[type] = ModelGuide

    @classmethod
    def choices(cls) -> Mapping[str, type]:
        return GUIDES


@dataclass(frozen=True)
class ModelGuidePair:
    """The classes of prior and guide, each with its options.

    Attributes:
        prior_class: Class of the prior.
        prior_options: Its options.
        guide_class: Class of the guide.
        guide_options: Its options, without the model.
    """

    prior_class: type[Prior]
    prior_options: Mapping[str, Any]
    guide_class: type[ModelGuide]
    guide_options: Mapping[str, Any]

    @property
    def prior_name(self) -> str:
        """What the prior is called."""
        return name_of(self.prior_class, PRIORS)

    @property
    def guide_name(self) -> str:
        """What the guide is called."""
        return name_of(self.guide_class, GUIDES)

    @property
    def own(self) -> bool:
        """Whether the prior or the guide is user-defined, and not the library's."""
        return self.prior_class not in PRIORS.values() or self.guide_class not in GUIDES.values()

    def make_prior(self) -> Prior:
        """Makes the prior."""
        return self.prior_class(**self.prior_options)

    def make_guide(self, model: HeadModel) -> ModelGuide:
        """Makes the guide of a model."""
        return self.guide_class(model, **self.guide_options)


def join_pair(prior: PriorSpec, guide: GuideSpec) -> ModelGuidePair:
    """The pair that two names stand for; a prior called tied is that of the guide's own form."""
    prior_class, guide_class = prior.find(), guide.find()
    prior_options, guide_options = dict(prior.options), dict(guide.options)
    if prior_class is OfGuide:
        prior_class = _get_tied_prior(guide_class)
        prior_options = _keep_shared(guide_class, guide_options, prior_class)
        guide_class, guide_options = GUIDES["tied"], {}
    return ModelGuidePair(prior_class, prior_options, guide_class, guide_options)


def _get_tied_prior(guide: type[ModelGuide]) -> type[Prior]:
    if guide.tied_prior is None:
        raise ValueError(
            f"logits.prior tied: guide {name_of(guide, GUIDES)!r} names no prior of its own form; "
            f"choose a prior from {', '.join(PRIORS)}"
        )
    return PRIORS[guide.tied_prior]


def _keep_shared(
    guide: type[ModelGuide], guide_options: Mapping[str, Any], prior: type[Prior]
) -> dict[str, Any]:
    """The guide's options that its tied prior has too; any other changed one is an error."""
    defaults = {n: p.default for n, p in inspect.signature(guide).parameters.items()}
    changed = {name: value for name, value in guide_options.items() if value != defaults[name]}
    for name in set(changed) - set(inspect.signature(prior).parameters):
        raise ValueError(f"logits.prior tied: the prior of this form has no option {shown(name)}")
    return changed
