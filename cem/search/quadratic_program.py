"""Quadratic programs: the step of a descent with constraints.

The program minimises g p + p B p / 2 over the steps p, where c + J p <= 0, or = 0 for an
equality: J. Nocedal and S. Wright, Numerical Optimization, equation (18.11). Its dual is a
quadratic program whose only constraints are bounds of the multipliers l:

    minimise |W l + r|^2 / 2 - c l,   l >= 0 for an inequality,    with B = L L^T,
    W = L^-1 J^T,   r = L^-1 g,   and then p = -L^-T (W l + r)

If the multipliers are also bounded from above, there is a solution even if no step satisfies
all constraints: it trades the violations against each other.
"""

from typing import Any

import numpy as np

_MAX_MULTIPLIER = 1e6  # the largest multiplier, relative to a typical one
# A multiplier changes only if the derivative by it exceeds this share of a typical one. Added
# to the diagonal, the same number makes the solution unique if constraints are equal.
_PRECISION = 1e-13


def solve_program(
    curvature: Any, derivatives: Any, values: Any, is_equality: Any
) -> tuple[Any, Any]:
    """Return the step of least value, shape (d,), and the multipliers, shape (m,).

    Args:
        curvature: B, positive definite, shape (d, d).
        derivatives: g in the first row, and J in the others, shape (1 + m, d).
        values: c, shape (m,).
        is_equality: Which constraints are equalities, shape (m,).

    Raises:
        LinAlgError: If the curvature is not positive definite.
    """
    factor = np.linalg.cholesky(curvature)
    right, *rows = np.linalg.solve(factor, derivatives.T).T
    # Each constraint is divided by its length. One whose derivative is 0 has no influence.
    lengths = np.linalg.norm(rows, axis=1)
    lengths[lengths == 0] = np.inf
    columns = np.transpose(rows) / lengths
    goals = values / lengths
    limit = _MAX_MULTIPLIER * (np.linalg.norm(right) + np.abs(goals).max())
    low = np.where(is_equality, -limit, 0.0)
    hessian = columns.T @ columns + _PRECISION * np.eye(len(goals))
    scaled = _minimize_in_box(hessian, goals - columns.T @ right, low, limit)
    step = -np.linalg.solve(factor.T, right + columns @ scaled)
    return step, scaled / lengths


def _minimize_in_box(hessian: Any, slopes: Any, low: Any, high: float) -> Any:
    """Return the x with low <= x <= high that minimises x H x / 2 - slopes x, shape (m,).

    The method is an active set, which the variables enter one by one: C. Lawson and R. Hanson,
    Solving Least Squares Problems, chapter 23.
    """
    x = np.zeros(len(slopes))
    is_free = low < 0
    precision = _PRECISION * high / _MAX_MULTIPLIER
    for _ in range(5 * len(x)):
        _minimize_free(hessian, slopes, low, high, x, is_free)
        slope = slopes - hessian @ x
        # A variable at its upper bound can only decrease.
        gain = np.where(x >= high, -slope, slope)
        gain[is_free] = -np.inf
        best = np.argmax(gain)
        if gain[best] <= precision:
            break
        is_free[best] = True
    return x


def _minimize_free(
    hessian: Any, slopes: Any, low: Any, high: float, x: Any, is_free: Any
) -> None:
    """Minimise over the free variables; one that meets a bound is no longer free."""
    while is_free.any():
        free = np.flatnonzero(is_free)
        others = slopes[free] - hessian[np.ix_(free, ~is_free)] @ x[~is_free]
        change = np.linalg.solve(hessian[np.ix_(free, free)], others) - x[free]
        # How far each variable can go until it meets a bound, relative to its change.
        end = np.where(change > 0, high, low[free])
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(change == 0, np.inf, (end - x[free]) / change)
        share = min(1.0, room.min())
        x[free] += share * change
        if share == 1.0:
            return
        is_at_end = room == share
        x[free[is_at_end]] = end[is_at_end]
        is_free[free[is_at_end]] = False
