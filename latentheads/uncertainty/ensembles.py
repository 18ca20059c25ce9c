"""Ensembles: whose predictive distributions are averaged, and how they translate.

- :class:`SingleModel`: one network, its heads at their prior's location. Alignments are summed
  out: their positions are members, and their disagreement is known in one pass, without samples.
- :class:`HeadSamples`: draws of the heads from their prior, each held along a sentence.
- :class:`MCDropout`: passes with dropout on (Gal and Ghahramani 2016,
  https://arxiv.org/abs/1506.02142), of heads at their location or drawn.
- :class:`DeepEnsemble`: networks trained apart (Lakshminarayanan et al. 2017,
  https://arxiv.org/abs/1612.01474).
- :class:`NoisyEnsemble`: the control of head samples: a network that was trained without noise gets
  some.

A guide is asked for nothing but which heads speak: a posterior has seen what is predicted.
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
from latentheads.checks import check_least
from latentheads.decoding.ensemble import ensemble_search
from latentheads.decoding.translate import Decoding, search
from latentheads.distributions import DeltaHeads
from latentheads.distributions.heads import standard_normal
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import PlugIn, evaluation_mode
from latentheads.inference.evaluation import eval_no_grad
from latentheads.layers.numeric import full_precision
from latentheads.layers.spec_augment import SpecAugment
from latentheads.model import Decoder
from latentheads.noise import fixed_noise
from latentheads.uncertainty.prediction import Prediction, mix_distributions

__all__ = [
    "DeepEnsemble",
    "Ensemble",
    "HeadSamples",
    "MCDropout",
    "NoisyEnsemble",
    "SampledEnsemble",
    "SingleModel",
    "dropping_out",
    "has_dropout",
]


class Ensemble(ABC):
    """Several laws of the same tokens.

    Attributes:
        members: How many.
    """

    members: int

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where its networks are."""

    @abstractmethod
    def predict(self, batch: Batch) -> Prediction:
        """The members' laws of every target token of a batch, given those before it."""

    @abstractmethod
    def write(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Translates the sources of a batch into tokens, the end of a sentence the last."""


def _check_model(model: object) -> None:
    """Refuses what does not go on token by token from what decoding keeps."""
    if not isinstance(model, Decoder):
        raise ValueError(
            "a committee is made of models that decode, Translation or LanguageModel, "
            f"got {type(model).__name__}"
        )


@contextmanager
def dropping_out(model: Decoder) -> Iterator[None]:
    """Turns dropout on: no label is smoothed, and nothing hidden of what is heard."""
    with evaluation_mode(model):
        for part in model.modules():
            part.training = part is not model and not isinstance(part, SpecAugment)
        yield


class _NoiseAround(Messenger):
    """Draws heads that have no noise from around where they stand.

    Args:
        scale: Standard deviation of the noise.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], DeltaHeads) and msg["value"] is None:
            location = msg["fn"].location
            msg["value"] = location + self.scale * standard_normal(location)


def _log_laws(model: Decoder, batch: Batch) -> tuple[Tensor, Any]:
    """Log-probabilities of all tokens at every place of a target, and what decoding kept."""
    state = model.begin(batch)
    logits = full_precision(model.step(batch.decoder_input, state))
    return logits.log_softmax(-1), state


