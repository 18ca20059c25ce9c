"""Scores of heads as the circuit track of MIB stores them: ``importances.json``.

The file is that of EAP-IG's ``Graph.to_json``: sizes, nodes (``input``, ``a0.h1`` for head 1 of
layer 0, ``m0``, ``logits``) and edges (``a0.h1->m1``, ``input->a0.h1<q>``), each with a score and
whether it is in the circuit. A node without a score is kept, whatever the size of the circuit; its
score is NaN. A posterior over heads scores nodes of heads alone; an edge has the score of the node
that it leaves, for programs that sort edges (https://github.com/aaronmueller/MIB).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentheads.files import write_text
from latentheads.frames import make_frame

if TYPE_CHECKING:
    import pandas as pd

NODE = re.compile(r"a(\d+)\.h(\d+)")
Head = tuple[int, int]

PARALLEL = ("codegen", "cohere", "cohere2", "cohere2_moe", "cohere_compass_text", "gptj", "phi")
"""Types of networks whose attention and feed-forward of a layer have one input, in all sizes."""


@dataclass(frozen=True)
class Importances:
    """Scores of the heads of a decoder.

    Attributes:
        layers: Number of layers.
        heads: Heads of a layer.
        width: Width of the network.
        scores: The score of heads, by layer and index; a head without one is always kept.
        circuit: The heads in the circuit; with edges also those without a score that are in it.
        parallel: Whether attention and feed-forward of a layer have one input.
        edges: Scores of edges by name, and whether each is in the circuit; None: those of the node
            that an edge leaves.
    """

    layers: int
    heads: int
    width: int
    scores: Mapping[Head, float]
    circuit: frozenset[Head] = frozenset()
    parallel: bool = False
    edges: Mapping[str, tuple[float, bool]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for layer, head in (*self.scores, *self.circuit):
            if not (0 <= layer < self.layers and 0 <= head < self.heads):
                raise ValueError(
                    f"there is no head {(layer, head)} in {self.layers} layers of {self.heads}"
                )

    def to_dict(self) -> dict[str, Any]:
        """The content of a file."""
        nodes = {name: self._node(name) for name in self._nodes()}
        sizes = {"n_layers": self.layers, "n_heads": self.heads}
        options = {"parallel_attn_mlp": self.parallel, "d_model": self.width}
        edges = {name: self._edge(name) for name in self._edges()}
        return {"cfg": sizes | options, "nodes": nodes, "edges": edges}

    def to_frame(self) -> pd.DataFrame:
        """A row for each head that has a score, and whether it is in the circuit."""
        layer, head = zip(*self.scores) if self.scores else ((), ())
        columns = {"layer": layer, "head": head, "score": list(self.scores.values())}
        return make_frame({**columns, "circuit": [key in self.circuit for key in self.scores]})

    def save(self, path: str | Path) -> None:
        """Writes a file; scores that are missing are NaN, as in EAP-IG's files."""
        write_text(Path(path), json.dumps(self.to_dict()) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Importances:
        """Reads a file.

        Raises:
            ValueError: It is no such file.
        """
        try:
            content = json.loads(Path(path).read_text("utf-8"))
            return cls.from_dict(content)
        except (KeyError, TypeError, AttributeError, ValueError) as reason:
            raise ValueError(f"{path} is no importances.json of MIB: {reason!r}") from reason

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Importances:
        """Takes the content of a file."""
        config, scores, circuit = content["cfg"], {}, set()
        for name, node in content["nodes"].items():
            match = NODE.fullmatch(name)
            if match is None:
                continue
            head = int(match[1]), int(match[2])
            score = node.get("score")
            if score is not None and not math.isnan(score):
                scores[head] = float(score)
            if node["in_graph"]:
                circuit.add(head)
        edges = {
            name: (float(edge["score"]), bool(edge["in_graph"]))
            for name, edge in content.get("edges", {}).items()
        }
        sizes = config["n_layers"], config["n_heads"], config["d_model"]
        is_parallel = config["parallel_attn_mlp"]
        whole = cls(*sizes, scores, frozenset(circuit), is_parallel, edges)
        # edges that are those of their nodes follow the heads, also after a change
        own = replace(whole, circuit=frozenset(circuit & {*scores}), edges=None)
        return own if not edges or content["edges"] == own.to_dict()["edges"] else whole

    def top(self, number: int) -> list[Head]:
        """The heads with the largest scores."""
        return sorted(self.scores, key=lambda head: (-self.scores[head], head))[:number]

    def _node(self, name: str) -> dict[str, Any]:
        match = NODE.fullmatch(name)
        if match is None:
            return {"in_graph": True, "score": math.nan}
        head = int(match[1]), int(match[2])
        return {
            "in_graph": head in self.circuit or (head not in self.scores and self.edges is None),
            "score": self.scores.get(head, math.nan),
        }

    def _edge(self, name: str) -> dict[str, Any]:
        if self.edges is not None and name in self.edges:
            score, is_inside = self.edges[name]
            return {"score": score, "in_graph": is_inside}
        node = self._node(name.partition("->")[0])
        child = self._node(re.sub(r"<[qkv]>$", "", name.partition("->")[2]))
        score = 0.0 if math.isnan(node["score"]) else node["score"]
        return {"score": score, "in_graph": node["in_graph"] and child["in_graph"]}

    def _nodes(self) -> Iterator[str]:
        yield "input"
        for layer in range(self.layers):
            yield from (f"a{layer}.h{head}" for head in range(self.heads))
            yield f"m{layer}"
        yield "logits"

    def _edges(self) -> Iterator[str]:
        """All edges: heads have three inputs; within a layer attention precedes the rest."""
        below: list[str] = ["input"]
        for layer in range(self.layers):
            heads = [f"a{layer}.h{head}" for head in range(self.heads)]
            for parent in below:
                yield from (f"{parent}->{head}<{part}>" for head in heads for part in "qkv")
                if self.parallel:
                    yield f"{parent}->m{layer}"
            below += heads
            if not self.parallel:
                yield from (f"{parent}->m{layer}" for parent in below)
            below.append(f"m{layer}")
        yield from (f"{parent}->logits" for parent in below)


def from_inclusion(
    network: Any, heads: Sequence[tuple[str, int]], inclusion: Sequence[float]
) -> Importances:
    """The probability of each head as its importance; above 1/2 it is in the circuit.

    Args:
        network: The decoder.
        heads: The block and the index of every head, as of :class:`.CircuitPosterior`.
        inclusion: Their probabilities.
    """
    config = network.config.get_text_config()
    is_parallel = config.model_type in PARALLEL or getattr(config, "use_parallel_residual", False)
    for name, _ in heads:
        if not re.fullmatch(r"decoder\.\d+\.self", name):
            raise ValueError(f"importances are of decoder-self attention, got block {name!r}")
    by_head = {
        (int(name.split(".")[1]), head): float(probability)
        for (name, head), probability in zip(heads, inclusion, strict=True)
    }
    circuit = frozenset(head for head, probability in by_head.items() if probability > 0.5)
    sizes = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    return Importances(*sizes, by_head, circuit, is_parallel)
