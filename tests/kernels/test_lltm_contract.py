"""What every operator promises, for the LLTM cell: torch's tools, layouts, streams, graphs, devices, size."""

from __future__ import annotations

import contract
import pytest
import torch
from test_lltm import cell_inputs

from kernels.ops.lltm import LLTM, lltm, lltm_reference

SMALL = (5, 6, 7)
LARGE = (300, 80, 80)  # left to the BLAS


@pytest.mark.parametrize("device", contract.DEVICES)
def test_opcheck(device):
    inputs = cell_inputs(SMALL, device)
    new_h, new_cell = lltm(*inputs)
    operators = torch.ops.cem_tetris
    gates = operators.lltm_forward(*inputs)[2]
    contract.check_opcheck(operators.lltm.default, inputs, tuple(x.clone().requires_grad_() for x in inputs))
    contract.check_opcheck(operators.lltm_forward.default, inputs)
    x, weights, _, old_h, _ = inputs
    saved = (x, weights, old_h, new_cell, gates)
    contract.check_opcheck(
        operators.lltm_backward.default,
        (new_h, new_cell, *saved, True, True, True),
        (new_h, None, *saved, False, True, False),
        (None, new_cell, *saved, True, False, False),
    )


@pytest.mark.parametrize("device", contract.DEVICES)
def test_compiles_with_gradients(device):
    inputs = [x.requires_grad_() for x in cell_inputs(SMALL, device)]
    contract.check_compiles(lltm, *inputs, rtol=1e-5, atol=1e-6)


def test_the_module_compiles_in_one_graph():
    cell = LLTM(3, 4)
    x, _, _, h, c = cell_inputs((2, 3, 4))
    compiled = torch.compile(cell, fullgraph=True, backend="aot_eager")
    contract.assert_same(compiled(x, (h, c)), cell(x, (h, c)))


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("device", contract.DEVICES)
def test_takes_any_layout(device, size):
    contract.check_noncontiguous(lltm, *cell_inputs(size, device), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("device", contract.DEVICES)
def test_takes_gradients_of_any_layout(device, size):
    inputs = [x.requires_grad_() for x in cell_inputs(size, device)]

    def gradients(grad_h, grad_cell):
        return torch.autograd.grad(lltm(*inputs), inputs, (grad_h, grad_cell))

    _, _, _, *states = cell_inputs(size, device, seed=1)
    contract.check_noncontiguous(gradients, *states, rtol=1e-5, atol=1e-5)


@contract.cuda
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_graphs_streams_and_devices(size):
    contract.check_cuda(lltm, *cell_inputs(size, "cuda"))


@contract.cuda
def test_a_captured_backward_pass_replays():
    inputs = [x.requires_grad_() for x in cell_inputs(SMALL, "cuda")]

    def gradients(*inputs):
        leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in inputs]
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
    old_h, old_cell = (torch.randn(batch, states, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    results = lltm(x, weights, bias, old_h, old_cell)
    for rows in (
        slice(0, 1000),
        slice(2**31 // states - 500, 2**31 // states + 500),
        slice(batch - 1000, batch),
    ):
        inputs_here = [t.double() for t in (x[rows], weights, bias, old_h[rows], old_cell[rows])]
        for actual, expected in zip(results, lltm_reference(*inputs_here), strict=True):
            torch.testing.assert_close(actual[rows].double(), expected, rtol=4e-2, atol=8e-2)
