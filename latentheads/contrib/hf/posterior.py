"""Which heads a corpus needs, of any model and of a network of ``transformers`` as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor

from latentheads.batch import Batch
from latentheads.contrib.hf.model import Pretrained, latent, plain
from latentheads.contrib.hf.registry import owner_of
from latentheads.corpora.part import Part
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior, posterior_of_blocks
from latentheads.model import HeadModel
from latentheads.passes import one_at_a_time


def head_posterior(
    model: Any,
    batches: Part | Mapping[str, Tensor] | Iterable[Batch | Mapping[str, Tensor]],
    blocks: str | Sequence[str] = "",
    *,
    tau: float,
    rate: float = 0.5,
    gibibytes: float = 4.0,
    quiet: bool = False,
) -> HeadPosterior:
    """Compute the posterior over subsets of the heads of some blocks, jointly.

    The layers below the lowest block run once for every batch, all others once for every subset.

    Args:
        model: A trained model: a translation or language model, ``lh.latent(network)``, or a
            ``PreTrainedModel`` itself, which is left as it is.
        batches: A part of a corpus, or batches, each sentence once; of a ``PreTrainedModel`` what a
            tokenizer or a collator gives, with labels where it is not a causal language model.
        blocks: Names of the blocks, in a list or with commas between, with at most 12 heads. Empty:
            the last block.
        tau: The temperature: this number of sentences counts as one. With 1, Bayes' rule, a corpus
            of some size leaves one subset, and probabilities are 0 or 1 even of heads that other
            sentences do without: look at :meth:`HeadPosterior.bootstrap`.
        rate: The prior probability of a head to be active. If another share of heads is needed, a
            calibrated temperature does not make probabilities frequencies.
        gibibytes: Memory that the layers above may take, by an estimate.
        quiet: Show no progress.

    Raises:
        ValueError: There is no such block, the blocks have too many heads, or heads are selected
            or have gates already.

    Example:
        >>> posterior = lh.head_posterior(model, corpus.test, "decoder.0.cross", tau=1)
        >>> float(posterior.inclusion.max()) > 0.9
        True
    """
    with one_at_a_time(), _latent_heads(model) as with_heads:
        if isinstance(with_heads, Pretrained):
            batches = _encode(with_heads, batches)
        options: dict[str, Any] = {"tau": tau, "rate": rate, "gibibytes": gibibytes}
        return posterior_of_blocks(with_heads, cast(Any, batches), blocks, **options, quiet=quiet)


@contextmanager
def _latent_heads(model: Any) -> Iterator[HeadModel]:
    """A model of heads; a network is made one within the ``with`` statement, without noise."""
    model = owner_of(model) or model  # the network of a latent one
    if not hasattr(model, "set_attn_implementation"):
        yield model
        return
    latent_model = latent(model, prior="delta")
    try:
        yield latent_model
    finally:
        plain(latent_model)


def _encode(model: Pretrained, batches: Any) -> Any:
    """Batches, of which those of a tokenizer are encoded."""
    if isinstance(batches, Mapping):
        batches = [batches]
    if isinstance(batches, Part) or not isinstance(batches, Iterable):
        return batches
    return (batch if isinstance(batch, Batch) else model.batch(batch) for batch in batches)
