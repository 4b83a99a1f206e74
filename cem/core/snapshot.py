"""The state after a generation, with metrics, copied from the device without waiting."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import check_distribution
from cem.core.evaluation import Evaluation
from cem.core.state import CHANGING, FAILED, MEAN, STD, State, tensors_of
from kernels.support.checks import check_integer

_SAVED = [name for name in CHANGING if name != "generation"]
_LEAST_SECONDS = 1e-9  # so that a rate is never divided by 0


@dataclass(slots=True)
class GenerationRecord:
    """The record of a generation; see ``Trainer`` for when it is made.

    Attributes:
        generation: The number of generations so far, 1 for the first.
        best_fitness: The best fitness of all generations.
        generation_best: The best fitness of this generation.
        elite_mean: The mean fitness of its elites.
        elite_threshold: The fitness of its worst elite; no other candidate is fitter.
        std_mean: The mean of the new standard deviation over the dimensions.
        seconds: The wall time since the last record, in seconds. On the CPU it is measured from
            ``ask()`` to the statistics; on other devices from the end of the generation
            recorded last (at first, of the work queued before) to the end of this one.
        elapsed_s: The sum of ``seconds`` over all generations, also those before a resumption.
        mean: The mean of the new distribution, shape (..., dim), on the CPU.
        std: The standard deviation of the new distribution, like ``mean``.
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

        Raises:
            ValueError: If a metric has the name of a field.
        """
        numbers = {name: getattr(self, name) for name in NUMBERS}
        if clash := numbers.keys() & self.metrics.keys():
            names = ", ".join(sorted(clash))
            raise ValueError(f"expected metrics under names of their own, got {names}")
        return {**numbers, **self.metrics}


NUMBERS = GenerationRecord.__slots__[:-3]
"""The fields of a record that are numbers."""


class Snapshot:
    """A copy of a search after a generation, and of metrics: ``CrossEntropyMethod.snapshot``.

    ``copy_to_host`` starts asynchronous copies into page-locked memory, in the order of the
    stream. An event marks their end; waiting for it does not wait for later work.

    Attributes:
        generation: The number of generations so far.
        settings: The settings of the search, as in ``state_dict()``.
        state: The state on the device of the search, which must not be changed; of a CUDA graph
            only its constants are valid.
        more: What a subclass of the search adds to ``state_dict()``.
    """

    def __init__(
        self,
        generation: int,
        settings: Mapping[str, Any],
        state: State,
        evaluation: Evaluation | None = None,
        copies: bool = True,
    ) -> None:
        """Hold a state, which nobody changes in place, and the metrics of its generation.

        With ``copies`` metrics that are tensors are copied, because an objective may change
        them.
        """
        self.generation = generation
        self.settings = settings
        self.state = state
        self.more: Mapping[str, Any] = {}
        self._event: torch.cuda.Event | None = None
        self._numbers: list[float] | None = None
        is_on_host = state.distribution.is_cpu
        self._host = state if is_on_host else None
        self._rates: Sequence[str] = ()
        self._metrics: dict[str, Any] = {}
        if evaluation is not None:
            self._rates = evaluation.rates
            self._metrics.update(evaluation.metrics)
        for name, metric in self._metrics.items():
            if not isinstance(metric, Tensor):
                continue
            # A number on the host can be read at once; one on the device is copied with the
            # state.
            if is_on_host or metric.is_cpu:
                self._metrics[name] = _number(metric)
            elif copies:
                self._metrics[name] = metric.detach().clone()
        self._queued_at = time.monotonic()

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that ``copy_to_host`` copies, by name."""
        tensors = tensors_of(self.state, _SAVED)
        for name, metric in self._metrics.items():
            if isinstance(metric, Tensor):
                tensors[f"metric {name}"] = metric.reshape(())
        return tensors

    @property
    def ready(self) -> bool:
        """Whether all values have arrived on the host; does not wait."""
        return self._host is not None and (self._event is None or self._event.query())

    def seconds_since(self, earlier: "Snapshot") -> float:
        """Return the seconds between the ends of two copies, on CUDA by the device's clock."""
        if self._event is not None and earlier._event is not None:
            return float(earlier._event.elapsed_time(self._event)) / 1e3
        return self._queued_at - earlier._queued_at

    def metrics(self, seconds: float) -> dict[str, float]:
        """Return metrics, and rates if a generation took so many seconds; waits."""
        if not self._metrics:
            return {}
        self._wait()
        numbers = {name: _number(value) for name, value in self._metrics.items()}
        seconds = max(seconds, _LEAST_SECONDS)
        rates = {f"{name}/s": numbers[name] / seconds for name in self._rates}
        return {**numbers, **rates}

    @property
    def failed(self) -> bool:
        """Whether every candidate of the generation failed; False for a batch. Waits."""
        numbers = self._record_numbers()
        return len(numbers) == FAILED + 1 and numbers[FAILED] == self.generation > 0

    def _record_numbers(self) -> list[float]:
        """Return ``State.record`` as numbers; waits.

        A batch gives the best fitness of all problems, and the means of the other statistics.
        """
        if self._numbers is None:
            record = self._wait().record
            if record.dim() == 1:
                self._numbers = record.tolist()
            else:
                rows = record.view(-1, record.shape[-1])
                best = rows[:, 0].max() if self.state.settings.maximize else rows[:, 0].min()
                self._numbers = [best.item(), *rows[:, [*range(1, FAILED)]].mean(0).tolist()]
        return self._numbers

    def record(
        self,
        seconds: float = 0.0,
        elapsed_s: float = 0.0,
        generations: int = 1,
    ) -> GenerationRecord:
        """Return the record of the last ``generations``, which took ``seconds``; waits."""
        best, generation_best, elite_mean, threshold, *_ = self._record_numbers()
        host = self._wait()
        if host.discrete is not None:
            mean, std = host.mean, host.std
            stds = std.numpy()
        else:
            rows = host.distribution.numpy().copy()  # the caller may change a record
            stds = rows[..., STD, :]
            mean = torch.from_numpy(rows[..., MEAN, :])
            std = torch.from_numpy(stds)
        return GenerationRecord(
            generation=self.generation,
            best_fitness=best,
            generation_best=generation_best,
            elite_mean=elite_mean,
            elite_threshold=threshold,
            std_mean=float(stds.sum(dtype=np.float64)) / stds.size,
            seconds=seconds,
            elapsed_s=elapsed_s,
            mean=mean,
            std=std,
            metrics=self.metrics(seconds / generations),
        )

    def restored(self) -> State:
        """Return the state on the device of the search; waits for this copy only."""
        device = self.state.distribution.device
        tensors: Any = tensors_of(self._wait(), _SAVED)
        for name, tensor in tensors.items():
            tensors[name] = tensor.to(device, non_blocking=True)
        generation = torch.full_like(self.state.generation, self.generation)
        return self.state._replace(generation=generation, **tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return ``CrossEntropyMethod.state_dict``; waits for this copy only."""
        tensors = {name: x.clone() for name, x in tensors_of(self._wait(), _SAVED).items()}
        return {
            "settings": dict(self.settings),
            "generation": self.generation,
            **tensors,
            **self.more,
        }

    def _wait(self) -> State:
        """Return the state on the host, once all of it has arrived."""
        if self._host is None:
            copy_to_host([self])
        assert self._host is not None
        if self._event is not None:
            self._event.synchronize()
        return self._host


def stack_by_name(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Stack the tensors of several snapshots by name; a snapshot may lack some names."""
    by_name: dict[str, list[Tensor]] = {}
    for snapshot in tensors:
        for name, tensor in snapshot.items():
            by_name.setdefault(name, []).append(tensor)
    return {name: torch.stack(same) for name, same in by_name.items()}


def copy_to_host(
    snapshots: Sequence[Snapshot],
    together: Mapping[str, Tensor] | None = None,
) -> None:
    """Start the copies of snapshots of one search to the host.

    All tensors of one name are copied at once; ``together`` has them if they are stacked
    already.
    """
    new = [(snapshot, snapshot.tensors()) for snapshot in snapshots if snapshot._host is None]
    if not new:
        return
    if together is None:
        together = stack_by_name([tensors for _, tensors in new])
    # Copies into page-locked memory do not wait for the device.
    copies = {}
    for name, tensor in together.items():
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        host.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        copies[name] = iter(host.unbind())
    event = None
    if tensor.is_cuda:
        # With timing, for seconds_since; blocking, so that waiting for it does not spin.
        event = torch.cuda.Event(enable_timing=True, blocking=True)
        event.record(torch.cuda.current_stream(tensor.device))
    for snapshot, names in new:
        values: Any = {name: next(copies[name]) for name in names}
        for name in snapshot._metrics:
            snapshot._metrics[name] = values.pop(f"metric {name}", snapshot._metrics[name])
        snapshot._host = snapshot.state._replace(**values)
        snapshot._event = event


def _number(value: float | Tensor) -> float:
    """Return a metric as an int if it is one, otherwise as a float."""
    number = value.item() if isinstance(value, Tensor) else value
    return number if isinstance(number, int) else float(number)


def load_state(
    saved: Mapping[str, Any],
    settings: Mapping[str, Any],
    current: State,
) -> tuple[int, State]:
    """Return the generation and the state of a ``state_dict()``.

    ``settings`` and ``current`` are those of the search that is to be resumed.
    """
    tensors: Any = tensors_of(current, _SAVED)
    if missing := [name for name in ("settings", "generation", *tensors) if name not in saved]:
        names = ", ".join(missing)
        raise ValueError(f"expected an optimizer state with {names}, got {sorted(saved)}")
    for name, value in sorted(settings.items()):
        if value != (got := saved["settings"].get(name)):
            raise ValueError(f"expected a state saved with {name} = {value!r}, got {got!r}")
    generation = check_integer("generation", saved["generation"], 0)
    for name, like in tensors.items():
        tensors[name] = _copy_checked(name, saved[name], like)
    rows = tensors["distribution"]
    check_distribution(rows[..., MEAN, :], rows[..., STD, :])
    tensors["generation"] = torch.full_like(current.generation, generation)
    return generation, current._replace(**tensors)


def _copy_checked(name: str, saved: Any, like: Tensor) -> Tensor:
    """Return a copy of a saved tensor, which must have the dtype and shape of another."""
    if not isinstance(saved, Tensor) or (saved.dtype, saved.shape) != (like.dtype, like.shape):
        expected = f"{name} as a {like.dtype} tensor of shape {tuple(like.shape)}"
        raise ValueError(f"expected {expected}, got {saved!r}")
    return saved.detach().to(like.device, copy=True)
