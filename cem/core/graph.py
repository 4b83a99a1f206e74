"""Generations in a CUDA graph: ask, objective and tell are captured once and replayed."""

import operator
from typing import Any

import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation, call_with_copies
from cem.core.generation import draw, operator_sample, tell
from cem.core.snapshot import Snapshot, stack_by_name
from cem.core.state import CHANGING, State, tensors_of

_WARM_UP = 2  # calls before the capture, in which the objective sets up libraries and caches


class GenerationGraph:
    """A CUDA graph of several generations of a search: ``state = graph(state)``.

    A replay launches the same kernels as ``ask``, objective and ``tell``, without Python
    between them, so the results are equal bit for bit.

    Attributes:
        evaluations: The last evaluation of every ``count`` generations; the next call
            overwrites them.
        together: The states after every ``count`` generations, stacked for ``copy_to_host``.
    """

    def __init__(
        self,
        state: State,
        objective: Objective,
        count: int = 1,
        records: int = 0,
    ) -> None:
        """Capture generations in a CUDA graph, which needs backend "cuda".

        Args:
            state: A state of the search, whose constants and shapes are captured.
            objective: Maps candidates and generation to fitness, as an objective of
                ``CrossEntropyMethod.capture`` does.
            count: The generations from one record to the next.
            records: The records of a replay: it runs ``records * count`` generations, and keeps
                the tensors of each record. 0: it runs ``count`` and keeps none.
        """
        device = state.distribution.device
        # A graph reads and writes the same memory in every replay: the tensors of this state.
        self._static = _copy(state)
        self._objective = objective
        self._last: Tensor | None = None  # the distribution that the last call returned
        # A capture needs a warm-up on a stream of its own.
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._generation(self._static)
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            new = self._static
            self.evaluations = []
            tensors = []
            for _ in range(max(records, 1)):
                for _ in range(count):
                    new, evaluation = self._generation(new)
                self.evaluations.append(evaluation)
                if records:
                    snapshot = Snapshot(0, {}, new, evaluation, copies=False)
                    tensors.append(snapshot.tensors())
            self.together = stack_by_name(tensors)
            # The next replay goes on from the last state.
            self._set(new)

    def __call__(self, state: State, replays: int = 1) -> State:
        """Replay the graph from a state, ``replays`` times, and return the last state."""
        # The state of the last call is still in the tensors that the graph reads.
        if state.distribution is not self._last:
            self._set(state)
        for _ in range(replays):
            self._graph.replay()
        new = _copy(self._static)
        self._last = new.distribution
        return new

    def fits(self, state: State) -> bool:
        """Return whether a state has the constants that were captured, such as its bounds."""
        return all(map(operator.is_, state[len(CHANGING) :], self._static[len(CHANGING) :]))

    def _set(self, state: State) -> None:
        """Copy a state into the tensors that the graph reads."""
        for name, tensor in tensors_of(self._static).items():
            tensor.copy_(getattr(state, name))

    def _generation(self, state: State) -> tuple[State, Evaluation]:
        """Return the state after one generation, and its evaluation."""
        candidates = draw(state, operator_sample)
        result = call_with_copies(self._objective, candidates, state.generation)
        evaluation = as_evaluation(result)
        evaluated = candidates if evaluation.candidates is None else evaluation.candidates
        return tell(state, evaluated, evaluation.fitness), evaluation


def _copy(state: State) -> State:
    copies: Any = {name: tensor.clone() for name, tensor in tensors_of(state).items()}
    return state._replace(**copies)
