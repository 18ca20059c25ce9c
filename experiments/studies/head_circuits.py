"""Circuits with posteriors: which heads of SmolLM2-135M three tasks need, and how sure that is.

    python experiments/studies/prepare.py smollm2
    python experiments/studies/head_circuits.py tables data/smollm2 --tasks agreement --layers 26,27

tables: the divergence from the whole network and the logit difference of every prompt with all 512
subsets of a layer's heads, one file a layer; goes on where it was stopped. attributions: scores of
single heads of every prompt. report: everything that is made of both files, as JSON; needs no
network. inclusion: probabilities of the heads of some tables alone. joint: samplers and guides of
all heads of the layers together; goes on where it was stopped. planted: circuits of small networks
that were trained with some heads off. few-prompts: how often probabilities of simulated heads are
right, by the number of prompts that the temperature was calibrated on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch

from latentheads.checks import check_choice, split_items
from latentheads.contrib.page.facts import get_revision
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.inputs import check_folder
from latentheads.experiments.cli.outputs import make_output_folder
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.circuits.attribution import head_attributions
from latentheads.experiments.studies.circuits.few_prompts import (
    few_prompts,
    no_effect,
    shared_texts,
)
from latentheads.experiments.studies.circuits.joint import joint_posterior
from latentheads.experiments.studies.circuits.planted import planted_circuit
from latentheads.experiments.studies.circuits.reliability import PENALTIES
from latentheads.experiments.studies.circuits.report import inclusion, make_report, read_tables
from latentheads.experiments.studies.circuits.tables import PROMPTS, compute_table, write_table
from latentheads.experiments.studies.circuits.tasks import TASKS, make_prompts
from latentheads.options import Size
from latentheads.packages import import_optional

INTERVENTIONS = ("counterfactual", "mean", "zero", "window")
PARTS = ("tables", "attributions", "inclusion", "joint", "planted", "few-prompts", "report")
GROUPS = {
    "tables": ("tasks", "layers", "interventions", "prompts"),
    "inclusion, joint": ("penalty", "tau"),
    "planted": ("seeds", "steps"),
    "report": ("results",),
    "output": ("out", "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("head_circuits.py", __doc__, GROUPS, "[options] PART [NETWORK]")
    add = parser.add_argument
    add("part", choices=PARTS)
    add("network", nargs="?", default="data/smollm2", help="folder of the network")
    add("--tasks", default=",".join(TASKS), help=f"some of {', '.join(TASKS)}")
    add("--layers", type=tuple[Size, ...], default="27,26", help="layers, with commas between")
    add("--interventions", default="counterfactual", help=f"some of {', '.join(INTERVENTIONS)}")
    add("--prompts", type=Size, default=0, help="prompts of a task (default: its own number)")
    add("--penalty", type=float, default=PENALTIES[0], help="penalty of a head, in nats")
    add("--tau", type=float, default=1 / 64, help="temperature")
    add("--seeds", type=int, default=12, help="small networks with planted circuits")
    add("--steps", type=int, default=600, help="steps of their training")
    add("--results", default="experiments/results/circuits", help="folder of the report")
    add("--out", default="runs/circuits", help="folder of the tables")
    return parser


def load_network(path: str) -> tuple[Any, Any]:
    """The network, frozen, and its tokenizer."""
    transformers = import_optional("transformers")
    check_folder(path)
    network = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    return network.requires_grad_(False).eval(), tokenizer


def write_tables(options: Any) -> None:
    """Computes the tables that are missing."""
    network, tokenizer = load_network(options.network)
    for layer in options.layers:
        for task in split_items(options.tasks):
            for intervention in split_items(options.interventions):
                path = Path(options.out) / f"{task}-{layer}-{intervention}.json"
                if path.exists():
                    continue
                number = options.prompts or PROMPTS[task]
                table = compute_table(network, tokenizer, task, layer, intervention, number)
                write_table(path, table)
                print(f"{path}: {table['cpu_seconds']} CPU s", flush=True)


def write_attributions(options: Any) -> None:
    """Computes the scores of single heads."""
    network, tokenizer = load_network(options.network)
    for task in split_items(options.tasks):
        path = Path(options.out) / f"{task}-attributions.json"
        if path.exists():
            continue
        own, paired, texts = make_prompts(tokenizer, task, options.prompts or PROMPTS[task])
        scores = head_attributions(network, own, paired)
        rows = {name: values.tolist() for name, values in scores.items()}
        write_table(path, {"task": task, "prompts": texts, "scores": rows})
        print(path, flush=True)


def write_inclusion(options: Any) -> None:
    """Writes the probabilities of the heads of some tables, at a temperature."""
    tasks, names = split_items(options.tasks), split_items(options.interventions)
    posteriors = {
        (task, layer, intervention): posterior
        for (task, layer, intervention), posterior in read_tables(Path(options.out)).items()
        if task in tasks and layer in options.layers and intervention in names
    }
    rows = inclusion(posteriors, dict.fromkeys(tasks, options.tau), options.penalty)
    command = f"{_command(options)} --interventions {options.interventions}"
    path = Path(options.results) / f"inclusion-{'-'.join(names)}.json"
    write_table(path, {"command": command, "revision": get_revision(), "inclusion": rows})
    print(path, flush=True)


def _command(options: Any) -> str:
    layers = ",".join(map(str, options.layers))
    chosen = f"--tasks {options.tasks} --layers {layers}"
    return (
        f"head_circuits.py {options.part} {chosen} --penalty {options.penalty} --tau {options.tau}"
    )


def write_joint(options: Any) -> None:
    """Samples subsets of the heads of all layers together."""
    revision = get_revision()  # before hours in which the repository may change
    network, tokenizer = load_network(options.network)
    setting = (options.layers, options.penalty, options.tau, Path(options.out))
    rows = [
        joint_posterior(network, tokenizer, task, *setting) for task in split_items(options.tasks)
    ]
    path = Path(options.results) / "joint.json"
    write_table(path, {"command": _command(options), "revision": revision, "joint": rows})
    print(path, flush=True)


def write_planted(options: Any) -> None:
    """Trains small networks with planted circuits, one file each."""
    for seed in range(options.seeds):
        path = Path(options.out) / f"planted-{seed}.json"
        if not path.exists():
            write_table(path, planted_circuit(seed, options.steps))
            print(path, flush=True)


def write_few_prompts(options: Any) -> None:
    """Writes how often probabilities of simulated heads are right."""
    record = {"command": "head_circuits.py few-prompts", "revision": get_revision()}
    simulations = {
        "few-prompts": few_prompts,
        "no-effect": no_effect,
        "shared-texts": shared_texts,
    }
    for name, simulate in simulations.items():
        path = Path(options.results) / f"{name}.json"
        write_table(path, {**record, name: simulate()})
        print(path, flush=True)


def write_report(options: Any) -> None:
    """Writes what the tables show, a file for each layer and one for each figure of all."""
    folder = Path(options.results)
    record = {"command": "head_circuits.py report", "revision": get_revision()}
    for name, part in make_report(Path(options.out)).items():
        write_table(folder / f"{name}.json", {**record, name: part})
        print(folder / f"{name}.json", flush=True)


FOLDERS = {
    "inclusion": ("results",),
    "joint": ("out", "results"),
    "few-prompts": ("results",),
    "report": ("results",),
}
"""The options of the folders that a part writes into, where that is not ``--out`` alone."""

WRITERS = {
    "tables": write_tables,
    "attributions": write_attributions,
    "inclusion": write_inclusion,
    "joint": write_joint,
    "planted": write_planted,
    "few-prompts": write_few_prompts,
    "report": write_report,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("head_circuits.py"):
        for task in split_items(options.tasks):
            check_choice("task", task, tuple(TASKS))
        for intervention in split_items(options.interventions):
            check_choice("intervention", intervention, INTERVENTIONS)
        for folder in FOLDERS.get(options.part, ("out",)):
            make_output_folder(Path(vars(options)[folder]), f"--{folder}")
        WRITERS[options.part](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
