r"""Cost of heads of alignments: a training step with them against the plain network's.

    python experiments/studies/bench_alignments.py --threads 1 --precision bf16
    python experiments/studies/bench_alignments.py --task language-model --length 128 \
        --cutoffs 2000,10000 --vocabulary 33278 --tokens 4096 --threads 1 --precision bf16

    python experiments/studies/bench_alignments.py --decode 24 --beam 5 --threads 1 --tokens 1024 \
        --length 16 --precision fp32 --rows MarianMT,plain,"one head",copy,"two blocks"

Every row is the same network but for what stands above its decoder, and takes training steps on
sentences of one length, guide and all; a language model's words are sampled by Zipf's law. With
--decode a row searches for the translations of these sentences instead, all of one length. Rows
take turns within every round, the order rotated; a row's time is its median over rounds, its ratio
the median of its ratios to the first row within each round.

    plain        nothing above the decoder
    soft         one head that adds the mean of what it may point at: no latent
    one head     summed out exactly; the guide's bound is trained beside log p (marginal)
    mixture      one head that points at nothing: 16 vectors that are learned, summed out
    chain        one head that reads where it pointed at the word before
    exact        that chain with guide exact, which has nothing to train
    two heads    of one block, all pairs of positions summed out; those of a language model point
                 at 16 words before, or at null
    two blocks   the head above reads the one below
    copy         a copy head, which needs no score of a word for each position
    copy exact   that with guide exact, which has nothing to train
    copy chain   one that is conditioned on the position at the word before
    bernoulli-heads   gates of the heads of the top block, all 16 subsets summed (bound)
    MarianMT     the plain network of transformers, and its own search; only with --decode
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from torch import Tensor

from latentheads.batch import BOS, EOS, PAD, SPECIALS, Batch
from latentheads.checks import check_choice, split_items
from latentheads.decoding.beam_search import beam_search
from latentheads.experiments.cli.parser import Parser, positive
from latentheads.experiments.studies.benchmarks.baselines import (
    Forward,
    Made,
    Runner,
    Setting,
    Size,
    make_batch,
    under,
)
from latentheads.experiments.studies.benchmarks.command_line import write
from latentheads.experiments.studies.benchmarks.growth import (
    Growth,
    begin,
    growth_parser,
    race_at_all,
)
from latentheads.experiments.studies.benchmarks.racing import quartiles
from latentheads.guides import Autoregressive, Cascaded, Exact, Tied
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.bernoulli_heads.options import BernoulliHeadsOptions
from latentheads.latents.copy.options import CopyOptions
from latentheads.layers.adaptive import AdaptiveTable
from latentheads.models import LanguageModel, Network, Translation
from latentheads.models.network import AdaptiveOptions, PreNorm

SIZE = Size(width=128, feed_forward=256, layers=4, heads=4, vocabulary=9700)
FULL = Growth(SIZE, 10, 2, (16, 32), tokens=2048)
FACTOR = 2
"""By how much each band of an adaptive softmax is narrower than the one before."""
TASKS = ("translation", "language-model")
WINDOW = 16
"""How many words before its own each of two heads of a language model may point at."""
Options = AlignmentOptions | CopyOptions | BernoulliHeadsOptions
ROWS: dict[str, Options | None] = {
    "plain": None,
    "soft": AlignmentOptions(1, prior="soft"),
    "one head": AlignmentOptions(1),
    "mixture": AlignmentOptions(1, prior="mixture"),
    "chain": AlignmentOptions(1, prior="chain"),
    "exact": AlignmentOptions(1, prior="chain"),
    "two heads": AlignmentOptions(1, heads=2),
    "two blocks": AlignmentOptions(2),
    "copy": CopyOptions(),
    "copy exact": CopyOptions(),
    "copy chain": CopyOptions(prior="chain"),
    "bernoulli-heads": BernoulliHeadsOptions(),
}
MARIAN = "MarianMT"
GUIDES = {
    "plain": Tied,
    "soft": Tied,
    "exact": Exact,
    "copy exact": Exact,
    "bernoulli-heads": Autoregressive,
}
"""Of the rows whose guide is not cascaded."""


@dataclass(frozen=True)
class Point:
    """One row at one length; times in milliseconds, memory in bytes."""

    row: str
    length: int
    ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    memory: int


def make_rows(
    names: Sequence[str],
    task: str,
    cutoffs: tuple[int, ...],
    search: Search | None,
    size: Size,
    setting: Setting,
    precision: str,
) -> list[Runner]:
    """One network for each row."""
    adaptive = AdaptiveOptions(cutoffs, FACTOR) if cutoffs else None
    network = replace(size.network, norm=PreNorm(), adaptive=adaptive)
    batch = make_batch(size, setting) if task == "translation" else make_text(size, setting)
    if search is not None:
        return [
            Forward(
                name, *_make_search(name, search, size, network, setting, batch), setting, precision
            )
            for name in names
        ]
    pairs = ((name, _make_pair(name, size, network, setting, batch)) for name in names)
    made = ((name, _make_step(name, *pair, batch)) for name, pair in pairs)
    return [Runner(name, *parts, setting, precision) for name, parts in made]


@dataclass(frozen=True)
class Search:
    """What is decoded: so many tokens of each sentence, with a beam."""

    tokens: int
    beam: int

    def of(self, model: Any, batch: Batch) -> Made:
        """The search to call, and parameters."""
        before_end = self.tokens - 1  # EOS is the last of them
        lengths = {"max_new_tokens": before_end, "min_new_tokens": before_end}
        search = partial(beam_search, model.eval(), batch, self.beam, **lengths)
        return cast(Callable[[], Tensor], search), list(model.parameters())

    def of_marian(self, model: Any, batch: Batch) -> Made:
        """The search of transformers in its own network."""
        lengths = {"max_new_tokens": self.tokens, "min_new_tokens": self.tokens}
        search = partial(model.eval().generate, batch.source, num_beams=self.beam, **lengths)
        return search, list(model.parameters())


def make_text(size: Size, setting: Setting) -> Batch:
    """Random blocks of a text; the types stand in the order of how often they occur."""
    generator = torch.Generator().manual_seed(setting.seed)
    ranks = torch.arange(1, size.vocabulary - len(SPECIALS) + 1)
    sampled = torch.multinomial(1 / ranks, size.batch * size.length, True, generator=generator)
    return Batch((sampled + len(SPECIALS)).view(size.batch, size.length)).to(setting.device)


def _make_search(
    name: str, search: Search, size: Size, network: Network, setting: Setting, batch: Batch
) -> Made:
    """A row's search."""
    if name != MARIAN:
        return search.of(_make_pair(name, size, network, setting, batch)[0], batch)
    return search.of_marian(_make_marian(size).to(setting.device), batch)


