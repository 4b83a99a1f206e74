"""A candidate that is evaluated alone: its number, and what became of it."""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch

from cem.run.remote import add_note
from cem.run.stopping import Interrupted


class Fate(IntEnum):
    """What became of a candidate; a journal has the number."""

    DONE = 0
    FAILED = 1  # The function raised an exception.
    LOST = 2  # The engine lost the workers that evaluated it.
    TIMED_OUT = 3
    ABANDONED = 4  # Nobody waited for its value.


@dataclass(eq=False, slots=True)
class Candidate:
    """A candidate that is evaluated alone.

    Attributes:
        number: Its index in the population, or the number of candidates asked for before it.
        generation: The generation in which it was drawn.
        x: The candidate, a row of a population, shape (dim,).
        row: The same as an array, which must not be changed.
        device: The device of the tensor that the function gets; None: it gets an array.
        owner: The search that asked for it.
        fate: What became of it; None: it is being evaluated.
        fitness: Its fitness; NaN if there is none.
        error: An exception that ends the search.
        losses: How many times it was lost.
    """

    number: int
    generation: int
    x: Any
    row: Any
    device: torch.device | None
    owner: object = None
    fate: Fate | None = None
    fitness: float = math.nan
    error: BaseException | None = None
    losses: int = 0

    @property
    def item(self) -> tuple[int, torch.device | None, int, Any]:
        """What a worker gets."""
        return self.generation, self.device, self.number, self.row

    def settle_by(self, word: str, value: Any) -> None:
        """Set what became of it by the answer of ``cem.run.remote.evaluate``.

        Raises:
            Interrupted: If the function raised it. A stop of the run is no failure of the
                candidate, even if ``catch`` includes it.
        """
        if isinstance(value, Interrupted):
            raise value
        if word == "RAISED":
            note = f"The candidate was number {self.number} of generation {self.generation}."
            add_note(value, note)
            self.settle(Fate.FAILED, error=value)
        elif word == "DONE":
            self.settle(Fate.DONE, value)
        else:
            self.settle(Fate[word])

    def settle(
        self, fate: Fate, fitness: float = math.nan, error: BaseException | None = None
    ) -> None:
        """Set what became of it."""
        self.fate = fate
        self.fitness = fitness
        self.error = error
