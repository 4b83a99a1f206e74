"""A quadratic model of the objective, and the importance of its parameters.

The model f is fitted to all evaluations of a call. The importance of a parameter is its total
effect: the share of the model's variance that remains when all other parameters are fixed. Let
A and B be two samples of n points, and let A_i be the points of A with parameter i taken from
B. The estimate is

    sum of (f(A) - f(A_i))^2 / (2 n Var f(A))

M. Jansen, Analysis of variance designs for model output, Computer Physics Communications 117,
1999. The parameters are sampled independently of each other, from their values in the
evaluations. If parameters interact, the sum of all shares is greater than 1.
"""

import math
from typing import Any

import numpy as np

from cem.search.evaluated import Evaluations, encode_points
from cem.search.quadratic import QuadraticModel
from cem.space import Choice, Space

MOST_PARAMETERS = 40  # The time of a fit grows with the sixth power of their number.
_POINTS_PER_COEFFICIENT = 3  # After a long search the model uses so many of its points,
_ALWAYS_FEW = 2_000  # or all of them if there are fewer than these.
_DRAWS = 4_096  # points of each sample, n in the formula


class ResponseSurface:
    """A quadratic model of the objective, fitted to evaluations.

    The model depends on numbers and choices. It ignores permutations.

    Attributes:
        evaluations: The evaluations to which the model is fitted.
        r2: The adjusted coefficient of determination: the share of the variance of the fitness
            that the model explains, adjusted for the number of coefficients. It is NaN unless
            there are more points than coefficients.
    """

    def __init__(
        self, evaluations: Evaluations, space: Space | None, num_numbers: int, maximize: bool
    ) -> None:
        """Fit the model, and determine the share of the variance that it explains.

        Args:
            evaluations: Candidates whose fitness is finite.
            space: The named parameters. None: points are vectors.
            num_numbers: The number of numeric parameters. They are the first columns of a
                candidate, before choices and permutations.
            maximize: Whether a greater fitness is better.
        """
        self.evaluations = evaluations
        self._sign = -1.0 if maximize else 1.0
        self._space = space
        self._num_numbers = num_numbers
        coordinates = self._coordinates(evaluations.candidates)
        width = coordinates.std(0)
        # A coordinate that is equal in all evaluations has no coefficients.
        self._is_used = width > 0
        self._model = QuadraticModel(int(self._is_used.sum()))
        points = coordinates[:, self._is_used]
        # ``QuadraticModel`` expects values to minimise.
        values = self._sign * evaluations.fitness
        for point, value in zip(points, values.tolist(), strict=True):
            self._model.add(point, value)
        # Inside the model, each coordinate has the mean 0 and the standard deviation 1.
        center = coordinates.mean(0)[self._is_used]
        self._model.fit(center, np.diag(width[self._is_used]), num_newest=len(points))
        self.r2 = self._find_r2()

    def _find_r2(self) -> float:
        """Return the adjusted coefficient of determination; NaN if it is not defined.

        It is 1 - (residual variance) / (total variance). Each variance is a sum of squares,
        divided by its degrees of freedom. The code divides both sums by the number of points,
        too, which cancels.
        """
        candidates, fitness = self.evaluations
        degrees_of_freedom = len(fitness) - self._model.size
        total_variance = fitness.var() / max(1, len(fitness) - 1)
        if not self.is_fitted or degrees_of_freedom <= 0 or total_variance <= 0:
            return math.nan
        residual_variance = np.square(self.predict(candidates) - fitness).mean()
        return 1.0 - float(residual_variance / degrees_of_freedom / total_variance)

    @property
    def is_fitted(self) -> bool:
        """Whether there were enough points to fit a model."""
        return self._model.is_fitted

    def __call__(self, points: Any) -> Any:
        """Return the value of the model at one or several points.

        Args:
            points: One point, for which the result is a number, or n points, for which it has
                shape (n,). A point is a vector of shape (dim,), or with named parameters a
                dict. Several points are an array of shape (n, dim), or a list of dicts.
        """
        is_single = hasattr(points, "keys") if self._space else np.ndim(points) == 1
        candidates = encode_points([points] if is_single else points, self._space)
        values = self.predict(candidates)
        return float(values[0]) if is_single else values

    def predict(self, candidates: Any) -> Any:
        """Return the values of the model, shape (n,), at candidates of shape (n, dim)."""
        points = self._coordinates(candidates)[:, self._is_used]
        return self._sign * self._model.predict(points)

    def importance(self) -> Any:
        """Return the importance of each parameter: its total effect on the model f.

        Let A and B be two samples of n points, and let A_i be the points of A with parameter i
        taken from B. The importance of parameter i is

            sum of (f(A) - f(A_i))^2 / (2 n Var f(A))

        Returns:
            An array of shape (dim,), or with named parameters a dict. The number of a
            permutation, which the model ignores, is NaN.
        """
        evaluated = self.evaluations.candidates
        dim = evaluated.shape[1]
        # Every number of the samples is that of a random evaluation in the same column. The
        # columns are independent of each other.
        row_indices = np.random.default_rng(0).integers(len(evaluated), size=(2 * _DRAWS, dim))
        both_samples = np.take_along_axis(evaluated, row_indices, axis=0)
        sample_a, sample_b = np.split(both_samples, 2)
        values = self.predict(sample_a)
        variance = max(values.var(), np.finfo(np.float64).tiny)  # not 0, the divisor below
        columns = range(dim) if self._space is None else self._space.columns.values()
        shares = []
        for column in columns:
            changed = sample_a.copy()  # becomes A_i
            changed[:, column] = sample_b[:, column]
            differences = values - self.predict(changed)
            # The estimate of a share near 1 may be above 1.
            share = min(1.0, float(np.square(differences).mean() / (2 * variance)))
            is_permutation = isinstance(column, slice)
            shares.append(math.nan if is_permutation else share)
        if self._space is None:
            return np.array(shares)
        return dict(zip(self._space.columns, shares, strict=True))

    def _coordinates(self, candidates: Any) -> Any:
        """Return the coordinates of candidates that the model uses, shape (n, k).

        The first ones are the numbers. Each choice of k values has k - 1 coordinates: one flag
        for every value but the first.
        """
        columns = [candidates[:, : self._num_numbers]]
        if self._space is not None:
            for name, column in self._space.columns.items():
                parameter = self._space.parameters[name]
                if isinstance(parameter, Choice):
                    indices = np.arange(1, len(parameter.values))
                    columns.append(candidates[:, column, None] == indices)
        return np.hstack(columns).astype(np.float64)