def _make_marian(size: Size) -> Any:
    """A network of transformers of the same size, with new weights."""
    from transformers import MarianConfig, MarianMTModel

    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", size.layers),
            ("attention_heads", size.heads),
            ("ffn_dim", size.feed_forward),
        )
    }
    words = size.vocabulary
    config = MarianConfig(
        vocab_size=words,
        d_model=size.width,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **sides,
    )
    return MarianMTModel(config)


def _make_pair(
    name: str, size: Size, network: Network, setting: Setting, batch: Batch
) -> tuple[Any, Any]:
    """A row's model and guide."""
    torch.manual_seed(setting.seed)
    types, options = size.vocabulary, ROWS[name]
    model: Any
    if batch.source is None and isinstance(options, AlignmentOptions) and options.total_heads > 1:
        options = replace(options, window=WINDOW)
    latents = [options] if options else []
    if batch.source is None:
        model = LanguageModel(types, network, latents=latents)
    else:
        model = Translation(types, types, network, latents=latents)
    guide: Any = GUIDES.get(name, Cascaded)(model.to(setting.device))
    return model, guide.to(setting.device)


def _make_step(name: str, model: Any, guide: Any, batch: Batch) -> Made:
    """A row's loss to call and the parameters it trains."""
    options = ROWS[name]
    by_marginal = isinstance(options, AlignmentOptions | CopyOptions) and options.is_summed_out
    objective = Head_ELBO(analytic=True, objective="marginal" if by_marginal else "bound")
    return under(objective, model, guide, batch)


