r"""Word times from the attention of Whisper, against heads chosen by hand.

    python experiments/studies/prepare.py whisper-tiny
    pip install espeakng-loader
    python experiments/studies/bench_word_times.py cache --network data/whisper-tiny \
        --multi30k data/multi30k --fsdd data/fsdd --cache data/word-times.pt
    python experiments/studies/bench_word_times.py sentences --cache data/word-times.pt \
        --out sentences.json

cache: speaks captions of Multi30k in the voices of espeak-ng, joins digits of the Free Spoken Digit
Dataset, and keeps the cross-attention of all utterances. sentences, digits: share of word starts
(and ends) near the truth, coverage of intervals, by number of labelled utterances. heads: each head
from five labelled sentences, how often intervals of its information hold that on fresh ones, and
how many sentences, right and wrong ones, do not fit their words. alone: heads that a sentence shows
alone, against those of a pool. lists: what other programs make of lists of heads that are learned
without labels. stability: how much sets of heads agree between resamples. forced: a forced aligner
on the same sounds (pip install pocketsphinx), and heads that learn from its times. recordings: how
often heads agree with it in natural speech, the WAV files of a folder. long: sentences joined to
recordings of some minutes, which are cut at their pauses. No other part needs more than the cache.
What is chosen was chosen on the sets dev, dev10 and digits-pool.

Whisper base (prepare.py whisper-base) is given --language en. With --speech cs, de or fr captions
of that language are spoken, and sentences alone can be measured; with --pool heads learn from the
cache of another one.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.contrib.heads.alignment_heads import AlignmentHeads
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.page.facts import get_revision
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.outputs import check_distinct_files, check_output_file
from latentheads.experiments.cli.parser import Parser, writable
from latentheads.experiments.studies.word_times.cache import (
    CachedUtterance,
    Recorder,
    read_cache,
    write_cache,
)
from latentheads.experiments.studies.word_times.forced import align_sets, measure_forced
from latentheads.experiments.studies.word_times.information import (
    measure_information,
    measure_misfit,
)
from latentheads.experiments.studies.word_times.long_sounds import measure_long
from latentheads.experiments.studies.word_times.measures import (
    average_listed,
    fit_heads,
    head_errors,
    list_for_dtw,
    measure_alone,
    measure_heads,
    measure_lists,
    measure_rivals,
    only_listed,
)
from latentheads.experiments.studies.word_times.recordings import measure_agreement
from latentheads.experiments.studies.word_times.speech import (
    FOREIGN_VOICES,
    Utterance,
    digit_strings,
    foreign_sentences,
    sentences,
)
from latentheads.experiments.studies.word_times.stability import measure_stability
from latentheads.files import write_text

LABELLED = {0: 1, 1: 3, 5: 3, 20: 1}
"""Labelled utterances, and how many disjoint draws of as many are made of the pool."""

TESTS = {
    "sentences": ("test", "noise20", "noise10", "noise5", "other"),
    "digits": ("digits-test", "digits-noise20"),
}
POOLS = {"sentences": "pool", "digits": "digits-pool"}
KEPT = {"listed": only_listed, "averaged": average_listed}
"""What a model is given in place of all heads."""

NEEDED = {
    "cache": ("network", "multi30k"),
    "forced": ("multi30k", "fsdd", "out"),
    "recordings": ("network", "sounds", "out"),
    "long": ("network", "multi30k", "out"),
}
LONG = ("dev", "test", "other")
GROUPS = {
    "data": ("network", "language", "speech", "multi30k", "fsdd", "sounds", "cache", "pool"),
    "output": ("out", "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("bench_word_times.py", __doc__, GROUPS, "[options] PART")
    parser.add_argument(
        "part",
        choices=(
            *("cache", *TESTS, "heads", "alone", "lists", "stability", "forced", "recordings"),
            "long",
        ),
    )
    parser.add_argument("--network", type=Path, help="folder of Whisper")
    parser.add_argument("--language", help="what a network of many languages takes speech to be")
    parser.add_argument(
        "--speech", choices=("en", *FOREIGN_VOICES), default="en", help="what is spoken"
    )
    parser.add_argument("--multi30k", type=Path, help="folder with train.en, val.en, ...")
    parser.add_argument("--fsdd", type=Path, help="folder with wav/0_jackson_0.wav, ...")
    parser.add_argument("--sounds", type=Path, help="folder with WAV files of natural speech")
    parser.add_argument("--cache", type=Path, help="file of the attention")
    parser.add_argument("--pool", type=Path, help="cache that heads learn from (default: --cache)")
    parser.add_argument("--out", type=writable, help="JSON file to write")
    return parser


def measure(
    sets: dict[str, list[CachedUtterance]], pool: Sequence[CachedUtterance], part: str
) -> dict[str, Any]:
    """All methods on all test sets of a part, with heads that learn from a pool."""
    kinds = 1 if part == "sentences" else 2
    tests = {name: sets[name] for name in TESTS[part] if name in sets}
    results: dict[str, Any] = {
        "rivals": {name: measure_rivals(test, pool[:5], kinds) for name, test in tests.items()},
        "heads": {},
        **{kind: {} for kind in KEPT},
    }
    if part == "digits":  # energy is in the model where ends are learned
        plain = FitOptions(kinds=kinds, energy=False)
        results["without_energy"] = {
            str(number): _measure_all(_fit(pool, number, 0, plain), tests) for number in LABELLED
        }
    for number, draws in LABELLED.items():
        fits = [_fit(pool, number, draw, FitOptions(kinds=kinds)) for draw in range(draws)]
        results["heads"][str(number)] = [
            {
                "chosen": fit.chosen,
                "sufficient": fit.sufficient() if draw == 0 else [],
                "error": fit.model.error.tolist(),
                "shift": fit.model.shift.tolist(),
                # noise and voices are measured with the first draw alone
                "tests": {
                    name: measure_heads(fit, test)
                    for name, test in tests.items()
                    if draw == 0 or name == TESTS[part][0]
                },
            }
            for draw, fit in enumerate(fits)
        ]
        for kind, keep in KEPT.items():
            fit = _fit([keep(u) for u in pool], number, 0, FitOptions(kinds=kinds))
            results[kind][str(number)] = {
                name: measure_heads(fit, [keep(u) for u in test], head_errors(fits[0], test))
                for name, test in tests.items()
            }
    return results


def _measure_all(
    fit: AlignmentHeads, tests: dict[str, list[CachedUtterance]]
) -> dict[str, dict[str, Any]]:
    return {name: measure_heads(fit, test) for name, test in tests.items()}


def _fit(
    pool: Sequence[CachedUtterance], number: int, draw: int, options: FitOptions
) -> AlignmentHeads:
    """Heads from labelled utterances; from the whole pool if none has labels."""
    chosen = pool[draw * number : (draw + 1) * number] if number else pool
    return fit_heads(chosen, number > 0, options)


def _row(row: Any) -> dict[str, Any]:
    values = {
        "head": list(row.head),
        "probability": row.probability,
        "information": row.information,
        "lag": row.lag,
        "width": row.width,
        "background": row.background,
        "follows": row.follows,
    }
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in values.items()
    }
    return rounded | {"information": [round(value, 3) for value in row.information]}


def _speak(options: Namespace) -> Iterator[Utterance]:
    """Speaks and joins all utterances."""
    if options.speech in FOREIGN_VOICES:
        return foreign_sentences(options.multi30k, options.speech)
    return chain(digit_strings(options.fsdd), sentences(options.multi30k))


def _measure_forced(options: Namespace, sets: dict[str, list[CachedUtterance]]) -> dict[str, Any]:
    """A forced aligner and alignment heads on the same utterances."""
    names = [name for part in TESTS for name in (POOLS[part], *TESTS[part])]
    aligned = align_sets(_speak(options), sets, names)
    return {
        part: measure_forced(
            aligned[POOLS[part]],
            {name: aligned[name] for name in TESTS[part]},
            sets[POOLS[part]],
            1 if part == "sentences" else 2,
        )
        for part in TESTS
    }


def _measure_lists(sets: dict[str, list[CachedUtterance]]) -> dict[str, Any]:
    """What other programs make of lists of heads that are learned without labels."""
    result: dict[str, Any] = {}
    for part, pool in POOLS.items():
        heads = _fit(sets[pool], 0, 0, FitOptions(kinds=1 if part == "sentences" else 2))
        warped = list_for_dtw(heads, sets[pool])
        result |= {name: measure_lists(heads, warped, sets[name]) for name in TESTS[part]}
    return result


def _measure_part(options: Namespace, sets: dict[str, list[CachedUtterance]]) -> dict[str, Any]:
    """The results of a part; the cache has none."""
    if options.part == "forced":
        return _measure_forced(options, sets)
    if options.part == "lists":
        return _measure_lists(sets)
    if options.part == "recordings":
        recorder = Recorder(options.network, options.language)
        return measure_agreement(options.sounds, recorder, sets["pool"])
    if options.part == "long":
        recorder = Recorder(options.network, options.language)
        spoken = list(sentences(options.multi30k))
        return {
            name: measure_long(recorder, [u for u in spoken if u.name.startswith(f"{name}/")])
            for name in LONG
        }
    if options.part == "stability":
        return measure_stability(
            [u for name in ("pool", "dev", "test", "other") for u in sets[name]]
        )
    if options.part == "alone":
        return {name: measure_alone(sets["pool"], sets[name]) for name in ("test", "other")}
    if options.part == "heads":
        heads = _fit(sets["pool"], 5, 0, FitOptions())
        return {
            "table": [_row(row) for row in heads.table()],
            "misfit": measure_misfit(sets),
            "information": measure_information([*sets["pool"], *sets["test"]]),
        }
    pools = read_cache(options.pool) if options.pool else sets
    return measure(sets, pools[POOLS[options.part]], options.part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    needed = NEEDED.get(options.part, ("out",))
    needed = needed if options.part == "long" else (*needed, "cache")
    if options.part == "cache" and options.speech not in FOREIGN_VOICES:
        needed = (*needed, "fsdd")
    for name in needed:
        if vars(options)[name] is None:
            parser.error(f"{options.part} needs --{name}")
    if options.pool and options.part not in TESTS:
        parser.error(f"--pool is of {' and '.join(TESTS)}, not of {options.part}")
    with error_handling("bench_word_times.py"):
        check_distinct_files([("--out", options.out)], [options.cache, options.pool])
        if options.part == "cache":
            check_output_file(options.cache, "--cache")
            recorder = Recorder(options.network, options.language)
            write_cache(recorder, _speak(options), options.cache)
            return 0
        sets = {} if options.part == "long" else read_cache(options.cache)
        if options.part not in ("sentences", "long") and "dev" not in sets:
            raise ValueError(f"{options.cache} has no English, which {options.part} needs")
        result = _measure_part(options, sets)
        inputs = {name: vars(options)[name] for name in GROUPS["data"]}
        named = (
            f"--{name} {Path(value).name}"
            for name, value in inputs.items()
            if value != parser.get_default(name)
        )
        command = " ".join(["bench_word_times.py", options.part, *named])
        record = {"command": command, "revision": get_revision(), "results": result}
        write_text(options.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
