"""A quadratic model of a function, fitted to the candidates evaluated so far.

The model is fitted by least squares, and better points have larger weights. With few points it
is linear. With more points it also has the squares of single parameters, and with enough points
the products of all pairs: N. Hansen, A Global Surrogate Assisted CMA-ES, GECCO 2019.
"""

import math
from typing import Any

import numpy as np

_POINTS_PER_COEFFICIENT = 1.1  # the least number that determines a model
_NEWEST = 1.5  # the points that are used, per coefficient of the full model
_SINGULAR = 1e-12  # a pivot that is smaller, relative to the largest one, counts as 0
_MOST_CHANGES = 200  # changes of single integers from one point
_WEIGHT_OF_BEST = 20.0  # the weight of the best point; that of the worst is 1.0


class QuadraticModel:
    """A quadratic model of a function of d parameters to minimise.

    The coordinates of the model are z = factor^-1 (x - center). The center is the mean of the
    search, and the factor is that of its covariance, so that the search has unit variance in
    each coordinate.

    Attributes:
        points: The points, each an array of shape (d,), the oldest first.
        values: Their values. Infinity means that the point failed: it counts as equal to the
            worst of the others.
        is_fitted: Whether the last fit had enough points, and finite coefficients.
        size: The number of coefficients of the fitted model.
    """

    def __init__(self, dim: int) -> None:
        """Set up a model without points."""
        self.points: list[Any] = []
        self.values: list[float] = []
        self.is_fitted = False
        self.size = 0
        self._dim = dim
        # The products z_i z_j with i < j: an array of all i, and an array of all j.
        self._pairs = np.triu_indices(dim, k=1)
        # The number of coefficients of three models: linear, with squares, and with squares and
        # products.
        self._coefficient_counts = (1 + dim, 1 + 2 * dim, 1 + dim * (dim + 3) // 2)
        # ``fit`` sets these attributes.
        self._coefficients: Any = None
        self._center: Any = None
        self._inverse: Any = None  # the inverse of the factor
        self._offset = 0.0  # the value that is subtracted from all values before the fit

    def add(self, point: Any, value: float) -> None:
        """Add a point and its value; a value that is not finite means that the point failed."""
        self.points.append(np.array(point))
        self.values.append(value if math.isfinite(value) else math.inf)

    def fit(self, center: Any, factor: Any, num_newest: int | None = None) -> None:
        """Fit the largest model that the newest points determine, and set ``is_fitted``.

        ``is_fitted`` becomes False in three cases: there are too few points for a linear model,
        the factor is singular, or numbers overflow.

        Args:
            center: The mean of the search, shape (d,).
            factor: A factor L of the search's covariance L L^T, shape (d, d).
            num_newest: The number of newest points to use. None: 1.5 points per coefficient of
                the largest model, and d more.
        """
        self.is_fitted = False
        if num_newest is None:
            num_newest = math.ceil(_NEWEST * self._coefficient_counts[-1]) + self._dim
        values = self._newest_values(num_newest)
        # The numbers of coefficients of the models that the points determine.
        possible_sizes = [
            size
            for size in self._coefficient_counts
            if len(values) >= _POINTS_PER_COEFFICIENT * size
        ]
        if not possible_sizes:
            return
        self.size = possible_sizes[-1]
        self._center = np.array(center)
        try:
            self._inverse = np.linalg.inv(factor)
        except np.linalg.LinAlgError:  # the standard deviation of a parameter is 0
            return
        points = np.array(self.points[-num_newest:])
        from_best = np.argsort(values, kind="stable")
        self._fit_sorted(points[from_best], values[from_best])

    def _fit_sorted(self, points: Any, values: Any) -> None:
        """Find the coefficients by weighted least squares; the best point comes first.

        Each point is an equation. Both sides are multiplied by the root of the point's weight.
        """
        self._offset = values[0]
        root_weights = np.sqrt(np.linspace(_WEIGHT_OF_BEST, 1.0, len(values)))
        rows = self._features(points) * root_weights[:, None]
        targets = (values - self._offset) * root_weights
        # The squares overflow if the search diverges.
        if np.isfinite(rows).all() and np.isfinite(targets).all():
            self._coefficients = _solve_least_squares(rows, targets)
            self.is_fitted = bool(np.isfinite(self._coefficients).all())

    def predict(self, points: Any) -> Any:
        """Return the values of the model, shape (n,), at points of shape (n, d)."""
        return self._features(points) @ self._coefficients + self._offset

    def minimum(self, radius: float) -> Any:
        """Return the point of lowest predicted value within a radius of the center, shape (d,).

        The radius is in the model's coordinates z.
        """
        z, _ = minimize_in_ball(*self._derivatives(), radius)
        # In the coordinates of points, z is factor @ z away from the center.
        return self._center + np.linalg.solve(self._inverse, z)

    def descend_integers(self, point: Any, is_integer: Any, low: Any, high: Any) -> Any:
        """Return the point after changes of single integers by 1 that lower its prediction.

        After each change, the other parameters move to where the model is lowest for these
        integers. All remain near the center, where the model was fitted.

        Args:
            point: The first point, shape (d,), with integers and within the bounds.
            is_integer: Which parameters are integers, shape (d,).
            low: The lower bounds, a number or of shape (d,).
            high: The upper bounds.
        """
        # A standard deviation of the search, and at least the next integer.
        reach = np.linalg.norm(np.linalg.inv(self._inverse), axis=1)
        reach = np.where(is_integer, np.maximum(reach, 1.0), reach)
        low = np.maximum(low, np.minimum(self._center - reach, point))
        high = np.minimum(high, np.maximum(self._center + reach, point))
        units = np.eye(self._dim)[is_integer]
        changes = np.vstack([units, -units])
        prediction = self.predict(point[None])[0]
        for _ in range(_MOST_CHANGES):
            trials = point + changes
            trials = trials[((low <= trials) & (trials <= high)).all(axis=1)]
            # The point itself may improve by the other parameters alone.
            trials = np.vstack([point, trials])
            self._move_others(trials, is_integer, low, high)
            predictions = self.predict(trials)
            best = int(np.argmin(predictions))
            if not predictions[best] < prediction:
                break
            point = trials[best]
            prediction = predictions[best]
        return point

    def _move_others(self, points: Any, is_integer: Any, low: Any, high: Any) -> None:
        """Move the parameters that are no integers to where the model is lowest within bounds.

        They remain where they are if the model has no minimum. ``points`` (n, d) is changed.
        """
        gradient, hessian = self._derivatives()
        # From the coordinates z to those of points.
        gradient = self._inverse.T @ gradient
        hessian = self._inverse.T @ hessian @ self._inverse
        others = ~is_integer
        curvature = hessian[np.ix_(others, others)]
        if not others.any() or np.linalg.eigvalsh(curvature)[0] <= 0:
            return
        distances = np.where(is_integer, points - self._center, 0.0)
        slopes = (gradient + distances @ hessian)[:, others]
        try:
            minima = self._center[others] - np.linalg.solve(curvature, slopes.T).T
        except np.linalg.LinAlgError:
            return  # Rounding errors made a curvature of 0 positive.
        points[:, others] = np.clip(minima, low[others], high[others])

    def agreement(self, count: int) -> float:
        """Return Kendall's rank correlation between the model and the values.

        It compares the newest ``count`` points. The result is between -1 and 1, which means
        that the model orders all pairs of points correctly. It is 0 without any pair.
        """
        values = self._newest_values(count)
        predictions = self.predict(np.array(self.points[-count:]))
        # The indices of the two points of each pair.
        first, second = np.triu_indices(len(values), 1)
        if not len(first):
            return 0.0
        signs = np.sign(values[first] - values[second])
        predicted_signs = np.sign(predictions[first] - predictions[second])
        return float(np.mean(signs * predicted_signs))

    def _newest_values(self, count: int) -> Any:
        """Return the values of the newest ``count`` points; failed points get the worst value.

        The result is an empty array if all of these points failed.
        """
        values = np.array(self.values[-count:])
        has_value = np.isfinite(values)
        if not has_value.any():
            return values[:0]
        values[~has_value] = values[has_value].max()
        return values

    def _features(self, points: Any) -> Any:
        """Return the terms of the model at points, shape (n, number of coefficients)."""
        z = (np.asarray(points) - self._center) @ self._inverse.T
        columns = [np.ones((len(z), 1)), z]
        if self.size > self._coefficient_counts[0]:
            columns.append(z * z)
        if self.size > self._coefficient_counts[1]:
            first, second = self._pairs
            columns.append(z[:, first] * z[:, second])
        return np.hstack(columns)

    def _derivatives(self) -> tuple[Any, Any]:
        """Return the gradient (d,) and the Hessian (d, d) at the center, in the coordinates z.

        The coefficients of the model belong to the terms 1, z_i, z_i^2 and z_i z_j (i < j), in
        this order. A model with fewer coefficients lacks the products, or the products and the
        squares.
        """
        dim = self._dim
        num_linear, num_diagonal, _ = self._coefficient_counts
        gradient = self._coefficients[1:num_linear]
        hessian = np.zeros((dim, dim))
        if self.size > num_linear:
            squares = self._coefficients[num_linear:num_diagonal]
            hessian[np.diag_indices(dim)] = 2 * squares
        if self.size > num_diagonal:
            products = self._coefficients[num_diagonal:]
            first, second = self._pairs
            hessian[first, second] = products
            hessian[second, first] = products
        return gradient, hessian


def minimize_in_ball(gradient: Any, hessian: Any, radius: float) -> tuple[Any, float]:
    """Return the z that minimises g z + z H z / 2 within a radius of 0, shape (d,).

    The minimum is

        z = -(H + shift I)^-1 g

    The shift is the smallest number >= 0 for which H + shift I is positive definite and the
    length of z is at most the radius: J. Nocedal and S. Wright, Numerical Optimization, theorem
    4.1. Bisection determines the shift.

    Args:
        gradient: g, shape (d,).
        hessian: H, symmetric, shape (d, d).
        radius: The greatest length of z.

    Returns:
        z and the shift.
    """
    # In the basis of the eigenvectors, the equations are independent of each other.
    curvatures, axes = np.linalg.eigh(hessian)
    slopes = axes.T @ gradient
    largest = max(1e-300, np.abs(curvatures).max(), np.abs(slopes).max())
    # The eigenvalues ascend. With a shift slightly above -curvatures[0], H + shift I is
    # positive definite.
    low = max(0.0, -curvatures[0]) + 1e-12 * largest

    def minimum_with(shift: float) -> Any:
        return -slopes / (curvatures + shift)

    best_shift = low
    if np.linalg.norm(minimum_with(low)) > radius:
        # With the shift ``high``, every curvature + shift is at least |slopes| / radius. The
        # minimum is therefore within the radius.
        high = low + np.linalg.norm(slopes) / radius
        for _ in range(60):  # until the two ends are almost equal
            middle = (low + high) / 2
            if np.linalg.norm(minimum_with(middle)) > radius:
                low = middle
            else:
                high = middle
        best_shift = high
    return axes @ minimum_with(best_shift), best_shift


def _solve_least_squares(rows: Any, targets: Any) -> Any:
    """Return the x that minimises |rows x - targets|, shape (n,).

    The QR decomposition takes a quarter of the time of an SVD. The SVD is only used if the rows
    do not determine all coefficients.

    Args:
        rows: The coefficients of the equations, shape (m, n), m >= n.
        targets: The right-hand sides, shape (m,).
    """
    # With the targets as the last column, R contains the triangular matrix and Q^T targets.
    triangle: Any = np.linalg.qr(np.column_stack([rows, targets]), mode="r")
    count = rows.shape[1]
    square = triangle[:count, :count]
    right = triangle[:count, count]
    pivots = np.abs(np.diag(square))
    if pivots.min() > _SINGULAR * pivots.max():
        return np.linalg.solve(square, right)
    return np.linalg.lstsq(square, right, rcond=_SINGULAR)[0]
