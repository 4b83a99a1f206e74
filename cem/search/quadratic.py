"""A quadratic model of a function, fitted to the candidates evaluated so far.

N. Hansen, A Global Surrogate Assisted CMA-ES, GECCO 2019: least squares, weighted by rank, with
as many coefficients as there are points for: a linear model first, then squares of single
parameters, then all products of two.
"""

import math
from typing import Any

import numpy as np

_POINTS_PER_COEFFICIENT = 1.1  # a kind of model needs as many points
_NEWEST = 1.5  # the points that are used, per coefficient of the full model
_SINGULAR = 1e-12  # a pivot that counts as 0, beside the largest
_WEIGHT_OF_BEST = 20.0  # of the best point, beside 1.0 of the worst


class QuadraticModel:
    """A model of a function of d parameters, which is minimised.

    The coordinates of the model are whitened: z = factor^-1 (x - center), with the mean and the
    factor of the covariance of the search, so that the search is as wide as 1 in each of them.

    Attributes:
        points: The candidates, each an array of shape (d,), the oldest first.
        values: Their values; infinity: the candidate failed. Such a point counts as bad as
            the worst of the others.
        is_fitted: Whether there are enough points for a model.
    """

    def __init__(self, dim: int) -> None:
        """Begin without points."""
        self.points: list[Any] = []
        self.values: list[float] = []
        self.is_fitted = False
        self._dim = dim
        self._pairs = np.triu_indices(dim, 1)  # of two different parameters
        self._sizes = (1 + dim, 1 + 2 * dim, 1 + dim * (dim + 3) // 2)
        self._size = 0
        self._coefficients: Any = None
        self._center: Any = None
        self._inverse: Any = None
        self._offset = 0.0

    def add(self, point: Any, value: float) -> None:
        """Add a point; one whose value is not finite has failed."""
        self.points.append(np.array(point))
        self.values.append(value if math.isfinite(value) else math.inf)

    @property
    def size(self) -> int:
        """The number of coefficients."""
        return self._size

    def fit(self, center: Any, factor: Any, newest: int | None = None) -> None:
        """Fit the model to the newest points, as far as they suffice.

        Args:
            center: The mean of the search, shape (d,).
            factor: A factor L of its covariance L L^T, shape (d, d).
            newest: How many of the newest points are used. None: half as many again as the
                full model has coefficients, and some.
        """
        if newest is None:
            newest = math.ceil(_NEWEST * self._sizes[-1]) + self._dim
        values = self._newest_values(newest)
        enough = [size for size in self._sizes if len(values) >= _POINTS_PER_COEFFICIENT * size]
        self.is_fitted = bool(enough)
        if not enough:
            return
        self._size = enough[-1]
        self._center = np.array(center)
        try:
            self._inverse = np.linalg.inv(factor)
        except np.linalg.LinAlgError:  # a parameter whose standard deviation is 0
            self.is_fitted = False
            return
        order = np.argsort(values, kind="stable")
        values = values[order]
        points = np.array(self.points[-newest:])[order]
        self._offset = values[0]
        weights = np.sqrt(np.linspace(_WEIGHT_OF_BEST, 1.0, len(values)))
        rows = self._features(points) * weights[:, None]
        targets = (values - self._offset) * weights
        # A search that diverges has squares that overflow.
        self.is_fitted = bool(np.isfinite(rows).all() and np.isfinite(targets).all())
        if not self.is_fitted:
            return
        self._coefficients = _solve_least_squares(rows, targets)
        self.is_fitted = bool(np.isfinite(self._coefficients).all())

    def predict(self, points: Any) -> Any:
        """Return the values of the model at points, shape (n, d); the result has shape (n,)."""
        return self._features(points) @ self._coefficients + self._offset

    def minimum(self, radius: float) -> Any:
        """Return the minimum of the model within a distance from the center, shape (d,).

        The distance is in the model's coordinates, where the minimum is
        -(H + shift I)^-1 gradient with the least shift >= 0 for which H + shift I is positive
        definite and the step is not too long: J. Nocedal and S. Wright, Numerical Optimization,
        theorem 4.1. The shift is found by bisection.
        """
        gradient, hessian = self._derivatives()
        curvatures, axes = np.linalg.eigh(hessian)
        slopes = axes.T @ gradient
        largest = max(1e-300, np.abs(curvatures).max(), np.abs(slopes).max())
        low = max(0.0, -curvatures[0]) + 1e-12 * largest

        def step(shift: float) -> Any:
            return -slopes / (curvatures + shift)

        if np.linalg.norm(step(low)) > radius:
            high = low + np.linalg.norm(slopes) / radius  # every curvature + shift is as large
            for _ in range(60):
                middle = (low + high) / 2
                if np.linalg.norm(step(middle)) > radius:
                    low = middle
                else:
                    high = middle
            low = high
        return self._center + np.linalg.solve(self._inverse, axes @ step(low))

    def agreement(self, count: int) -> float:
        """Return Kendall's rank correlation of model and values of the newest points.

        It is between -1 and 1, where all pairs of points have the right order; 0 if there is
        nothing to compare.
        """
        values = self._newest_values(count)
        predictions = self.predict(np.array(self.points[-count:]))
        first, second = np.triu_indices(len(values), 1)
        if not len(first):
            return 0.0
        signs = np.sign(values[first] - values[second])
        return float(np.mean(signs * np.sign(predictions[first] - predictions[second])))

    def _newest_values(self, count: int) -> Any:
        """Return finite values of the newest points, or an empty array if all have failed."""
        values = np.array(self.values[-count:])
        has_value = np.isfinite(values)
        if not has_value.any():
            return values[:0]
        values[~has_value] = values[has_value].max()
        return values

    def _features(self, points: Any) -> Any:
        """Return the terms of the model at points, one row per point, (n, coefficients)."""
        z = (np.asarray(points) - self._center) @ self._inverse.T
        columns = [np.ones((len(z), 1)), z]
        if self._size > self._sizes[0]:
            columns.append(z * z)
        if self._size > self._sizes[1]:
            first, second = self._pairs
            columns.append(z[:, first] * z[:, second])
        return np.hstack(columns)

    def _derivatives(self) -> tuple[Any, Any]:
        """Return the gradient at the center and the Hessian, in the model's coordinates."""
        dim = self._dim
        gradient = self._coefficients[1 : 1 + dim]
        hessian = np.zeros((dim, dim))
        if self._size > self._sizes[0]:
            hessian[np.diag_indices(dim)] = 2 * self._coefficients[1 + dim : 1 + 2 * dim]
        if self._size > self._sizes[1]:
            products = self._coefficients[1 + 2 * dim :]
            first, second = self._pairs
            hessian[first, second] = products
            hessian[second, first] = products
        return gradient, hessian


def _solve_least_squares(rows: Any, targets: Any) -> Any:
    """Return the x of least squares |rows x - targets|, shape (n,), for at least n rows.

    The triangular factor of a QR decomposition takes a quarter of the time of an SVD, which is
    left for points that do not determine all coefficients.
    """
    triangle: Any = np.linalg.qr(np.column_stack([rows, targets]), mode="r")
    count = rows.shape[1]
    square, right = triangle[:count, :count], triangle[:count, count]
    pivots = np.abs(np.diag(square))
    if pivots.min() > _SINGULAR * pivots.max():
        return np.linalg.solve(square, right)
    return np.linalg.lstsq(square, right, rcond=_SINGULAR)[0]
