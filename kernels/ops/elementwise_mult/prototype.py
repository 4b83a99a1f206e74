"""The product of two arrays and its derivative in Numba: the kernels of ``op.cu`` before they were CUDA.

Without a GPU, Numba's simulator runs them as Python: set ``NUMBA_ENABLE_CUDASIM=1`` before the import.
``python -m kernels check elementwise_mult`` does so, and compares them with PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

# Any grid computes the same. The simulator starts a Python thread for each thread of a block, so it is small.
_BLOCKS, _THREADS = 2, 32


@cuda.jit
def mult_kernel(a: NDArray[Any], b: NDArray[Any], product: NDArray[Any]) -> None:
    """A thread owns the elements i, i + threads, ... of the flat arrays: any grid covers any size."""
    for i in range(cuda.grid(1), product.size, cuda.gridsize(1)):
        product[i] = a[i] * b[i]


@cuda.jit
def mult_backward_kernel(
    grad: NDArray[Any], a: NDArray[Any], b: NDArray[Any], grad_a: NDArray[Any], grad_b: NDArray[Any]
) -> None:
    """Both gradients in one pass: ``grad`` is read once."""
    for i in range(cuda.grid(1), grad.size, cuda.gridsize(1)):
        grad_a[i] = grad[i] * b[i]
        grad_b[i] = grad[i] * a[i]


def forward(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Returns a * b.

    Args:
        a: any shape, float32 or float64.
        b: the same shape and dtype.
    """
    a_device, b_device = cuda.to_device(a.ravel()), cuda.to_device(b.ravel())
    product_device = cuda.device_array_like(a_device)
    mult_kernel[_BLOCKS, _THREADS](a_device, b_device, product_device)
    return np.asarray(product_device.copy_to_host()).reshape(a.shape)


def backward(grad: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the gradients with respect to a and b.

    Args:
        grad: the gradient with respect to the product; shape and dtype of a.
        a: as in ``forward``.
        b: as in ``forward``.
    """
    inputs = [cuda.to_device(array.ravel()) for array in (grad, a, b)]
    grads = [cuda.device_array_like(inputs[0]) for _ in range(2)]
    mult_backward_kernel[_BLOCKS, _THREADS](*inputs, *grads)
    grad_a, grad_b = (np.asarray(array.copy_to_host()).reshape(a.shape) for array in grads)
    return grad_a, grad_b
