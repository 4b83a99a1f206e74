"""A generation of CMA-ES with a full covariance and evolution paths. Begin with `op.py`."""

from kernels.ops.cma_update.op import (
    MAX_DIMENSIONS,
    MAX_POPULATION,
    cma_update,
    draw_correlated,
)
from kernels.ops.cma_update.reference import cma_update_reference

__all__ = [
    "MAX_DIMENSIONS",
    "MAX_POPULATION",
    "cma_update",
    "cma_update_reference",
    "draw_correlated",
]
