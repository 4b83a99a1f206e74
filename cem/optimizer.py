"""The cross-entropy method with one normal distribution a dimension, with an ask-and-tell interface.

In every generation ``t`` a population is drawn, the caller evaluates each candidate, and the elites, the best
of them, give the next distribution:

    x_i ~ N(mu_t, diag(sigma^2_t))                                    i = 1 .. population          (1) ask
    m = mean of the elites,  v = mean of (elite - m)^2 + Z_t                                       (2) tell
    mu_{t+1}    = alpha m + (1 - alpha) mu_t                                                       (3) tell
    sigma_{t+1} = max(alpha sqrt(v) + (1 - alpha) sigma_t, floor)                                  (4) tell
    a_{t+1}     = a_t + (mu_{t+1} - a_t) / (1 + beta t)                                            (5) tell

(2) holds the population variance (divided by the number of elites) and the noise ``Z_t``, a variance, of I.
Szita and A. Lorincz, Learning Tetris Using the Noisy Cross-Entropy Method, Neural Computation 18(12), 2006;
see ``cem.noise``. (3) and (4) are the smoothed updating of P.-T. de Boer, D. Kroese, S. Mannor and R.
Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of Operations Research 134, 2005, applied to mean
and standard deviation as in D. Kroese, S. Porotsky and R. Rubinstein, The Cross-Entropy Method for Continuous
Multi-Extremal Optimization, Methodology and Computing in Applied Probability 8, 2006.

(5) does not affect the search. With a noisy fitness the mean fluctuates about the optimum, and the average of
many means is nearer to it than the last one. With ``beta = 1`` it is the average of all means, as in B.
Polyak and A. Juditsky, Acceleration of Stochastic Approximation by Averaging, SIAM Journal on Control and
Optimization 30(4), 1992; with less, late ones count for more, as in the polynomial-decay averaging of O.
Shamir and T. Zhang, Stochastic Gradient Descent for Non-smooth Optimization, ICML 2013.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cem._checks import (
    check_bounds,
    check_device,
    check_distribution,
    check_real,
    check_shape,
    check_vector,
)
from cem.noise import NoiseSchedule, describe_noise, resolve_noise
from cem.sampling import choose_backend, make_sampler
from cem.snapshot import USABLE, Snapshot, check_state
from kernels.checks import check_integer

DEFAULT_ELITE_FRACTION = 0.1
MIN_ELITES = 2  # one elite has no variance: the search would stop
_STATE_TENSORS = ("mean", "std", "averaged_mean", "best", "best_fitness", "elite_fitness")
_ROUNDING = 1e-9  # 0.07 * 100 is 7.000000000000001, and seven elites are meant


class CrossEntropyMethod:
    """The cross-entropy method: draw a population, get its fitness, move towards the elites.

    >>> import torch
    >>> from cem import CrossEntropyMethod
    >>> optimizer = CrossEntropyMethod(mean=torch.zeros(5), std=2.0, population_size=200, maximize=False)
    >>> for _ in range(40):
    ...     candidates = optimizer.ask()  # (200, 5)
    ...     optimizer.tell((candidates - 3.0).square().sum(dim=1))  # (200,)
    >>> bool((optimizer.mean - 3.0).abs().max() < 1e-3)
    True

    The rules:

    * Elites: the ``num_elites`` fittest. Of equal fitness the lower index wins. NaN is worse than anything,
      the infinity on the bad side is worse than any finite fitness, the infinity on the good side is best. A
      generation without a finite fitness is refused.
    * Fewer finite candidates than elites: the ranking fills up with infinite and NaN ones, in index order.
      They are draws of the old distribution and keep the search wide, where fewer elites would collapse it.
    * ``ask()`` twice without ``tell()`` returns the same values in two tensors. The sample is a function of
      (seed, generation) alone: dropping a generation or resuming changes nothing.
    * Tensors passed in are not changed, returned tensors are copies, torch's global generator is not used.
    * On the CPU a refused ``tell()`` raises at once and changes nothing. On other devices ``ask()`` and
      ``tell()`` do not wait for the device: a refused generation leaves mean, std and best as they were and
      counts, and the error rises at the next look at the host side (``check``, ``statistics``,
      ``best_fitness``, ``state_dict``, or at a ``snapshot`` when that is read).

    The population is ``population_size`` rows, one candidate each; ``dim`` is the length of ``mean``.
    """

    def __init__(
        self,
        mean: Any,
        std: Any,
        population_size: int,
        *,
        maximize: bool,
        elite_fraction: float | None = None,
        num_elites: int | None = None,
        extra_variance: NoiseSchedule | str | None = None,
        smoothing: float = 1.0,
        bounds: tuple[Any, Any] | None = None,
        std_floor: float = 0.0,
        mean_averaging: float = 0.0,
        backend: str = "torch",
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        noise: NoiseSchedule | str | None = None,
    ) -> None:
        """Start a search.

        Args:
            mean: The first mean, shape (dim,), dim >= 1, finite, within the bounds; tensor, array or sequence
                of any real dtype on any device. Copied.
            std: The first standard deviation, finite, ``>= 0``: shape (dim,) as for ``mean``, or one number
                for all dimensions. A dimension of 0 without noise stays where it is. Copied.
            population_size: Candidates a generation, ``>= 2``.
            maximize: True if a greater fitness is better, False if a smaller one is. No default.
            elite_fraction: The share of the population that are elites, in (0, 1]; their number is rounded up
                and is at least 2. 0.1 where neither this nor ``num_elites`` is given.
            num_elites: The number of elites, in 2..population_size, instead of a share.
            extra_variance: The variance ``Z_t`` added to the elites': ``None``, a schedule of ``cem.noise``,
                its text such as ``"linear:5,10"``, or any callable from the generation to a finite variance
                ``>= 0``.
            smoothing: ``alpha`` in (0, 1]: the weight of the elites against the old distribution; 1 forgets
                the old one.
            bounds: (low, high), each one number or shape (dim,), low <= high, infinities allowed: every
                candidate is clamped into them. ``None``: no bounds.
            std_floor: The least standard deviation after ``tell()``, finite, ``>= 0``.
            mean_averaging: ``beta`` in [0, 1]: the last share ``beta`` of the generations has at least two
                thirds of the weight in ``averaged_mean``. 0: the last generation has all of it.
            backend: The name of the sampler, one of ``cem.available_backends()``: ``"torch"`` draws anywhere,
                ``"cuda"`` with one kernel on CUDA devices. ``"auto"`` takes ``"cuda"`` where it works. They
                draw different candidates for the same seed.
            device: The device of candidates, mean and std.
            dtype: Their dtype, ``torch.float32`` or ``torch.float64``.
            seed: The seed of the whole search, ``0 <= seed < 2**64``.
            noise: An alias of ``extra_variance``.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If one is out of range, shapes differ, the backend or the device is not available, or
                both ``extra_variance`` and ``noise`` are given.
        """
        if not isinstance(maximize, bool):
            raise TypeError(f"expected a bool for maximize, got {maximize!r}")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"expected torch.float32 or torch.float64 for dtype, got {dtype!r}")
        self.device = check_device(device)
        self.dtype = dtype
        self.maximize = maximize
        self.population_size = check_integer("population_size", population_size, MIN_ELITES)
        self.num_elites = _count_elites(self.population_size, elite_fraction, num_elites)
        if extra_variance is not None and noise is not None:
            raise ValueError(
                f"expected extra_variance or its alias noise, got both: {extra_variance!r} and {noise!r}"
            )
        self.extra_variance = resolve_noise(noise if extra_variance is None else extra_variance)
        self.smoothing = check_real("smoothing", smoothing, 0.0, 1.0, open_low=True)
        self.std_floor = check_real("std_floor", std_floor, 0.0)
        self.mean_averaging = check_real("mean_averaging", mean_averaging, 0.0, 1.0)
        self.backend = choose_backend(backend, self.device)
        self.seed = check_integer("seed", seed, 0, 2**64 - 1)

        self._mean = check_vector("mean", mean, None, dtype, self.device)
        self.dim = self._mean.numel()
        self._std = check_vector("std", std, self.dim, dtype, self.device)
        check_distribution(self._mean, self._std)
        self._averaged_mean = self._mean
        self._bounds = check_bounds(bounds, self._mean)
        # As text here: on a GPU it waits for the device.
        self._bounds_text = None if self._bounds is None else repr([end.tolist() for end in self._bounds])
        self._sampler = make_sampler(self.backend, self.device)

        self._generation = 0
        self._asked: tuple[Tensor, int] | None = None
        self._best = torch.full_like(self._mean, math.nan)
        self._best_fitness = torch.full((), math.nan, dtype=torch.float64, device=self.device)
        self._elite_fitness = torch.full(
            (self.num_elites,), math.nan, dtype=torch.float64, device=self.device
        )
        # The number of a refused generation, from 1, that was not reported yet; 0 if there is none.
        self._refused = torch.zeros((), dtype=torch.int64, device=self.device)
        self._refuses_at_once = self.device.type == "cpu"
        self._snapshot: Snapshot | None = None  # of the state as it is, if one was taken

    @property
    def generation(self) -> int:
        """The number of generations told so far: ``t`` of the next ``ask()``."""
        return self._generation

    @property
    def mean(self) -> Tensor:
        """A copy of ``mu_t``, shape (dim,): the answer of the search where the fitness is noisy."""
        return self._mean.clone()

    @property
    def std(self) -> Tensor:
        """A copy of ``sigma_t``, shape (dim,)."""
        return self._std.clone()

    @property
    def averaged_mean(self) -> Tensor:
        """A copy of ``a_t``, shape (dim,): ``mean`` averaged over generations; see ``mean_averaging``."""
        return self._averaged_mean.clone()

    @property
    def best(self) -> Tensor:
        """A copy of the fittest candidate ever told, shape (dim,); NaN before the first ``tell()``.

        Of equal fitness the first one told stays. With a noisy fitness it is the luckiest one: prefer
        ``mean``.
        """
        return self._best.clone()

    @property
    def best_fitness(self) -> float:
        """The fitness of ``best`` as it was told; NaN before the first ``tell()``. Waits for the device.

        Raises:
            ValueError: As ``check``.
        """
        self.check()
        return float(self._best_fitness)

    @property
    def elite_fitness(self) -> Tensor:
        """The fitness of the elites of the last ``tell()``, best first; a copy, shape (num_elites,), float64.

        NaN before the first ``tell()``, and on devices other than the CPU after a refused one.
        """
        return self._elite_fitness.clone()

    def ask(self) -> Tensor:
        """Draw the population of this generation, equation (1), clamped into the bounds.

        Returns:
            The candidates, a new tensor of shape (population_size, dim), dtype and device of the optimizer.
            Pass other candidates that were evaluated instead to ``tell(fitness, candidates)``.
        """
        candidates = self._sampler(
            self._mean, self._std, self.population_size, seed=self.seed, generation=self._generation
        )
        if self._bounds is not None:
            candidates.clamp_(*self._bounds)
        self._asked = (candidates, _version(candidates))
        return candidates

    def tell(self, fitness: Any, candidates: Any = None) -> None:
        """Move the distribution towards the elites, equations (2) to (4), and count the generation.

        Args:
            fitness: The fitness of each candidate, shape (population_size,): tensor, array or sequence of any
                real dtype on any device. Not changed. It is ranked in its own dtype.
            candidates: The candidates evaluated, if they are not those of ``ask()`` (repaired or normalised
                ones): shape (population_size, dim), any real dtype and device. Not changed.

        Raises:
            RuntimeError: If there was no ``ask()`` before and no ``candidates`` are given.
            TypeError: If fitness or candidates are not real numbers.
            ValueError: If a shape is wrong, the asked candidates were changed in place and not passed back,
                the extra variance is no variance, no fitness is finite, or an elite of ``candidates`` is
                not finite.
        """
        scores = check_shape("fitness", fitness, (self.population_size,))
        scores = scores.to(self.device, scores.dtype if scores.is_floating_point() else torch.float64)
        population = self._evaluated(candidates)
        added = self.extra_variance(self._generation)
        extra_variance = check_real(f"the extra variance of generation {self._generation}", added, 0.0)

        # Ascending and stable: NaN sorts last, equals keep their order.
        ranking = torch.sort(-scores if self.maximize else scores, stable=True).indices[: self.num_elites]
        elites = population.index_select(0, ranking)
        elite_fitness = scores.index_select(0, ranking).double()

        # torch.var over rows is 14 times slower than these two passes on one core (dim 1000, 100 elites).
        mean = elites.mean(dim=0)
        std = (elites - mean).square_().mean(dim=0).add_(extra_variance).sqrt_()
        if self.smoothing != 1.0:
            mean = torch.lerp(self._mean, mean, self.smoothing)
            std = torch.lerp(self._std, std, self.smoothing)
        if self.std_floor > 0.0:
            std.clamp_(min=self.std_floor)
        share = 1.0 / (1.0 + self.mean_averaging * self._generation)
        averaged = mean if share == 1.0 else torch.lerp(self._averaged_mean, mean, share)

        top = elite_fitness[0]
        # Negated, so that anything is better than the NaN before the first tell().
        better = ~(self._best_fitness >= top if self.maximize else self._best_fitness <= top)
        finite = (mean + std).isfinite().all()
        if self._refuses_at_once:
            if not ((math.isfinite(top) or scores.isfinite().any()) and finite):
                nan, infinite = int(scores.isnan().sum()), int(scores.isinf().sum())
                raise ValueError(
                    f"{USABLE}, got {nan} NaN and {infinite} infinite of {len(scores)} fitness values"
                )
            if better:
                self._best, self._best_fitness = elites[0].clone(), top.clone()
            self._mean, self._std, self._averaged_mean = mean, std, averaged
        else:  # the same without waiting for the device
            usable = scores.isfinite().any() & finite
            better = better & usable
            self._refused = torch.maximum(self._refused, ~usable * (self._generation + 1))
            self._best = torch.where(better, elites[0], self._best)
            self._best_fitness = torch.where(better, top, self._best_fitness)
            self._mean, self._std = torch.where(usable, mean, self._mean), torch.where(usable, std, self._std)
            self._averaged_mean = torch.where(usable, averaged, self._averaged_mean)
        self._elite_fitness = elite_fitness
        self._generation += 1
        self._asked = None
        self._snapshot = None

    def snapshot(self) -> Snapshot:
        """Start a copy of the state after the last generation told to the host; does not wait.

        On a CUDA device the copy is queued on the current stream; reading it waits for earlier work only.
        A generation refused since the last snapshot is reported when this one is read.

        Returns:
            A new snapshot. ``check``, ``statistics`` and ``state_dict`` use it until the next ``tell()``.
        """
        figures = {
            "generation_best": self._elite_fitness[0],
            "elite_mean": self._elite_fitness.mean(),
            "elite_threshold": self._elite_fitness[-1],
            "std_mean": self._std.mean().double(),
        }
        tensors = {name: getattr(self, f"_{name}") for name in _STATE_TENSORS}
        self._snapshot = Snapshot(self._generation, self._settings(), tensors, figures, self._refused)
        self._refused = torch.zeros_like(self._refused)
        return self._snapshot

    def rewind(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot of this search; does not wait.

        Args:
            snapshot: A snapshot of ``snapshot()``.

        Raises:
            ValueError: If it is of a search with other settings or on another device.
        """
        device = snapshot.tensors["mean"].device
        if snapshot.settings != self._settings() or device != self._mean.device:
            raise ValueError(f"expected a snapshot of this search, got {snapshot.settings} on {device}")
        self._replace(snapshot.generation, snapshot.tensors)
        self._snapshot = snapshot

    def check(self) -> None:
        """Wait for the device and raise what ``tell()`` did not raise without waiting; a no-op on the CPU.

        Raises:
            ValueError: If a generation told since the last check or snapshot was refused; raised once.
        """
        if not self._refuses_at_once:
            self._latest().check()

    def statistics(self) -> dict[str, float]:
        """Return the statistics of the last generation.

        Returns:
            ``best_fitness`` so far; ``generation_best``, ``elite_mean`` and ``elite_threshold`` of the last
            generation (NaN before the first): the fitness of its best candidate, of its elites on average, of
            its worst elite; and ``std_mean``, the mean of the standard deviation over the dimensions.

        Raises:
            ValueError: As ``check``.
        """
        return self._latest().statistics()

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which a search resumes, as tensors on the CPU, numbers and text.

        A generation asked and not yet told is not part of it: it is drawn again, the same.

        Returns:
            ``settings`` (compared on loading), ``generation``, ``mean``, ``std``, ``averaged_mean`` and
            ``best`` of shape (dim,), ``best_fitness`` of shape () and ``elite_fitness`` of shape
            (num_elites,). The tensors are copies.

        Raises:
            ValueError: As ``check``.
        """
        return self._latest().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of an optimizer with the same settings, bit for bit.

        On another device the bits of later samples may differ. For other settings make a new optimizer with
        the ``mean`` and ``std`` of the old one.

        Args:
            state: A state of ``state_dict()``. Not changed.

        Raises:
            TypeError: If the generation is no int. No error changes the optimizer.
            ValueError: If a part is missing, has another shape or dtype, or was saved under other settings.
        """
        current = {name: getattr(self, f"_{name}") for name in _STATE_TENSORS}
        generation, tensors = check_state(state, self._settings(), current)
        check_distribution(tensors["mean"], tensors["std"])
        self._replace(generation, tensors)

    def _latest(self) -> Snapshot:
        return self.snapshot() if self._snapshot is None else self._snapshot

    def _replace(self, generation: int, tensors: Mapping[str, Tensor]) -> None:
        for name in _STATE_TENSORS:
            setattr(self, f"_{name}", tensors[name])
        self._generation = generation
        self._asked = None
        self._refused = torch.zeros_like(self._refused)
        self._snapshot = None

    def _settings(self) -> dict[str, Any]:
        """The settings that a resumed search shares with the saved one, as JSON values.

        The keys are those of older checkpoints: ``noise`` is ``extra_variance``, ``averaging`` is
        ``mean_averaging``.
        """
        return {
            "dim": self.dim,
            "population_size": self.population_size,
            "num_elites": self.num_elites,
            "maximize": self.maximize,
            "noise": describe_noise(self.extra_variance),
            "smoothing": self.smoothing,
            "bounds": self._bounds_text,
            "std_floor": self.std_floor,
            "averaging": self.mean_averaging,
            "backend": self.backend,
            "dtype": str(self.dtype).removeprefix("torch."),
            "seed": self.seed,
        }

    def _evaluated(self, candidates: Any) -> Tensor:
        if candidates is not None:
            population = check_shape("candidates", candidates, (self.population_size, self.dim))
            return population.to(self.device, self.dtype)
        if self._asked is None:
            raise RuntimeError(
                "expected ask() before tell(fitness), or tell(fitness, candidates); got neither"
            )
        population, version = self._asked
        if _version(population) != version:
            raise ValueError(
                "expected the candidates as ask() returned them, got them changed in place: "
                "pass what was evaluated as tell(fitness, candidates)"
            )
        return population


def _count_elites(population_size: int, elite_fraction: float | None, num_elites: int | None) -> int:
    if num_elites is not None:
        if elite_fraction is not None:
            raise ValueError(
                f"expected elite_fraction or num_elites, got both: {elite_fraction!r} and {num_elites!r}"
            )
        return check_integer("num_elites", num_elites, MIN_ELITES, population_size)
    fraction = DEFAULT_ELITE_FRACTION if elite_fraction is None else elite_fraction
    fraction = check_real("elite_fraction", fraction, 0.0, 1.0, open_low=True)
    return max(MIN_ELITES, math.ceil(fraction * population_size - _ROUNDING))


def _version(tensor: Tensor) -> int:
    # torch counts in-place changes of every tensor, except for inference tensors.
    return 0 if tensor.is_inference() else tensor._version
