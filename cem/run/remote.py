"""The code that a worker runs to evaluate a candidate.

A worker may run on another machine, without this package and without PyTorch: a ``Task`` is
sent there together with the source of this file. Therefore this file only imports the standard
library, and PyTorch if candidates are tensors.
"""

import math
import pickle
import reprlib
import sys
import traceback
from numbers import Real
from typing import Any

NUM_REMEMBERED = 4  # the number of objectives that a worker keeps

# An expression that returns a task. A process executes the source of this file once, and keeps
# the class ``Task`` in a dict of the module ``sys``.
_BUILD = (
    "((tasks := vars(__import__('sys')).setdefault('_cem_tasks', {})).get(source)"
    " or exec(source, scope) or tasks.setdefault(source, scope['Task']))"
    "(source, key, objective, True)"
)


class Task:
    """Evaluates candidates in a worker, which keeps the objective for further tasks.

    Attributes:
        source: The source of this file.
        key: The name under which a worker keeps the objective.
        objective: The objective, as for ``evaluate``. None: the worker has it already.
        is_remote: Whether this task has been sent to another process.
    """

    def __init__(
        self, source: str, key: str, objective: Any = None, is_remote: bool = False
    ) -> None:
        """Set the attributes."""
        self.source = source
        self.key = key
        self.objective = objective
        self.is_remote = is_remote

    def __reduce__(self) -> Any:
        """Pickle the task as a call of ``eval``, for a process that cannot import this file."""
        names = {
            "source": self.source,
            "scope": {"__name__": "cem_worker"},
            "key": self.key,
            "objective": self.objective,
        }
        return eval, (_BUILD, names)

    def __call__(self, item: Any) -> tuple[Any, ...]:
        """Evaluate a candidate, see ``evaluate``.

        Returns:
            The result of ``evaluate``, or ("UNKNOWN", None) if this process does not have the
            objective.
        """
        # The objectives that this process keeps, by key. They are stored in the module ``sys``,
        # because that is shared by all tasks of a process.
        objectives: dict[str, Any] = vars(sys).setdefault("_cem_objectives", {})
        if self.objective is not None:
            objectives[self.key] = self.objective
            if len(objectives) > NUM_REMEMBERED:
                oldest_key = next(iter(objectives))
                objectives.pop(oldest_key, None)
        objective = objectives.get(self.key)
        if objective is None:
            return "UNKNOWN", None
        word, value, *constraints = evaluate(objective, item)
        if self.is_remote and isinstance(value, Exception):
            value = make_sendable(value)
        return word, value, *constraints


def evaluate(objective: Any, item: Any) -> tuple[Any, ...]:
    """Evaluate a candidate: its fitness, and then its constraints.

    Args:
        objective: A tuple (function, num_arguments, catch, *constraints). The function returns
            the fitness of a candidate; it takes the candidate or, if ``num_arguments`` is 2,
            the candidate and the generation. ``catch`` are the exceptions that mean that a
            candidate failed. The others are those of ``evaluate_constraints``.
        item: A tuple (generation, device, number, row). ``row`` is the candidate, an array of
            shape (dim,). The function gets it as a tensor on ``device`` or, if the device is
            None, as an array. ``number`` is the candidate's number, which is not used here.

    Returns:
        A tuple (word, value, *constraints): "DONE" and the fitness; "FAILED" and the exception,
        which is one of ``catch``; or "RAISED" and another exception. The result of
        ``evaluate_constraints`` follows, unless this raised the exception.
    """
    function, num_arguments, catch, *constraints = objective
    generation, device, _, row = item
    arguments = (copy_row(row, device), generation)[:num_arguments]
    word, value = _evaluate_function(function, arguments, catch)
    if word == "RAISED":
        return word, value
    try:
        # A failed candidate has constraints, too: the objective may be undefined outside.
        return word, value, *evaluate_constraints(constraints, row, device)
    except catch as error:
        return "FAILED", error
    except Exception as error:
        return "RAISED", error


def _evaluate_function(function: Any, arguments: Any, catch: Any) -> tuple[str, Any]:
    """Return the fitness that a function returns, as the first two results of ``evaluate``."""
    try:
        value = function(*arguments)
    except catch as error:
        return "FAILED", error
    except Exception as error:
        return "RAISED", error
    # A tensor or array without dimensions becomes a number, and a masked one NaN. So does the
    # value of a single parameter, which ``(x - 3) ** 2`` returns in the shape of x.
    shape = getattr(value, "shape", None)
    if shape == () or shape == getattr(arguments[0], "shape", None) == (1,):
        is_masked = getattr(value, "mask", False)
        value = math.nan if is_masked else value.item()
    if not isinstance(value, Real):
        message = (
            "expected a number as the fitness of a candidate, of residuals the sum of their "
            f"squares, got {reprlib.repr(value)}"
        )
        return "RAISED", TypeError(message)
    return "DONE", float(value)


def evaluate_constraints(constraints: Any, row: Any, device: Any) -> list[Any]:
    """Return the values of each constraint of a candidate.

    Args:
        constraints: Tuples (function, takes_floats, *arguments). The function takes the
            candidate and the arguments. With ``takes_floats`` it gets the candidate as an array
            of float64, and otherwise as the objective does.
        row: The candidate, as in ``evaluate``.
        device: Its device, as in ``evaluate``.
    """
    outcomes = []
    for function, takes_floats, *arguments in constraints:
        candidate = row.astype(float) if takes_floats else copy_row(row, device)
        values = function(candidate, *arguments)
        # A process would send a tensor as a file that both processes keep open.
        outcomes.append(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    return outcomes


def copy_row(row: Any, device: Any) -> Any:
    """Return a copy of an array, as a tensor on a device unless that is None."""
    if device is None:
        return row.copy()
    import torch

    return torch.tensor(row, device=device)


def make_sendable(error: Exception) -> Exception:
    """Add the traceback to an exception as a note, and return the exception.

    If the exception cannot be pickled, return a RuntimeError with the traceback as its message.
    """
    text = "".join(traceback.format_exception(error))
    add_note(error, text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception; before Python 3.11 do nothing."""
    if hasattr(error, "add_note"):
        error.add_note(note)
