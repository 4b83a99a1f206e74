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
"""Metrics by which a search that is resumed knows what was evaluated before."""


@dataclass
class NoiseDetector:
    """An objective that evaluates the first mean twice, in the first two generations.

    Attributes:
        evaluate: The objective.
        mean: The first mean as a candidate, shape (dim,).
    """

    evaluate: Objective
    mean: Tensor
    # The fitness of the mean, and the range of the first generation.
    _first: tuple[float, float] | None = None
    _difference: float = 0.0
    _noisy_from: float = math.inf  # the first generation by which noise was seen

    def has_seen_noise(self, generation: int) -> bool:
        """Return whether noise was seen by the end of so many generations."""
        return generation >= self._noisy_from

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Evaluate a population, which may be changed."""
        if generation > 1:
            return self._with_difference(as_evaluation(self.evaluate(candidates, generation)))
        candidates[0] = self.mean
        evaluation = as_evaluation(self.evaluate(copy_of(candidates), generation))
        if evaluation.candidates is not None:
            return evaluation
        evaluation = replace(evaluation, candidates=candidates)
        values = torch.as_tensor(evaluation.fitness).double()
        value = values[0].item()
        if generation == 0 and math.isfinite(value):
            finite = values[values.isfinite()]
            spread = float(finite.max() - finite.min())
            self._first = value, max(spread, abs(value))
            metrics = {_VALUE: value, _RANGE: self._first[1]}
            return replace(evaluation, metrics={**evaluation.metrics, **metrics})
        if generation == 1 and self._first is not None:
            first_value, scale = self._first
            difference = abs(value - first_value)
            if difference > _NOISY * scale:
                self._difference, self._noisy_from = difference, 2
        return self._with_difference(evaluation)

    def restore(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Take up what the lines of a file of records say of the first mean."""
        value, scale = lines[0].get(_VALUE), lines[0].get(_RANGE)
        if value is not None and scale is not None:
            self._first = value, scale
        for line in lines:
            if _DIFFERENCE in line and not self._difference:
                self._difference, self._noisy_from = line[_DIFFERENCE], line["generation"]

    def _with_difference(self, evaluation: Evaluation) -> Evaluation:
        if not self._difference:
            return evaluation
        return replace(
            evaluation, metrics={**evaluation.metrics, _DIFFERENCE: self._difference}
        )
