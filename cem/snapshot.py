"""Snapshots of a search, copied from the device asynchronously."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cem.functional import (
    BEST_FITNESS,
    ELITE_MEAN,
    ELITE_THRESHOLD,
    GENERATION_BEST,
    MEAN,
    REFUSED,
    STD,
    State,
)
from cem.host_copy import HostCopy
from kernels.support.checks import check_integer

USABLE = "expected at least one candidate with a usable fitness"
_ROWS = ("mean", "std", "averaged_mean", "best")
_OPTIONAL = ("factor", "paths")
_OLD_SETTINGS = {
    "batch": [],
    "weights": "equal",
    "variance_about": "new_mean",
    "covariance": "diagonal",
    "paths": False,
    "bound_handling": "clamp",
    "relative_std_floor": 0.0,
}
"""What older states do not say: how those searches were."""


class Snapshot:
    """The state of a search after a generation, copied to the host: ``CrossEntropyMethod.snapshot``.

    Examples:
        >>> import torch
        >>> from cem import CrossEntropyMethod
        >>> optimizer = CrossEntropyMethod(torch.zeros(2), 1.0, 10, maximize=True)
        >>> optimizer.tell(optimizer.ask().sum(dim=1))
        >>> first = optimizer.snapshot()
        >>> optimizer.tell(optimizer.ask().sum(dim=1))  # on a GPU the snapshot is read meanwhile
        >>> first.ready, first.state_dict()["generation"]
        (True, 1)

    Attributes:
        generation: The generations told by then.
        settings: The settings of the search, as in ``state_dict()``.
        state: Its state on the device of the search, not to be changed.
        elite_fitness: The fitness of the last elites there, shape (..., num_elites).
    """

    def __init__(
        self, generation: int, settings: Mapping[str, Any], state: State, elite_fitness: Tensor, since: int
    ) -> None:
        """Queue the copy.

        Args:
            generation: The generations told.
            settings: The settings of the search.
            state: Its state. Not changed: a search replaces its tensors.
            elite_fitness: The fitness of the last elites.
            since: A refused generation up to this one was reported.
        """
        self.generation = generation
        self.settings = dict(settings)
        self.state = state
        self.elite_fitness = elite_fitness
        self._since = since
        tensors = {"distribution": state.distribution, "record": state.record, "elites": elite_fitness}
        more = {name: getattr(state, name) for name in _OPTIONAL}
        self._copy = HostCopy({**tensors, **{name: x for name, x in more.items() if x is not None}})

    @property
    def ready(self) -> bool:
        """Whether the values are on the host; does not wait."""
        return self._copy.ready

    def check(self) -> None:
        """Wait for this copy, and raise what ``tell()`` did not raise without waiting.

        Raises:
            ValueError: If a generation told since the snapshot before was refused, with the number of the
                last one; once, at the first access. Batches raise nothing.
        """
        record = self._copy.values()["record"]
        refused = int(record[REFUSED]) if record.dim() == 1 else 0
        if refused > self._since:
            self._since = refused
            raise ValueError(f"{USABLE}, got none in generation {refused}, counted from 1")

    def statistics(self) -> dict[str, float]:
        """Return ``CrossEntropyMethod.statistics`` at the snapshot; waits for this copy only.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        values = self._copy.values()
        record, std = (
            values["record"].view(-1, values["record"].shape[-1]),
            values["distribution"][..., STD, :],
        )
        best = record[:, BEST_FITNESS]
        maximize = self.state.settings.maximize
        return {
            "best_fitness": float(best.max() if maximize else best.min()),
            "generation_best": float(record[:, GENERATION_BEST].mean()),
            "elite_mean": float(record[:, ELITE_MEAN].mean()),
            "elite_threshold": float(record[:, ELITE_THRESHOLD].mean()),
            "std_mean": float(std.double().mean()),
        }

    def distribution(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation at the snapshot, shape (..., dim), on the CPU.

        They are not to be changed. Waits for this copy only.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        rows = self._copy.values()["distribution"]
        return rows[..., MEAN, :], rows[..., STD, :]

    def state_dict(self) -> dict[str, Any]:
        """Return ``CrossEntropyMethod.state_dict`` at the snapshot; waits for this copy only.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        values = self._copy.values()
        tensors = {name: values["distribution"][..., row, :].clone() for row, name in enumerate(_ROWS)}
        tensors["best_fitness"] = values["record"][..., BEST_FITNESS].clone()
        tensors["elite_fitness"] = values["elites"].clone()
        tensors |= {name: values[name].clone() for name in _OPTIONAL if name in values}
        return {"settings": dict(self.settings), "generation": self.generation, **tensors}

    def seconds_since(self, earlier: Snapshot) -> float:
        """Return the seconds between the completion of an earlier snapshot and of this one.

        On a CUDA device they are measured by its clock.

        Args:
            earlier: A snapshot of the same search. Both must be ready.
        """
        return self._copy.seconds_since(earlier._copy)


def check_state(
    state: Mapping[str, Any], settings: Mapping[str, Any], current: State, elite_fitness: Tensor
) -> tuple[int, State, Tensor]:
    """Check a state of ``state_dict()`` against the search that resumes from it.

    Args:
        state: The state. Not changed.
        settings: The settings of that search.
        current: Its state.
        elite_fitness: The fitness of its elites; another number of elites than in the state is no error.

    Returns:
        The generations told, the state with copies of the tensors, and the fitness of the elites.

    Raises:
        TypeError: If the generation is no int.
        ValueError: If a part is missing, has another shape or dtype, or was saved under other settings.
    """
    like = {name: current.distribution[..., row, :] for row, name in enumerate(_ROWS)}
    like["best_fitness"] = current.record[..., BEST_FITNESS]
    like |= {name: found for name in _OPTIONAL if (found := getattr(current, name)) is not None}
    if "settings" in state:
        _check_settings(state["settings"], settings)
    missing = [name for name in ("settings", "generation", *like, "elite_fitness") if name not in state]
    if missing:
        raise ValueError(f"expected an optimizer state with {', '.join(missing)}, got {sorted(state)}")
    generation = check_integer("generation", state["generation"], 0)
    loaded = {name: _loaded(name, state[name], tensor) for name, tensor in like.items()}
    elites = state["elite_fitness"]
    if not isinstance(elites, Tensor) or elites.dtype != torch.float64 or elites.dim() != elite_fitness.dim():
        raise ValueError(f"expected elite_fitness as a torch.float64 tensor, got {elites!r}")
    elites = elites.detach().to(current.record.device, copy=True)
    usable = elites.isfinite() | (elites == (math.inf if current.settings.maximize else -math.inf))
    count = usable.sum(-1, keepdim=True)  # they come first
    last = elites.gather(-1, (count - 1).clamp(min=0))
    record = torch.cat(
        [
            loaded["best_fitness"].unsqueeze(-1),
            torch.where(count > 0, elites[..., :1], math.nan),
            torch.where(usable, elites, 0.0).sum(-1, keepdim=True) / count,
            torch.where(count > 0, last, math.nan),
            torch.zeros_like(last),
        ],
        dim=-1,
    )
    new = current._replace(
        distribution=torch.stack([loaded[name] for name in _ROWS], dim=-2),
        record=record,
        generation=torch.full_like(current.generation, generation),
        factor=loaded.get("factor"),
        paths=loaded.get("paths"),
    )
    kept = elites if elites.shape == elite_fitness.shape else torch.full_like(elite_fitness, math.nan)
    return generation, new, kept


def _check_settings(theirs: Any, settings: Mapping[str, Any]) -> None:
    if not isinstance(theirs, Mapping):
        raise ValueError(f"expected the settings of an optimizer, got {theirs!r}")
    theirs = {**_OLD_SETTINGS, "std_smoothing": theirs.get("smoothing"), **theirs}
    for name in sorted(settings):
        if settings[name] != theirs.get(name):
            raise ValueError(
                f"expected a state saved with {name} = {settings[name]!r}, got {theirs.get(name)!r}"
            )


def _loaded(name: str, saved: Any, like: Tensor) -> Tensor:
    if not isinstance(saved, Tensor) or (saved.dtype, saved.shape) != (like.dtype, like.shape):
        wanted = f"{like.dtype} tensor of shape {tuple(like.shape)}"
        raise ValueError(f"expected {name} as a {wanted}, got {saved!r}")
    return saved.detach().to(like.device, copy=True)
