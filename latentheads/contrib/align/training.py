"""Training of both directions by expectation maximisation with exact sums, so that they agree.

The E step computes the exact posterior of both directions. Counts are those of a mixture of each
direction's own posterior and of the geometric mean of both, after Liang et al. 2006
(https://aclanthology.org/N06-1014), who multiply them. The M step is closed for the translation
table and a step of iterative scaling for jumps; nothing is random.

A pair of words that occurs once is explained by itself: its expected count makes the link certain.
So the last passes, and the posteriors of the text, are those of each line given all others: the
expected links of the line are taken out of the counts of its words and of their classes. What is
left is the predictive distribution of the Dirichlet priors (a Polya urn). Jumps are parameters,
shared by all lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_fraction, check_least, check_within
from latentheads.contrib.align.bitext import Bitext, PairBatch, take
from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.counts import CellCounts, CountTable
from latentheads.contrib.align.jumps import JumpCounts, Jumps, initial_jumps
from latentheads.contrib.align.lexicon import Lexicon, TranslationTable
from latentheads.contrib.align.model import LinkModel
from latentheads.contrib.align.spelling import make_spelling
from latentheads.contrib.align.workers import map_batches, shared_zeros

PASSES = 6, 4
"""Passes over a text, and the last E steps in which a line is left out."""

LARGE_TEXT = 200_000
"""Sentence pairs of a text beyond which fewer passes are enough."""

PASSES_OF_LARGE_TEXT = 3, 2
"""The same of a text of more pairs."""

LEAST_LINK = 1e-3
"""Least expected link in counts that lines are left out of: what is less need not be kept."""


@dataclass(frozen=True)
class AlignerOptions:
    """Options of training.

    Attributes:
        iterations: Passes of expectation maximisation over the text; by default 6, and 3 over
            more than 200,000 sentence pairs.
        null_probability: Prior probability that a word has no link.
        agreement: Weight of the geometric mean of both directions' posteriors in expected counts; 0
            trains each direction alone.
        jump_smoothing: Jumps of all words that are added to those from each word.
        leave_one_out: Last E steps in which a line is seen by the counts of all other lines: 1 is
            that of the posteriors of the text alone, 0 none; by default 4, and 2 of more
            than 200,000 sentence pairs.
    """

    iterations: int | None = None
    null_probability: float = 0.2
    agreement: float = 1.0
    jump_smoothing: float = 20.0
    leave_one_out: int | None = None

    def __post_init__(self) -> None:
        values = vars(self)
        check_least(values, iterations=1, jump_smoothing=0.0)
        check_least(values, leave_one_out=0)
        check_within("agreement", self.agreement, 0, 1)
        check_fraction("null_probability", self.null_probability)

    def passes(self, pairs: int) -> tuple[int, int]:
        """Passes over a text, and the last E steps in which a line is left out.

        Args:
            pairs: Sentence pairs of the text.
        """
        iterations, leave_one_out = PASSES_OF_LARGE_TEXT if pairs > LARGE_TEXT else PASSES
        return (
            iterations if self.iterations is None else self.iterations,
            leave_one_out if self.leave_one_out is None else self.leave_one_out,
        )


@dataclass
class TrainedDirection:
    """What training changes of one direction.

    Attributes:
        lexicon: The prior of the translation table.
        counts: Expected counts of links, by this direction's source and target.
        null: Expected counts of target words without a link.
        jumps: Weights of jumps.
    """

    lexicon: Lexicon
    counts: CountTable
    null: Float[Tensor, " word"]
    jumps: Jumps


@dataclass(frozen=True)
class OwnLinks:
    """The expected links of a batch that are part of the counts; those of 0 are not stored.

    Attributes:
        shape: The size of the batch.
        index: Where links stand in it.
        links: Their probabilities.
    """

    shape: torch.Size
    index: Int[Tensor, " link"]
    links: Float[Tensor, " link"]

    @classmethod
    def of(cls, links: Float[Tensor, "pair target source"]) -> OwnLinks:
        """Keeps the links that are not 0."""
        flat = links.flatten()
        index = flat.nonzero()[:, 0]
        return cls(links.shape, index.int(), flat[index])

    def dense(self) -> Float[Tensor, "pair target source"]:
        """All expected links."""
        flat = self.links.new_zeros(self.shape.numel())
        return flat.index_copy_(0, self.index.long(), self.links).view(self.shape)


Own = tuple[OwnLinks, OwnLinks]
"""Expected links of a batch by both directions, as targets by sources of the first."""


@dataclass(frozen=True)
class DirectionStart:
    """Counts that training adds to, as if lines before the text had them.

    Attributes:
        links: Of each entry, and of padding.
        null: Of target words without a link.
        frequencies: How often target words occurred.
        jumps: Weights of jumps, which stay as they are; None: they are learned.
        alike: The probability that a word is translated by one that is spelt like it.
    """

    links: Float[Tensor, " padded_entry"]
    null: Float[Tensor, " word"]
    frequencies: Float[Tensor, " word"]
    jumps: Jumps | None
    alike: float


Start = tuple[DirectionStart, DirectionStart]
"""What both directions begin with."""


@dataclass
class Training:
    """Both directions of a text in training.

    Attributes:
        bitext: The text.
        options: Options of training.
        directions: Both directions; the counts of the second are those of the reversed text.
        own: The expected links of every batch that are part of the counts, in passes that leave
            them out.
        start: Counts that were there before; they stay in all sums.
    """

    bitext: Bitext
    options: AlignerOptions
    directions: tuple[TrainedDirection, TrainedDirection]
    own: list[Own] = field(default_factory=list)
    start: Start | None = None

    def models(self, index: int) -> tuple[LinkModel, LinkModel]:
        """The models of both directions for a batch, by the counts of all other lines.

        They are by the counts of all lines where nothing is left out.
        """
        batch = self.bitext.batches[index]
        own: tuple[Tensor, Tensor] | None = None
        if self.own:
            first_links, second_links = self.own[index]
            dense = first_links.dense()
            own = dense, dense if second_links is first_links else second_links.dense()
        return predictive_models(self.directions, batch, self._cells(batch, own), own)

    def _cells(
        self, batch: PairBatch, own: tuple[Tensor, Tensor] | None
    ) -> tuple[CellCounts, CellCounts]:
        """The counts of a batch in both directions, which are the same if directions agree."""
        forward, backward = self.directions
        first = forward.counts.cells(batch, None if own is None else own[0])
        if backward.counts.links is forward.counts.links:
            return first, first.reverse()
        links = None if own is None else own[1].mT
        return first, backward.counts.cells(batch.reverse(), links)


def predictive_models(
    directions: Sequence[TrainedDirection],
    batch: PairBatch,
    cells: Sequence[CellCounts],
    own: tuple[Tensor, Tensor] | None = None,
) -> tuple[LinkModel, LinkModel]:
    """The models of both directions for a batch, by its predictive weights.

    Args:
        directions: Both directions.
        batch: The batch.
        cells: Its counts in both directions.
        own: Its expected links that are taken out of the counts of null; None: none are.
    """
    both = batch, batch.reverse()
    nulls: tuple[Tensor | None, Tensor | None] = (None, None)
    if own is not None:
        nulls = _null(own[0], both[0]), _null(own[1].mT, both[1])
    forward, backward = (
        LinkModel(
            direction.lexicon.batch_table(counts, direction.null, side, null), direction.jumps
        )
        for direction, counts, side, null in zip(directions, cells, both, nulls, strict=True)
    )
    return forward, backward


def _null(
    links: Float[Tensor, "pair target source"], batch: PairBatch
) -> Float[Tensor, "pair target"]:
    """What links leave of the words that they are of."""
    return (1 - links.sum(-1)).clamp(min=0) * batch.target_mask


@dataclass
class _Sums:
    """Sums over a text: links of both directions, one object if they agree; null, jumps."""

    links: tuple[Tensor, Tensor]
    null: tuple[Tensor, Tensor]
    jumps: tuple[JumpCounts, JumpCounts]

    def of_worker(self) -> _Sums:
        """Sums over no line, which a worker adds to."""
        first = shared_zeros(self.links[0])
        other = first if self.links[1] is self.links[0] else shared_zeros(self.links[1])
        null = shared_zeros(self.null[0]), shared_zeros(self.null[1])
        forward, backward = (
            JumpCounts(shared_zeros(side.taken), shared_zeros(side.offered)) for side in self.jumps
        )
        return _Sums((first, other), null, (forward, backward))

    def add(self, others: _Sums) -> None:
        """Adds the sums of a worker."""
        for own, other in zip(self._tensors(), others._tensors(), strict=True):
            own += other

    def _tensors(self) -> list[Tensor]:
        links = self.links[:1] if self.links[1] is self.links[0] else self.links
        jumps = (counts for side in self.jumps for counts in (side.taken, side.offered))
        return [*links, *self.null, *jumps]


def train_directions(
    bitext: Bitext,
    options: AlignerOptions,
    report: Callable[[int, int], None] = lambda done, total: None,
    start: Start | None = None,
    workers: int = 1,
) -> Training:
    """Trains both directions of a text.

    Args:
        bitext: The text.
        options: Options of training.
        report: Called with the number of batches that are done, and of all passes.
        start: Counts that both directions begin with; None: they begin with how often words occur
            together.
        workers: Processes that share the batches of each pass.
    """
    training = Training(bitext, options, _initial_directions(bitext, options), start=start)
    if start is not None:
        _begin_with(training, start)
    iterations, leave_one_out = options.passes(bitext.size)
    total = iterations * len(bitext.batches)
    texts = bitext, bitext.reverse()
    tables: tuple[TranslationTable, ...] = tuple(
        direction.lexicon.associations(text)
        if start is None
        else direction.lexicon.predictive(direction.counts, direction.null)
        for direction, text in zip(training.directions, texts, strict=True)
    )
    first_kept = iterations - leave_one_out
    for iteration in range(iterations):
        keeps = leave_one_out > 0 and iteration >= first_kept
        before = iteration * len(bitext.batches)
        _train_pass(training, tables, keeps, report, (before, total), workers)
        is_last = iteration == iterations - 1
        if training.own or is_last:
            tables = ()
        else:
            tables = tuple(d.lexicon.variational(d.counts, d.null) for d in training.directions)
    return training


def _begin_with(training: Training, start: Start) -> None:
    """Adds the counts that were there before."""
    forward, backward = training.directions
    pairs, spelling = forward.counts.pairs, forward.counts.spelling
    forward.counts = CountTable(pairs, spelling, start[0].links)
    is_shared = start[0].links is start[1].links
    other = forward.counts if is_shared else CountTable(pairs, spelling, start[1].links)
    backward.counts = other.reverse()
    for direction, before in zip(training.directions, start, strict=True):
        frequencies = direction.lexicon.frequencies + before.frequencies
        direction.lexicon = Lexicon(direction.lexicon.pairs, frequencies, before.alike)
        direction.null = before.null
        direction.jumps = before.jumps or direction.jumps


def _initial_directions(
    bitext: Bitext, options: AlignerOptions
) -> tuple[TrainedDirection, TrainedDirection]:
    """Both directions before training; numbers have at least 32 bits, whatever torch's default."""
    dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
    pairs = bitext.pairs
    words = pairs.source.words, pairs.target.words
    spelling = make_spelling(*words, pairs.pair_source, pairs.pair_target)
    counts = CountTable(pairs, spelling, torch.zeros(pairs.entries + 1, dtype=dtype))
    directions = [
        _initial_direction(text, table, options)
        for text, table in ((bitext, counts), (bitext.reverse(), counts.reverse()))
    ]
    return directions[0], directions[1]


