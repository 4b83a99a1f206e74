"""Captures the generations of a search (ask, objective, tell) in a CUDA graph."""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation, call_with_copies
from cem.core.generation import draw, operator_sample, tell
from cem.core.snapshot import Snapshot, stack_by_name
from cem.core.state import CHANGING, State, tensors_of

_WARM_UP = 3  # calls before a capture, in which libraries and caches are set up


class GenerationGraph:
    """A CUDA graph of several generations of a search: ``state = graph(state)``.

    A replay launches the same kernels as ``ask``, objective and ``tell``, but runs no Python
    code between them. The results are equal bit for bit.

    Attributes:
        evaluations: The last evaluation of each round; the next replay overwrites them.
        stacked_tensors: The states after all rounds, stacked for ``copy_to_host``. A graph
            without ``stacks`` has none.
    """

    def __init__(
        self,
        state: State,
        objective: Objective,
        count: int,
        rounds: int = 1,
        *,
        stacks: bool = False,
    ) -> None:
        """Capture generations in a CUDA graph, which requires the backend "cuda".

        A replay runs ``rounds`` rounds of ``count`` generations each. After every round the
        graph keeps the state and the last evaluation, which the caller may record.

        Args:
            state: A state of the search. The graph contains its constants and shapes.
            objective: Maps candidates and generation to fitness, as an objective of
                ``CrossEntropyMethod.capture`` does.
            count: The number of generations of a round.
            rounds: The number of rounds of a replay.
            stacks: Whether a replay also stacks the states after its rounds.
        """
        # Every replay of a graph reads and writes the same memory: the tensors of this state.
        self._static = _copy(state)
        self._objective = objective
        self._last: Tensor | None = None  # the distribution that the last call returned
        device = state.distribution.device
        warm_up(partial(self._generation, self._static), device)
        self._graph = torch.cuda.CUDAGraph()
        # Inside this block nothing is computed. The graph stores the kernels of all calls. The
        # stream of torch's own choice is on the GPU that was current at its first capture.
        with torch.cuda.graph(self._graph, stream=torch.cuda.Stream(device)):
            states = self._run_rounds(count, rounds)
            if stacks:
                self.stacked_tensors = self._stack(states)
            # Every replay ends with this copy, so that the next one continues from there.
            self._set(states[-1])

    def _run_rounds(self, count: int, rounds: int) -> list[State]:
        """Run rounds of generations, and return the state after each round.

        ``evaluations`` then contains the last evaluation of each round.
        """
        self.evaluations: list[Evaluation] = []
        states = []
        state = self._static
        for _ in range(rounds):
            for _ in range(count):
                state, evaluation = self._generation(state)
            states.append(state)
            self.evaluations.append(evaluation)
        return states

    def _stack(self, states: Sequence[State]) -> dict[str, Tensor]:
        """Stack the tensors and metrics of all rounds, as ``copy_to_host`` takes them."""
        tensors = []
        for state, evaluation in zip(states, self.evaluations, strict=True):
            # A snapshot knows which tensors are copied. Its generation and settings are not.
            snapshot = Snapshot(0, {}, state, evaluation, copies=False)
            tensors.append(snapshot.tensors())
        return stack_by_name(tensors)

    def __call__(self, state: State, replays: int = 1) -> State:
        """Replay the graph from a state, ``replays`` times, and return the last state."""
        # After a replay, the tensors that the graph reads already contain its last state.
        if state.distribution is not self._last:
            self._set(state)
        for _ in range(replays):
            self._graph.replay()
        new = _copy(self._static)
        self._last = new.distribution
        return new

    def fits(self, state: State) -> bool:
        """Return whether a state has the same constants as the captured one, such as bounds."""
        # The graph reads the memory of the constants, so they must be the same tensors. They
        # are the fields of a state after the changing ones.
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


def warm_up(work: Callable[[], Any], device: torch.device) -> None:
    """Call a function on another stream, which torch requires before its work is captured."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            work()
    torch.cuda.current_stream(device).wait_stream(stream)


def _copy(state: State) -> State:
    copies: Any = {name: tensor.clone() for name, tensor in tensors_of(state).items()}
    return state._replace(**copies)
