"""The state of a search after a generation, copied from the device asynchronously."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cem.core.checks import check_distribution
from cem.core.host_copy import HostCopy
from cem.core.state import (
    BEST_FITNESS,
    CHANGING,
    ELITE_MEAN,
    ELITE_THRESHOLD,
    FAILED,
    GENERATION_BEST,
    MEAN,
    STD,
    State,
)
from kernels.support.checks import check_integer

_SAVED = tuple(name for name in CHANGING if name != "generation")


class Snapshot(HostCopy):
    """A copy of a search after a generation: ``CrossEntropyMethod.snapshot``.

    Attributes:
        generation: The number of generations by then.
        settings: The settings of the search, as in ``state_dict()``.
        state: Its state on the device of the search, not to be changed.
    """

    def __init__(self, generation: int, settings: Mapping[str, Any], state: State) -> None:
        """Queue the copy. A state is never changed in place: on a CPU nothing is copied."""
        self.generation = generation
        self.settings = settings
        self.state = state
        self._numbers: list[float] | None = None
        super().__init__({name: x for name in _SAVED if (x := getattr(state, name)) is not None})

    def statistics(self) -> dict[str, float]:
        """Return ``CrossEntropyMethod.statistics`` at the snapshot; waits for this copy only."""
        values = self.values()
        record, std = values["record"], values["distribution"][..., STD, :]
        width = std.mean(dtype=torch.float64).item()
        if record.dim() == 1:
            best, generation_best, mean, threshold, _ = self._figures()
        else:
            rows = record.view(-1, record.shape[-1])
            column = rows[:, BEST_FITNESS]
            best = float(column.max() if self.state.settings.maximize else column.min())
            means = rows[:, [GENERATION_BEST, ELITE_MEAN, ELITE_THRESHOLD]].mean(0).tolist()
            generation_best, mean, threshold = means
        return {
            "best_fitness": best,
            "generation_best": generation_best,
            "elite_mean": mean,
            "elite_threshold": threshold,
            "std_mean": width,
        }

    @property
    def failed(self) -> bool:
        """Whether every candidate of its generation failed; waits. Of a batch never."""
        figures = self._figures()
        return len(figures) == FAILED + 1 and figures[FAILED] == self.generation > 0

    def _figures(self) -> list[float]:
        """Return the record of a single search as numbers, or nothing of a batch; waits."""
        if self._numbers is None:
            record = self.values()["record"]
            self._numbers = record.tolist() if record.dim() == 1 else []
        return self._numbers

    def distribution(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation, shape (..., dim), on the CPU, not to be changed; waits."""
        rows = self.values()["distribution"]
        return rows[..., MEAN, :], rows[..., STD, :]

    def state_dict(self) -> dict[str, Any]:
        """Return ``CrossEntropyMethod.state_dict`` at the snapshot; waits for this copy only."""
        values = {name: x.clone() for name, x in self.values().items()}
        return {"settings": dict(self.settings), "generation": self.generation, **values}


def loaded_state(saved: Mapping[str, Any], settings: Mapping[str, Any], current: State) -> tuple[int, State]:
    """Check a state of ``state_dict()`` against settings and state of the search that resumes from it.

    Returns:
        The number of generations, and the state with copies of the tensors.

    Raises:
        TypeError: If the generation is no int.
        ValueError: If a part is missing, has another shape or dtype, or was saved under other settings.
    """
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
