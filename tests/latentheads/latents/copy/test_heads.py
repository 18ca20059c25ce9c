"""Copy heads against enumeration, and against formulas in plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import TraceEnum_ELBO, config_enumerate
from torch import Tensor

import latentheads as lh
from latentheads.contrib.heads import alignment_distributions, name_positions
from latentheads.corpora import Part, Rows, Words, windows
from latentheads.data import Grammar
from latentheads.guide import ModelGuide
from latentheads.guides import GUIDES, Exact, Tied
from latentheads.latents.alignments.distribution import Alignments, CategoricalParameters
from latentheads.latents.alignments.posterior import with_parameters
from latentheads.latents.copy.emission import Slip, copy_emissions
from latentheads.latents.copy.heads import CopyHeads
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.network import EncoderDecoderStates
from latentheads.layers import linear_log_prob
from latentheads.models import LanguageModel, Translation
from tests.crossing import in_turn, pairwise
from tests.guides.attached import SUMMED
from tests.tiny import TARGET_TYPES, jiggle, sizes, small_batch

PRIORS = ("independent", "chain")
KINDS = ("translation", "language-model")
FORMS: dict[str, dict[str, Any]] = {
    "one head": {},
    "two heads": {"heads": 2, "learn_slip": True},
    "lexicon": {"lexicon": True},
    "two heads and lexicon": {"heads": 2, "lexicon": True, "learn_slip": True, "slip": 0.1},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_prior = pytest.mark.parametrize("prior", PRIORS)
every_form = pytest.mark.parametrize("form", FORMS)


def build(kind: str, prior: Any = "independent", size: float = 0.3, **options: Any) -> Any:
    latents = [CopyOptions(prior=prior, width=5, **options)]
    if kind == "translation":
        model: Any = Translation(TARGET_TYPES, TARGET_TYPES, sizes(), latents=latents)
    else:
        model = LanguageModel(TARGET_TYPES, sizes(), latents=latents)
    return jiggle(model, size).double().eval()


def batch_of(kind: str) -> lh.data.Batch:
    """Sentences whose targets repeat tokens of the source, and of their own past."""
    targets, sources = [[5, 6, 5, 2], [8, 8, 2]], [[4, 5, 6, 2], [7, 8, 2]]
    return lh.data.Batch.of(targets, sources if kind == "translation" else None)


def enumerable_batch(kind: str) -> lh.data.Batch:
    """Short targets of one length, as enumeration needs, of sources that have different ones."""
    targets, sources = [[5, 5], [8, 2], [8, 8]], [[4, 5], [2], [8, 5]]
    return lh.data.Batch.of(targets, sources if kind == "translation" else None)


def test_a_learned_slip_begins_at_the_given_one() -> None:
    model = build("translation", size=0.0, heads=2, learn_slip=True, slip=0.1)
    slip = model.latents["copy"].slip(torch.zeros(()))
    torch.testing.assert_close(slip.log.exp(), torch.full((2,), 0.1))


def by_loops(model: Any, batch: lh.data.Batch) -> Tensor:
    """log p of every sentence: the forward algorithm over all choices, as the docstrings say."""
    heads = model.latents["copy"]
    hidden = heads.with_generate(model.hidden(batch))
    totals = []
    for row, words in enumerate(batch.target):
        forward: dict[tuple[int, int], Tensor] = {(-1, -1): torch.ones(())}
        for t, word in enumerate(words[: int(batch.target_valid[row].sum())].tolist()):
            scores, emissions = _of_choices(model, hidden, row, t, word)
            total: dict[tuple[int, int], Tensor] = {}
            for before, probability in forward.items():
                jumped = {
                    choice: scores[choice] + _jump(heads, before, choice) for choice in scores
                }
                prior = torch.stack(list(jumped.values())).softmax(0)
                for choice, weight in zip(scores, prior, strict=True):
                    product = probability * weight * emissions[choice]
                    total[choice] = total.get(choice, torch.zeros(())) + product
            forward = total
        totals.append(torch.stack(list(forward.values())).sum().log())
    return torch.stack(totals)


def _of_choices(model: Any, hidden: Any, row: int, t: int, word: int) -> tuple[Any, Any]:
    """The score and the emission of every choice: a key and a head, generate first."""
    heads, state = model.latents["copy"], hidden.states[row, t]
    copy_heads, size = heads.copy_heads, heads.head_width
    allowed = hidden.attn_mask[row].expand(hidden.states.shape[1], -1)[t]
    generated = model.output(state).softmax(-1)[word]
    slips = torch.full((copy_heads,), heads.initial_slip, dtype=torch.float64)
    if heads.slip_logits is not None:
        slips = heads.slip_logits.sigmoid()
    scores, emissions = {}, {}
    for key, memory in enumerate(hidden.memory[row]):
        for head in range(heads.heads if key else 1):
            if not allowed[key]:
                continue
            part = slice(head * size, (head + 1) * size)
            product = heads.query(state)[part] @ heads.key(heads.norm(memory))[part]
            scores[key, head] = product / math.sqrt(size) + (heads.bias if key == 0 else 0)
            if key == 0:
                emissions[key, head] = generated
            elif head < copy_heads:
                match = float(hidden.tokens[row, key] == word)
                emissions[key, head] = (1 - slips[head]) * match + slips[head] * generated
            else:
                vector = heads.lexicon(heads.norm(memory))
                emissions[key, head] = model.output(state + vector).softmax(-1)[word]
    return scores, emissions


def _jump(heads: Any, before: tuple[int, int], choice: tuple[int, int]) -> Tensor | float:
    """The score of a jump from one choice to the next; (-1, -1) is before the first."""
    if heads.jumps is None or before[0] < 0:
        return 0.0
    if choice[0] == 0:
        jump: Tensor = heads.jumps.null[0 if before[0] == 0 else 1]
        return jump
    if before[0] == 0:
        return 0.0
    reach = heads.prior.reach
    value = heads.jumps.value[max(-reach, min(reach, choice[0] - before[0])) + reach]
    return value if heads.heads == 1 else value + heads.jumps.changes[before[1], choice[1]]


@every_form
@every_kind
@every_prior
def test_log_p_and_its_gradient_are_those_of_loops(prior: str, kind: str, form: str) -> None:
    model, batch = build(kind, prior, **FORMS[form]), batch_of(kind)
    exact = model.token_distribution(batch).log_evidence(batch.scored)
    expected = by_loops(model, batch)
    torch.testing.assert_close(exact, expected)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(exact.sum(), parameters, allow_unused=True)
    wanted = torch.autograd.grad(expected.sum(), parameters, allow_unused=True)
    for gradient, other in zip(gradients, wanted, strict=True):
        if other is not None:
            torch.testing.assert_close(gradient, other, atol=1e-9, rtol=1e-7)


@every_form
@every_kind
@every_prior
@torch.no_grad()
def test_samples_have_the_distribution_that_is_summed(prior: str, kind: str, form: str) -> None:
    model, batch = build(kind, prior, **FORMS[form]), enumerable_batch(kind)
    with pyro.poutine.trace() as trace:
        distribution = model.token_distribution(batch)
    choices = trace.trace.nodes["decoder.0.alignment.copy"]["fn"]
    exact = distribution.log_evidence(batch.scored)
    for expand in (True, False):
        values = choices.enumerate_support(expand)
        tokens = distribution.given(values)
        log_joint = choices.log_prob(values) + tokens.log_prob(batch.scored)
        torch.testing.assert_close(log_joint.logsumexp(0), exact)
        log_probs = tokens.logits.log_softmax(-1)
        index = batch.scored[..., None].expand(*log_probs.shape[:-1], 1)
        by_logits = log_probs.gather(-1, index).sum((-1, -2))
        torch.testing.assert_close(by_logits, tokens.log_prob(batch.scored))


@every_form
@every_kind
def test_samples_of_the_tokens_stand_in_front(kind: str, form: str) -> None:
    batch = batch_of(kind)
    distribution = build(kind, **FORMS[form]).token_distribution(batch)
    tokens = distribution.sample((6, 5))
    expected = torch.stack([distribution.log_prob(sample) for sample in tokens.flatten(0, 1)])
    torch.testing.assert_close(distribution.log_prob(tokens), expected.unflatten(0, (6, 5)))


@pytest.mark.filterwarnings("ignore:Found vars in model but not guide")
@in_turn(prior=PRIORS, kind=[*KINDS, *KINDS[::-1]], form=FORMS)
def test_pyro_enumerates_the_choices_of_several_sentences(prior: str, kind: str, form: str) -> None:
    model, batch = build(kind, prior, **FORMS[form]), enumerable_batch(kind)
    exact = model.token_distribution(batch).log_evidence(batch.scored).sum()
    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    loss = elbo.differentiable_loss(config_enumerate(model), lambda batch: None, batch)
    torch.testing.assert_close(-loss, exact)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(-loss, parameters, materialize_grads=True, allow_unused=True)
    expected = torch.autograd.grad(exact, parameters, materialize_grads=True, allow_unused=True)
    torch.testing.assert_close(gradients, expected, atol=1e-9, rtol=1e-7)


@pairwise(prior=PRIORS, kind=KINDS, form=FORMS)
@torch.no_grad()
def test_all_probabilities_sum_to_one(prior: str, kind: str, form: str) -> None:
    model, batch = build(kind, prior, **FORMS[form]), batch_of(kind)
    state = model.begin(batch)
    for token in batch.decoder_input.split(1, 1):
        scores = model.step(token, state)
        torch.testing.assert_close(scores.exp().sum(-1), torch.ones_like(scores[..., 0]))


@torch.no_grad()
def test_logarithms_of_copied_probabilities_are_those_of_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No token of the rest of the vocabulary is copied: a logarithm of 0 is slow."""
    model, batch = build("translation"), batch_of("translation")
    logarithms: list[Tensor] = []
    log = Tensor.log
    monkeypatch.setattr(Tensor, "log", lambda x: logarithms.append(x) or log(x))
    model.step(batch.decoder_input[:, :1], model.begin(batch))
    assert batch.source is not None
    assert [x.shape for x in logarithms] == [(2, 1, batch.source.shape[1])]


