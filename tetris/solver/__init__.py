"""Perfect play on small boards, by value iteration over all of them."""

from tetris.solver.solution import Solution
from tetris.solver.value_iteration import MOST_CELLS, Sweep, solve

__all__ = ["MOST_CELLS", "Solution", "Sweep", "solve"]
