"""Ensembles: their averaged predictive distributions and their translations.

- :class:`SingleModel`: one network, heads at their prior's location. Latent alignments are
  marginalised: their positions are the members, whose disagreement is exact in one pass.
- :class:`HeadSamples`: samples of the heads from their prior, each fixed for a sentence.
- :class:`MCDropout`: passes with dropout enabled (Gal and Ghahramani 2016,
  https://arxiv.org/abs/1506.02142), heads at their location or sampled.
- :class:`DeepEnsemble`: independently trained networks (Lakshminarayanan et al. 2017,
  https://arxiv.org/abs/1612.01474).
- :class:`NoisyEnsemble`: a control for head samples: noise in a network trained without any.

A guide only selects which heads are active: its posterior is conditioned on the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import (
    check_as_many,
    check_instance,
    check_least,
    check_list,
    check_not_empty,
)
from latentheads.contrib.speech.spec_augment import SpecAugment
from latentheads.contrib.uncertainty.prediction import Prediction, mix_distributions
from latentheads.decoding.ensemble import ensemble_search
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import search
from latentheads.distributions.heads import standard_normal
from latentheads.distributions.normal import DeltaHeads
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.handlers import WithSelection
from latentheads.latents.output_heads import DecomposableState
from latentheads.layers.numeric import full_precision
from latentheads.model import Decoder
from latentheads.noise import fixed_noise
from latentheads.passes import evaluation_mode


class Ensemble(ABC):
    """Several predictive distributions of the same tokens.

    Attributes:
        members: Number of members.
    """

    members: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(members={self.members})"

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of its networks."""

    @abstractmethod
    def predict(self, batch: Batch) -> Prediction:
        """Predicts every target token of a batch given the tokens before it."""

    @abstractmethod
    def translate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Translates the sources of a batch into tokens, ended by EOS."""


def _check_pair(model: object, guide: ModelGuide | None) -> None:
    """Checks that a model can decode, and that a guide is its own."""
    check_instance("model", model, Decoder, "one that decodes, Translation or LanguageModel")
    if guide is not None:
        check_pair(model, guide)


@contextmanager
def dropout_enabled(model: Decoder) -> Iterator[None]:
    """Enables dropout, but neither label smoothing nor SpecAugment."""
    with evaluation_mode(model):
        for module in model.modules():
            module.training = module is not model and not isinstance(module, SpecAugment)
        yield


class _AddedNoise(Messenger):
    """Adds Gaussian noise to heads that have none."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], DeltaHeads) and msg["value"] is None:
            location = msg["fn"].location
            msg["value"] = location + self.scale * standard_normal(location)


def _log_probs(model: Decoder, batch: Batch) -> tuple[Tensor, Any]:
    """Log-probabilities of all tokens at every target position, and the decoding state."""
    state = model.begin(batch)
    logits = full_precision(model.step(batch.decoder_input, state))
    return logits.log_softmax(-1), state


class _OneNetwork(Ensemble):
    """Predictive distributions of one network, whose heads its guide selects."""

    model: Decoder
    guide: ModelGuide | None

    @property
    def device(self) -> torch.device:
        return self.model.device


class SingleModel(_OneNetwork):
    """One network with heads at their prior's location and heads above the decoder summed out."""

    members = 1

    def __init__(self, model: Decoder, guide: ModelGuide | None = None) -> None:
        _check_pair(model, guide)
        self.model, self.guide = model, guide

    def predict(self, batch: Batch) -> Prediction:
        """The network's prediction; the values of summed latents are the ensemble."""
        on_device = batch.to(self.model.device)
        with eval_no_grad(self.model), PlugIn(), WithSelection(self.guide):
            log_probs, state = _log_probs(self.model, on_device)
            heads = state.output_heads
            if heads is None or not self.model.is_summed_out:
                return Prediction.of_one(log_probs, on_device.target)
            if not isinstance(heads, DecomposableState):
                latents = self.model.latents.items()
                names = ", ".join(name for name, latent in latents if latent.is_summed_out)
                raise ValueError(
                    f"{names} cannot decompose uncertainty: "
                    f"{type(heads).__name__} has no decompose_uncertainty(probs, tokens)"
                )
            data_uncertainty, mean_log, reverse_mutual_information = heads.decompose_uncertainty(
                log_probs.exp(), on_device.target
            )
        return Prediction(
            log_probs, mean_log, data_uncertainty, reverse_mutual_information.clamp_min(0)
        )

    def translate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        with eval_no_grad(self.model), WithSelection(self.guide):
            return search(self.model, batch.to(self.model.device), decoding, 0)


