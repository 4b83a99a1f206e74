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

    The step p minimises g p + p B p / 2, where c + J p <= 0, or = 0 for an equality. With
    B = L L^T, W = L^-1 J^T and r = L^-1 g, the multipliers l minimise

        |W l + r|^2 / 2 - c l,    l >= 0 for an inequality,    and then p = -L^-T (W l + r)

    Args:
        curvature: B, positive definite, shape (d, d).
        derivatives: g in the first row, and J in the others, shape (1 + m, d).
        values: c, shape (m,).
        is_equality: Which constraints are equalities, shape (m,).

    Raises:
        LinAlgError: If the curvature is not positive definite.
    """
    # The factor is L. Each constraint has a column of W.
    factor = np.linalg.cholesky(curvature)
    r, *columns_of_w = np.linalg.solve(factor, derivatives.T).T
    # Each constraint is divided by its length. One whose derivative is 0 has no influence.
    lengths = np.linalg.norm(columns_of_w, axis=1)
    lengths[lengths == 0] = np.inf
    w = np.transpose(columns_of_w) / lengths
    c = values / lengths
    # Multipliers have an upper bound, so that there is a solution even if no step satisfies
    # all constraints.
    high = _MAX_MULTIPLIER * (np.linalg.norm(r) + np.abs(c).max())
    low = np.where(is_equality, -high, 0.0)
    hessian = w.T @ w + _PRECISION * np.eye(len(c))
    multipliers = _minimize_in_box(hessian, c - w.T @ r, low, high)
    step = -np.linalg.solve(factor.T, r + w @ multipliers)
    return step, multipliers / lengths


def _minimize_in_box(hessian: Any, slopes: Any, low: Any, high: float) -> Any:
    """Return the x with low <= x <= high that minimises x H x / 2 - slopes x, shape (m,).

    This is an active-set method. Every variable is either free or fixed at one of its bounds.
    Step by step, the fixed variable with the largest gain becomes free, and the value is
    minimised over the free variables: C. Lawson and R. Hanson, Solving Least Squares Problems,
    chapter 23.

    Args:
        hessian: H, positive definite, shape (m, m).
        slopes: The factors of the linear term, shape (m,).
        low: The lower bounds, shape (m,), which are 0 or less.
        high: The upper bound of all variables: ``_MAX_MULTIPLIER`` times a typical multiplier.
    """
    # All variables start at 0. Those whose lower bound is 0 are fixed there.
    x = np.zeros(len(slopes))
    is_free = low < 0
    # This is the share ``_PRECISION`` of a typical multiplier.
    negligible_gain = _PRECISION * high / _MAX_MULTIPLIER
    # The number of iterations is limited, because rounding errors might prevent convergence.
    for _ in range(5 * len(x)):
        # This moves the free variables in ``x``. Those that meet a bound are fixed there: their
        # entries of ``is_free`` become False.
        _minimize_free(hessian, slopes, low, high, x, is_free)
        # The gain of a fixed variable is the decrease of the value per unit by which the
        # variable leaves its bound. From the upper bound it moves in the negative direction.
        negative_gradient = slopes - hessian @ x
        gain = np.where(x >= high, -negative_gradient, negative_gradient)
        gain[is_free] = -np.inf  # Only a fixed variable is chosen.
        best = np.argmax(gain)
        if gain[best] <= negligible_gain:
            break
        is_free[best] = True
    return x


def _minimize_free(
    hessian: Any, slopes: Any, low: Any, high: float, x: Any, is_free: Any
) -> None:
    """Minimise x H x / 2 - slopes x over the free variables, between their bounds.

    This changes ``x`` and ``is_free`` in place. The free variables move towards their common
    minimum. If one of them meets a bound before, it is fixed there, and the others continue.
    The arguments are those of ``_minimize_in_box``.
    """
    while is_free.any():
        free = np.flatnonzero(is_free)
        # At the minimum, H_ff x_f = slopes_f - H_fb x_b. The free variables are f, and those
        # at their bounds are b.
        right_side = slopes[free] - hessian[np.ix_(free, ~is_free)] @ x[~is_free]
        minimum = np.linalg.solve(hessian[np.ix_(free, free)], right_side)
        change = minimum - x[free]
        # The share of its change after which each variable meets its bound.
        bound = np.where(change > 0, high, low[free])
        with np.errstate(divide="ignore", invalid="ignore"):
            share_to_bound = np.where(change == 0, np.inf, (bound - x[free]) / change)
        share = min(1.0, share_to_bound.min())
        x[free] += share * change
        if share == 1.0:  # This is the minimum.
            return
        meets_bound = share_to_bound == share
        x[free[meets_bound]] = bound[meets_bound]
        is_free[free[meets_bound]] = False
