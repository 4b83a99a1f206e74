"""Whether an objective is noisy: its first mean is evaluated twice."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation, copy_of

# Two values that differ by more, as a share of the range of the first generation, are noise.
_NOISY = 1e-6
_VALUE = "first_mean_fitness"
_RANGE = "first_fitness_range"
_DIFFERENCE = "first_mean_difference"
"""Metrics of a generation from which a resumed search restores the detector."""


@dataclass
class NoiseDetector:
    """An objective that evaluates the first mean twice, in the first two generations.

    Attributes:
        evaluate: The objective.
        mean: The first mean as a candidate, shape (dim,).
    """

    evaluate: Objective
    mean: Tensor
    _first_fitness: float | None = None  # of the mean in generation 0
    _scale: float = 0.0  # of the fitness in generation 0
    _difference: float = 0.0  # between the two values of the mean; 0 while no noise is seen
    _noisy_from: float = math.inf  # the number of generations after which noise was seen

    def has_seen_noise(self, generation: int) -> bool:
        """Return whether noise was seen in the first ``generation`` generations."""
        return generation >= self._noisy_from

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Evaluate a population; in generations 0 and 1 its first candidate is the first mean.

        If the mean has another fitness in generation 1 than in generation 0, the objective is
        noisy, and a metric has the difference from then on.

        Args:
            candidates: The candidates, shape (N, dim). Row 0 is overwritten in generations 0
                and 1, and the evaluation then says which candidates were evaluated.
            generation: The number of the generation, from 0.
        """
        if generation > 1:
            evaluation = as_evaluation(self.evaluate(candidates, generation))
            return self._add_difference(evaluation)
        candidates[0] = self.mean
        evaluation = as_evaluation(self.evaluate(copy_of(candidates), generation))
        if evaluation.candidates is not None:
            # The objective has evaluated other candidates, and so perhaps not the mean.
            return evaluation
        evaluation = replace(evaluation, candidates=candidates)
        fitness = torch.as_tensor(evaluation.fitness).double()
        mean_fitness = fitness[0].item()
        if generation == 0 and math.isfinite(mean_fitness):
            finite = fitness[fitness.isfinite()]
            fitness_range = float(finite.max() - finite.min())
            self._first_fitness = mean_fitness
            # Rounding errors are relative to the fitness, which may be greater than the range.
            self._scale = max(fitness_range, abs(mean_fitness))
            metrics = {_VALUE: mean_fitness, _RANGE: self._scale}
            return replace(evaluation, metrics={**evaluation.metrics, **metrics})
        if generation == 1 and self._first_fitness is not None:
            difference = abs(mean_fitness - self._first_fitness)
            if difference > _NOISY * self._scale:
                self._difference = difference
                self._noisy_from = 2  # after generations 0 and 1
        return self._add_difference(evaluation)

    def restore(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Restore what the detector knew from the metrics of recorded generations."""
        first_fitness, scale = lines[0].get(_VALUE), lines[0].get(_RANGE)
        if first_fitness is not None and scale is not None:
            self._first_fitness = first_fitness
            self._scale = scale
        for line in lines:
            if _DIFFERENCE in line and not self._difference:
                self._difference = line[_DIFFERENCE]
                self._noisy_from = line["generation"]

    def _add_difference(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation with the difference of the mean as a metric, if it has one."""
        if not self._difference:
            return evaluation
        metrics = {**evaluation.metrics, _DIFFERENCE: self._difference}
        return replace(evaluation, metrics=metrics)
