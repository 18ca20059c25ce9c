"""Importances go out and come in as the files of MIB's circuit track."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import latentheads as lh
from latentheads.contrib.circuits import Importances, from_inclusion
from tests.latentheads.contrib.circuits.tiny import network
from tests.latentheads.contrib.hf.networks import IDS, bart, grouped
from tests.tiny import jiggle

HEADS = [("decoder.0.self", 1), ("decoder.1.self", 0), ("decoder.1.self", 2)]


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    own = from_inclusion(network(), HEADS, [0.25, 0.75, 0.5])
    assert own.scores == {(0, 1): 0.25, (1, 0): 0.75, (1, 2): 0.5}
    assert own.circuit == {(1, 0)}
    assert own.top(2) == [(1, 0), (1, 2)]
    own.save(tmp_path / "importances.json")
    again = Importances.load(tmp_path / "importances.json")
    assert again == own
    changed = replace(again, circuit=frozenset({(1, 2)}))
    assert changed.to_dict() == replace(own, circuit=frozenset({(1, 2)})).to_dict()
    again.save(tmp_path / "again.json")
    first, second = ((tmp_path / f"{n}.json").read_text() for n in ("importances", "again"))
    assert first == second


@pytest.mark.parametrize("name", ["GPTNeoX", "Cohere", "Llama"])
def test_heads_are_read_by_the_feed_forward_layer_only_where_it_comes_after_them(name: str) -> None:
    made = jiggle(grouped(name, hidden_size=16), 0.3).eval()
    inputs: list[Any] = []
    hook = made.base_model.layers[0].mlp.register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
    made(IDS)
    with lh.heads(made).off("decoder.0.self"):
        made(IDS)
    hook.remove()
    importances = from_inclusion(made, HEADS, [0.25, 0.75, 0.5])
    assert importances.parallel == torch.equal(*inputs) == (name != "Llama")
    assert importances.parallel != ("a0.h0->m0" in importances.to_dict()["edges"])


def test_names_and_edges_are_those_of_the_graph() -> None:
    """1 + L (H + 1) nodes that are left, and L (3 H + 1) + 1 that are entered."""
    content = from_inclusion(network(), HEADS, [0.25, 0.75, 0.5]).to_dict()
    assert content["cfg"] == {
        "n_layers": 2,
        "n_heads": 3,
        "parallel_attn_mlp": False,
        "d_model": 6,
    }
    assert list(content["nodes"]) == [
        *("input", "a0.h0", "a0.h1", "a0.h2", "m0", "a1.h0", "a1.h1", "a1.h2", "m1", "logits")
    ]
    # input to 9 + 1, heads of layer 0 and m0 to the rest, ...
    expected = 9 + 4 + 5 * 9 + 8 + 9
    assert len(content["edges"]) == expected
    assert {"input->a0.h0<q>", "a0.h1->m0", "m0->a1.h2<v>", "m1->logits"} <= {*content["edges"]}
    assert "a0.h0->a0.h1<q>" not in content["edges"]
    assert math.isnan(content["nodes"]["m0"]["score"])
    assert content["nodes"]["a0.h0"]["in_graph"]  # no score: always kept
    assert not content["nodes"]["a0.h1"]["in_graph"]
    assert content["edges"]["a1.h0->m1"] == {"score": 0.75, "in_graph": True}
    assert content["edges"]["a1.h0->logits"]["in_graph"]
    for outside in ("a0.h1->a1.h0<k>", "a1.h2->logits", "m0->a1.h2<v>"):
        assert not content["edges"][outside]["in_graph"]


def test_a_file_of_edge_scores_keeps_them(tmp_path: Path) -> None:
    content = from_inclusion(network(), HEADS, [0.25, 0.75, 0.5]).to_dict()
    content["edges"]["input->m0"] = {"score": -1.5, "in_graph": False}
    for node in content["nodes"].values():
        node.pop("score")  # as EAP-IG writes edges alone
    content["nodes"]["a0.h0"]["in_graph"] = False
    path = tmp_path / "importances.json"
    path.write_text(json.dumps(content))
    own = Importances.load(path)
    assert not own.scores
    assert own.edges is not None
    assert own.edges["input->m0"] == (-1.5, False)
    assert own.to_dict()["edges"] == content["edges"]
    outside = [name for name, node in own.to_dict()["nodes"].items() if not node["in_graph"]]
    assert outside == ["a0.h0", "a0.h1", "a1.h2"]


def test_what_is_no_such_file_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "importances.json"
    wrong = Importances(1, 1, 6, {}).to_dict()
    wrong["nodes"]["a1.h0"] = {"in_graph": True}
    for content in ("{}", "[]", "no", json.dumps(wrong)):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"importances.json is no importances.json of MIB"):
            Importances.load(path)
    with pytest.raises(ValueError, match=r"^there is no head \(2, 0\) in 2 layers of 3$"):
        Importances(2, 3, 6, {(2, 0): 1.0})
    with pytest.raises(ValueError, match=r"^importances are of decoder-self attention, got block"):
        from_inclusion(bart(), [("decoder.1.cross", 0)], [0.5])
