"""Sampling against the distribution it draws from: computed anew for every token, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from latentheads.batch import BOS, EOS, PAD, UNK, Batch
from latentheads.decoding import sampling
from latentheads.decoding.sampling import sample_text
from latentheads.guides import Tied
from latentheads.handlers import PlugIn
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.model import DecodingState
from latentheads.models import PRIORS, LanguageModel, make_prior
from latentheads.models.network import AdaptiveOptions
from tests.crossing import in_turn, pairwise
from tests.tiny import HEADS, build, jiggle, sizes, small_batch

TYPES = 11
PROMPTS = [[5, 7], [], [4, 6, 10, 9, 8], [7], [5, 5, EOS, 4]]
CUTOFFS = ((), (6, 9))
BLOCKS = [(1, 0), (2, 1), (5, 0), (5, 2), (5, 4)]


def small(
    prior: str = "cascaded", cutoffs: tuple[int, ...] = (), selector: Any = None, **options: Any
) -> Any:
    """A model of few types with an opinion about them."""
    adaptive = AdaptiveOptions(cutoffs, div_value=2) if cutoffs else None
    network = sizes(adaptive=adaptive, share="decoder" if cutoffs else "none")
    latents = [selector] if selector else []
    model = LanguageModel(TYPES, network, latents=[Logits(make_prior(prior, **options)), *latents])
    return jiggle(model, 0.3).double().eval()


class Stub:
    """Its distribution is the same everywhere; notes what it is fed."""

    device = torch.device("cpu")

    def __init__(self, **likely: float) -> None:
        self.logits = torch.zeros(TYPES)
        for name, logit in likely.items():
            self.logits[{"pad": PAD, "bos": BOS, "eos": EOS, "five": 5}[name]] = logit
        self.fed: list[list[list[int]]] = []
        self.begun = 0

    def begin(self, batch: Batch) -> DecodingState:
        self.begun += 1
        return DecodingState()

    def step(self, tokens: Tensor, state: DecodingState) -> Tensor:
        self.fed.append(tokens.tolist())
        state.position += tokens.shape[-1]
        return self.logits.expand(*tokens.shape, TYPES)


class Watched:
    """A model whose logits behind the last token are noted."""

    def __init__(self, model: Any) -> None:
        self.model, self.device, self.begin = model, model.device, model.begin
        self.seen: list[Tensor] = []
        self.positions: list[int] = []

    def step(self, tokens: Tensor, state: DecodingState) -> Tensor:
        logits: Tensor = self.model.step(tokens, state)
        self.seen.append(logits[:, -1])
        self.positions.append(state.position)
        return logits


# The likeliest tokens, against a network that computes everything again for every token.


def without_specials(logits: Tensor) -> Tensor:
    return logits.index_fill(-1, torch.tensor([PAD, BOS]), -torch.inf)


@torch.no_grad()
def anew(model: Any, tokens: Sequence[int]) -> Tensor:
    """Plug-in logits of the token behind some others, BOS before them, in one whole pass."""
    unread = 4
    with PlugIn():
        states = model.states(Batch(torch.tensor([[*tokens, unread]])))
        return model.predict(states)[0, -1]


def likeliest(model: Any, prompt: Sequence[int], length: int, stop: bool) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < length and not (stop and EOS in numbers):
        numbers.append(int(without_specials(anew(model, [*prompt, *numbers])).argmax()))
    return numbers


@in_turn(prior=sorted(PRIORS), stop=[True, False, False, True], cutoffs=CUTOFFS)
def test_at_temperature_zero_it_takes_the_likeliest_token(
    prior: str, stop: bool, cutoffs: tuple[int, ...]
) -> None:
    model = small(prior, cutoffs=cutoffs)
    texts = sample_text(model, PROMPTS, 7, temperature=0, stop_at_eos=stop)
    assert texts == [likeliest(model, prompt, 7, stop) for prompt in PROMPTS]


@in_turn(prior=sorted(PRIORS), cutoffs=CUTOFFS[::-1])
def test_the_law_of_every_token_is_that_of_a_whole_pass(
    prior: str, cutoffs: tuple[int, ...]
) -> None:
    watched = Watched(small(prior, cutoffs))
    prompts = [[5, 7], [4, 10], [9, 9]]
    computed_texts = sample_text(watched, prompts, 8, temperature=3.0, stop_at_eos=False)
    for index, logits in enumerate(watched.seen):
        texts = [
            [*prompt, *new[:index]] for prompt, new in zip(prompts, computed_texts, strict=True)
        ]
        whole = torch.stack([anew(watched.model, text) for text in texts])
        assert torch.allclose(logits, whole, rtol=0, atol=1e-10)


def test_gates_stay_as_they_were_at_the_beginning() -> None:
    model = small(selector=Gating(HEADS, ("decoder-self",)))
    guide = Tied(model).double()
    for family in guide.selections.values():
        family.weight.data = torch.tensor([[4.0, -4.0, 0.9]]) / Gating.gain
    with WithSelection(guide):
        texts = sample_text(model, PROMPTS, 7, temperature=0, stop_at_eos=False)
        assert texts == [likeliest(model, prompt, 7, False) for prompt in PROMPTS]
    for family in guide.selections.values():
        family.weight.data = family.weight.data.roll(1, -1)
    with WithSelection(guide):
        assert texts != sample_text(model, PROMPTS, 7, temperature=0, stop_at_eos=False)


@pytest.mark.parametrize("block", [0, 4])
def test_texts_beside_it_and_their_prompts_change_nothing(block: int) -> None:
    model = small()
    together = sample_text(model, PROMPTS, 9, temperature=0, block_size=block, stop_at_eos=False)
    alone = [
        sample_text(model, [prompt], 9, temperature=0, block_size=block, stop_at_eos=False)[0]
        for prompt in PROMPTS
    ]
    assert together == alone
    assert len({tuple(text) for text in together}) > 2


def test_one_likeliest_token_leaves_no_choice() -> None:
    model = small()
    expected = sample_text(model, PROMPTS, 6, temperature=0)
    assert sample_text(model, PROMPTS, 6, temperature=3.0, top_k=1) == expected
    for tiny in (5e-324, 1e-300, 1e-30):
        assert sample_text(model, PROMPTS, 6, temperature=tiny) == expected


@pytest.mark.parametrize("chunk", [1, 2, 11, 256])
def test_every_token_is_fed_once(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CHUNK", chunk)
    model = Stub(five=99.0)
    assert sample_text(model, [[4, 6, 7, 8], [9, 10, 4]], 3) == [[5, 5, 5]] * 2
    steps = torch.cat([torch.tensor(step) for step in model.fed if len(step) == 2], 1)
    assert steps.tolist() == [[BOS, 4, 6, 7, 8, 5], [BOS, 9, 10, 4, 5, 5]]
    assert model.fed[-1] == [[5]]
    assert max(len(step) * len(step[0]) for step in model.fed) <= max(chunk, 2)
    assert model.begun == 1


def test_a_long_prompt_is_read_in_parts_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompt = small(), [4, 6, 10, 9, 8, 7]
    whole = sample_text(model, [prompt], 6, temperature=0, stop_at_eos=False)
    monkeypatch.setattr(sampling, "CHUNK", 4)
    assert sample_text(model, [prompt], 6, temperature=0, stop_at_eos=False) == whole


# Draws, counted. A right program fails a test of these once in ten thousand seeds.

DRAWS = 10_000


def soft_states(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """The distribution written out, by sorting."""
    scores = without_specials(logits)
    if top_k:
        scores = scores.masked_fill(scores < scores.sort(descending=True).values[top_k - 1], -1e300)
    weights = (scores / temperature).exp()
    return weights / weights.sum()


def agree(actual: Sequence[Any], distribution: dict[Any, float]) -> float:
    """How probable counts this far from a distribution are; no count where its probability is 0."""
    counts = Counter(actual)
    likely = {event: p for event, p in distribution.items() if p > 0}
    assert set(counts) <= set(likely)
    expected = [p * len(actual) for p in likely.values()]
    return float(chisquare([counts[event] for event in likely], expected).pvalue)


@pairwise(temperature=[0.4, 1.0, 2.5], top_k=[0, 3, TYPES, 99], cutoffs=CUTOFFS)
def test_tokens_come_as_often_as_they_are_likely(
    temperature: float, top_k: int, cutoffs: tuple[int, ...]
) -> None:
    model = small(cutoffs=cutoffs)
    texts = sample_text(model, [[5, 7]] * (DRAWS // 4), 1, temperature, top_k)
    states = soft_states(anew(model, [5, 7]), temperature, top_k if top_k < TYPES else 0)
    assert agree([token for (token,) in texts], dict(enumerate(states.tolist()))) > 1e-4


def test_a_token_depends_on_the_one_drawn_before_it() -> None:
    model = small()
    texts = sample_text(model, [[4]] * DRAWS, 2, 1.5, stop_at_eos=False)
    first = soft_states(anew(model, [4]), 1.5, 0).tolist()
    second = [soft_states(anew(model, [4, token]), 1.5, 0).tolist() for token in range(TYPES)]
    pairs = product(range(TYPES), repeat=2)
    assert agree([tuple(p) for p in texts], {(a, b): first[a] * second[a][b] for a, b in pairs}) > (
        1e-4
    )


@torch.no_grad()
def test_drawn_heads_give_the_mean_of_their_laws() -> None:
    model = small("independent", scale=5.0)
    tokens = [token for (token,) in sample_text(model, [[5, 7]] * DRAWS, 1, sample_heads=True)]
    many = torch.tensor([[BOS, 5, 7]]).expand(10 * DRAWS, 3)
    logits = model.step(many, model.begin(small_batch()))[:, -1]
    mean = without_specials(logits).softmax(-1).mean(0)
    plugged = soft_states(anew(model, [5, 7]), 1.0, 0)
    assert agree(tokens, dict(enumerate(mean.tolist()))) > 1e-4
    assert agree(tokens, dict(enumerate(plugged.tolist()))) < 1e-8


def test_a_prior_without_noise_makes_no_difference_by_being_drawn() -> None:
    model = small("delta")
    texts = []
    for drawn in (False, True):
        torch.manual_seed(3)
        texts.append(sample_text(model, PROMPTS, 6, sample_heads=drawn))
    assert texts[0] == texts[1]


def test_noise_comes_from_the_global_generator() -> None:
    model = small()
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(sample_text(model, PROMPTS, 20, sample_heads=True, stop_at_eos=False))
    assert texts[0] == texts[1] != texts[2]
    before = torch.get_rng_state()
    sample_text(model, PROMPTS, 5, temperature=0)
    assert torch.equal(torch.get_rng_state(), before)


# Where a text ends, and what never comes.


def test_the_end_of_a_sentence_stops_it_and_that_of_a_line_does_not() -> None:
    model = Stub(eos=99.0)
    assert sample_text(model, [[], [4, 5]], 3) == [[EOS], [EOS]]
    assert sample_text(model, [[], [4, 5]], 3, stop_at_eos=False) == [[EOS] * 3] * 2


def test_an_end_inside_a_prompt_stops_nothing() -> None:
    model = Stub(five=99.0)
    assert sample_text(model, [[EOS, 4], [], [4, EOS]], 2) == [[5, 5]] * 3


def test_texts_that_end_leave_the_others_as_they_are() -> None:
    model = small()
    texts = sample_text(model, [[4]] * 300, 12, temperature=2.0)
    lengths = {len(text) for text in texts}
    assert len(lengths) > 5
    for text in texts:
        assert EOS not in text[:-1]
        assert len(text) == 12 or text[-1] == EOS


@pytest.mark.parametrize("top_k", [0, 2])
def test_padding_and_beginning_never_come(top_k: int) -> None:
    model = Stub(pad=99.0, bos=98.0, five=97.0)
    assert sample_text(model, [[]] * 5, 4, top_k=top_k) == [[5] * 4] * 5
    hot = sample_text(model, [[]] * 500, 4, temperature=1e6, stop_at_eos=False)
    assert {token for text in hot for token in text} == set(range(EOS, TYPES))


def test_no_prompt_gives_no_text() -> None:
    assert sample_text(small(), [], 5) == []
    assert sample_text(small(), PROMPTS, 0) == [[] for _ in PROMPTS]


# Blocks.


def held(tokens: Sequence[int], block: int, context: int) -> list[int]:
    """What a state holds when tokens come one by one."""
    window: list[int] = []
    for token in tokens:
        if len(window) == block:
            window = window[block - context :]
        window.append(token)
    return window


@torch.no_grad()
def behind(model: Any, window: Sequence[int]) -> Tensor:
    """Plug-in logits of a model started from some tokens."""
    with PlugIn():
        return model.step(torch.tensor([window]), model.begin(small_batch()))[0, -1]


@in_turn(prior=sorted(PRIORS), case=product(BLOCKS, [0, 4, 13]))
def test_a_full_block_is_begun_anew_from_its_context(
    prior: str, case: tuple[tuple[int, int], int]
) -> None:
    (block, context), given = case
    watched = Watched(small(prior))
    prompt = [4 + position % 5 for position in range(given)]
    (actual,) = sample_text(
        watched, [prompt], 12, block_size=block, context=context, stop_at_eos=False
    )
    text = [BOS, *prompt, *actual]
    assert len(watched.seen) == 12
    assert max(watched.positions) <= block
    for index, logits in enumerate(watched.seen):
        window = held(text[: 1 + given + index], block, context)
        assert torch.allclose(logits[0], behind(watched.model, window), rtol=0, atol=1e-10)


def test_a_text_within_its_block_knows_nothing_of_it() -> None:
    model = small()
    whole = sample_text(model, PROMPTS, 5, temperature=0, stop_at_eos=False)
    assert sample_text(model, PROMPTS, 5, temperature=0, block_size=10, stop_at_eos=False) == whole
    other = sample_text(
        model, PROMPTS, 5, temperature=0, block_size=3, context=1, stop_at_eos=False
    )
    assert other != whole


def test_crossing_a_block_costs_its_context_and_one_token_more() -> None:
    model = Stub(five=99.0)
    sample_text(model, [[4]], 9, block_size=5, context=2)
    assert [len(step[0]) for step in model.fed] == [2, 1, 1, 1, 3, 1, 1, 3, 1]
    assert model.fed[4] == [[5, 5, 5]]
    assert model.begun == 3


# Mistakes.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 4, "context": 4}, "context must be less than the block of 4, got 4"),
        ({"context": 2}, "context must be 0 without a block, got 2"),
    ],
)
def test_a_wrong_argument_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        sample_text(small(), **{"prompts": [[5]], "length": 3, **changes})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_that_translates_is_refused() -> None:
    with pytest.raises(ValueError, match="needs one"):
        sample_text(build("translation").eval(), [[5]], 3)


@torch.no_grad()
def test_a_text_may_begin_behind_another_token() -> None:
    model = small()
    with PlugIn():
        state = model.begin(Batch(torch.tensor([[5]])))
        logits = model.step(torch.tensor([[EOS, 5, 7]]), state)[0, -1]
    (text,) = sample_text(model, [[5, 7]], 1, temperature=0, start_token=EOS)
    assert text == [int(without_specials(logits).argmax())]


def test_the_unknown_word_comes_only_if_it_may() -> None:
    stub = Stub(five=1.0)
    stub.logits[UNK] = 9.0
    torch.manual_seed(0)
    assert sample_text(stub, [[]], 50, stop_at_eos=False)[0].count(UNK) > 40
    assert UNK not in sample_text(stub, [[]], 50, stop_at_eos=False, unknown=False)[0]
