"""What a call of ``minimize`` has recorded, over all of its searches."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from cem.core.snapshot import NUMBERS, GenerationRecord

EVALUATIONS = "evaluations"
"""The metric of a search that does not evaluate all candidates: its evaluations so far."""
_COLUMNS = (
    "evaluations",
    "best_fitness",
    "generation_best",
    "elite_mean",
    "std_mean",
    "population_size",
)


class History:
    """The recorded generations of all searches.

    Attributes:
        maximize: Whether a greater fitness is better.
        columns: Lists of one entry per generation that was recorded, by name.
        evaluations, generations: How many the searches that have ended used.
        new_records: The number of records that were not read from the files of an earlier run.
        has_seen_noise: Whether the objective is noisy.
    """

    def __init__(self, maximize: bool) -> None:
        """Begin without a record."""
        self.maximize = maximize
        self.columns: dict[str, list[float]] = {name: [] for name in _COLUMNS}
        self.evaluations = 0
        self.generations = 0
        self.new_records = 0
        self.has_seen_noise = False

    @property
    def fitness_range(self) -> float:
        """The distance from the mean fitness of the first elites to the best fitness.

        It is NaN if no generation has a finite mean of its elites.
        """
        finite_means = filter(math.isfinite, self.columns["elite_mean"])
        first_mean = next(finite_means, math.nan)
        return abs(first_mean - self.columns["best_fitness"][-1])

    def better(self, a: float, b: float) -> float:
        """Return the better of two values, ``b`` if ``a`` is NaN."""
        if math.isnan(a):
            return b
        return max(a, b) if self.maximize else min(a, b)

    def add(self, record: GenerationRecord, population_size: int, evaluations: int) -> None:
        """Add the record of a generation of the current search, after its evaluations."""
        columns = self.columns
        best = record.best_fitness
        if columns["best_fitness"]:
            best = self.better(columns["best_fitness"][-1], best)
        columns["evaluations"].append(self.evaluations + evaluations)
        columns["best_fitness"].append(best)
        columns["population_size"].append(population_size)
        for name in ("generation_best", "elite_mean", "std_mean"):
            columns[name].append(getattr(record, name))


def parse_record(
    line: Mapping[str, Any], best_if_missing: float, missing: float
) -> GenerationRecord:
    """Return the record of a generation from a line of a JSON file.

    A number that is not finite is null in the file.

    Args:
        line: The values of the record by name.
        best_if_missing: What null stands for as ``best_fitness``, as long as no candidate is
            feasible.
        missing: What null stands for elsewhere: NaN of a generation that failed, or the
            infinity on the good side.
    """
    numbers: dict[str, Any] = {
        name: missing if line[name] is None else line[name] for name in NUMBERS
    }
    if line["best_fitness"] is None:
        numbers["best_fitness"] = best_if_missing
    vectors: dict[str, Any] = {
        name: torch.tensor(line[name], dtype=torch.float64) for name in ("mean", "std")
    }
    metrics = {EVALUATIONS: line[EVALUATIONS]} if EVALUATIONS in line else {}
    return GenerationRecord(**numbers, **vectors, metrics=metrics)
