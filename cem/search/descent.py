"""A quasi-Newton descent, which precedes the search if the function may be smooth.

The method is damped BFGS with forward differences: J. Nocedal and S. Wright, Numerical
Optimization, chapters 6 and 18 (procedure 18.2). Gradients, steps and the curvature are in
scaled units: one unit of a parameter is proportional to its standard deviation, and the
geometric mean of all units is 1. In these units the first curvature is the identity matrix. No
parameter changes by more than its standard deviation in the first trial of a step.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Path = list[tuple[Any, float]]
"""Pairs of a point and its value, in the order in which they were evaluated."""

_SUFFICIENT_DECREASE = 1e-4  # the least share of the predicted decrease (Armijo)
_MIN_SHRINK, _MAX_SHRINK = 0.1, 0.5  # the range of the factor that shortens a rejected step
_MAX_EXTENSION = 2.0  # the longest second trial after a good one, in units of its step
_MIN_GAIN = 1.1  # the predicted decrease of a second trial, relative to that of the good one
_MAX_TRIALS = 12  # trials of one line search
_DAMPING = 0.2
_FLAT = 1e-11  # the largest gradient that counts as 0, relative to the value


class Descent:
    """A descent from one point.

    Attributes:
        path: The start and every trial, with their values. Points that were evaluated for the
            gradient are not included.
        is_unfinished: Whether the descent could continue with a larger budget. It is True until
            no step improves the value.
        last_length: The length of the last accepted step: the root mean square of its changes,
            each divided by the width of the parameter. It is 0 before the first step.
    """

    def __init__(
        self,
        evaluate: Callable[[Any], Any],
        start: Any,
        value: float,
        width: Any,
        precision: float = 2.0**-52,
    ) -> None:
        """Prepare a descent from a point that has been evaluated.

        Args:
            evaluate: Maps points, shape (n, d), to their values, shape (n,).
            start: The first point, shape (d,).
            value: The value of the first point, a finite number.
            width: The standard deviation of each parameter, shape (d,). A parameter whose width
                is 0 is constant.
            precision: The relative precision of points and values.
        """
        self.path: Path = [(np.array(start, dtype=np.float64), value)]
        self.is_unfinished = True
        self.last_length = 0.0
        self._evaluate = evaluate
        # The best relative step of a forward difference is the root of the precision.
        self._relative_difference = math.sqrt(precision)
        self._width = width
        self._is_free = width > 0
        self._mean_width = 1.0
        if self._is_free.any():
            # This is the geometric mean.
            self._mean_width = math.exp(np.log(width[self._is_free]).mean())
        # The scaled units: point = x + scale * step. Gradients, steps and the curvature are in
        # these units. In them, every standard deviation equals ``_mean_width``.
        self._scale = np.where(self._is_free, width / self._mean_width, 1.0)
        self._curvature = np.eye(len(start))
        self._x, self._value = self.path[0]
        self._last_x = self._x
        self._last_gradient: Any = None

    def run(self, budget: int) -> None:
        """Descend until no step improves the value, or ``budget`` evaluations are used up.

        ``is_unfinished`` is True before the descent. It becomes False if no step improves the
        value, and remains True if the budget ends the descent.
        """
        num_free = int(self._is_free.sum())
        if num_free == 0:
            self.is_unfinished = False  # All parameters are constant.
            return
        remaining = budget
        # A gradient needs one evaluation per free parameter, which is at most len(self._x). The
        # line search needs at least one more.
        while remaining > len(self._x):
            gradient = self._gradient()
            remaining -= num_free
            step = self._choose_step(gradient)
            if step is None:
                self.is_unfinished = False  # This is a minimum, or a number is not finite.
                return
            slope = float(step @ gradient)
            length_before = len(self.path)
            is_better = self._search_along(step, slope, max_trials=remaining)
            # The line search has added all of its trials to the path.
            num_trials = len(self.path) - length_before
            remaining -= num_trials
            if not is_better:
                # No trial was better. If the budget is used up, a shorter step might have been.
                self.is_unfinished = remaining <= 0
                return
            self._move_to_last_trial(gradient)

    def _move_to_last_trial(self, gradient: Any) -> None:
        """Move to the last point of the path, which is the best trial of the line search.

        Args:
            gradient: The gradient at the current point, shape (d,). The next update of the
                curvature compares it with the gradient at the new point.
        """
        self._last_gradient = gradient
        self._last_x = self._x
        self._x, self._value = self.path[-1]
        relative_step = (self._x - self._last_x)[self._is_free] / self._width[self._is_free]
        self.last_length = float(np.sqrt(np.mean(relative_step**2)))

    def _gradient(self) -> Any:
        """Return the gradient by forward differences, shape (d,), in scaled units.

        One call evaluates all points. The gradient is 0 for constant parameters.
        """
        free = np.flatnonzero(self._is_free)
        steps = self._relative_difference * np.maximum(self._scale, np.abs(self._x))
        points = self._x + np.diag(steps)[free]
        # The difference of the rounded points, which is not exactly the step.
        differences = points[np.arange(len(free)), free] - self._x[free]
        slopes = (np.asarray(self._evaluate(points)) - self._value) / differences
        gradient = np.zeros(len(self._x))
        gradient[free] = self._scale[free] * slopes
        return gradient

    def _choose_step(self, gradient: Any) -> Any:
        """Return the quasi-Newton step in scaled units, shape (d,), or None to end the descent.

        The result is None in three cases: the gradient is negligible, a number is not finite,
        or the approximate Hessian is singular. This method also updates that approximation,
        which is ``_curvature``.
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
        except np.linalg.LinAlgError:
            # Rounding has made the matrix singular. The function may have no minimum.
            return None
        is_descent = step @ gradient < 0
        if not is_descent:
            step = -gradient  # the direction of steepest descent
        if not np.isfinite(step).all():
            return None
        # No parameter moves by more than its standard deviation. In scaled units, every
        # standard deviation equals the mean width.
        return step / max(1.0, np.abs(step).max() / self._mean_width)

    def _search_along(self, step: Any, slope: float, max_trials: int) -> bool:
        """Try a step and then shorter ones, until one decreases the value enough.

        Every trial is a point that is evaluated and added to the path. The current value, the
        slope and the value of a trial determine a parabola. After a sufficient decrease, the
        minimum of the parabola is tried, too, if its predicted value is much lower.

        Args:
            step: The first step to try, shape (d,), in scaled units.
            slope: The change of the value for ``step`` by the gradient, a negative number.
            max_trials: The maximum number of trials.

        Returns:
            Whether a trial decreased the value enough. If so, the best trial is the last point
            of the path.
        """
        share = 1.0  # the length of the trial, relative to the first step
        for number in range(1, min(_MAX_TRIALS, max_trials) + 1):
            value = self._try(share * step)
            # Let t be the length of a step relative to this trial. The parabola is
            #     self._value + share * slope * t + excess * t^2
            # and its minimum is at t = ratio. Without a minimum, ratio is 0.
            excess = value - self._value - share * slope
            has_minimum = math.isfinite(excess) and excess > 0
            ratio = -share * slope / (2 * excess) if has_minimum else 0.0
            limit = self._value + _SUFFICIENT_DECREASE * share * slope  # Armijo's condition
            if value < self._value and value <= limit:
                ratio = min(ratio, _MAX_EXTENSION)
                predicted_decrease = -ratio * (share * slope + ratio * excess)
                is_worthwhile = predicted_decrease > _MIN_GAIN * (self._value - value)
                if is_worthwhile and number < max_trials:
                    self._try(ratio * share * step)
                    self._put_better_last()
                return True
            # The next trial is at the minimum of the parabola, within limits.
            share *= min(_MAX_SHRINK, max(_MIN_SHRINK, ratio))
        return False

    def _try(self, step: Any) -> float:
        """Evaluate the point after a step, add it to the path, and return its value."""
        point = self._x + self._scale * step
        value = float(self._evaluate(point[None])[0])
        self.path.append((point, value))
        return value

    def _put_better_last(self) -> None:
        """Order the last two points of the path so that the better one comes last."""
        (_, value_before), (_, last_value) = self.path[-2:]
        if not last_value < value_before:
            self.path[-2:] = reversed(self.path[-2:])


def _update_curvature(curvature: Any, step: Any, change: Any) -> Any:
    """Return the next approximation of the Hessian by the damped BFGS update.

    Args:
        curvature: The approximation so far, positive definite, shape (d, d).
        step: The last step, shape (d,).
        change: The change of the gradient over this step, shape (d,).
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
