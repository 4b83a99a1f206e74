"""What a worker does with a candidate.

A worker may run on another machine, and need neither this package nor PyTorch: a ``Task`` is
sent there with the source of this file. So this file imports the standard library alone, but
for candidates that are tensors.
"""

import pickle
import sys
import traceback
from numbers import Real
from typing import Any

NUM_REMEMBERED = 4  # objectives in the memory of a worker

# An expression that returns a task. The class comes from the source of this file, which a
# process executes once: then it is in a dict that all parts of the process can reach.
_BUILD = (
    "((tasks := vars(__import__('sys')).setdefault('_cem_tasks', {})).get(source)"
    " or exec(source, scope) or tasks.setdefault(source, scope['Task']))"
    "(source, key, objective, True)"
)


class Task:
    """Evaluates candidates by an objective, which is sent to a worker once.

    Attributes:
        source: The text of this file.
        key: The name by which a worker remembers the objective.
        objective: The function, the number of its arguments, and the exceptions by which a
            candidate fails. None: the worker should know it.
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
        names = {
            "source": self.source,
            "scope": {"__name__": "cem_worker"},
            "key": self.key,
            "objective": self.objective,
        }
        return eval, (_BUILD, names)

    def __call__(self, item: Any) -> tuple[str, Any]:
        """Return what ``evaluate`` does, or "UNKNOWN" if this process lacks the objective."""
        objectives: dict[str, Any] = vars(sys).setdefault("_cem_objectives", {})
        if self.objective is not None:
            objectives[self.key] = self.objective
            if len(objectives) > NUM_REMEMBERED:
                objectives.pop(next(iter(objectives)), None)
        objective = objectives.get(self.key)
        if objective is None:
            return "UNKNOWN", None
        fate, value = evaluate(objective, item)
        if self.is_remote and isinstance(value, Exception):
            value = make_sendable(value)
        return fate, value


def evaluate(objective: Any, item: Any) -> tuple[str, Any]:
    """Return the fate of a candidate, and its fitness or the exception of the function.

    The fate is "DONE"; "FAILED" by an exception of ``catch``; or "RAISED" by another one.

    Args:
        objective: Three values: a function of a candidate, and perhaps the generation, to a
            number; the number of its arguments, 1 or 2; and the exceptions ``catch``.
        item: Four values: the generation; the device of a tensor, or None for an array; the
            number of the candidate; and its values, an array of shape (dim,).
    """
    function, num_arguments, catch = objective
    generation, device, _, row = item
    try:
        candidate = row.copy() if device is None else make_tensor(row, device)
        arguments = (candidate, generation)[:num_arguments]
        value = function(*arguments)
    except catch as error:
        return "FAILED", error
    except Exception as error:
        return "RAISED", error
    if getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, Real):
        message = f"expected a number as the fitness of a candidate, got {value!r}"
        return "RAISED", TypeError(message)
    return "DONE", float(value)


def make_tensor(row: Any, device: Any) -> Any:
    """Return an array as a tensor on a device."""
    import torch

    return torch.tensor(row, device=device)


def make_sendable(error: Exception) -> Exception:
    """Return an exception with its traceback as a note, or one of that text if unpicklable."""
    text = "".join(traceback.format_exception(error))
    add_note(error, text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, where Python, from 3.11 on, can."""
    if hasattr(error, "add_note"):
        error.add_note(note)
