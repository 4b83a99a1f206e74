"""Snapshots: the state and the metrics after a generation, copied without waiting."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import Box, into_box
from cem.core.checks import check_distribution
from cem.core.evaluation import Evaluation
from cem.core.state import CHANGING, FAILED, MEAN, STD, State, tensors_of, transformed_bounds
from kernels.support.checks import check_integer

_SAVED = [name for name in CHANGING if name != "generation"]
_COPIED = [*_SAVED, "low", "high"]  # The bounds are needed to read the mean.
_MIN_SECONDS = 1e-9  # Rates are divided by at least this time, never by 0.


@dataclass(slots=True)
class GenerationRecord:
    """The record of a generation; ``Trainer`` describes when it is made.

    Attributes:
        generation: The number of generations so far, 1 for the first.
        best_fitness: The best fitness of all generations.
        generation_best: The best fitness of this generation.
        elite_mean: The mean fitness of its elites.
        elite_threshold: The fitness of its worst elite; no other candidate is fitter.
        std_mean: The mean of the new standard deviation over the dimensions.
        seconds: The wall time since the last record, in seconds. On the CPU it is measured from
            ``ask()`` to the statistics. On other devices it is measured from the end of the
            generation that was recorded last to the end of this one; for the first record it
            begins at the end of the work that was queued before.
        elapsed_s: The sum of ``seconds`` over all generations, including those before the
            search was resumed.
        unbounded_mean: The mean of the new distribution, shape (..., dim), on the CPU, before a
            smooth map transforms it into the bounds.
        std: The standard deviation of the new distribution, like ``unbounded_mean``.
        metrics: The metrics of the objective, by name.
        box: The bounds of this map, or None if there is none.
    """

    generation: int
    best_fitness: float
    generation_best: float
    elite_mean: float
    elite_threshold: float
    std_mean: float
    seconds: float
    elapsed_s: float
    unbounded_mean: Tensor = field(compare=False, repr=False)
    std: Tensor = field(compare=False, repr=False)
    metrics: Mapping[str, float] = field(default_factory=dict)
    box: Box | None = field(default=None, compare=False, repr=False)

    @property
    def mean(self) -> Tensor:
        """The mean within the bounds. It is computed when it is read, as few read it."""
        mean = self.unbounded_mean
        return into_box(mean, *self.box) if self.box else mean

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


NUMBERS = GenerationRecord.__slots__[: GenerationRecord.__slots__.index("unbounded_mean")]
"""The fields of a record that are numbers: those before the tensors."""


class Snapshot:
    """The state after a generation, and metrics; see ``CrossEntropyMethod.snapshot``.

    ``copy_to_host`` starts asynchronous copies into page-locked memory, in the order of the
    stream. An event marks their end. Waiting for the event does not wait for later work.

    Attributes:
        generation: The number of generations so far.
        settings: The settings of the search, as in ``state_dict()``.
        state: The state on the device of the search. It must not be changed. In a CUDA graph
            only its constants are valid.
        more_entries: The entries that a subclass of the search adds to ``state_dict()``.
    """

    def __init__(
        self,
        generation: int,
        settings: Mapping[str, Any],
        state: State,
        evaluation: Evaluation | None,
        copies: bool = True,
    ) -> None:
        """Store the state after a generation, and the metrics of that generation.

        On the CPU all values can be read immediately. On another device ``copy_to_host`` must
        copy them to the host first.

        Args:
            generation: The number of generations so far.
            settings: The settings of the search, as in ``state_dict()``.
            state: The state, whose tensors must not be changed in place.
            evaluation: The evaluation of the generation, which has the metrics. None: there
                are no metrics.
            copies: Whether to clone metrics that are tensors on the device, because the
                objective may change them later.
        """
        self.generation = generation
        self.settings = settings
        self.state = state
        self.more_entries: Mapping[str, Any] = {}

        # `_host` is the state on the CPU, or None before the copy. `_event` marks the end of
        # the copy.
        self._event: torch.cuda.Event | None = None
        self._host = state if state.distribution.is_cpu else None
        # The numbers of `State.record`, or None before they are read.
        self._numbers: list[float] | None = None
        # The names of the metrics that are also reported per second.
        self._rates: Sequence[str] = ()
        self._metrics: dict[str, Any] = {}
        if evaluation is not None:
            self._rates = evaluation.rates
            for name, metric in evaluation.metrics.items():
                self._metrics[name] = self._hold(name, metric, copies)
        self._queued_at = time.monotonic()

    def _hold(self, name: str, metric: Any, copies: bool) -> Any:
        """Return a metric as a number, or as the tensor that is copied together with the state.

        ``copies`` is whether a tensor on the device of the search is cloned.
        """
        if not isinstance(metric, Tensor):
            return metric
        if self.state.distribution.is_cpu or metric.is_cpu:
            return _number(name, metric)
        # One event marks the end of all copies, so all are from one device.
        return metric.detach().to(self.state.distribution.device, copy=copies)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that ``copy_to_host`` copies, keyed by their names."""
        tensors = tensors_of(self.state, _COPIED)
        for name, metric in self._metrics.items():
            if isinstance(metric, Tensor):
                tensors[f"metric {name}"] = metric.reshape(())
        return tensors

    @property
    def ready(self) -> bool:
        """Whether all values have arrived on the host. This does not wait."""
        return self._host is not None and (self._event is None or self._event.query())

    def seconds_since(self, earlier: "Snapshot") -> float:
        """Return the seconds between the ends of two copies, on CUDA by the device's clock."""
        if self._event is not None and earlier._event is not None:
            return float(earlier._event.elapsed_time(self._event)) / 1e3
        return self._queued_at - earlier._queued_at

    def metrics(self, seconds: float) -> dict[str, float]:
        """Return the metrics and their rates per second, once the values have arrived.

        ``seconds`` is the time of one generation.
        """
        if not self._metrics:
            return {}
        self._wait()
        numbers = {name: _number(name, value) for name, value in self._metrics.items()}
        seconds = max(seconds, _MIN_SECONDS)
        rates = {f"{name}/s": numbers[name] / seconds for name in self._rates}
        return {**numbers, **rates}

    @property
    def failed(self) -> bool:
        """Whether every candidate of the generation failed; False for a batch. This waits."""
        numbers = self._record_numbers()
        # The record of a single search has a fifth number: the last generation, counted from 1,
        # in which every candidate failed.
        return len(numbers) == FAILED + 1 and numbers[FAILED] == self.generation > 0

    def _record_numbers(self) -> list[float]:
        """Return ``State.record`` as numbers, once they have arrived.

        For a batch they are the best fitness of all problems and the means of the other
        numbers.
        """
        if self._numbers is None:
            record = self._wait().record
            if record.dim() == 1:
                self._numbers = record.tolist()
            else:
                rows = record.view(-1, record.shape[-1])  # one row per problem
                # A problem of which every candidate failed has NaN, which does not count.
                best_of = np.fmax if self.state.settings.maximize else np.fmin
                best = best_of.reduce(rows[:, 0].numpy())
                means = rows[:, [*range(1, FAILED)]].nanmean(0)
                self._numbers = [best.item(), *means.tolist()]
        return self._numbers

    def record(
        self,
        seconds: float = 0.0,
        elapsed_s: float = 0.0,
        generations: int = 1,
    ) -> GenerationRecord:
        """Return the record of the last generations, once its values have arrived.

        Args:
            seconds: The time since the last record.
            elapsed_s: The time of all generations so far.
            generations: The number of generations since the last record.
        """
        # A single search has a fifth number, the last generation that failed. It is not part of
        # the record.
        best, generation_best, elite_mean, threshold, *_ = self._record_numbers()
        host = self._wait()
        box = transformed_bounds(host) if host.discrete is None else None
        if host.discrete is not None or (box is None and host.low is not None):
            # These are within the bounds, and have the columns of discrete parameters, too.
            mean = host.mean
            std = host.std.clone()
            stds = std.numpy()
        else:
            # Copy the rows, because the caller may change the record.
            rows = host.distribution.numpy().copy()
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
            unbounded_mean=mean,
            std=std,
            box=box,
            metrics=self.metrics(seconds / generations),
        )

    def restored(self) -> State:
        """Return the state on the device of the search. This only waits for the copy itself."""
        device = self.state.distribution.device
        tensors: Any = tensors_of(self._wait(), _SAVED)
        for name, tensor in tensors.items():
            tensors[name] = tensor.to(device, non_blocking=True)
        generation = torch.full_like(self.state.generation, self.generation)
        return self.state._replace(generation=generation, **tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return ``CrossEntropyMethod.state_dict``. This only waits for the copy itself."""
        tensors = {name: x.clone() for name, x in tensors_of(self._wait(), _SAVED).items()}
        return {
            "settings": dict(self.settings),
            "generation": self.generation,
            **tensors,
            **self.more_entries,
        }

    def _receive(self, copies: dict[str, Any], event: torch.cuda.Event | None) -> None:
        """Store copies of `tensors` on the host, which are complete after the event.

        On the CPU the event is None.
        """
        for metric in self._metrics:
            name = f"metric {metric}"
            # Metrics that are already numbers have not been copied.
            if name in copies:
                self._metrics[metric] = copies.pop(name)
        # The copies that are left are fields of the state.
        self._host = self.state._replace(**copies)
        self._event = event

    def _wait(self) -> State:
        """Return the state on the host, once all of its tensors have arrived."""
        if self._host is None:
            copy_to_host([self])
        assert self._host is not None
        if self._event is not None:
            self._event.synchronize()
        return self._host


def stack_by_name(tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Stack the tensors of several snapshots by name. A snapshot may lack some names."""
    by_name: dict[str, list[Tensor]] = {}
    for snapshot in tensors:
        for name, tensor in snapshot.items():
            by_name.setdefault(name, []).append(tensor)
    return {name: torch.stack(same) for name, same in by_name.items()}


def copy_to_host(
    snapshots: Sequence[Snapshot],
    stacked: Mapping[str, Tensor] | None = None,
) -> None:
    """Start to copy snapshots of one search from the device to the host, without waiting.

    All tensors of the same name are stacked and copied with one copy. Snapshots that are on the
    host already are skipped.

    Args:
        snapshots: The snapshots.
        stacked: Maps every name to the tensors of that name, stacked in the order of the
            snapshots. If it is None, this function stacks them.
    """
    new = [snapshot for snapshot in snapshots if snapshot._host is None]
    if not new:
        return
    # The tensors of each snapshot, by name.
    tensors = [snapshot.tensors() for snapshot in new]
    if stacked is None:
        stacked = stack_by_name(tensors)

    # Iterators over the rows of each copied stack. A stack has one row for each snapshot that
    # has a tensor of its name.
    rows_by_name = {}
    for name, stack in stacked.items():
        # A copy into page-locked memory does not wait for the device.
        # The device is named, because torch's default device may be another one.
        host = torch.empty(
            stack.shape, dtype=stack.dtype, device="cpu", pin_memory=stack.is_cuda
        )
        host.copy_(stack.detach(), non_blocking=stack.is_cuda)
        rows_by_name[name] = iter(host.unbind())
    # All stacks are on the same device.
    event = _record_event(stack.device)

    # Each snapshot takes the next row of every stack in which it has one.
    for snapshot, names in zip(new, tensors, strict=True):
        copies = {name: next(rows_by_name[name]) for name in names}
        snapshot._receive(copies, event)


def _record_event(device: torch.device) -> torch.cuda.Event | None:
    """Return an event that marks the end of the work so far; None if it is not CUDA's."""
    if device.type != "cuda":
        return None
    # `seconds_since` needs timing. With `blocking`, waiting does not keep a core busy.
    event = torch.cuda.Event(enable_timing=True, blocking=True)
    event.record(torch.cuda.current_stream(device))
    return event


def _number(name: str, value: float | Tensor) -> float:
    """Return a metric as an int if its type is integral, otherwise as a float."""
    try:
        number = value.item() if isinstance(value, Tensor) else value
        return number if isinstance(number, int) else float(number)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"expected a number for metric {name!r}, got {value!r}") from error