def _initial_direction(
    text: Bitext, counts: CountTable, options: AlignerOptions
) -> TrainedDirection:
    dtype = counts.links.dtype
    lexicon = Lexicon(text.pairs, text.target_counts.to(dtype))
    settings = options.null_probability, options.jump_smoothing
    jumps = initial_jumps(len(text.pairs.source), *settings, dtype)
    return TrainedDirection(lexicon, counts, lexicon.new_null(), jumps)


def _train_pass(
    training: Training,
    tables: tuple[TranslationTable, ...],
    keeps: bool,
    report: Callable[[int, int], None],
    steps: tuple[int, int],
    workers: int,
) -> None:
    """A pass over the text: the E step of every batch, then the M step.

    Each worker adds to sums of its own, so that those of a number of workers are always the same.

    Args:
        training: What is trained.
        tables: The tables of both directions; none: those of each line are by all other lines.
        keeps: Whether to keep the expected links of every batch.
        report: Called with the number of batches that are done, and of all passes.
        steps: Batches of the passes before, and of all passes.
        workers: Processes that share the batches.
    """
    directions, agreement = training.directions, training.options.agreement
    sums = _new_sums(directions, agreement, training.start)
    of_workers = [sums.of_worker() for _ in range(workers if workers > 1 else 0)]

    def expect(index: int, worker: int) -> Own | None:
        batch = training.bitext.batches[index]
        if tables:
            models = [LinkModel(t, d.jumps) for t, d in zip(tables, directions, strict=True)]
        else:
            models = list(training.models(index))
        return _expect_batch([sums, *of_workers][worker], models, batch, agreement, keeps)

    kept: list[Own] = []
    for index, own in enumerate(map_batches(expect, len(training.bitext.batches), workers)):
        if own is not None and training.own:
            training.own[index] = own  # those of the last pass are not needed any more
        elif own is not None:
            kept.append(own)
        report(steps[0] + index + 1, steps[1])
    if keeps and not training.own:
        training.own = kept
    for others in of_workers:
        sums.add(others)
    keeps_jumps = training.start is not None and training.start[0].jumps is not None
    _maximise(directions, sums, keeps_jumps)


