"""Distributions of discrete parameters. Start with `family.py`."""

from cem.families.categorical import Bernoulli, Categorical
from cem.families.family import Family, move_table, uniforms
from cem.families.permutation import Permutation

__all__ = ["Bernoulli", "Categorical", "Family", "Permutation", "move_table", "uniforms"]
