"""Whole generations in a CUDA graph: ask, objective and tell are captured once and replayed."""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation
from cem.core.generation import draw, operator_sample, tell
from cem.core.snapshot import Snapshot, stacked
from cem.core.state import CHANGING, State

_WARM_UP = 2  # calls before the capture: libraries and caches of the objective are made then


class GenerationGraph:
    """A CUDA graph of ``count`` generations of a search: ``state = graph(state)``.

    A replay launches what the functions launch, without Python between: results are those of ``ask`` and
    ``tell`` bit for bit. ``evaluation`` is the last one; the next call overwrites its tensors.

    With ``records`` it is of so many times ``count`` generations. ``evaluations`` are the last of each, and
    ``together`` has their states, as ``copy_to_host`` takes them.
    """

    def __init__(self, state: State, objective: Objective, count: int = 1, records: int = 0) -> None:
        """Capture; the objective is that of ``CrossEntropyMethod.capture``, the backend is "cuda"."""
        device = state.distribution.device
        self._static = _copied(state)
        self._objective = objective
        self._last: Tensor | None = None  # the distribution that the last call returned
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._generation(self._static)
        torch.cuda.current_stream(device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            moved, self.evaluations, tensors = self._static, [], []
            for _ in range(max(records, 1)):
                for _ in range(count):
                    moved, self.evaluation = self._generation(moved)
                if records:
                    self.evaluations.append(self.evaluation)
                    tensors.append(Snapshot(0, {}, moved, self.evaluation, copies=False).tensors())
            self.together = stacked(tensors)
            for to, new in zip(_changing(self._static), _changing(moved), strict=True):
                to.copy_(new)

    def __call__(self, state: State, replays: int = 1) -> State:
        """Run ``replays`` times ``count`` generations from a state; return the last."""
        if state.distribution is not self._last:
            for to, new in zip(_changing(self._static), _changing(state), strict=True):
                to.copy_(new)
        for _ in range(replays):
            self._graph.replay()
        after = _copied(self._static)
        self._last = after.distribution
        return after

    def fits(self, state: State) -> bool:
        """Return whether a state has the very constants that were captured: settings, seed, bounds, ..."""
        return all(map(operator.is_, state[len(CHANGING) :], self._static[len(CHANGING) :]))

    def _generation(self, state: State) -> tuple[State, Evaluation]:
        candidates = draw(state, operator_sample)
        evaluation = as_evaluation(self._objective(candidates, state.generation))
        evaluated = candidates if evaluation.candidates is None else evaluation.candidates
        return tell(state, evaluated, evaluation.fitness), evaluation


def _changing(state: State) -> list[Tensor]:
    """Return the tensors of a state that a generation changes."""
    return [tensor for name in CHANGING if (tensor := getattr(state, name)) is not None]


def _copied(state: State) -> State:
    return state._replace(
        **{name: tensor.clone() for name in CHANGING if (tensor := getattr(state, name)) is not None}
    )
