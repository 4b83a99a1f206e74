"""What a search tells of itself: its distribution, snapshots and state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem._checks import check_distribution, check_real, version
from cem.functional import MEAN, REFUSED, STD, State
from cem.noise import NoiseSchedule, describe_noise
from cem.snapshot import Snapshot, check_state
from cem.start import problem_seeds, seed_tensor
from cem.termination import Termination, share_of, shift_of
from kernels.support.checks import check_integer


class Readout:
    """The part of ``CrossEntropyMethod`` that reads, saves and restores the state of a search.

    Attributes:
        device: The device of candidates, mean and std.
        dtype: Their dtype.
        dim: The length of a candidate.
        batch_shape: The shape of a batch of problems; () for a single one.
        population_size: Candidates a generation.
        num_elites: Elites among them.
        maximize: Whether a greater fitness is better.
        weights: The kind of the elites' weights.
        extra_variance: The schedule of extra variance.
        std_floor: The least standard deviation.
        relative_std_floor: The same as a share of the first one.
        backend: What draws and updates.
    """

    device: torch.device
    dtype: torch.dtype
    dim: int
    batch_shape: torch.Size
    population_size: int
    num_elites: int
    maximize: bool
    weights: str
    extra_variance: NoiseSchedule
    std_floor: float
    relative_std_floor: float
    backend: str
    _state: State
    _generation: int
    _seeds: tuple[int, ...]
    _takes_any_seed: bool
    _numpy: bool
    _bounds_text: str | None
    _refuses_at_once: bool
    _checked: int  # the generation at which a refusal was last reported
    _told: tuple[Tensor, int, Tensor] | None  # the last fitness, its version then, and the elites' indices
    _elite_fitness: Tensor | None  # made of them when it is asked for
    _start: tuple[Tensor, Tensor]  # the first mean and standard deviation
    _termination: Termination | None  # what `stop` remembers
    _before: tuple[Tensor, Tensor] | None  # mean and standard deviation when it was last called
    _stopped: tuple[int, float, tuple[str, ...]] | None  # the generation then, its best, and the answer
    _asked: tuple[Tensor, int, Tensor | None] | None  # candidates, their version, and a copy of some
    _snapshot: Snapshot | None  # of the state as it is, if one was taken

    @property
    def generation(self) -> int:
        """The number of generations told so far: ``t`` of the next ``ask()``."""
        return self._generation

    @property
    def state(self) -> State:
        """The state for ``cem.functional``; its tensors are the search's own, not to be changed."""
        return self._state

    @property
    def seed(self) -> int:
        """The seed; of a batch, that of its first problem."""
        return self._seeds[0]

    @property
    def mean(self) -> Any:
        """A copy of ``mu_t``, shape (..., dim): the answer of the search where the fitness is noisy."""
        return self._given(self._state.mean)

    @property
    def std(self) -> Any:
        """A copy of ``sigma_t``, shape (..., dim); with bounds by transform, of the space without bounds."""
        return self._given(self._state.std)

    @property
    def averaged_mean(self) -> Any:
        """A copy of ``a_t``, shape (..., dim): ``mean`` averaged over generations; see ``mean_averaging``."""
        return self._given(self._state.averaged_mean)

    @property
    def covariance(self) -> Any:
        """A new matrix, shape (..., dim, dim): ``Sigma_t``."""
        factor = self._state.factor
        if factor is None:
            return self._given(torch.diag_embed(self._state.std.square()))
        with torch.autocast(factor.device.type, enabled=False):
            return self._given(factor @ factor.mT)

    @property
    def best(self) -> Any:
        """A copy of the fittest candidate ever told, shape (..., dim); NaN before the first ``tell()``.

        Of equal fitness the first one told stays. With a noisy fitness it is the luckiest one: prefer
        ``mean``.
        """
        return self._given(self._state.best)

    @property
    def best_fitness(self) -> Any:
        """The fitness of ``best`` as it was told, a float; for a batch a tensor of its shape, float64.

        NaN before the first ``tell()``. Waits for the device.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        found = self._state.best_fitness
        return self._given(found) if self.batch_shape else float(found)

    @property
    def elite_fitness(self) -> Any:
        """The fitness of the elites of the last ``tell()``, best first; a copy, (..., num_elites), float64.

        NaN before the first ``tell()``, and after a refused generation that raised nothing. Where fewer
        candidates than elites succeeded, failures fill it up. A tensor that was told is read at the first
        look, here or by ``snapshot``: NaN where it was changed in place meanwhile.
        """
        return self._given(self._fitness_of_elites())

    def snapshot(self) -> Snapshot:
        """Start a copy of the state after the last generation told to the host; does not wait.

        On a CUDA device the copy is queued on the current stream; reading it waits for earlier work only.
        A generation refused since the last snapshot is reported when this one is read.

        Returns:
            A new snapshot. ``check``, ``statistics`` and ``state_dict`` use it until the next ``tell()``.
        """
        since, self._checked = self._checked, self._generation
        self._snapshot = Snapshot(
            self._generation, self._settings(), self._state, self._fitness_of_elites(), since
        )
        return self._snapshot

    def rewind(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot of this search; does not wait.

        Args:
            snapshot: A snapshot of ``snapshot()``.

        Raises:
            ValueError: If it is of a search with other settings or on another device.
        """
        device = snapshot.state.distribution.device
        ours = self._state.settings, self._settings(), self._state.distribution.device
        if (snapshot.state.settings, snapshot.settings, device) != ours:
            raise ValueError(f"expected a snapshot of this search, got {snapshot.settings} on {device}")
        self._adopt(snapshot.generation, snapshot.state, snapshot.elite_fitness)
        self._snapshot = snapshot

    def check(self) -> None:
        """Wait for the device and raise what ``tell()`` did not raise without waiting.

        A no-op where ``tell()`` raises at once, and for batches, which raise nothing.

        Raises:
            ValueError: If a generation told since the last check or snapshot was refused; raised once.
        """
        if not self._refuses_at_once and not self.batch_shape:
            self._latest().check()

    def statistics(self) -> dict[str, float]:
        """Return the statistics of the last generation.

        Returns:
            ``best_fitness`` so far; ``generation_best``, ``elite_mean`` and ``elite_threshold`` of the last
            generation (NaN before the first): the fitness of its best candidate, of its elites on average, of
            its worst elite; and ``std_mean``, the mean of the standard deviation over the dimensions. Of a
            batch: the best of all problems, the means over them of the others.

        Raises:
            ValueError: As ``check``.
        """
        return self._latest().statistics()

    def stop(self, *, target: float | None = None, budget: int | None = None) -> tuple[str, ...]:
        """Return the reasons to stop, an empty tuple while there are none; see ``cem.termination``.

        They compare a generation with those before at which this was called: call it after every one, or
        after every few. Waits for the device. Warns where the search has collapsed.

        Args:
            target: A fitness that is good enough, for the reason ``"target"``.
            budget: The most evaluations, for the reason ``"budget"``: another generation would exceed it.

        Raises:
            TypeError: If target or budget is no number.
            ValueError: As ``check``, or if the search is a batch.
        """
        target = None if target is None else check_real("target", target)
        budget = None if budget is None else check_integer("budget", budget, 0)
        if self.batch_shape:
            raise ValueError(f"expected a single search, got a batch of shape {tuple(self.batch_shape)}")
        if self._stopped is None or self._stopped[0] != self._generation:
            snapshot = self._latest()
            told, (mean, std) = snapshot.statistics(), (x.double() for x in snapshot.distribution())
            if self._termination is None:
                self._termination = Termination.of(self)
            found: tuple[str, ...] = ()
            if self._generation:
                found = self._termination.reasons(
                    self._generation,
                    told["best_fitness"],
                    told["generation_best"],
                    told["elite_threshold"],
                    share_of(std, self._start[1].double().cpu()),
                    shift_of(self._before, mean),
                )
            self._before = mean, std
            self._stopped = self._generation, told["best_fitness"], found
        _, best, reasons = self._stopped
        if target is not None and (best >= target if self.maximize else best <= target):
            reasons = ("target", *reasons)
        spent = budget is not None and (self._generation + 1) * self.population_size > budget
        return (*reasons, "budget") if spent else reasons

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which a search resumes, as tensors on the CPU, numbers and text.

        A generation asked and not yet told is not part of it: it is drawn again, the same.

        Returns:
            ``settings`` (compared on loading), ``generation``, ``mean``, ``std``, ``averaged_mean`` and
            ``best`` of shape (..., dim), ``best_fitness`` of shape (...) and ``elite_fitness`` of shape
            (..., num_elites); ``factor`` and ``paths`` where the search has them. The tensors are copies.

        Raises:
            ValueError: As ``check``.
        """
        return self._latest().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of an optimizer with the same settings, bit for bit.

        On another device the bits of later samples may differ. Population and elites may be other than
        before. For other settings make a new optimizer with the ``mean`` and ``std`` of the old one. What
        ``stop`` has seen is not part of a state: its comparisons start over. Neither are the first mean and
        std: ``reset``, ``shift``, ``stop`` and ``relative_std_floor`` go by those given to this optimizer.

        Args:
            state: A state of ``state_dict()``. Not changed. A search that was given no seed takes its seed.

        Raises:
            TypeError: If it is no mapping, or the generation no int. No error changes the optimizer.
            ValueError: If a part is missing, has another shape or dtype, or was saved under other settings.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"expected a state of state_dict(), got {type(state).__name__}")
        settings, seeds = self._settings(), self._seeds
        theirs = state.get("settings")
        if self._takes_any_seed and isinstance(theirs, Mapping) and "seed" in theirs:
            settings["seed"] = theirs["seed"]
        generation, loaded, elite_fitness = check_state(
            state, settings, self._state, self._fitness_of_elites()
        )
        check_distribution(loaded.distribution[..., MEAN, :], loaded.distribution[..., STD, :])
        if settings["seed"] != self._settings()["seed"]:
            found = np.array(settings["seed"], dtype=object)
            seeds = problem_seeds(found.reshape(self.batch_shape), self.batch_shape)
            loaded = loaded._replace(seed=seed_tensor(seeds, self.batch_shape, self.device))
        self._seeds = seeds
        self._adopt(generation, loaded, elite_fitness)

    def _fitness_of_elites(self) -> Tensor:
        if self._elite_fitness is None:
            shape = (*self.batch_shape, self.num_elites)
            self._elite_fitness = torch.full(shape, math.nan, dtype=torch.float64, device=self.device)
            if self._told is not None and version(self._told[0]) == self._told[1]:
                fitness, _, elites = self._told
                sign = -1.0 if self.maximize else 1.0  # sorted upwards NaN is last
                found = sign * (sign * fitness.gather(-1, elites).double()).sort(-1).values
                refused = (self._state.record[..., REFUSED] == self._state.generation).unsqueeze(-1)
                self._elite_fitness = torch.where(refused, math.nan, found)
            self._told = None
        return self._elite_fitness

    def _latest(self) -> Snapshot:
        return self.snapshot() if self._snapshot is None else self._snapshot

    def _adopt(self, generation: int, state: State, elite_fitness: Tensor | None) -> None:
        self._state, self._generation, self._checked = state, generation, generation
        self._told, self._elite_fitness = None, elite_fitness
        self._termination = self._before = self._stopped = None
        self._asked = self._snapshot = None

    def _follow(self, state: State, generation: int, fitness: Tensor, elites: Tensor) -> None:
        """Take the state after a generation that was told."""
        self._state, self._generation = state, generation
        self._told, self._elite_fitness = (fitness, version(fitness), elites), None
        self._asked = self._snapshot = None

    def _given(self, tensor: Tensor) -> Any:
        copy = tensor.clone()
        return copy.numpy() if self._numpy else copy

    def _settings(self) -> dict[str, Any]:
        """The settings that a resumed search shares with the saved one, as JSON values.

        The keys are those of older checkpoints: ``noise`` is ``extra_variance``, ``averaging`` is
        ``mean_averaging``.
        """
        settings = self._state.settings
        # Older states of such searches have the best candidate without bounds.
        best = {"best": "within the bounds"} if settings.bounds == "transform" else {}
        return {
            **best,
            "dim": self.dim,
            "batch": list(self.batch_shape),
            "maximize": self.maximize,
            "noise": describe_noise(self.extra_variance),
            "weights": self.weights,
            "variance_about": settings.variance_about,
            "covariance": settings.covariance,
            "paths": settings.rates is not None,
            "smoothing": settings.smoothing,
            "std_smoothing": settings.std_smoothing,
            "bounds": self._bounds_text,
            "bound_handling": settings.bounds,
            "std_floor": self.std_floor,
            "relative_std_floor": self.relative_std_floor,
            "averaging": settings.mean_averaging,
            "backend": self.backend,
            "dtype": str(self.dtype).removeprefix("torch."),
            "seed": self._seeds[0] if len(self._seeds) == 1 else list(self._seeds),
        }
