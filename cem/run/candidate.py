"""A candidate that is evaluated on its own, and the outcome of its evaluation."""

import math
from dataclasses import dataclass
from enum import IntEnum
from textwrap import shorten
from typing import Any, NamedTuple

import torch

from cem.run.remote import add_note
from cem.run.stopping import Interrupted

_WIDTH = 200  # the longest description of an exception, in characters


class Fate(IntEnum):
    """The outcome of a candidate's evaluation. Journals store the numbers."""

    DONE = 0
    FAILED = 1  # The function raised an exception.
    LOST = 2  # The worker that evaluated the candidate died, also in all retries.
    TIMED_OUT = 3
    ABANDONED = 4  # The search ended without waiting for the candidate.


class Failure(NamedTuple):
    """Why a candidate that was evaluated on its own has no fitness.

    Attributes:
        generation: The generation in which it was drawn.
        number: Its number, see ``Candidate``.
        fate: "failed", "lost" or "timed_out", see ``Fate``.
        message: The exception of the function or of the engine, in one line.
    """

    generation: int
    number: int
    fate: str
    message: str


@dataclass(eq=False, slots=True)
class Candidate:
    """A candidate that is evaluated on its own.

    Attributes:
        number: Its index in the population. In an asynchronous search, the number of candidates
            drawn before it.
        generation: The generation in which it was drawn.
        x: The candidate, a row of a population, shape (dim,).
        row: The candidate as an array, which must not be modified.
        device: The device of the tensor that the function gets. None: it gets an array.
        owner: The search that drew it.
        origin: In an asynchronous search, the mean of the distribution from which it was drawn.
        fate: The outcome of its evaluation. None: it is not evaluated yet.
        fitness: Its fitness; NaN if there is none.
        error: The exception that ends the search. None: the search continues.
        losses: How many times the worker that evaluated it died.
        message: Why it has no fitness, in one line.
        constraints: The values of each of its constraints; empty if it failed or has none.
    """

    number: int
    generation: int
    x: Any
    row: Any
    device: torch.device | None
    owner: object = None
    origin: Any = None
    fate: Fate | None = None
    fitness: float = math.nan
    error: BaseException | None = None
    losses: int = 0
    message: str = ""
    constraints: Any = ()

    @property
    def item(self) -> tuple[int, torch.device | None, int, Any]:
        """What is sent to a worker; see ``cem.run.remote.evaluate``."""
        return self.generation, self.device, self.number, self.row

    def settle_by(self, word: str, value: Any, *constraints: Any) -> None:
        """Set the outcome from the answer of ``cem.run.remote.evaluate``.

        Raises:
            Interrupted: If the function raised it. A stop of the run is not a failure of the
                candidate, even if ``catch`` includes this exception.
        """
        if isinstance(value, Interrupted):
            raise value
        self.constraints = constraints
        if word == "RAISED":
            note = f"The candidate was number {self.number} of generation {self.generation}."
            add_note(value, note)
            self.settle(Fate.FAILED, error=value)
        elif word == "DONE":
            self.settle(Fate.DONE, value)
        else:
            self.message = describe_error(value)
            self.settle(Fate[word])

    def describe_failure(self, number: int) -> Failure:
        """Return why it has no fitness; ``number`` is its number in the whole population."""
        assert self.fate is not None, "it is not evaluated"
        return Failure(self.generation, number, self.fate.name.lower(), self.message)

    def settle(
        self, fate: Fate, fitness: float = math.nan, error: BaseException | None = None
    ) -> None:
        """Set the outcome."""
        self.fate = fate
        self.fitness = fitness
        self.error = error


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an exception in one line."""
    return shorten(f"{type(error).__name__}: {error}", _WIDTH)
