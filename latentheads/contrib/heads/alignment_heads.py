"""Alignment heads of any network with cross-attention, each with a probability.

Which heads show where a word is, how far they lag behind it, and when each word starts, with an
interval: from a few examples, labelled or not.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_fraction, check_instance, check_not_empty
from latentheads.contrib.heads.boundaries.chain import (
    BoundaryChain,
    BoundaryTimes,
    jump_chain,
    noisy_quantiles,
)
from latentheads.contrib.heads.boundaries.fit import (
    FOLDS,
    FitOptions,
    fit_boundary_model,
    left_out_information,
)
from latentheads.contrib.heads.boundaries.model import BoundaryModel
from latentheads.contrib.heads.head_exports import describe_unlikely
from latentheads.contrib.heads.switch import label_head
from latentheads.contrib.heads.word_attention import (
    ForcedExample,
    Head,
    WordAttention,
    get_cross_heads,
    record_word_attention,
)
from latentheads.frames import make_frame
from latentheads.noise import fixed_noise

if TYPE_CHECKING:
    import pandas as pd

Teacher = Callable[[ForcedExample], Sequence[float]]
"""Returns when each word of an example starts, in the unit of the example."""

LEAST_INFORMATION = 1.0
"""Nats of information on where a word starts that an alignment head has, on average."""

TEXT = FitOptions(reach=4, width=0.3)
"""How profiles of text are learned, whose words are a few positions apart: narrower ones."""

RESAMPLES = 2000
"""Samples of the Bayesian bootstrap over examples."""

MISFIT = 0.25
"""Share of the usual log evidence of a word at which attention does not fit its text.

