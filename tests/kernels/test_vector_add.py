"""vector_add alone: every type, memory that is not aligned, its schema. test_elementwise.py has the rest."""

from __future__ import annotations

import functools
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same
from test_elementwise import inputs

from kernels.ops.elementwise import vector_add, vector_add_reference

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES += [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


pair = functools.partial(inputs, "vector_add")


def operators() -> Any:
    vector_add(*pair(1))  # registers them
    return torch.ops.cem_tetris


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_matches_torch_bit_for_bit(device: str, dtype: torch.dtype) -> None:
    a, b = pair(3001, device=device, dtype=dtype)
    assert_same(vector_add(a, b), torch.add(a, b))
    assert_same(vector_add_reference(a, b), torch.add(a, b))


@pytest.mark.parametrize("device", DEVICES)
def test_overflow_infinities_and_nan_are_those_of_torch(device: str) -> None:
    largest = torch.finfo(torch.float16).max
    a = torch.tensor([largest, float("inf"), float("inf"), float("nan")], device=device, dtype=torch.float16)
    b = torch.tensor([largest, -float("inf"), 1.0, 1.0], device=device, dtype=torch.float16)
    assert_same(vector_add(a, b), torch.add(a, b))


def test_the_gradient_of_one_argument_alone() -> None:
    a, b = pair(3)
    vector_add(a, b.requires_grad_()).backward(torch.tensor([1.0, 2.0, 3.0]))
    assert a.grad is None
    assert b.grad is not None
    assert b.grad.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_memory_that_is_not_aligned(device: str, shift: int) -> None:
    a, b = pair(5003, device=device, dtype=torch.float16)
    assert_same(vector_add(a[shift:], b[shift:]), torch.add(a[shift:], b[shift:]))
    assert_same(vector_add(a[shift:], b[:-shift]), torch.add(a[shift:], b[:-shift]))


@pytest.mark.parametrize("device", DEVICES)
def test_torch_accepts_the_operators(device: str) -> None:
    a, b = pair(3, 4, device=device)
    vector_add(a, b)
    ops = operators()
    recorded = a.clone().requires_grad_(), b.clone().requires_grad_()
    contract.check_opcheck(ops.vector_add.default, (a, b), recorded, (a.t(), b.t()), (a[:, 1:], b[:, 1:]))
    contract.check_opcheck(ops.vector_add_forward.default, (a, b), (a.int(), b.int()))
