"""The tables of the page on alignment heads are those of its results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.experiments.studies.word_times.cached import LISTED

RESULTS = ROOT / "experiments" / "results" / "word-times"
PAGES = [ROOT / "docs" / "alignment-heads.md", RESULTS / "README.md"]
OPENAI = ("openai", "openai, bias removed")
LIMITS = ("20 ms", "50 ms", "100 ms", "200 ms")
RIVALS = {
    "openai": "OpenAI's eight heads, DTW",
    "openai, bias removed": "the same, bias removed",
    "transformers": "OpenAI's eight heads, DTW of `transformers`",
    "transformers, bias removed": "the same, bias removed",
    "upper": "upper half, DTW",
    "upper, bias removed": "the same, bias removed",
    "norm": "eight heads by L2 norm, DTW",
    "norm, bias removed": "the same, bias removed",
}
SETS = {
    "test": "clean",
    "noise20": "noise, 20 dB",
    "noise10": "10 dB",
    "noise5": "5 dB",
    "other": "other voices, 110 to 230 words a minute",
}


@cache
def read(part: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{part}.json").read_text("utf-8"))["results"])


def _cells(summary: dict[str, Any]) -> str:
    """Shares within each limit, with an interval at 50 ms; and coverage."""
    cells = [f"{summary['within'][limit][0]}" for limit in LIMITS]
    _, low, high = summary["within"]["50 ms"]
    cells[1] += f" [{low}, {high}]"
    covered = summary.get("coverage_of_90")
    return " | ".join([*cells, "" if covered is None else f"{covered[0]}"])


def table_lines(part: str, name: str, kind: str) -> list[str]:
    """A line for each method on a test set, and for each set of labelled utterances."""
    lines = [
        f"| {title} | {_cells(read(part)['rivals'][name][rival][kind])} |"
        for rival, title in RIVALS.items()
    ]
    for number, draws in read(part)["heads"].items():
        for index, draw in enumerate(draws):
            title = f"alignment heads, {number} labelled" if index == 0 else "other utterances"
            if name in draw["tests"]:
                lines.append(f"| {title} | {_cells(draw['tests'][name][kind])} |")
    return lines


def energy_lines() -> list[str]:
    """A line for each number of labelled strings: digits with noise or not, without energy."""
    lines = []
    for number, tests in read("digits")["without_energy"].items():
        for name, title in (("digits-test", "clean"), ("digits-noise20", "noise, 20 dB")):
            cells = _cells(tests[name]["both"])
            lines.append(f"| {title}, {number} labelled, without energy | {cells} |")
    return lines


def condition_lines(part: str = "sentences") -> list[str]:
    """A line for each test set: OpenAI's heads without their bias, and five labelled or none."""
    heads, rivals = read(part)["heads"], read(part)["rivals"]
    lines = []
    for name, title in SETS.items():
        cells = [f"{rivals[name]['openai, bias removed']['starts']['within']['50 ms'][0]}"]
        for number in ("0", "5", "20"):
            summary = heads[number][0]["tests"][name]["starts"]
            cells += [f"{summary['within']['50 ms'][0]}", f"{summary['coverage_of_90'][0]}"]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def head_lines(part: str = "heads", openai: Sequence[tuple[int, int]] = LISTED) -> list[str]:
    """A line for each head with at least half a nat, from five labelled sentences."""
    lines = []
    for row in read(part)["table"]:
        mean, low, high = row["information"]
        if mean >= 0.5:
            layer, head = row["head"]
            listed = "yes" if (layer, head) in openai else ""
            lines.append(
                f"| L{layer}H{head} | {row['probability']:.2f} | {mean:.1f} [{low:.1f}, {high:.1f}]"
                f" | {row['lag']:+.2f} | {row['width']:.2f} | {listed} |"
            )
    return lines


def information_lines() -> list[str]:
    """Bias and coverage of information, by number of sentences."""
    lines = []
    for row in read("heads")["information"]:
        cells = [str(row["sentences"]), "yes" if row["labelled"] else "no"]
        for bias, covered in (("bias_of_learned", "covered_by_bootstrap"), ("bias", "covered")):
            mean, low, high = row[bias]
            cells.append(f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]")
            cells.append("" if row[covered] is None else _percent(row[covered]))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _percent(share: list[float]) -> str:
    mean, low, high = (100 * min(1, max(0, value)) for value in share)
    return f"{mean:.0f} in each" if low == high else f"{mean:.0f} [{low:.0f}, {high:.0f}]"


