"""Long blocks: how many copies of its logits a latent block holds until the backward pass."""

from __future__ import annotations

import gc

import pyro
import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.guides import GUIDES, RECIPES
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.logits.latent import Logits
from latentheads.models import LanguageModel, Network, make_prior
from latentheads.models.network import PreNorm
from tests.crossing import pairwise

LENGTH, HEADS = 64, 8
EXPECTED = {
    "transformer": 2,  # the weights, and the drawn logits in Pyro's trace
    "realformer": 2,
    "coda-cs": 2,
    "coda": 2,
    "coda-released": 3,  # and the input of the fusion
    "cascaded": 3,  # and the noise, for the gradient of the scale
}


def held_pairs(recipe: str, layers: int, half: bool, dropout: float) -> int:
    """Bytes of all that is as large as a byte for every head and pair; parameters are smaller.

    What the graph has saved, and every tensor that Python can reach: so that of Pyro's traces.
    """
    torch.manual_seed(0)
    prior, guide = RECIPES[recipe]
    network = Network(16, 16, HEADS, layers, PreNorm(), dropout=0.1, attention_dropout=dropout)
    model = LanguageModel(13, network, latents=[Logits(make_prior(prior))])
    objective = Head_ELBO(analytic=True)(model, GUIDES[guide](model))
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    gc.freeze()  # what is there now is none of the graph's, and need not be looked through
    with (
        pyro.validation_enabled(False),
        torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=half),
    ):
        _graph = objective(Batch(torch.randint(4, 13, (1, LENGTH))))
    for computed_object in gc.get_objects():
        if issubclass(type(computed_object), Tensor):
            note(computed_object)
    gc.unfreeze()
    return sum(size for size in storages.values() if size >= HEADS * LENGTH**2)


@pairwise(recipe=EXPECTED, half=[False, True], dropout=[0.0, 0.1])
def test_a_block_holds_at_most_three_copies_of_its_logits(
    recipe: str, half: bool, dropout: float
) -> None:
    """A dropped attention weight adds a byte, a quarter of a copy."""
    torch.set_default_dtype(torch.float32)
    third, fourth = (held_pairs(recipe, layers, half, dropout) for layers in (3, 4))
    copies = (fourth - third) / (4 * HEADS * LENGTH**2)
    assert copies == EXPECTED[recipe] + (0.25 if dropout else 0)
    assert copies <= 3.25
