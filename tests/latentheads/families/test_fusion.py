"""The fusion: an MLP over the heads, equal to the plain one in value and gradient at any slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from pyro.ops.provenance import get_provenance, track_provenance
from torch import Tensor, nn

from latentheads.families import fusion as module
from latentheads.families.fusion import LEAK, Fusion
from tests.tiny import HEADS, jiggle

HIDDEN = 5
every_depth = pytest.mark.parametrize("layers", [2, 3])
every_link = pytest.mark.parametrize("link", [False, True], ids=["plain", "link"])


@pytest.fixture(params=[1, 11, 71, 10**6], ids="{}-pairs".format)
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one pair, of a third of a sentence, of two sentences, of everything."""
    monkeypatch.setitem(module.CHUNK, "cpu", request.param * HIDDEN * HEADS)


def small(layers: int, hidden: int = HIDDEN) -> Fusion:
    return jiggle(Fusion(HEADS, hidden, layers), 0.3)


def naive(fusion: Fusion, z: Tensor, link: bool = False) -> tuple[Tensor, Tensor]:
    """The same MLP, heads last, as the paper writes it."""
    modules: list[nn.Module] = []
    for layer in fusion.layers:
        modules += [layer, nn.LeakyReLU(LEAK)]
    mixed = nn.Sequential(*modules[:-1])(z.movedim(-3, -1)).movedim(-1, -3)
    mixed = z + mixed if link else mixed
    return mixed, mixed.square().sum(-3)


def gradients(
    outputs: Sequence[Tensor], weights: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    total = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, inputs)


@pytest.mark.usefixtures("slices")
@every_depth
@every_link
@pytest.mark.parametrize("shape", [(), (2, 3), (0,)], ids=str)
def test_fusion_is_an_mlp_over_the_heads_of_each_pair(
    layers: int, link: bool, shape: tuple[int, ...]
) -> None:
    fusion = small(layers)
    z = torch.randn(*shape, HEADS, 5, 7, requires_grad=True)
    weights = torch.randn(*shape, HEADS, 5, 7), torch.randn(*shape, 5, 7)
    results = [
        (*actual, *gradients(actual, weights, [z, *fusion.parameters()]))
        for actual in (fusion.forward_and_squares(z, link), naive(fusion, z, link))
    ]
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@every_depth
@pytest.mark.parametrize("used", [0, 1], ids=["logits", "squares"])
def test_either_result_may_go_unused(layers: int, used: int) -> None:
    fusion = small(layers)
    z = torch.randn(2, HEADS, 5, 7, requires_grad=True)
    inputs = [z, *fusion.parameters()]
    ours = torch.autograd.grad(fusion.forward_and_squares(z)[used].square().sum(), inputs)
    theirs = torch.autograd.grad(naive(fusion, z)[used].square().sum(), inputs)
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("frozen", [True, False], ids=["parameters", "input"])
def test_what_needs_no_gradient_gets_none(frozen: bool) -> None:
    fusion = small(2).requires_grad_(not frozen)
    z = torch.randn(2, HEADS, 5, 7, requires_grad=frozen)
    inputs = [z] if frozen else list(fusion.parameters())
    ours = torch.autograd.grad(fusion(z).square().sum(), inputs)
    theirs = torch.autograd.grad(naive(fusion, z)[0].square().sum(), inputs)
    for actual, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)
    fusion(z).sum().backward()
    assert (z.grad is not None) == frozen
    assert all((p.grad is None) == frozen for p in fusion.parameters())


def test_one_layer_alone_may_be_learned() -> None:
    fusion = small(3).requires_grad_(False)
    fusion.layers[1].requires_grad_(True)
    z = torch.randn(2, HEADS, 5, 7)
    fusion(z).square().sum().backward()
    ours = [p.grad for p in fusion.parameters()]
    fusion.zero_grad()
    naive(fusion, z)[0].square().sum().backward()
    for actual, parameter in zip(ours, fusion.parameters(), strict=True):
        assert (actual is None) == (parameter.grad is None)
        if actual is not None:
            torch.testing.assert_close(actual, parameter.grad, rtol=1e-11, atol=1e-11)


@every_depth
def test_without_gradients_it_computes_the_same(layers: int) -> None:
    fusion = small(layers)
    z = torch.randn(2, HEADS, 5, 7)
    expected = fusion(z)
    with torch.no_grad():
        computed_fusion = fusion(z)
    assert torch.equal(computed_fusion, expected)
    assert expected.requires_grad
    assert not computed_fusion.requires_grad