MISFITS = {
    "test": "clean",
    "other": "other voices",
    "dev": "voices of the options",
    "noise20": "noise, 20 dB",
    "noise10": "10 dB",
    "noise5": "5 dB",
    "wrong": "words of another sentence",
    "half": "second half of another sentence",
}


def misfit_lines() -> list[str]:
    """How many sentences of each set do not fit their words."""
    few, many = read("heads")["misfit"]
    return [
        f"| {title} | "
        + " | ".join(f"{row['misfits'][name]} of {row['sentences'][name]}" for row in (few, many))
        + " |"
        for name, title in MISFITS.items()
    ]


def stability_lines() -> list[str]:
    """A line for each method: agreement by number of sentences."""
    sizes = read("stability")
    rows = {name: [sizes[size][name]["jaccard"] for size in sizes] for name in sizes["5"]}
    return [f"| {name} | {' | '.join(f'{x:.2f}' for x in row)} |" for name, row in rows.items()]


FORCED_SETS = {
    **SETS,
    "other": "other voices",
    "digits-test": "digits",
    "digits-noise20": "digits, noise, 20 dB",
}
LEARNED = {"0 labelled": "none", "5 labelled": "five labelled", "taught": "its times"}


def _forced(file: str = "forced") -> dict[str, Any]:
    return {name: rows for part in read(file).values() for name, rows in part.items()}


def _less(row: dict[str, Any], limit: str) -> str:
    middle, low, high = row["less_aligner"][limit]
    sign = " n.s." if low <= 0 <= high else ""
    return f"{middle} [{low}, {high}]{sign}".replace("-", "\N{MINUS SIGN}")


def aligner_lines() -> list[str]:
    """A line for each test set: a forced aligner."""
    return [
        f"| {title} | {rows['pocketsphinx']['boundaries']} | {_cells(rows['pocketsphinx'])[:-3]} |"
        for title, rows in ((title, _forced()[name]) for name, title in FORCED_SETS.items())
    ]


def taught_lines() -> list[str]:
    """A line for each test set, and what heads learned from: heads less a forced aligner."""
    lines = []
    for name, title in FORCED_SETS.items():
        for labels, learned in LEARNED.items():
            row = _forced()[name][labels]
            cells = [f"{row['within'][limit][0]}" for limit in LIMITS[:2]]
            cells += [f"{row['coverage_of_90'][0]}", *(_less(row, n) for n in LIMITS[:2])]
            lines.append(f"| {title} | {learned} | {' | '.join(cells)} |")
    return lines


