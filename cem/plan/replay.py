"""The steps of a planner as CUDA graphs: captured once for each kind of task, then replayed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cem.plan.memory import Memory
from cem.plan.search import Result, Task

_WARM_UP = 3  # calls on a side stream before a capture, as torch.cuda.graph requires
_MOST_CAPTURES = 8

Step = Callable[[Task, Memory, int], tuple[Memory, Result]]
"""Maps (task, memory, shift) to the next memory and the result."""


class Capture(NamedTuple):
    """A step that was captured in a CUDA graph.

    Attributes:
        kind: The kind of task, by which it is found again.
        leaves: The parts of the task; a replay reads the tensors among them.
        graph: The graph.
        result: The result, which a replay overwrites.
    """

    kind: list[Any]
    leaves: list[Any]
    graph: torch.cuda.CUDAGraph
    result: Result


class Replayer:
    """Takes the steps of a planner by CUDA graphs, the last few of which it keeps."""

    def __init__(self, step: Step, device: torch.device) -> None:
        """Make a replayer that has captured nothing yet."""
        self._step = step
        self._device = device
        self._captures: list[Capture] = []

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the CUDA graphs, which a copy captures again."""
        return {**self.__dict__, "_captures": []}

    def take_step(self, task: Task, memory: Memory, shift: int) -> Result:
        """Take a step, which overwrites the memory; return the result.

        The memory must be the same tensors in every call.
        """
        leaves, structure = pytree.tree_flatten(task)
        kind = [shift, structure, *map(_describe, leaves)]
        with torch.cuda.device(self._device):
            capture = self._find(kind)
            if capture is None:
                static_leaves = [_copy(leaf) for leaf in leaves]
                static_task = pytree.tree_unflatten(static_leaves, structure)
                graph, result = self._capture(static_task, memory, shift)
                capture = Capture(kind, static_leaves, graph, result)
                self._captures = [*self._captures[1 - _MOST_CAPTURES :], capture]
            for static, leaf in zip(capture.leaves, leaves, strict=True):
                if isinstance(leaf, Tensor):
                    static.copy_(leaf)
            capture.graph.replay()
        return capture.result

    def _find(self, kind: list[Any]) -> Capture | None:
        return next((capture for capture in self._captures if capture.kind == kind), None)

    def _capture(
        self, task: Task, memory: Memory, shift: int
    ) -> tuple[torch.cuda.CUDAGraph, Result]:
        """Return the CUDA graph of a step, which is not taken, and its result."""
        # torch.cuda.graph requires that the work has run on a side stream before.
        current_stream = torch.cuda.current_stream()
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(current_stream)
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP):
                self._step(task, memory, shift)
        current_stream.wait_stream(side_stream)

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            next_memory, result = self._step(task, memory, shift)
            memory.overwrite(next_memory)
        return graph, result


def _describe(leaf: Any) -> Any:
    """Return the shape and dtype of a tensor, and anything else as it is."""
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
