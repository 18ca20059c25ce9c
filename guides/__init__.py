"""Guides: q(heads | x[, y]), one family a file. ``GUIDES`` is the table of names."""

from guides.autoregressive import Autoregressive
from guides.base import Guide, Reader
from guides.cascaded import Cascaded
from guides.mean_field import MeanField
from guides.tied import Tied

__all__ = ["GUIDES", "Autoregressive", "Cascaded", "Guide", "MeanField", "Reader", "Tied"]

GUIDES: dict[str, type[Reader]] = {
    "tied": Tied,
    "mean-field": MeanField,
    "autoregressive": Autoregressive,
    "cascaded": Cascaded,
}
