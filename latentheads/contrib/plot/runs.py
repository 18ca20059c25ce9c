"""Plots of a finished run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec

from matplotlib.figure import Figure

from latentheads.checks import check_choice, check_least
from latentheads.contrib.heads.divergence import PAIR_BATCH_TOKENS
from latentheads.contrib.heads.divergence import divergence as measure_divergence
from latentheads.contrib.heads.labels import name_queries_and_keys, name_tokens
from latentheads.contrib.heads.samples import sample_weights
from latentheads.contrib.plot.alignments import batch_alignments
from latentheads.contrib.plot.attention import draw_weights
from latentheads.contrib.plot.audio import draw_audio
from latentheads.contrib.plot.divergence import draw_divergence
from latentheads.contrib.plot.selection import draw_gates, draw_selection, draw_selection_history
from latentheads.contrib.plot.training import draw_bound, draw_kl, draw_kl_history
from latentheads.contrib.speech.vocabulary import Positions
from latentheads.corpora.batches import batches
from latentheads.corpora.part import Part
from latentheads.corpora.text import PARTS
from latentheads.latents.handlers import WithSelection
from latentheads.latents.selector import SelectionFamily
from latentheads.metrics.alignment import Link
from latentheads.names import SELECTION, attention_type_of
from latentheads.runs.results import Results
from latentheads.runs.run import Run

P = ParamSpec("P")


def _accepts_folder(
    draw: Callable[Concatenate[Run, P], Figure],
) -> Callable[Concatenate[Run | str | Path, P], Figure]:
    """Makes a plot of a run accept the run's folder too."""

    @wraps(draw)
    def wrapped(run: Run | str | Path, *args: P.args, **kwargs: P.kwargs) -> Figure:
        from latentheads.runs.loading import open_run  # takes long to load

        return draw(open_run(run), *args, **kwargs)

    return wrapped  # type: ignore[return-value]  # it accepts a run's name, too


@_accepts_folder
def bound(run: Run) -> Figure:
    """Draws the ELBO on validation and related values over training.

    Args:
        run: A finished run, or its folder.
    """
    return draw_bound(_read_metrics(run), run.settings.title)


@_accepts_folder
def kl(run: Run) -> Figure:
    """Draws the KL of every block on the test part.

    Args:
        run: A finished run, or its folder.
    """
    results = _read_results(run)
    return draw_kl(results.kl_by_site, results.kl_how, run.settings.title)


@_accepts_folder
def kl_history(run: Run) -> Figure:
    """Draws the KL of every block on validation over training.

    Args:
        run: A finished run, or its folder.
    """
    return draw_kl_history(_read_metrics(run), run.settings.title)


@_accepts_folder
def gates(run: Run) -> Figure:
    """Draws the gate of every head at test time.

    Args:
        run: A finished run with gates, or its folder.
    """
    selector = run.model.selector
    if selector is None or not selector.is_foldable:
        raise ValueError(f"{run.path} has no gates")
    blocks = [module.block for module in run.model.selecting_blocks]
    families = run.guide.find_posteriors(SelectionFamily)
    posteriors = {block.name: families[block.site(SELECTION)]() for block in blocks}
    modes = {name: posterior.mode[0].detach() for name, posterior in posteriors.items()}
    return draw_gates(modes, run.settings.title)


@_accepts_folder
def selection(run: Run) -> Figure:
    """Draws which heads are active for every task, and the overlap between tasks.

    Args:
        run: A finished run with a selection of heads, or its folder.
    """
    return draw_selection(_read_selection(run), run.settings.title)


@_accepts_folder
def selection_history(run: Run) -> Figure:
    """Draws the guide's probability that each head is active over training.

    Args:
        run: A finished run with a selection of heads, or its folder.
    """
    title = run.settings.title
    return draw_selection_history(_read_metrics(run), _read_selection(run), title)


@_accepts_folder
def divergence(
    run: Run,
    part: Part | Literal["train", "valid", "test"] = "valid",
    sentences: int = 500,
    *,
    sampled: bool = False,
    vmax: float | None = None,
) -> Figure:
    """Draws the divergence between the heads of every block, one heat map per block.

    Args:
        run: A finished run, or its folder.
        part: The text, or a part of the run's corpus by name.
        sentences: Number of sentences, or blocks of a running text, from the first.
        sampled: Sample the heads from the guide instead of setting them to their prior's location.
        vmax: Upper limit of the colour scale, to share it between figures.
    """
    check_least({"sentences": sentences}, sentences=1)
    if not isinstance(part, Part):
        check_choice("part", part, PARTS, ", or one of a corpus, as corpus.test")
    text = (part if isinstance(part, Part) else getattr(run.corpus, part)).first(sentences)
    with WithSelection(run.guide):
        guide = run.guide if sampled else None
        text_batches = batches(text, PAIR_BATCH_TOKENS, shuffle=False)
        measured = measure_divergence(run.model, text_batches, guide, latent=False)
    heads_label = "heads sampled from the guide" if sampled else "heads at their prior's location"
    title = f"{run.settings.title}: {heads_label}, {len(text):,} {text.unit}"
    return draw_divergence(measured, title, vmax)


