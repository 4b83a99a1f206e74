"""The LLTM cell against its formula in plain PyTorch, its gradients, and its module."""

from __future__ import annotations

import math
import re

import contract
import pytest
import torch
from torch import Tensor

from kernels import LLTM, lltm, lltm_reference

# Batch, inputs, states: the tutorial's, sizes that fill no vector and no tile, one number, more
# than one tile of columns and rows, and three that the GPU leaves to the BLAS.
SIZES = [
    ((16, 32, 128), torch.float32),
    ((3, 5, 7), torch.float64),
    ((1, 0, 1), torch.float32),
    ((33, 130, 100), torch.float16),
    ((2, 1100, 3), torch.float32),
    ((300, 80, 80), torch.bfloat16),
    ((260, 90, 87), torch.float32),
]
TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float64: {"rtol": 1e-12, "atol": 1e-13},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 4e-2, "atol": 8e-2},
}


def cell_inputs(
    size: tuple[int, int, int],
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> list[Tensor]:
    """input, weights, bias, old_h, old_cell; drawn on the CPU in float64, so alike on every
    device."""
    batch, inputs, states = size
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (batch, inputs),
        (3 * states, states + inputs),
        (3 * states,),
        (batch, states),
        (batch, states),
    ]
    bound = 1 / math.sqrt(max(states, 1))
    scales = [1.0, bound, bound, 1.0, 1.0]
    return [
        (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def results_and_gradients(cell, inputs: list[Tensor]) -> list[Tensor]:
    return contract.results_and_gradients(cell, [x.detach().requires_grad_() for x in inputs])


@pytest.mark.parametrize(
    ("size", "dtype"), SIZES, ids=lambda x: re.sub(r"[(, )]+", "x", str(x)).strip("x")
)
@pytest.mark.parametrize("device", contract.DEVICES)
def test_results_and_gradients_match_the_reference_in_float64(device, size, dtype):
    inputs = cell_inputs(size, device, dtype)
    actual = results_and_gradients(lltm, inputs)
    exact = results_and_gradients(lltm_reference, [x.double() for x in inputs])
    for ours, expected in zip(actual, exact, strict=True):
        ours, expected = ours.detach(), expected.detach()
        assert ours.dtype == dtype
        scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
        torch.testing.assert_close(ours.double() / scale, expected / scale, **TOLERANCES[dtype])


@pytest.mark.parametrize("device", contract.DEVICES)
def test_autocast_does_not_reach_in(device):
    for size, dtype in (((5, 6, 7), torch.float16), ((256, 128, 256), torch.float32)):
        inputs = cell_inputs(size, device, dtype)
        expected = results_and_gradients(lltm, inputs)
        with torch.autocast(device):
            actual = results_and_gradients(lltm, inputs)
            new_h, _ = lltm(*(x.requires_grad_() for x in inputs))
            (gradient,) = torch.autograd.grad(new_h.float().sum(), inputs[0], create_graph=True)
        assert gradient.dtype == dtype
        contract.assert_same(actual, expected)


@pytest.mark.parametrize("device", contract.DEVICES)
def test_the_gradient_of_one_argument_alone_is_the_same(device):
    inputs = cell_inputs((5, 6, 7), device)
    expected = results_and_gradients(lltm_reference, inputs)[2:]
    for wanted in range(5):
        leaves = [x.requires_grad_(i == wanted) for i, x in enumerate(inputs)]
        *_, gradient = contract.results_and_gradients(lltm, leaves)
        torch.testing.assert_close(gradient, expected[wanted])


@pytest.mark.parametrize("device", contract.DEVICES)
def test_gradients_of_one_result_alone_are_the_reference_s(device):
    for size, used in (((5, 6, 7), 0), ((300, 80, 80), 1)):
        leaves = [x.requires_grad_() for x in cell_inputs(size, device, torch.float64)]
        ours, theirs = (
            torch.autograd.grad(cell(*leaves)[used].sum(), leaves, materialize_grads=True)
            for cell in (lltm, lltm_reference)
        )
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("device", contract.DEVICES)
def test_gradients_are_those_of_finite_differences(device):
    inputs = [x.requires_grad_() for x in cell_inputs((3, 4, 5), device, torch.float64)]
    assert torch.autograd.gradcheck(lltm, inputs)
    first, recorded = (
        torch.autograd.grad([x.sum() for x in lltm(*inputs)], inputs, create_graph=create)
        for create in (False, True)
    )
    torch.testing.assert_close(recorded, first)  # another formula, which can be differentiated


@pytest.mark.heavy
@pytest.mark.parametrize("device", contract.DEVICES)
def test_second_derivatives_are_those_of_finite_differences(device):
    inputs = [x.requires_grad_() for x in cell_inputs((2, 2, 3), device, torch.float64)]
    assert torch.autograd.gradgradcheck(lltm, inputs)


@pytest.mark.parametrize("device", contract.DEVICES)
def test_large_numbers_nan_and_infinities_come_out_as_from_torch(device):
    states = 9
    values = torch.tensor(
        [0.0, 1e-20, -1e-20, 100.0, -100.0, 1e30, -1e30, math.inf, -math.inf, math.nan]
    )
    bias = torch.cat([values[:states], values[1:], values[:1].expand(states)])
    bias[2 * states :] = values.flip(0)[:states]
    nothing = torch.zeros(2, 0), torch.zeros(3 * states, states)
    inputs = [
        x.to(device) for x in (*nothing, bias, torch.zeros(2, states), torch.ones(2, states))
    ]
    torch.testing.assert_close(lltm(*inputs), lltm_reference(*inputs), equal_nan=True)


@pytest.mark.parametrize("device", contract.DEVICES)
def test_empty_results_have_zero_gradients(device):
    for batch, states in ((0, 4), (2, 0)):
        inputs = cell_inputs((batch, 3, states), device)
        new_h, new_cell, *gradients = results_and_gradients(lltm, inputs)
        assert new_h.shape == new_cell.shape == (batch, states)
        contract.assert_same(gradients, [torch.zeros_like(x) for x in inputs])


@pytest.mark.parametrize("device", contract.DEVICES)
def test_the_module_computes_the_function(device):
    cell = LLTM(3, 4, device=device)
    x, _, _, h, c = cell_inputs((2, 3, 4), device)
    contract.assert_same(cell(x, (h, c)), lltm(x, cell.weights, cell.bias, h, c))


@pytest.mark.parametrize("device", contract.DEVICES)
def test_takes_gradients_of_any_layout(device):
    for size in ((5, 6, 7), (300, 80, 80)):
        inputs = [x.requires_grad_() for x in cell_inputs(size, device)]
        _, _, _, *gradients = cell_inputs(size, device, seed=1)
        contract.check_noncontiguous(
            lambda *given, inputs=inputs: torch.autograd.grad(lltm(*inputs), inputs, given),
            *gradients,
            rtol=1e-5,
            atol=1e-5,
        )


@contract.cuda
def test_a_captured_backward_pass_replays():
    inputs = cell_inputs((5, 6, 7), "cuda")

    def gradients(*inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]  # of the stream that captures
        return torch.autograd.grad([x.sum() for x in lltm(*leaves)], leaves)

    contract.check_graph_replay(gradients, *inputs)


@contract.cuda
def test_float32_products_of_a_small_cell_are_never_tf32():
    inputs = cell_inputs((16, 32, 128), "cuda")
    expected = lltm(*inputs)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        contract.assert_same(lltm(*inputs), expected)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.heavy
@contract.cuda
def test_results_of_more_than_two_to_the_31_elements():
    batch, inputs, states = 2**27 + 3, 1, 17
    contract.skip_unless_free(8 * batch * (inputs + 8 * states))
    _, weights, bias, _, _ = cell_inputs((1, inputs, states), "cuda", torch.bfloat16)
    torch.manual_seed(0)
    x = torch.randn(batch, inputs, device="cuda", dtype=torch.bfloat16)
    old_h, old_cell = (
        torch.randn(batch, states, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    results = lltm(x, weights, bias, old_h, old_cell)
    for rows in (
        slice(0, 1000),
        slice(2**31 // states - 500, 2**31 // states + 500),
        slice(batch - 1000, batch),
    ):
        inputs_here = [
            t.double() for t in (x[rows], weights, bias, old_h[rows], old_cell[rows])
        ]
        for actual, expected in zip(results, lltm_reference(*inputs_here), strict=True):
            torch.testing.assert_close(actual[rows].double(), expected, rtol=4e-2, atol=8e-2)


def test_parameters_are_drawn_within_the_root_of_the_state_size():
    cell = LLTM(5, 64)
    for parameter in cell.parameters():
        assert 0.1 < float(parameter.detach().abs().max()) <= 0.125


@pytest.mark.parametrize("device", contract.DEVICES)
def test_under_autocast_an_input_of_16_bits_is_as_one_of_32(device):
    inputs = [x.requires_grad_() for x in cell_inputs((5, 6, 7), device)]
    with torch.autocast(device, torch.bfloat16):
        narrow = torch.nn.functional.linear(inputs[0], torch.eye(6, device=device))
        new_h, _ = lltm(narrow, *inputs[1:])
    assert (narrow.dtype, new_h.dtype) == (torch.bfloat16, torch.float32)
    expected, _ = lltm(narrow.float(), *inputs[1:])
    gradients = (
        torch.autograd.grad(h.sum(), inputs, retain_graph=True) for h in (new_h, expected)
    )
    contract.assert_same((new_h, *next(gradients)), (expected, *next(gradients)))
