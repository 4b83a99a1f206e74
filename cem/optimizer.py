"""The cross-entropy method with an ask-and-tell interface.

In every generation ``t`` a population is drawn, the caller evaluates each candidate, and the
best of them, the elites, give the next distribution:

    x_i ~ N(mu_t, Sigma_t)                                     i = 1 .. population  (1) ask
    m = sum of w_k x_k,  v = sum of w_k (x_k - mu_t)^2 + Z_t   over the elites      (2) tell
    mu_{t+1}    = alpha m + (1 - alpha) mu_t                                        (3) tell
    sigma_{t+1} = max(beta sqrt(v) + (1 - beta) sigma_t, floor)                     (4) tell
    a_{t+1}     = a_t + (mu_{t+1} - a_t) / (1 + gamma t)                            (5) tell

The weights w_k sum to 1 and fall with the logarithm of the rank. The variance is taken about
the old mean: on a slope that is long beside the width of the distribution, all elites lie on
one side of it, and their variance about their own mean is small however far the optimum is.
That is how the method as published collapses. Both are from CMA-ES (N. Hansen, The CMA
Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023, section 3.1 and table 1). With evolution
paths, the default, ``kernels.ops.cma_update.op`` replaces the variance and (4); with a full
covariance alone ``cem.core.adaptation`` does.

Z_t is the extra variance of I. Szita and A. Lorincz, Learning Tetris Using the Noisy
Cross-Entropy Method, Neural Computation 18(12), 2006; see ``cem.core.variance_schedule``. (3)
and (4) are the smoothed updating of P.-T. de Boer, D. Kroese, S. Mannor and R. Rubinstein, A
Tutorial on the Cross-Entropy Method, Annals of Operations Research 134, 2005, applied to mean
and standard deviation as in D. Kroese, S. Porotsky and R. Rubinstein, The Cross-Entropy Method
for Continuous Multi-Extremal Optimization, Methodology and Computing in Applied Probability 8,
2006.

(5) does not affect the search. With a noisy fitness the mean fluctuates about the optimum, and
the average of many means is nearer to it than the last one. With ``gamma = 1`` it is the
average of all means, as in B. Polyak and A. Juditsky, Acceleration of Stochastic Approximation
by Averaging, SIAM Journal on Control and Optimization 30(4), 1992. With a smaller gamma, later
means count for more, as in the polynomial-decay averaging of O. Shamir and T. Zhang, Stochastic
Gradient Descent for Non-smooth Optimization, ICML 2013.
"""

import math
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.backend import torch_sample
from cem.core.checks import check_real, check_shape, outside
from cem.core.config import CEMConfig
from cem.core.evaluation import Evaluation, Objective
from cem.core.generation import draw, operator_sample, tell
from cem.core.graph import GenerationGraph
from cem.core.reasons import Reason
from cem.core.snapshot import Snapshot, copy_to_host, load_state
from cem.core.start import doubles, init, problem_seeds
from cem.core.state import FAILED, State, bounds_of
from cem.core.termination import Termination
from cem.core.variance_schedule import describe_variance_schedule, extend_table
from cem.families.family import OperatorFamily
from kernels.support.checks import check_integer

_AHEAD = 64  # generations whose extra variance is computed when a search begins
_FITNESS_DTYPES = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32}
)


