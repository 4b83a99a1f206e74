"""What sigmoid, vector_add and elementwise_mult share: any size, type and memory, gradients, the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels.ops.elementwise import (
    elementwise_mult,
    elementwise_mult_reference,
    sigmoid,
    sigmoid_reference,
    vector_add,
    vector_add_reference,
)

OPERATORS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor], int]] = {
    "sigmoid": (sigmoid, sigmoid_reference, torch.sigmoid, 1),
    "vector_add": (vector_add, vector_add_reference, torch.add, 2),
    "elementwise_mult": (elementwise_mult, elementwise_mult_reference, torch.mul, 2),
}
"""The function, its reference, torch's, and how many tensors it takes."""

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
# About the vector's width, beyond a block, and beyond what threads take at once.
SHAPES = [(), (0,), (3, 0, 2), (1,), (15,), (17,), (2049,), (40_001,)]
each_operator = pytest.mark.parametrize("name", OPERATORS)
pairs = pytest.mark.parametrize("name", ["vector_add", "elementwise_mult"])


def inputs(name: str, *shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Returns tensors for an operator; those of integers use all of the type's range."""
    generator = torch.Generator().manual_seed(5)

    def draw() -> Tensor:
        if dtype.is_floating_point:
            return (6 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)
        return torch.randint(-(2**63), 2**63 - 1, shape, generator=generator).to(device, dtype)

    return [draw() for _ in range(OPERATORS[name][3])]


def tolerances(name: str, rtol: float = 4e-7, atol: float = 0.0) -> dict[str, float]:
    """sigmoid is as accurate as torch's; the others are equal bit for bit."""
    return {"rtol": rtol, "atol": atol} if name == "sigmoid" else {}


@each_operator
@pytest.mark.parametrize("device", DEVICES)
def test_any_number_of_elements(device: str, name: str) -> None:
    f, _, torchs, _ = OPERATORS[name]
    for shape in SHAPES:
        for dtype in (torch.float32,) if name == "sigmoid" else (torch.float32, torch.int8):
            values = inputs(name, *shape, device=device, dtype=dtype)
            assert_same(f(*values), torchs(*values), **tolerances(name))


@each_operator
@pytest.mark.parametrize("device", DEVICES)
def test_every_type_matches_torch(device: str, name: str) -> None:
    f, reference, torchs, _ = OPERATORS[name]
    for dtype in FLOATING if name == "sigmoid" else FLOATING + INTEGERS:
        values = inputs(name, 3001, device=device, dtype=dtype)
        accuracy = 3 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
        for ours in (f, reference):
            assert_same(ours(*values), torchs(*values), **tolerances(name, accuracy))


@pairs
@pytest.mark.parametrize("device", DEVICES)
def test_overflow_infinities_and_nan_are_those_of_torch(device: str, name: str) -> None:
    f, _, torchs, _ = OPERATORS[name]
    largest, inf = torch.finfo(torch.float16).max, float("inf")
    a = torch.tensor([largest, inf, inf, float("nan"), 1e-7], device=device, dtype=torch.float16)
    b = torch.tensor([largest, -inf, 0.0, 1.0, 1e-7], device=device, dtype=torch.float16)
    assert_same(f(a, b), torchs(a, b))


@each_operator
@pytest.mark.parametrize("device", DEVICES)
def test_any_memory_gives_the_same_and_is_kept(device: str, name: str) -> None:
    f = OPERATORS[name][0]
    for dtype in (torch.float16, torch.float32, *(() if name == "sigmoid" else (torch.int64,))):
        contract.check_noncontiguous(f, *inputs(name, 2, 3, 5, 7, device=device, dtype=dtype))


@pytest.mark.parametrize("device", DEVICES)
def test_memory_that_is_not_aligned(device: str) -> None:
    a, b = inputs("vector_add", 5003, device=device, dtype=torch.float16)
    for shift in (1, 2, 3):
        assert_same(vector_add(a[shift:], b[shift:]), torch.add(a[shift:], b[shift:]))
        assert_same(vector_add(a[shift:], b[:-shift]), torch.add(a[shift:], b[:-shift]))


@each_operator
def test_a_layout_without_gaps_is_kept(name: str) -> None:
    f, _, torchs, _ = OPERATORS[name]
    for view in (
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.permute(3, 0, 2, 1),
        lambda x: x[:, :1],
    ):
        values = [view(x) for x in inputs(name, 2, 3, 5, 7)]
        assert f(*values).stride() == torchs(*values).stride()


@each_operator
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_right_in_float64(device: str, name: str) -> None:
    values = inputs(name, 4, 5, device=device, dtype=torch.float64)
    for wanted in (values, values[:1], values[-1:]):
        for x in values:
            x.requires_grad_(any(x is each for each in wanted))
        assert torch.autograd.gradcheck(OPERATORS[name][0], values)
        assert torch.autograd.gradgradcheck(OPERATORS[name][0], values)


@pytest.mark.parametrize("device", DEVICES)
def test_the_fused_gradients_match_torch_bit_for_bit(device: str) -> None:
    def check(a: Tensor, b: Tensor, grad: Tensor) -> None:
        leaves = a.requires_grad_(), b.requires_grad_()
        mine = torch.autograd.grad(elementwise_mult(*leaves), leaves, grad)
        assert_same(mine, torch.autograd.grad(torch.mul(*leaves), leaves, grad))

    for dtype in FLOATING:
        a, b = inputs("elementwise_mult", 999, device=device, dtype=dtype)
        check(a, b, a.flip(0))
    a, b = inputs("elementwise_mult", 6, 6, device=device)
    check(a, b.t(), b[:, :1].expand(6, 6))


@each_operator
def test_without_gradients_nothing_is_recorded(name: str) -> None:
    f, values = OPERATORS[name][0], inputs(name, 3)
    assert not f(*values).requires_grad
    values[0].requires_grad_()
    assert f(*values).requires_grad
    with torch.no_grad():
        assert not f(*values).requires_grad


@pairs
def test_arguments_that_differ_are_refused(name: str) -> None:
    f: Any = OPERATORS[name][0]
    a = torch.ones(3)
    f(a, a)  # registers the operators
    with pytest.raises(TypeError, match="expected b to be a tensor, got float"):
        f(a, 1.0)
    with pytest.raises(TypeError, match=r"expected a of float16, .*, got bool"):
        f(a > 0, a > 0)
    with pytest.raises(TypeError, match="expected b of float32, got float64"):
        f(a, a.double())
    with pytest.raises(ValueError, match=r"expected b of shape \(3,\), got \(1, 3\)"):
        f(a, a[None])
    with pytest.raises(ValueError, match="expected b on cpu, got meta"):
        f(a, a.to("meta"))
    for b, message in ((a[:2], "of one shape"), (a.double(), "of one dtype")):
        with pytest.raises(RuntimeError, match=f"{name}: expected tensors {message}"):
            getattr(torch.ops.cem_tetris, f"{name}_forward")(a, b)


@pairs
@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str, name: str) -> None:
    a, b = inputs(name, 3, 4, device=device)
    OPERATORS[name][0](a, b)  # registers the operators
    recorded = a.clone().requires_grad_(), b.clone().requires_grad_()
    op, forward = (getattr(torch.ops.cem_tetris, each).default for each in (name, f"{name}_forward"))
    contract.check_opcheck(op, (a, b), recorded, (a.t(), b.t()), (a[:, 1:], b[:, 1:]))
    contract.check_opcheck(forward, (a, b), (a.int(), b.int()))
    if name == "elementwise_mult":
        backward = torch.ops.cem_tetris.elementwise_mult_backward.default
        contract.check_opcheck(backward, (a, a, b), (recorded[0], *recorded))


@each_operator
@pytest.mark.parametrize("device", DEVICES)
def test_it_compiles_with_its_gradient(device: str, name: str) -> None:
    values = [x.requires_grad_() for x in inputs(name, 33, device=device)]
    contract.check_compiles(OPERATORS[name][0], *values, **tolerances(name, 1e-6, 1e-7))


@cuda
@each_operator
def test_graphs_streams_and_devices(name: str) -> None:
    contract.check_cuda(OPERATORS[name][0], *inputs(name, 5000, device="cuda"))


@pytest.mark.heavy
@cuda
def test_more_than_2_to_the_31_elements() -> None:
    contract.skip_unless_free(14 * 2**30)
    a = torch.randint(-128, 128, (2**31 + 4099,), device="cuda", dtype=torch.int8)
    b = a.roll(1)
    assert torch.equal(vector_add(a, b), torch.add(a, b))
    assert torch.equal(elementwise_mult(a[1:], b[1:]), torch.mul(a[1:], b[1:]))  # not aligned
