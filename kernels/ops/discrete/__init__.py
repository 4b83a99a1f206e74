"""Categorical variables and permutations, the same bits on every processor.

`op.py` draws them, `tables.py` moves their probabilities.
"""
