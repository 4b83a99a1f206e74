"""Categorical variables and permutations, the same bits on every processor.

`op.py` draws them, `tables.py` moves their probabilities.
"""

from kernels.ops.discrete.op import sample_categorical, sample_permutation
from kernels.ops.discrete.reference import sample_categorical_reference, sample_permutation_reference
from kernels.ops.discrete.tables import update_tables, update_tables_reference

__all__ = [
    "sample_categorical",
    "sample_categorical_reference",
    "sample_permutation",
    "sample_permutation_reference",
    "update_tables",
    "update_tables_reference",
]
