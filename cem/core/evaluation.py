"""The evaluation of a population by an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Evaluation:
    """The fitness of a population, with metrics.

    Examples:
        >>> import torch
        >>> from cem import Evaluation
        >>> fitness = torch.tensor([3.0, 0.0, 7.0])
        >>> evaluation = Evaluation(fitness, {"board": 10, "lines": fitness.sum()}, rates=["lines"])

    An objective that queues its work on a GPU gives metrics as tensors: a number would wait for the GPU.

    Attributes:
        fitness: The fitness of each candidate, shape (..., population), any real dtype and device.
        metrics: Other figures by name: numbers, or real tensors with one element on any device. A tensor is
            recorded with its current value, as an int if its dtype is integral.
        candidates: The candidates evaluated, shape (..., population, dim), if they are not those of
            ``ask()``.
        rates: The names of metrics that are counts of this generation. Each is recorded per second, too,
            after all metrics: "lines/s" for "lines". The seconds are those of a generation.

    Raises:
        ValueError: If a rate has the name of a metric.
    """

    fitness: Tensor
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)
    candidates: Tensor | None = None
    rates: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.rates:
            if f"{name}/s" in self.metrics:
                raise ValueError(f"expected no metric {name}/s beside the rate of {name}")


Objective = Callable[[Tensor, Any], "Tensor | Evaluation"]
"""Maps (candidates, generation) to fitness: candidates as ``ask()`` gives them, generation = 0 for the first.

The generation is an int; in a CUDA graph it is a tensor of shape () on the device. To be resumable bit for
bit it must be a function of these two alone."""


def as_evaluation(found: Any) -> Evaluation:
    """Return what an objective gave as an ``Evaluation``."""
    return found if isinstance(found, Evaluation) else Evaluation(found)


def call_with_copies(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a user's function says of copies of tensors and arrays: it may change its arguments.

    In a CUDA graph a copy would be one kernel more in every replay. There it gets the tensors themselves.

    Raises:
        ValueError: If a function that is captured in a CUDA graph changes an argument in place.
    """
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    on_gpu = any(tensor.is_cuda for tensor in tensors) and not torch.is_inference_mode_enabled()
    if not (on_gpu and torch.cuda.is_current_stream_capturing()):
        return function(*map(copy_of, arguments))
    versions = [tensor._version for tensor in tensors]
    result = function(*arguments)
    if versions != [tensor._version for tensor in tensors]:
        raise ValueError(
            "expected a function that leaves its arguments as they are in a CUDA graph, got one changed in "
            "place: let it begin with a copy, x = x.clone()"
        )
    return result


def copy_of(argument: Any) -> Any:
    """Return a copy of a tensor or an array, and anything else as it is."""
    if isinstance(argument, Tensor):
        return argument.clone()
    return argument.copy() if isinstance(argument, np.ndarray) else argument
