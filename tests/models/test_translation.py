"""The encoder-decoder: its sites, its likelihood, its tables, its decoding state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import Predictive
from torch.func import functional_call

import latentheads as lh
from latentheads.batch import BOS, Batch
from latentheads.distributions import SmoothedTokens, Tokens
from latentheads.handlers import PlugIn
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.logits.options import LogitsOptions
from latentheads.latents.options import check_latents
from latentheads.latents.selection.options import SelectionOptions
from latentheads.latents.selector import Selector
from latentheads.models import PRIORS, LanguageModel, Translation
from tests.latentheads.corpora.texts import pets, story
from tests.latentheads.latents.alignments.models import SHAPES, SOFT, aligned
from tests.models.hypotheses import assert_each_continues
from tests.tiny import KINDS, attach, build, latents, rows, sizes
from tests.typechecking import unchecked


def test_sites_are_named_by_block_bottom_to_top(batch: Batch) -> None:
    model = build()
    blocks = ["encoder.0.self", "encoder.1.self"]
    blocks += [f"decoder.{layer}.{kind}" for layer in range(2) for kind in ("self", "cross")]
    assert latents(model, batch) == [f"{name}.logits" for name in blocks]
    assert poutine.trace(model).get_trace(batch).observation_nodes == ["target"]
    assert [b.name for b in model.blocks] == blocks


@pytest.mark.parametrize("left_out", ["memory", "memory_mask"])
def test_cross_attention_is_passed_over_by_nobody(left_out: str, batch: Batch) -> None:
    model = build()
    state = model.begin(batch)
    given = {"memory": state.memory, "memory_mask": state.memory_mask, left_out: None}
    x, reach = (
        model.target_embedding(batch.decoder_input),
        model.attention_mask(batch.target_latent),
    )
    with pytest.raises(ValueError, match=r"^cross-attention must be given memory and memory_mask$"):
        model.decoder(x, reach, **given)


@pytest.mark.parametrize("latent", [(), ("encoder-self",), ("decoder-cross", "decoder-self")])
def test_only_the_latent_chains_have_sites(latent: tuple[str, ...], batch: Batch) -> None:
    model = build(blocks=",".join(latent) or "none")
    nodes = latents(model, batch)
    kinds = {"encoder-self": 2, "decoder-self": 2, "decoder-cross": 2}
    assert len(nodes) == sum(kinds[chain] for chain in latent)
    assert all("-".join(name.split(".")[0:3:2]) in latent for name in nodes)


def test_unknown_chain_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^attention type must be one of encoder-self"):
        build(blocks="encoder")


def test_a_joint_table_needs_a_joint_vocabulary() -> None:
    with pytest.raises(ValueError, match="share='all' needs one joint vocabulary"):
        Translation(11, 13, sizes(share="all"), latents=())


@pytest.mark.parametrize(("share", "tables"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tables_are_shared_as_asked(share: str, tables: int) -> None:
    model = Translation(13, 13, sizes(share=share), latents=())
    weights = (model.source_embedding.table, model.target_embedding.table, model.output.table)
    assert len({id(table.weight) for table in weights}) == tables
    assert model.predict(torch.randn(1, 2, 6)).shape == (1, 2, 13)


def test_smoothing_acts_while_training_alone(batch: Batch) -> None:
    model = build(prior="delta", label_smoothing=0.2)

    def likelihood() -> Tokens:
        return poutine.trace(model).get_trace(batch).nodes["target"]["fn"]

    smoothed = likelihood()
    assert isinstance(smoothed, SmoothedTokens)
    assert smoothed.smoothing == 0.2
    model.eval()
    assert type(likelihood()) is Tokens
    plain = build(prior="delta")
    assert type(poutine.trace(plain).get_trace(batch).nodes["target"]["fn"]) is Tokens


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_smoothing_must_lie_in_the_unit_interval(smoothing: float) -> None:
    with pytest.raises(ValueError, match="label_smoothing must lie in"):
        build(label_smoothing=smoothing)


@pytest.mark.parametrize("form", ["tied", "cascaded"])
def test_predictive_draws_heads_and_tokens(form: str, batch: Batch) -> None:
    model = build().eval()
    guide = attach(form, model)
    seen = Predictive(model, guide=guide, num_samples=3)(batch)
    assert seen["decoder.1.cross.logits"].shape == (3, 3, 3, 4, 5)
    assert torch.equal(seen["target"], batch.target.expand(3, 3, 4))
    drawn = Predictive(model, guide=guide, num_samples=3)(batch, observe=False)
    assert drawn["target"].shape == (3, 3, 4)
    assert (drawn["target"][:, ~batch.target_valid] == 0).all()
    assert not torch.equal(drawn["target"][0], drawn["target"][1])


def test_predictive_in_parallel_gives_the_same_shapes(batch: Batch) -> None:
    model = build().eval()
    drawn = Predictive(model, num_samples=5, parallel=True)(batch, observe=False)
    assert drawn["target"].shape == (5, 3, 4)
    assert drawn["encoder.1.self.logits"].shape == (5, 3, 3, 5, 5)


@pytest.mark.parametrize("shape", [None, "one head", "soft"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_with_other_weights_is_scored_with_them(
    kind: str, shape: str | None, batch: Batch
) -> None:
    model = aligned({**SHAPES, **SOFT}[shape] if shape else None, kind=kind)
    twice = {name: 2 * tensor.detach() for name, tensor in model.named_parameters()}
    with PlugIn(), poutine.trace() as lent:
        # torch restores the table, which stands at two places, once a name
        functional_call(model, twice, (batch,), tie_weights=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    with PlugIn():
        own = poutine.trace(model).get_trace(batch)
    target = lent.trace.nodes["target"]
    assert torch.equal(
        target["fn"].log_prob(target["value"]),
        own.nodes["target"]["fn"].log_prob(own.nodes["target"]["value"]),
    )


def test_selecting_a_decoding_state_selects_sentences(batch: Batch) -> None:
    model, order = build(prior="cascaded").eval(), [2, 0, 0]
    with PlugIn():
        state, expected = model.begin(batch), model.begin(rows(batch, order))
        model.step(batch.decoder_input[:, :2], state)
        model.step(batch.decoder_input[order, :2], expected)
        state.select(torch.tensor(order))
        last = batch.decoder_input[order, 2:3]
        assert torch.allclose(model.step(last, state), model.step(last, expected), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prior", sorted(PRIORS))
def test_selecting_hypotheses_continues_each(kind: str, prior: str, batch: Batch) -> None:
    model = build(kind, prior=prior).eval()
    assert_each_continues(model, batch)


def test_the_memory_is_not_copied_for_hypotheses(batch: Batch) -> None:
    model = build().eval()
    with PlugIn():
        state = model.begin(batch)
        model.step(torch.full((3, 1, 1), BOS), state)
        cross, inner = state.caches["decoder.1.cross"], state.caches["decoder.1.self"]
        before = state.memory, cross.keys, cross.values
        state.select(None, torch.zeros(3, 5, dtype=torch.long))
        after = state.memory, cross.keys, cross.values
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert cross.keys.shape[:-2] == (3, 3)
    assert inner.keys.shape[:-2] == (3, 5, 3)


def test_a_batch_without_source_is_refused_in_one_line(batch: Batch) -> None:
    with pytest.raises(ValueError, match="this batch has no source"):
        build()(Batch(batch.target))


@pytest.mark.parametrize("kind", [Translation, LanguageModel])
def test_what_is_no_corpus_or_alignments_is_refused_in_one_line(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"^corpus must be a Corpus, .* got 'grammar'$"):
        unchecked(kind.of)(kind, "grammar")
    with pytest.raises(ValueError, match=r"^corpus must be a Corpus, or the processor of one"):
        unchecked(kind.of)(kind, SimpleNamespace(target=story().target))
    with pytest.raises(ValueError, match=r"^latents must be a list such as \[lh.*, got 1$"):
        unchecked(check_latents)(1)


def test_a_model_of_a_corpus_of_tasks_selects_heads_for_each() -> None:
    corpus = lh.data.Grammar(tasks=lh.data.Tasks("velu,tamir"), sentences=20, held_out=3).load()
    model = Translation.of(corpus, [SelectionOptions("group")], width=6, heads=2, layers=1)
    selector = model.find_latent(Selector)
    assert selector is not None
    assert [selector.num_tasks(side) for side in ("encoder-self", "decoder-self")] == [1, 2]
    batch = next(lh.data.batches(corpus.test))
    assert model(batch).shape[-1] == batch.target.shape[-1]


@pytest.mark.parametrize(("kind", "other"), [(Translation, story), (LanguageModel, pets)])
def test_a_model_of_a_corpus_is_what_it_is_told(kind: Any, other: Any) -> None:
    corpus = pets() if other is story else story()
    options = AlignmentOptions(1, 1, "soft", 5)
    logits = LogitsOptions("cascaded", "decoder-self")
    messages = {"label_smoothing": 0.1, "latents": [logits, options], "width": 6, "heads": 3}
    model = kind.of(corpus, **messages)
    assert model.output.weight.shape == (len(corpus.target), 6)
    assert model.label_smoothing == 0.1
    assert model.config["latents"] == [logits, options]
    with pytest.raises(ValueError, match=r"^this corpus has .* source: it is for "):
        kind.of(other())


def test_structure_can_be_rendered_by_pyro(batch: Batch) -> None:
    relations = pyro.infer.inspect.get_model_relations(build("language-model"), (batch,))
    assert relations["sample_sample"]["target"][0] == "decoder.0.self.logits"
    assert relations["plate_sample"]["sentences"][-1] == "target"