class CrossEntropyMethod:
    """The cross-entropy method: draw a population, get its fitness, move towards the elites.

    Examples:
        >>> import torch
        >>> from cem import CrossEntropyMethod
        >>> optimizer = CrossEntropyMethod(mean=torch.zeros(5), std=2.0, maximize=False, seed=1)
        >>> for _ in range(150):
        ...     candidates = optimizer.ask()  # (8, 5)
        ...     optimizer.tell(candidates, (candidates - 3.0).square().sum(dim=1))  # (8,)
        >>> bool((optimizer.mean - 3.0).abs().max() < 1e-3)
        True

    The rules:

    * The elites are the fittest candidates; of equal ones, those with the lower index. A
      candidate whose fitness is NaN, or infinite on the bad side, has failed and is never an
      elite. If fewer candidates than elites succeed, these alone are the elites. If none
      succeeds, the generation counts, and mean, std and best stay as they were. A
      RuntimeWarning says so: on the CPU at once; on other devices, for which nothing waits,
      when ``statistics`` is called; for a batch never.
    * ``ask()`` twice without ``tell()`` returns the same values in two tensors. They are a
      function of (seed, generation) alone: dropping a generation or resuming changes nothing.
    * Tensors passed in are not changed, and returned tensors are copies. torch's global
      generator is only used if the seed is None.
    * Leading dimensions of ``mean`` are a batch of independent problems: candidates (..., N,
      d), fitness (..., N). A problem of a batch has the same numbers as a single search with
      its seed: bit for bit, or with full covariance or bounds by transform up to rounding.
    * If ``mean`` is a NumPy array, all methods return arrays.

    Attributes:
        config, population_size, maximize, backend, device, dtype: The arguments, or their
            defaults.
        num_elites: Elites per generation.
        dim: The length of a candidate.
        batch_shape: The shape of a batch of problems; () for a single one.
    """

    _generation: int
    _asked: int  # how many candidates of this generation were asked for one by one
    _drawn: Tensor | None  # these, and some that will be asked for next
    _parts: list[tuple[Tensor, Tensor]]  # candidates and fitness of an incomplete population
    _num_told: int  # how many candidates these are
    _snapshot: Snapshot | None  # of the current state
    _termination: Termination | None

    def __init__(  # noqa: PLR0913 - an option for each setting
        self,
        mean: Any,
        std: Any,
        population_size: int | None = None,
        *,
        maximize: bool,
        config: CEMConfig | None = None,
        bounds: Any = None,
        backend: str = "auto",
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        seed: Any = None,
    ) -> None:
        """Start a search.

        Args:
            mean: The first mean, shape (..., dim), dim >= 1, finite, within the bounds: a
                tensor, array or sequence of any real dtype on any device. Leading dimensions
                are a batch.
            std: The first standard deviation, finite, ``>= 0``, broadcastable to ``mean``. A
                dimension of 0 without extra variance stays where it is.
            population_size: Candidates per generation, ``>= 2``. None: 4 + 3 ln(dim) with
                evolution paths, otherwise 10 dim and at most 1,000.
            maximize: True if a greater fitness is better, False if a smaller one is. No
                default.
            config: How the distribution moves. None: ``CEMConfig.cma()``, with a full
                covariance up to 200 parameters and a diagonal one above.
            bounds: A pair (low, high) for each parameter, where None is no bound;
                ``scipy.optimize.Bounds``; two numbers for all parameters; or
                ``cem.Bounds(low, high)``. None: no bounds.
            backend: ``"cpu"`` or ``"cuda"``: the operators of ``kernels``; ``"torch"``: PyTorch
                operations; ``"auto"``: the operators where they are compiled or can be. See
                ``cem.core.backend``.
            device: Where the search lives. None: the CPU.
            dtype: ``torch.float32`` or ``torch.float64``. None: float64 if ``mean`` is, else
                float32.
            seed: The seed of the noise, ``0 <= seed < 2**64``. For a batch it is one number,
                from which the seeds of all problems are derived, or one number per problem. A
                generator of NumPy or torch draws it; None stands for torch's global generator.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If one is out of range, shapes differ, or backend or device is not
                available.
        """
        self._numpy = isinstance(mean, np.ndarray)
        self._lock = threading.RLock()
        state = self._state = init(
            mean,
            std,
            population_size,
            maximize=maximize,
            config=config,
            bounds=bounds,
            backend=backend,
            device=device,
            dtype=dtype,
            seed=seed,
            _ahead=_AHEAD,
        )
        self._seeds: tuple[int, ...] = tuple(
            signed % 2**64 for signed in state.seed.reshape(-1).tolist()
        )
        self._takes_any_seed = seed is None
        settings = state.settings
        self.config = settings.config
        self.population_size = settings.population_size
        self.num_elites = settings.num_elites
        self.maximize = settings.maximize
        self.backend = settings.backend
        self.dim = settings.dim
        rows = state.distribution
        self.device = rows.device
        self.dtype = rows.dtype
        self.batch_shape = rows.shape[:-2]
        self._shape = (*self.batch_shape, self.population_size, self.dim)
        self._variances: list[float] | None = None  # on the host, if there may be more of them
        table = state.variance_schedule
        if table is not None and getattr(self.config.schedule, "name", "") != "constant":
            self._variances = table.tolist()
        self._first_std = state.std
        self._adopt(0, state)
        self._settings = self._describe()

    def ask(self, count: int | None = None) -> Any:
        """Draw candidates of this generation, equation (1), within the bounds.

        Args:
            count: How many candidates of a single search, the next ones with every call, for
                evaluations that end one by one: see ``tell``. None: the whole population.

        Returns:
            A new tensor of shape (..., population_size, dim), or (count, dim).
        """
        with self._lock:
            candidates = self._draw() if count is None else self._draw_next(count)
        return candidates.numpy() if self._numpy else candidates

    def _draw(self, size: int | None = None) -> Tensor:
        """Draw the first ``size`` candidates of this generation, or the whole population."""
        sample = operator_sample
        if self.backend == "torch":
            sample = partial(torch_sample, seeds=self._seeds, generation=self._generation)
        return draw(self._state, sample, size)

    def _draw_next(self, count: int) -> Tensor:
        """Return the next ``count`` candidates of this generation of a single search.

        The first candidates do not depend on how many are drawn: at first a population is. When
        there is none left, twice as many are drawn as were asked for: each call takes the same
        time on average.
        """
        if self.batch_shape:
            batch = tuple(self.batch_shape)
            raise ValueError(f"expected count=None of a batch of shape {batch}")
        begin = self._asked
        end = begin + check_integer("count", count, 1)
        if self._drawn is None:
            self._drawn = self._draw(max(end, self.population_size))
        elif self._drawn.shape[0] < end:  # faster than len()
            self._drawn = self._draw(2 * end)
        self._asked = end
        return self._drawn[begin:end].clone()

    def tell(self, candidates: Any, fitness: Any, *, _are_asked: bool = False) -> None:
        """Move the distribution towards the elites, equations (2) to (5); count the generation.

        Candidates of a single search may come one by one or in parts, in any order, and also
        after candidates of a later generation were asked for: the distribution moves as soon as
        there are as many as a population has.

        Args:
            candidates: The candidates evaluated, shape (..., population_size, dim), or fewer,
                shape (n, dim): those of ``ask()``, or others that were evaluated in their
                place, such as repaired ones. They may lie outside the bounds. One that is not
                finite has failed, whatever its fitness; only the CPU looks for these, so that
                nothing waits for other devices.
            fitness: The fitness of each candidate, shape (..., population_size) or (n,): a
                tensor, array or sequence of any real dtype on any device. It is ranked in its
                own dtype, a sequence as float64.

        Raises:
            ValueError: If a shape is wrong, the extra variance is not a variance, or, on the
                CPU, the column of a family has a number that is none of its values.
        """
        if not self._is_plain(candidates, fitness):
            expected = self._shape
            if not self.batch_shape and len(candidates) < self.population_size:
                expected = (len(candidates), self.dim)
            candidates = check_shape("candidates", candidates, expected)
            candidates = candidates.to(self.device, self.dtype)
            fitness = check_shape("fitness", fitness, expected[:-1]).to(self.device)
        # Candidates that ``ask`` drew are finite. The trainer, which holds them, says that they
        # are those, and saves the time of the check.
        if self.device.type == "cpu" and not _are_asked:
            fitness = self._fail_unusable(candidates, fitness)
        with self._lock:
            if self._parts or candidates.shape[0] < self._shape[0]:
                population = self._complete_population(candidates, fitness)
                if population is None:
                    return
                candidates, fitness = population
            self._move(candidates, fitness)
        if self.device.type == "cpu":
            self._warn_of_failure()

    def _move(self, candidates: Tensor, fitness: Tensor) -> None:
        """Move the distribution by the fitness of a population, and count the generation."""
        self._extend_variance_schedule(self._generation + 1)
        self._state = tell(self._state, candidates, fitness)
        self._generation += 1
        self._asked = 0
        self._drawn = None
        self._snapshot = None

    def _complete_population(
        self, candidates: Tensor, fitness: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Add some candidates (n, dim), with their fitness (n,), to an incomplete population.

        Returns:
            The candidates and the fitness of a population, or None as long as candidates are
            missing. Those that are too many belong to the next population.
        """
        # Copies, because the caller may change these tensors.
        self._parts.append((candidates.clone(), fitness.clone()))
        self._num_told += len(candidates)
        size = self.population_size
        if self._num_told < size:
            return None
        candidates, fitness = self._join_parts()
        self._parts = []
        self._num_told -= size
        if self._num_told > 0:
            self._parts.append((candidates[size:], fitness[size:]))
        return candidates[:size], fitness[:size]

    def _join_parts(self) -> tuple[Tensor, Tensor]:
        """Return the candidates of an incomplete population, and their fitness."""
        candidates, fitness = zip(*self._parts, strict=True)
        return torch.cat(candidates), torch.cat(fitness)

    def _is_plain(self, candidates: Any, fitness: Any) -> bool:
        """Return whether both are tensors that ``tell`` need not convert: a fast check."""
        return (
            type(fitness) is type(candidates) is Tensor
            and candidates.shape == self._shape
            and fitness.shape == self._shape[:-1]
            and fitness.dtype in _FITNESS_DTYPES
            and candidates.dtype is self.dtype
            and fitness.device == candidates.device == self.device
            and not (fitness.requires_grad or candidates.requires_grad)
        )

    def capture(self, objective: Objective, generations: int = 1) -> Callable[[], Evaluation]:
        """Return a function that runs generations of this search in a CUDA graph.

        Each call moves the search as ``generations`` rounds of ``ask`` and ``tell`` do, bit for
        bit, and returns the last evaluation, whose tensors the next call overwrites.

        Args:
            objective: Maps (candidates, generation) to fitness or an ``Evaluation``; the
                generation is a tensor of shape () on the device. It launches the same work
                every time and never waits.
            generations: The generations of one call, ``>= 1``.

        Raises:
            ValueError: If the search does not run by the operators on a CUDA device.
        """
        step = self._capture_step(objective, generations)
        return lambda: step().evaluations[-1]

    def capture_records(
        self,
        objective: Objective,
        generations: int,
        records: int,
    ) -> Callable[[], list[Snapshot]]:
        """Return a function that runs ``records * generations`` generations in one CUDA graph.

        The function returns ``records`` snapshots of the search, one after every
        ``generations`` generations, with the metrics of the last evaluation. Their copies to
        the host have begun.
        """
        step = self._capture_step(objective, generations, records)

        def run() -> list[Snapshot]:
            """Replay the graph; return a snapshot after every ``generations`` generations.

            The tensors of all snapshots are stacked by the graph, so that a few copies bring
            them to the host.
            """
            generation = self._generation
            graph = step()
            snapshots = []
            for evaluation in graph.evaluations:
                generation += generations
                snapshot = Snapshot(
                    generation, self._settings, self._state, evaluation, copies=False
                )
                snapshots.append(snapshot)
            copy_to_host(snapshots, graph.together)
            self._snapshot = snapshots[-1]
            return snapshots

        return run

    def _capture_step(
        self,
        objective: Objective,
        generations: int,
        records: int = 0,
    ) -> Callable[[], GenerationGraph]:
        """Return a function that moves the search by one replay of a CUDA graph.

        The first call captures the graph. A later one captures it again if the state has other
        constants, such as a longer table of the extra variance.

        Args:
            objective: As for ``capture``.
            generations: The generations from one record to the next.
            records: The records of one replay; 0: the replay has ``generations`` generations
                and no records.

        Returns:
            A function that returns the graph, which has the evaluations of the replay.
        """
        check_integer("generations", generations, 1)
        if self.backend != "cuda":
            got = f"{self.backend!r} on {str(self.device)!r}"
            expected = "a search with backend 'cuda' for a CUDA graph"
            raise ValueError(f"expected {expected}, got {got}")
        graph: GenerationGraph | None = None

        def step() -> GenerationGraph:
            nonlocal graph
            generation = self._generation + generations * max(records, 1)
            self._extend_variance_schedule(generation)
            if graph is None or not graph.fits(self._state):
                graph = GenerationGraph(self._state, objective, generations, records)
            self._state = graph(self._state)
            self._generation = generation
            self._snapshot = None
            return graph

        return step

    @property
    def generation(self) -> int:
        """The number of generations so far, which is ``t`` of the next ``ask()``."""
        return self._generation

    @property
    def state(self) -> State:
        """The state for ``cem.functional``, whose tensors must not be changed."""
        return self._state

    @property
    def seed(self) -> int:
        """The seed; for a batch, the seed of its first problem."""
        return self._seeds[0]

    @property
    def mean(self) -> Any:
        """A copy of ``mu_t``, shape (..., dim): the search's answer if the fitness is noisy."""
        return self._copy(self._state.mean)

    @property
    def std(self) -> Any:
        """A copy of ``sigma_t``, shape (..., dim).

        With bounds by transform it belongs to the space without bounds.
        """
        return self._copy(self._state.std)

    @property
    def averaged_mean(self) -> Any:
        """A copy of ``a_t``, shape (..., dim), the average of means; see ``mean_averaging``."""
        return self._copy(self._state.averaged_mean)

    @property
    def covariance(self) -> Any:
        """The covariance ``Sigma_t``, a new tensor of shape (..., dim, dim)."""
        factor = self._state.factor
        if factor is None:
            return self._copy(torch.diag_embed(self._state.std.square()))
        with torch.autocast(factor.device.type, enabled=False):
            return self._copy(factor @ factor.mT)

    @property
    def best(self) -> Any:
        """A copy of the fittest candidate so far, shape (..., dim), or NaN.

        It is NaN before the first ``tell()``. Of equal fitness the first one stays. With a
        noisy fitness it is the best by chance: prefer ``mean``.
        """
        return self._copy(self._state.best)

    @property
    def best_fitness(self) -> Any:
        """The fitness of ``best``, a float; for a batch a tensor of its shape, float64.

        NaN before the first ``tell()``. Waits for the device.
        """
        fitness = self._state.best_fitness
        return self._copy(fitness) if self.batch_shape else float(fitness)

    def statistics(self) -> dict[str, float]:
        """Return the statistics of the last generation; waits for the device.

        ``best_fitness`` is the best so far. ``generation_best``, ``elite_mean`` and
        ``elite_threshold``, the worst elite, are those of the last generation. ``std_mean`` is
        the mean of the standard deviation over the dimensions. All but ``std_mean`` are NaN
        before the first generation. For a batch the best fitness is that of all problems, and
        the others are means over the problems.
        """
        self._warn_of_failure()
        record = self.snapshot().record()
        return {name: getattr(record, name) for name in record.__slots__[1:6]}

    def snapshot(
        self,
        evaluation: Evaluation | None = None,
        *,
        copied: bool = True,
    ) -> Snapshot:
        """Return a snapshot of the current state, with metrics, and start its copy to the host.

        On a CUDA device the copy is queued on the current stream, and reading it only waits for
        earlier work. Without ``copied`` the copy starts with ``copy_to_host``, or the first
        reading.
        """
        if self._snapshot is None or (evaluation is not None and evaluation.metrics):
            self._snapshot = Snapshot(self._generation, self._settings, self._state, evaluation)
        if copied:
            copy_to_host([self._snapshot])
        return self._snapshot

    def rewind(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot of this search; waits for its copy only."""
        device = snapshot.state.distribution.device
        if (snapshot.settings, device) != (self._settings, self.device):
            got = f"{snapshot.settings} on {device}"
            raise ValueError(f"expected a snapshot of this search, got {got}")
        table = self._state.variance_schedule  # it may be longer now than in the snapshot
        self._adopt(snapshot.generation, snapshot.restored()._replace(variance_schedule=table))

    def stop(
        self,
        *,
        target: float | None = None,
        budget: int | None = None,
    ) -> tuple[Reason, ...]:
        """Return the reasons to stop a single search, an empty tuple if there are none.

        A ``Reason`` is a string. Some reasons compare a generation with those of earlier calls:
        call it after every generation, or every few. Waits for the device, and warns if every
        candidate of the last generation failed.

        Args:
            target: A fitness that is good enough, for the reason ``"target"``.
            budget: The most evaluations. The reason ``"budget"`` says that another generation
                would exceed it.
        """
        if target is not None:
            target = check_real("target", target)
        if self.batch_shape:
            batch = tuple(self.batch_shape)
            raise ValueError(f"expected a single search, got a batch of shape {batch}")
        if self._termination is None:
            self._termination = Termination(self._state.settings, self._first_std)
        self._termination.target = target
        self._warn_of_failure()
        reasons = self._termination.reasons(self.snapshot().record())
        if budget is not None and (self._generation + 1) * self.population_size > budget:
            reasons = (*reasons, Reason.BUDGET)
        return reasons

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which a search resumes; waits.

        It has ``settings``, which are compared on loading, ``generation``, and copies on the
        CPU of the tensors of ``cem.core.state.State`` that a generation changes. If candidates
        of an incomplete population were told, it also has ``told_candidates`` and
        ``told_fitness``, and ``asked``, the number of candidates after which the next
        ``ask(n)`` goes on.
        """
        with self._lock:
            state = self.snapshot().state_dict()
            if self._parts:
                candidates, fitness = self._join_parts()
                state["told_candidates"] = candidates.cpu()
                state["told_fitness"] = fitness.cpu()
                # Candidates that were asked for but not told are asked for again, if they are
                # those after all that were told.
                count = len(candidates)
                is_in_order = self._drawn is not None and torch.equal(
                    candidates, self._drawn[:count]
                )
                state["asked"] = count if is_in_order else self._asked
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume bit for bit from a state of an optimizer with the same settings.

        On another device the bits of later samples may differ. Without evolution paths the
        numbers of candidates and elites may differ from the saved ones. What ``stop`` remembers
        is not part of a state. A search that was made without a seed takes that of the state.

        Raises:
            ValueError: If a part is missing, has another shape or dtype, or was saved under
                other settings. No error changes the optimizer.
        """
        settings = dict(self._settings)
        if self._takes_any_seed:
            settings["seed"] = state["settings"]["seed"]
        generation, loaded = load_state(state, settings, self._state)
        if settings["seed"] != self._settings["seed"]:
            seeds = np.array(settings["seed"], dtype=object).reshape(self.batch_shape)
            loaded = loaded._replace(seed=problem_seeds(seeds, self.batch_shape, self.device))
            self._seeds = tuple(seeds.reshape(-1).tolist())
            self._settings = settings
        self._adopt(generation, loaded)
        if "told_candidates" in state:
            told = state["told_candidates"].to(self.device, copy=True)
            self._parts = [(told, state["told_fitness"].to(self.device, copy=True))]
            self._num_told = len(told)
            self._asked = state["asked"]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None}

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        vars(self).update(attributes, _lock=threading.RLock())

    def __repr__(self) -> str:
        config = self.config
        return (
            f"CrossEntropyMethod(dim={self.dim}, batch_shape={tuple(self.batch_shape)}, "
            f"population_size={self.population_size}, {config.covariance} covariance"
            f"{', evolution paths' if config.paths else ''}, generation={self._generation}, "
            f"backend={self.backend!r}, device={str(self.device)!r}, seed={self.seed})"
        )

    def _fail_unusable(self, candidates: Tensor, fitness: Tensor) -> Tensor:
        """Return the fitness with NaN for candidates that are not finite.

        Raises:
            ValueError: If the column of a family has a number that is none of its values.
        """
        first = self._state.settings.normal
        for family in self.config.families:
            columns = candidates[..., first : first + family.columns]
            first += family.columns
            low, high = columns.aminmax()
            if isinstance(family, OperatorFamily) and not (low >= 0 and high < family.rows[1]):
                wanted = f"numbers from 0 to {family.rows[1] - 1} in the columns of {family}"
                raise ValueError(f"expected {wanted}, got {low:g} to {high:g}")
        if math.isfinite(float(candidates.sum())):  # faster than to look at each number
            return fitness
        return torch.where(candidates.isfinite().all(-1), fitness.double(), math.nan)

    def _adopt(self, generation: int, state: State) -> None:
        """Continue from a state, and forget what belongs to the generations before."""
        self._state = state
        self._generation = generation
        self._asked = 0
        self._drawn = None
        self._parts = []
        self._num_told = 0
        self._snapshot = None
        self._termination = None

    def _extend_variance_schedule(self, generations: int) -> None:
        """Make sure that the device has the extra variance of the first ``generations``."""
        if self._variances is not None and generations > len(self._variances):
            self._variances = extend_table(self._variances, self.config.schedule, generations)
            table = doubles(self._variances, self.device)
            self._state = self._state._replace(variance_schedule=table)

    def _warn_of_failure(self) -> None:
        """Warn if no candidate of the last generation of a single search succeeded."""
        if not self.batch_shape and self._state.record.tolist()[FAILED] == self._generation > 0:
            warnings.warn(
                f"all {self.population_size} candidates of generation {self._generation - 1} "
                "failed (NaN or infinite on the bad side): the distribution stays as it was",
                RuntimeWarning,
                stacklevel=outside(),
            )

    def _copy(self, tensor: Tensor) -> Any:
        """Return a copy, which is an array if the first mean was one."""
        copy = tensor.clone()
        return copy.numpy() if self._numpy else copy

    def _describe(self) -> dict[str, Any]:
        """Return the settings that a resumed search must share with the saved one.

        They are numbers, strings and lists for a JSON file. The number of elites is not one of
        them: it may be another when a search resumes.
        """
        bounds = bounds_of(self._state)  # low and high, or None
        settings = dict(vars(self.config))
        del settings["num_elites"], settings["elite_fraction"]
        seeds = list(self._seeds)
        return {
            **settings,
            "variance_schedule": describe_variance_schedule(self.config.schedule),
            "relative_std_floor": self.config.floor_share,
            "dim": self.dim,
            "batch": list(self.batch_shape),
            "maximize": self.maximize,
            "integers": self.config.integers_of(self._state.settings.normal),
            "families": [str(family) for family in self.config.families],
            "bounds": None if bounds is None else str([end.tolist() for end in bounds]),
            "backend": self.backend,
            "dtype": str(self.dtype).removeprefix("torch."),
            "seed": seeds[0] if len(seeds) == 1 else seeds,
        }