class SingleModel(Ensemble):
    """One network at the location of its heads, all alignments summed.

    Args:
        model: The network.
        guide: Whose likeliest selection of heads is used.
    """

    members = 1

    def __init__(self, model: Decoder, guide: ModelGuide | None = None) -> None:
        _check_model(model)
        self.model, self.guide = model, guide

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.model.device

    def predict(self, batch: Batch) -> Prediction:
        """The network's law, and how far its laws given each position differ."""
        here = batch.to(self.model.device)
        with eval_no_grad(self.model), PlugIn(), WithSelection(self.guide):
            log_law, state = _log_laws(self.model, here)
            alignments = state.alignments
            if alignments is None or alignments.aligner.soft:
                return Prediction.of_one(log_law, here.target)
            data, mean_log, reverse = alignments.decompose_uncertainty(log_law.exp(), here.target)
        return Prediction(log_law, mean_log, data, reverse.clamp_min(0))

    def write(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Searches for the likeliest sentences of the network."""
        with eval_no_grad(self.model), WithSelection(self.guide):
            return search(self.model, batch.to(self.model.device), decoding, 0)


class SampledEnsemble(Ensemble):
    """One network, and several draws of it in one pass.

    Args:
        model: The network.
        guide: Whose selection of heads is used.
        members: Draws.
    """

    held = False

    def __init__(self, model: Decoder, guide: ModelGuide | None = None, members: int = 8) -> None:
        _check_model(model)
        if members < 1:
            raise ValueError(f"members must be at least 1, got {members}")
        self.model, self.guide, self.members = model, guide, members

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.model.device

    @abstractmethod
    def drawing(self) -> AbstractContextManager[Any]:
        """The context of a pass in which its sentences are drawn."""

    def selecting(self, draws: int) -> WithSelection:
        """Sets the selection of heads for some draws: the likeliest in all of them."""
        return WithSelection(self.guide)

    def predict(self, batch: Batch) -> Prediction:
        """The laws of all draws: the sentences stand behind each other, once for each."""
        here = batch.to(self.model.device)
        with eval_no_grad(self.model), self.selecting(self.members), self.drawing():
            log_laws, _ = _log_laws(self.model, here.repeated(self.members))
        members = log_laws.unflatten(0, (self.members, -1))
        return mix_distributions(list(members), here.target, self.held)

    def write(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Searches for the likeliest sentences under the mean of the draws."""
        return self._write(batch, decoding, self.members)

    def write_by_one(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Searches under one draw alone: another draw may write something else."""
        return self._write(batch, decoding, 1)

    def _write(self, batch: Batch, decoding: Decoding, draws: int) -> list[list[int]]:
        with eval_no_grad(self.model), self.selecting(draws), self.drawing():
            return search(self.model, batch.to(self.model.device), decoding, draws)


class HeadSamples(SampledEnsemble):
    """Draws of the heads from their prior, each held along a sentence.

    Of their selection, too, where the guide has one: what a network writes with as many draws.
    """

    held = True

    def selecting(self, draws: int) -> WithSelection:
        """Draws the selection of heads with them."""
        return WithSelection(self.guide, draws)

    def drawing(self) -> AbstractContextManager[Any]:
        """An empty context: heads are drawn unless they are set."""
        return nullcontext()


class MCDropout(SampledEnsemble):
    """Passes with dropout on.

    Args:
        model: The network.
        guide: Whose selection of heads is used.
        members: Passes.
        heads: Whether heads are drawn too; else they stand at their location.
    """

    def __init__(
        self,
        model: Decoder,
        guide: ModelGuide | None = None,
        members: int = 8,
        heads: bool = False,
    ) -> None:
        super().__init__(model, guide, members)
        self.heads = heads

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Dropout, and heads at their location unless they are drawn."""
        with dropping_out(self.model), nullcontext() if self.heads else PlugIn():
            yield

    def write(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Searches without dropout: the passes then judge what is written."""
        return SingleModel(self.model, self.guide).write(batch, decoding)


def has_dropout(model: Decoder, batch: Batch, guide: ModelGuide | None = None) -> bool:
    """Whether two passes with dropout on differ, heads at their location.

    Args:
        model: The network.
        batch: What the passes read.
        guide: Whose selection of heads is used.
    """
    passes = MCDropout(model, guide, members=1)
    with fixed_noise(0, passes.device):
        once, again = (passes.predict(batch).log_law for _ in range(2))
    return not torch.equal(once, again)


class NoisyEnsemble(SampledEnsemble):
    """A network that was trained without noise in its heads, with noise around their location.

    Args:
        model: The network.
        guide: Whose selection of heads is used.
        members: Draws.
        scale: Standard deviation of the noise.
    """

    held = True

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
                "noise is put around heads that are sites and have none: make the model with the "
                "prior delta or residual"
            )
        self.scale = scale

    def drawing(self) -> AbstractContextManager[Any]:
        """Noise around the heads."""
        return _NoiseAround(self.scale)


class DeepEnsemble(Ensemble):
    """Networks that were trained apart on one vocabulary, each at the location of its heads.

    Args:
        models: The networks.
        guides: Whose likeliest selections of heads are used, one for each.
    """

    def __init__(
        self, models: Sequence[Decoder], guides: Sequence[ModelGuide | None] | None = None
    ) -> None:
        if not models:
            raise ValueError("models must be at least one")
        for model in models:
            _check_model(model)
        if guides and len(guides) != len(models):
            raise ValueError(
                f"guides must be one for each model, got {len(guides)} of {len(models)}"
            )
        self.models, self.members = list(models), len(models)
        self.guides = list(guides) if guides else [None] * len(models)

    @property
    def device(self) -> torch.device:
        """Where the first network is."""
        return self.models[0].device

    def predict(self, batch: Batch) -> Prediction:
        """The laws of the networks, all counting alike."""
        members = []
        for model, guide in zip(self.models, self.guides, strict=True):
            here = batch.to(model.device)
            with eval_no_grad(model), PlugIn(), WithSelection(guide):
                members.append(_log_laws(model, here)[0])
        return mix_distributions(members, batch.target.to(members[0].device))

    def write(self, batch: Batch, decoding: Decoding) -> list[list[int]]:
        """Searches for the likeliest sentences under the mean law, token by token."""
        return ensemble_search(self.models, self.guides, batch, decoding)
