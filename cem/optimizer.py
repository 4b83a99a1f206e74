"""The cross-entropy method with an ask-and-tell interface.

In every generation ``t`` a population is drawn, the caller evaluates each candidate, and the elites, the best
of them, give the next distribution:

    x_i ~ N(mu_t, Sigma_t)                                            i = 1 .. population          (1) ask
    m = sum of w_k x_k,   v = sum of w_k (x_k - mu_t)^2 + Z_t         over the elites              (2) tell
    mu_{t+1}    = alpha m + (1 - alpha) mu_t                                                       (3) tell
    sigma_{t+1} = max(beta sqrt(v) + (1 - beta) sigma_t, floor)                                    (4) tell
    a_{t+1}     = a_t + (mu_{t+1} - a_t) / (1 + gamma t)                                           (5) tell

The weights w_k, of sum 1, fall with the logarithm of the rank, and the variance is taken about the old mean:
where the slope is steeper than the distribution is wide, the elites lie on one side of it, and their
variance about their own mean is small however far the optimum is. That is how the method as published
collapses. Both are from CMA-ES (N. Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023,
section 3.1 and table 1). benchmarks/notes/search-rules.md has the comparison from which the defaults are
taken.

Z_t is the noise, a variance, of I. Szita and A. Lorincz, Learning Tetris Using the Noisy Cross-Entropy
Method, Neural Computation 18(12), 2006; see ``cem.noise``. (3) and (4) are the smoothed updating of P.-T. de
Boer, D. Kroese, S. Mannor and R. Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of Operations
Research 134, 2005, applied to mean and standard deviation as in D. Kroese, S. Porotsky and R. Rubinstein,
The Cross-Entropy Method for Continuous Multi-Extremal Optimization, Methodology and Computing in Applied
Probability 8, 2006. ``covariance="full"`` and ``paths=True`` replace the variance and (4) as
``cem.adaptation`` says.

(5) does not affect the search. With a noisy fitness the mean fluctuates about the optimum, and the average of
many means is nearer to it than the last one. With ``gamma = 1`` it is the average of all means, as in B.
Polyak and A. Juditsky, Acceleration of Stochastic Approximation by Averaging, SIAM Journal on Control and
Optimization 30(4), 1992; with less, late ones count for more, as in the polynomial-decay averaging of O.
Shamir and T. Zhang, Stochastic Gradient Descent for Non-smooth Optimization, ICML 2013.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem._checks import (
    check_bounds,
    check_device,
    check_distribution,
    check_real,
    check_shape,
    check_vector,
    version,
)
from cem.adaptation import rates
from cem.bounds import BOUND_HANDLING, keep_inside, start_out_of_box
from cem.evaluation import Evaluation, Objective
from cem.functional import BEST, MEAN, REFUSED, STD, Settings, State, draw, operator_sample, told
from cem.graph import GenerationGraph, check_capturable
from cem.noise import NoiseSchedule, VarianceTable, resolve_noise
from cem.readout import Readout
from cem.sampling import Sampler, choose_backend, sample_problems, torch_sampler
from cem.snapshot import USABLE
from cem.start import (
    MIN_ELITES,
    count_elites,
    doubles,
    first_rows,
    first_state,
    problem_seeds,
    rank_weights,
    restarted,
    seed_tensor,
)
from kernels.support.checks import check_flags, check_integer
from kernels.support.names import unknown_name

DEFAULT_ELITE_FRACTION = 0.2
DEFAULT_RELATIVE_STD_FLOOR = 1e-6
VARIANCES = ("old_mean", "new_mean", "new_mean_unbiased")
COVARIANCES = ("diagonal", "full")
WEIGHTS = ("equal", "log")
_FIT = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32})


class CrossEntropyMethod(Readout):
    """The cross-entropy method: draw a population, get its fitness, move towards the elites.

    Examples:
        >>> import torch
        >>> from cem import CrossEntropyMethod
        >>> optimizer = CrossEntropyMethod(mean=torch.zeros(5), std=2.0, population_size=200, maximize=False)
        >>> for _ in range(60):
        ...     candidates = optimizer.ask()  # (200, 5)
        ...     optimizer.tell((candidates - 3.0).square().sum(dim=1))  # (200,)
        >>> bool((optimizer.mean - 3.0).abs().max() < 1e-3)
        True

    The rules:

    * Elites: the ``num_elites`` fittest. Of equal fitness the lower index wins. Candidates with a fitness of
      NaN or of the infinity on the bad side, or given to ``tell()`` with a coordinate that is not finite,
      have failed: they are no elites. Fewer successes than elites: the successes alone. None: the generation
      is refused.
    * ``ask()`` twice without ``tell()`` returns the same values in two tensors. The sample is a function of
      (seed, generation) alone: dropping a generation or resuming changes nothing.
    * Tensors passed in are not changed, returned tensors are copies, torch's global generator is not used
      but for a seed of None.
    * On the CPU a refused ``tell()`` raises at once and changes nothing. On other devices ``ask()`` and
      ``tell()`` do not wait for the device: a refused generation leaves mean, std and best as they were and
      counts, and the error rises at the next look at the host side (``check``, ``statistics``,
      ``best_fitness``, ``state_dict``, or at a ``snapshot`` when that is read).
    * Leading dimensions of ``mean`` are a batch of independent problems: candidates (..., N, d), fitness
      (..., N). A problem of a batch has the numbers of a search of its own with its seed; with full
      covariance or bounds by transform up to rounding, otherwise bit for bit. Its refused generations raise
      nothing; ``State.record`` tells them.
    * NumPy arrays in, NumPy arrays out: with an array as ``mean`` all methods return arrays.

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
        weights: str = "log",
        variance_about: str = "old_mean",
        covariance: str = "diagonal",
        paths: bool = False,
        smoothing: float = 1.0,
        std_smoothing: float = 0.4,
        extra_variance: NoiseSchedule | str | None = None,
        std_floor: float = 0.0,
        relative_std_floor: float | None = None,
        bounds: tuple[Any, Any] | None = None,
        bound_handling: str = "clamp",
        mean_averaging: float = 0.0,
        sampler: Sampler | None = None,
        backend: str = "auto",
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        seed: Any = None,
        noise: NoiseSchedule | str | None = None,
    ) -> None:
        """Start a search.

        Args:
            mean: The first mean, shape (..., dim), dim >= 1, finite, within the bounds; tensor, array or
                sequence of any real dtype on any device. Copied. Leading dimensions are a batch.
            std: The first standard deviation, finite, ``>= 0``, broadcastable to ``mean``. A dimension of 0
                without noise stays where it is. Copied.
            population_size: Candidates a generation, ``>= 2``.
            maximize: True if a greater fitness is better, False if a smaller one is. No default.
            elite_fraction: The share of the population that are elites, in (0, 1]; their number is rounded up
                and is at least 2. 0.2, or 0.5 with ``paths``, where neither this nor ``num_elites`` is given.
            num_elites: The number of elites, in 2..population_size, instead of a share.
            weights: ``"log"``: proportional to ``log(K + 1/2) - log(k)`` for rank k of K, as in CMA-ES,
                or ``"equal"``, as in the literature of the method.
            variance_about: The centre of the elites' variance: ``"old_mean"``, ``mu_t``, as in CMA-ES;
                ``"new_mean"``, ``m``, as in the literature of the method, divided by the number of elites;
                ``"new_mean_unbiased"``, divided by it minus one. About the new mean the search collapses
                where the slope is steeper than the distribution is wide: prefer it with extra variance.
            covariance: ``"diagonal"``, or ``"full"``: dim^2 numbers and dim^3 operations a generation.
            paths: Evolution paths adapt covariance and step size, as in CMA-ES; see ``cem.adaptation``.
                ``variance_about`` and ``std_smoothing`` are then not used.
            smoothing: ``alpha`` in (0, 1]: the weight of the elites against the old mean.
            std_smoothing: ``beta``, the same for the standard deviation (for the covariance, if full).
            extra_variance: The variance ``Z_t`` added to the elites': ``None``, a schedule of ``cem.noise``,
                its text such as ``"linear:5,10"``, or any function of the generation to a finite variance
                ``>= 0``. It is called ahead of time, once for each generation.
            std_floor: The least standard deviation after ``tell()``, finite, ``>= 0``.
            relative_std_floor: The same as a share of the first ``std`` of each dimension: the resolution of
                the search. None: 1e-6, or 0 with ``paths``.
            bounds: (low, high), each broadcastable to ``mean``, low <= high, infinities allowed. ``None``: no
                bounds.
            bound_handling: ``"clamp"``, ``"reflect"``, ``"resample"`` or ``"transform"``: how candidates are
                kept within the bounds; see ``cem.bounds``.
            mean_averaging: ``gamma`` in [0, 1]: the last share ``gamma`` of the generations has at least two
                thirds of the weight in ``averaged_mean``. 0: the last generation has all of it.
            sampler: Draws the candidates instead of the backend; see ``cem.sampling.Sampler``.
            backend: What draws and updates: ``"cpu"`` and ``"cuda"``, the operators of ``kernels`` on their
                device, ``"torch"``, PyTorch operations anywhere, or ``"auto"``, the operators where they can
                be compiled; see ``cem.sampling``. Backends draw different candidates for the same seed.
            device: The device of candidates, mean and std; None: the CPU.
            dtype: Their dtype, ``torch.float32`` or ``torch.float64``. None: float64 for a tensor or array of
                that dtype as ``mean``, otherwise float32.
            seed: The seed of the whole search, ``0 <= seed < 2**64``. For a batch: one from which each
                problem's own is derived, or an array of them in the batch's shape. None: torch's global
                generator draws it, and a search that resumes takes that of the saved one.
            noise: An alias of ``extra_variance``.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If one is out of range, shapes differ, the backend or the device is not available, or
                both ``extra_variance`` and ``noise`` are given.
        """
        check_flags(maximize=maximize, paths=paths)
        self._numpy = isinstance(mean, np.ndarray)
        if dtype is None:
            double = getattr(mean, "dtype", None) in (torch.float64, np.float64)
            dtype = torch.float64 if double else torch.float32
        if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float64):
            raise ValueError(f"expected torch.float32 or torch.float64 for dtype, got {dtype!r}")
        for name, value, known in (
            ("weights", weights, WEIGHTS),
            ("variance_about", variance_about, VARIANCES),
            ("covariance", covariance, COVARIANCES),
            ("bound_handling", bound_handling, BOUND_HANDLING),
        ):
            if not isinstance(value, str) or value not in known:
                raise unknown_name(f"value for {name}", str(value), known)
        self.device = check_device("cpu" if device is None else device)
        if self._numpy and self.device.type != "cpu":
            raise ValueError(f"expected a tensor as mean on device {str(self.device)!r}, got a NumPy array")
        self.dtype = dtype
        self.maximize = maximize
        self.population_size = check_integer("population_size", population_size, MIN_ELITES, (1 << 31) - 1)
        default_fraction = 0.5 if paths else DEFAULT_ELITE_FRACTION
        self.num_elites = count_elites(self.population_size, elite_fraction, num_elites, default_fraction)
        self.weights = weights
        if extra_variance is not None and noise is not None:
            raise ValueError(
                f"expected extra_variance or its alias noise, got both: {extra_variance!r} and {noise!r}"
            )
        self.extra_variance = resolve_noise(noise if extra_variance is None else extra_variance)
        self.std_floor = check_real("std_floor", std_floor, 0.0)
        if relative_std_floor is None:
            relative_std_floor = 0.0 if paths else DEFAULT_RELATIVE_STD_FLOOR
        self.relative_std_floor = check_real("relative_std_floor", relative_std_floor, 0.0)

        start = check_vector("mean", mean, None, dtype, self.device)
        self.batch_shape = start.shape[:-1]
        self.dim = start.shape[-1]
        first_std = check_vector("std", std, start.shape, dtype, self.device)
        check_distribution(start, first_std)
        limits = check_bounds(bounds, start)
        # As text here: on a GPU it waits for the device.
        self._bounds_text = None if limits is None else repr([end.tolist() for end in limits])
        self.backend = choose_backend(backend, self.device)
        if sampler is not None and not callable(sampler):
            raise TypeError(f"expected a function for sampler, got {type(sampler).__name__}")
        self._own_sampler = sampler is not None
        self._sampler = sampler or (torch_sampler if self.backend == "torch" else None)
        self._seeds = problem_seeds(seed, self.batch_shape)
        self._takes_any_seed = seed is None
        ranked = rank_weights(self.num_elites, weights)
        settings = Settings(
            population_size=self.population_size,
            num_elites=self.num_elites,
            maximize=maximize,
            covariance=covariance,
            rates=rates(self.dim, ranked, diagonal=covariance == "diagonal") if paths else None,
            variance_about=variance_about,
            smoothing=check_real("smoothing", smoothing, 0.0, 1.0, open_low=True),
            std_smoothing=check_real("std_smoothing", std_smoothing, 0.0, 1.0, open_low=True),
            mean_averaging=check_real("mean_averaging", mean_averaging, 0.0, 1.0),
            bounds=bound_handling,
            backend=self.backend,
        )
        self._first = start, first_std
        if limits is not None and bound_handling == "transform":
            start, first_std = start_out_of_box(start, first_std, *limits)
        floor = None
        if self.std_floor > 0.0 or self.relative_std_floor > 0.0:
            floor = (first_std * self.relative_std_floor).clamp(min=self.std_floor)
        self._start = start, first_std
        self._state = first_state(
            start,
            first_std,
            settings,
            seed=seed_tensor(self._seeds, self.batch_shape, self.device),
            weights=weights,
            std_floor=floor,
            bounds=limits,
        )
        self._variances = VarianceTable(self.extra_variance)
        self._cover(1)
        self._fitness_shape = (*self.batch_shape, self.population_size)
        self._refuses_at_once = self.device.type == "cpu" and not self.batch_shape
        self._adopt(0, self._state, None)

    def ask(self) -> Any:
        """Draw the population of this generation, equation (1), within the bounds.

        Returns:
            The candidates, a new tensor of shape (..., population_size, dim), dtype and device of the
            optimizer. Pass other candidates that were evaluated instead to ``tell(fitness, candidates)``.
        """
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # torch counts no changes of inference tensors
                candidates = self._draw()
        else:
            candidates = self._draw()
        # A sampler of the caller's may draw others the next time; see _is_as_drawn.
        kept = candidates.clone() if self._own_sampler and candidates.is_cpu else None
        self._asked = candidates, version(candidates), kept
        return candidates.numpy() if self._numpy else candidates

    def tell(self, fitness: Any, candidates: Any = None) -> None:
        """Move the distribution towards the elites, equations (2) to (4), and count the generation.

        Args:
            fitness: The fitness of each candidate, shape (..., population_size): tensor, array or sequence of
                any real dtype on any device. Not changed. It is ranked in its own dtype, a sequence as
                float64; so are integers where ``candidates`` have failed, and on a GPU where any are given.
                The best of two generations is the better one as float64.
            candidates: The candidates evaluated, if they are not those of ``ask()`` (repaired or normalised
                ones): shape (..., population_size, dim), any real dtype and device. Not changed.

        Raises:
            RuntimeError: If there was no ``ask()`` before and no ``candidates`` are given.
            TypeError: If fitness or candidates are not real numbers.
            ValueError: If a shape is wrong, the asked candidates were changed in place and not passed back
                (as far as torch counts changes: not those by ``.data``), the extra variance is no variance,
                or every candidate has failed.
        """
        scores = self._checked_fitness(fitness)
        asked, evaluated = self._evaluated(candidates)
        self._cover(self._generation + 1)
        state, elites = told(self._state, asked, scores, evaluated)
        if self._refuses_at_once and state.record.tolist()[REFUSED] == self._generation + 1:
            nan, infinite = int(scores.isnan().sum()), int(scores.isinf().sum())
            raise ValueError(
                f"{USABLE}, got {nan} NaN and {infinite} infinite of {len(scores)} fitness values"
            )
        self._follow(state, self._generation + 1, scores, elites)

    def capture(self, objective: Objective, generations: int = 1) -> Callable[[], Evaluation]:
        """Return a function that runs generations of this search in a CUDA graph.

        Whole generations, ask, objective and tell, are captured once and replayed; see
        ``cem.graph.GenerationGraph``. Each call moves the search as ``generations`` rounds of ``ask`` and
        ``tell`` do, bit for bit, and returns the last evaluation, whose tensors the next call overwrites.

        Args:
            objective: Maps (candidates, generation) to fitness or an ``Evaluation``; the generation is a
                tensor of shape () on the device.
            generations: The generations of one call, ``>= 1``.

        Raises:
            ValueError: If the search does not run by the operators on a CUDA device.
            RuntimeError: If the objective cannot be captured.
        """
        check_integer("generations", generations, 1)
        check_capturable(self._state)
        graph: GenerationGraph | None = None

        def step() -> Evaluation:
            nonlocal graph
            last = self._generation + generations
            self._cover(last)
            if graph is None or not graph.fits(self._state):
                graph = GenerationGraph(self._state, objective, generations)
            self._follow(graph(self._state), last, graph.evaluation.fitness, graph.elites)
            return graph.evaluation

        return step

    def reset(self, mean: Any = None, std: Any = None) -> None:
        """Start again elsewhere: the generation, and with it the noise, goes on; the best is forgotten.

        Args:
            mean: The new mean, shape (..., dim); None: the first one.
            std: The new standard deviation, broadcastable to it; None: the first one.

        Raises:
            TypeError: As the constructor.
            ValueError: As the constructor.
        """
        start, first_std = self._first
        if mean is not None:
            start = check_vector("mean", mean, start.shape, self.dtype, self.device)
        if std is not None:
            first_std = check_vector("std", std, start.shape, self.dtype, self.device)
        if mean is not None or std is not None:
            check_distribution(start, first_std)
        low, high = self._state.low, self._state.high
        if low is not None and high is not None:
            if mean is not None:
                check_bounds((low, high), start)
            if self._state.settings.bounds == "transform":
                start, first_std = start_out_of_box(start, first_std, low, high)
        self._adopt(self._generation, restarted(self._state, first_rows(start, first_std)), None)

    def shift(self, k: int) -> None:
        """Move mean and standard deviation ``k`` places forward, as a plan of which ``k`` steps are taken.

        Place i takes what place i + k had; the last k take the first mean and standard deviation. The
        generation goes on; the best is forgotten.

        Args:
            k: In 0..dim.
        """
        k = check_integer("k", k, 0, self.dim)
        kept = self._state.distribution[..., k:]
        fresh = first_rows(*self._start)[..., self.dim - k :]
        shifted = torch.cat([kept, fresh], dim=-1)
        shifted[..., BEST, :] = math.nan
        self._adopt(self._generation, restarted(self._state, shifted), None)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle and copy all but a generation asked and not told: ``ask()`` draws it again, the same."""
        elites = self._fitness_of_elites()
        return {**self.__dict__, "_asked": None, "_snapshot": None, "_told": None, "_elite_fitness": elites}

    def _draw(self) -> Tensor:
        return draw(self._state, operator_sample if self._sampler is None else self._sample)

    def _sample(self, state: State, rows: Tensor, bounds: tuple[Tensor, Tensor] | None) -> Tensor:
        """Draw by the search's own sampler; a ``cem.functional.Sample``."""
        assert self._sampler is not None
        mean, std = rows[..., MEAN, :], rows[..., STD, :]
        x = sample_problems(self._sampler, mean, std, self.population_size, self._seeds, self._generation)
        return x if bounds is None else keep_inside(x, mean, std, *bounds, "clamp")

    def _cover(self, generations: int, ahead: int = 0) -> None:
        """Put the extra variance of the first ``generations``, and if possible of ``ahead``, on the device.

        Raises:
            TypeError: If the schedule gives no number for one of the first.
            ValueError: If it gives no variance.
        """
        if max(generations, ahead) > self._variances.covered:
            table = self._variances.extended(generations, ahead)
            self._state = self._state._replace(extra_variance=doubles(table, self.device))

    def _checked_fitness(self, fitness: Any) -> Tensor:
        if (
            type(fitness) is Tensor
            and fitness.dtype in _FIT
            and fitness.shape == self._fitness_shape
            and fitness.device == self.device
            and not fitness.requires_grad
            and not fitness.is_inference()
            and not _is_shared(fitness)
        ):
            return fitness
        # A copy: torch does not see changes of inference tensors and of memory that NumPy has, too.
        return check_shape("fitness", fitness, self._fitness_shape).to(self.device, copy=True)

    def _evaluated(self, candidates: Any) -> tuple[Tensor, Tensor | None]:
        """Return the candidates to be told, and, where the caller gave others, those."""
        if candidates is not None:
            population = check_shape("candidates", candidates, (*self._fitness_shape, self.dim))
            population = population.to(self.device, self.dtype)
            if self.device.type == "cpu" and math.isfinite(population.sum()):  # none has failed
                return population, None
            return population, population
        if self._asked is None:
            raise RuntimeError(
                "expected ask() before tell(fitness), or tell(fitness, candidates); got neither"
            )
        population, drawn, kept = self._asked
        if version(population) != drawn or not self._is_as_drawn(population, kept):
            raise ValueError(
                "expected the candidates as ask() returned them, got them changed in place: "
                "pass what was evaluated as tell(fitness, candidates)"
            )
        return population.detach() if population.requires_grad else population, None

    def _is_as_drawn(self, candidates: Tensor, kept: Tensor | None) -> bool:
        """Return False if NumPy has changed candidates: torch does not see that.

        They are compared with the copy that was kept, or drawn again.
        """
        if not _is_shared(candidates):
            return True
        word = torch.int64 if self.dtype == torch.float64 else torch.int32
        drawn = self._draw() if kept is None else kept
        return torch.equal(drawn.view(word), candidates.detach().view(word))


def _is_shared(tensor: Tensor) -> bool:
    """Return whether NumPy may have the memory: what it was given cannot be resized any more."""
    return tensor.is_cpu and not (tensor.layout is torch.strided and tensor.untyped_storage().resizable())
