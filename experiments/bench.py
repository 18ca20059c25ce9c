"""Times a training step: the library against the same network by hand, and against its rivals.

A step is forward, loss, backward and clearing the gradients. All rows of a table take turns within
every round, the order rotated, on one batch and with one seed a round; the first rounds warm up. A
row's time is its median over rounds, and its ratio the median of its ratios to the hand-written
network within each round, with the interquartile range.

    no latents      the network without latents, deterministic blocks
    by hand         the same latent network in plain PyTorch
    guide, replay   the usual Pyro way: a guide that runs the network, then the model replayed
    ours            model and guide in one pass, Head_ELBO with closed-form KL
    ours, stock     the same under Pyro's own Trace_ELBO
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn, cast

import pyro
import torch
from by_hand import ByHand, take_weights
from pyro.infer import Trace_ELBO
from torch import Tensor, nn
from tqdm import tqdm

from guides import Cascaded, Tied
from latentheads import Batch, Head_ELBO
from latentheads.attention import LatentAttention
from latentheads.batch import EOS, SPECIALS
from latentheads.families import Family
from latentheads.names import SENTENCES
from models import Network, Translation, make_prior

BASELINE = "by hand"
RECIPES = {
    "transformer": ("delta", Tied),
    "coda": ("cascaded", Tied),
    "cascaded": ("independent", Cascaded),
}
PRECISIONS = ("fp32", "bf16")
Made = tuple[Callable[[], Tensor], list[Tensor]]
MEMORY = {
    "cpu": "bytes saved for the backward pass, each storage counted once, weights left out",
    "cuda": "peak of allocated memory during a step above what was allocated before it",
}


@dataclass(frozen=True)
class Size:
    """The size of a network and its batch; both sides of a pair have the same length."""

    width: int = 256
    feed_forward: int = 512
    layers: int = 4
    heads: int = 4
    batch: int = 32
    length: int = 28
    vocabulary: int = 1000

    @property
    def network(self) -> Network:
        """The network's part, dropout 0.1 and post-norm."""
        return Network(self.width, self.feed_forward, self.heads, self.layers)


@dataclass(frozen=True)
class Plan:
    """How much is run.

    Attributes:
        size: Of the table's network.
        rounds: Timed rounds.
        warmup: Rounds before those.
        growth_rounds: Timed rounds at each point of the figure.
        lengths: Sentence lengths of the figure.
        heads: Numbers of heads of the figure.
        tokens: Tokens a batch of the figure keeps.
    """

    size: Size = Size()
    rounds: int = 20
    warmup: int = 3
    growth_rounds: int = 5
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    heads: tuple[int, ...] = (4, 8, 16, 32)
    tokens: int = 1024


FULL = Plan()
QUICK = Plan(Size(32, 64, 2, 4, 4, 8, 50), 3, 1, 2, (8, 16), (2, 4), 32)


@dataclass
class Setting:
    """Where and how steps are taken."""

    device: str = "cpu"
    seed: int = 0
    adam: bool = False

    def synchronise(self) -> None:
        """Waits for the accelerator."""
        if self.device == "cuda":
            torch.cuda.synchronize()


@dataclass
class Runner:
    """One row: a network that takes steps.

    Attributes:
        name: Of the row.
        loss: Runs the network forward.
        parameters: What receives gradients.
        setting: Where it runs.
        precision: One of ``PRECISIONS``.
    """

    name: str
    loss: Callable[[], Tensor]
    parameters: list[Tensor]
    setting: Setting
    precision: str
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-5)

    def step(self) -> None:
        """Forward, loss, backward, the optimiser if asked for, gradients cleared."""
        half = self.precision == "bf16"
        with torch.autocast(self.setting.device, torch.bfloat16, enabled=half):
            loss = self.loss()
        loss.backward()
        if self.setting.adam:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def timed(self, seed: int) -> float:
        """Seconds of one step."""
        torch.manual_seed(seed)
        self.setting.synchronise()
        start = time.perf_counter()
        self.step()
        self.setting.synchronise()
        return time.perf_counter() - start

    def memory(self) -> int:
        """Bytes of one step, measured as ``MEMORY`` says."""
        if self.setting.device == "cpu":
            return self._saved()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.step()
        return torch.cuda.max_memory_allocated() - before

    def _saved(self) -> int:
        storages: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            self.step()
        for parameter in self.parameters:
            storages.pop(parameter.untyped_storage().data_ptr(), None)
        return sum(storages.values())


