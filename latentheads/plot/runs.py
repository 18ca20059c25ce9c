"""The pictures of a finished run, as a notebook asks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from matplotlib.figure import Figure

from latentheads.analysis.alignments import alignment_distributions, samples_alignments
from latentheads.analysis.divergence import PAIR_BATCH_TOKENS
from latentheads.analysis.divergence import divergence as measure_divergence
from latentheads.analysis.labels import name_positions, name_queries_and_keys, name_tokens
from latentheads.analysis.samples import sample_weights
from latentheads.batch import Batch
from latentheads.checks import check_least, check_word
from latentheads.corpora.batches import batches
from latentheads.corpora.corpus import Part, check_part
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.guide import WithSelection
from latentheads.metrics.alignment import Link
from latentheads.names import attention_type_of
from latentheads.plot.alignments import draw_alignments
from latentheads.plot.attention import draw_weights
from latentheads.plot.audio import draw_audio
from latentheads.plot.divergence import draw_divergence
from latentheads.plot.selection import draw_gates, draw_selection, draw_selection_history
from latentheads.plot.training import draw_bound, draw_kl, draw_kl_history
from latentheads.selection.hard_gates import Gating

if TYPE_CHECKING:
    from latentheads.runs.results import Results
    from latentheads.runs.run import Run

__all__ = [
    "alignments",
    "batch_alignments",
    "bound",
    "divergence",
    "gates",
    "heads",
    "kl",
    "kl_history",
    "selection",
    "selection_history",
    "sound",
]

Given = ParamSpec("Given")


def _of_a_run(
    draw: Callable[Concatenate[Run, Given], Figure],
) -> Callable[Concatenate[Run | str | Path, Given], Figure]:
    """Makes a picture of a run one of its folder too."""

    @wraps(draw)
    def drawn(run: Run | str | Path, *given: Given.args, **named: Given.kwargs) -> Figure:
        from latentheads.runs.loading import open_run  # takes long to load

        return draw(open_run(run), *given, **named)

    return drawn  # type: ignore[return-value]  # a run may be given by its name, too


@_of_a_run
def bound(run: Run) -> Figure:
    """Draws the true bound on validation, and what stands beside it, over training.

    Args:
        run: A finished run, or its folder.
    """
    return draw_bound(_read_metrics(run), run.settings.title)


@_of_a_run
def kl(run: Run) -> Figure:
    """Draws the KL of every block on the test part.

    Args:
        run: A finished run, or its folder.
    """
    results = _read_results(run)
    return draw_kl(results.kl_by_site, results.kl_how, run.settings.title)


@_of_a_run
def kl_history(run: Run) -> Figure:
    """Draws the KL of every block on validation over training.

    Args:
        run: A finished run, or its folder.
    """
    return draw_kl_history(_read_metrics(run), run.settings.title)


@_of_a_run
def gates(run: Run) -> Figure:
    """Draws the gate of every head at test time.

    Args:
        run: A finished run with gates, or its folder.
    """
    if not isinstance(run.model.selector, Gating):
        raise ValueError(f"{run.path} has no gates")
    laws = {each: run.guide.selections[each.block.key]() for each in run.model.selecting}
    gates = {module.block.name: law.mode[0].detach() for module, law in laws.items()}
    return draw_gates(gates, run.settings.title)


@_of_a_run
def selection(run: Run) -> Figure:
    """Draws which heads every task speaks with, and how many two tasks share.

    Args:
        run: A finished run that selects its heads, or its folder.
    """
    return draw_selection(_read_selection(run), run.settings.title)


@_of_a_run
def selection_history(run: Run) -> Figure:
    """Draws the posterior probability of every candidate over training.

    Args:
        run: A finished run that selects its heads, or its folder.
    """
    title = run.settings.title
    return draw_selection_history(_read_metrics(run), _read_selection(run), title)


@_of_a_run
def divergence(
    run: Run,
    part: Part | None = None,
    sentences: int = 500,
    drawn: bool = False,
    top: float | None = None,
) -> Figure:
    """Draws how far apart the heads of every block are, a heat-map a block.

    Args:
        run: A finished run, or its folder.
        part: What heads are read on; when not given, the validation part of the run's corpus.
        sentences: How many of the first sentences of the part, or blocks of a running text.
        drawn: Draw the heads from the guide, instead of setting them to their prior's location.
        top: End of the colour scale, where several figures are to share one.
    """
    check_least({"sentences": sentences}, sentences=1)
    if part is None:
        part = run.corpus.valid
    check_part(part)
    shown = part.first(sentences)
    with WithSelection(run.guide):
        found = measure_divergence(
            run.model, batches(shown, PAIR_BATCH_TOKENS), run.guide if drawn else None, latent=False
        )
    what = "heads drawn from the guide" if drawn else "heads at their prior's location"
    title = f"{run.settings.title}: {what}, {len(shown):,} {shown.unit}"
    return draw_divergence(found, title, top)


@_of_a_run
def heads(
    run: Run,
    sentence: str,
    draws: int = 64,
    block: str = "",
    row: int | None = None,
    target: str | None = None,
    direction: str | None = None,
    heads: Sequence[int] = (),
    seed: int = 0,
    links: Collection[Link] = (),
) -> Figure:
    """Draws the mean attention of a block beside its standard deviation, bands on one row.

    Where heads are selected or gated, those are shown that are likeliest to speak.

    Args:
        run: A finished run, or its folder.
        sentence: What is read: a source sentence, a file of sound, or a language model's own text.
        draws: Draws of the heads from the guide.
        block: The block, as ``decoder.1.cross``; when not given, the uppermost that reads the
            source, or a language model's uppermost.
        row: The place of the query that is shown with bands; when not given, the one least sure.
        target: The translation that the decoder reads; when not given, the run's own. A language
            model has none.
        direction: Which task of a run with several, as ``en-de``.
        heads: The heads; when not given, the first eight at most.
        seed: Of the draws.
        links: Gold links between source and target tokens, which are framed where a block reads the
            source: at the row that predicts the target token.
    """
    batch = run.read_sentence(sentence, target, direction=direction, seed=seed)
    found = sample_weights(run.model, run.guide, batch, draws, seed)
    name = _find_block(list(found), block)
    if links and not name.endswith(".cross"):
        raise ValueError(f"links are of a block that reads the source, and {name} does not")
    queries, keys = name_queries_and_keys(batch, attention_type_of(name), run.source, run.target)
    return draw_weights(
        found[name],
        queries,
        keys,
        row,
        heads,
        f"{run.settings.title}: attention in {name}, {draws} draws from the guide",
        links,
    )


@_of_a_run
def sound(
    run: Run,
    file: str | Path,
    draws: int = 64,
    block: str = "",
    head: int | None = None,
    row: int | None = None,
    target: str | None = None,
    direction: str | None = None,
    seed: int = 0,
) -> Figure:
    """Draws a file of sound above where a block looks in it for each token, bands on one row.

    Where heads are selected or gated, those are shown that are likeliest to speak.

    Args:
        run: A finished run of speech, or its folder.
        file: The file.
        draws: Draws of the heads from the guide.
        block: The block, as ``decoder.1.cross``; when not given, the uppermost that reads sound.
        head: Which; when not given, the surest.
        row: The place of the token that is shown with bands; when not given, the one least sure.
        target: What is said; when not given, what the run writes.
        direction: Which task of a run with several, as ``de``.
        seed: Of the draws.
    """
    if not isinstance(run.source, Positions):
        raise ValueError(f"{run.path} hears no speech: there is no sound to show")
    batch = run.read_sentence(str(file), target, direction=direction, seed=seed)
    assert batch.frames is not None
    found = sample_weights(run.model, run.guide, batch, draws, seed)
    name = _find_block([each for each in found if each.endswith(".cross")], block)
    written = name_tokens(run.target, batch.target[0].tolist())
    title = f"{run.settings.title}: {Path(file).name}\n{name}, {draws} draws from the guide"
    frames = batch.frames[0].double().cpu().numpy()
    return draw_audio(frames, found[name], written, head, row, title)


@_of_a_run
def alignments(
    run: Run,
    sentence: str,
    target: str | None = None,
    direction: str | None = None,
    links: Collection[Link] = (),
) -> Figure:
    """Draws where words point: prior, guide and exact posterior side by side.

    Those of a translation point at its source, those of a language model at the words before, or
    at null. Where the run hears, the frames of sound stand above them in the same time.

    Args:
        run: A finished run with alignments, or its folder.
        sentence: A source sentence, a file of sound where the run hears, or a language model's own
            text.
        target: Its translation; when not given, the run's own.
        direction: Which task of a run with several, as ``en-de``.
        links: Gold links between source and target tokens, which are framed.
    """
    if not samples_alignments(run.model):
        raise ValueError(f"{run.path} draws no alignments: there is nothing to show")
    return batch_alignments(run, run.read_sentence(sentence, target, direction=direction), links)


def batch_alignments(run: Run, batch: Batch, links: Collection[Link] = ()) -> Figure:
    """Draws where the words of a batch's first sentence point; see :func:`alignments`.

    Args:
        run: A finished run with alignments.
        batch: The sentence, with its translation.
        links: As for :func:`alignments`.
    """
    heard = None if batch.frames is None else batch.frames[0].double().cpu().numpy()
    what = "the words of a translation point" if run.source is not None else "words point back"
    if heard is not None:
        what = "each written token points in the sound"
    return draw_alignments(
        alignment_distributions(run.model, run.guide, batch),
        name_positions(batch, run.source, run.target),
        name_tokens(run.target, batch.target[0].tolist()),
        links,
        _name_guide(run),
        f"Where {what}\n{run.settings.title}",
        heard,
        "source word" if run.source is not None else "null, or a word before",
    )


def _name_guide(run: Run) -> str:
    """The name of the guide, and what its posterior of alignments reads."""
    name = run.settings.guide_name
    return name if run.guide.alignments is None else f"{name}, reads {run.guide.reads}"


def _find_block(names: Sequence[str], asked: str) -> str:
    """The block that is asked for, or the uppermost of the most telling chain."""
    if not names:
        raise ValueError("no block attends: there are no weights to draw")
    if asked:
        check_word("block", asked, names)
    return asked or next((n for n in reversed(names) if n.endswith(".cross")), names[-1])


def _read_results(run: Run) -> Results:
    if run.results is None:
        raise ValueError(f"{run.path} is no finished run: it has no results.json that is whole")
    return run.results


def _read_selection(run: Run) -> Mapping[str, Any]:
    found = _read_results(run).selection
    if not found:
        raise ValueError(f"{run.path} selects no heads")
    return found


def _read_metrics(run: Run) -> list[dict[str, Any]]:
    if not run.metrics:
        raise ValueError(f"{run.path} has no metrics: nothing was trained, or they are lost")
    return run.metrics
