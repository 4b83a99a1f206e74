"""Categorical variables and permutations, the same bits on every processor. Begin with `op.py`."""
