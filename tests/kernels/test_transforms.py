"""Forward-mode differentiation and torch.func's transforms of every operator: right, never
silently zero."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jacfwd, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from kernels import (
    cem_update,
    elementwise_mult,
    lltm,
    sample_normal,
    sample_normal_rows,
    sigmoid,
    vector_add,
)

OTHER = torch.linspace(-1, 1, 3, dtype=torch.float64)
X, DIRECTION = (
    torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64),
    torch.ones(3, dtype=torch.float64),
)
ONE = torch.tensor(1)
REST = [
    torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for shape in [(6, 5), (6,), (1, 2), (1, 2)]
]


def cell(x: Tensor) -> Tensor:
    """The LLTM's new h and cell as a function of the input alone; (3,) -> (4,)."""
    return torch.cat([result.flatten() for result in lltm(x.unsqueeze(0), *REST)])


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": sigmoid,
    "elementwise_mult": lambda x: elementwise_mult(x, OTHER),
    "lltm": cell,
    "sample_normal": lambda x: sample_normal(
        x, x.exp(), 4, seed=1, bounds=(-1.0, 1.0), antithetic=True, dim_first=False
    ),
}
each_operator = pytest.mark.parametrize("f", OPERATORS.values(), ids=OPERATORS)


@each_operator
def test_derivatives_are_those_of_the_backward_pass(f: Callable[[Tensor], Tensor]) -> None:
    expected = torch.autograd.functional.jacobian(f, X)
    assert float(expected.abs().max()) > 0.1
    torch.testing.assert_close(jacfwd(f)(X), expected)
    torch.testing.assert_close(grad(lambda x: f(x).sum())(X), expected.flatten(0, -2).sum(0))
    dual = torch.autograd.functional.jacobian(f, X, strategy="forward-mode", vectorize=True)
    torch.testing.assert_close(dual, expected)


@each_operator
def test_they_are_under_torch_compile_too(f: Callable[[Tensor], Tensor]) -> None:
    expected = torch.autograd.functional.jacobian(f, X)
    compiled = torch.compile(grad(lambda x: f(x).sum()), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), expected.flatten(0, -2).sum(0))
    compiled = torch.compile(
        lambda x: jvp(f, (x,), (DIRECTION,))[1], backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(X), expected.sum(-1))
    compiled = torch.compile(
        f, backend="aot_eager"
    )  # torch 2.15 breaks the graph at an input with a tangent
    compiled(X)  # without a tangent at first
    with forward_ad.dual_level():
        dual = compiled(forward_ad.make_dual(X, DIRECTION))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, expected.sum(-1))


class Program(torch.nn.Module):
    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = f


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "f",
    [
        sigmoid,
        lambda x: vector_add(x, x),
        cell,
        lambda x: sample_normal(x, x.exp(), 4, seed=1),
        lambda x: sample_normal_rows(torch.stack([x, x]), 4, seed=ONE, generation=ONE),
    ],
)
def test_a_program_that_was_recorded_without_gradients_has_them(
    f: Callable[[Tensor], Tensor],
) -> None:
    expected = torch.autograd.functional.jacobian(f, X)
    for program in (
        torch.export.export(Program(f), (X,)).module(),
        torch.export.export(Program(f), (X,), strict=True).module(),
        torch.jit.trace(f, X),
        make_fx(f)(X),
    ):
        torch.testing.assert_close(torch.autograd.functional.jacobian(program, X), expected)


@each_operator
def test_a_call_that_is_computed_again_for_its_gradient(f: Callable[[Tensor], Tensor]) -> None:
    x = X.clone().requires_grad_()
    result = checkpoint(f, x, use_reentrant=False).sum()
    (gradient,) = torch.autograd.grad(result, x, create_graph=True)
    torch.testing.assert_close(gradient.detach(), grad(lambda x: f(x).sum())(X))


@each_operator
def test_vmap_is_a_loop(f: Callable[[Tensor], Tensor]) -> None:
    x = torch.linspace(-2, 2, 12, dtype=torch.float64).view(4, 3)
    torch.testing.assert_close(vmap(f)(x), torch.stack([f(row) for row in x]))


def test_vmap_of_an_empty_batch_is_empty() -> None:
    x = torch.ones(2, 0, 3, requires_grad=True)
    assert vmap(torch.ops.cem_tetris.sigmoid, 1)(x).shape == (0, 2, 3)


@pytest.mark.parametrize("in_dims", [(None, 0, None), (1, None, None), (1, 0, 0)])
def test_vmap_draws_what_each_problem_draws_by_itself(in_dims: tuple[int | None, ...]) -> None:
    everything = torch.arange(6.0).view(3, 2), torch.tensor([5, 6]), torch.tensor([3, 7])
    arguments = [
        x if dim is not None else x[..., 0] for x, dim in zip(everything, in_dims, strict=True)
    ]

    def draw(mean: Tensor, seed: Tensor, generation: Tensor) -> Tensor:
        return sample_normal(mean, torch.ones(3), 4, seed=seed, generation=generation)

    pairs = list(zip(arguments, in_dims, strict=True))
    rows = [
        draw(*(x if dim is None else x.select(dim, i) for x, dim in pairs)) for i in range(2)
    ]
    torch.testing.assert_close(
        vmap(draw, in_dims)(*arguments), torch.stack(rows), rtol=0, atol=1e-6
    )


def test_generations_of_problems_under_vmap_are_counted_each() -> None:
    fitness, distribution = torch.rand(2, 4), torch.rand(2, 4, 3)
    record, generation = (
        torch.full((2, 5), torch.nan, dtype=torch.float64),
        torch.tensor([3, 7]),
    )
    update = lambda *state: cem_update(*state, 2, maximize=False)  # noqa: E731
    moved = torch.func.vmap(update)(
        fitness, torch.rand(2, 4, 3), distribution, record, generation
    )
    assert moved[2].tolist() == [4, 8]
