"""elementwise_mult alone: every type, its two gradients, its schema. test_elementwise.py has the rest."""

from __future__ import annotations

import functools
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same
from test_elementwise import inputs

from kernels.ops.elementwise import elementwise_mult, elementwise_mult_reference

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


pair = functools.partial(inputs, "elementwise_mult")


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


@pytest.mark.parametrize("device", DEVICES)
def test_torch_accepts_the_operators(device: str) -> None:
    a, b = pair(3, 4, device=device)
    elementwise_mult(a, b)
    ops = operators()
    recorded = a.clone().requires_grad_(), b.clone().requires_grad_()
    contract.check_opcheck(ops.elementwise_mult.default, (a, b), recorded, (a.t(), b.t()))
    contract.check_opcheck(ops.elementwise_mult_forward.default, (a, b), (a.int(), b.int()))
    contract.check_opcheck(ops.elementwise_mult_backward.default, (a, a, b), (recorded[0], *recorded))