def fit_response(
    evaluations: Evaluations, space: Space | None, num_numbers: int, maximize: bool
) -> ResponseSurface | None:
    """Return a model of the evaluations that did not fail, or None.

    The result is None if there are too few points for a model, or more than 40 parameters.

    Args:
        evaluations: All evaluations. The fitness of failed ones is not finite.
        space: The named parameters. None: points are vectors.
        num_numbers: The number of numeric parameters. They are the first columns of a
            candidate, before choices and permutations.
        maximize: Whether a greater fitness is better.
    """
    dim = evaluations.candidates.shape[1]
    if dim > MOST_PARAMETERS:
        return None
    ranking = evaluations.ranking(maximize)
    if not len(ranking):
        return None
    # A few thousand points are enough. If there are more, use every k-th point of the ranking,
    # so that the proportion of good and bad points remains.
    num_coefficients = (dim + 1) * (dim + 2) // 2
    enough = max(_ALWAYS_FEW, _POINTS_PER_COEFFICIENT * num_coefficients)
    stride = math.ceil(len(ranking) / enough)
    chosen = ranking[::stride]
    points = Evaluations(evaluations.candidates[chosen], evaluations.fitness[chosen])
    surface = ResponseSurface(points, space, num_numbers, maximize)
    return surface if surface.is_fitted else None
