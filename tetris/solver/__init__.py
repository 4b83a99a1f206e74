"""Perfect play on small boards, by value iteration over all of them."""

from tetris.solver.solution import MOST_CELLS, Solution
from tetris.solver.value_iteration import Sweep, solve

__all__ = ["MOST_CELLS", "Solution", "Sweep", "solve"]
