"""What sigmoid, vector_add and elementwise_mult share: any size and memory, gradients, the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels.ops.elementwise import elementwise_mult, sigmoid, vector_add

OPERATORS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], int]] = {
    "sigmoid": (sigmoid, torch.sigmoid, 1),
    "vector_add": (vector_add, torch.add, 2),
    "elementwise_mult": (elementwise_mult, torch.mul, 2),
}
"""The function, torch's, and how many tensors it takes."""

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int16, torch.int64]
each_operator = pytest.mark.parametrize("name", OPERATORS)


def inputs(name: str, *shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Returns tensors for an operator; those of integers use all of the type's range."""
    generator = torch.Generator().manual_seed(5)

    def draw() -> Tensor:
        if dtype.is_floating_point:
            return (6 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)
        return torch.randint(-(2**63), 2**63 - 1, shape, generator=generator).to(device, dtype)

    return [draw() for _ in range(OPERATORS[name][2])]


def tolerances(name: str, rtol: float = 4e-7, atol: float = 0.0) -> dict[str, float]:
    """sigmoid is as accurate as torch's; the others are equal bit for bit."""
    return {"rtol": rtol, "atol": atol} if name == "sigmoid" else {}


@each_operator
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "shape",
    [(), (0,), (3, 0, 2), *((size,) for size in (1, 3, 4, 7, 15, 16, 17, 2047, 2049, 40_001))],
    ids=str,
)
def test_any_number_of_elements(device: str, shape: tuple[int, ...], name: str) -> None:
    f, torchs, _ = OPERATORS[name]
    for dtype in (torch.float32,) if name == "sigmoid" else (torch.float32, torch.int8):
        values = inputs(name, *shape, device=device, dtype=dtype)
        assert_same(f(*values), torchs(*values), **tolerances(name))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in OPERATORS for dtype in FLOATING),
        *((name, dtype) for name in OPERATORS if name != "sigmoid" for dtype in INTEGERS),
    ],
    ids=str,
)
def test_any_memory_gives_the_same_and_is_kept(device: str, name: str, dtype: torch.dtype) -> None:
    contract.check_noncontiguous(OPERATORS[name][0], *inputs(name, 2, 3, 5, 7, device=device, dtype=dtype))


@each_operator
def test_a_layout_without_gaps_is_kept(name: str) -> None:
    f, torchs, _ = OPERATORS[name]
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
    for x in values:
        x.requires_grad_()
    assert torch.autograd.gradcheck(OPERATORS[name][0], values)
    assert torch.autograd.gradgradcheck(OPERATORS[name][0], values)


@each_operator
def test_without_gradients_nothing_is_recorded(name: str) -> None:
    f, values = OPERATORS[name][0], inputs(name, 3)
    assert not f(*values).requires_grad
    values[0].requires_grad_()
    assert f(*values).requires_grad
    with torch.no_grad():
        assert not f(*values).requires_grad


@pytest.mark.parametrize("name", ["vector_add", "elementwise_mult"])
def test_arguments_that_differ_are_refused(name: str) -> None:
    f: Any = OPERATORS[name][0]
    a = torch.ones(3)
    f(a, a)  # registers the operators
    with pytest.raises(TypeError, match="expected a tensor, got float"):
        f(a, 1.0)
    with pytest.raises(TypeError, match=r"expected a tensor of float16, .*, got complex64"):
        f(a.to(torch.complex64), a)
    with pytest.raises(TypeError, match=r"expected a tensor of float16, .*, got bool"):
        f(a > 0, a > 0)
    with pytest.raises(TypeError, match=r"of one dtype, got torch\.float32 and torch\.float64"):
        f(a, a.double())
    with pytest.raises(ValueError, match=r"expected tensors of one shape, got \(3,\) and \(1, 3\)"):
        f(a, a[None])
    with pytest.raises(ValueError, match="expected tensors on one device, got cpu and meta"):
        f(a, a.to("meta"))
    for b, message in ((a[:2], "of one shape"), (a.double(), "of one dtype")):
        with pytest.raises(RuntimeError, match=f"{name}: expected tensors {message}"):
            getattr(torch.ops.cem_tetris, f"{name}_forward")(a, b)


@cuda
@pytest.mark.parametrize("name", ["vector_add", "elementwise_mult"])
def test_tensors_on_two_devices_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected tensors on one device, got cuda:0 and cpu"):
        OPERATORS[name][0](torch.ones(3, device="cuda:0"), torch.ones(3))


@each_operator
@pytest.mark.parametrize("device", DEVICES)
def test_it_compiles_with_its_gradient(device: str, name: str) -> None:
    values = [x.requires_grad_() for x in inputs(name, 33, device=device)]
    contract.check_compiles(OPERATORS[name][0], *values, **tolerances(name, 1e-6, 1e-7))


@cuda
@each_operator
def test_a_cuda_graph_replays_it(name: str) -> None:
    contract.check_graph_replay(OPERATORS[name][0], *inputs(name, 5000, device="cuda"))


@cuda
@each_operator
def test_the_current_stream_orders_it(name: str) -> None:
    contract.check_side_stream(OPERATORS[name][0], *inputs(name, 5000, device="cuda"))


@cuda
@each_operator
def test_it_runs_on_a_device_that_is_not_current(name: str) -> None:
    contract.check_second_device(OPERATORS[name][0], *inputs(name, 5000, device="cuda"))


@pytest.mark.heavy
@cuda
@pytest.mark.parametrize("name", ["vector_add", "elementwise_mult"])
def test_more_than_2_to_the_31_elements(name: str) -> None:
    contract.skip_unless_free(14 * 2**30)
    f, torchs, _ = OPERATORS[name]
    a = torch.randint(-128, 128, (2**31 + 4099,), device="cuda", dtype=torch.int8)
    b = a.roll(1)
    assert torch.equal(f(a, b), torchs(a, b))
    assert torch.equal(f(a[1:], b[1:]), torchs(a[1:], b[1:]))  # not aligned