It was chosen on 26 sentences, of which 8 had the words of another one too.
"""

SUFFICIENT = 0.25
"""Nats a boundary that sufficient heads may lose against all chosen ones."""


@dataclass(frozen=True)
class AlignmentHead:
    """What examples show of a head.

    Attributes:
        head: Its layer and index.
        probability: The probability that it is an alignment head: that it has at least a nat of
            information on where a word starts, in the mean over examples. It is the share of
            Bayesian bootstrap weights of the examples for which this holds, not a posterior
            inclusion probability; with one example it is 0 or 1, with two or three it is too sure.
        information: Nats, in the mean over examples, each with profiles that were learned from
            others, and a 90 % interval for fresh examples. Of the best of many heads that are alike
            both are too high. With one example they are those of the example that profiles were
            learned from, too large, and the interval is not a number.
        lag: Median of its attention, less the start of the word, in seconds or positions.
        width: Width of the interval around the lag that has half of its attention.
        background: Share of its attention that does not depend on the word.
        follows: Share of words that it follows.
        at_input: Whether it shows a word at the step whose input is the word's last token, else at
            the step that predicts its first one.
    """

    head: Head
    probability: float
    information: tuple[float, float, float]
    lag: float
    width: float
    background: float
    follows: float
    at_input: bool

    def __repr__(self) -> str:
        return (
            f"{label_head(*self.head)}: P = {self.probability:.2f}, "
            f"{self.information[0]:.1f} nats, lag {self.lag:+.2f}"
        )


@dataclass(frozen=True)
class AlignmentHeads:
    """Alignment heads of a network, learned from examples.

    Attributes:
        model: Profiles, prior and error of boundaries.
        heads: The heads of cross-attention, in the order of the first half of the views.
        information: Nats of information of each view on the boundaries of each example, with
            profiles that were learned from others.
        attentions: The attention of the examples; empty of heads of a file or of ``time_words``.
        step: Seconds of a position; 1: times are positions, as those of text.
        usual_evidence: Median of the examples' log evidence, in nats per word.
    """

    model: BoundaryModel
    heads: Sequence[Head]
    information: Float[Tensor, "example kind view"]
    attentions: Sequence[WordAttention]
    step: float
    usual_evidence: float

    def __repr__(self) -> str:
        probabilities = self.probabilities
        listed = ", ".join(
            f"{label_head(*head)} P = {probabilities[head]:.2f}" for head in self._chosen
        )
        return f"AlignmentHeads({listed}; {len(self.information)} examples)"

    @property
    def chosen(self) -> list[Head]:
        """The heads that boundaries are computed from, best first, whatever their probability.

        Warns:
            UserWarning: No head has a probability above one half.
        """
        self._warn()
        return self._chosen

    @property
    def _chosen(self) -> list[Head]:
        views = self.model.chosen.any(0).unflatten(0, (2, -1)).any(0)
        scores = self._by_head().mean(0)
        order = scores.argsort(descending=True).tolist()
        return [self.heads[index] for index in order if views[index]]

    @property
    def probabilities(self) -> dict[Head, float]:
        """The probability that each head is an alignment head."""
        return {row.head: row.probability for row in self.table()}

    def _by_head(self) -> Float[Tensor, "example head"]:
        """Nats of information of each head on starts, in its better view."""
        views = self.information[:, 0].unflatten(-1, (2, -1))
        best = views.mean(0).argmax(0)
        return views.gather(1, best.expand(len(views), 1, -1))[:, 0]

    def table(self, least: float = LEAST_INFORMATION) -> list[AlignmentHead]:
        """All heads, the most informative first.

        Args:
            least: Nats of information on where a word starts that an alignment head has.
        """
        by_head = self._by_head()
        # the Bayesian bootstrap: the mean over a population of which these are a sample
        concentration = torch.ones(len(by_head), dtype=torch.float64)
        with fixed_noise(0, torch.device("cpu")):
            weights = torch.distributions.Dirichlet(concentration).sample((RESAMPLES,))
        means = weights @ by_head
        probabilities = (means >= least).double().mean(0).tolist()
        intervals = zip(*_mean_and_interval(by_head).tolist())
        rows = [
            self._describe(index, probability, information)
            for index, (probability, information) in enumerate(zip(probabilities, intervals))
        ]
        return sorted(rows, key=lambda row: -row.information[0])

    def to_frame(self, least: float = LEAST_INFORMATION) -> pd.DataFrame:
        """A row for each head of :meth:`table`, the most informative first.

        Args:
            least: As in :meth:`table`.
        """
        rows = self.table(least)
        columns = {name: [getattr(row, name) for row in rows] for name in vars(rows[0])}
        layer, head = zip(*columns.pop("head"))
        mean, low, high = zip(*columns.pop("information"))
        information = {"information": mean, "information_low": low, "information_high": high}
        return make_frame({"layer": layer, "head": head, **information, **columns})

    @cached_property
    def _quartiles(self) -> Int[Tensor, "view level"]:
        """Lags below which are a quarter, half and three quarters of the profile of each view."""
        below = self.model.profiles.densities[0].cumsum(-1)
        levels = torch.tensor([0.25, 0.5, 0.75], dtype=below.dtype)
        return (below[:, None] < levels[:, None]).sum(-1) - self.model.profiles.reach

    def _describe(
        self, index: int, probability: float, information: tuple[float, float, float]
    ) -> AlignmentHead:
        views = self.information[:, 0].mean(0).unflatten(0, (2, -1))[:, index]
        at_input = bool(views[1] > views[0])
        view = index + len(self.heads) * at_input
        profiles, quartiles = self.model.profiles, self._quartiles[view].tolist()
        shift = float(self.model.shift[0])
        return AlignmentHead(
            self.heads[index],
            probability,
            information,
            (quartiles[1] - shift) * self.step,
            (quartiles[2] - quartiles[0]) * self.step,
            float(profiles.background[0, view]),
            float(profiles.follows[0, view]),
            at_input,
        )

    def sufficient(self, loss: float = SUFFICIENT) -> list[Head]:
        """The first of the chosen heads, as few as locate words of the examples as all of them do.

        They are the most informative ones; fewer others may do so too.

        Args:
            loss: Nats a boundary that it may lose: the KL from the posterior of the starts given
                all chosen heads to that given these.

        Raises:
            ValueError: These are heads of a file or of ``time_words``, without that attention.

        Warns:
            UserWarning: No head has a probability above one half.
        """
        if not self.attentions:
            raise ValueError(
                "sufficient() needs the attention of examples: heads of a file or of time_words() "
                "have none, those of alignment_heads() have"
            )
        self._warn()
        full = [
            self.model.posterior(example, with_labels=False).marginals
            for example in self.attentions
        ]
        chosen = self._chosen
        for number in range(1, len(chosen)):
            some = self._restrict(chosen[:number])
            kls = []
            for p, example in zip(full, self.attentions, strict=True):
                q = some.posterior(example, with_labels=False).marginals
                # 1e-12, for a probability may be 0
                kl = p * ((p + 1e-12).log() - (q + 1e-12).log())
                kls.append(kl.sum(-1).flatten())
            if float(torch.cat(kls).mean()) <= loss:
                return chosen[:number]
        return chosen

    def _restrict(self, heads: Sequence[Head]) -> BoundaryModel:
        """The model with the chosen views of some heads alone."""
        is_kept = torch.tensor([head in heads for head in self.heads] * 2)
        return replace(self.model, chosen=self.model.chosen & is_kept)

    def marginals(self, attention: WordAttention) -> Float[Tensor, "word position"]:
        """The posterior probability that each word of an example starts at each position.

        In text these are the probabilities of the links of a word.

        Args:
            attention: Its attention; labels are not used.

        Warns:
            UserWarning: No head has a probability above one half.
        """
        self._warn()
        return self.model.posterior(attention, with_labels=False).marginals[0]

    def evidence(self, attention: WordAttention) -> float:
        """Log evidence of attention less that of background alone, in nats per word.

        Of words that are not in the sound it is about 0.

        Args:
            attention: Its attention; labels are not used.
        """
        return _evidence(self.model, attention)

    def is_misfit(self, attention: WordAttention) -> bool:
        """Whether attention does not fit its words: its evidence is far below that of the examples.

        Args:
            attention: Its attention; labels are not used.
        """
        return self.evidence(attention) <= max(0.0, MISFIT * self.usual_evidence)

    def _describe_misfit(self, attention: WordAttention) -> str:
        """Why times are not to be trusted; empty if nothing is wrong."""
        if self._warning or not self.is_misfit(attention):
            return self._warning
        return (
            f"attention does not fit its text: log evidence of {self.evidence(attention):.1f} nats "
            f"a word, that of examples {self.usual_evidence:.1f}; is it the text of this source?"
        )

    @cached_property
    def _warning(self) -> str:
        """The warning if no head is likely to be an alignment head; else empty."""
        return describe_unlikely(self.probabilities)

    def _warn(self) -> None:
        """Warns the caller of the caller if no head is likely to be an alignment head."""
        if self._warning:
            warnings.warn(self._warning, stacklevel=3)

    def times(
        self, attention: WordAttention, level: float = 0.9, *, bounded: bool = True
    ) -> dict[str, BoundaryTimes]:
        """When the words of an example start, and end if ends were learned.

        Args:
            attention: Its attention.
            level: Probability of each interval. It is nominal unless two examples had labels:
                without them the error is not learned, but a share of a word's length.
            bounded: Whether times outside of the sound or text are moved to its ends. They are
                quantiles of where the boundary is, so that a true time inside it stays covered.

        Raises:
            ValueError: The attention has another step than that of the examples.

        Warns:
            UserWarning: No head has a probability above one half, or attention does not fit the
                words: its :meth:`evidence` is far below that of the examples.
        """
        check_fraction("level", level)
        if attention.step != self.step:
            raise ValueError(
                f"attention has a step of {attention.step:g}, that of the examples {self.step:g}"
            )
        if message := self._describe_misfit(attention):
            warnings.warn(message, stacklevel=2)
        marginals = self.model.posterior(attention, with_labels=False).marginals
        levels = torch.tensor([(1 - level) / 2, 0.5, (1 + level) / 2], dtype=torch.float64)
        times = {}
        for kind, marginal in enumerate(marginals):
            quantiles = noisy_quantiles(marginal, float(self.model.error[kind]), levels)
            positions = quantiles + self.model.shift[kind]
            if bounded:
                positions = positions.clamp(0, attention.positions)
            low, median, high = positions * self.step
            times[("starts", "ends")[kind]] = BoundaryTimes(median, low, high)
        return times

    def check_network(self, network: Any) -> None:
        """Raises an error if a network has other heads than that of the examples."""
        if (heads := get_cross_heads(network)) != list(self.heads):
            raise ValueError(
                f"these are heads of a network with {len(self.heads)} of cross-attention, and this "
                f"one has {len(heads)}, or other layers"
            )

    def align(
        self, network: Any, example: ForcedExample, level: float = 0.9
    ) -> dict[str, BoundaryTimes]:
        """When the words of a new example start, and end if ends were learned.

        Args:
            network: The network.
            example: Source and target.
            level: Probability of each interval, as :meth:`times` takes it.

        Warns:
            UserWarning: No head has a probability above one half, or attention does not fit the
                words: its :meth:`evidence` is far below that of the examples.
        """
        self.check_network(network)
        (example,) = list_examples([example], self.step)
        return self.times(record_word_attention(network, example), level)


def _evidence(model: BoundaryModel, attention: WordAttention) -> float:
    """Log evidence of attention less that of background alone, in nats per word."""
    posterior = model.posterior(attention, with_labels=False)
    return float(posterior.log_evidence) / len(attention.starts)


def _mean_and_interval(values: Float[Tensor, "example head"]) -> Float[Tensor, "3 head"]:
    """Means over examples, and 90 % intervals of t; of one example they are not a number.

    Values with profiles from the others vary together: their variance is corrected as in Nadeau
    and Bengio (2003, https://doi.org/10.1023/A:1024068626366).
    """
    mean, number = values.mean(0), len(values)
    if number < 2:
        return torch.stack([mean, *[torch.full_like(mean, torch.nan)] * 2])
    from scipy import stats  # slow to import

    folds = min(FOLDS, number)
    variance = values.var(0) / number * (1 + folds / (folds - 1))
    half = float(stats.t.ppf(0.95, number - 1)) * variance.sqrt()
    return torch.stack([mean, mean - half, mean + half])


def alignment_heads(
    network: Any,
    examples: Sequence[ForcedExample],
    teacher: Teacher | None = None,
    *,
    step: float | None = None,
    options: FitOptions | None = None,
    chain: BoundaryChain | None = None,
) -> AlignmentHeads:
    """Learns which heads of a network show where words are.

    Args:
        network: An encoder-decoder of ``transformers``, latent or not.
        examples: Sources with their targets. Five with labels suffice; without labels some twenty,
            with the energy of the sound.
        teacher: Gives the starts of the words of examples that have none.
        step: Seconds of a position, of which ``starts`` and ``ends`` of the examples and all times
            that are returned are then a multiple; 1: they are positions. None: that of the
            examples, which is .02 for Whisper and 1 for text.
        options: How profiles are learned; None: starts alone, or starts and ends if any example
            has ends. Profiles of text (``input_ids``) are then narrower than those of speech,
            ``FitOptions(reach=4, width=0.3)``.
        chain: The prior of boundaries; None: words that follow each other; in text of which starts
            alone are learned, words that may go back,
            :func:`~latentheads.contrib.heads.boundaries.chain.jump_chain`.

    ::

        heads = lh.alignment_heads(whisper, examples)
        heads.table()[:2]  # [L2H1: P = 1.00, 3.3 nats, lag +0.06, L2H4: ...]
        heads.align(whisper, example)["starts"].median  # seconds

    Raises:
        ValueError: An example is wrong, such as a start after the end of the sound; or the step is
            neither given nor known.
    """
    heads = get_cross_heads(network)
    examples = list_examples(examples, step)
    if teacher is not None:
        examples = [
            example if example.starts is not None else replace(example, starts=teacher(example))
            for example in examples
        ]
    attentions = [record_word_attention(network, example) for example in examples]
    if all("input_ids" in example.inputs for example in examples):
        if options is None:
            options = replace(TEXT, kinds=_count_kinds(attentions))
        if chain is None and options.kinds == 1:
            chain = jump_chain()
    return fit_alignment_heads(heads, attentions, options=options, chain=chain)


def list_examples(examples: Any, step: float | None) -> list[ForcedExample]:
    """Examples, with the step that is given."""
    if isinstance(examples, ForcedExample):
        raise ValueError("examples must be a list of ForcedExample, got one: write [example]")
    listed = list(examples)
    for index, example in enumerate(listed):
        check_instance(f"examples[{index}]", example, ForcedExample, "a ForcedExample")
        if step is not None and example.step not in (None, step):
            raise ValueError(f"examples[{index}] has a step of {example.step:g}, got step={step:g}")
    return listed if step is None else [replace(example, step=step) for example in listed]


def fit_alignment_heads(
    heads: Sequence[Head],
    attentions: Sequence[WordAttention],
    *,
    options: FitOptions | None = None,
    chain: BoundaryChain | None = None,
) -> AlignmentHeads:
    """Learns alignment heads from attention that is recorded already.

    Times are returned in the unit of the attention, seconds or positions: its ``step``.

    Args:
        heads: The heads, in the order of the first half of the views.
        attentions: The attention of examples.
        options: How profiles are learned, as :func:`alignment_heads` takes them.
        chain: The prior of boundaries, as in :func:`alignment_heads`.
    """
    check_not_empty("examples", attentions)
    for index, attention in enumerate(attentions):
        if (views := len(attention.weights)) != 2 * len(heads):
            raise ValueError(
                f"attentions[{index}] must have two views of each of {len(heads)} heads, got "
                f"{views}"
            )
    steps = sorted({attention.step for attention in attentions})
    if len(steps) > 1:
        raise ValueError(f"examples must have one step, got {', '.join(map(str, steps))}")
    if options is None:
        options = FitOptions(kinds=_count_kinds(attentions))
    model = fit_boundary_model(attentions, options, chain)
    information = left_out_information(model, attentions, options)
    usual_evidence = statistics.median(_evidence(model, attention) for attention in attentions)
    return AlignmentHeads(
        model, list(heads), information, list(attentions), steps[0], usual_evidence
    )


def _count_kinds(attentions: Sequence[WordAttention]) -> int:
    """2 if the end of any word is known, else 1."""
    return 2 if any(bool(attention.ends.isfinite().any()) for attention in attentions) else 1
