"""The LLTM cell against its formula in plain PyTorch, and what it says about arguments that do not fit."""

from __future__ import annotations

import math

import contract
import pytest
import torch
from torch import Tensor

from kernels.ops.lltm import LLTM, lltm, lltm_reference

# Batch, inputs, states: the tutorial's, sizes that fill no vector and no tile, one number, more than one tile
# of columns and rows, and three that the GPU leaves to the BLAS.
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
    size: tuple[int, int, int], device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[Tensor]:
    """input, weights, bias, old_h, old_cell; drawn on the CPU in float64, so alike on every device."""
    batch, inputs, states = size
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, inputs), (3 * states, states + inputs), (3 * states,), (batch, states), (batch, states)]
    bound = 1 / math.sqrt(max(states, 1))
    scales = [1.0, bound, bound, 1.0, 1.0]
    return [
        (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def results_and_gradients(cell, inputs: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    new_h, new_cell = cell(*leaves)
    weight = torch.linspace(0.5, 1.5, new_h.numel()).view(new_h.shape).to(new_h)
    return [new_h, new_cell, *torch.autograd.grad((new_h * weight).sum() - (new_cell * weight).sum(), leaves)]


@pytest.mark.parametrize(("size", "dtype"), SIZES, ids=str)
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


@pytest.mark.parametrize(("size", "dtype"), [((5, 6, 7), torch.float16), ((256, 128, 256), torch.float32)])
@pytest.mark.parametrize("device", contract.DEVICES)
def test_autocast_does_not_reach_in(device, size, dtype):
    inputs = cell_inputs(size, device, dtype)
    expected = results_and_gradients(lltm, inputs)
    with torch.autocast(device):
        actual = results_and_gradients(lltm, inputs)
        new_h, _ = lltm(*(x.requires_grad_() for x in inputs))
        (gradient,) = torch.autograd.grad(new_h.float().sum(), inputs[0], create_graph=True)
    assert gradient.dtype == dtype
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_shapes_are_known_without_values():
    inputs = [x.to("meta") for x in cell_inputs((5, 6, 7), "cpu")]
    of_input = torch.func.grad(lambda x: lltm(x, *inputs[1:])[0].sum())(inputs[0])
    leaf = inputs[0].clone().requires_grad_()
    (again,) = torch.autograd.grad(lltm(leaf, *inputs[1:])[0].sum(), leaf, create_graph=True)
    assert of_input.shape == again.shape == inputs[0].shape


@pytest.mark.parametrize("device", contract.DEVICES)
def test_the_gradient_of_one_argument_alone_is_the_same(device):
    inputs = cell_inputs((5, 6, 7), device)
    expected = results_and_gradients(lltm_reference, inputs)[2:]
    for wanted in range(5):
        leaves = [x.detach().clone().requires_grad_(i == wanted) for i, x in enumerate(inputs)]
        new_h, new_cell = lltm(*leaves)
        weight = torch.linspace(0.5, 1.5, new_h.numel()).view(new_h.shape).to(new_h)
        loss = (new_h * weight).sum() - (new_cell * weight).sum()
        torch.testing.assert_close(torch.autograd.grad(loss, leaves[wanted])[0], expected[wanted])


@pytest.mark.parametrize("device", contract.DEVICES)
@pytest.mark.parametrize(("size", "used"), [((5, 6, 7), 0), ((300, 80, 80), 1)])
def test_gradients_of_one_result_alone_are_the_reference_s(device, size, used):
    inputs = cell_inputs(size, device, torch.float64)
    gradients = []
    for cell in (lltm, lltm_reference):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        gradients.append(torch.autograd.grad(cell(*leaves)[used].sum(), leaves, materialize_grads=True))
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("device", contract.DEVICES)
def test_gradients_are_those_of_finite_differences(device):
    inputs = [x.requires_grad_() for x in cell_inputs((3, 4, 5), device, torch.float64)]
    assert torch.autograd.gradcheck(lltm, inputs)


@pytest.mark.heavy
@pytest.mark.parametrize("device", contract.DEVICES)
def test_second_derivatives_are_those_of_finite_differences(device):
    inputs = [x.requires_grad_() for x in cell_inputs((2, 2, 3), device, torch.float64)]
    assert torch.autograd.gradgradcheck(lltm, inputs)


@pytest.mark.parametrize("device", contract.DEVICES)
def test_large_numbers_nan_and_infinities_come_out_as_from_torch(device):
    states = 9
    values = torch.tensor([0.0, 1e-20, -1e-20, 100.0, -100.0, 1e30, -1e30, math.inf, -math.inf, math.nan])
    bias = torch.cat([values[:states], values[1:], values[:1].expand(states)])
    bias[2 * states :] = values.flip(0)[:states]
    inputs = [
        torch.zeros(2, 0),
        torch.zeros(3 * states, states),
        bias,
        torch.zeros(2, states),
        torch.ones(2, states),
    ]
    inputs = [x.to(device) for x in inputs]
    torch.testing.assert_close(lltm(*inputs), lltm_reference(*inputs), equal_nan=True)


@pytest.mark.parametrize("device", contract.DEVICES)
@pytest.mark.parametrize("size", [(0, 3, 4), (2, 3, 0)])
def test_empty_results_have_zero_gradients(device, size):
    new_h, new_cell, *gradients = results_and_gradients(lltm, cell_inputs(size, device))
    assert new_h.shape == new_cell.shape == (size[0], size[2])
    for gradient, x in zip(gradients, cell_inputs(size, device), strict=True):
        assert torch.equal(gradient, torch.zeros_like(x))


@pytest.mark.parametrize(
    ("position", "value", "error", "message"),
    [
        (0, torch.zeros(4), ValueError, r"input of shape \(batch, inputs\), got \(4,\)"),
        (0, 1.0, TypeError, "input to be a tensor, got float"),
        (1, torch.zeros(12, 6), ValueError, r"weights of shape \(12, 7\), got \(12, 6\)"),
        (2, torch.zeros(1, 12), ValueError, r"bias of shape \(12,\), got \(1, 12\)"),
        (3, torch.zeros(3, 4), ValueError, r"old_h of shape \(2, states\), got \(3, 4\)"),
        (4, torch.zeros(2, 5), ValueError, r"old_cell of shape \(2, 4\), got \(2, 5\)"),
        (1, torch.zeros(12, 7).double(), TypeError, "weights of float32, got float64"),
        (4, torch.zeros(2, 4, device="meta"), ValueError, "old_cell on cpu, got meta"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(position, value, error, message):
    inputs = cell_inputs((2, 3, 4))
    inputs[position] = value
    with pytest.raises(error, match=message):
        lltm(*inputs)


def direct_calls(device: str):
    """The operators, and arguments that fit."""
    inputs = cell_inputs((2, 3, 4), device)
    new_h, new_cell = lltm(*inputs)
    operators = torch.ops.cem_tetris
    gates = operators.lltm_forward(*inputs)[2]
    x, weights, _, old_h, _ = inputs
    saved = [new_h, new_cell, x, weights, old_h, new_cell, gates]
    return [
        (operators.lltm, inputs, ()),
        (operators.lltm_forward, inputs, ()),
        (operators.lltm_backward, saved, (True, True, True)),
    ]


def check_refused(device: str, changed, message: str):
    for operator, tensors, wanted in direct_calls(device):
        for position, tensor in enumerate(tensors):
            arguments = [*tensors[:position], changed(tensor), *tensors[position + 1 :]]
            with pytest.raises(RuntimeError, match=f"lltm: .* {message}"):
                operator(*arguments, *wanted)


@pytest.mark.parametrize("device", contract.DEVICES)
def test_a_direct_call_with_another_size_is_refused(device):
    check_refused(
        device, lambda tensor: tensor[..., :1], "has another size than the other arguments call for"
    )


@pytest.mark.parametrize("device", contract.DEVICES)
def test_a_direct_call_with_another_type_is_refused(device):
    check_refused(device, lambda tensor: tensor.double(), "has another type than input")


@contract.cuda
def test_a_direct_call_with_another_device_is_refused():
    check_refused("cuda", lambda tensor: tensor.cpu(), "is on another device than input")


@contract.cuda
def test_tensors_of_two_devices_are_refused():
    inputs = cell_inputs((2, 3, 4), "cuda")
    inputs[1] = inputs[1].cpu()
    with pytest.raises(ValueError, match="weights on cuda:0, got cpu"):
        lltm(*inputs)


@pytest.mark.parametrize("device", contract.DEVICES)
def test_the_module_computes_the_function(device):
    cell = LLTM(3, 4, device=device)
    x, _, _, h, c = cell_inputs((2, 3, 4), device)
    contract.assert_same(cell(x, (h, c)), lltm(x, cell.weights, cell.bias, h, c))


def test_a_module_of_no_states_is_refused():
    with pytest.raises(ValueError, match="expected input_features >= 0 and state_size >= 1, got 3 and 0"):
        LLTM(3, 0)
