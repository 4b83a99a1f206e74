"""Perfect play on small boards, by value iteration over all of them.

Begin with `value_iteration.py`.
"""

from tetris.solver.value_iteration import MOST_CELLS, Solution, solve

__all__ = ["MOST_CELLS", "Solution", "solve"]