class SampledEnsemble(_OneNetwork):
    """Several stochastic passes of one network, computed as one batch."""

    sentence_level = False

    def __init__(self, model: Decoder, guide: ModelGuide | None = None, members: int = 8) -> None:
        _check_pair(model, guide)
        check_least({"members": members}, members=1)
        self.model, self.guide, self.members = model, guide, members

    @abstractmethod
    def sampling_context(self) -> AbstractContextManager[Any]:
        """The context in which a pass is sampled."""

    def selection_context(self, num_samples: int) -> WithSelection:
        """The context that selects the heads of each sample: the likeliest ones in all."""
        return WithSelection(self.guide)

    def predict(self, batch: Batch) -> Prediction:
        """The prediction of all samples, computed on the batch repeated once for each."""
        on_device = batch.to(self.model.device)
        with (
            eval_no_grad(self.model),
            self.selection_context(self.members),
            self.sampling_context(),
        ):
            log_probs, _ = _log_probs(self.model, on_device.repeated(self.members))
        members = log_probs.unflatten(0, (self.members, -1))
        return mix_distributions(
            list(members), on_device.target, sentence_level=self.sentence_level
        )

    def translate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Translates by beam search under the mean distribution of the samples."""
        return self._translate(batch, decoding, self.members)

    def translate_with_one_sample(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Translates by beam search under a single sample."""
        return self._translate(batch, decoding, 1)

    def _translate(self, batch: Batch, decoding: Decoding, num_samples: int) -> list[list[int]]:
        with eval_no_grad(self.model), self.selection_context(num_samples), self.sampling_context():
            return search(self.model, batch.to(self.model.device), decoding, num_samples)


class HeadSamples(SampledEnsemble):
    """Samples of the heads from their prior, each fixed for a sentence.

    If the guide selects heads, the selection is sampled too, as in decoding with as many samples.

    Args:
        model: The network.
        guide: Its guide, if that selects heads.
        members: Number of samples.
    """

    sentence_level = True

    def selection_context(self, num_samples: int) -> WithSelection:
        return WithSelection(self.guide, num_samples)

    def sampling_context(self) -> AbstractContextManager[Any]:
        """An empty context: heads are sampled by default."""
        return nullcontext()


class MCDropout(SampledEnsemble):
    """Passes with dropout enabled.

    Args:
        model: The network.
        guide: Its selection of heads is used.
        members: Number of passes.
        heads: Whether heads are sampled too; otherwise they are at their prior's location.
    """

    def __init__(
        self,
        model: Decoder,
        guide: ModelGuide | None = None,
        members: int = 8,
        *,
        heads: bool = False,
    ) -> None:
        super().__init__(model, guide, members)
        self.heads = heads

    @contextmanager
    def sampling_context(self) -> Iterator[None]:
        """Enables dropout; sets heads to their location unless they are sampled."""
        with dropout_enabled(self.model), nullcontext() if self.heads else PlugIn():
            yield

    def translate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Translates without dropout: the passes only score the translation."""
        return SingleModel(self.model, self.guide).translate(batch, decoding)


def has_dropout(model: Decoder, batch: Batch, guide: ModelGuide | None = None) -> bool:
    """Whether two passes with dropout enabled differ, heads at their location."""
    passes = MCDropout(model, guide, members=1)
    with fixed_noise(0, passes.device):
        first, second = (passes.predict(batch).log_probs for _ in range(2))
    return not torch.equal(first, second)


class NoisyEnsemble(SampledEnsemble):
    """A network trained with deterministic heads, with Gaussian noise added to them.

    Args:
        model: The network; its logits are sites, as with prior ``delta``.
        guide: Its guide, if that selects heads.
        members: Number of samples.
        scale: Standard deviation of the noise.
    """

    sentence_level = True

    def __init__(
        self,
        model: Decoder,
        guide: ModelGuide | None = None,
        members: int = 8,
        scale: float = 1.0,
    ) -> None:
        super().__init__(model, guide, members)
        check_least({"scale": scale}, scale=0.0)
        if model.samples_heads or not any(
            block.has_attention_weights for block in model.latent_blocks
        ):
            raise ValueError(
                "noise is added to heads that are sites and have none: make the model with the "
                "prior delta or residual"
            )
        self.scale = scale

    def sampling_context(self) -> AbstractContextManager[Any]:
        return _AddedNoise(self.scale)


class DeepEnsemble(Ensemble):
    """Independently trained networks of one vocabulary, heads at their prior's location.

    Args:
        models: The networks.
        guides: The guide of each; its likeliest selection of heads is used.
    """

    def __init__(
        self, models: Sequence[Decoder], guides: Sequence[ModelGuide | None] | None = None
    ) -> None:
        check_list("models", models)
        check_not_empty("models", models)
        if guides:
            check_as_many("guides", guides, "models", models)
        self.models, self.members = list(models), len(models)
        self.guides = list(guides) if guides else [None] * len(models)
        for model, guide in zip(self.models, self.guides, strict=True):
            _check_pair(model, guide)

    @property
    def device(self) -> torch.device:
        return self.models[0].device

    def predict(self, batch: Batch) -> Prediction:
        """The prediction of the networks with equal weights."""
        members = []
        for model, guide in zip(self.models, self.guides, strict=True):
            on_device = batch.to(model.device)
            with eval_no_grad(model), PlugIn(), WithSelection(guide):
                members.append(_log_probs(model, on_device)[0])
        return mix_distributions(members, batch.target.to(members[0].device))

    def translate(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Translates by beam search under the mean distribution of each token."""
        return ensemble_search(self.models, self.guides, batch, decoding)
