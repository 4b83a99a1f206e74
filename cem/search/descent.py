"""A quasi-Newton descent, which precedes the search if the function may be smooth.

The method is damped BFGS with forward differences: J. Nocedal and S. Wright, Numerical
Optimization, chapters 6 and 18 (procedure 18.2). Without limits, a step is the minimum of the
quadratic approximation within a trusted radius (chapter 4). With bounds or constraints, it is
the solution of a quadratic program, whose curvature has the shift of that minimum. With
constraints, it decreases a merit function: see ``cem.search.merit``. Bounds are never violated.

Gradients, steps and the curvature are in scaled units: the unit of a parameter is its standard
deviation. In these units the first curvature is a multiple of the identity matrix, and no
parameter changes by more than 1 in the first trial of a step. So the path does not depend on
the units of parameters and values.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cem.search.merit import Merit
from cem.search.quadratic import minimize_in_ball

# Pairs of a point and its outcome, in the order in which they were evaluated.
Visits = list[tuple[Any, Any]]

_SUFFICIENT_DECREASE = 1e-4  # the least share of the predicted decrease (Armijo)
_MIN_SHRINK, _MAX_SHRINK = 0.1, 0.5  # the range of the factor that shortens a rejected step
_MAX_EXTENSION = 2.0  # the longest second trial after a good one, in units of its step
_MIN_GAIN = 1.1  # the predicted decrease of a second trial, relative to that of the good one
_TRIALS_BEFORE_TEST = 3  # failed trials of a line search that raise the suspicion of noise
# After so many evaluations per parameter a descent ends if its last step was shorter than this
# many standard deviations: it creeps along a kink, or has almost arrived.
_LONG = 50
_SHORTEST_STEP = 1e-5
_MOST_BLOCKED = 2  # consecutive steps that were shortened because a trial failed
_MAX_TRIALS = 12  # trials of one line search, and of corrections at its end
_DAMPING = 0.2
# The quadratic approximation is trusted up to this distance: the root mean square of the
# changes of parameters, in standard deviations.
_TRUSTED_DISTANCE = 10.0
_POINTS_PER_DIM = 2  # the least number of points that determines the shape of a covariance
_NEGLIGIBLE = 1e-12  # the largest change of the merit that counts as 0, relative to the value
_FLAT = 1e-11  # the largest gradient that counts as 0, relative to the value
# A gradient also counts as 0 below this share of the first one, and a change of the merit below
# this share of the decrease so far.
_EPSILON = 2.0**-52
# The first curvature is this share of the gradient's norm, without and with constraints. It is
# low: steps have the length of a standard deviation until they have measured the curvature.
_FIRST_CURVATURE = 1e-5
_FIRST_CURVATURE_WITH_CONSTRAINTS = 0.1
_ROUNDING = 1e-12  # the largest difference of two values of one point that is rounding
_NOISY = 1e-3  # a larger one hides the slopes; both are relative to the range of values
_NOISE_FACTOR = 10.0  # noise is at most about this many differences of two values of one point
_SHORTEST_DIFFERENCE = 1e-2  # relative to the difference where the curvature is not known
_TINY = 1e-300  # replaces a value of 0, by which nothing can be divided


class _Parabola(NamedTuple):
    """The change of the merit along a trial step: slope * t + excess * t^2.

    The number t is 0 at the current point and 1 at the trial.
    """

    slope: float  # the change at the trial that the derivatives predict
    excess: float  # by how much the measured change exceeds it

    def change_at(self, t: float) -> float:
        return t * (self.slope + t * self.excess)

    def find_minimum(self) -> float:
        """Return the t of the minimum, or 0 if there is no minimum."""
        has_minimum = math.isfinite(self.excess) and self.excess > 0
        return -self.slope / (2 * self.excess) if has_minimum else 0.0


class Descent:
    """A descent from one point.

    The outcome of a point is its value to minimise, followed by its m constraints, shape
    (1 + m,).

    Attributes:
        path: The start and every trial, with their outcomes. Points that were evaluated for the
            gradient are not included.
        is_unfinished: Whether the descent could continue with a larger budget. It is True until
            no step improves the merit, which is the value if there are no constraints, or until
            trials fail in consecutive steps.
        last_length: The length of the last accepted step: the root mean square of its changes,
            each divided by the width of the parameter. It is 0 before the first step.
    """

    def __init__(
        self,
        evaluate: Callable[[Any], Any],
        start: Any,
        outcome: Any,
        width: Any,
        precision: float = 2.0**-52,
        is_equality: Any = (),
        bounds: Any = (-math.inf, math.inf),
    ) -> None:
        """Prepare a descent from a point that has been evaluated.

        Args:
            evaluate: Maps points, shape (n, d), to their outcomes, shape (n, 1 + m).
            start: The first point, shape (d,).
            outcome: The outcome of the first point, finite numbers.
            width: The standard deviation of each parameter, shape (d,). A parameter whose width
                is 0 is constant.
            precision: The relative precision of points and values.
            is_equality: Which constraints should be 0, shape (m,). The others should be at most
                0.
            bounds: The smallest and the largest value of each parameter; both are numbers or
                have the shape (d,). The start is within the bounds.
        """
        self.path: Visits = [(np.array(start, dtype=np.float64), np.array(outcome))]
        self.is_unfinished = True
        self.last_length = 0.0
        # The difference of two values of one point, relative to the range of values.
        self._noise = 0.0
        self._is_tested_for_noise = False
        self._num_blocked = 0  # the number of last steps that a failed trial has shortened
        self._budget = 0
        self._remaining = 0
        self._evaluate = evaluate
        # The best relative step of a forward difference is the root of the precision.
        self._relative_difference = math.sqrt(precision)
        self._set_units(width)
        self._set_bounds(bounds)
        self._merit = Merit(np.array(is_equality, dtype=bool))
        self._has_constraints = len(is_equality) > 0
        # Whether steps are the solutions of quadratic programs.
        self._is_limited = self._has_constraints or len(self._rows_of_bounds) > 0
        # The current point and its outcome.
        self._x, self._outcome = self.path[0]
        self._forget_derivatives()

    def _forget_derivatives(self) -> None:
        """Forget the derivatives at the previous point, and the curvature that they showed."""
        self._last_derivatives: Any = None
        self._curvature = np.eye(len(self._x))
        self._first_steepness = 0.0

    def _set_units(self, width: Any) -> None:
        """Set the scaled units, in which gradients, steps and the curvature are measured.

        A point is x + scale * step.
        """
        self._width = width
        self._is_free = width > 0
        self._scale = np.where(self._is_free, width, 1.0)

    def _set_bounds(self, bounds: Any) -> None:
        """Set the bounds, and their derivatives for the quadratic programs of the steps."""
        low, high = bounds
        self._low = np.broadcast_to(low, self._width.shape)
        self._high = np.broadcast_to(high, self._width.shape)
        self._has_low = np.isfinite(self._low)
        self._has_high = np.isfinite(self._high)
        # The derivatives of ``low - x`` and ``x - high``, which are at most 0 in the bounds.
        units = np.diag(self._scale)
        self._rows_of_bounds = np.vstack([-units[self._has_low], units[self._has_high]])

    def run(self, budget: int) -> None:
        """Descend until no step improves the merit, or ``budget`` evaluations are used up.

        With constraints, there may be one more evaluation. ``is_unfinished`` is True before the
        descent. It becomes False if no step improves the merit, and remains True if the budget
        ends the descent.

        If a step fails several times, the objective may be noisy. One evaluation tests this.
        After a little noise the descent begins again, with longer differences.
        """
        self._budget = budget
        self._remaining = budget
        self._descend()
        if self._noise > 0.0 and not self.has_seen_noise:
            self._forget_derivatives()  # Noise has made them wrong.
            self._descend()

    @property
    def has_seen_noise(self) -> bool:
        """Whether the objective is so noisy that differences of values show no slopes."""
        return self._noise > _NOISY

    def _descend(self) -> None:
        """Descend until no step improves the merit, or no evaluations remain."""
        if not self._is_free.any():
            self.is_unfinished = False  # All parameters are constant.
            return
        # A gradient needs one evaluation per free parameter, which is at most len(self._x). The
        # line search needs at least one more.
        while self._remaining > len(self._x):
            derivatives = self._derivatives()
            step = self._choose_step(derivatives)
            if step is None:
                self.is_unfinished = False  # This is a minimum, or a number is not finite.
                return
            slope = self._merit.slope(self._outcome, derivatives, step)
            if self._is_limited and self._is_negligible(slope):
                self.is_unfinished = False  # This is a minimum.
                self._correct_violations(derivatives)
                return
            if not self._search_along(step, slope, derivatives):
                # No trial was better. If the budget is used up, a shorter step might have been.
                # With constraints, a different step might have been.
                self.is_unfinished = self._remaining <= 0 or self._has_constraints
                self._correct_violations(derivatives)
                return
            self._move_to_last_trial(derivatives)
            is_long = self._budget - self._remaining >= _LONG * len(self._x)
            if is_long and self.last_length < _SHORTEST_STEP:
                self._correct_violations(derivatives)
                return
            if self._num_blocked >= _MOST_BLOCKED:
                self.is_unfinished = False  # The search finds a way along the failures.
                return

    def _is_negligible(self, slope: float) -> bool:
        """Return whether a predicted change of the merit is as small as rounding errors."""
        value = self._outcome[0]
        _, first_outcome = self.path[0]
        decrease = abs(first_outcome[0] - value)
        negligible = max(_NEGLIGIBLE * abs(value), _EPSILON * decrease)
        # Near a minimum, the error of the derivatives can make the change positive.
        error = max(negligible, self._relative_difference * abs(value))
        return bool(-negligible <= slope <= error)

    def _outcomes_of(self, points: Any) -> Any:
        """Evaluate points, shape (n, d), and return their outcomes, shape (n, 1 + m)."""
        self._remaining -= len(points)
        return np.asarray(self._evaluate(points))

    def _measure_noise(self) -> None:
        """Evaluate the current point again, and set ``_noise`` if its outcome is different."""
        self._is_tested_for_noise = True
        repeated = self._outcomes_of(self._x[None])[0]
        if not np.isfinite(repeated).all():
            return  # A failure is no noise.
        differences = np.abs(repeated - self._outcome)
        outcomes = np.stack([outcome for _, outcome in self.path])
        ranges = np.ptp(outcomes[np.isfinite(outcomes).all(axis=1)], axis=0)
        is_noise = (differences > _ROUNDING * np.abs(self._outcome)) & (ranges > 0)
        self._noise = float(np.max(differences[is_noise] / ranges[is_noise], initial=0.0))

    def covariance_factor(self) -> Any:
        """Return a factor of the covariance of a search that continues this descent, or None.

        The covariance C is proportional to the inverse of the curvature B: C = b B^-1. A
        candidate z of N(0, C) has z C^-1 z = d on average. The number b is chosen so that this
        is also true of the last step s: b = s B s / d. If a parameter had a larger standard
        deviation than its width, C is reduced.

        Returns:
            The lower triangular factor of C, shape (d, d), in units of the parameters. It is
            None if there are fewer than 2 d points from which B was estimated, if a parameter
            is constant, or if B is singular.
        """
        dim = len(self._x)
        if not self._is_free.all() or len(self.path) < _POINTS_PER_DIM * dim:
            return None
        scale = self._last_step @ self._curvature @ self._last_step / dim
        try:
            # With B = L L^T, the inverse of B is L^-T L^-1.
            inverse_factor = np.linalg.inv(np.linalg.cholesky(self._curvature))
            covariance = scale * inverse_factor.T @ inverse_factor
            variances = np.diag(covariance)
            covariance /= max(1.0, variances.max())
            return self._scale[:, None] * np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return None

    def _move_to_last_trial(self, derivatives: Any) -> None:
        """Move to the last point of the path, which is the best trial of the line search.

        Args:
            derivatives: The derivatives at the current point, shape (1 + m, d). The next update
                of the curvature compares them with those at the new point.
        """
        self._last_derivatives = derivatives
        point, outcome = self.path[-1]
        change = point - self._x
        self._last_step = change / self._scale
        if self._has_constraints:
            self._merit.adapt_margins(outcome - self._outcome, derivatives, self._last_step)
        self._x = point
        self._outcome = outcome
        relative_step = change[self._is_free] / self._width[self._is_free]
        self.last_length = float(np.sqrt(np.mean(relative_step**2)))

    def _lengths_of_differences(self) -> Any:
        """Return the lengths of forward differences, shape (d,), in units of the parameters.

        They are those of J. J. More and S. M. Wild, Estimating Derivatives of Noisy
        Simulations, ACM TOMS 38, 2012. If a value f is only rounded, the error is least at the
        length h with h^4 = 8 (precision f / curvature)^2. With noise the length is, in standard
        deviations, the root of the relative noise.
        """
        value = self._outcome[0]
        units = np.maximum(self._scale, np.abs(self._x))
        # The squares of the numbers by which the differences are shorter.
        excess = self._curvatures() * (units / self._scale) ** 2
        excess /= math.sqrt(8) * max(abs(value), _TINY)
        shares = 1 / np.sqrt(np.clip(excess, 1.0, _SHORTEST_DIFFERENCE**-2))
        lengths = self._relative_difference * shares * units
        lengths = np.maximum(lengths, math.sqrt(_NOISE_FACTOR * self._noise) * self._width)
        # One of the two points at this distance must be within the bounds.
        return np.minimum(lengths, (self._high - self._low) / 2)

    def _curvatures(self) -> Any:
        """Return the curvature along each parameter, shape (d,), in scaled units.

        It is 0 if it is not known. With constraints it is not: the curvature of the descent is
        the Lagrangian's.
        """
        if self._last_derivatives is None or self._has_constraints:
            return np.zeros(len(self._scale))
        return np.diag(self._curvature)

    def _derivatives(self) -> Any:
        """Return the derivatives by forward differences, shape (1 + m, d), in scaled units.

        They are the derivatives of the objective and of the m constraints with respect to the d
        parameters; 0 for constant parameters. One call evaluates all points.
        """
        free = np.flatnonzero(self._is_free)
        steps = self._lengths_of_differences()
        # A step that would leave the bounds goes backwards.
        steps = np.where(self._x + steps > self._high, -steps, steps)
        # For each of the n free parameters there is a point, in which only this parameter
        # differs from x: shape (n, d).
        points = self._x + np.diag(steps)[free]
        # Points are rounded, so the actual steps differ a little from those above: shape (n,).
        actual_steps = np.diag(points[:, free]) - self._x[free]
        # The changes of the outcome have the shape (n, 1 + m), and the slopes (1 + m, n).
        changes = self._outcomes_of(points) - self._outcome
        slopes = changes.T / actual_steps
        derivatives = np.zeros((len(self._outcome), len(self._x)))
        derivatives[:, free] = self._scale[free] * slopes
        # A difference is the slope at the middle of its step, if the curvature is constant.
        derivatives[0, free] -= (self._curvatures() / self._scale)[free] * actual_steps / 2
        return derivatives

    def _choose_step(self, derivatives: Any) -> Any:
        """Return the quasi-Newton step in scaled units, shape (d,), or None to end the descent.

        The result is None in three cases: the gradient is negligible, a number is not finite,
        or the approximate Hessian is singular. This method also updates that approximation,
        which is ``_curvature``.
        """
        if not np.isfinite(derivatives).all() or not np.isfinite(self._outcome).all():
            return None
        # Row 0 has the derivatives of the objective, and the other rows those of constraints.
        gradient = derivatives[0]
        steepness = float(np.linalg.norm(gradient))
        if self._last_derivatives is None:
            self._first_steepness = steepness
        flat = max(_FLAT * abs(self._outcome[0]), _EPSILON * self._first_steepness)
        is_flat = steepness <= flat
        if is_flat and not self._has_constraints:
            return None
        if self._last_derivatives is not None:
            # The Lagrangian is the objective plus each constraint times its multiplier. The
            # curvature is the Hessian of the Lagrangian.
            changes = derivatives - self._last_derivatives
            lagrangian_change = changes[0] + self._merit.multipliers @ changes[1:]
            self._curvature = _update_curvature(
                self._curvature, self._last_step, lagrangian_change
            )
        elif not is_flat:
            share = _FIRST_CURVATURE
            if self._has_constraints:
                share = _FIRST_CURVATURE_WITH_CONSTRAINTS
            self._curvature *= share * steepness
        try:
            step = self._solve_for_step(derivatives)
        except np.linalg.LinAlgError:
            # Rounding has made the matrix singular. The function may have no minimum.
            return None
        if not np.isfinite(step).all():
            return None
        return self._limit_length(step)

    def _limit_length(self, step: Any) -> Any:
        """Return the step, or a shorter one of its direction, shape (d,), in scaled units."""
        # No parameter moves by more than its standard deviation.
        return step / max(1.0, np.abs(step).max())

    def _solve_for_step(self, derivatives: Any) -> Any:
        """Return the minimum of the quadratic approximation, shape (d,), in scaled units.

        Raises:
            LinAlgError: If the curvature is singular.
        """
        dim = len(self._x)
        radius = _TRUSTED_DISTANCE * math.sqrt(dim)
        step, shift = minimize_in_ball(derivatives[0], self._curvature, radius)
        step = np.where(self._is_free, step, 0.0)  # Rounding has moved constant parameters.
        self._trusted_curvature = self._curvature + shift * np.eye(dim)
        if self._is_limited:
            step, multipliers = self._solve_program(self._outcome, derivatives)
            self._merit.adapt_penalties(multipliers)
        return step

    def _solve_program(self, outcome: Any, derivatives: Any) -> tuple[Any, Any]:
        """Return the step of a quadratic program, shape (d,), and its multipliers, shape (m,).

        Args:
            outcome: The outcome at the start of the step, shape (1 + m,).
            derivatives: Its derivatives, shape (1 + m, d).
        """
        below_low = (self._low - self._x)[self._has_low]
        above_high = (self._x - self._high)[self._has_high]
        bounds = np.concatenate([below_low, above_high])
        return self._merit.solve(
            self._trusted_curvature, outcome, derivatives, bounds, self._rows_of_bounds
        )

    def _search_along(self, step: Any, slope: float, derivatives: Any) -> bool:
        """Try a step and then shorter ones, until one decreases the merit enough.

        Every trial is a point that is evaluated and added to the path. The current merit, its
        slope and the merit of a trial determine a parabola along the step. After a sufficient
        decrease, the minimum of the parabola is tried, too, if it promises a merit that is much
        lower. Otherwise the next trial is near the minimum of the parabola.

        Args:
            step: The first step to try, shape (d,), in scaled units.
            slope: The change of the merit that the derivatives predict for ``step``.
            derivatives: The derivatives at the current point, shape (1 + m, d).

        Returns:
            Whether a trial decreased the merit enough. If so, the best trial is the last point
            of the path.
        """
        current_merit = self._merit(self._outcome)
        share = 1.0  # the length of the trial, relative to the first step
        has_failed = False
        for number in range(1, _MAX_TRIALS + 1):
            if self._remaining <= 0:
                return False
            merit = self._try(share * step)
            has_failed = has_failed or not math.isfinite(merit)
            # The parabola goes through both merits, and has the predicted slope at the start.
            trial_slope = share * slope
            excess = merit - current_merit - trial_slope
            parabola = _Parabola(trial_slope, excess)
            # Armijo's condition: the merit must decrease by a part of the slope's prediction.
            limit = current_merit + _SUFFICIENT_DECREASE * share * slope
            is_sufficient = merit < current_merit and merit <= limit
            if is_sufficient:
                self._num_blocked = self._num_blocked + 1 if has_failed else 0
                extension = min(parabola.find_minimum(), _MAX_EXTENSION)
                predicted_decrease = -parabola.change_at(extension)
                is_worthwhile = predicted_decrease > _MIN_GAIN * (current_merit - merit)
                if is_worthwhile and self._remaining > 0:
                    self._try(extension * share * step)
                    self._put_better_last()
                return True
            # With constraints, a correction may turn the first trial into a sufficient one.
            may_correct = number == 1 and self._has_constraints
            if may_correct and self._try_corrected(derivatives) <= limit:
                return True
            is_suspicious = number == _TRIALS_BEFORE_TEST and not self._is_tested_for_noise
            if is_suspicious and self._remaining > 0:
                self._measure_noise()
                if self._noise > 0.0:
                    return False
            # Shorten the step to the minimum of the parabola, but neither too little nor too
            # much.
            share *= min(_MAX_SHRINK, max(_MIN_SHRINK, parabola.find_minimum()))
        return False

    def _try(self, step: Any) -> float:
        """Evaluate the point after a step, add it to the path, and return its merit."""
        point = np.clip(self._x + self._scale * step, self._low, self._high)
        outcome = self._outcomes_of(point[None])[0]
        self.path.append((point, outcome))
        return self._merit(outcome)

    def _try_corrected(self, derivatives: Any) -> float:
        """Try the step again, corrected by the errors of the constraints in the last trial.

        This is the second-order correction of Nocedal and Wright, section 18.3.

        Args:
            derivatives: The derivatives at the current point, shape (1 + m, d).

        Returns:
            The merit of the corrected point, which is added to the path. It is infinite without
            a trial, because the outcome of the last trial is not finite.
        """
        point, outcome = self.path[-1]
        if not np.isfinite(outcome).all():
            return math.inf
        step = (point - self._x) / self._scale
        # These linear functions of a step have the outcome at the end of the last step.
        intercepts = outcome - derivatives @ step
        corrected, _ = self._solve_program(intercepts, derivatives)
        return self._try(self._limit_length(corrected))

    def _correct_violations(self, derivatives: Any) -> None:
        """Try points near the current one until ``Merit.is_feasible`` is true of one.

        Args:
            derivatives: The derivatives at the current point, or at the one before it if the
                last step was very short, shape (1 + m, d).
        """
        if not self._has_constraints:
            return
        self.path.append((self._x, self._outcome))
        for _ in range(min(_MAX_TRIALS, self._remaining)):
            _, outcome = self.path[-1]
            if self._merit.is_feasible(outcome):
                return
            self._merit.widen_margins(outcome)
            self._try_corrected(derivatives)

    def _put_better_last(self) -> None:
        """Order the last two points of the path so that the better one comes last."""
        (_, outcome_before), (_, last_outcome) = self.path[-2:]
        if not self._merit(last_outcome) < self._merit(outcome_before):
            self.path[-2:] = reversed(self.path[-2:])


def _update_curvature(curvature: Any, step: Any, change: Any) -> Any:
    """Return the next approximation of the Hessian by the damped BFGS update.

    Args:
        curvature: The approximation so far, positive definite, shape (d, d).
        step: The last step, shape (d,).
        change: The change of the gradient over this step, shape (d,).
    """
    # The change of the gradient that the approximation predicts. Its product with the step is
    # the curvature along the step.
    predicted_change = curvature @ step
    predicted = step @ predicted_change
    if not predicted > 0:
        return curvature
    measured = step @ change
    if measured < _DAMPING * predicted:
        # Mix in the predicted change, so that the next approximation is positive definite.
        share = (1 - _DAMPING) * predicted / (predicted - measured)
        change = share * change + (1 - share) * predicted_change
        measured = step @ change
    # Along the step, replace the predicted curvature by the measured one.
    removed = np.outer(predicted_change, predicted_change) / predicted
    return curvature - removed + np.outer(change, change) / measured
