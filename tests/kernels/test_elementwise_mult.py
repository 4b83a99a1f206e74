"""elementwise_mult: every type, its two gradients, and what every operator promises."""

from __future__ import annotations

from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels.elementwise_mult import elementwise_mult, elementwise_mult_reference

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def pair(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Returns two tensors; those of integers use all of the type's range."""
    generator = torch.Generator().manual_seed(7)

    def draw() -> Tensor:
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)
        bits = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
        return bits.to(device, dtype)

    return draw(), draw()


def operators() -> Any:
    elementwise_mult(*pair(1))  # registers them
    return torch.ops.cem_tetris


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATING + INTEGERS, ids=str)
def test_it_matches_torch_bit_for_bit(device: str, dtype: torch.dtype) -> None:
    a, b = pair(3001, device=device, dtype=dtype)
    assert_same(elementwise_mult(a, b), torch.mul(a, b))
    assert_same(elementwise_mult_reference(a, b), torch.mul(a, b))


@pytest.mark.parametrize("device", DEVICES)
def test_overflow_infinities_and_nan_are_those_of_torch(device: str) -> None:
    a = torch.tensor([1e30, float("inf"), float("inf"), float("nan"), 1e-30], device=device)
    b = torch.tensor([1e30, 0.0, -1.0, 1.0, 1e-12], device=device)
    assert_same(elementwise_mult(a, b), torch.mul(a, b))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_right_in_float64(device: str) -> None:
    a, b = pair(4, 5, device=device, dtype=torch.float64)
    assert torch.autograd.gradcheck(elementwise_mult, (a.requires_grad_(), b.requires_grad_()))
    assert torch.autograd.gradgradcheck(elementwise_mult, (a, b))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_with_respect_to_one_argument(device: str) -> None:
    a, b = pair(4, 5, device=device, dtype=torch.float64)
    assert torch.autograd.gradcheck(elementwise_mult, (a.requires_grad_(), b))
    assert torch.autograd.gradgradcheck(elementwise_mult, (a, b))
    assert torch.autograd.gradcheck(elementwise_mult, (a.detach(), b.requires_grad_()))


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_of_a_square(device: str) -> None:
    a = pair(5, device=device)[0].requires_grad_()
    elementwise_mult(a, a).sum().backward()
    assert_same(a.grad, 2 * a.detach())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_the_fused_gradients_match_torch_bit_for_bit(device: str, dtype: torch.dtype) -> None:
    a, b = pair(999, device=device, dtype=dtype)
    grad = pair(999, device=device, dtype=dtype)[1].flip(0)
    inputs = a.requires_grad_(), b.requires_grad_()
    mine = torch.autograd.grad(elementwise_mult(*inputs), inputs, grad)
    assert_same(mine, torch.autograd.grad(torch.mul(*inputs), inputs, grad))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_arguments_whose_layouts_differ(device: str) -> None:
    a, b = pair(6, 6, device=device)
    inputs = a.requires_grad_(), b.t().requires_grad_()
    grad = pair(6, 6, device=device)[1][:, :1].expand(6, 6)
    mine = torch.autograd.grad(elementwise_mult(*inputs), inputs, grad)
    assert_same(mine, torch.autograd.grad(torch.mul(*inputs), inputs, grad))


def test_without_gradients_nothing_is_recorded() -> None:
    a, b = pair(3)
    assert not elementwise_mult(a, b).requires_grad
    with torch.no_grad():
        assert not elementwise_mult(a.requires_grad_(), b).requires_grad


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_any_memory_gives_the_same_and_is_kept(device: str, dtype: torch.dtype) -> None:
    contract.check_noncontiguous(elementwise_mult, *pair(2, 3, 5, 7, device=device, dtype=dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (2049,)], ids=str)
def test_any_number_of_elements(device: str, shape: tuple[int, ...]) -> None:
    a, b = pair(*shape, device=device)
    assert_same(elementwise_mult(a, b), torch.mul(a, b))


def test_arguments_that_differ_are_refused() -> None:
    a = torch.ones(3)
    with pytest.raises(TypeError, match="expected a tensor, got int"):
        elementwise_mult(a, 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a tensor of float16, .*, got bool"):
        elementwise_mult(a > 0, a > 0)
    with pytest.raises(TypeError, match=r"of one dtype, got torch\.float32 and torch\.float16"):
        elementwise_mult(a, a.half())
    with pytest.raises(ValueError, match=r"expected tensors of one shape, got \(3,\) and \(1,\)"):
        elementwise_mult(a, a[:1])
    with pytest.raises(ValueError, match="expected tensors on one device, got cpu and meta"):
        elementwise_mult(a, a.to("meta"))


def test_a_direct_call_of_the_operator_is_refused_too() -> None:
    a = torch.ones(3)
    for b, message in ((a[:2], "of one shape"), (a.double(), "of one dtype")):
        with pytest.raises(RuntimeError, match=f"elementwise_mult: expected tensors {message}"):
            operators().elementwise_mult_forward(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_torch_accepts_the_operators(device: str) -> None:
    a, b = pair(3, 4, device=device)
    elementwise_mult(a, b)
    ops = operators()
    recorded = a.clone().requires_grad_(), b.clone().requires_grad_()
    contract.check_opcheck(ops.elementwise_mult.default, (a, b), recorded, (a.t(), b.t()))
    contract.check_opcheck(ops.elementwise_mult_forward.default, (a, b), (a.int(), b.int()))
    contract.check_opcheck(ops.elementwise_mult_backward.default, (a, a, b), (recorded[0], *recorded))


@pytest.mark.parametrize("device", DEVICES)
def test_it_compiles_with_its_gradient(device: str) -> None:
    a, b = pair(33, device=device)
    contract.check_compiles(elementwise_mult, a.requires_grad_(), b.requires_grad_())


@cuda
def test_a_cuda_graph_replays_it() -> None:
    contract.check_graph_replay(elementwise_mult, *pair(5000, device="cuda"))


@cuda
def test_the_current_stream_orders_it() -> None:
    contract.check_side_stream(elementwise_mult, *pair(5000, device="cuda"))


@cuda
def test_it_runs_on_a_device_that_is_not_current() -> None:
    contract.check_second_device(elementwise_mult, *pair(5000, device="cuda"))


@pytest.mark.heavy
@cuda
def test_more_than_2_to_the_31_elements() -> None:
    contract.skip_unless_free(14 * 2**30)
    a = torch.randint(-128, 128, (2**31 + 4099,), device="cuda", dtype=torch.int8)
    b = a.roll(1)
    assert torch.equal(elementwise_mult(a, b), torch.mul(a, b))
