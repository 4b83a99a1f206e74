"""What the evaluations of a call say about its parameters: a quadratic model of all of them.

The importance of a parameter is its total effect on the model: the share of the variance that
is left when all other parameters are known. With A and B two draws of n points, and A_i the
points of A with the parameter i of those of B, it is estimated by

    sum of (f(A) - f(A_i))^2 / (2 n Var f(A))

M. Jansen, Analysis of variance designs for model output, Computer Physics Communications 117,
1999. Every parameter is drawn alone, from its values in the evaluations that the model has.
Where parameters act together the shares add up to more than 1.
"""

import math
from typing import Any

import numpy as np

from cem.search.evaluated import Evaluations, encode_points
from cem.search.quadratic import QuadraticModel
from cem.space import Choice, Space

MOST_PARAMETERS = 40  # Fitting a model takes the time of their sixth power.
_PER_COEFFICIENT = 3  # points that are enough for the model
_MOST_POINTS = 2_000  # points that are always few enough
_DRAWS = 4_096


class ResponseSurface:
    """A quadratic model of the objective, fitted to the evaluations.

    It is a model of numbers and choices; the order of a permutation has no influence on it.

    Attributes:
        evaluations: The evaluations that it is fitted to.
        r2: The share of the variance of their fitness that it explains, adjusted for the number
            of coefficients; NaN if there are not more points than coefficients.
    """

    def __init__(
        self, evaluations: Evaluations, space: Space | None, normal: int, maximize: bool
    ) -> None:
        """Fit the model to candidates with finite fitness; see ``fit_response``."""
        self.evaluations = evaluations
        self._sign = -1.0 if maximize else 1.0
        self._space = space
        self._normal = normal
        coordinates = self._coordinates(evaluations.candidates)
        width = coordinates.std(0)
        self._is_used = width > 0
        dim = int(self._is_used.sum())
        self._model = QuadraticModel(dim)
        points = coordinates[:, self._is_used]
        values = self._sign * evaluations.fitness
        for point, value in zip(points, values.tolist(), strict=True):
            self._model.add(point, value)
        center = coordinates.mean(0)[self._is_used]
        self._model.fit(center, np.diag(width[self._is_used]), len(coordinates))
        self.r2 = math.nan
        freedom = len(coordinates) - self._model.size
        total = evaluations.fitness.var() / max(1, len(coordinates) - 1)
        if self.is_fitted and freedom > 0 and total > 0:
            residuals = self.predict(evaluations.candidates) - evaluations.fitness
            self.r2 = 1.0 - float(np.square(residuals).mean() / freedom / total)

    @property
    def is_fitted(self) -> bool:
        """Whether there were enough points."""
        return self._model.is_fitted

    def __call__(self, points: Any) -> Any:
        """Return the model's value at points of the objective's parameters.

        Args:
            points: Vectors, shape (n, dim), or a list of dicts; the result has shape (n,). Or
                one of them, of which it is a number.
        """
        is_single = hasattr(points, "keys") if self._space else np.ndim(points) == 1
        candidates = encode_points([points] if is_single else points, self._space)
        values = self.predict(candidates)
        return float(values[0]) if is_single else values

    def predict(self, candidates: Any) -> Any:
        """Return the model's values at candidates, shape (n, dim); the result has (n,)."""
        points = self._coordinates(candidates)[:, self._is_used]
        return self._sign * self._model.predict(points)

    def importance(self) -> Any:
        """Return the importance of every column of candidates, or of every named parameter."""
        known = self.evaluations.candidates
        dim = known.shape[1]
        rows = np.random.default_rng(0).integers(len(known), size=(2 * _DRAWS, dim))
        first, second = np.split(np.take_along_axis(known, rows, 0), 2)
        values = self.predict(first)
        variance = max(values.var(), np.finfo(np.float64).tiny)
        columns = range(dim) if self._space is None else self._space.columns.values()
        shares = []
        for column in columns:
            changed = first.copy()
            changed[:, column] = second[:, column]
            differences = values - self.predict(changed)
            shares.append(float(np.square(differences).mean() / (2 * variance)))
        if self._space is None:
            return np.array(shares)
        return dict(zip(self._space.columns, shares, strict=True))

    def _coordinates(self, candidates: Any) -> Any:
        """Return candidates with an indicator for every choice but the first, (n, k)."""
        columns = [candidates[:, : self._normal]]
        if self._space is not None:
            for name, column in self._space.columns.items():
                parameter = self._space.parameters[name]
                if isinstance(parameter, Choice):
                    indices = np.arange(1, len(parameter.values))
                    columns.append(candidates[:, column, None] == indices)
        return np.hstack(columns).astype(np.float64)


def fit_response(
    evaluations: Evaluations, space: Space | None, normal: int, maximize: bool
) -> ResponseSurface | None:
    """Return a model of evaluations that have a value; None if they are too few.

    Of many points every k-th by rank is enough. There is no model of more than 40 parameters.

    Args:
        evaluations: All evaluations, in which a fitness may not be finite.
        space: The named parameters; None: points are vectors.
        normal: The number of the first columns of candidates, which hold numbers.
        maximize: Whether a greater fitness is better.
    """
    dim = evaluations.candidates.shape[1]
    if dim > MOST_PARAMETERS:
        return None
    ranking = evaluations.ranking(maximize)
    if not len(ranking):
        return None
    coefficients = (dim + 1) * (dim + 2) // 2
    enough = _PER_COEFFICIENT * coefficients
    stride = math.ceil(len(ranking) / max(_MOST_POINTS, enough))
    chosen = ranking[::stride]
    points = Evaluations(evaluations.candidates[chosen], evaluations.fitness[chosen])
    surface = ResponseSurface(points, space, normal, maximize)
    return surface if surface.is_fitted else None
