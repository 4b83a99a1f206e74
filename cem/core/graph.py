"""Whole generations in a CUDA graph: ask, objective and tell are captured once and replayed."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation, call_with_copies
from cem.core.generation import draw, operator_sample, tell
from cem.core.snapshot import Snapshot, stacked
from cem.core.state import CHANGING, State

_WARM_UP = 2  # calls before the capture: libraries and caches of the objective are made then


class GenerationGraph:
    """A CUDA graph of ``count`` generations of a search: ``state = graph(state)``.

    A replay launches what the functions launch, without Python between: results are those of ``ask`` and
    ``tell`` bit for bit. With ``records`` it is of so many times ``count`` generations. ``evaluations`` are
    the last of each, which the next call overwrites; ``together`` has their states for ``copy_to_host``.
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
                    moved, evaluation = self._generation(moved)
                self.evaluations.append(evaluation)
                if records:
                    tensors.append(Snapshot(0, {}, moved, evaluation, copies=False).tensors())
            self.together = stacked(tensors)
            self._set(moved)

    def __call__(self, state: State, replays: int = 1) -> State:
        """Run ``replays`` times ``count`` generations from a state; return the last."""
        if state.distribution is not self._last:
            self._set(state)
        for _ in range(replays):
            self._graph.replay()
        after = _copied(self._static)
        self._last = after.distribution
        return after

    def fits(self, state: State) -> bool:
        """Return whether a state has the very constants that were captured: settings, seed, bounds, ..."""
        return all(map(operator.is_, state[len(CHANGING) :], self._static[len(CHANGING) :]))

    def _set(self, state: State) -> None:
        for name, tensor in _changing(self._static).items():
            tensor.copy_(getattr(state, name))

    def _generation(self, state: State) -> tuple[State, Evaluation]:
        candidates = draw(state, operator_sample)
        evaluation = as_evaluation(call_with_copies(self._objective, candidates, state.generation))
        evaluated = candidates if evaluation.candidates is None else evaluation.candidates
        return tell(state, evaluated, evaluation.fitness), evaluation


def _changing(state: State) -> dict[str, Tensor]:
    """Return the tensors of a state that a generation changes, by name."""
    return {name: tensor for name in CHANGING if (tensor := getattr(state, name)) is not None}


def _copied(state: State) -> State:
    copies: Any = {name: tensor.clone() for name, tensor in _changing(state).items()}
    return state._replace(**copies)
