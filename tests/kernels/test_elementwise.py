"""sigmoid, vector_add and elementwise_mult: any size, type and memory, gradients, how accurate
sigmoid is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels import elementwise_mult, sigmoid, sigmoid_reference, vector_add
from kernels.ops.elementwise import op

TORCHS = {"sigmoid": torch.sigmoid, "vector_add": torch.add, "elementwise_mult": torch.mul}
OPERATORS: dict[
    str, tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., Tensor], int]
] = {
    name: (
        getattr(op, name),
        reference,
        TORCHS[name],
        len(inspect.signature(reference).parameters),
    )
    for name, reference in op.REFERENCES.items()
}
"""The function, its reference, torch's, and how many tensors it takes."""

EXACT = {"vector_add", "elementwise_mult"}
"""Operators of integers, too: equal to torch's bit for bit."""

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (*FLOATING, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# About the vector's width, beyond a block, and beyond what threads take at once.
SHAPES = [(), (0,), (3, 0, 2), (1,), (15,), (17,), (2049,), (40_001,)]
SPECIAL = [
    float("nan"),
    float("inf"),
    -float("inf"),
    0.0,
    -0.0,
    1e-40,
    20.0,
    -20.0,
    1e30,
    -1e30,
]
MOST_ULPS = {"cpu": 2.5, "cuda": 3.0}
"""float32 against float64 over all finite values, in units in the last place; measured: 2.33 on
a CPU."""
each_operator = pytest.mark.parametrize("name", OPERATORS)


def inputs(
    name: str, *shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Returns tensors for an operator; those of integers use all of the type's range."""
    generator = torch.Generator().manual_seed(5)

    def draw() -> Tensor:
        if dtype.is_floating_point:
            return (6 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(
                device, dtype
            )
        return torch.randint(-(2**63), 2**63 - 1, shape, generator=generator).to(device, dtype)

    return [draw() for _ in range(OPERATORS[name][3])]


@each_operator
@pytest.mark.parametrize("device", DEVICES)
def test_every_size_and_type_matches_torch(device: str, name: str) -> None:
    f, reference, torchs, _ = OPERATORS[name]
    types = NUMBERS if name in EXACT else FLOATING
    cases = [
        (shape, dtype)
        for shape in SHAPES
        for dtype in (torch.float32, torch.int8)
        if dtype in types
    ]
    for shape, dtype in [*cases, *(((3001,), dtype) for dtype in types)]:
        values = inputs(name, *shape, device=device, dtype=dtype)
        exact = {} if name in EXACT else {"rtol": 3 * torch.finfo(dtype).eps, "atol": 0.0}
        for ours in (f, reference):
            assert_same(ours(*values), torchs(*values), **exact)


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


@pytest.mark.heavy
@cuda
def test_more_than_2_to_the_31_elements() -> None:
    contract.skip_unless_free(14 * 2**30)
    a = torch.randint(-128, 128, (2**31 + 4099,), device="cuda", dtype=torch.int8)
    b = a.roll(1)
    assert torch.equal(vector_add(a, b), torch.add(a, b))
    assert torch.equal(elementwise_mult(a[1:], b[1:]), torch.mul(a[1:], b[1:]))  # not aligned


# sigmoid alone


def ulps(actual: Tensor, exact: Tensor) -> float:
    """Returns the largest error in units in the last place of the exact value's neighbour in
    the type."""
    size = exact.to(actual.dtype).abs()
    unit = torch.nextafter(size, torch.full_like(size, float("inf"))).double() - size.double()
    return float(((actual.double() - exact).abs() / unit).max())


def every_float32(device: str, step: int) -> Iterator[Tensor]:
    """Yields the finite float32 numbers, every ``step``-th of them, some millions at a time."""
    for begin in range(-(2**31), 2**31, step * 2**24):
        bits = torch.arange(
            begin, min(begin + step * 2**24, 2**31), step, dtype=torch.int64, device=device
        )
        x = bits.to(torch.int32).view(torch.float32)
        yield x[x.isfinite()]


@pytest.mark.parametrize("device", DEVICES)
def test_sigmoid_of_nan_infinities_and_zeros_is_that_of_torch(device: str) -> None:
    for dtype in FLOATING:
        x = torch.tensor(SPECIAL, device=device, dtype=dtype)
        assert_same(sigmoid(x), torch.sigmoid(x), rtol=torch.finfo(dtype).eps * 3, atol=0.0)


@pytest.mark.heavy
@pytest.mark.parametrize("device", DEVICES)
def test_sigmoid_in_float32_is_accurate_everywhere(device: str) -> None:
    worst = 0.0
    for x in every_float32(device, step=1025 if device == "cpu" else 1):
        if len(x):
            worst = max(worst, ulps(sigmoid(x), sigmoid_reference(x.double())))
    print(f"sigmoid, float32, {device}: {worst:.2f} ulp")
    assert worst < MOST_ULPS[device]


@pytest.mark.parametrize("device", DEVICES)
def test_sigmoid_of_every_16_bit_number_is_rounded_once(device: str) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
        x = x[x.isfinite()].to(device)
        assert ulps(sigmoid(x), sigmoid_reference(x.double())) < 0.51
