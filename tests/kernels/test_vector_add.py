"""vector_add: every type, every memory, its gradient, and what every operator promises."""

from __future__ import annotations

from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels.vector_add import vector_add, vector_add_reference

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES += [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def pair(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Returns two tensors; those of integers use all of the type's range."""
    generator = torch.Generator().manual_seed(5)

    def draw() -> Tensor:
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)
        bits = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
        return bits.to(device, dtype)

    return draw(), draw()


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


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_right_in_float64(device: str) -> None:
    a, b = pair(4, 5, device=device, dtype=torch.float64)
    assert torch.autograd.gradcheck(vector_add, (a.requires_grad_(), b.requires_grad_()))
    assert torch.autograd.gradgradcheck(vector_add, (a, b))


def test_the_gradient_of_one_argument_alone() -> None:
    a, b = pair(3)
    vector_add(a, b.requires_grad_()).backward(torch.tensor([1.0, 2.0, 3.0]))
    assert a.grad is None
    assert b.grad is not None
    assert b.grad.tolist() == [1.0, 2.0, 3.0]


def test_without_gradients_nothing_is_recorded() -> None:
    a, b = pair(3)
    assert not vector_add(a, b).requires_grad
    with torch.no_grad():
        assert not vector_add(a.requires_grad_(), b).requires_grad


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64], ids=str)
def test_any_memory_gives_the_same_and_is_kept(device: str, dtype: torch.dtype) -> None:
    contract.check_noncontiguous(vector_add, *pair(2, 3, 5, 7, device=device, dtype=dtype))


def test_a_layout_without_gaps_is_kept() -> None:
    a, b = pair(2, 3, 5, 7)
    assert vector_add(a.permute(3, 0, 2, 1), b.permute(3, 0, 2, 1)).stride() == a.permute(3, 0, 2, 1).stride()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float32], ids=str)
@pytest.mark.parametrize("size", [0, 1, 3, 4, 15, 16, 17, 2047, 2049, 40_001])
def test_any_number_of_elements(device: str, dtype: torch.dtype, size: int) -> None:
    a, b = pair(size, device=device, dtype=dtype)
    assert_same(vector_add(a, b), torch.add(a, b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_memory_that_is_not_aligned(device: str, shift: int) -> None:
    a, b = pair(5003, device=device, dtype=torch.float16)
    assert_same(vector_add(a[shift:], b[shift:]), torch.add(a[shift:], b[shift:]))
    assert_same(vector_add(a[shift:], b[:-shift]), torch.add(a[shift:], b[:-shift]))


def test_no_dimensions() -> None:
    assert vector_add(torch.tensor(2.0), torch.tensor(3.0)).item() == 5.0


def test_arguments_that_differ_are_refused() -> None:
    a = torch.ones(3)
    with pytest.raises(TypeError, match="expected a tensor, got float"):
        vector_add(a, 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a tensor of float16, .*, got complex64"):
        vector_add(a.to(torch.complex64), a)
    with pytest.raises(TypeError, match=r"of one dtype, got torch\.float32 and torch\.float64"):
        vector_add(a, a.double())
    with pytest.raises(ValueError, match=r"expected tensors of one shape, got \(3,\) and \(1, 3\)"):
        vector_add(a, a[None])
    with pytest.raises(ValueError, match="expected tensors on one device, got cpu and meta"):
        vector_add(a, a.to("meta"))


@cuda
def test_tensors_on_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="expected tensors on one device, got cuda:0 and cpu"):
        vector_add(torch.ones(3, device="cuda:0"), torch.ones(3))


def test_a_direct_call_of_the_operator_is_refused_too() -> None:
    a = torch.ones(3)
    for b, message in ((a[:2], "of one shape"), (a.double(), "of one dtype")):
        with pytest.raises(RuntimeError, match=f"vector_add: expected tensors {message}"):
            operators().vector_add_forward(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_torch_accepts_the_operators(device: str) -> None:
    a, b = pair(3, 4, device=device)
    vector_add(a, b)
    ops = operators()
    recorded = a.clone().requires_grad_(), b.clone().requires_grad_()
    contract.check_opcheck(ops.vector_add.default, (a, b), recorded, (a.t(), b.t()), (a[:, 1:], b[:, 1:]))
    contract.check_opcheck(ops.vector_add_forward.default, (a, b), (a.int(), b.int()))


@pytest.mark.parametrize("device", DEVICES)
def test_it_compiles_with_its_gradient(device: str) -> None:
    a, b = pair(33, device=device)
    contract.check_compiles(vector_add, a.requires_grad_(), b.requires_grad_())


@cuda
def test_a_cuda_graph_replays_it() -> None:
    contract.check_graph_replay(vector_add, *pair(5000, device="cuda"))


@cuda
def test_the_current_stream_orders_it() -> None:
    contract.check_side_stream(vector_add, *pair(5000, device="cuda"))


@cuda
def test_it_runs_on_a_device_that_is_not_current() -> None:
    contract.check_second_device(vector_add, *pair(5000, device="cuda"))


@pytest.mark.heavy
@cuda
def test_more_than_2_to_the_31_elements() -> None:
    contract.skip_unless_free(14 * 2**30)
    a = torch.randint(-128, 128, (2**31 + 4099,), device="cuda", dtype=torch.int8)
    b = a.roll(1)
    assert torch.equal(vector_add(a, b), torch.add(a, b))
    assert torch.equal(vector_add(a[1:], b[1:]), torch.add(a[1:], b[1:]))  # not aligned
