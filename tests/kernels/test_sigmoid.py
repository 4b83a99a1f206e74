"""sigmoid alone: its numbers over all of float32, its gradient, its schema. The rest: test_elementwise.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels.ops.elementwise import sigmoid, sigmoid_reference

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 20.0, -20.0, 1e30, -1e30]
MOST_ULPS = {"cpu": 2.5, "cuda": 3.0}
"""float32 against float64 over all finite values, in units in the last place; measured: 2.33 on a CPU."""


def sample(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return (6 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)


def operators() -> Any:
    sigmoid(torch.zeros(1))  # registers them
    return torch.ops.cem_tetris


def ulps(actual: Tensor, exact: Tensor) -> float:
    """Returns the largest error in units in the last place of the exact value's neighbour in the type."""
    size = exact.to(actual.dtype).abs()
    unit = torch.nextafter(size, torch.full_like(size, float("inf"))).double() - size.double()
    return float(((actual.double() - exact).abs() / unit).max())


def every_float32(device: str, step: int) -> Iterator[Tensor]:
    """Yields the finite float32 numbers, every ``step``-th of them, some millions at a time."""
    for begin in range(-(2**31), 2**31, step * 2**24):
        bits = torch.arange(begin, min(begin + step * 2**24, 2**31), step, dtype=torch.int64, device=device)
        x = bits.to(torch.int32).view(torch.float32)
        yield x[x.isfinite()]


@pytest.mark.parametrize("device", DEVICES)
def test_nan_infinities_and_zeros_give_what_torch_gives(device: str) -> None:
    for dtype in FLOATING:
        x = torch.tensor(SPECIAL, device=device, dtype=dtype)
        assert_same(sigmoid(x), torch.sigmoid(x), rtol=torch.finfo(dtype).eps * 3, atol=0.0)


@pytest.mark.heavy
@pytest.mark.parametrize("device", DEVICES)
def test_float32_is_accurate_everywhere(device: str) -> None:
    worst = 0.0
    for x in every_float32(device, step=1025 if device == "cpu" else 1):
        if len(x):
            worst = max(worst, ulps(sigmoid(x), sigmoid_reference(x.double())))
    print(f"sigmoid, float32, {device}: {worst:.2f} ulp")
    assert worst < MOST_ULPS[device]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_16_bit_number_is_rounded_once(device: str, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.isfinite()].to(device)
    assert ulps(sigmoid(x), sigmoid_reference(x.double())) < 0.51


@pytest.mark.parametrize("device", DEVICES)
def test_small_results_keep_their_accuracy_where_torch_gives_zero(device: str) -> None:
    x = torch.tensor([-90.0, -100.0, -103.0], device=device)
    assert_same(sigmoid(x), torch.exp(x.double()).float(), rtol=0.0, atol=2e-45)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_the_gradient_matches_torch(device: str, dtype: torch.dtype) -> None:
    x, grad = (
        sample(999, device=device, dtype=dtype).requires_grad_(),
        sample(999, device=device, dtype=dtype),
    )
    (mine,) = torch.autograd.grad(sigmoid(x), x, grad)
    (torchs,) = torch.autograd.grad(torch.sigmoid(x), x, grad)
    # An ulp of the result, near 1, is the whole of 1 - result; the gradient multiplies it.
    eps = torch.finfo(dtype).eps
    assert_same(mine, torchs, rtol=8 * eps, atol=8 * eps * max(1.0, float(grad.abs().max())))


def test_the_derivative_at_zero_is_a_quarter_in_transforms_too() -> None:
    zero = torch.zeros(1)
    for function in (sigmoid, sigmoid_reference):
        assert torch.func.grad(lambda x, function=function: function(x).sum())(zero).tolist() == [0.25]


def test_what_is_no_floating_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="expected x to be a tensor, got list"):
        sigmoid([1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected x of float16, .*, got int64"):
        sigmoid(torch.arange(3))


def test_a_direct_call_of_the_operator_is_refused_too() -> None:
    with pytest.raises(RuntimeError, match="expected a floating type, got Long"):
        operators().sigmoid_forward(torch.arange(3))
    with pytest.raises(RuntimeError, match="expected tensors of one shape"):
        operators().sigmoid_backward(torch.ones(3), torch.ones(4))


@pytest.mark.parametrize("device", DEVICES)
def test_torch_accepts_the_operators(device: str) -> None:
    x = sample(3, 4, device=device)
    sigmoid(x)
    ops = operators()
    contract.check_opcheck(ops.sigmoid.default, (x,), (x.clone().requires_grad_(),), (x.t(),), (x[:, 1:],))
    contract.check_opcheck(ops.sigmoid_forward.default, (x,), (x[:, ::2],))
    arguments = x.clone().requires_grad_(), torch.sigmoid(x).requires_grad_()
    contract.check_opcheck(ops.sigmoid_backward.default, arguments)


@pytest.mark.heavy
@cuda
def test_more_than_2_to_the_31_elements() -> None:
    contract.skip_unless_free(14 * 2**30)
    x = torch.zeros(2**31 + 4099, device="cuda", dtype=torch.float16)
    x[-5000:] = sample(5000, device="cuda", dtype=torch.float16)
    y = sigmoid(x)
    assert_same(y[-5000:], sigmoid(x[-5000:].clone()))
    assert bool((y[: 2**31 - 901] == 0.5).all())