def load_state(
    saved: Mapping[str, Any],
    settings: Mapping[str, Any],
    current: State,
) -> tuple[int, State]:
    """Return the generation and the state that a saved ``state_dict()`` contains.

    Args:
        saved: The saved dict.
        settings: The settings of the search that is resumed. Those in the dict must be equal.
        current: The state of that search. The saved tensors must have its dtypes and shapes,
            and are copied to its device.

    Raises:
        ValueError: If something is missing, or does not fit the search.
    """
    tensors: Any = tensors_of(current, _SAVED)
    names = ["settings", "generation", *tensors]
    if "told_candidates" in saved:  # A part of a population has its fitness.
        names += ["told_fitness", "asked"]
    missing = [name for name in names if name not in saved]
    if missing:
        listed = ", ".join(missing)
        raise ValueError(f"expected an optimizer state with {listed}, got {sorted(saved)}")
    for name, value in sorted(settings.items()):
        saved_value = saved["settings"].get(name)
        if value != saved_value:
            raise ValueError(
                f"expected a state saved with {name} = {value!r}, got {saved_value!r}"
            )
    generation = check_integer("generation", saved["generation"], 0)

    # Check the saved tensors, and copy them to the device.
    for name, like in tensors.items():
        tensors[name] = copy_checked(name, saved[name], like)
    rows = tensors["distribution"]
    check_distribution(rows[..., MEAN, :], rows[..., STD, :])
    tensors["generation"] = torch.full_like(current.generation, generation)
    return generation, current._replace(**tensors)


def copy_checked(name: str, saved: Any, like: Tensor) -> Tensor:
    """Return a copy of a saved tensor, which must have the dtype and shape of ``like``."""
    if not isinstance(saved, Tensor) or (saved.dtype, saved.shape) != (like.dtype, like.shape):
        raise ValueError(
            f"expected {name} as a {like.dtype} tensor of shape {tuple(like.shape)}, "
            f"got {saved!r}"
        )
    return saved.detach().to(like.device, copy=True)
