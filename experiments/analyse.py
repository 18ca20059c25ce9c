"""Tells what the heads of finished runs do: how far apart, how sure, how important, in which role.

python experiments/analyse.py runs/transformer-seed0 runs/coda-seed0
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from command import Parser
from data import Data, make_corpus
from jsonargparse import Namespace
from loading import Loaded, check_vocabulary, load_finished
from portraits import Portrait, draw_averages, draw_maps, draw_pairs, draw_roles, others
from torch import Tensor
from tqdm import tqdm

from latentheads.batch import EOS, UNK, Batch
from latentheads.corpora import Corpus, Part, Rows, Words, batches
from latentheads.corpora.grammar import Arc
from latentheads.corpora.mixed import ENGLISH
from latentheads.corpora.vocabulary import Tagged
from latentheads.divergence import Divergence, head_divergence
from latentheads.handlers import Selected
from latentheads.names import CHAINS, Block
from latentheads.reading import (
    EXCLUDE,
    Parsed,
    Positions,
    Rarity,
    Recording,
    Relations,
    Relevance,
    Syntactic,
    detect,
    encode_parsed,
    frequency_ranks,
    gradient_importance,
    grammar_arcs,
    measure,
    read_conllu,
    readings,
    relevance,
    role_map,
    sides,
)

__all__ = ["Text", "distances", "portray", "texts"]

DESCRIPTION = (
    "Reads the heads of finished runs on the same sentences and writes figures, one table and one "
    "JSON: Jensen-Shannon divergence of head pairs as heat-maps, confidence, entropy, importance, "
    "relevance and cosine of outputs as maps, and the roles that heads play. Heads stand at their "
    "prior's location unless --draws is given."
)
TOKENS = 512
"""Of a batch; memory grows with the square of the heads."""
DIGITS = "%.6g"


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser(prog="analyse.py", description=DESCRIPTION)
    parser.add_argument("runs", type=str, nargs="+", help="folders that run.py wrote")
    parser.add_argument("--out", type=str, default="runs/analysis", help="where everything goes")
    parser.add_argument(
        "--part", type=Literal["valid", "test"], default="valid", help="valid or test"
    )
    parser.add_argument(
        "--sentences", type=int, default=500, help="so many first ones, or blocks of running text"
    )
    parser.add_argument(
        "--relevance",
        type=int,
        help="so many first ones for the relevance, which costs a pass a target token; 0: leave it "
        "out (default: as many as --sentences)",
    )
    parser.add_argument(
        "--draws",
        action="store_true",
        help="draw the heads from the guide, once a sentence; relevance is of the plug-in heads "
        "all the same",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument(
        "--conllu",
        type=str,
        help="file of parsed source sentences, or of a language model's own, for syntactic roles; "
        "a run on the grammar knows its parses. A guide sees no translation of them",
    )
    parser.add_argument(
        "--exclude",
        type=Literal[EXCLUDE],
        default=EXCLUDE[0],
        help=f"where BOS and EOS do not count for the confidence: {', '.join(EXCLUDE)}",
    )
    parser.add_argument(
        "--positional",
        type=float,
        default=0.9,
        help="a positional head points to one relative position so often",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=0.1,
        help="a syntactic head is so much better than the best fixed offset",
    )
    parser.add_argument(
        "--rare",
        type=float,
        default=0.5,
        help="a rare-word head points to one of the two rarest words so often",
    )
    parser.add_argument(
        "--top", type=int, default=500, help="so many types are too frequent to be rare"
    )
    parser.add_argument(
        "--checkpoint",
        type=str,
        default="reported",
        help="best, last, average, step-NNNNNNN, or reported: the weights that the run's figures "
        "are of",
    )
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda or auto")
    return parser


def _check(options: Namespace) -> None:
    """Refuses figures out of range."""
    least = {"sentences": 1, "relevance": 0, "seed": 0, "margin": 0, "top": 0}
    for name, bound in least.items():
        if options[name] is not None and not bound <= options[name] < 2**63:
            raise ValueError(f"{name} must be at least {bound}, got {options[name]}")
    for name in ("positional", "rare"):
        if not 0 < options[name] <= 1:
            raise ValueError(f"{name} must lie in (0, 1], got {options[name]}")


@dataclass(frozen=True)
class Parses:
    """Sentences whose dependencies are known.

    Attributes:
        part: The sentences.
        arcs: Dependencies of each.
        words: The word of each token; None where every token is a word.
        origin: Who parsed them.
    """

    part: Part
    arcs: Sequence[Sequence[Arc]]
    words: Sequence[Sequence[int]] | None
    origin: str


@dataclass(frozen=True)
class Text:
    """A run and what it is read on.

    Attributes:
        name: What the run is called in figures and tables.
        run: The run.
        corpus: Its corpus.
        part: The sentences.
        parses: Parsed sentences; None where there are none.
    """

    name: str
    run: Loaded
    corpus: Corpus
    part: Part
    parses: Parses | None

    def ranks(self, chain: str) -> Tensor:
        """Places by frequency in training of the types that a chain points at."""
        train, source = self.corpus.train, self.corpus.source
        if chain == "decoder-self" or source is None or train.sources is None:
            return frequency_ranks(torch.tensor(train.targets.tokens), len(self.corpus.target))
        return frequency_ranks(torch.tensor(train.sources.tokens), len(source))

    def same(self, other: Text) -> bool:
        """Whether both are read on the same tokens."""
        mine, its = ((t.part.targets, t.part.sources) for t in (self, other))
        return all(
            a is b or (a is not None and b is not None and _equal(a, b))
            for a, b in zip(mine, its, strict=True)
        )


def _equal(one: Rows, other: Rows) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def texts(options: Namespace) -> list[Text]:
    """Loads every run and its corpus.

    Raises:
        ValueError: One is no finished run, or its corpus has changed.
    """
    paths = [Path(run) for run in options.runs]
    names = _names(paths)
    parsed = None if options.conllu is None else read_conllu(options.conllu)
    runs = [load_finished(path, options.checkpoint, options.device) for path in paths]
    corpora: dict[Data, Corpus] = {}
    found = []
    for name, run in zip(names, runs, strict=True):
        data = run.settings.data
        corpus = corpora[data] = corpora.get(data) or make_corpus(data)
        check_vocabulary(run, corpus)
        part = getattr(corpus, options.part).first(options.sentences)
        if data.data == "grammar":
            parses = _of_grammar(part, corpus)
        elif parsed is not None:
            parses = _of_file(parsed[: options.sentences], run, options.conllu)
        else:
            parses = None
        found.append(Text(name, run, corpus, part, parses))
    return found


def _names(paths: Sequence[Path]) -> list[str]:
    """The last folders of the paths, as many as tell them apart."""
    parts = [path.resolve().parts for path in paths]
    if len(set(parts)) < len(parts):
        raise ValueError("every run must be given once")
    for count in range(1, max(map(len, parts))):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path.resolve()) for path in paths]


def _of_grammar(part: Part, corpus: Corpus) -> Parses | None:
    """Parses the English-like side; a sentence with an unknown word has no parse."""
    rows, words = part.sources, corpus.source
    if rows is None or words is None:
        rows, words = part.targets, corpus.target
    english = [task.source == ENGLISH for task in corpus.tasks]
    own = [True] * len(rows) if part.task is None else [english[task] for task in part.task]
    known = [place for place, row in enumerate(rows) if own[place] and UNK not in row]
    if not known:
        return None
    arcs = grammar_arcs(words.decode(rows[place].tolist()) for place in known)
    if isinstance(words, Tagged):
        arcs = [tuple(Arc(a.relation, a.head + 1, a.dependent + 1) for a in each) for each in arcs]
    return Parses(part.take(known), arcs, None, "the grammar")


def _of_file(parsed: Sequence[Parsed], run: Loaded, name: str) -> Parses:
    """Encodes parsed sentences; a translation model is given empty targets."""
    vocabulary = run.source or run.target
    if isinstance(vocabulary, Tagged):
        raise ValueError(f"{run.path} has several target languages: --conllu is for one alone")
    spaced = isinstance(vocabulary, Words) or getattr(vocabulary, "tokenised", False)
    if run.settings.data.lowercase:
        parsed = [replace(each, words=tuple(map(str.lower, each.words))) for each in parsed]
    try:
        rows, words = encode_parsed(parsed, vocabulary, spaced)
    except ValueError as reason:
        raise ValueError(f"{name}, {reason}") from reason
    arcs = [each.arcs for each in parsed]
    if run.source is None:
        return Parses(Part(rows, None), arcs, words, name)
    return Parses(Part(Rows.of([[EOS]] * len(rows)), rows), arcs, words, name)


def distances(model: Any, parts: Iterable[Batch], guide: Any = None, seed: int = 0) -> Divergence:
    """Measures divergence as the library does, but of blocks without a latent too.

    Args:
        model: The model.
        parts: Batches, each sentence once.
        guide: Draws the heads from this guide; without one they stand at their plug-in value.
        seed: Of the guide's noise; the draws are those that the other measures see.
    """
    totals: dict[str, Any] = {}
    queries: dict[str, Any] = {}
    sentences = 0
    for batch, heads in readings(model, parts, guide, seed):
        sentences += len(batch)
        for block in heads.attending:
            site, real = block.site(), sides(batch, block.chain).real_queries
            summed = head_divergence(heads[block.name].weights, real).double().sum(0).cpu()
            totals[site] = totals.get(site, 0) + summed
            queries[site] = queries.get(site, 0) + real.sum().cpu()
    return Divergence(
        {site: total / sentences for site, total in totals.items()},
        {site: total / queries[site] for site, total in totals.items()},
    )


def portray(text: Text, options: Namespace) -> Portrait:
    """Reads the heads of a run in every way."""
    model, seed = text.run.model, options.seed
    guide = text.run.guide if options.draws else None

    def watched(stage: str, part: Part = text.part) -> Iterable[Batch]:
        line, parts = f"{text.name}, {stage}", list(batches(part, TOKENS))
        return tqdm(parts, line, unit="batch", leave=False, dynamic_ncols=True)

    recorded = Recording(model)
    blocks = tuple(recorded.attending)
    if not blocks:
        raise ValueError(f"{text.run.path} has no heads that attend: there are no weights to read")
    positions, rare = Positions(options.positional), {}
    for chain in (name for name in CHAINS if name in {block.chain for block in blocks}):
        rarity = Rarity(text.ranks(chain), options.top, options.rare)
        detect(model, watched(f"roles of {chain}"), [positions, rarity], chain, guide, seed)
        rare[chain] = rarity.result()
    return Portrait(
        name=text.name,
        blocks=blocks,
        ngrams=tuple(block for block in recorded.blocks if block not in blocks),
        divergence=distances(model, watched("divergence"), guide, seed),
        measures=measure(model, watched("measures"), guide, seed, options.exclude),
        importance=gradient_importance(model, watched("importance"), guide, seed),
        relevance=_relevance(text, options, watched),
        positional=positions.result(),
        rare=rare,
        syntactic=_syntactic(text, options, watched),
    )


Watched = Callable[[str, Part], Iterable[Batch]]


def _relevance(text: Text, options: Namespace, watched: Watched) -> Relevance | None:
    number = options.sentences if options.relevance is None else options.relevance
    if not number:
        return None
    return relevance(text.run.model, watched("relevance", text.part.first(number)))


def _syntactic(text: Text, options: Namespace, watched: Watched) -> Syntactic | None:
    if text.parses is None:
        return None
    relations = Relations(text.parses.arcs, text.parses.words, margin=options.margin)
    guide = text.run.guide if options.draws else None
    shown = watched("dependencies", text.parses.part)
    detect(text.run.model, shown, [relations], None, guide, options.seed)
    return relations.result()


def summary(text: Text, portrait: Portrait) -> dict[str, Any]:
    """The row of a run in the table."""
    found = map(_pair_mean, portrait.measures.cosine.values())
    cosines = [value for value in found if value is not None]
    return {
        "run": text.name,
        "recipe": text.run.settings.recipe,
        "corpus": text.corpus.name,
        text.part.unit: len(text.part),
        "jsd": portrait.divergence.average(),
        **{f"jsd {chain}": portrait.divergence.average(chain) for chain in portrait.chains},
        "jsd_per_query": portrait.normalised.average(),
        **{
            f"jsd_per_query {chain}": portrait.normalised.average(chain)
            for chain in portrait.chains
        },
        "entropy": _mean(portrait.measures.entropy),
        "confidence": _mean(portrait.measures.confidence),
        "cosine": float(np.mean(cosines)) if cosines else None,
        "heads": sum(block.heads for block in portrait.blocks),
        "positional": _heads(portrait, "positional"),
        "syntactic": None if portrait.syntactic is None else _heads(portrait, "syntactic"),
        "rare_word": _heads(portrait, "rare-word") if _asked(portrait) else None,
    }


def _averages(name: str, found: Divergence, chains: Sequence[str]) -> dict[str, float | None]:
    """The one number, and that of every chain."""
    by_chain = {f"{name} {chain}": found.average(chain) for chain in chains}
    return {name: found.average(), **by_chain}


def _mean(blocks: dict[str, Tensor]) -> float:
    return float(np.mean(np.concatenate([each.numpy() for each in blocks.values()])))


def _pair_mean(matrix: Tensor) -> float | None:
    return float(others(matrix).mean()) if len(matrix) > 1 else None


def _heads(portrait: Portrait, kind: str) -> int:
    """So many heads play a role of a kind."""
    found = role_map(role for role in portrait.roles if role.role == kind)
    return sum(len(heads) for heads in found.values())


def record(text: Text, portrait: Portrait) -> dict[str, Any]:
    """Everything about a run, ready for JSON."""
    settings, syntactic, found = text.run.settings, portrait.syntactic, portrait.relevance
    return {
        "path": str(text.run.path),
        "prior": settings.prior_name,
        "guide": settings.guide_name,
        "seed": settings.seed,
        "step": text.run.step,
        "tokens": {
            "source": None if text.part.sources is None else _length(text.part.sources),
            "target": _length(text.part.targets),
        },
        "summary": summary(text, portrait),
        "blocks": [_block(portrait, block) for block in portrait.blocks],
        "ngrams": [_ngram(portrait, block) for block in portrait.ngrams],
        "relevance": found
        and {"logit": found.logit, "inputs": found.inputs, "predictions": found.predictions},
        "syntactic": syntactic
        and text.parses
        and {
            "origin": text.parses.origin,
            "sentences": len(text.parses.part),
            "cases": [
                {**asdict(case), "name": case.name, "needed": syntactic.needed(case)}
                for case in syntactic.cases
            ],
            "accuracy": {block: each.tolist() for block, each in syntactic.accuracy.items()},
        },
        "roles": [asdict(role) for role in portrait.roles],
    }


def _length(rows: Rows) -> int:
    return int(rows.lengths.sum())


def _block(portrait: Portrait, block: Block) -> dict[str, Any]:
    """Everything about a block; lists are by head."""
    name, site = block.name, block.site()
    rare = portrait.rare[block.chain]
    cosine = portrait.measures.cosine[name]
    return {
        "block": name,
        "chain": block.chain,
        "layer": block.layer,
        "heads": block.heads,
        "divergence": portrait.divergence.summed[site].tolist(),
        "divergence_per_query": portrait.divergence.normalised[site].tolist(),
        "divergence_average": _pair_mean(portrait.divergence.summed[site]),
        "cosine": cosine.tolist(),
        "cosine_average": _pair_mean(cosine),
        **{key: values.tolist() for key, values in _figures(portrait, block).items()},
        "rare_chance": rare.chance[name],
        "rare_queries": rare.count[name],
    }


def _ngram(portrait: Portrait, block: Block) -> dict[str, Any]:
    """What there is of n-gram heads, which have no weights; lists are by head."""
    cosine, found = portrait.measures.cosine[block.name], portrait.relevance
    return {
        "block": block.name,
        "chain": block.chain,
        "layer": block.layer,
        "heads": block.heads,
        "cosine": cosine.tolist(),
        "cosine_average": _pair_mean(cosine),
        "importance": portrait.importance[block.name].tolist(),
        **({} if found is None else {"relevance": found.shares[block.name].tolist()}),
    }


def _figures(portrait: Portrait, block: Block) -> dict[str, Tensor]:
    """The quantities of which there is one a head."""
    name, rare = block.name, portrait.rare[block.chain]
    found = {
        "entropy": portrait.measures.entropy[name],
        "confidence": portrait.measures.confidence[name],
        "importance": portrait.importance[name],
    }
    if portrait.relevance is not None:
        found["relevance"] = portrait.relevance.shares[name]
        found["relevance_logits"] = portrait.relevance.raw[name]
    return found | {
        "offset": portrait.positional.offset[name],
        "offset_share": portrait.positional.share[name],
        "rarest": rare.rarest[name],
        "two_rarest": rare.two[name],
    }


def head_table(texts: Sequence[Text], portraits: Sequence[Portrait]) -> pd.DataFrame:
    """One row a head."""
    return pd.DataFrame(
        row
        for text, portrait in zip(texts, portraits, strict=True)
        for block in portrait.blocks
        for row in _head_rows(text, portrait, block)
    )


def _head_rows(text: Text, portrait: Portrait, block: Block) -> Iterator[dict[str, Any]]:
    played = role_map(portrait.roles).get(block.name, {})
    figures = {
        "divergence": others(portrait.divergence.summed[block.site()]),
        "divergence_per_query": others(portrait.divergence.normalised[block.site()]),
        "cosine": others(portrait.measures.cosine[block.name]),
        **_figures(portrait, block),
    }
    for head in range(block.heads):
        yield {
            "run": text.name,
            "recipe": text.run.settings.recipe,
            "block": block.name,
            "chain": block.chain,
            "layer": block.layer,
            "head": head,
            **{name: values[head].item() for name, values in figures.items()},
            "rare_chance": portrait.rare[block.chain].chance[block.name],
            **_best_relation(portrait.syntactic, block.name, head),
            "roles": "; ".join(f"{role.role} {role.detail}" for role in played.get(head, [])),
        }


def _best_relation(found: Syntactic | None, block: str, head: int) -> dict[str, Any]:
    """The relation in which a head is furthest above the baseline."""
    if found is None or block not in found.accuracy:
        return {}
    scores = found.accuracy[block][:, head].tolist()
    asked = [(score, case) for score, case in zip(scores, found.cases, strict=True) if case.count]
    if not asked:
        return {}
    score, case = max(asked, key=lambda pair: pair[0] - pair[1].baseline)
    return {"relation": case.name, "accuracy": score, "accuracy_baseline": case.baseline}


TITLES = {
    "jsd": "JSD",
    **{f"jsd {chain}": chain for chain in CHAINS},
    "jsd_per_query": "JSD a query",
    "entropy": "entropy",
    "confidence": "confidence",
    "cosine": "cosine",
    "positional": "positional",
    "syntactic": "syntactic",
    "rare_word": "rare-word",
}


def markdown(rows: Sequence[dict[str, Any]], notes: Sequence[str]) -> str:
    """The rows of all runs as a Markdown table, and notes below it."""
    shown = {name: title for name, title in TITLES.items() if any(name in row for row in rows)}
    lines = [f"| run | recipe | {' | '.join(shown.values())} |"]
    lines.append("|---|---|" + "---:|" * len(shown))
    for row in rows:
        cells = " | ".join(_cell(name, row.get(name)) for name in shown)
        lines.append(f"| `{row['run']}` | `{row['recipe']}` | {cells} |")
    return "\n".join([*lines, "", *(f"{note}\n" for note in notes)])


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.{2 if name.startswith('jsd') and 'query' not in name else 3}f}"


def notes(texts: Sequence[Text], portraits: Sequence[Portrait], options: Namespace) -> list[str]:
    """What a reader of the table has to know."""
    found = [
        f"{caption(texts, options)}. JSD: nats, average over head pairs of all blocks, summed over "
        "queries and averaged over sentences; a query: averaged over queries. Entropy (nats), "
        "confidence and cosine of outputs: averages over heads or head pairs. Roles: heads that "
        f"play one, of {' / '.join(str(n) for n in _sizes(portraits))}."
    ]
    if not all(text.same(texts[0]) for text in texts):
        corpora = ", ".join(f"{text.name}: {text.corpus.name}" for text in texts)
        found.append(
            f"**Warning: not all runs were read on the same tokens ({corpora}); rows of different "
            "text are no comparison.**"
        )
    parsed = dict.fromkeys(
        f"Syntactic roles: {len(text.parses.part):,} sentences parsed by {text.parses.origin}."
        for text in texts
        if text.parses is not None
    )
    return [*found, *parsed, *(f"{note}." for note in gaps(portraits))]


def _sizes(portraits: Sequence[Portrait]) -> list[int]:
    """So many heads each run has; once if all have the same."""
    sizes = [sum(block.heads for block in portrait.blocks) for portrait in portraits]
    return sizes if len(set(sizes)) > 1 else sizes[:1]


def caption(texts: Sequence[Text], options: Namespace) -> str:
    """Says what was read."""
    heads = "Heads drawn from the guide (relevance: plug-in)" if options.draws else "Plug-in heads"
    corpora = " / ".join(dict.fromkeys(text.corpus.name for text in texts))
    number = " / ".join(dict.fromkeys(f"{len(text.part):,} {text.part.unit}" for text in texts))
    return f"{heads}, first {number} of {options.part}, {corpora}"


def gaps(portraits: Sequence[Portrait]) -> list[str]:
    """Says which roles were not looked for, and why."""
    found = []
    deaf = [each.name for each in portraits if each.syntactic is None]
    if deaf:
        found.append(f"Syntactic roles were not looked for{_of(deaf, portraits)}: no parses")
    common = [each.name for each in portraits if not _asked(each)]
    if common:
        why = "every word is too frequent"
        found.append(f"Rare-word roles were not looked for{_of(common, portraits)}: {why}")
    return found


def _asked(portrait: Portrait) -> bool:
    """Whether there was a rare word to point to."""
    return any(count for found in portrait.rare.values() for count in found.count.values())


def _of(names: Sequence[str], portraits: Sequence[Portrait]) -> str:
    return "" if len(names) == len(portraits) else f" in {', '.join(names)}"


def write(
    texts: Sequence[Text], portraits: Sequence[Portrait], options: Namespace, out: Path
) -> str:
    """Writes figures, tables and JSON; returns the table."""
    rows = [summary(*pair) for pair in zip(texts, portraits, strict=True)]
    table = markdown(rows, notes(texts, portraits, options))
    said = {
        "options": {name: options[name] for name in vars(options)},
        "versions": _versions(),
        "same_text": all(text.same(texts[0]) for text in texts),
        "runs": [record(*pair) for pair in zip(texts, portraits, strict=True)],
    }
    (out / "analysis.json").write_text(_json(said), encoding="utf-8")
    (out / "table.md").write_text(table, encoding="utf-8")
    pd.DataFrame(rows).to_csv(out / "table.csv", index=False, float_format=DIGITS)
    head_table(texts, portraits).to_csv(out / "heads.csv", index=False, float_format=DIGITS)
    draw(portraits, caption(texts, options), out)
    return table


def draw(portraits: Sequence[Portrait], title: str, out: Path) -> None:
    """Draws every figure."""
    top = max(float(m.max()) for each in portraits for m in each.divergence.summed.values())
    for portrait in portraits:
        name = portrait.name.strip("/").replace("/", "-")
        draw_pairs(portrait, max(top, 1e-9), title, out / f"divergence-{name}.png")
    draw_averages(portraits, title, out / "divergence.png")
    draw_maps(portraits, title, out / "heads.png")
    draw_roles(portraits, "\n".join([title, *gaps(portraits)]), out / "roles.png")


def _json(value: Any) -> str:
    """JSON, with null for what is no number."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _versions() -> dict[str, str]:
    packages = ("latentheads", "torch", "pyro-ppl", "numpy", "matplotlib")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _folder(name: str) -> Path:
    """Makes the folder of the results."""
    out = Path(name)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "table.md").touch()
    except OSError as reason:
        raise ValueError(f"out: cannot write {out}: {reason.strerror}") from reason
    return out


def _portray(text: Text, options: Namespace) -> Any:
    with Selected(text.run.guide):
        return portray(text, options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = make_parser()
    options = parser.parse_args(sys.argv[1:] if arguments is None else list(arguments))
    try:
        _check(options)
        found = texts(options)
        out = _folder(options.out)
        print(write(found, [_portray(text, options) for text in found], options, out))
    except (ValueError, TypeError) as mistake:
        parser.error(str(mistake))
    except OSError as trouble:
        print(f"analyse.py: error: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("analyse.py: stopped; nothing was written", file=sys.stderr)
        return 130
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
