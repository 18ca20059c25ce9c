"""Divergence between heads against its definition."""

import math
from dataclasses import replace
from importlib import import_module
from itertools import product
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from latentheads.contrib.heads.divergence import divergence, head_divergence
from latentheads.latents.handlers import WithSelection
from latentheads.latents.selection.strategies import make_selector
from latentheads.models import Translation, make_prior
from tests.tiny import (
    HEADS,
    SOURCE_TYPES,
    TARGET_TYPES,
    attach,
    build,
    latent_logits,
    sizes,
    small_batch,
)


def by_definition(p: torch.Tensor, q: torch.Tensor) -> float:
    middle = (p + q) / 2
    kl = torch.nn.functional.kl_div
    return float((kl(middle.log(), p, reduction="sum") + kl(middle.log(), q, reduction="sum")) / 2)


def test_divergence_equals_its_definition_summed_over_real_queries() -> None:
    weights = torch.softmax(torch.randn(2, 3, 5, 7), -1)
    queries = torch.ones(2, 5, dtype=torch.bool)
    queries[1, 3:] = False
    divergences = head_divergence(weights, queries)
    for sentence, length in enumerate((5, 3)):
        for first, second in product(range(3), repeat=2):
            pairs = zip(*weights[sentence, [first, second], :length], strict=True)
            expected = sum(by_definition(p, q) for p, q in pairs)
            assert float(divergences[sentence, first, second]) == pytest.approx(expected, abs=1e-12)


class Largest(TorchFunctionMode):
    """Notes the most numbers of a tensor that is made."""

    most = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor) and output.untyped_storage().nbytes() > 0:
            self.most = max(self.most, output.untyped_storage().nbytes() // output.element_size())
        return output


@pytest.mark.parametrize("most", [1, 2 * 3 * 3 * 7 * 2, 2**25])
def test_a_long_sentence_is_read_in_stretches(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.softmax(torch.randn(2, 3, 5, 7), -1)
    queries = torch.ones(2, 5, dtype=torch.bool)
    queries[1, 3:] = False
    expected = head_divergence(weights, queries)
    module = import_module("latentheads.contrib.heads.divergence")  # the package has the function
    monkeypatch.setattr(module, "MAX_ELEMENTS", most)
    with Largest() as largest:
        torch.testing.assert_close(head_divergence(weights, queries), expected)
    assert largest.most <= max(most, weights.numel(), 2 * 3 * 3 * 7)


def test_heads_on_different_keys_are_log_two_apart() -> None:
    weights = torch.eye(2)[None, :, None, :]
    computed_divergence = head_divergence(weights, torch.ones(1, 1, dtype=torch.bool))[0]
    assert float(computed_divergence[0, 1]) == pytest.approx(math.log(2))


def test_rounding_makes_no_divergence_negative() -> None:
    logits = torch.linspace(-2, 2, 700).sin().view(100, 1, 1, 7)
    alike = torch.cat([logits, logits + 1e-4 * logits.cos()], 1).float().softmax(-1)
    assert (head_divergence(alike, torch.ones(100, 1, dtype=torch.bool)) >= 0).all()


def test_the_papers_figure_grows_with_length_and_the_normalised_one_does_not() -> None:
    model = build()
    divergences = divergence(model, [small_batch()])
    assert set(divergences.summed) == {block.site() for block in model.blocks}
    site = "encoder.0.self.logits"
    per_sentence = torch.tensor([4.0, 2.0, 5.0]).sum() / 3
    assert torch.allclose(divergences.summed[site], divergences.normalised[site] * per_sentence)


def test_noise_sets_heads_apart() -> None:
    model = build()
    plain = divergence(model, [small_batch()]).average()
    drawn = divergence(model, [small_batch()], attach("tied", model)).average()
    assert drawn > plain > 0


def test_of_a_model_without_latent_blocks_all_are_measured() -> None:
    model = build(blocks="none")
    average = divergence(model, [small_batch()]).average()
    assert average == divergence(model, [small_batch()], latent=False).average()
    assert average is not None


@pytest.mark.parametrize(
    ("strategy", "tasks", "slots"),
    [
        ("subset", 1, {"encoder.0.self.logits"}),
        ("bernoulli", 1, set()),
        ("static", 2, {"encoder.0.self.logits"}),
        ("static", 1, set()),
    ],
)
def test_heads_that_each_task_selects_are_slots(strategy: Any, tasks: int, slots: set[str]) -> None:
    selector = make_selector(strategy, HEADS, 2 * HEADS, ("encoder-self",), tasks, 1)
    latents = [latent_logits(make_prior("delta")), selector]
    model = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(layers=1), latents).double()
    batch = small_batch()
    batch = replace(batch, source_task=torch.zeros(len(batch.target), dtype=torch.long))
    with WithSelection(attach("tied", model)):
        assert divergence(model, [batch]).slots == slots


def test_blocks_without_a_latent_are_measured_when_asked_for() -> None:
    some = build(blocks="decoder-self")
    divergences = divergence(some, [small_batch()], latent=False)
    library = divergence(some, [small_batch()])
    assert len(divergences.summed) == 3 * len(library.summed)
    for site, matrix in library.summed.items():
        torch.testing.assert_close(divergences.summed[site], matrix)
        torch.testing.assert_close(divergences.normalised[site], library.normalised[site])
