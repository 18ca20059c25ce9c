"""Scores of subsets of heads are those of the network run by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

import latentheads as lh
from latentheads.contrib.circuits import (
    Divergence,
    LogitDifference,
    Prompts,
    SubsetScorer,
    logit_difference,
    only_at,
)
from latentheads.contrib.heads.interventions import Counterfactual, Intervention, Mean, Window, Zero
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.training import checkpoints
from tests.latentheads.contrib.circuits.tiny import PROMPTS, TOKENS, network
from tests.latentheads.contrib.hf.networks import HEADS, IDS, REAL, SIZES, TYPES, bart, t5
from tests.second_device import NAME, second_device
from tests.terminal import showing_progress
from tests.tiny import jiggle
from tests.typechecking import unchecked

PAIRED = Prompts.of([[4, 3, 5, 6, 7], [9, 8, 2], [11, 10, 3, 4]])
SHORT = Prompts.of([[4, 3, 5, 6, 7]])
OTHER = Prompts.of([[4, 3, 5, 6, 7], [9, 8, 2, 2], [11, 10, 3, 4]])
INTERVENTIONS: dict[str, Callable[[Any], Intervention]] = {
    "zero": lambda _: Zero(),
    "mean": lambda plain: Mean(plain, PROMPTS.inputs),
    "counterfactual": lambda plain: Counterfactual(plain, PAIRED.inputs),
    "window": lambda _: Window(2),
}


def last_logits(plain: Any, row: int, off: list[Any], intervention: Intervention) -> Tensor:
    """The logits after one prompt, which runs with the others as they are."""
    with lh.heads(plain).off(off, intervention), torch.no_grad():
        return plain(**PROMPTS.inputs).logits[row, len(TOKENS[row]) - 1]


@pytest.mark.parametrize("name", ["gpt2", "grouped"])
@pytest.mark.parametrize("kind", INTERVENTIONS)
def test_scores_are_those_of_the_network_with_heads_off(kind: str, name: str) -> None:
    plain = network(name)
    intervention = INTERVENTIONS[kind](plain)
    heads = [(1, 2), (0, 1), "L1H0"]
    ordered = [(0, 1), (1, 0), (1, 2)]
    gates = all_subsets(3, torch.empty(()))
    scorer = SubsetScorer(plain, PROMPTS, heads, intervention, tokens=30)  # of two subsets
    assert scorer.labels == ["L0H1", "L1H0", "L1H2"]
    differences = SubsetScorer(plain, PROMPTS, heads, intervention, LogitDifference())
    whole = [last_logits(plain, row, [], Zero()) for row in range(3)]
    spread = torch.stack([difference(whole[row], row) for row in range(3)]).std()
    kl, normal = scorer(gates), differences(gates)
    for row_of_gates, kls, normals in zip(gates, kl, normal, strict=True):
        off = [head for head, gate in zip(ordered, row_of_gates, strict=True) if not gate]
        for row in range(3):
            logits = last_logits(plain, row, off, intervention)
            expected = -kl_divergence(Categorical(logits=whole[row]), Categorical(logits=logits))
            torch.testing.assert_close(kls[row], expected, rtol=1e-8, atol=1e-10)
            this_normal = Normal(difference(logits, row), spread)
            torch.testing.assert_close(
                normals[row], this_normal.log_prob(difference(whole[row], row))
            )
    assert kl[-1].abs().max() < 1e-12
    assert kl[:-1].sum(-1).max() < 0
    assert scorer.evaluations == 8
    scorer(gates.flip(0))
    assert scorer.evaluations == 8


@pytest.mark.parametrize("kind", INTERVENTIONS)
def test_prompts_of_the_cpu_are_scored_where_the_network_is(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = all_subsets(3, torch.empty(()))

    def score(plain: Any) -> Tensor:
        plain.config.use_cache = False  # an empty cache is written from the CPU
        intervention = INTERVENTIONS[kind](plain)
        return SubsetScorer(plain, PROMPTS, "0", intervention, LogitDifference())(gates)

    expected = score(network())
    with second_device():
        for module in ("circuits.scorer", "heads.interventions"):  # weights on meta are elsewhere
            name = f"latentheads.contrib.{module}.device_of_inputs"
            monkeypatch.setattr(name, lambda _: torch.device(NAME))
        torch.testing.assert_close(score(network().to(NAME)), expected)


def difference(logits: Tensor, row: int) -> Tensor:
    right = [[1], [2, 3], [4]][row]
    wrong = [[2, 5], [1], [6]][row]
    return logits[right].logsumexp(0) - logits[wrong].logsumexp(0)


def mobilebert() -> Any:
    """Its output layer is two tables, and no module that is called."""
    sizes = {"embedding_size": 5, "true_hidden_size": 6, "intra_bottleneck_size": 6}
    config = transformers.MobileBertConfig(vocab_size=TYPES, **SIZES, **HEADS, **sizes)
    return jiggle(transformers.MobileBertForMaskedLM(config), 0.5).double().eval()


@pytest.mark.parametrize("make", [network, mobilebert])
def test_several_scored_positions_are_summed(make: Callable[[], Any]) -> None:
    plain, ids = make(), torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10]])
    scored = torch.tensor([[False, True, False, True], [True, False, False, True]])
    scores = SubsetScorer(plain, Prompts({"input_ids": ids}, scored), [(0, 0)])(torch.zeros(1, 1))
    with torch.no_grad():
        whole = Categorical(logits=plain(input_ids=ids).logits)
        with lh.heads(plain).off([(0, 0)]):
            rest = Categorical(logits=plain(input_ids=ids).logits)
    expected = -torch.where(scored, kl_divergence(whole, rest), 0).sum(-1)
    torch.testing.assert_close(scores[0], expected, rtol=1e-9, atol=1e-12)


def test_rounding_is_no_spread_of_equal_prompts() -> None:
    prompts = Prompts.of([[3]] * 7, right=[[1]] * 7, wrong=[[2]] * 7)
    for seed in range(20):
        torch.manual_seed(seed)
        whole = torch.randn(9, dtype=torch.float32).expand(7, 1, 9).clone()
        if seed % 2:  # logits that are far larger than their difference
            whole[..., 1:3] = torch.tensor([-20.0, -20.01])
        for _ in range(2):
            with pytest.raises(ValueError, match=r"^the logit differences of all prompts are eq"):
                LogitDifference()(whole, whole, prompts)
            # of another batch
            whole[3, :, 2:] = whole[3, :, 2:].nextafter(torch.tensor(torch.inf).float())


def test_logits_are_computed_where_they_are_scored_alone() -> None:
    plain, seen = network(), []
    output = plain.get_output_embeddings()
    everywhere = plain(**PROMPTS.inputs).logits[PROMPTS.scored]
    with only_at(plain, PROMPTS.scored):
        handle = output.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape))
        logits = plain(**PROMPTS.inputs).logits
        handle.remove()
    assert seen == [(3, 1, 6)]
    torch.testing.assert_close(logits[:, 0], everywhere, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "heads"),
    [
        (bart, ["decoder.1.cross", (1, 1)]),
        (bart, ["encoder.0.self"]),
        (t5, ["decoder.1.self"]),  # a bias of its lower layer is shared by all rows
    ],
)
def test_heads_of_an_encoder_decoder_are_those_of_its_own_inputs(
    make: Callable[[], Any], heads: list[Any]
) -> None:
    plain = jiggle(make(), 0.5).double().eval()
    inputs = {"input_ids": IDS, "attention_mask": REAL, "decoder_input_ids": IDS[:, :3]}
    scored = torch.tensor([[False, False, True]]).expand(3, -1)
    scorer = SubsetScorer(plain, Prompts(inputs, scored), heads, attention_type="decoder-self")
    gates = torch.zeros(2, len(scorer.heads))
    with torch.no_grad(), lh.heads(plain).off(scorer.heads):
        expected = plain(**inputs).logits[:, -1].log_softmax(-1)
    torch.testing.assert_close(scorer.log_probs(gates)[1, :, 0], expected)
    names = [f"{name} H{head}" for name, head in scorer.heads]
    layer = scorer.labels[0][:2]
    assert scorer.labels == (names if len(heads) > 1 else [f"{layer}H{head}" for head in range(3)])


def test_many_subsets_show_how_many_are_scored() -> None:
    scorer = SubsetScorer(network(), PROMPTS, "L0H0,L0H1", tokens=30)
    with showing_progress() as terminal:
        scorer(all_subsets(2, torch.empty(())))
    assert "scoring subsets" in terminal.getvalue()


def test_scores_are_read_where_they_are_of_the_same(tmp_path: Path) -> None:
    gates, path = all_subsets(4, torch.empty(())), tmp_path / "task.scores"
    scorer = SubsetScorer(network(), PROMPTS, ["decoder.0.self", (1, 2)])
    with pytest.raises(ValueError, match=r"^scored subsets must be at least one, got none$"):
        scorer.save_scores(path)
    scores = scorer(gates[1:9])
    scorer.save_scores(path)
    again = SubsetScorer(network(), PROMPTS, scorer.heads)
    again.load_scores(str(path))
    assert torch.equal(again(gates[1:9]), scores)
    assert again.evaluations == 0
    assert torch.equal(again(gates)[1:9], scores)
    assert again.evaluations == 8
    mean = Mean(scorer.network, PROMPTS.inputs)
    for other, message in (
        (SubsetScorer(network(), PROMPTS, ["decoder.0.self"]), r"has heads \[\['decoder\.0\.self'"),
        (SubsetScorer(network(), PROMPTS[:2], scorer.heads), r"has number of prompts 3, not 2$"),
        (SubsetScorer(network(), PROMPTS, scorer.heads, mean), r"has intervention 'zero', not 'm"),
        (SubsetScorer(network(), PAIRED, scorer.heads), r"has other scores: of another network, "),
        (SubsetScorer(jiggle(network(), 0.1), PROMPTS, scorer.heads), r"has other scores: of ano"),
    ):
        with pytest.raises(ValueError, match=message):
            other.load_scores(path)
        assert not other._rows
    checkpoints.save(path, {}, {"kind": "word aligner 3"})
    with pytest.raises(ValueError, match=r"is not of scores of subsets of this version$"):
        again.load_scores(path)


def test_layers_below_run_once() -> None:
    plain, calls = network(), []
    plain.transformer.h[0].mlp.register_forward_hook(lambda *_: calls.append(0))
    scorer = SubsetScorer(plain, PROMPTS, ["decoder.1.self"])
    scorer(all_subsets(3, torch.empty(())))
    assert len(calls) == 1


def test_weights_may_be_on_a_device_only_while_they_are_used() -> None:
    plain, gates = network(), all_subsets(3, torch.empty(()))
    expected = SubsetScorer(plain, PROMPTS, ["decoder.1.self"])(gates)
    accelerate.cpu_offload(plain, torch.device("cpu"))
    for _ in range(2):
        assert torch.equal(SubsetScorer(plain, PROMPTS, ["decoder.1.self"])(gates), expected)


def test_layers_above_may_use_the_keys_of_lower_ones() -> None:
    types = ["sliding_attention", "full_attention"] * 2
    gates = {"activation_sparsity_pattern": [0.0] * 4, "laurel_rank": 2}
    per_layer = {"vocab_size_per_layer_input": TYPES, "hidden_size_per_layer_input": 3}
    sizes = {**SIZES, "hidden_size": 12, "num_hidden_layers": 4, "head_dim": 4, **gates}
    config = transformers.Gemma3nTextConfig(
        vocab_size=TYPES,
        num_key_value_heads=3,
        num_kv_shared_layers=2,
        layer_types=types,
        **sizes,
        **HEADS,
        **per_layer,
    )
    plain = jiggle(transformers.Gemma3nForCausalLM(config), 0.3).double().eval()
    log_probs = SubsetScorer(plain, PROMPTS, ["L3H1"]).log_probs(torch.zeros(2, 1))
    with torch.no_grad(), lh.heads(plain).off("L3H1"):
        expected = plain(**PROMPTS.inputs).logits[PROMPTS.scored].log_softmax(-1)
    torch.testing.assert_close(log_probs[1, :, 0], expected)


def test_paired_sources_have_as_many_tokens_where_heads_of_the_encoder_are_off() -> None:
    plain = jiggle(bart(), 0.3).double().eval()
    tokens = {"decoder_input_ids": IDS[:, :3], "decoder_attention_mask": REAL[:, :3]}
    inputs = {"input_ids": IDS, "attention_mask": REAL, **tokens}
    shorter = {**inputs, "attention_mask": REAL.minimum(REAL[2])}
    prompts = Prompts(inputs, torch.tensor([[True, False, False]] * 3))
    paired = Counterfactual(plain, shorter)
    for block in ("decoder.1.self", "decoder.1.cross"):
        assert SubsetScorer(plain, prompts, block, paired)(torch.zeros(1, 2)).isfinite().all()
    with pytest.raises(ValueError, match=r"^prompt 0 has 5 tokens and its paired prompt 3: a coun"):
        SubsetScorer(plain, prompts, "encoder.1.self", paired)


def test_prompts_and_a_scorer_print_a_line() -> None:
    scorer = SubsetScorer(network(), PROMPTS[:2], ["decoder.1.self"])
    scorer(torch.ones(1, 3))
    expected = (
        "SubsetScorer(GPT2LMHeadModel, Divergence, Zero: 3 heads, 2 prompts, 1 subsets scored)"
    )
    assert repr(scorer) == expected
    assert repr(PROMPTS) == "Prompts(3 prompts, 1 of 5 positions scored, right, wrong)"


@pytest.mark.parametrize("array", [torch.tensor, np.array])
def test_prompts_may_be_rows_of_a_tensor(array: Callable[[Any], Any]) -> None:
    prompts = Prompts.of(array([[3, 4], [5, 6]]), right=array([[1], [2]]))
    assert prompts.inputs["input_ids"].tolist() == [[3, 4], [5, 6]]
    assert prompts.right is not None
    assert prompts.right.tolist() == [[1], [2]]


@pytest.mark.parametrize("heads", ["decoder.1.self,L0H1", ["L0H1", "decoder.1.self"]])
def test_heads_of_a_text_are_those_of_a_list(heads: Any) -> None:
    scorer = SubsetScorer(network(), PROMPTS, heads)
    assert scorer.labels == ["L0H1", "L1H0", "L1H1", "L1H2"]
    assert SubsetScorer(network(), PROMPTS, (0, 1)).labels == ["L0H1"]


def test_what_cannot_be_scored_is_said_in_one_line() -> None:
    plain = network()
    for make, message in (
        (lambda: SubsetScorer(plain, PROMPTS, []), r"heads must name a head, got none"),
        (
            lambda: SubsetScorer(plain, PROMPTS, ["decoder.7.self"]),
            r"a head is .*, or a choice of blocks .*, of decoder.0.self, .*; got 'decoder.7.self'",
        ),
        (
            lambda: SubsetScorer(lh.latent(network()), PROMPTS, [(0, 1)]),
            r"network must be a PreTrainedModel, got a latent one, which samples its heads: ",
        ),
        (
            lambda: SubsetScorer(lh.latent(network()).network, PROMPTS, [(0, 1)]),
            r"network must be a PreTrainedModel, got a latent one, which samples its heads: ",
        ),
        (lambda: SubsetScorer(plain, PROMPTS, ["decoder.0.self", (0, 1)]), r"head \('decoder\.0"),
        (lambda: SubsetScorer(plain.transformer, PROMPTS, [(0, 1)]), r"GPT2Model has no output"),
        (lambda: Prompts.of([[3], []]), r"a prompt has at least one token, got \[\[3\], \[\]\]"),
        (
            lambda: Prompts({"input_ids": torch.ones(2, 3)}, PROMPTS.scored),
            r"^rows of input_ids must be",
        ),
        (lambda: Prompts({}, torch.tensor([[True, True], [True, False]])), r"scored must be True"),
        (
            lambda: SubsetScorer(plain, PAIRED, [(0, 1)], likelihood=LogitDifference())(
                torch.zeros(1, 1)
            ),
            r"a logit difference needs prompts with right and wrong tokens",
        ),
        (
            lambda: SubsetScorer(plain, PROMPTS[:1], [(0, 1)], likelihood=LogitDifference())(
                torch.zeros(1, 1)
            ),
            r"the spread of logit differences needs two prompts",
        ),
        (
            lambda: SubsetScorer(
                plain,
                Prompts.of([[3], [3]], right=[[1], [1]], wrong=[[2], [2]]),
                [(0, 1)],
                likelihood=LogitDifference(),
            )(torch.zeros(1, 1)),
            r"the logit differences of all prompts are equal: give spread",
        ),
        (
            lambda: SubsetScorer(plain, PROMPTS, [(0, 1)], Counterfactual(plain, SHORT.inputs)),
            r"a counterfactual must have a row for each of 3 prompts, got 1",
        ),
        (
            lambda: SubsetScorer(plain, PROMPTS, [(0, 1)], Counterfactual(plain, OTHER.inputs)),
            r"prompt 1 has 3 tokens and its paired prompt 4: a counterfactual replaces outputs",
        ),
        (
            lambda: SubsetScorer(plain, Prompts.of([[3, 999]]), [(0, 1)]),
            r"input_ids has the id 999, and the network's vocabulary has the ids 0 to",
        ),
        (
            lambda: unchecked(SubsetScorer)(plain, [[3, 4], [5]], "L0H1"),
            r"prompts must be what Prompts\.of\(token_ids\) returns, got \[\[3, 4\], \[5\]\]",
        ),
        (lambda: SubsetScorer(plain, PROMPTS, [(0, 1)], Mean), r"intervention must be an instance"),
        (
            lambda: SubsetScorer(plain, PROMPTS, [(0, 1)], likelihood=logit_difference),
            r"likelihood must be an instance of SubsetLikelihood, got <function",
        ),
        (lambda: Prompts.of([[3], [4]], [1, 2]), r"right must be a list of tokens for each prompt"),
        (
            lambda: Prompts.of([[3], [4]], [["a"], ["b"]]),
            r"right must be a list of tokens for each",
        ),
        (
            lambda: Prompts.of(torch.rand(2, 3)),
            r"token_ids must be a list of tokens for each prompt",
        ),
        (
            lambda: unchecked(SubsetScorer)("gpt2", PROMPTS, [(0, 1)]),
            r"network must be a PreTrainedModel of transformers, got str",
        ),
        (
            lambda: unchecked(SubsetScorer(plain, PROMPTS, [(0, 1)]))(torch.zeros(1)),
            r"gates must be rows of 1 heads, got shape \(1,\)",
        ),
        (lambda: Prompts.of(np.array([3, 4])), r"token_ids must be a list of tokens"),
        (lambda: Prompts.of(np.ones((2, 2))), r"token_ids must be a list of tokens"),
        (lambda: Prompts.of(["a b", "c"]), r"token_ids must be a list of tokens for each prompt"),
        (lambda: LogitDifference(0.0), r"spread must be positive and finite, got 0\.0"),
        (
            lambda: Prompts.of([[3], [4]], [[1]], [[2], [2]]),
            r"rows of right must be as many as those of scored, 2, got 1",
        ),
        (
            lambda: Prompts.of([[3], [4]], [[1], [5, 2]], [[2], [2, 6]]),
            r"^right and wrong both have token 2 after prompt 1$",
        ),
        (lambda: Prompts.of([[3], [4]], [[1], [2]], [[2], []]), r"wrong has no token after prompt"),
        (
            lambda: SubsetScorer(plain, PROMPTS, [(0, 1)])(torch.zeros(2, 3)),
            r"gates must be rows of 1 heads, got shape \(2, 3\)",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            make()
    assert Divergence().name == "kl"


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_padding_on_the_right_is_accepted_in_masks_of_any_type(dtype: torch.dtype) -> None:
    inputs = {"input_ids": IDS, "attention_mask": REAL.to(dtype)}
    scored = REAL.bool() & (REAL.cumsum(-1) == 1)
    assert len(Prompts(inputs, scored)) == len(IDS)
    with pytest.raises(ValueError, match=r"^attention_mask must have its padding on the right, or"):
        Prompts({**inputs, "attention_mask": REAL.to(dtype).flip(1)}, scored)


def test_prompts_of_tensors_are_those_of_lists() -> None:
    tensors = [torch.tensor([3, 4]), np.array([5])]
    assert Prompts.of(tensors).inputs["input_ids"].tolist() == [[3, 4], [5, 0]]