def _new_sums(
    directions: Sequence[TrainedDirection], agreement: float, start: Start | None
) -> _Sums:
    """Sums over no line, or what was there before."""
    if start is None:
        links = torch.zeros_like(directions[0].counts.links)
        other = links if agreement == 1 else torch.zeros_like(links)
        null = directions[0].lexicon.new_null(), directions[1].lexicon.new_null()
    else:
        links = start[0].links.clone()
        is_shared = agreement == 1 and start[1].links is start[0].links
        other = links if is_shared else start[1].links.clone()
        null = start[0].null.clone(), start[1].null.clone()
    jumps = directions[0].jumps.new_counts(), directions[1].jumps.new_counts()
    return _Sums((links, other), null, jumps)


def _maximise(directions: Sequence[TrainedDirection], sums: _Sums, keeps_jumps: bool) -> None:
    """The M step of both directions."""
    pairs, spelling = directions[0].counts.pairs, directions[0].counts.spelling
    tables = [CountTable(pairs, spelling, links) for links in sums.links]
    if sums.links[0] is sums.links[1]:
        tables[1] = tables[0]
    directions[0].counts, directions[1].counts = tables[0], tables[1].reverse()
    for direction, null, jumps in zip(directions, sums.null, sums.jumps, strict=True):
        direction.null = null
        direction.jumps = direction.jumps if keeps_jumps else direction.jumps.update(jumps)
        direction.lexicon.learn_alike(direction.counts)