@_accepts_folder
def heads(
    run: Run,
    sentence: str,
    num_samples: int = 64,
    block: str = "",
    row: int | None = None,
    target: str | None = None,
    direction: str | None = None,
    heads: Sequence[int] = (),
    seed: int = 0,
    links: Collection[Link] = (),
) -> Figure:
    """Draws the mean attention of a block beside its standard deviation, and bands on one row.

    Selected or gated heads are those of the posterior's mode.

    Args:
        run: A finished run, or its folder.
        sentence: A source sentence, an audio file, or the text of a language model.
        num_samples: Number of samples of the heads from the guide.
        block: Name of the block, such as ``decoder.1.cross``; by default the uppermost
            cross-attention, or the uppermost block of a language model.
        row: Index of the query shown with bands; by default the least certain one.
        target: The translation; by default the run's own. A language model has none.
        direction: The task of a run with several, such as ``en-de``.
        heads: Indices of the heads; by default the first eight.
        seed: Seed of the samples.
        links: Gold links between source and target tokens, framed in cross-attention at the row
            that predicts the target token.
    """
    batch = run.read_sentence(sentence, target, direction=direction, seed=seed)
    weights = sample_weights(run.model, run.guide, batch, num_samples, seed)
    name = _select_block(list(weights), block)
    if links and not name.endswith(".cross"):
        raise ValueError(f"links need a cross-attention block, and {name} is none")
    queries, keys = name_queries_and_keys(batch, attention_type_of(name), run.source, run.target)
    return draw_weights(
        weights[name],
        queries,
        keys,
        row,
        heads,
        f"{run.settings.title}: attention in {name}, {num_samples} samples of the guide",
        links,
    )


@_accepts_folder
def audio(
    run: Run,
    file: str | Path,
    num_samples: int = 64,
    block: str = "",
    head: int | None = None,
    row: int | None = None,
    target: str | None = None,
    direction: str | None = None,
    seed: int = 0,
) -> Figure:
    """Draws an audio file above the attention of a block over it, and bands on one row.

    Selected or gated heads are those of the posterior's mode.

    Args:
        run: A finished run with audio input, or its folder.
        file: The audio file.
        num_samples: Number of samples of the heads from the guide.
        block: Name of the block, such as ``decoder.1.cross``; by default the uppermost
            cross-attention.
        head: Index of the head; by default the one with the most concentrated mean weights.
        row: Index of the query shown with bands; by default the least certain one.
        target: The transcript; by default the run's own.
        direction: The task of a run with several, such as ``de``.
        seed: Seed of the samples.
    """
    if not isinstance(run.source, Positions):
        raise ValueError(f"{run.path} has no audio input: there is nothing to plot")
    batch = run.read_sentence(str(file), target, direction=direction, seed=seed)
    assert batch.frames is not None
    weights = sample_weights(run.model, run.guide, batch, num_samples, seed)
    name = _select_block([name for name in weights if name.endswith(".cross")], block)
    tokens = name_tokens(run.target, batch.target[0].tolist())
    title = f"{run.settings.title}: {Path(file).name}\n{name}, {num_samples} samples of the guide"
    frames = batch.frames[0].double().cpu().numpy()
    return draw_audio(frames, weights[name], tokens, head, row, title)


@_accepts_folder
def alignments(
    run: Run,
    sentence: str,
    target: str | None = None,
    direction: str | None = None,
    links: Collection[Link] = (),
) -> Figure:
    """Draws the distribution over positions: prior, guide and exact posterior side by side.

    Positions are the tokens of the source, or of a language model the earlier tokens and null; a
    copy head may also generate. For audio input the frames are shown above, on the same time axis.

    Args:
        run: A finished run with latent alignments, or its folder.
        sentence: A source sentence, an audio file, or the text of a language model.
        target: The translation; by default the run's own.
        direction: The task of a run with several, such as ``en-de``.
        links: Gold links between source and target tokens, framed.
    """
    if not run.model.samples_alignments:
        raise ValueError(f"{run.path} has no latent alignments: there is nothing to plot")
    batch = run.read_sentence(sentence, target, direction=direction)
    return batch_alignments(run, run.settings, batch, links)


def _select_block(names: Sequence[str], block: str) -> str:
    """The given block, or by default the uppermost cross-attention, else the uppermost block."""
    if not names:
        raise ValueError("the model has no attention: there are no weights to plot")
    if block:
        check_choice("block", block, names)
    return block or next((name for name in reversed(names) if name.endswith(".cross")), names[-1])


def _read_results(run: Run) -> Results:
    if run.results is None:
        raise ValueError(f"{run.path} is not a finished run: it has no complete results.json")
    return run.results


def _read_selection(run: Run) -> Mapping[str, Any]:
    by_type = _read_results(run).selection
    if not by_type:
        raise ValueError(f"{run.path} has no selection of heads")
    return by_type


def _read_metrics(run: Run) -> list[dict[str, Any]]:
    if not run.metrics:
        raise ValueError(
            f"{run.path} has no metrics: it was not trained, or its metrics file is lost"
        )
    return run.metrics
