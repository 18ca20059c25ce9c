"""Inference: the bound, the objective, and the report on a whole part."""

from typing import TYPE_CHECKING

from latentheads.lazy import lazy_names

if TYPE_CHECKING:
    from latentheads.decoding.options import Decoding as Decoding
    from latentheads.handlers import PlugIn as PlugIn
    from latentheads.inference.bound import Importance as Importance
    from latentheads.inference.bound import Terms as Terms
    from latentheads.inference.bound import importance as importance
    from latentheads.inference.evaluation import Report as Report
    from latentheads.inference.shuffled import shuffled_target as shuffled_target
    from latentheads.runs.generation import Sampling as Sampling
    from latentheads.runs.texts import generate as generate
    from latentheads.training.comparison import Comparison as Comparison

MODULES = {
    "Comparison": "training.comparison",
    "Decoding": "decoding.options",
    "Importance": "inference.bound",
    "PlugIn": "handlers",
    "Report": "inference.evaluation",
    "Sampling": "runs.generation",
    "Terms": "inference.bound",
    "generate": "runs.texts",
    "importance": "inference.bound",
    "shuffled_target": "inference.shuffled",
}
"""The module of every public name."""

__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, MODULES)
