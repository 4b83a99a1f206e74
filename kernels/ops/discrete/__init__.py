"""Samples of categorical variables and permutations, the same bits on every processor. Begin with `op.py`."""

from kernels.ops.discrete.op import sample_categorical, sample_permutation
from kernels.ops.discrete.reference import sample_categorical_reference, sample_permutation_reference

__all__ = [
    "sample_categorical",
    "sample_categorical_reference",
    "sample_permutation",
    "sample_permutation_reference",
]