def _point(runner: Runner, beside: Sequence[Runner], size: Size) -> Point:
    plain = beside[0].seconds
    low, ratio, high = quartiles([ours / its for ours, its in zip(runner.seconds, plain)])
    seconds = statistics.median(runner.seconds)
    return Point(runner.name, size.length, 1e3 * seconds, ratio, low, high, runner.memory())


def show(points: Sequence[Point], memory: str) -> None:
    """Prints the table."""
    form = "{:>6}  {:<15} {:>8} {:>6} {:>11} {:>7}"
    print(f"MB: {memory}\n" + form.format("tokens", "row", "ms/step", "ratio", "quartiles", "MB"))
    for p in points:
        spread = f"{p.ratio_low:.2f}-{p.ratio_high:.2f}"
        cells = (f"{p.ms:.1f}", f"{p.ratio:.2f}", spread, f"{p.memory / 1e6:.0f}")
        print(form.format(p.length, p.row, *cells))


def make_parser() -> Parser:
    """Builds the command line."""
    parser = growth_parser("bench_alignments.py", __doc__, FULL, figure=False)
    parser.add_argument("--task", choices=TASKS, default=TASKS[0], help=f"default: {TASKS[0]}")
    parser.add_argument(
        "--cutoffs",
        type=tuple[int, ...],
        default=(),
        metavar="N,N",
        help="of a language model: where further bands of an adaptive softmax begin",
    )
    parser.add_argument(
        "--rows",
        default=",".join(ROWS),
        metavar="ROW,ROW",
        help="the rows, the first of which the others are compared with; default: all",
    )
    parser.add_argument(
        "--decode", type=positive, metavar="N", help="search for so many tokens of each sentence"
    )
    parser.add_argument("--beam", type=positive, default=1, metavar="N", help="of --decode")
    return parser


def read_search(options: Namespace) -> Search | None:
    """What is decoded; None: rows take training steps."""
    return Search(options.decode, options.beam) if options.decode else None


def read_rows(options: Namespace) -> list[str]:
    """The names of the rows.

    Raises:
        ValueError: There is no such row.
    """
    names = split_items(options.rows)
    for name in names:
        check_choice("row", name, [*ROWS, MARIAN] if options.decode else ROWS)
    return names


def read_cutoffs(options: Namespace, growth: Growth) -> tuple[int, ...]:
    """Where the bands of an adaptive softmax begin."""
    cutoffs: tuple[int, ...] = options.cutoffs
    AdaptiveTable(growth.size.vocabulary, growth.size.width, cutoffs, FACTOR)  # validates them
    return cutoffs


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""

    def check(options: Namespace, growth: Growth) -> None:
        read_rows(options)
        read_search(options)
        read_cutoffs(options, growth)

    options, growth, setting, facts = begin(make_parser(), arguments, FULL, check)
    cutoffs = read_cutoffs(options, growth)
    search = read_search(options)
    make = partial(make_rows, read_rows(options), options.task, cutoffs, search)
    points = race_at_all(make, growth, setting, options.precision, _point)
    show(points, facts["memory"])
    facts |= {"task": options.task, "cutoffs": cutoffs, "precision": options.precision}
    facts |= {"search": None if search is None else asdict(search)}
    write(options.json, facts, points=points)


if __name__ == "__main__":
    main()
