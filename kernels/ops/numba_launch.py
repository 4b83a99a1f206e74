"""The launch of a prototype in Numba on NumPy arrays; ``check.load_numba`` chooses where it runs."""

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
    """Return what a kernel writes into its last arguments, which are ``like`` these in shape and type."""
    arguments = [cuda.to_device(x) if isinstance(x, np.ndarray) else x for x in inputs]
    results = [cuda.device_array(x.shape, x.dtype) for x in like]
    kernel[BLOCKS, THREADS](*arguments, *results)
    return tuple(np.asarray(result.copy_to_host()) for result in results)
