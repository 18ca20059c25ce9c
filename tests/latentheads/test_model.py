"""Models take latents, give them back, and decode rows of a batch as if each were alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import latentheads as lh
from latentheads.batch import Batch
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.latent import Latent, LatentPosterior
from latentheads.latents.output_heads import OutputHeads
from latentheads.latents.registry import LATENTS
from latentheads.model import DecodingState, Stepwise
from latentheads.models import LanguageModel, Translation
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, attach, build, jiggle, sizes, small_batch

every_kind = pytest.mark.parametrize("kind", ["translation", "language-model"])


def with_latents(*latents: Any, kind: str = "translation") -> Any:
    if kind == "translation":
        model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=latents)
    else:
        model = LanguageModel(TARGET_TYPES, sizes(), latents=latents)
    return jiggle(model, 0.3).double().eval()


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 1.5])
def test_label_smoothing_is_a_share_below_1(smoothing: float) -> None:
    with pytest.raises(ValueError, match=rf"^label_smoothing must .*, got {smoothing}$"):
        build(label_smoothing=smoothing)


def test_labels_are_smooth_in_training_alone() -> None:
    model = build(label_smoothing=0.3)
    assert (model.train().smoothing, model.eval().smoothing) == (0.3, 0.0)


def test_a_latent_is_found_by_its_class_and_can_be_removed() -> None:
    model = with_latents(CopyOptions())
    (latent,) = model.latents.values()
    assert model.find_latent(type(latent)) is latent is model.output_heads
    assert model.selector is None
    names = [*latent.modules_to_save]
    assert names
    model.remove_latent(latent.name)
    assert model.output_heads is None
    assert not model.latents
    assert all(getattr(model, name) is None for name in names)
    attach("tied", model)(small_batch())


def test_two_latents_of_one_role_exclude_each_other() -> None:
    def refuse(*names: str) -> None:
        with pytest.raises(ValueError, match=f"latents {names[0]} and {names[1]} exclude"):
            with_latents(*(LATENTS[name]() for name in names))

    refuse("selection", "gates")
    refuse("alignments", "alignments")
    above = [n for n in LATENTS if isinstance(with_latents(LATENTS[n]()).output_heads, OutputHeads)]
    for first, second in zip(above, above[1:] + above[:1], strict=True):
        refuse(first, second)


class Running(Latent):
    """A latent that runs the network, and has no form for decoding."""

    name = "running"

    def token_distribution(self, model: Any, batch: Any, choices: Any) -> Any:
        return model.likelihood(model.states(batch, choices), batch)


@every_kind
def test_decoding_without_the_latent_that_runs_the_network_is_refused(kind: str) -> None:
    model = with_latents(CopyOptions(), kind=kind)
    model.latents.clear()
    model.add_latents([Running()])
    with pytest.raises(ValueError, match=r"^latents running run the network, .* decoding_mixture$"):
        model.begin(batch_of(kind))


class Counting(Latent):
    """A latent that counts how often its heads are selected, and selects none."""

    name = "counting"
    passes = 0

    def select_heads(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.passes += 1
        return {}


@every_kind
def test_heads_are_selected_once_in_a_pass_where_none_is_chosen(kind: str) -> None:
    for latents in ([], [CopyOptions()]):
        model, counting = with_latents(*latents, kind=kind), Counting()
        model.add_latents([counting])
        model(batch_of(kind))
        assert counting.passes == 1


class Elsewhere(Latent):
    """A latent with a posterior for sites that no pass samples."""

    name = "elsewhere"

    def __init__(self, *sites: str) -> None:
        self._sites = sites

    @property
    def sites(self) -> tuple[str, ...]:
        return self._sites

    def make_posterior(self, *_: Any) -> LatentPosterior:
        return UnusedPosterior()


class UnusedPosterior(LatentPosterior):
    def posterior_of(self, prior: Any, batch: Batch) -> Any:
        raise AssertionError


def test_a_posterior_of_a_site_that_is_not_sampled_is_refused() -> None:
    model = with_latents()
    model.add_latents([Elsewhere()])
    with pytest.raises(ValueError, match=r"^latent 'elsewhere' has a posterior, and its sites na"):
        attach("mean-field", model)
    model.latents.clear()
    model.add_latents([Elsewhere("decoder.0.alignment.style")])
    guide = attach("mean-field", model)
    with pytest.raises(ValueError, match=r"^site 'decoder.0.alignment.style' has a posterior, an"):
        lh.terms(model, guide, batch_of("translation"))


def batch_of(kind: str) -> Batch:
    batch = small_batch()
    return batch if kind == "translation" else Batch(batch.target, index=batch.index)


MODELS: dict[str, Callable[[str], Any]] = {
    "plain": lambda kind: build(kind, prior="delta").eval(),
    "cascade": lambda kind: build(kind, prior="cascaded").eval(),
    "alignments": lambda kind: with_latents(AlignmentOptions(1), kind=kind),
    "copy": lambda kind: with_latents(CopyOptions(), kind=kind),
}


@torch.no_grad()
def log_probs(model: Any, batch: Batch, select: Callable[[DecodingState], None]) -> Tensor:
    """What the vocabulary scores after the second token, with rows selected after the first."""
    torch.manual_seed(0)
    first, second, *_ = batch.decoder_input.split(1, 1)
    state = model.begin(batch)
    model.step(first, state)
    select(state)
    assert state.position == 1
    return model.step(second, state).log_softmax(-1)


@every_kind
@pytest.mark.parametrize("name", ["plain", "alignments", "copy"])
def test_a_sentence_that_is_kept_is_decoded_as_before(name: str, kind: str) -> None:
    """In any order, and more than once: a beam repeats and drops rows of every tensor."""
    model, batch = MODELS[name](kind), batch_of(kind)
    assert isinstance(model, Stepwise)
    whole = log_probs(model, batch, lambda state: None)
    for order in ([2, 0], [1, 1, 2]):
        index = torch.tensor(order)
        rows = Batch(batch.target, batch.source)
        state = model.begin(rows)
        first, second, *_ = batch.decoder_input.split(1, 1)
        with torch.no_grad():
            model.step(first, state)
            state.select(index)
            kept = model.step(second[index], state).log_softmax(-1)
        torch.testing.assert_close(kept, whole[index])


@every_kind
@pytest.mark.parametrize("name", ["plain", "alignments", "copy"])
def test_hypotheses_of_a_sentence_are_decoded_apart(name: str, kind: str) -> None:
    model, batch = MODELS[name](kind), batch_of(kind)
    first, second, *_ = batch.decoder_input.split(1, 1)
    whole = log_probs(model, batch, lambda state: None)
    with torch.no_grad():
        state = model.begin(batch)
        pairs = torch.stack([first, first + 1], 1)
        model.step(pairs, state)
        state.select(None, torch.tensor([[1, 0]] * 3))
        scores = model.step(second[:, None].expand(-1, 2, -1), state).log_softmax(-1)
    torch.testing.assert_close(scores[:, 1], whole)
    assert not torch.allclose(scores[:, 0], whole)


@given(st.integers(1, 3))
def test_several_tokens_at_once_are_those_one_by_one(cut: int) -> None:
    model, batch = MODELS["plain"]("translation"), small_batch()
    with torch.no_grad():
        whole = model.step(batch.decoder_input, model.begin(batch))
        state = model.begin(batch)
        left, right = batch.decoder_input[:, :cut], batch.decoder_input[:, cut:]
        parts = [model.step(tokens, state) for tokens in (left, right) if tokens.shape[1]]
    torch.testing.assert_close(torch.cat(parts, 1), whole)


def test_log_probabilities_are_at_least_of_single_precision() -> None:
    model = build()
    assert model.density_dtype == torch.float64
    assert model.to(torch.bfloat16).density_dtype == torch.float32


def test_a_model_of_gates_is_asked_for_its_selector() -> None:
    assert with_latents(GateOptions()).selector is not None