def forced_lines(file: str = "forced") -> list[str]:
    """The same at 50 ms alone, a line for each test set."""
    lines = []
    for name, title in FORCED_SETS.items():
        rows = _forced(file)[name]
        cells = [f"{rows['pocketsphinx']['within']['50 ms'][0]}"]
        for labels in ("0 labelled", "taught"):
            share = rows[labels]["within"]["50 ms"][0]
            cells += [f"{share}", _less(rows[labels], "50 ms")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


BASE_LISTED = [(3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6)]
NETWORKS = {
    "tiny-en": "tiny.en, English",
    "base-en": "base, English",
    "base-de": "base, German",
    "base-fr": "base, French",
    "base-cs": "base, Czech",
}
PROMPTS = {"base-de-as-en": "English", "base-de-none": "none"}


def _at_50_ms(row: dict[str, Any]) -> str:
    middle, low, high = row["starts"]["within"]["50 ms"]
    return f"{middle} [{low}, {high}]"


def _less_all(row: dict[str, Any]) -> str:
    return _less({"less_aligner": row["less_all"]}, "50 ms")


def _network_rows(part: str) -> dict[str, dict[str, Any]]:
    """The rows of a network and a language on clean sentences."""
    results = read(part)
    heads = {number: draws[0]["tests"]["test"] for number, draws in results["heads"].items()}
    listed = {f"listed {number}": tests["test"] for number, tests in results["listed"].items()}
    return {**results["rivals"]["test"], **heads, **listed}


def network_lines() -> list[str]:
    """A line for each network and language, within 50 ms."""
    lines = []
    for part, title in NETWORKS.items():
        rows = _network_rows(part)
        names = ("openai", "openai, bias removed", "listed 0", "0", "listed 5", "5")
        cells = [_at_50_ms(rows[name]) for name in names]
        words = rows["0"]["starts"]["boundaries"]
        lines.append(f"| {title} | {words} | {' | '.join(cells)} |")
    return lines


def coverage_lines() -> list[str]:
    """A line for each network and language: 90 % intervals that hold the true start."""
    lines = []
    for part, title in NETWORKS.items():
        rows = [_network_rows(part)[name]["starts"] for name in ("listed 0", "0", "listed 5", "5")]
        cells = [f"{row['coverage_of_90'][0]}" for row in rows]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def paired_lines() -> list[str]:
    """A line for each network and language: OpenAI's heads less all, and their mean as a head."""
    lines = []
    for part, title in NETWORKS.items():
        listed, averaged = read(part)["listed"], read(part)["averaged"]
        cells = [_less_all(listed[number]["test"]) for number in ("0", "5")]
        cells += [_at_50_ms(averaged[number]["test"]) for number in ("0", "5")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def carried_lines() -> list[str]:
    """A line for each language: heads that learned from English, and from the language itself."""
    lines = []
    for part, title in list(NETWORKS.items())[2:]:
        cells = []
        for number in ("0", "5"):
            for source in (f"{part}-from-en", part):
                row = _network_rows(source)[number]
                cells += [_at_50_ms(row), f"{row['starts']['coverage_of_90'][0]}"]
        lines.append(f"| {title.removeprefix('base, ')} | {' | '.join(cells)} |")
    return lines


ALONE = {"alone": "tiny.en", "base-en-alone": "base"}


def alone_lines() -> list[str]:
    """A line for each network and set: heads of 40 sentences, and of each sentence alone."""
    lines = []
    for part, network in ALONE.items():
        for name, rows in read(part).items():
            cells = [f"{network}, {'other voices' if name == 'other' else SETS[name]}"]
            for row in (rows["pool"], rows["alone"]):
                cells += [_share(row).replace(" %", ""), f"{row['coverage_of_90'][0]}"]
            less = {"less_aligner": rows["pool_less_alone"]}
            cells += [_less(less, limit) for limit in LIMITS[:2]]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def prompt_lines() -> list[str]:
    """A line for each language that German speech is given as."""
    return [
        f"| {title} | {' | '.join(_at_50_ms(_network_rows(part)[n]) for n in names)} |"
        for names in [("openai, bias removed", "0", "5")]
        for part, title in {"base-de": "German", **PROMPTS}.items()
    ]


RECORDINGS = {
    "prompts": "prompts of a telephone exchange",
    "book": "a book that is read",
    "base-en-prompts": "the prompts, Whisper base",
}
METHODS = {
    "learned from synthetic speech": "alignment heads, 0 labelled, of synthetic speech",
    "learned from these recordings": "alignment heads, 0 labelled, of these recordings",
    "joined to one sound": "alignment heads, 0 labelled, of these recordings as one sound",
    **{name: title for name, title in RIVALS.items() if not name.startswith(("upper", "norm"))},
}


def recording_lines() -> list[str]:
    """A line for each method: natural speech, against the times of a forced aligner."""
    return [
        f"| {title} | {row['boundaries']} | {method} | {_cells(row)} |"
        for part, title in RECORDINGS.items()
        for name, method in METHODS.items()
        if (row := read(part)["agreement"].get(name)) is not None
    ]


LONG = {"test": "clean", "other": "other voices", "dev": "voices of the options"}
SOUNDS = {
    "sentence by sentence": "sentence by sentence",
    "0 s": "one sound",
    "4 s": "one sound, 4 s of silence after each",
}


def long_lines() -> list[str]:
    """A line for each way to join the sentences of a set to one sound."""
    lines = []
    for name, title in LONG.items():
        for part, sounds in SOUNDS.items():
            row = read("long")[name][part]
            share, low, high = row["within"]["50 ms"]
            cells = [title, sounds, f"{row['boundaries']}", f"{share} [{low}, {high}]"]
            cells += [f"{row['within']['200 ms'][0]}", f"{row['coverage_of_90'][0]}"]
            if "less_alone" in row:
                cells.append(_difference(row["less_alone"]["50 ms"]))
            else:
                cells.append("")
            lines.append(f"| {' | '.join(cells)} |")
    return lines


LIST_SETS = {"test": "clean", "other": "other voices", "digits-test": "digits"}
LISTS = {
    "openai": "OpenAI's",
    "dtw": "`heads_for_dtw`",
    "likely": "P above .5",
    "chosen": "`chosen`",
    "sufficient": "`sufficient()`",
}
PROGRAMS = {"openai": "OpenAI's code", "transformers": "`transformers`"}


def list_lines(part_file: str = "lists") -> list[str]:
    """A line for each list of heads that a program averages and warps."""
    lines = []
    for part, title in LIST_SETS.items():
        for program, of in PROGRAMS.items():
            for name, listed in LISTS.items():
                row = read(part_file)[part][program][name]
                cells = [title, of, listed, f"{row['heads']}", _cells(row).removesuffix(" | ")]
                cells += [
                    "" if name == "openai" else _difference(row["less_openai"][limit])
                    for limit in ("50 ms", "200 ms")
                ]
                lines.append(f"| {' | '.join(cells)} |")
    return lines


PAGE_LISTS = {
    "openai": "OpenAI's eight heads",
    "dtw": "`heads_for_dtw`",
    "likely": "all with P above .5",
    "chosen": "`heads.chosen`",
}


def short_list_lines() -> list[str]:
    """A line for each list of heads in OpenAI's code: sentences and digits, of each network."""
    lines = []
    for name, title in PAGE_LISTS.items():
        rows = (
            read(file)[part]["openai"][name]
            for file in ("lists", "base-en-lists")
            for part in ("test", "digits-test")
        )
        shares = (row["within"]["50 ms"] for row in rows)
        cells = " | ".join(f"{share} [{low}, {high}]" for share, low, high in shares)
        lines.append(f"| {title} | {cells} |")
    return lines


def _difference(values: Sequence[float]) -> str:
    middle, low, high = values
    text = f"{middle} [{low}, {high}]".replace("-", "\N{MINUS SIGN}")
    return text + " n.s." * (low <= 0 <= high)


TABLES: dict[str, Callable[[], list[str]]] = {
    "networks and languages": network_lines,
    "networks and languages, covered": coverage_lines,
    "the eight, in two ways": paired_lines,
    "languages, learned from English": carried_lines,
    "German, given as": prompt_lines,
    "one sentence alone": alone_lines,
    "base and a forced aligner": lambda: forced_lines("base-en-forced"),
    "digits of base": lambda: table_lines("base-en-digits", "digits-test", "both"),
    "conditions of base": lambda: condition_lines("base-en"),
    "heads of base": lambda: head_lines("base-en-heads", BASE_LISTED),
    "natural speech": recording_lines,
    "long sounds": long_lines,
    "lists": list_lines,
    "lists of base": lambda: list_lines("base-en-lists"),
    "lists, in short": short_list_lines,
    "a forced aligner": aligner_lines,
    "heads and a forced aligner": taught_lines,
    "heads and a forced aligner, in short": forced_lines,
    "sentences": lambda: table_lines("sentences", "test", "starts"),
    "digits": lambda: table_lines("digits", "digits-test", "both"),
    "digits with noise": lambda: table_lines("digits", "digits-noise20", "both"),
    "digits without energy": energy_lines,
    "conditions": condition_lines,
    "heads": head_lines,
    "information": information_lines,
    "misfits": misfit_lines,
    "stability": stability_lines,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_that_of_the_results(name: str) -> None:
    lines = TABLES[name]()
    assert len(lines) > 2
    texts = [page.read_text("utf-8") for page in PAGES]
    assert [line for line in lines if not any(line in text for text in texts)] == []


def test_links_of_words_are_those_of_the_study() -> None:
    folder = RESULTS.parent / "word-links"
    systems = json.loads((folder / "hansards.json").read_text("utf-8"))["results"]["test"]
    text = (folder / "README.md").read_text("utf-8").replace("\N{MINUS SIGN}", "-")
    for name, row in systems.items():
        scores = " | ".join(f"{100 * row[score]:.1f}" for score in ("aer", "precision", "recall"))
        middle, low, high = (f"{100 * value:.1f}" for value in row["aer_less_first"])
        less = f"{middle} [{low}, {high}]".replace("0.", ".") if float(low) or float(high) else ""
        sign = " n.s." if less and float(low) <= 0 <= float(high) else ""
        assert f"| {name} | {scores} | {less}{sign} |".replace("|  |", "| |") in text, name


def test_every_row_of_the_page_is_of_the_results() -> None:
    rows = [line for line in PAGES[0].read_text("utf-8").splitlines() if line.startswith("| ")]
    headings = [
        row
        for row in rows
        if row.startswith(("| method", "| head |", "| test set", "| set", "| list", "| Whisper"))
    ]
    results = {line for lines in TABLES.values() for line in lines()}
    assert [row for row in rows if row not in results] == headings


def test_the_page_has_the_coverage_and_the_misfits_of_the_results() -> None:
    page = " ".join(PAGES[0].read_text("utf-8").split())
    rows = {(r["sentences"], r["labelled"]): r for r in read("heads")["information"]}
    labelled, unlabelled, two, two_without = (
        f"{100 * rows[key]['covered'][0]:.0f} %"
        for key in ((5, True), (5, False), (2, True), (2, False))
    )
    assert f"in {labelled} of cases with labels and {unlabelled} without;" in page
    assert f"from two in {two} and {two_without}," in page
    few, _ = read("heads")["misfit"]
    right = set(MISFITS) - {"wrong", "half"}
    counts = [
        f"{sum(few['misfits'][n] for n in names)} of {sum(few['sentences'][n] for n in names)}"
        for names in (("wrong",), right, ("half",))
    ]
    wrong, fitting, half = counts
    assert f"came for {wrong} sentences with" in page
    assert f"for {fitting} right ones, but for only {half} whose" in page


def test_the_page_says_what_other_programs_make_of_lists() -> None:
    page = " ".join(PAGES[0].read_text("utf-8").split())
    for name, file in (("tiny.en", "lists"), ("base", "base-en-lists")):
        rows = [read(file)[part]["openai"]["dtw"] for part in ("test", "digits-test")]
        clean, digits = (_difference(row["less_openai"]["50 ms"]) for row in rows)
        assert f"{name} {clean} and {digits}" in page
        assert f"Of {rows[0]['boundaries']} starts and {rows[1]['boundaries']} boundaries" in page
    worse = read("base-en-lists")["test"]["transformers"]["dtw"]["less_openai"]["200 ms"]
    assert f"within 200 ms, {_difference(worse)}" in page


def _share(row: dict[str, Any]) -> str:
    middle, low, high = row["within"]["50 ms"]
    return f"{middle} % [{low}, {high}]"


def test_the_first_page_has_the_numbers_of_the_results() -> None:
    clean, digits = (_forced()[name] for name in ("test", "digits-test"))
    limits = [_less(clean["0 labelled"], limit) for limit in ("50 ms", "20 ms")]
    less = [*limits, _less(digits["0 labelled"], "50 ms")]
    boundaries = clean["pocketsphinx"]["boundaries"]
    sentences = [
        f"of {_network_rows('tiny-en')['0']['starts']['boundaries']} word starts of synthetic",
        f"tiny.en, {boundaries} words: {less[0]}; within 20 ms {less[1]}; of digits {less[2]}",
    ]
    for name, part in (("tiny.en", "tiny-en"), ("base", "base-en")):
        rows = _network_rows(part)
        sentences.append(" | ".join([name, *(_at_50_ms(rows[row]) for row in (*OPENAI, "0"))]))
    first_page = " ".join((ROOT / "README.md").read_text("utf-8").replace("*", "").split())
    for sentence in sentences:
        assert sentence in first_page


def test_sentences_have_the_numbers_of_the_results() -> None:
    page = " ".join(PAGES[0].read_text("utf-8").split())
    prompts = read("prompts")["agreement"]
    mine, own = (
        prompts[f"learned from {name}"] for name in ("synthetic speech", "these recordings")
    )
    assert f"synthetic speech, without labels: {_share(mine)} of {mine['boundaries']} wor" in page
    assert f"from the prompts themselves: {_share(own)}." in page
    openai, unbiased = (_share(prompts[name]) for name in OPENAI)
    assert f"tiny.en, OpenAI's heads: {openai}, without their bias {unbiased}." in page
    base = read("base-en-prompts")["agreement"]
    learned, openai = base["learned from synthetic speech"], base["openai"]
    assert f"synthetic speech: {_share(learned)} of {learned['boundaries']} words; Op" in page
    unbiased = _share(base["openai, bias removed"])
    assert f"OpenAI's heads: {_share(openai)}, without their bias {unbiased}." in page
    covered = f"{mine['coverage_of_90'][0]} % and {own['coverage_of_90'][0]} %"
    assert f"intervals hold {covered} of the aligner's starts" in page

    limits = PAGES[0].read_text("utf-8").partition("## Limits")[2]
    digits = read("digits")
    heads = {n: draws[0]["tests"]["digits-test"]["both"] for n, draws in digits["heads"].items()}
    rows = [heads[number] for number in ("0", "5", "20")]
    numbers = [row["coverage_of_90"][0] for row in rows]
    rows += [digits["rivals"]["digits-test"][name]["both"] for name in OPENAI]
    numbers += [row["within"]["50 ms"][0] for row in rows]
    assert [number for number in numbers if f"{number} %" not in limits] == []


def test_the_page_says_what_heads_of_one_sentence_lose() -> None:
    page = " ".join(PAGES[0].read_text("utf-8").split())
    tiny, base = (read(part)["test"] for part in ALONE)
    words = tiny["alone"]["boundaries"]
    assert f"have {_share(tiny['alone'])} of {words} word starts within 50 ms" in page
    less = [_less({"less_aligner": rows["pool_less_alone"]}, "50 ms") for rows in (tiny, base)]
    assert f"have {less[0]} points more (tiny.en; base {less[1]};" in page


def test_sentences_on_networks_and_languages_have_the_numbers_of_the_results() -> None:
    page = " ".join(PAGES[0].read_text("utf-8").split())

    def share(part: str, name: str = "0") -> float:
        return float(_network_rows(part)[name]["starts"]["within"]["50 ms"][0])

    german, unnamed, misnamed = (
        _share(_network_rows(part)["0"]["starts"])
        for part in ("base-de", "base-de-none", "base-de-as-en")
    )
    words = _network_rows("base-de")["0"]["starts"]["boundaries"]
    assert f"within 50 ms fall from {german} to {unnamed} of {words}; with those" in page
    assert f"with those of English they are {misnamed} (" in page
    learned = {part: share(f"{part}-from-en") for part in ("base-de", "base-fr", "base-cs")}
    assert learned["base-fr"] == learned["base-cs"]
    assert f"have {learned['base-de']} % in German, {learned['base-fr']} % in French and" in page
    mean = _share(read("base-en")["averaged"]["0"]["test"]["starts"])
    assert f"without labels their mean as one head with a profile has {mean}." in page
    digits = _forced("base-en-forced")["digits-test"]["0 labelled"]
    without, few = (
        read("base-en-digits")["heads"][number][0]["tests"]["digits-test"]["both"]
        for number in ("0", "5")
    )
    compared = f"without labels, less PocketSphinx {_less(digits, '50 ms')} points; from five"
    assert f"With Whisper base: {without['within']['50 ms'][0]} % {compared}" in page
    assert f"points; from five labelled strings {few['within']['50 ms'][0]} %." in page
    few = _network_rows("base-de-from-en")["5"]["starts"]
    few_covered = f"{few['within']['50 ms'][0]} % in German, where 90 % intervals cover"
    assert f"English sentences they have {few_covered} {few['coverage_of_90'][0]} %" in page
    bias, profiles = share("tiny-en", "openai, bias removed"), share("tiny-en", "listed 0")
    assert f"within 50 ms only from {bias} % to {profiles} %." in page
    covered = [
        float(_network_rows(part)[number]["starts"]["coverage_of_90"][0])
        for part in NETWORKS
        for number in ("0", "5")
    ]
    assert f"intervals of heads from all cover {min(covered)} % to {max(covered)} %" in page
    chosen = {
        part: {tuple(head) for head in read(part)["heads"]["0"][0]["chosen"]} for part in NETWORKS
    }
    english = chosen["base-en"]
    assert len(english & set(BASE_LISTED)) == 4
    assert english == chosen["base-de"] == chosen["base-cs"]
    assert len(english & chosen["base-fr"]) == 5
    misfit = read("base-en-heads")["misfit"]
    few, many = ([row["misfits"][name] for name in MISFITS if name != "half"] for row in misfit)
    halves = " and ".join(str(row["misfits"]["half"]) for row in misfit)
    rows = " ".join(PAGES[1].read_text("utf-8").split())
    assert f"another one {few[-1]} of 39 come with a warning if profiles are from 5" in rows
    assert f"from 5 sentences, {many[-1]} from 20; of those whose" in rows
    assert f"second half is of another one {halves}; of right ones none of 234." in rows
    assert not any([*few[:-1], *many[:-1]])
