"""The LLTM cell in Numba; op.py has the formulas.

The matrix products stay products, which a library does best; one kernel does all that follows them.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda

from kernels.ops.elementwise.prototype import sigmoid
from kernels.ops.numba_launch import Array, launch


@cuda.jit
def lltm_kernel(gates: Array, old_cell: Array, new_h: Array, new_cell: Array) -> None:
    """A thread owns the elements i, i + threads, ... of (batch, states), with the three gates of each."""
    states = old_cell.shape[1]
    for i in range(cuda.grid(1), old_cell.size, cuda.gridsize(1)):
        row, column = i // states, i % states
        input_gate = sigmoid(gates[row, column])
        output_gate = sigmoid(gates[row, states + column])
        z = gates[row, 2 * states + column]
        candidate = z if z > 0.0 else math.expm1(z)
        cell = old_cell[row, column] + candidate * input_gate
        new_cell[row, column] = cell
        new_h[row, column] = math.tanh(cell) * output_gate


@cuda.jit
def lltm_backward_kernel(
    grad_h: Array, grad_cell: Array, gates: Array, new_cell: Array, grad_gates: Array, grad_old_cell: Array
) -> None:
    """The same owners. The gates are activated again from their sums, which costs less than keeping them."""
    states = new_cell.shape[1]
    for i in range(cuda.grid(1), new_cell.size, cuda.gridsize(1)):
        row, column = i // states, i % states
        input_gate = sigmoid(gates[row, column])
        output_gate = sigmoid(gates[row, states + column])
        z = gates[row, 2 * states + column]
        candidate, slope = (z, 1.0) if z > 0.0 else (math.expm1(z), math.exp(z))
        squashed = math.tanh(new_cell[row, column])
        d_cell = grad_h[row, column] * output_gate * (1.0 - squashed * squashed) + grad_cell[row, column]
        d_output_gate = grad_h[row, column] * squashed
        grad_gates[row, column] = d_cell * candidate * input_gate * (1.0 - input_gate)
        grad_gates[row, states + column] = d_output_gate * output_gate * (1.0 - output_gate)
        grad_gates[row, 2 * states + column] = d_cell * input_gate * slope
        grad_old_cell[row, column] = d_cell


def forward(x: Array, weights: Array, bias: Array, old_h: Array, old_cell: Array) -> tuple[Array, Array]:
    """Return what ``lltm`` returns."""
    gates = np.concatenate([old_h, x], axis=1) @ weights.T + bias
    new_h, new_cell = launch(lltm_kernel, gates, old_cell, like=[old_cell, old_cell])
    return new_h, new_cell


def backward(
    grad_h: Array, grad_cell: Array, x: Array, weights: Array, bias: Array, old_h: Array, old_cell: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the gradients with respect to input, weights, bias, old_h and old_cell."""
    joined = np.concatenate([old_h, x], axis=1)
    gates = joined @ weights.T + bias
    _, new_cell = forward(x, weights, bias, old_h, old_cell)
    saved = (grad_h, grad_cell, gates, new_cell)
    grad_gates, grad_old_cell = launch(lltm_backward_kernel, *saved, like=[gates, old_cell])
    grad_joined = grad_gates @ weights
    states = old_h.shape[1]
    return (
        grad_joined[:, states:],
        grad_gates.T @ joined,
        grad_gates.sum(axis=0),
        grad_joined[:, :states],
        grad_old_cell,
    )
