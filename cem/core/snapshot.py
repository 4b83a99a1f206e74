"""The state of a search after a generation, with metrics, copied from the device asynchronously."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import check_distribution
from cem.core.evaluation import Evaluation
from cem.core.state import CHANGING, FAILED, MEAN, STD, State
from kernels.support.checks import check_integer

_SAVED = tuple(name for name in CHANGING if name != "generation")
_LEAST_SECONDS = 1e-9


@dataclass(slots=True)
class GenerationRecord:
    """The record of a generation; see ``Trainer`` for when it is made.

    Attributes:
        generation: The generations so far, 1 for the first.
        best_fitness: The best fitness of all generations.
        generation_best: The best fitness of this one.
        elite_mean: The mean fitness of its elites.
        elite_threshold: The fitness of its worst elite: no other candidate is fitter.
        std_mean: The mean of the new standard deviation over the dimensions.
        seconds: The wall time since the record before, in seconds: on the CPU from ``ask()`` to the
            statistics; on other devices from the completion of the generation recorded before (for the first
            one, of the work queued before it) to that of this one.
        elapsed_s: The sum of ``seconds`` over all generations, those before a resumption included.
        mean: The mean of the new distribution, shape (..., dim), on the CPU.
        std: Its standard deviation, in the same way.
        metrics: The metrics of the objective, by name.
    """

    generation: int
    best_fitness: float
    generation_best: float
    elite_mean: float
    elite_threshold: float
    std_mean: float
    seconds: float
    elapsed_s: float
    mean: Tensor = field(compare=False, repr=False)
    std: Tensor = field(compare=False, repr=False)
    metrics: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, float]:
        """Return all numbers in one flat dict: the fields in the order above, then the metrics.

        Raises ValueError if a metric has the name of a field.
        """
        own = {name: getattr(self, name) for name in self.__slots__[:-3]}
        if clash := own.keys() & self.metrics.keys():
            raise ValueError(f"expected metrics under names of their own, got {', '.join(sorted(clash))}")
        return {**own, **self.metrics}


class Snapshot:
    """A copy of a search after a generation, and of metrics: ``CrossEntropyMethod.snapshot``.

    ``copy_to_host`` starts asynchronous copies into page-locked memory, in the order of the stream. An event
    marks their end; waiting for it does not wait for later work.

    Attributes:
        generation: The number of generations by then.
        settings: The settings of the search, as in ``state_dict()``.
        state: Its state on the device of the search, not to be changed; of a graph the constants alone.
        more: What a search of another kind adds to ``state_dict()``.
    """

    def __init__(
        self,
        generation: int,
        settings: Mapping[str, Any],
        state: State,
        evaluation: Evaluation | None = None,
        copies: bool = True,
    ) -> None:
        """Hold a state, which is never changed in place, and metrics, or copies of those."""
        self.generation, self.settings, self.state = generation, settings, state
        self.more: Mapping[str, Any] = {}
        self._event: torch.cuda.Event | None = None
        self._numbers: list[float] | None = None
        is_here = state.distribution.is_cpu
        self._host = state if is_here else None
        metrics = evaluation.metrics if evaluation is not None else {}
        self._rates = evaluation.rates if evaluation is not None else ()
        self._metrics: dict[str, Any] = {}
        for name, x in metrics.items():
            if isinstance(x, Tensor):
                x = _number(x) if is_here or x.is_cpu else x.detach().clone() if copies else x
            self._metrics[name] = x
        self._queued_at = time.monotonic()

    def tensors(self) -> dict[str, Tensor]:
        """Return those that ``copy_to_host`` copies, by name."""
        tensors = {name: x for name in _SAVED if (x := getattr(self.state, name)) is not None}
        for name, x in self._metrics.items():
            if isinstance(x, Tensor):
                tensors[f"metric {name}"] = x.reshape(())
        return tensors

    @property
    def ready(self) -> bool:
        """Whether all values are on the host; does not wait."""
        return self._host is not None and (self._event is None or self._event.query())

    def seconds_since(self, earlier: Snapshot) -> float:
        """Return the seconds between the ends of two ready copies, on CUDA by the device's clock."""
        if self._event is not None and earlier._event is not None:
            return float(earlier._event.elapsed_time(self._event)) / 1e3
        return self._queued_at - earlier._queued_at

    def metrics(self, seconds: float) -> dict[str, float]:
        """Return the metrics by name, then the rates of a generation of so many seconds; waits."""
        if not self._metrics:
            return {}
        self._wait()
        found = {name: _number(value) for name, value in self._metrics.items()}
        seconds = max(seconds, _LEAST_SECONDS)
        return {**found, **{f"{name}/s": found[name] / seconds for name in self._rates}}

    @property
    def failed(self) -> bool:
        """Whether every candidate of its generation failed; waits. Of a batch never."""
        figures = self._figures()
        return len(figures) == FAILED + 1 and figures[FAILED] == self.generation > 0

    def _figures(self) -> list[float]:
        """Return the record as numbers; of a batch the best of all and the means of the others; waits."""
        if self._numbers is None:
            record = self._wait().record
            if record.dim() == 1:
                self._numbers = record.tolist()
            else:
                rows = record.view(-1, record.shape[-1])
                best = rows[:, 0].max() if self.state.settings.maximize else rows[:, 0].min()
                self._numbers = [best.item(), *rows[:, [*range(1, FAILED)]].mean(0).tolist()]
        return self._numbers

    def record(self, seconds: float = 0.0, elapsed_s: float = 0.0, generations: int = 1) -> GenerationRecord:
        """Return the record of so many generations, in which ``seconds`` passed; waits."""
        best, generation_best, elite_mean, threshold, *_ = self._figures()
        host = self._wait()
        rows = host.distribution.numpy().copy()  # the record is the caller's own
        mean, std = torch.from_numpy(rows[..., MEAN, :]), torch.from_numpy(rows[..., STD, :])
        if host.discrete is not None:
            mean, std = host.mean, host.std
        return GenerationRecord(
            generation=self.generation,
            best_fitness=best,
            generation_best=generation_best,
            elite_mean=elite_mean,
            elite_threshold=threshold,
            std_mean=float(std.numpy().sum(dtype=np.float64)) / std.numel(),
            seconds=seconds,
            elapsed_s=elapsed_s,
            mean=mean,
            std=std,
            metrics=self.metrics(seconds / generations),
        )

    def restored(self) -> State:
        """Return the state on the device of the search; waits for this copy only."""
        host, device = self._wait(), self.state.distribution.device
        generation = torch.full_like(self.state.generation, self.generation)
        found: Any = {
            name: x.to(device, non_blocking=True) for name in _SAVED if (x := getattr(host, name)) is not None
        }
        return self.state._replace(generation=generation, **found)

    def state_dict(self) -> dict[str, Any]:
        """Return ``CrossEntropyMethod.state_dict`` at the snapshot; waits for this copy only."""
        host = self._wait()
        values = {name: x.clone() for name in _SAVED if (x := getattr(host, name)) is not None}
        return {"settings": dict(self.settings), "generation": self.generation, **values, **self.more}

    def _wait(self) -> State:
        if self._host is None:
            copy_to_host([self])
        assert self._host is not None
        if self._event is not None:
            self._event.synchronize()
        return self._host


