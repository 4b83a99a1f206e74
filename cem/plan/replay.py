"""Steps of a planner as CUDA graphs, captured once for each kind of task and then replayed."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cem.core.graph import warm_up
from cem.plan.memory import Memory
from cem.plan.search import Result, Task

_MOST_CAPTURES = 8

# Maps (task, memory, shift) to the next memory and the result.
Step = Callable[[Task, Memory, int], tuple[Memory, Result]]


class Capture(NamedTuple):
    """A step that was captured in a CUDA graph.

    Attributes:
        kind: The shift, the structure of the task and the shapes and dtypes of its tensors. A
            step of the same kind can replay the graph.
        leaves: The parts of the task; the graph reads the tensors among them.
        graph: The graph.
        result: The result, which every replay overwrites.
    """

    kind: list[Any]
    leaves: list[Any]
    graph: torch.cuda.CUDAGraph
    result: Result


class Replayer:
    """Takes the steps of a planner by CUDA graphs, and keeps the last few graphs."""

    def __init__(self, step: Step, device: torch.device) -> None:
        """Make a replayer without graphs."""
        self._step = step
        self._device = device
        self._captures: list[Capture] = []

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the CUDA graphs; a copy has to capture its own."""
        return {**self.__dict__, "_captures": []}

    def take_step(self, task: Task, memory: Memory, shift: int) -> Result:
        """Take a step by a CUDA graph: update the memory in place, and return the result.

        The first step of each kind of task is captured. Tasks of one kind have the same shapes,
        dtypes and ``shift``.

        Args:
            task: The input of the step, a nesting of tensors such as the states of the
                environments.
            memory: What the previous step has passed to this one. Graphs refer to its tensors,
                so every call has to pass the same ones.
            shift: The number of actions executed since the previous step.
        """
        leaves, structure = pytree.tree_flatten(task)
        kind = [shift, structure, *map(_describe, leaves)]
        with torch.cuda.device(self._device):
            same_kind = (capture for capture in self._captures if capture.kind == kind)
            capture = next(same_kind, None)
            if capture is None:
                # The graph reads its own copies of the task's tensors.
                static_leaves = [_copy(leaf) for leaf in leaves]
                static_task = pytree.tree_unflatten(static_leaves, structure)
                graph, result = self._capture(static_task, memory, shift)
                capture = Capture(kind, static_leaves, graph, result)
                # Keep at most ``_MOST_CAPTURES`` captures: drop the oldest one.
                newest = self._captures[1 - _MOST_CAPTURES :]
                self._captures = [*newest, capture]
            # The replay reads the new task from the static tensors.
            for static_leaf, leaf in zip(capture.leaves, leaves, strict=True):
                if isinstance(leaf, Tensor):
                    static_leaf.copy_(leaf)
            capture.graph.replay()
        return capture.result

    def _capture(
        self, task: Task, memory: Memory, shift: int
    ) -> tuple[torch.cuda.CUDAGraph, Result]:
        """Capture a step without changing the memory.

        Args:
            task: The input of the step, whose tensors every replay reads.
            memory: The tensors that a replay reads and updates.
            shift: The number of actions executed since the previous step.

        Returns:
            The CUDA graph and the result, which a replay fills.
        """
        warm_up(partial(self._step, task, memory, shift), self._device)
        # A capture only records the work, so ``overwrite`` first runs in a replay.
        graph = torch.cuda.CUDAGraph()
        # The stream of torch's own choice is on the GPU that was current at its first capture.
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(self._device)):
            next_memory, result = self._step(task, memory, shift)
            memory.overwrite(next_memory)
        return graph, result


def _describe(leaf: Any) -> Any:
    """Return the shape and dtype of a tensor; return anything else unchanged."""
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


# Tensors that were made in inference mode could not be overwritten outside it. Leaving it turns
# gradients on, even within no_grad. A copy with gradients would keep the graph of its state.
@torch.inference_mode(False)
def _copy(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf
