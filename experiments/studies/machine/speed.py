"""Speed: a training step of ours beside ``nn.Transformer`` with fused attention.

For every row its time, its memory, and how often the CPU waits for the device within a step: as it
is (eager), given to ``torch.compile`` (compiled), or captured once as a CUDA graph and replayed
(graphs).
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import latentheads.experiments.cli.startup  # noqa: F401

import pyro
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import PAD, Batch
from latentheads.errors import one_line_message
from latentheads.experiments.cli.parser import positive, writable
from latentheads.experiments.studies.benchmarks.baselines import (
    PRECISIONS,
    RECIPES,
    Made,
    Runner,
    Setting,
    Size,
    in_memory,
    make_batch,
    ours,
    under,
    without_latents,
)
from latentheads.experiments.studies.benchmarks.command_line import write
from latentheads.experiments.studies.benchmarks.racing import metadata, progress, race
from latentheads.experiments.studies.machine.agreement import ALIGNED, make_recipe
from latentheads.inference.objective import Head_ELBO
from latentheads.layers.position import sinusoidal_positions
from latentheads.training.graphs import SEEN, StepGraphs

FUSED = "nn.Transformer"
WARMUP = 2
MODES = ("eager", "compiled", "graphs")
FULL = {
    "sentences": Size(512, 1024, 6, 4, 256, 32, 10000),
    "length 512": Size(512, 1024, 6, 8, 8, 512, 10000),
}
SMALL = {"sentences": Size(8, 8, 1, 2, 3, 5, 11)}


@dataclass(frozen=True)
class Speed:
    """A row as measured.

    Attributes:
        size: Name of the size.
        row: The network.
        mode: One of ``MODES``.
        precision: One of ``PRECISIONS``.
        ms: Median time of a step.
        ratio: To ``nn.Transformer`` of the same size, precision and mode.
        memory: Bytes of a step, as a benchmark measures them.
        waits: How often the CPU waits within a step; None where it is not known.
        why: Why it could not be measured; all figures are then None.
    """

    size: str
    row: str
    mode: str
    precision: str
    ms: float | None = None
    ratio: float | None = None
    memory: int | None = None
    waits: int | None = None
    why: str = ""


class FusedTransformer(nn.Module):
    """PyTorch's own encoder and decoder, of the size of ours, one table for target and output."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        network = size.network
        self.source = nn.Embedding(size.vocabulary, size.width, padding_idx=PAD)
        self.target = nn.Embedding(size.vocabulary, size.width, padding_idx=PAD)
        self.core = nn.Transformer(
            *(size.width, size.heads, size.layers, size.layers, size.feed_forward),
            dropout=network.dropout,
            batch_first=True,
        )

    def forward(self, batch: Batch) -> Tensor:
        """The negative log-likelihood of a batch without padding."""
        assert batch.source is not None
        sides = zip((self.source, self.target), (batch.source, batch.decoder_input), strict=True)
        source, target = (self._embed(table, tokens) for table, tokens in sides)
        length = target.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, target.device, target.dtype)
        states = self.core(source, target, tgt_mask=mask, tgt_is_causal=True)
        logits = F.linear(states, self.target.weight)
        return F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), reduction="sum")

    def _embed(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        x = table(tokens) * table.embedding_dim**0.5
        return x + sinusoidal_positions(x.shape[1], x.shape[2], x.device, x.dtype)


def fused(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """``nn.Transformer``."""
    torch.manual_seed(setting.seed)
    network = FusedTransformer(size).to(setting.device)
    return (lambda: network(batch)), list(network.parameters())


def alignments(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """Two blocks of alignments above a network without noise."""
    model, guide = make_recipe(ALIGNED, size)
    pair = model.to(setting.device), guide.to(setting.device)
    return under(Head_ELBO(analytic=True), *pair, batch)


def make_rows() -> dict[str, Callable[[Size, Setting, Batch], Made]]:
    """What is timed: the yardstick first."""

    def of(make: Callable[..., Made], recipe: str) -> Callable[[Size, Setting, Batch], Made]:
        return lambda size, setting, batch: make(recipe, size, setting, batch)

    rows = {FUSED: of(fused, ""), "no latents": of(without_latents, "transformer")}
    for recipe in RECIPES:
        if recipe != "transformer":
            rows |= {recipe: of(ours, recipe), f"{recipe}, by hand": of(in_memory, recipe)}
    return rows | {ALIGNED: of(alignments, "")}


def measure(
    sizes: dict[str, Size], setting: Setting, rounds: int, mode: str = "eager"
) -> Iterator[Speed]:
    """Times the rows of every size and precision: against each other, or one by one if compiled.

    What takes long to compile then keeps no figure of the others waiting. In modes other than
    eager it is done in bfloat16, and compared with ``nn.Transformer`` in the same mode.
    PyTorch 2.13 compiles no step that goes through Pyro's handlers: it says why, and the same
    network by hand tells what there would be to gain.
    """
    rows = make_rows()
    groups = [[row] for row in rows] if mode == "compiled" else [[*rows]]
    for name, size in sizes.items():
        batch = make_batch(size, setting)
        for precision in PRECISIONS if mode == "eager" else PRECISIONS[-1:]:
            base = None
            for group in groups:
                made = {row: rows[row](size, setting, batch) for row in group}
                for found in _race(made, precision, setting, rounds, mode, batch):
                    base = found.ms if found.row == FUSED else base
                    ratio = found.ms / base if found.ms and base else None
                    yield replace(found, size=name, ratio=ratio)


@dataclass
class Replayed(Runner):
    """A row whose forward and backward pass are captured, and replayed.

    Args:
        batch: The batch that the loss is of.
    """

    batch: Batch | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.graphs = StepGraphs(self.parameters, self.parameters[0].device)

    def differentiate(self) -> Tensor:
        """As the row itself, or replayed."""
        assert self.batch is not None
        work = super().differentiate  # its loss has a batch of its own, and no factor
        return self.graphs.run(lambda batch, factor: work(), self.batch, 1.0, ())


def _race(
    made: Mapping[str, Made],
    precision: str,
    setting: Setting,
    rounds: int,
    mode: str,
    batch: Batch,
) -> Iterator[Speed]:
    """Times rows against each other; one that cannot step is reported and left out."""
    runners = []
    for row, (loss, parameters) in made.items():
        runner = Runner(row, loss, parameters, setting, precision)
        if mode == "graphs":
            runner = Replayed(row, loss, parameters, setting, precision, batch=batch)
        if mode == "compiled":
            runner.loss = torch.compile(loss)
        try:
            for _ in range(SEEN + 1 if mode == "graphs" else 1):
                runner.step()
            runners.append(runner)
        except Exception as reason:  # whatever a compiler says
            yield Speed("", row, mode, precision, why=one_line_message(reason)[:200])
    with progress(len(runners) * (rounds + WARMUP)) as bar:
        race(runners, rounds, WARMUP, setting.seed, bar)
    for runner in runners:
        ms = 1e3 * statistics.median(runner.seconds)
        figures = ms, None, runner.memory(), count_waits(runner)
        yield Speed("", runner.name, mode, precision, *figures)


def count_waits(runner: Runner) -> int | None:
    """How often the CPU waits for a GPU in a step, as PyTorch says it; None on a CPU."""
    if runner.setting.device != "cuda":
        return None
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            runner.step()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchroniz" in str(each.message) for each in caught)


def make_parser() -> argparse.ArgumentParser:
    """Builds the command line."""
    parser = argparse.ArgumentParser("speed", description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--json", type=writable, required=True)
    parser.add_argument("--rounds", type=positive, default=10)
    parser.add_argument("--mode", choices=MODES, default="eager")
    parser.add_argument("--small", action="store_true")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all rows and writes what it found."""
    options = make_parser().parse_args(arguments)
    pyro.enable_validation(False)
    sizes = SMALL if options.small else FULL
    setting = Setting(options.device, 1, adam=True)
    plan = {name: asdict(size) for name, size in sizes.items()}
    facts, rows = metadata(plan, setting), list[Speed]()
    for row in measure(sizes, setting, options.rounds, options.mode):
        rows.append(row)
        write(options.json, facts, rows=rows)


if __name__ == "__main__":
    main()
