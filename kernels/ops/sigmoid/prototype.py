"""Sigmoid and its derivative in Numba: the kernels of ``op.cu`` before they were CUDA.

Without a GPU, Numba's simulator runs them as Python: set ``NUMBA_ENABLE_CUDASIM=1`` before the import.
``python -m kernels check sigmoid`` does so, and compares them with PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

# Any grid computes the same. The simulator starts a Python thread for each thread of a block, so it is small.
_BLOCKS, _THREADS = 2, 32


@cuda.jit
def sigmoid_kernel(x: NDArray[Any], y: NDArray[Any]) -> None:
    """A thread owns the elements i, i + threads, ... of the flat arrays: any grid covers any size."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        # exp is only ever taken of -|x|, so it cannot overflow: e lies in [0, 1].
        e = math.exp(-abs(x[i]))
        y[i] = 1.0 / (1.0 + e) if x[i] >= 0.0 else e / (1.0 + e)


@cuda.jit
def sigmoid_backward_kernel(grad: NDArray[Any], y: NDArray[Any], grad_x: NDArray[Any]) -> None:
    """The derivative needs the output alone: dy/dx = y (1 - y)."""
    for i in range(cuda.grid(1), y.size, cuda.gridsize(1)):
        grad_x[i] = grad[i] * (1.0 - y[i]) * y[i]


def forward(x: NDArray[Any]) -> NDArray[Any]:
    """Returns 1 / (1 + exp(-x)).

    Args:
        x: any shape, float32 or float64.
    """
    x_device = cuda.to_device(x.ravel())
    y_device = cuda.device_array_like(x_device)
    sigmoid_kernel[_BLOCKS, _THREADS](x_device, y_device)
    return np.asarray(y_device.copy_to_host()).reshape(x.shape)


def backward(grad: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """Returns the gradient with respect to x.

    Args:
        grad: the gradient with respect to the output; shape and dtype of x.
        x: as in ``forward``.
    """
    grad_device, y_device = cuda.to_device(grad.ravel()), cuda.to_device(forward(x).ravel())
    grad_x_device = cuda.device_array_like(y_device)
    sigmoid_backward_kernel[_BLOCKS, _THREADS](grad_device, y_device, grad_x_device)
    return np.asarray(grad_x_device.copy_to_host()).reshape(x.shape)
