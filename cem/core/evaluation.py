"""The evaluation of a population by an objective."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import as_torch_takes_it


@dataclass(frozen=True)
class Evaluation:
    """The fitness of a population, with metrics.

    Examples:
        >>> import torch
        >>> from cem import Evaluation
        >>> fitness = torch.tensor([3.0, 0.0, 7.0])
        >>> metrics = {"board": 10, "lines": fitness.sum()}
        >>> evaluation = Evaluation(fitness, metrics, rates=["lines"])

    An objective that queues its work on a GPU should return metrics as tensors, because
    converting them to numbers would wait for the GPU.

    Attributes:
        fitness: The fitness of each candidate, shape (..., population), any real dtype and
            device. A masked number of NumPy becomes NaN.
        metrics: Other values by name: numbers, or real tensors with one element on any device.
            The current value of a tensor is recorded, as an int if its dtype is integral.
        candidates: The candidates that were evaluated, shape (..., population, dim), if they
            are not those of ``ask()``.
        lag: How far the mean has moved since the candidates were drawn, shape (dim,): the
            average over the candidates. None: it has not moved.
        rates: The names of metrics that are counts of this generation. They are also recorded
            per second, after all metrics: "lines/s" for "lines". The time is that of a
            generation.

    Raises:
        ValueError: If a rate has the name of a metric.
    """

    fitness: Tensor
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)
    candidates: Tensor | None = None
    rates: Sequence[str] = ()
    lag: Tensor | None = None

    def __post_init__(self) -> None:
        # The dataclass is frozen, which forbids a plain assignment.
        object.__setattr__(self, "fitness", as_torch_takes_it(self.fitness))
        for name in self.rates:
            if f"{name}/s" in self.metrics:
                raise ValueError(f"expected no metric {name}/s beside the rate of {name}")


Objective = Callable[[Tensor, Any], "Tensor | Evaluation"]
"""Maps (candidates, generation) to fitness.

Candidates are those of ``ask()``; generations are counted from 0. The generation is an int; in
a CUDA graph it is a tensor of shape () on the device. A run can only be resumed bit for bit if
the objective is a function of these two alone.
"""


def as_evaluation(result: Any) -> Evaluation:
    """Return the result of an objective, fitness or an ``Evaluation``, as an ``Evaluation``."""
    return result if isinstance(result, Evaluation) else Evaluation(result)


def call_with_copies(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function with copies of tensors and arrays, because it may change them.

    During the capture of a CUDA graph the function is called with the tensors themselves,
    because every copy would cost a kernel in every replay.

    Raises:
        ValueError: If a function that is captured in a CUDA graph changes an argument in place.
    """
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    # In inference mode tensors have no versions, which are compared below.
    may_capture = not torch.is_inference_mode_enabled() and any(x.is_cuda for x in tensors)
    is_capturing = may_capture and torch.cuda.is_current_stream_capturing()
    if not is_capturing:
        return function(*map(copy_of, arguments))
    # A change in place increases the version of a tensor.
    versions = [tensor._version for tensor in tensors]
    result = function(*arguments)
    if versions != [tensor._version for tensor in tensors]:
        raise ValueError(
            "expected a function that leaves its arguments as they are in a CUDA graph, "
            "got one changed in place: let it begin with a copy, x = x.clone()"
        )
    return result


def copy_of(argument: Any) -> Any:
    """Return a copy of a tensor or an array. Other arguments are returned unchanged."""
    if isinstance(argument, Tensor):
        return argument.clone()
    if isinstance(argument, np.ndarray):
        return argument.copy()
    return argument