@pytest.mark.parametrize(
    "view",
    [
        lambda z: z.mT,
        lambda z: z[..., ::2],
        lambda z: z[:1].expand(4, -1, -1, -1),
        lambda z: z.transpose(0, 1)[:, None].expand(-1, 2, -1, -1, -1).movedim(0, 2),
    ],
    ids=["transposed", "strided", "expanded", "particles"],
)
def test_logits_need_not_lie_next_to_each_other(view: Callable[[Tensor], Tensor]) -> None:
    fusion = small(2)
    z = torch.randn(2, HEADS, 5, 7, requires_grad=True)
    results = []
    for form in (fusion, lambda x: naive(fusion, x)[0]):
        output = form(view(z))
        results.append(
            (output, *torch.autograd.grad(output.exp().sum(), [z, *fusion.parameters()]))
        )
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@every_depth
def test_it_keeps_full_precision_under_autocast(layers: int) -> None:
    torch.set_default_dtype(torch.float32)
    fusion = Fusion(HEADS, layers=layers)
    z = torch.randn(2, HEADS, 5, 7, requires_grad=True)
    inputs = [z, *fusion.parameters()]
    outside = fusion(z)
    expected = torch.autograd.grad(outside.square().sum(), inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = fusion(z)
        gradient = torch.autograd.grad(inside.square().sum(), inputs)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)
    assert all(
        torch.equal(actual, wanted) for actual, wanted in zip(gradient, expected, strict=True)
    )


def saved(fusion: Fusion, z: Tensor) -> int:
    """Bytes that one call keeps for its gradient, parameters left out."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        mixed, squares = fusion.forward_and_squares(z, link=True)
        _ = mixed.sum() + (squares * torch.ones(7)).sum()
    for parameter in fusion.parameters():
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    return sum(storages.values()) - 7 * z.element_size()


@every_depth
def test_it_keeps_nothing_but_its_input(layers: int) -> None:
    fusion = small(layers)
    z = torch.randn(2, HEADS, 5, 7, requires_grad=True)
    copy = z.numel() * z.element_size()
    assert saved(fusion, z) == copy
    fusion.store_activations = True
    assert saved(fusion, z) >= (1 + HIDDEN * (layers - 1)) * copy


@every_depth
@every_link
def test_keeping_the_activations_gives_the_same(layers: int, link: bool) -> None:
    fusion = small(layers)
    z = torch.randn(2, HEADS, 5, 7, requires_grad=True)
    weights = torch.randn(2, HEADS, 5, 7), torch.randn(2, 5, 7)
    results = []
    for fusion.store_activations in (False, True):
        forward_and_squares = fusion.forward_and_squares(z, link)
        results.append(
            (
                *forward_and_squares,
                *gradients(forward_and_squares, weights, [z, *fusion.parameters()]),
            )
        )
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_a_tensor_that_records_what_is_done_to_it_sees_the_fusion() -> None:
    fusion = small(2)
    z = torch.randn(2, HEADS, 5, 7)
    computed_fusion = fusion(track_provenance(z, frozenset({"below"})))
    assert get_provenance(computed_fusion) == frozenset({"below"})
    torch.testing.assert_close(torch.as_tensor(computed_fusion), fusion(z))


@pytest.mark.parametrize(("heads", "parameters"), [(4, 420), (8, 1608), (16, 6288), (32, 24864)])
def test_three_layer_fusion_has_24_h_squared_plus_9_h_parameters(
    heads: int, parameters: int
) -> None:
    fusion = Fusion(heads, hidden=4, layers=3)
    assert sum(p.numel() for p in fusion.parameters()) == parameters == 24 * heads**2 + 9 * heads


@pytest.mark.parametrize("hidden", [2, 4, 8])
def test_two_layer_fusion_has_2_alpha_h_squared_and_biases(hidden: int) -> None:
    parameters = sum(p.numel() for p in Fusion(HEADS, hidden).parameters())
    assert parameters == 2 * hidden * HEADS**2 + (hidden + 1) * HEADS


def test_fusion_starts_as_the_released_code_does() -> None:
    torch.manual_seed(2)
    fusion = Fusion(16, hidden=4, layers=3)
    z = torch.randn(1, 16, 60, 60)
    assert fusion(z).std().item() == pytest.approx(0.14, abs=0.04)
    assert not Fusion(HEADS, zero=True)(torch.randn(1, HEADS, 2, 2)).any()


@pytest.mark.parametrize("options", [{"hidden": 0}, {"layers": 1}])
def test_a_fusion_has_something_hidden(options: dict[str, int]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name} must be at least {value + 1}, got {value}"):
        Fusion(HEADS, **options)


def test_a_second_derivative_is_refused() -> None:
    z = torch.randn(2, HEADS, 3, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"^a network of heads has no second derivatives"):
        torch.autograd.grad(small(2)(z).sum(), z, create_graph=True)