@pairwise(prior=PRIORS, reads=[(0, KINDS[0]), (0, KINDS[1]), (1, KINDS[1])], form=FORMS)
@torch.no_grad()
def test_several_tokens_at_once_are_scored_as_one_by_one(
    prior: str, reads: tuple[int, str], form: str
) -> None:
    window, kind = reads
    model, batch = build(kind, prior, window=window, **FORMS[form]), batch_of(kind)
    once, again = model.begin(batch), model.begin(batch)
    whole = model.step(batch.decoder_input, once)
    steps = [model.step(token, again) for token in batch.decoder_input.split(1, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    if window:  # what no token points at any more is forgotten
        assert again.output_heads._state.hidden.memory.shape[1] == 1 + window + 1


@pairwise(prior=PRIORS, kind=KINDS, form=FORMS)
@torch.no_grad()
def test_hypotheses_follow_their_selection(prior: str, kind: str, form: str) -> None:
    model, batch = build(kind, prior, **FORMS[form]), batch_of(kind)
    state, alone = model.begin(batch), model.begin(batch)
    first = batch.decoder_input[:, :1]
    model.step(first, alone)
    model.step(first[:, None].expand(-1, 2, -1), state)
    tokens = torch.tensor([[[5], [6]], [[8], [5]]])
    model.step(tokens, state)
    state.select(None, torch.tensor([[1, 0], [1, 1]]))
    model.step(torch.tensor([[6], [5]]), alone)
    both = model.step(torch.tensor([[[7], [4]], [[3], [9]]]), state)
    torch.testing.assert_close(both[:, 0], model.step(torch.tensor([[7], [3]]), alone))


def evidence_by_hand(model: Any, batch: lh.data.Batch, alignment_pass: Any) -> Tensor:
    """What each choice adds: a slip or not of each copy head, then the score of a lexicon head."""
    slip, tokens = alignment_pass.slip, alignment_pass.hidden.tokens[..., 1 :: alignment_pass.heads]
    same = batch.scored[..., None] == tokens[:, None]
    heads = [torch.where(same, kept - log, log) for log, kept in zip(slip.log, slip.log_kept)]
    rows = model.output.rows_of(batch.scored)
    heads += [(rows @ vectors.mT)[..., 1:] for vectors in alignment_pass.vectors]
    return torch.nn.functional.pad(torch.stack(heads, -1).flatten(-2), (1, 0)).detach()


@every_form
def test_a_guide_that_reads_the_evidence_leaves_the_model_as_it_is(form: str) -> None:
    model, batch = build("translation", **FORMS[form]), batch_of("translation")
    alignment_pass = model.token_distribution(batch).alignment_pass
    (evidence,) = alignment_pass.evidence(batch.scored, model.output.rows_of(batch.scored))
    assert not evidence.requires_grad


@pairwise(condition_on=["source", "target"], form=FORMS, prior=PRIORS, kind=KINDS)
def test_a_guide_starts_at_the_prior_times_the_evidence_of_the_word(
    condition_on: str, form: str, prior: str, kind: str
) -> None:
    model, batch = build(kind, prior, **FORMS[form]), batch_of(kind)
    guide = GUIDES["cascaded"](model, condition_on=condition_on).double().eval()
    terms = lh.terms(model, guide, batch)
    (site,) = (node for name, node in guide.trace.nodes.items() if name.endswith(".copy"))
    scores = site["infer"]["prior"].parameters.scores
    if condition_on == "target":
        evidence = evidence_by_hand(model, batch, site["infer"]["prior"].context.alignment_pass)
        scores = scores + evidence.unsqueeze(-2)
    torch.testing.assert_close(site["fn"].parameters.scores, scores)
    assert bool((terms.total_kl.abs() < 1e-12).all()) == (condition_on == "source")


@pairwise(
    condition_on=["source", "prefix", "target"],
    name=[name for name in SUMMED if name != "exact"],
    prior=PRIORS,
    kind=KINDS,
)
def test_bound_plus_gap_is_exact(condition_on: str, name: str, prior: str, kind: str) -> None:
    model, batch = build(kind, prior), batch_of(kind)
    options = {} if name == "tied" else {"condition_on": condition_on}
    guide = jiggle(GUIDES[name](model, **options).double(), 0.3).eval()
    terms = lh.terms(model, guide, batch)
    assert terms.enumeration is not None
    exact = terms.enumeration.log_evidence
    gap = sum(terms.enumeration.gap().values(), torch.zeros(()))
    torch.testing.assert_close(terms.elbo + gap, exact)
    assert (gap > 1e-4).all() or name == "tied"


@pairwise(prior=PRIORS, kind=KINDS, form=FORMS)
def test_the_exact_guide_has_no_gap_and_the_tied_one_no_kl(
    prior: str, kind: str, form: str
) -> None:
    model, batch = build(kind, prior, **FORMS[form]), batch_of(kind)
    exact = lh.terms(model, Exact(model), batch)
    assert exact.enumeration is not None
    torch.testing.assert_close(exact.elbo, exact.enumeration.log_evidence)
    tied = lh.terms(model, Tied(model), batch)
    assert all((kl == 0).all() for kl in tied.kl.values())


def test_without_a_slip_a_guide_that_does_not_see_the_word_has_no_bound() -> None:
    model, batch = build("translation"), batch_of("translation")
    finite = lh.terms(model, Tied(model), batch).elbo
    assert finite.isfinite().all()
    model.latents["copy"].initial_slip = 1e-300
    assert (lh.terms(model, Tied(model), batch).elbo < finite - 20).all()
    generated, matches = torch.tensor([-1.0]).double(), torch.tensor([[False, True]])
    emissions = copy_emissions(generated, matches, Slip.of(1e-300, 1, generated))
    assert emissions[0, 1] < -600


@pytest.mark.parametrize("loss", ["bound", "marginal", "sampled", "iwae", "rws"])
@every_kind
def test_every_objective_trains_it(kind: str, loss: str) -> None:
    model, batch = build(kind).train(), batch_of(kind)
    guide = jiggle(GUIDES["cascaded"](model).double(), 0.2).train()
    particles = (
        {"num_particles": 2, "vectorize_particles": False} if loss in ("iwae", "rws") else {}
    )
    elbo = lh.Head_ELBO(analytic=True, objective=loss, **particles)  # type: ignore[arg-type]
    elbo.differentiable_loss(model, guide, batch).backward()
    heads, posterior = model.latents["copy"], guide.latent_posteriors["decoder.0.alignment.copy"]
    for module in (heads.query, heads.key, posterior.query, posterior.key):
        assert module.weight.grad is not None
        assert (module.weight.grad != 0).any()


@pairwise(form=FORMS, prior=PRIORS, kind=KINDS, loss=["bound", "marginal"])
def test_vectorised_particles_of_choices_are_a_mean(
    loss: str, kind: str, prior: str, form: str
) -> None:
    model, batch = build(kind, prior, **FORMS[form]), batch_of(kind)
    guide = jiggle(GUIDES["mean-field"](model).double(), 0.2).eval()
    particles = {"num_particles": 3, "vectorize_particles": True, "max_plate_nesting": 1}
    together = lh.Head_ELBO(objective=loss, **particles).loss(model, guide, batch)  # type: ignore[arg-type]
    assert together == pytest.approx(lh.Head_ELBO(objective=loss).loss(model, guide, batch))


@every_kind
@pytest.mark.parametrize("name", ["exact", "mean-field"])
def test_a_step_on_the_marginal_likelihood_computes_logits_once(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With padding too: the gradient is computed beside the value."""
    model, batch = build(kind), batch_of(kind)
    guide = GUIDES[name](model).double()
    objective = lh.Head_ELBO(analytic=True, objective="marginal")
    monkeypatch.delattr(linear_log_prob, "_linear_gradients")
    with pyro.validation_enabled(False):
        objective.differentiable_loss(model, guide, batch).backward()
    assert model.output.weight.grad.any()


@pairwise(prior=PRIORS, kind=KINDS, form=FORMS)
def test_every_choice_has_a_name_and_a_probability(prior: str, kind: str, form: str) -> None:
    model, batch = build(kind, prior, **FORMS[form]), batch_of(kind)
    words = Words([f"w{token}" for token in range(4, TARGET_TYPES)])
    source = words if kind == "translation" else None
    names = name_positions(batch, source, words, model.output_heads)
    past = ["w5", "w6", "w5"]
    assert names == ["generate", *(["w4", "w5", "w6", "<eos>"] if source else past)]
    guide = GUIDES["exact"](model)
    distributions = alignment_distributions(model, guide, batch)
    assert distributions.first_position == 1
    assert distributions.posterior.shape[-1] == len(names)
    torch.testing.assert_close(distributions.guide, distributions.posterior)
    torch.testing.assert_close(
        distributions.posterior.sum(-1), torch.ones_like(distributions.prior[..., 0])
    )
    # the third token is the first again, whose position has gained; in the source it stands too
    position = names.index("w5")
    assert distributions.posterior[0, 0, 2, position] > distributions.prior[0, 0, 2, position]


@in_turn(form=FORMS, reads=[(3, 0.0), (100, 0.0), (100, 1.5)])
@torch.no_grad()
def test_across_blocks_all_earlier_tokens_in_the_window_can_be_copied(
    form: str, reads: tuple[int, float]
) -> None:
    """Against loops over a text, of which the network reads two tokens before each at least."""
    window, bias = reads
    text = torch.tensor([5, 6, 5, 7, 6, 8, 5, 6, 9, 7, 5, 6, 5])
    part = Part(Rows.in_blocks(text.numpy().astype(np.int32), 5), None, block_size=5)
    model = build("language-model", window=window, across_bias=bias, **FORMS[form])
    heads, guide = model.latents["copy"], Exact(model)
    batches = list(windows(part, context=2, tokens=12))
    assert [len(batch) for batch in batches] == [1, 2, 1]
    hidden = [model.hidden(batch).drop_context(batch.context).states for batch in batches]
    states = torch.cat([rows.flatten(0, 1) for rows in hidden])[None]
    back = torch.arange(len(text))[:, None] - torch.arange(len(text))
    mask = ((back > 0) & (back <= window))[None]
    whole = heads.with_generate(EncoderDecoderStates(states, states, mask, tokens=text[None]))
    total = torch.zeros(())
    for t, word in enumerate(text.tolist()):
        scores, emissions = _of_choices(model, whole, 0, t, word)
        scores[0, 0] = scores[0, 0] + bias
        prior = torch.stack(list(scores.values())).softmax(0)
        total = total + (prior * torch.stack(list(emissions.values()))).sum().log()
    blocks = lh.evaluate(model, guide, batches)
    for _ in range(2):  # nothing is left of an earlier evaluation
        with heads.across_blocks():
            report = lh.evaluate(model, guide, batches, num_samples=3)
        assert report.tokens == len(text)
        assert report.exact == pytest.approx(float(total) / len(text))
        assert report.gap == pytest.approx(0, abs=1e-12)
    assert blocks.exact != pytest.approx(report.exact)
    assert lh.evaluate(model, guide, batches).exact == blocks.exact


@every_kind
def test_a_window_hides_what_is_further_back(kind: str) -> None:
    if kind == "translation":
        with pytest.raises(ValueError, match="window is for a language model: drop it"):
            build(kind, window=2)
        return
    with pytest.raises(ValueError, match="across_bias needs a window, and prior independent"):
        build(kind, across_bias=1.0)
    model = build(kind, window=1)
    mask = model.hidden(batch_of(kind)).attn_mask[0]
    expected = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool)
    assert torch.equal(mask, expected)


@every_form
@every_kind
@torch.no_grad()
def test_uncertainty_is_that_of_an_ensemble_of_choices(kind: str, form: str) -> None:
    model, batch = build(kind, **FORMS[form]), batch_of(kind)
    state = model.begin(batch)
    probs = model.step(batch.decoder_input, state).exp()
    prior = getattr(state.output_heads, "_state", state.output_heads)._scored[-1].exp()
    tokens = model.token_distribution(batch)
    members = [
        tokens.given(torch.full((*batch.target.shape, 1), choice)).logits.log_softmax(-1)
        for choice in range(prior.shape[-1])
    ]
    stacked = torch.stack(members, -1)
    entropy = (prior * -torch.xlogy(stacked.exp(), stacked.exp()).sum(-2)).sum(-1)
    index = batch.target[..., None, None].expand(*batch.target.shape, 1, prior.shape[-1])
    mean_log = (prior * stacked.gather(-2, index).squeeze(-2)).sum(-1)
    divergence = (prior * (probs[..., None] * (probs.log()[..., None] - stacked)).sum(-2)).sum(-1)
    actual = state.output_heads.decompose_uncertainty(probs, batch.target)
    for value, wanted in zip(actual, (entropy, mean_log, divergence), strict=True):
        torch.testing.assert_close(value, wanted)


@every_form
@torch.no_grad()
def test_words_of_two_vocabularies_are_found_by_their_spelling(form: str) -> None:
    corpus = Grammar(language="velu", sentences=40, held_out=5).load()
    model = Translation.of(corpus, latents=[CopyOptions(**FORMS[form])], width=6, heads=3)
    (heads,) = [latent for latent in model.latents.values() if isinstance(latent, CopyHeads)]
    assert heads.target_ids is not None
    assert isinstance(corpus.source, Words)
    assert isinstance(corpus.target, Words)
    for index, target_id in enumerate(heads.target_ids.tolist()):
        word = corpus.source.words[index]
        assert target_id == (corpus.target.words.index(word) if word in corpus.target.words else -1)
    batch = next(iter(lh.data.batches(corpus.valid, 99, shuffle=False)))
    jiggle(model, 0.3).double().eval()
    bound = lh.terms(model, Exact(model), batch).elbo
    scores = model.step(batch.decoder_input, model.begin(batch))
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones_like(scores[..., 0]))
    of_words = scores.gather(-1, batch.target[..., None])[..., 0]
    torch.testing.assert_close(of_words.masked_fill(~batch.target_valid, 0.0).sum(-1), bound)
    # no word of the source but the end of a sentence can be copied; a lexicon head points at all
    allowed = heads.choice_mask(heads.with_generate(model.hidden(batch)))[0, 0]
    length = int(batch.source_valid[0].sum())
    assert int(allowed.sum()) == 1 + heads.copy_heads + length * (heads.lexicon is not None)


def test_a_word_that_is_spelt_like_a_special_token_is_not_it() -> None:
    heads, source = CopyHeads(6), Words(["a", "<eos>"])
    for target, id_of_word in ((["<eos>", "b"], 4), (["b"], -1)):
        heads.set_vocabularies(source, Words(target))
        assert heads.target_ids is not None
        assert heads.target_ids.tolist() == [0, 1, 2, 3, -1, id_of_word]


def test_weights_of_two_vocabularies_are_not_loaded_into_one() -> None:
    """A model made from sizes would copy other words than the one that was trained."""
    heads, other = CopyHeads(6), CopyHeads(6)
    heads.set_vocabularies(Words(["a", "b"]), Words(["b", "a"]))
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "target_ids"'):
        other.load_state_dict(heads.state_dict())
    other.set_vocabularies(Words(["b", "a"]), Words(["b", "a"]))
    other.load_state_dict(heads.state_dict())
    assert other.target_ids is not None
    assert other.target_ids.tolist() == [0, 1, 2, 3, 5, 4]


@pytest.mark.parametrize("slip", [0.0, 1.0, -0.1])
def test_a_slip_lies_between_zero_and_one(slip: float) -> None:
    with pytest.raises(ValueError, match=r"slip must be (above 0|below 1), got"):
        CopyOptions(slip=slip)


def test_a_posterior_of_the_wrong_shape_is_an_error_that_names_the_site() -> None:
    class Narrow(ModelGuide):
        def get_posterior(self, name: str, prior: Any) -> Any:
            if not isinstance(prior, Alignments):
                return prior
            scores = prior.parameters.scores[..., :2]
            return with_parameters(prior, CategoricalParameters(scores))

    model = build("translation")
    with pytest.raises(ValueError, match=rf"^site '{model.latents['copy'].sites[0]}': scores must"):
        Narrow(model)(batch_of("translation"))


def test_speech_has_no_tokens_to_copy() -> None:
    batch = small_batch()
    model = build("translation")
    heads, hidden = model.latents["copy"], model.hidden(batch)
    with pytest.raises(ValueError, match="copy heads need positions with tokens"):
        heads.with_generate(type(hidden)(hidden.states, hidden.memory, hidden.attn_mask))


def test_a_source_with_more_ids_than_the_target_is_refused() -> None:
    latents = [CopyOptions()]
    model = Translation(TARGET_TYPES + 1, TARGET_TYPES, sizes(), latents=latents)
    with pytest.raises(ValueError, match=r"^copy heads need one joint vocabulary, got sizes 14"):
        model.token_distribution(batch_of("translation"))