class Replayed(nn.Module):
    """The usual Pyro guide: runs the network itself, each head drawn from its posterior.

    Args:
        model: The model; its weights are shared.
        guide: Says the posteriors.
    """

    def __init__(self, model: Translation, guide: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(model, {id(p): p for p in model.parameters()})
        if isinstance(guide, Cascaded):
            for module in self.network.modules():
                if isinstance(module, LatentAttention):
                    module.prior = cast(Family, guide.families[module.block.key])

    def forward(self, batch: Batch) -> None:
        """Draws every head."""
        with pyro.plate(SENTENCES, size=batch.size, subsample=batch.sentences):
            self.network.states(batch)


def make_batch(size: Size, setting: Setting) -> Batch:
    """Random sentences without padding."""
    generator = torch.Generator().manual_seed(setting.seed)
    shape = (2, size.batch, size.length)
    tokens = torch.randint(len(SPECIALS), size.vocabulary, shape, generator=generator)
    tokens[..., -1] = EOS
    return Batch(tokens[0], tokens[1]).to(setting.device)


def make_pair(
    recipe: str, size: Size, setting: Setting, latent: tuple[str, ...] | None = None
) -> tuple[Translation, Any]:
    """Model and guide of a recipe; the same seed gives the same weights."""
    torch.manual_seed(setting.seed)
    prior, guide = RECIPES[recipe]
    words = size.vocabulary
    model = Translation(words, words, make_prior(prior), size.network, latent)
    model.to(setting.device)
    return model, guide(model).to(setting.device)


def under(objective: Trace_ELBO, model: nn.Module, guide: nn.Module, batch: Batch) -> Made:
    """A loss to call and the parameters it trains."""
    module = objective(model, guide)
    return (lambda: module(batch)), list({id(p): p for p in module.parameters()}.values())


def without_latents(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The network without latents."""
    model, _ = make_pair(recipe, size, setting, ())
    return under(Head_ELBO(), model, Tied(model), batch)


def by_hand(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The latent network in plain PyTorch."""
    model, guide = make_pair(recipe, size, setting)
    weights = take_weights(model.state_dict(), guide.state_dict())
    network = ByHand(weights, recipe, size.heads, size.network.dropout)
    assert batch.source is not None
    source = batch.source
    return (lambda: network.loss(source, batch.target)), list(weights.values())


def guide_then_replay(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The usual Pyro way."""
    model, guide = make_pair(recipe, size, setting)
    return under(Trace_ELBO(), model, Replayed(model, guide), batch)


def ours(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The library, as a run trains."""
    return under(Head_ELBO(analytic=True), *make_pair(recipe, size, setting), batch)


def ours_stock(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The library under Pyro's own objective."""
    return under(Trace_ELBO(), *make_pair(recipe, size, setting), batch)


ROWS: dict[str, Callable[[str, Size, Setting, Batch], Made]] = {
    "no latents": without_latents,
    BASELINE: by_hand,
    "guide, replay": guide_then_replay,
    "ours": ours,
    "ours, stock": ours_stock,
}


@dataclass(frozen=True)
class Result:
    """One row as measured; times in milliseconds, memory in bytes."""

    recipe: str
    precision: str
    row: str
    ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    memory: int
    tokens_per_second: float
    size: Size


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    low, middle, high = (
        torch.tensor(values).double().quantile(torch.tensor([0.25, 0.5, 0.75]).double())
    )
    return float(low), float(middle), float(high)


def race(runners: list[Runner], rounds: int, warmup: int, seed: int, bar: Any) -> None:
    """Lets the rows take turns, the order rotated from round to round."""
    for number in range(-warmup, rounds):
        gc.collect()
        for place in range(len(runners)):
            runner = runners[(place + number) % len(runners)]
            seconds = runner.timed(seed + number + warmup)
            if number >= 0:
                runner.seconds.append(seconds)
            bar.update()


def measure(
    recipe: str, precision: str, size: Size, setting: Setting, rounds: int, warmup: int, bar: Any
) -> list[Result]:
    """Times all rows of a recipe against each other."""
    batch = make_batch(size, setting)
    runners = []
    for name, make in ROWS.items():
        loss, parameters = make(recipe, size, setting, batch)
        runners.append(Runner(name, loss, parameters, setting, precision))
    race(runners, rounds, warmup, setting.seed, bar)
    yardstick = next(runner.seconds for runner in runners if runner.name == BASELINE)
    return [_result(recipe, size, runner, yardstick) for runner in runners]


def _result(recipe: str, size: Size, runner: Runner, yardstick: list[float]) -> Result:
    seconds = statistics.median(runner.seconds)
    low, ratio, high = quartiles([a / b for a, b in zip(runner.seconds, yardstick)])
    speed = size.batch * size.length / seconds
    return Result(
        recipe,
        runner.precision,
        runner.name,
        1e3 * seconds,
        ratio,
        low,
        high,
        runner.memory(),
        speed,
        size,
    )


def progress(steps: int) -> Any:
    """A progress line in steps, on a terminal only."""
    return tqdm(total=steps, unit="step", leave=False, disable=None)


def table(
    recipes: Sequence[str], precisions: Sequence[str], plan: Plan, setting: Setting
) -> list[Result]:
    """Measures every recipe in every precision."""
    cells = list(product(recipes, precisions))
    steps = len(cells) * len(ROWS) * (plan.rounds + plan.warmup)
    results = []
    with progress(steps) as bar:
        for recipe, precision in cells:
            bar.set_description(f"{recipe} {precision}")
            results += measure(recipe, precision, plan.size, setting, plan.rounds, plan.warmup, bar)
    return results


def growing(plan: Plan) -> Iterator[tuple[str, Size]]:
    """The sizes of the figure: longer sentences, then more heads, in about constant tokens."""
    for length in plan.lengths:
        yield "length", replace(plan.size, length=length, batch=max(1, plan.tokens // length))
    short = max(2, int(plan.tokens**0.5))
    for heads in plan.heads:
        yield "heads", replace(plan.size, heads=heads, length=short, batch=plan.tokens // short)


def growth(recipe: str, precision: str, plan: Plan, setting: Setting) -> dict[str, list[Result]]:
    """Measures one recipe along length and along heads."""
    points = list(growing(plan))
    results: dict[str, list[Result]] = {"length": [], "heads": []}
    with progress(len(points) * len(ROWS) * (plan.growth_rounds + 1)) as bar:
        for axis, size in points:
            bar.set_description(f"growth, {axis} {getattr(size, axis)}")
            results[axis] += measure(recipe, precision, size, setting, plan.growth_rounds, 1, bar)
    return results


def show(results: list[Result]) -> None:
    """Prints the table."""
    head = ("recipe", "precision", "row", "ms/step", "ratio", "quartiles", "MB", "tokens/s")
    form = "{:<12} {:<9} {:<14} {:>8} {:>6} {:>11} {:>7} {:>8}"
    print(form.format(*head))
    for r in results:
        spread = f"{r.ratio_low:.2f}-{r.ratio_high:.2f}"
        cells = (f"{r.ms:.1f}", f"{r.ratio:.2f}", spread, f"{r.memory / 1e6:.0f}")
        print(form.format(r.recipe, r.precision, r.row, *cells, f"{r.tokens_per_second:.0f}"))


def draw(results: dict[str, list[Result]], path: Path) -> None:
    """Draws milliseconds and ratio against length and against heads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = {"length": "sentence length [tokens]", "heads": "heads a block"}
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), sharex="col", layout="constrained")
    for column, (axis, points) in enumerate(results.items()):
        _panel(axes[0][column], axis, "ms", points)
        _panel(axes[1][column], axis, "ratio", points)
        axes[1][column].set_xlabel(labels[axis])
    axes[0][0].set_ylabel("step [ms]")
    axes[1][0].set_ylabel(f"ratio to {BASELINE}")
    axes[0][0].legend(fontsize="small")
    first = results["length"][0]
    figure.suptitle(f"{first.recipe}, {first.precision}: a training step")
    figure.savefig(path)
    pyplot.close(figure)


def _panel(axes: Any, axis: str, quantity: str, points: list[Result]) -> None:
    for name in ROWS:
        rows = [point for point in points if point.row == name]
        values = [getattr(row.size, axis) for row in rows]
        axes.plot(values, [getattr(row, quantity) for row in rows], marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def metadata(plan: Plan, setting: Setting) -> dict[str, Any]:
    """Everything that a number depends on."""
    cuda = setting.device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if cuda else _processor(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "pyro": pyro.__version__,
        "python": platform.python_version(),
        "memory": MEMORY[setting.device],
        "setting": asdict(setting),
        "plan": asdict(plan),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the line and leaves with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def writable(text: str) -> Path:
    """A file in a folder that exists."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: no such folder, or a folder")
    return path


def make_parser() -> Parser:
    """Builds the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser("bench.py", description=__doc__, formatter_class=form)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument(
        "--recipe",
        action="append",
        choices=RECIPES,
        help="may be repeated; default: coda, cascaded",
    )
    parser.add_argument(
        "--precision", action="append", choices=PRECISIONS, help="may be repeated; default: both"
    )
    parser.add_argument("--adam", action="store_true", help="a step also updates the weights")
    parser.add_argument("--quick", action="store_true", help="a tiny network and few rounds")
    parser.add_argument("--json", type=writable, metavar="FILE", help="write rows and metadata")
    parser.add_argument(
        "--figure", type=writable, metavar="FILE", help="measure growth with length and heads too"
    )
    parser.add_argument("--seed", type=positive, default=1, help="default: 1")
    parser.add_argument("--threads", type=positive, help="of the processor; default: PyTorch's")
    for name in ("rounds", "warmup"):
        text = f"default: {getattr(FULL, name)}"
        parser.add_argument(f"--{name}", type=positive, metavar="N", help=text)
    for name, value in asdict(FULL.size).items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=positive, metavar="N", help=f"default: {value}")
    return parser


def make_plan(options: argparse.Namespace) -> Plan:
    """The default or the quick plan with what was asked for."""
    plan = QUICK if options.quick else FULL
    sizes = {name: getattr(options, name) for name in asdict(plan.size)}
    size = replace(plan.size, **{name: value for name, value in sizes.items() if value})
    rounds, warmup = options.rounds or plan.rounds, options.warmup or plan.warmup
    return replace(plan, size=size, rounds=rounds, warmup=warmup)


def check(parser: Parser, options: argparse.Namespace, plan: Plan) -> None:
    """Refuses what cannot be run."""
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    if plan.size.vocabulary <= len(SPECIALS):
        parser.error(f"--vocabulary must exceed the {len(SPECIALS)} special tokens")
    if plan.size.length < 2:
        parser.error("--length must be at least 2")
    try:
        _ = [size.network for _, size in growing(plan)] if options.figure else plan.size.network
    except ValueError as error:
        parser.error(str(error))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    plan = make_plan(options)
    check(parser, options, plan)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    pyro.enable_validation(False)
    setting = Setting(options.device, options.seed, options.adam)
    facts = metadata(plan, setting)
    where = "{device}, {threads} threads, torch {torch}, pyro {pyro}".format(**facts)
    print(f"{where}\nMB: {facts['memory']}")
    report(options, plan, setting, facts)


def report(
    options: argparse.Namespace, plan: Plan, setting: Setting, facts: dict[str, Any]
) -> None:
    """Measures, prints and writes the files asked for."""
    recipes = options.recipe or ["coda", "cascaded"]
    precisions = options.precision or PRECISIONS
    results = table(recipes, precisions, plan, setting)
    show(results)
    written: dict[str, Any] = {"metadata": facts, "rows": [asdict(row) for row in results]}
    if options.figure:
        points = growth(recipes[-1], precisions[0], plan, setting)
        draw(points, options.figure)
        written["growth"] = {axis: [asdict(row) for row in rows] for axis, rows in points.items()}
    if options.json:
        options.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
