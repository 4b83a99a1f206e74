"""Snapshots of a search, copied from the device asynchronously."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from cem.host_copy import HostCopy
from kernels.checks import check_integer

USABLE = "expected at least one finite fitness and finite elites"
_STATISTICS = ("best_fitness", "generation_best", "elite_mean", "elite_threshold", "std_mean")


class Snapshot:
    """The state of a search after a generation, copied to the host: ``CrossEntropyMethod.snapshot``.

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
        tensors: The tensors of its state on the device of the search, not to be changed.
    """

    def __init__(
        self,
        generation: int,
        settings: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        figures: Mapping[str, Tensor],
        refused: Tensor,
    ) -> None:
        """Queue the copy.

        Args:
            generation: The generations told.
            settings: The settings of the search.
            tensors: The tensors of its state. Not changed: a search replaces its tensors.
            figures: The statistics that are not in the state, shape ().
            refused: The number of a refused generation, from 1, that was not reported yet; otherwise 0.
        """
        self.generation = generation
        self.settings = dict(settings)
        self.tensors = dict(tensors)
        # As a float64, exact up to 2^53, it shares a copy.
        self._copy = HostCopy({**tensors, **figures, "refused": refused.double()})
        self._told = False

    @property
    def ready(self) -> bool:
        """Whether the values are on the host; does not wait."""
        return self._copy.ready

    def check(self) -> None:
        """Wait for this copy, and raise what ``tell()`` did not raise without waiting.

        Raises:
            ValueError: If a generation told since the snapshot before was refused, with the number of the
                last one; once, at the first access.
        """
        refused = int(self._copy.values()["refused"])
        if refused and not self._told:
            self._told = True
            raise ValueError(f"{USABLE}, got none in generation {refused}, counted from 1")

    def statistics(self) -> dict[str, float]:
        """Return ``CrossEntropyMethod.statistics`` at the snapshot; waits for this copy only.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        values = self._copy.values()
        return {name: float(values[name]) for name in _STATISTICS}

    def distribution(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation at the snapshot, shape (dim,), on the CPU, not to be changed.

        Waits for this copy only.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        values = self._copy.values()
        return values["mean"], values["std"]

    def state_dict(self) -> dict[str, Any]:
        """Return ``CrossEntropyMethod.state_dict`` at the snapshot; waits for this copy only.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        values = self._copy.values()
        tensors = {name: values[name].clone() for name in self.tensors}
        return {"settings": dict(self.settings), "generation": self.generation, **tensors}

    def seconds_since(self, earlier: Snapshot) -> float:
        """Return the seconds between the completion of an earlier snapshot and of this one.

        On a CUDA device they are measured by its clock.

        Args:
            earlier: A snapshot of the same search. Both must be ready.
        """
        return self._copy.seconds_since(earlier._copy)


def check_state(
    state: Mapping[str, Any], settings: Mapping[str, Any], current: Mapping[str, Tensor]
) -> tuple[int, dict[str, Tensor]]:
    """Check a state of ``state_dict()`` against the search that resumes from it.

    Args:
        state: The state. Not changed.
        settings: The settings of that search.
        current: The tensors of its state.

    Returns:
        The generations told, and copies of the tensors on the device of ``current``.

    Raises:
        TypeError: If the generation is no int.
        ValueError: If a part is missing, has another shape or dtype, or was saved under other settings.
    """
    missing = [name for name in ("settings", "generation", *current) if name not in state]
    if missing:
        raise ValueError(f"expected an optimizer state with {', '.join(missing)}, got {sorted(state)}")
    theirs = state["settings"]
    if not isinstance(theirs, Mapping):
        raise ValueError(f"expected the settings of an optimizer, got {theirs!r}")
    for name in sorted(settings.keys() | theirs.keys()):
        if settings.get(name) != theirs.get(name):
            raise ValueError(
                f"expected a state saved with {name} = {settings.get(name)!r}, got {theirs.get(name)!r}"
            )
    generation = check_integer("generation", state["generation"], 0)
    tensors: dict[str, Tensor] = {}
    for name, like in current.items():
        saved = state[name]
        if not isinstance(saved, Tensor) or (saved.dtype, saved.shape) != (like.dtype, like.shape):
            wanted = f"{like.dtype} tensor of shape {tuple(like.shape)}"
            raise ValueError(f"expected {name} as a {wanted}, got {saved!r}")
        tensors[name] = saved.detach().to(like.device, copy=True)
    return generation, tensors