def stacked(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors of several snapshots, those of each name as one."""
    names = dict.fromkeys(name for each in tensors for name in each)
    return {name: torch.stack([each[name] for each in tensors if name in each]) for name in names}


def copy_to_host(snapshots: Sequence[Snapshot], together: Mapping[str, Tensor] | None = None) -> None:
    """Start the copies of snapshots of one search to the host, of ``stacked`` tensors if these are given."""
    new = [(x, x.tensors()) for x in snapshots if x._host is None]
    if not new:
        return
    copies, event = {}, None
    for name, tensor in (stacked([each for _, each in new]) if together is None else together).items():
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        copies[name] = iter(host.copy_(tensor.detach(), non_blocking=tensor.is_cuda).unbind())
    if tensor.is_cuda:
        # With timing, for seconds_since; blocking, so that waiting for it does not spin.
        event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(torch.cuda.current_stream(tensor.device))
    for snapshot, names in new:
        found: Any = {name: next(copies[name]) for name in names}
        for name in snapshot._metrics:
            snapshot._metrics[name] = found.pop(f"metric {name}", snapshot._metrics[name])
        snapshot._host, snapshot._event = snapshot.state._replace(**found), event


def _number(value: float | Tensor) -> float:
    plain = value.item() if isinstance(value, Tensor) else value
    return plain if isinstance(plain, int) else float(plain)


def loaded_state(saved: Mapping[str, Any], settings: Mapping[str, Any], current: State) -> tuple[int, State]:
    """Return generations and state of a ``state_dict()`` for the search, of these settings, that resumes."""
    names = [name for name in _SAVED if getattr(current, name) is not None]
    if missing := [name for name in ("settings", "generation", *names) if name not in saved]:
        raise ValueError(f"expected an optimizer state with {', '.join(missing)}, got {sorted(saved)}")
    for name in sorted(settings):
        if settings[name] != (got := saved["settings"].get(name)):
            raise ValueError(f"expected a state saved with {name} = {settings[name]!r}, got {got!r}")
    generation = check_integer("generation", saved["generation"], 0)
    tensors = {name: _copied(name, saved[name], getattr(current, name)) for name in names}
    rows = tensors["distribution"]
    check_distribution(rows[..., MEAN, :], rows[..., STD, :])
    tensors["generation"] = torch.full_like(current.generation, generation)
    changed: Any = tensors
    return generation, current._replace(**changed)


def _copied(name: str, saved: Any, like: Tensor) -> Tensor:
    if not isinstance(saved, Tensor) or (saved.dtype, saved.shape) != (like.dtype, like.shape):
        wanted = f"{like.dtype} tensor of shape {tuple(like.shape)}"
        raise ValueError(f"expected {name} as a {wanted}, got {saved!r}")
    return saved.detach().to(like.device, copy=True)
