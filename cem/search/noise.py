"""A detector of noisy objectives, which evaluates the first mean twice."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from cem.core.checks import to_tensor
from cem.core.evaluation import Evaluation, Objective, as_evaluation, copy_of

# Two values of the mean are noisy if they differ by more, relative to the range of fitness in
# the first generation.
_NOISY = 1e-6
# Metrics of a generation, from which a resumed search restores the detector.
_VALUE = "first_mean_fitness"
_RANGE = "first_fitness_range"
_DIFFERENCE = "first_mean_difference"


@dataclass
class NoiseDetector:
    """An objective that evaluates the first mean in both of the first two generations.

    Attributes:
        evaluate: The objective.
        mean: The first mean as a candidate, shape (dim,).
        check_rows: Raises an error if the objective mixes candidates, which seems to be noise:
            ``Evaluator.check_rows``. None: no evaluation is left for it.
    """

    evaluate: Objective
    mean: Tensor
    check_rows: Callable[[Any, Any, Any], None] | None
    _first_fitness: float | None = None  # of the mean in generation 0
    _scale: float = 0.0  # the range of fitness in generation 0
    _difference: float = 0.0  # between the two values of the mean; 0 without noise

    def has_seen_noise(self, generation: int) -> bool:
        """Return whether noise was detected in the first ``generation`` generations."""
        # It is detected in generation 1, but the record of generation 0 may come after that.
        return self._difference > 0.0 and generation > 1

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Evaluate a population, and detect noise in generations 0 and 1.

        In these two generations, the first mean of the search replaces the first candidate. If
        its two fitness values differ, the objective is noisy: the metrics of this and all later
        evaluations then contain the difference.

        Args:
            candidates: The candidates, shape (N, dim). In generations 0 and 1 this function
                overwrites row 0, and the evaluation contains the candidates.
            generation: The number of the generation, from 0.
        """
        if generation > 1:
            evaluation = as_evaluation(self.evaluate(candidates, generation))
            return self._add_difference(evaluation)
        # ``mean`` is the first mean of the search, in generation 1, too.
        candidates[0] = self.mean
        # The objective gets a copy, because it may change its argument.
        evaluation = as_evaluation(self.evaluate(copy_of(candidates), generation))
        if evaluation.candidates is not None:
            # The objective has evaluated other candidates. The mean may not be among them.
            return evaluation
        evaluation = replace(evaluation, candidates=candidates)
        fitness = to_tensor(evaluation.fitness).double()
        if generation == 0:
            metrics = self._store_first(fitness)
            return replace(evaluation, metrics={**evaluation.metrics, **metrics})
        self._compare_with_first(fitness[0].item())
        if self._difference and self.check_rows is not None:
            self.check_rows(candidates, generation, fitness)
        return self._add_difference(evaluation)

    def _store_first(self, fitness: Tensor) -> dict[str, float]:
        """Store the fitness of the mean in generation 0, and the range of all fitness.

        Returns:
            What was stored, as metrics from which a resumed search restores the detector. The
            dict is empty, and nothing is stored, if the fitness of the mean is not finite.
        """
        mean_fitness = fitness[0].item()
        if not math.isfinite(mean_fitness):
            return {}
        finite = fitness[fitness.isfinite()]
        fitness_range = float(finite.max() - finite.min())
        self._first_fitness = mean_fitness
        # Rounding errors grow with the fitness, which may be much greater than its range.
        self._scale = max(fitness_range, abs(mean_fitness))
        return {_VALUE: mean_fitness, _RANGE: self._scale}

    def _compare_with_first(self, mean_fitness: float) -> None:
        """Compare the fitness of the mean in generation 1 with the first one, to find noise."""
        if self._first_fitness is None or not math.isfinite(mean_fitness):
            return  # A failure is no noise.
        difference = abs(mean_fitness - self._first_fitness)
        if difference > _NOISY * self._scale:
            self._difference = difference

    def restore(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Restore the detector from the records of earlier generations."""
        first_fitness = lines[0].get(_VALUE)
        scale = lines[0].get(_RANGE)
        if first_fitness is not None and scale is not None:
            self._first_fitness = first_fitness
            self._scale = scale
        # If noise was detected, all records from the second generation on have the difference.
        self._difference = lines[-1].get(_DIFFERENCE, 0.0)

    def _add_difference(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation; if noise was detected, its metrics contain the difference."""
        if not self._difference:
            return evaluation
        metrics = {**evaluation.metrics, _DIFFERENCE: self._difference}
        return replace(evaluation, metrics=metrics)
