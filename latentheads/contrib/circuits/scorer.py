"""The log-likelihoods of prompts with subsets of a network's heads, by passes of the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.checks import check_instance, check_not_empty
from latentheads.console import show_progress
from latentheads.contrib import kept
from latentheads.contrib.circuits.likelihoods import Divergence, SubsetLikelihood
from latentheads.contrib.circuits.prompts import Prompts
from latentheads.contrib.heads.interventions import Intervention, Zero, intervene
from latentheads.contrib.heads.switch import HeadName, NetworkHeads, label_head
from latentheads.contrib.hf.addresses import inner_network
from latentheads.contrib.hf.arguments import device_of_inputs
from latentheads.contrib.hf.registry import owner_of
from latentheads.contrib.hf.tokens import check_tokens
from latentheads.errors import shown
from latentheads.latents.bernoulli_heads.lower_layers import LowerLayers
from latentheads.passes import evaluation_mode, uncompiled

TOKENS = 4096
"""Tokens of a pass, by default."""

FORMAT = "scores of subsets 1"

SAME_SCORE = 0.05
"""Share by which a score may differ on another machine; a tenth of it in nats may, too."""


class SubsetScorer:
    """The log-likelihood of every prompt with any subset of some heads; all other heads are kept.

    Layers below the heads run once, and logits are computed at scored positions alone. A subset
    that was scored is kept: a network whose weights have changed needs another scorer.

    Args:
        network: A ``PreTrainedModel`` with an output layer of tokens.
        prompts: The prompts.
        heads: The heads, as :meth:`.NetworkHeads.off` takes them: a list, one, or a text with
            commas between them; of a block all heads.
        intervention: What stands in for a head that is off; None: zeros.
        likelihood: What a subset is compared by with the whole network; None: the divergence.
        attention_type: The attention type that a layer's number stands for.
        tokens: Tokens of a pass, which holds several subsets.

    Attributes:
        heads: The block and the index of every head.
        evaluations: Number of subsets that the network was run with.
    """

    def __init__(
        self,
        network: Any,
        prompts: Prompts,
        heads: Sequence[HeadName] | HeadName,
        intervention: Intervention | None = None,
        likelihood: SubsetLikelihood | None = None,
        attention_type: str | None = None,
        tokens: int = TOKENS,
    ) -> None:
        if inner_network(network) is not network or owner_of(network) is not None:
            raise ValueError(
                "network must be a PreTrainedModel, got a latent one, which samples its heads: "
                "lh.contrib.hf.plain(model) returns its network"
            )
        check_instance("prompts", prompts, Prompts, "what Prompts.of(token_ids) returns")
        accepted = "an instance of Intervention"
        check_instance("intervention", intervention, Intervention | None, accepted)
        accepted = "an instance of SubsetLikelihood"
        check_instance("likelihood", likelihood, SubsetLikelihood | None, accepted)
        own = NetworkHeads(network, attention_type)
        check_tokens(prompts.inputs, network)
        self.network, self.prompts, self.addresses = network, prompts, own.addresses
        self.heads = own.find_all(heads)
        if not self.heads:
            raise ValueError("heads must name a head, got none")
        self.intervention = Zero() if intervention is None else intervention
        self.likelihood = Divergence() if likelihood is None else likelihood
        self.evaluations = 0
        self._copies = max(1, tokens // prompts.scored.numel())
        self._rows: dict[tuple[bool, ...], Float[Tensor, " prompt"]] = {}
        self._blocks = list(dict.fromkeys(name for name, _ in self.heads))
        self.intervention.check_inputs(prompts.inputs, len(prompts), self._blocks)
        called = [self.addresses[name].attention for name in self._blocks]
        self._lower = LowerLayers(network, called)
        with self._lower.record():
            self.whole = self._log_probs(1)[0]

    def __repr__(self) -> str:
        parts = (self.network, self.likelihood, self.intervention)
        names = ", ".join(type(part).__name__ for part in parts)
        return (
            f"SubsetScorer({names}: {len(self.heads)} heads, {len(self.prompts):,} prompts, "
            f"{self.evaluations:,} subsets scored)"
        )

    @property
    def labels(self) -> list[str]:
        """The labels of the heads, such as L9H6; with the block where there are several types."""
        blocks = [self.addresses[name].block for name, _ in self.heads]
        if len({block.attention_type for block in blocks}) > 1:
            return [f"{name} H{head}" for name, head in self.heads]
        return [
            label_head(block.layer, head)
            for block, (_, head) in zip(blocks, self.heads, strict=True)
        ]

    @torch.no_grad()
    def __call__(self, gates: Float[Tensor, "subset head"]) -> Float[Tensor, "subset prompt"]:
        """The log-likelihood of every prompt with each subset.

        Args:
            gates: Ones where a head is kept.
        """
        if gates.ndim != 2 or gates.shape[-1] != len(self.heads):
            shape = tuple(gates.shape)
            raise ValueError(f"gates must be rows of {len(self.heads)} heads, got shape {shape}")
        keys = [tuple(row) for row in gates.bool().tolist()]
        missing = [key for key in dict.fromkeys(keys) if key not in self._rows]
        starts = range(0, len(missing), self._copies)
        for start in show_progress(starts, "scoring subsets", "pass"):
            subsets = missing[start : start + self._copies]
            for key, row in zip(subsets, self._score(subsets), strict=True):
                self._rows[key] = row
        self.evaluations += len(missing)
        return torch.stack([self._rows[key] for key in keys])

    @torch.no_grad()
    def log_probs(
        self, gates: Float[Tensor, "subset head"]
    ) -> Float[Tensor, "subset prompt scored token"]:
        """The log-probability of every token at the scored positions with each subset."""
        with intervene(self.intervention, self.addresses, self._gates_of_blocks(gates.bool())):
            return self._log_probs(len(gates), replay=True)

    def save_scores(self, path: str | Path) -> None:
        """Writes the scores of all subsets that were scored; :meth:`load_scores` reads them.

        An older file stays until the new one is complete.

        Raises:
            ValueError: No subset was scored.
            OSError: It cannot be written.
        """
        check_not_empty("scored subsets", self._rows)
        tensors = {
            "gates": torch.tensor([*self._rows]),
            "scores": torch.stack([*self._rows.values()]),
        }
        kept.save(path, FORMAT, tensors, self._facts)

    def load_scores(self, path: str | Path) -> None:
        """Reads scores that a scorer of the same network, prompts and heads wrote.

        The smallest subset of the file is scored again, to compare.

        Raises:
            ValueError: The file is missing, damaged, or of other scores.
        """
        tensors, facts = kept.load(path, FORMAT, "scores of subsets", lambda *parts: parts)
        for name, own in self._facts.items():
            if facts[name] != own:
                raise ValueError(f"{path} has {name} {shown(facts[name])}, not {shown(own)}")
        gates, scores = tensors["gates"].tolist(), tensors["scores"]
        smallest = min(range(len(gates)), key=lambda index: sum(gates[index]))
        again = self._score([tuple(gates[smallest])])[0]
        if not torch.allclose(again, scores[smallest], rtol=SAME_SCORE, atol=SAME_SCORE / 10):
            raise ValueError(
                f"{path} has other scores: of another network, prompts or intervention"
            )
        self._rows |= {tuple(row): score for row, score in zip(gates, scores, strict=True)}

    @property
    def _facts(self) -> dict[str, Any]:
        """What scores of a file are of."""
        heads = [list(head) for head in self.heads]  # as JSON has them
        names = {"intervention": self.intervention.name, "likelihood": self.likelihood.name}
        return {"heads": heads, "number of prompts": len(self.prompts), **names}

    def _score(self, subsets: Sequence[tuple[bool, ...]]) -> Float[Tensor, "subset prompt"]:
        log_probs = self.log_probs(torch.tensor(subsets, dtype=torch.float32))
        rows = self.likelihood(log_probs, self.whole, self.prompts)
        if rows.isnan().any():
            raise FloatingPointError("the log-likelihood of some prompts is NaN")
        return rows.double().cpu()

    def _gates_of_blocks(self, gates: Bool[Tensor, "subset head"]) -> dict[str, Tensor]:
        """The gates of all heads of each block, a row for each prompt of each subset."""
        by_block = {}
        for name in self._blocks:
            kept = gates.new_ones(len(gates), self.addresses[name].block.heads)
            for column, (block, head) in enumerate(self.heads):
                if block == name:
                    kept[:, head] = gates[:, column]
            by_block[name] = kept.repeat_interleave(len(self.prompts), 0)
        return by_block

    @torch.no_grad()
    def _log_probs(self, copies: int, replay: bool = False) -> Tensor:
        """Log-probabilities at the scored positions of the prompts, so often over."""
        device = device_of_inputs(self.network)
        inputs = {
            name: value.repeat(copies, *(1,) * (value.ndim - 1)).to(device)
            for name, value in self.prompts.inputs.items()
        }
        scored = self.prompts.scored.repeat(copies, 1).to(device)
        replayed = self._lower.replay(copies, len(self.prompts)) if replay else nullcontext()
        with evaluation_mode(self.network), only_at(self.network, scored), replayed:
            logits = self.network(**inputs, use_cache=False).logits
        if logits.shape[1] == scored.shape[1]:  # MobileBERT multiplies by its tables by itself
            logits = logits[scored].view(len(scored), -1, logits.shape[-1])
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return wide.log_softmax(-1).unflatten(0, (copies, len(self.prompts)))


@contextmanager
def only_at(network: Any, scored: Bool[Tensor, "row position"]) -> Iterator[None]:
    """Context in which a network computes logits at some positions alone: row, scored, token.

    The output layer costs as much as many layers, and most positions are not scored.

    Args:
        network: The network.
        scored: The positions, equally many in every row.
    """
    output = network.get_output_embeddings()
    if output is None:
        raise ValueError(f"{type(network).__name__} has no output layer of tokens")

    def select(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        states, *others = args
        return (states[scored].view(len(scored), -1, states.shape[-1]), *others)

    handle = output.register_forward_pre_hook(select)
    try:
        with uncompiled():
            yield
    finally:
        handle.remove()
