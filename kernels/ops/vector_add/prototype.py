"""The sum of two arrays in Numba: the kernel of ``op.cu`` before it was CUDA.

Without a GPU, Numba's simulator runs it as Python: set ``NUMBA_ENABLE_CUDASIM=1`` before the import.
``python -m kernels check vector_add`` does so, and compares it with PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

# Any grid computes the same. The simulator starts a Python thread for each thread of a block, so it is small.
_BLOCKS, _THREADS = 2, 32


@cuda.jit
def add_kernel(a: NDArray[Any], b: NDArray[Any], total: NDArray[Any]) -> None:
    """A thread owns the elements i, i + threads, ... of the flat arrays: any grid covers any size."""
    for i in range(cuda.grid(1), total.size, cuda.gridsize(1)):
        total[i] = a[i] + b[i]


def forward(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Returns a + b.

    Args:
        a: any shape, float32 or float64.
        b: the same shape and dtype.
    """
    a_device, b_device = cuda.to_device(a.ravel()), cuda.to_device(b.ravel())
    total_device = cuda.device_array_like(a_device)
    add_kernel[_BLOCKS, _THREADS](a_device, b_device, total_device)
    return np.asarray(total_device.copy_to_host()).reshape(a.shape)


def backward(grad: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the gradients with respect to a and b: a sum passes on what it gets, without a kernel."""
    return grad, grad