def geometric_mean(
    forward: Float[Tensor, "pair target source"], backward: Float[Tensor, "pair source target"]
) -> Float[Tensor, "pair target source"]:
    """The geometric mean of both directions' posteriors."""
    return (forward * backward.mT).sqrt()


def _expect_batch(
    sums: _Sums,
    models: Sequence[LinkModel],
    batch: PairBatch,
    agreement: float,
    keeps: bool,
) -> Own | None:
    """The E step of a batch, which is seen in both directions."""
    both = batch, batch.reverse()
    chains = [model.posterior(side) for model, side in zip(models, both, strict=True)]
    links = _mixed_links(chains, agreement)
    if keeps:
        likely = _likely(links[0])
        links = likely, likely if links[1] is links[0] else _likely(links[1])
    kept: Own | None = None
    if keeps:
        first = OwnLinks.of(links[0])
        kept = first, first if links[1] is links[0] else OwnLinks.of(links[1])
    _add_links(sums, batch, links, kept)
    for side, chain, model in zip((0, 1), chains, models, strict=True):
        own = links[1].mT if side else links[0]
        words = both[side].target.clamp(min=0).flatten()
        sums.null[side].index_add_(0, words, _null(own, both[side]).flatten())
        moves = chain.weights.moves, chain.expected_moves
        model.jumps.add_counts(sums.jumps[side], both[side], *moves)
    return kept


def _add_links(
    sums: _Sums, batch: PairBatch, links: tuple[Tensor, Tensor], kept: Own | None
) -> None:
    """Adds expected links to their sums, once if both directions have one."""
    entries = batch.entries.flatten()
    for side in (0,) if sums.links[1] is sums.links[0] else (0, 1):
        if kept is None:  # twice as fast as index_add_
            sums.links[side].scatter_add_(0, entries.long(), links[side].flatten())
        else:
            own = kept[side]
            sums.links[side].index_add_(0, take(entries, own.index), own.links)


def _likely(links: Float[Tensor, "pair target source"]) -> Float[Tensor, "pair target source"]:
    """Expected links without the least ones."""
    return torch.where(links >= LEAST_LINK, links, links.new_zeros(()))


def _mixed_links(chains: Sequence[LinkChain], agreement: float) -> tuple[Tensor, Tensor]:
    """Expected links of both directions, as targets by sources of the first."""
    shared = geometric_mean(chains[0].marginals, chains[1].marginals)
    if agreement == 1:
        return shared, shared
    forward, backward = (
        (1 - agreement) * own + agreement * shared
        for own in (chains[0].marginals, chains[1].marginals.mT)
    )
    return forward, backward
