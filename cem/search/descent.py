"""A descent by a quasi-Newton method: what a smooth function is worth the first evaluations.

BFGS with forward differences and damping: J. Nocedal and S. Wright, Numerical Optimization,
chapters 6 and 18 (procedure 18.2). The units of parameters are in the ratios of their standard
deviations, and have the geometric mean 1. In these units the curvature is at first 1 in every
direction. The first trial of a step is no longer than the standard deviation in any parameter.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Path = list[tuple[Any, float]]
"""Points that were tried, and their values."""

_LEAST_DECREASE = 1e-4  # of the decrease that the slope promises (Armijo)
_SHORTEST, _LONGEST = 0.1, 0.5  # a step that was too long becomes as much shorter
_FARTHEST = 2.0  # a good trial may be followed by one that is as many times as long
_WORTHWHILE = 1.1  # the decrease that such a trial has to promise, beside that of the good one
_MOST_TRIALS = 12  # of step lengths
_DAMPING = 0.2
_FLAT = 1e-11  # a slope that is negligible beside the value


class Descent:
    """A descent from one point.

    Attributes:
        path: Every step that was tried and its value, but not the points of differences.
        is_unfinished: Whether the budget ended the descent, and not a lack of progress.
        last_length: The length of the last step, the root mean square over the parameters in
            units of their width; 0 before the first.
    """

    def __init__(
        self,
        evaluate: Callable[[Any], Any],
        start: Any,
        value: float,
        width: Any,
        precision: float = 2.0**-52,
    ) -> None:
        """Begin at a point.

        Args:
            evaluate: Maps points, shape (n, d), to their values, shape (n,).
            start: The point, shape (d,).
            value: Its value, a finite number.
            width: The standard deviation of each parameter, shape (d,); 0: it is constant.
            precision: The relative precision of points and values.
        """
        self.path: Path = [(np.array(start, dtype=np.float64), value)]
        self.is_unfinished = True
        self.last_length = 0.0
        self._evaluate = evaluate
        self._difference = math.sqrt(precision)  # as a share of a parameter
        self._width = width
        self._is_free = width > 0
        self._mean_width = 1.0
        if self._is_free.any():
            self._mean_width = math.exp(np.log(width[self._is_free]).mean())
        # The unit of each parameter. Gradients, steps and the curvature are in these units.
        self._scale = np.where(self._is_free, width / self._mean_width, 1.0)
        self._curvature = np.eye(len(start))
        self._x, self._value = self.path[0]
        self._last_x = self._x
        self._last_gradient: Any = None

    def run(self, budget: int) -> None:
        """Descend until no step improves the value, or the evaluations are used up."""
        if not self._is_free.any():
            self.is_unfinished = False
            return
        left = budget
        while left > len(self._x):
            gradient = self._gradient()
            left -= int(self._is_free.sum())
            step = self._choose_step(gradient)
            if step is None:
                self.is_unfinished = False
                return
            number_before = len(self.path)
            is_better = self._search_along(step, float(step @ gradient), left)
            left -= len(self.path) - number_before
            if not is_better:
                self.is_unfinished = left <= 0
                return
            self._last_x, self._last_gradient = self._x, gradient
            self._x, self._value = self.path[-1]
            relative_step = (self._x - self._last_x)[self._is_free] / self._width[self._is_free]
            self.last_length = float(np.sqrt(np.mean(relative_step**2)))

    def _gradient(self) -> Any:
        """Return the gradient by forward differences; all of its points are evaluated at once.

        It is 0 for the parameters that are constant.
        """
        wanted = np.flatnonzero(self._is_free)
        steps = self._difference * np.maximum(self._scale, np.abs(self._x))
        points = self._x + np.diag(steps)[wanted]
        widths = points[np.arange(len(wanted)), wanted] - self._x[wanted]  # as rounded
        slopes = (np.asarray(self._evaluate(points)) - self._value) / widths
        gradient = np.zeros(len(self._x))
        gradient[wanted] = self._scale[wanted] * slopes
        return gradient

    def _choose_step(self, gradient: Any) -> Any:
        """Return the step to the minimum that the curvature predicts, shape (d,), or None.

        None means that there is no way down: the slope is negligible, or not finite.
        """
        if not np.isfinite(gradient).all() or not math.isfinite(self._value):
            return None
        if np.abs(gradient).max() <= _FLAT * max(1.0, abs(self._value)):
            return None
        if self._last_gradient is not None:
            last_step = (self._x - self._last_x) / self._scale
            change = gradient - self._last_gradient
            self._curvature = _update_curvature(self._curvature, last_step, change)
        try:
            step = -np.linalg.solve(self._curvature, gradient)
        except np.linalg.LinAlgError:  # a function without a minimum has lost all curvature
            return None
        if not step @ gradient < 0:
            step = -gradient
        if not np.isfinite(step).all():
            return None
        return step / max(1.0, np.abs(step).max() / self._mean_width)

    def _search_along(self, step: Any, slope: float, left: int) -> bool:
        """Try a step, and shorter ones; return whether one decreased the value enough.

        If the parabola through the value, the slope and that trial has a much lower minimum,
        this minimum is tried, too.

        Args:
            step: The first step that is tried, shape (d,).
            slope: The change of the value that the gradient predicts for it, below 0.
            left: The most trials.
        """
        share = 1.0
        for number in range(1, min(_MOST_TRIALS, left) + 1):
            value = self._try(share * step)
            # The parabola's minimum is at ``ratio`` times the step that was tried.
            excess = value - self._value - share * slope
            has_minimum = math.isfinite(excess) and excess > 0
            ratio = -share * slope / (2 * excess) if has_minimum else 0.0
            if value < self._value and value <= self._value + _LEAST_DECREASE * share * slope:
                ratio = min(ratio, _FARTHEST)
                promised = -ratio * (share * slope + ratio * excess)
                is_worthwhile = promised > _WORTHWHILE * (self._value - value)
                if is_worthwhile and number < left:
                    self._try(ratio * share * step)
                    self._put_best_last()
                return True
            share *= min(_LONGEST, max(_SHORTEST, ratio))
        return False

    def _try(self, step: Any) -> float:
        """Evaluate the point that a step leads to, and return its value."""
        point = self._x + self._scale * step
        value = float(self._evaluate(point[None])[0])
        self.path.append((point, value))
        return value

    def _put_best_last(self) -> None:
        """Order the last two points of the path so that the better one is the last."""
        before, last = self.path[-2:]
        if not last[1] < before[1]:
            self.path[-2:] = [last, before]


def _update_curvature(curvature: Any, step: Any, change: Any) -> Any:
    """Return the next approximation of the Hessian, by a damped update of BFGS.

    Args:
        curvature: The approximation so far, positive definite, shape (d, d).
        step: The last step, shape (d,).
        change: By how much it changed the gradient, shape (d,).
    """
    image = curvature @ step
    expected = step @ image
    if not expected > 0:
        return curvature
    product = step @ change
    if product < _DAMPING * expected:
        share = (1 - _DAMPING) * expected / (expected - product)
        change = share * change + (1 - share) * image
        product = step @ change
    return curvature - np.outer(image, image) / expected + np.outer(change, change) / product
