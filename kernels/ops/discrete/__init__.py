"""Samplers of categorical variables and permutations. Begin with `op.py`."""
