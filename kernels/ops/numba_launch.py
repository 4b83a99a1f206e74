"""The launch of a Numba kernel on NumPy arrays, which the prototypes share.

Without a GPU, Numba's simulator runs the kernels as Python: set ``NUMBA_ENABLE_CUDASIM=1`` before the import.
``python -m kernels check NAME`` does so, and compares a prototype with PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

Array = NDArray[Any]

# Any grid computes the same. The simulator starts a Python thread for each thread of a block, so it is small.
BLOCKS, THREADS = 2, 32


def launch(kernel: Any, *inputs: Any, like: Sequence[Array]) -> tuple[Array, ...]:
    """Return what a kernel writes into its last arguments.

    Args:
        kernel: a function that ``cuda.jit`` made; any grid has to compute the same.
        inputs: its other arguments, in order: arrays, which it does not change, and numbers.
        like: arrays with the shapes and types of the results.
    """
    arguments = [cuda.to_device(x) if isinstance(x, np.ndarray) else x for x in inputs]
    results = [cuda.device_array(x.shape, x.dtype) for x in like]
    kernel[BLOCKS, THREADS](*arguments, *results)
    return tuple(np.asarray(result.copy_to_host()) for result in results)
