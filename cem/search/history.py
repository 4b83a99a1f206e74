"""The records of all searches of one call of ``minimize``."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from cem.core.snapshot import NUMBERS, GenerationRecord

EVALUATIONS = "evaluations"
"""The metric that counts evaluations, in a search that does not evaluate all candidates."""
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
        columns: Lists by name, with one entry per recorded generation.
        evaluations, generations: The total numbers of the searches that have ended.
        best: The best fitness so far; NaN if there is none.
        new_records: The number of records that this run made itself, rather than read from the
            files of an earlier run.
        has_seen_noise: Whether the objective is noisy.
    """

    def __init__(self, maximize: bool) -> None:
        """Start an empty history."""
        self.maximize = maximize
        self.columns: dict[str, list[float]] = {name: [] for name in _COLUMNS}
        self.evaluations = 0
        self.generations = 0
        self.best = math.nan
        self.new_records = 0
        self.has_seen_noise = False

    @property
    def fitness_range(self) -> float:
        """The improvement so far: from the mean fitness of the first elites to the best one.

        It is NaN if the elites of no generation have a finite mean.
        """
        finite_means = filter(math.isfinite, self.columns["elite_mean"])
        first_mean = next(finite_means, math.nan)
        return abs(first_mean - self.columns["best_fitness"][-1])

    def better(self, a: float, b: float) -> float:
        """Return the better of two values; if ``a`` is NaN, return ``b``."""
        if math.isnan(a):
            return b
        return max(a, b) if self.maximize else min(a, b)

    def add(self, record: GenerationRecord, population_size: int, evaluations: int) -> None:
        """Add the record of a generation.

        Args:
            record: The record.
            population_size: The number of candidates per generation of this search.
            evaluations: The number of evaluations of this search so far.
        """
        columns = self.columns
        # The record has the best fitness of its search, the history that of all searches.
        self.best = self.better(self.best, record.best_fitness)
        # ``self.evaluations`` is the number of the earlier searches.
        columns["evaluations"].append(self.evaluations + evaluations)
        columns["best_fitness"].append(self.best)
        columns["population_size"].append(population_size)
        for name in ("generation_best", "elite_mean", "std_mean"):
            columns[name].append(getattr(record, name))


def parse_record(line: Mapping[str, Any], null_values: Mapping[str, float]) -> GenerationRecord:
    """Return the record of a generation from a line of a JSON file.

    JSON has no NaN and no infinity. Both are written as null, which is None here.

    Args:
        line: The values of the record by name.
        null_values: The number that null stands for, by name.
    """
    # ``NUMBERS`` has the names of a record's numbers.
    values: list[Any] = [
        null_values[name] if line[name] is None else line[name] for name in NUMBERS
    ]
    # Without a map into bounds, the line only has the mean.
    for vector in (line.get("unbounded_mean", line["mean"]), line["std"]):
        values.append(torch.tensor(vector, dtype=torch.float64))
    values.append({EVALUATIONS: line[EVALUATIONS]} if EVALUATIONS in line else {})
    return GenerationRecord(*values)
