"""The merit function of a descent with constraints, and the quadratic programs of its steps.

A constraint has values g, which should be at most 0, or 0 for an equality. The step p minimises

    f' p + p B p / 2    subject to    g + g' p + margin <= 0    (g + g' p = 0 for an equality)

with the derivatives f' and g', and the curvature B of the Lagrangian f + sum of l g. The
multipliers l of this program determine the penalties of the merit function, which every step
decreases:

    f + sum of penalty * max(g + margin, 0)    (|g| for an equality)

The method is sequential quadratic programming: J. Nocedal and S. Wright, Numerical
Optimization, chapter 18. The penalties are those of M. Powell, A Fast Algorithm for Nonlinearly
Constrained Optimization Calculations, 1978. The margin is proportional to the last error of a
linearised constraint. Without it, half of the points would be infeasible.
"""

from typing import Any

import numpy as np

from cem.search.quadratic_program import solve_program

_MARGIN = 0.1  # the margin, relative to the last error of a linearised constraint
_EQUAL = 1e-8  # a hundredth of the violation that ``minimize`` tolerates by default


class Merit:
    """The merit of points; a smaller one is better.

    An outcome is the value of a point, followed by its m constraints, shape (1 + m,). The
    derivatives of an outcome have the shape (1 + m, d). Without constraints, the merit is the
    value.

    Attributes:
        multipliers: The multipliers of the last quadratic program, shape (m,).
    """

    def __init__(self, is_equality: Any) -> None:
        """Start without penalties and margins.

        Args:
            is_equality: Which constraints are equalities, shape (m,).
        """
        self.multipliers = np.zeros(len(is_equality))
        self._penalties = self._margins = self.multipliers
        self._is_equality = is_equality

    def __call__(self, outcome: Any) -> float:
        """Return the merit of an outcome."""
        return float(outcome[0] + self._penalties @ self._violations(outcome))

    def slope(self, outcome: Any, derivatives: Any, step: Any) -> float:
        """Return the predicted change of the merit by a step, shape (d,)."""
        predicted = self._violations(outcome + derivatives @ step)
        change = self._penalties @ (predicted - self._violations(outcome))
        return float(step @ derivatives[0] + change)

    def solve(
        self, curvature: Any, outcome: Any, derivatives: Any, bounds: Any, rows_of_bounds: Any
    ) -> tuple[Any, Any]:
        """Return the step of the quadratic program, shape (d,), and its multipliers, (m,).

        Args:
            curvature: B, positive definite, shape (d, d).
            outcome: The outcome at the start of the step, shape (1 + m,).
            derivatives: Its derivatives, shape (1 + m, d).
            bounds: The values of b linear functions of the step that should be at most 0, shape
                (b,). They have no margins.
            rows_of_bounds: The derivatives of these functions, shape (b, d).

        Raises:
            LinAlgError: If the curvature is not positive definite.
        """
        g = np.append(self._shifted(outcome), bounds)
        is_equality = np.append(self._is_equality, np.zeros(len(bounds), dtype=bool))
        rows = np.vstack([derivatives, rows_of_bounds])
        step, multipliers = solve_program(curvature, rows, g, is_equality)
        return step, multipliers[: len(self._is_equality)]

    def adapt_penalties(self, multipliers: Any) -> None:
        """Store the multipliers of a step, and choose penalties that are at least as large."""
        self.multipliers = multipliers
        sizes = np.abs(multipliers)
        self._penalties = np.maximum(sizes, (self._penalties + sizes) / 2)

    def adapt_margins(self, change: Any, derivatives: Any, step: Any) -> None:
        """Choose the margins by the errors of the last step.

        Args:
            change: The change of the outcome by the step, shape (1 + m,).
            derivatives: The derivatives at the start of the step.
            step: The step, shape (d,).
        """
        errors = np.abs(change - derivatives @ step)
        self._margins = _MARGIN * errors[1:]

    def widen_margins(self, outcome: Any) -> None:
        """Make the margins twice as wide as before, and as the violations of an outcome."""
        self._margins = 2 * np.maximum(self._margins, outcome[1:])

    def is_feasible(self, outcome: Any) -> bool:
        """Return whether an outcome satisfies all constraints, equalities up to 1e-8."""
        g = outcome[1:]
        return bool(np.where(self._is_equality, np.abs(g) <= _EQUAL, g <= 0).all())

    def _shifted(self, outcome: Any) -> Any:
        """Return the constraints, shape (m,), with the margins of inequalities."""
        g = outcome[1:]
        # Between two inequalities that are an equality, margins would leave no room.
        is_opposed = np.isin(g, -g) & (g != 0)
        return g + np.where(self._is_equality | is_opposed, 0.0, self._margins)

    def _violations(self, outcome: Any) -> Any:
        """Return how much each constraint violates its margin, shape (m,)."""
        g = self._shifted(outcome)
        return np.where(self._is_equality, np.abs(g), np.maximum(g, 0.0))
