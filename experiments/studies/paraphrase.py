"""Measures what the heads of a sentence encoder bear, where it finds paraphrases.

python experiments/studies/paraphrase.py --network FOLDER --english train.en --german train.de
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import pyro
from pydantic import PositiveFloat
from torch import Tensor

from latentheads.checks import (
    check_items,
    check_least,
    check_seed,
    check_within,
)
from latentheads.contrib.hf.addresses import find_heads
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.outputs import make_output_folder
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.retrieval import measures
from latentheads.experiments.studies.retrieval.encoder import Encoder, hit_rate
from latentheads.experiments.studies.retrieval.paraphrases import Pairs, read_pairs
from latentheads.experiments.studies.retrieval.task import Task
from latentheads.files import write_text
from latentheads.pruning import random_importance

DESCRIPTION = (
    "Measures what the heads of a sentence encoder bear.\n\n"
    "    python experiments/studies/paraphrase.py --network FOLDER --english train.en "
    "--german train.de\n\n"
    "The encoder finds the paraphrase of a sentence among many, and is frozen. How much noise each "
    "head's logits bear is learned, at several prices of noise; beside it stand noise in one head "
    "alone, the gradient's importance, and gates. Then heads are removed, by each ranking, and the "
    "smaller network is asked again. The pairs are sentences that share a translation: two text "
    "files, line by line. It needs pip install 'latentheads[transformers]'."
)

KINDS = ("noise", "noise alone", "gradient", "gates", "chance")
GROUPS = {
    "the network and the task": ("network", "english", "german", "test"),
    "what is learned": (
        "prices",
        "prior_scale",
        "steps",
        "questions",
        "alone",
        "gate_heads",
        "gate_steps",
        "gate_rate",
    ),
    "what is removed": ("keep_heads", "rounds"),
    "output": ("out", "seed", "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("paraphrase.py", DESCRIPTION, GROUPS)
    add = parser.add_argument
    add("--network", required=True, help="folder of a network and its tokenizer")
    add("--english", required=True, help="sentences, one a line")
    add("--german", required=True, help="the translation of each")
    add("--test", type=int, default=500, help="pairs that are kept for the test")
    add(
        "--prices",
        type=tuple[PositiveFloat, ...],
        default="1,0.001,0.0003,0.0001,0.00003",
        help="weights of the KL; 1 is the bound",
    )
    add("--prior_scale", type=float, default=8.0, help="standard deviation of the prior's noise")
    add("--steps", type=int, default=60, help="steps of the noise at each price")
    add("--questions", type=int, default=16, help="sentences of a step")
    add("--alone", type=int, default=48, help="questions to try one noisy head alone with")
    add("--gate_heads", type=int, default=24, help="heads that the gates leave open")
    add("--gate_steps", type=int, default=240, help="steps of the gates")
    add("--gate_rate", type=float, default=3e-5, help="L0 penalty that a head too many adds")
    add(
        "--keep_heads",
        type=tuple[int, ...],
        default=(54, 36, 24),
        help="how many stay, commas between",
    )
    add("--rounds", type=int, default=10, help="passes that are timed; 0 times none")
    add("--out", required=True, help="folder of what is measured, made if not there")
    add("--seed", type=int, default=0, help="of pairs, order and noise")
    return parser


class Study:
    """Everything that is measured of one network; the first of the pairs are those of the test."""

    def __init__(self, folder: str, pairs: Pairs, options: Any) -> None:
        self.folder, self.options = folder, options
        self.test, self.training = pairs.split(options.test)
        self.encoder = Encoder(folder)
        self.out = make_output_folder(Path(options.out))
        self.maps: dict[str, dict[str, Tensor]] = {}

    def run(self, prices: Sequence[float], keep: Sequence[int]) -> None:
        """Measures everything, and writes each table as soon as it is known."""
        self._check_network(keep)
        vectors = self.encoder.embed_all(self.test.questions)
        asked, learned = self._make_task(self.test), self._make_task(self.training)
        hits, nats = hit_rate(vectors, asked.answers)
        print(f"{len(self.training)} pairs to learn from, {len(self.test)} of the test")
        print(f"the whole network finds {hits:.1%}, log p {nats:.4f}", flush=True)
        noise = self._measure_noise(prices, asked, learned)
        self._measure_rankings(learned)
        self._write_heads()
        size = sum(parameter.numel() for parameter in self.encoder.network.parameters())
        whole = {"heads": len(self._flat("gradient")), "hits": hits, "nats": nats}
        rows: list[dict[str, Any]] = [{"by": k, **whole, "parameters": size} for k in KINDS]
        for kind in KINDS:
            for row in measures.removal_curve(self.folder, self.test, self._rank(kind), keep):
                rows.append({"by": kind} | row)
                print(f"by {kind}, {row['heads']} heads: {row['hits']:.1%}", flush=True)
            _write(self.out / "removal.csv", rows)
        self._time(min(keep))
        self._draw(noise, rows)

    def _make_task(self, pairs: Pairs) -> Task:
        """To find the answers of some pairs."""
        answers = self.encoder.embed_all(pairs.answers)
        return Task(self.encoder, pairs, answers, self.options.questions, self.options.seed)

    def _check_network(self, keep: Sequence[int]) -> None:
        """Validates that the network is an encoder, and that it has the heads to keep."""
        blocks = [address.block for address in find_heads(self.encoder.network)]
        if chains := {block.attention_type for block in blocks} - {"encoder-self"}:
            raise ValueError(
                f"network must be an encoder alone, as BERT is, got blocks of {min(chains)}"
            )
        total = sum(block.heads for block in blocks)
        for name, number in (("gate_heads", self.options.gate_heads), ("keep_heads", max(keep))):
            check_within(name, number, 0, total)

    def _measure_noise(
        self, prices: Sequence[float], asked: Task, learned: Task
    ) -> list[dict[str, Any]]:
        """Learns the noise of every head at each price, and asks the test under it."""
        prior, rows = self.options.prior_scale, []
        for price in prices:
            scales = measures.learn_noise(learned, price, prior, self.options.steps)
            self.maps[f"noise {price:g}"] = scales
            for name, each in (
                ("learned", scales),
                ("one scale", measures.same_noise(scales, prior)),
            ):
                found = measures.under_noise(asked, each, prior)
                rows.append({"price": price, "allocation": name} | found)
                shown = f"{found['hits']:.1%}, log p {found['log_likelihood']:.4f}"
                print(f"price {price:g}, {name}: {shown}, KL {found['kl']:.1f}", flush=True)
            _write(self.out / "noise.csv", rows)
        return rows

    def _measure_rankings(self, learned: Task) -> None:
        """Measures every head by noise in it alone, by the gradient, and by gates."""
        chosen = self.options
        few, several = (learned.pairs.split(n * chosen.alone)[0] for n in (1, 5))
        self.maps["alone"] = measures.bear_alone(replace(learned, pairs=few), chosen.prior_scale)
        self.maps["gradient"] = measures.rank_by_gradient(replace(learned, pairs=several))
        self._write_heads()  # so that a failure of the gates loses nothing
        gates = (chosen.gate_heads, chosen.gate_steps, chosen.gate_rate)
        self.maps["gates"] = measures.learn_gates(learned, *gates)

    def _rank(self, kind: str) -> Mapping[str, Tensor]:
        """The importance of every head by a measure: who bears more noise matters less."""
        if kind == "noise":
            return {name: -each for name, each in self.maps[self._middle_noise()].items()}
        if kind == "chance":
            return random_importance(self.maps["gradient"], self.options.seed)
        return self.maps["alone" if kind == "noise alone" else kind]

    def _middle_noise(self) -> str:
        """The map of noise at the price in the middle."""
        noisy = [name for name in self.maps if name.startswith("noise ")]
        return noisy[len(noisy) // 2]

    def _flat(self, name: str) -> list[float]:
        return [float(x) for each in self.maps[name].values() for x in each]

    def _head_rows(self) -> list[dict[str, Any]]:
        """A row for every head, with what is measured of it so far."""
        places = [
            {"block": name, "head": head}
            for name, each in self.maps["gradient"].items()
            for head in range(len(each))
        ]
        columns = {name: self._flat(name) for name in self.maps}
        return [
            place | {name: values[number] for name, values in columns.items()}
            for number, place in enumerate(places)
        ]

    def _write_heads(self) -> None:
        _write(self.out / "heads.csv", self._head_rows())

    def _time(self, number: int) -> None:
        """Times the whole network and the smallest, on the longest questions."""
        if not self.options.rounds:
            return
        smaller = measures.remove_least(self.folder, self._rank("gates"), number)
        questions = sorted(self.test.questions, key=len)[-self.options.questions :]
        networks = {"whole": self.encoder.network, f"{number} heads": smaller.network}
        words = self.encoder.encode(questions)
        times = measures.time_networks(networks, words, self.options.rounds)
        _write(self.out / "speed.csv", [{"network": n, "seconds": t} for n, t in times.items()])
        print(", ".join(f"{name}: {1e3 * each:.0f} ms a pass" for name, each in times.items()))

    def _draw(
        self, noise: Sequence[Mapping[str, Any]], removal: Sequence[Mapping[str, Any]]
    ) -> None:
        """Draws everything in one picture."""
        from latentheads.contrib.plot import save  # slow to import
        from latentheads.experiments.studies.retrieval.drawing import draw_encoder

        noisy = self._middle_noise()
        shown = {
            noisy: f"noise a head tolerates\n(s, KL weight {noisy[6:]})",
            "alone": "log p that noise in it\nalone costs, nats",
            "gradient": "importance by the\ngradient, nats",
            "gates": "log alpha of its gate",
        }
        about = f"{len(self.test)} questions of the test, seed {self.options.seed}"
        title = f"{Path(self.folder).name}, {about}"
        figure = draw_encoder(self._head_rows(), noise, removal, shown, title)
        save(figure, self.out / "heads.png")
        print(f"written to {self.out}")


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pandas as pd

    table = pd.DataFrame(rows).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_text(path, table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("paraphrase.py", on_interrupt="what is written so far stays"):
        check_seed(options.seed)
        least = {"test": 2, "steps": 1, "gate_steps": 1, "questions": 1, "alone": 1}
        check_least(vars(options), **least, gate_heads=0, gate_rate=0.0, rounds=0)
        prices, keep = options.prices, options.keep_heads
        check_items("prices", prices)
        check_items("keep_heads", keep)
        pairs = read_pairs(options.english, options.german, options.seed)
        check_within("test", options.test, 2, len(pairs) - 1)
        with pyro.validation_enabled(False):  # which scores gates that only a closed form can
            Study(options.network, pairs, options).run(prices, keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
