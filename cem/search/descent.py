"""A descent by a quasi-Newton method: what a smooth function is worth the first evaluations.

BFGS with forward differences and damping: J. Nocedal and S. Wright, Numerical Optimization,
chapters 6 and 18 (procedure 18.2). The units of parameters are in the ratios of their standard
deviations, and have the geometric mean 1. In these units the curvature is at first 1 in every
direction. A step is no longer than the standard deviation in any parameter.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_LEAST_DECREASE = 1e-4  # of the decrease that the slope promises (Armijo)
_SHORTEST, _LONGEST = 0.1, 0.5  # a step that was too long becomes as much shorter
_MOST_TRIALS = 12  # of step lengths
_DAMPING = 0.2
_FLAT = 1e-11  # a slope that is negligible beside the value


def descend(
    evaluate: Callable[[Any], Any],
    start: Any,
    value: float,
    width: Any,
    budget: int,
    path: list[tuple[Any, float]],
    precision: float = 2.0**-52,
) -> None:
    """Descend from a start until no step improves the value.

    Args:
        evaluate: Maps points, shape (n, d), to their values, shape (n,).
        start: The first point, shape (d,).
        value: Its value, a finite number.
        width: The longest step in each parameter, shape (d,); 0: the parameter is constant.
        budget: The most evaluations.
        path: Gets every step that is tried and its value, but not the points of differences.
        precision: The relative precision of points and values.
    """
    dim = len(start)
    share_of_difference = math.sqrt(precision)
    x = np.array(start, dtype=np.float64)
    is_free = width > 0
    mean_width = math.exp(np.log(width[is_free]).mean()) if is_free.any() else 1.0
    scale = np.where(is_free, width / mean_width, 1.0)  # the unit of each parameter
    left = budget
    curvature = np.eye(dim)
    last_x = x
    last_gradient: Any = None
    while math.isfinite(value) and left > dim and is_free.any():
        steps = share_of_difference * np.maximum(scale, np.abs(x))
        gradient = scale * _differences(evaluate, x, value, np.where(is_free, steps, 0.0))
        left -= int(is_free.sum())
        if not np.isfinite(gradient).all():
            break
        if np.abs(gradient).max() <= _FLAT * max(1.0, abs(value)):
            break
        if last_gradient is not None:
            last_step = (x - last_x) / scale
            curvature = _update_curvature(curvature, last_step, gradient - last_gradient)
        try:
            step = -np.linalg.solve(curvature, gradient)
        except np.linalg.LinAlgError:  # a function without a minimum has lost all curvature
            break
        if not step @ gradient < 0:
            step = -gradient
        if not np.isfinite(step).all():
            break
        step /= max(1.0, np.abs(step).max() / mean_width)
        slope = float(step @ gradient)
        number_before = len(path)
        is_better = _shorten_until_better(
            evaluate, x, value, scale * step, slope, min(_MOST_TRIALS, left), path
        )
        left -= len(path) - number_before
        if not is_better:
            break
        last_x, last_gradient = x, gradient
        x, value = path[-1]


def _shorten_until_better(
    evaluate: Callable[[Any], Any],
    x: Any,
    value: float,
    step: Any,
    slope: float,
    most: int,
    path: list[tuple[Any, float]],
) -> bool:
    """Try a step from x, and shorter ones; return whether one decreased the value enough.

    Args:
        evaluate: Maps points, shape (n, d), to their values, shape (n,).
        x: The point to step from, shape (d,).
        value: Its value.
        step: The longest step, shape (d,).
        slope: The change of the value that the gradient predicts for it, below 0.
        most: The most trials.
        path: Gets the points that are tried and their values, the good one last.
    """
    share = 1.0
    for _ in range(most):
        trial = x + share * step
        trial_value = float(evaluate(trial[None])[0])
        path.append((trial, trial_value))
        if trial_value < value and trial_value <= value + _LEAST_DECREASE * share * slope:
            return True
        # The minimum of the parabola through the value, the slope and the trial's value.
        excess = trial_value - value - share * slope
        ratio = _SHORTEST
        if math.isfinite(excess) and excess > 0:
            ratio = min(_LONGEST, max(_SHORTEST, -share * slope / (2 * excess)))
        share *= ratio
    return False


def _differences(evaluate: Callable[[Any], Any], x: Any, value: float, steps: Any) -> Any:
    """Return the gradient by forward differences; all of its points are evaluated at once.

    Where the step is 0 the slope is not wanted, and is 0.
    """
    wanted = np.flatnonzero(steps)
    points = x + np.diag(steps)[wanted]
    widths = points[np.arange(len(wanted)), wanted] - x[wanted]  # as rounded
    gradient = np.zeros(len(x))
    gradient[wanted] = (np.asarray(evaluate(points)) - value) / widths
    return gradient


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
