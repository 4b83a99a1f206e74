"""The cross-entropy method with an ask-and-tell interface.

In every generation ``t`` the optimizer draws a population, and the caller evaluates its
candidates. The best of them, the elites, determine the next distribution:
    x_i ~ N(mu_t, Sigma_t)                                     i = 1 .. population  (1) ask
    m = sum of w_k x_k,  v = sum of w_k (x_k - mu_t)^2 + Z_t   over the elites      (2) tell
    mu_{t+1}    = alpha m + (1 - alpha) mu_t                                        (3) tell
    sigma_{t+1} = max(beta sqrt(v) + (1 - beta) sigma_t, floor)                     (4) tell
    a_{t+1}     = a_t + (mu_{t+1} - a_t) / (1 + gamma t)                            (5) tell

The weights w_k sum to 1 and decrease with the logarithm of the rank. The variance is taken
about the old mean mu_t. The method as published takes it about the new mean, and can collapse:
on a long slope all elites lie on one side of the old mean, and their variance about their own
mean is small, however far away the optimum is. Weights and variance are those of CMA-ES (N.
Hansen, The CMA Evolution Strategy: A Tutorial, arXiv:1604.00772, 2023, section 3.1 and table
1). With evolution paths, the default, ``kernels.ops.cma_update.op`` replaces the variance and
(4). With a full covariance but no paths, ``cem.core.adaptation`` replaces them.

Z_t is the extra variance of I. Szita and A. Lorincz, Learning Tetris Using the Noisy
Cross-Entropy Method, Neural Computation 18(12), 2006; see ``cem.core.variance_schedule``. (3)
and (4) are the smoothed updating of P.-T. de Boer, D. Kroese, S. Mannor and R. Rubinstein, A
Tutorial on the Cross-Entropy Method, Annals of Operations Research 134, 2005, applied to mean
and standard deviation as in D. Kroese, S. Porotsky and R. Rubinstein, The Cross-Entropy Method
for Continuous Multi-Extremal Optimization, Methodology and Computing in Applied Probability 8,
2006.

(5) does not affect the search. If the fitness is noisy, the mean fluctuates about the optimum,
and the average of many means is nearer to the optimum than the last mean. With ``gamma = 1``
a_t is the average of all means, as in B. Polyak and A. Juditsky, Acceleration of Stochastic
Approximation by Averaging, SIAM Journal on Control and Optimization 30(4), 1992. With a smaller
gamma, later means have more weight, as in the polynomial-decay averaging of O. Shamir and T.
Zhang, Stochastic Gradient Descent for Non-smooth Optimization, ICML 2013.
"""

import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.backend import multiply, torch_sample
from cem.core.checks import check_real, check_shape, warn
from cem.core.config import CEMConfig
from cem.core.evaluation import Evaluation, Objective
from cem.core.generation import draw, operator_sample, tell
from cem.core.graph import GenerationGraph
from cem.core.reasons import Reason
from cem.core.snapshot import Snapshot, copy_checked, copy_to_host, load_state
from cem.core.start import doubles, init, problem_seeds
from cem.core.state import FAILED, MEAN, State, bounds_of
from cem.core.termination import Termination
from cem.core.variance_schedule import describe_variance_schedule, extend_table
from cem.families.family import OperatorFamily
from kernels.support.checks import check_integer

_AHEAD = 64  # generations whose extra variance is computed at the start of a search
# How far the mean is moved back before a generation with outdated candidates, as a share of
# their lag. With 1 the search is slower than with 0: candidates of one distribution repeat its
# step in several generations, so the evolution paths become too long.
_LAG_SHARE = 0.5
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

    * The elites are the fittest candidates. Of candidates with equal fitness, those with the
      lower index come first.
    * A candidate whose fitness is NaN, or infinite on the bad side, has failed and is never an
      elite. If fewer candidates succeed than there are elites, only these are elites.
    * If all candidates fail, the generation counts, but mean, std and best are left unchanged.
      For a single search there is a RuntimeWarning: on the CPU from ``tell``, on other devices,
      on which ``tell`` does not wait for results, from ``statistics``.
    * ``ask()`` twice without ``tell()`` returns equal tensors. The candidates depend on the
      distribution, the seed and the generation alone: a resumed search draws the same ones.
    * Arguments are not changed, and returned tensors are copies. The optimizer uses torch's
      global generator only if the seed is None.
    * Leading dimensions of ``mean`` are a batch of independent problems: candidates (..., N,
      d), fitness (..., N). A problem of a batch has the same results as a single search with
      its seed, bit for bit; with a full covariance, or bounds by transform, up to rounding.
    * If ``mean`` is a NumPy array, all methods return arrays.

    Attributes:
        config, population_size, maximize, backend, device, dtype: The arguments, or their
            defaults.
        num_elites: The number of elites per generation.
        dim: The length of a candidate.
        batch_shape: The shape of a batch of problems; () for a single one.
    """

    _generation: int
    _asked: int  # the number of candidates of this generation that ``ask(count)`` has returned
    _drawn: Tensor | None  # these candidates, and the next ones
    _parts: list[tuple[Tensor, Tensor]]  # candidates and fitness of an incomplete population
    _num_told: int  # the number of candidates in ``_parts``
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
            mean: The first mean, shape (..., dim), dim >= 1, finite, within the bounds. It is a
                tensor, array or sequence of any real dtype on any device. Leading dimensions
                are a batch.
            std: The first standard deviation, finite, ``>= 0``, broadcastable to ``mean``. A
                parameter whose standard deviation is 0 is constant, unless there is extra
                variance.
            population_size: The number of candidates per generation, ``>= 2``. None: 4 + 3
                ln(dim) with evolution paths, otherwise 10 dim and at most 1,000.
            maximize: True if a greater fitness is better, False if a smaller one is. There is
                no default.
            config: The method. None: ``CEMConfig.cma()``, with a full covariance up to 200
                parameters and a diagonal one above.
            bounds: A pair (low, high) per parameter, or one for all, where None is no bound;
                ``scipy.optimize.Bounds``; or ``cem.Bounds(low, high)``. None: no bounds.
            backend: ``"cpu"`` or ``"cuda"``: the operators of ``kernels``. ``"torch"``: PyTorch
                operations. ``"auto"``: the operators, if they are compiled or can be. See
                ``cem.core.backend``.
            device: The device of the search. None: the CPU.
            dtype: ``torch.float32`` or ``torch.float64``. None: float64 if ``mean`` is, else
                float32.
            seed: The seed of the noise, ``0 <= seed < 2**64``. For a batch it is one number per
                problem, or a single number from which these seeds are derived. A generator of
                NumPy or torch draws it. None: torch's global generator draws it.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range, shapes differ, or the backend or device
                is not available.
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
        self._seeds = _unsigned_seeds(state)
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

    def correlate(self, factor: Any) -> None:
        """Give the first distribution of a single search with a full covariance correlations.

        Args:
            factor: A lower triangular factor of the covariance, shape (dim, dim), float64. Its
                rows have the lengths of the standard deviations that the search was given.
        """
        factor_of_state = self._state.factor
        assert factor_of_state is not None, "only a full covariance has correlations"
        correlations = torch.from_numpy(factor).to(factor_of_state)
        # With bounds by transform, the standard deviations differ from those that were given.
        lengths = correlations.norm(dim=-1, keepdim=True)
        rows = correlations / lengths * self._state.std.unsqueeze(-1)
        self._state = self._state._replace(factor=rows)

    def ask(self, count: int | None = None) -> Any:
        """Draw candidates of this generation, equation (1), within the bounds.

        Args:
            count: The number of candidates to draw from a single search. Each call continues
                after the candidates of the previous call, for evaluations that finish one by
                one: see ``tell``. None: the whole population.

        Returns:
            A new tensor of shape (..., population_size, dim), or (count, dim).
        """
        if count is None and self._num_told > 0:
            warn(
                f"{self._num_told} of {self.population_size} candidates are told: the "
                "generation ends when all are, with NaN for those that failed"
            )
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

        The candidates do not depend on how many are drawn at a time. The first call draws a
        population. When they are used up, a call draws twice as many as were asked for so far.
        The average time of a call is therefore constant.
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

    def move_back(self, lag: Tensor) -> None:
        """Move the mean back, before ``tell`` gets candidates of earlier distributions.

        Such candidates lie behind the mean, so they would cancel a part of its last steps: the
        evolution paths would become short, and the standard deviation would shrink too early.
        The next step is therefore measured from a point between the present mean and the
        average of the means from which the candidates were drawn.

        Args:
            lag: How far the mean has moved since then, shape (dim,): see ``Evaluation``.
        """
        with self._lock:
            distribution = self._state.distribution.clone()
            distribution[..., MEAN, :] -= _LAG_SHARE * lag
            self._state = self._state._replace(distribution=distribution)

    def tell(self, candidates: Any, fitness: Any, *, _check_candidates: bool = True) -> None:
        """Move the distribution towards the elites, equations (2) to (5).

        With a single search, each call may pass a part of a population, in any order. Its
        candidates may belong to an earlier generation. The distribution moves, and the
        generation ends, as soon as there are ``population_size`` candidates.

        Args:
            candidates: The candidates that were evaluated, shape (..., population_size, dim),
                or (n, dim) for a part. They may differ from those of ``ask()`` and may lie
                outside the bounds. On the CPU, a candidate that is not finite counts as failed,
                whatever its fitness. Other devices skip this check, because it would wait for
                the device.
            fitness: The fitness of each candidate, shape (..., population_size) or (n,): a
                tensor, array or sequence of any real dtype on any device. The fitness is ranked
                in its own dtype, but a sequence, a masked array or unsigned integers of 16 bits
                and more as float64. NaN and masked numbers mean that a candidate failed.

        Raises:
            ValueError: If a shape is wrong, if the schedule of the extra variance returns a
                number that is negative or not finite, or, on the CPU, if a column of a choice
                or permutation contains a number that is not the index of a value.
        """
        # Tensors that need no conversion are a whole population.
        is_part = False
        if not self._needs_no_conversion(candidates, fitness):
            is_part = not self.batch_shape and len(candidates) < self.population_size
            expected = (len(candidates), self.dim) if is_part else self._shape
            candidates = check_shape("candidates", candidates, expected)
            candidates = candidates.to(self.device, self.dtype)
            fitness = check_shape("fitness", fitness, expected[:-1]).to(self.device)
        # The trainer skips this check to save time: it passes the candidates of ``ask``, which
        # are finite.
        if self.device.type == "cpu" and _check_candidates:
            fitness = self._check_told(candidates, fitness)
        with self._lock:
            if is_part or self._parts:
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
        self._forget_candidates()

    def _complete_population(
        self, candidates: Tensor, fitness: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Add candidates to the incomplete population, and return it once it is complete.

        Args:
            candidates: The candidates of a part, shape (n, dim).
            fitness: Their fitness, shape (n,).

        Returns:
            The candidates and the fitness of a population, or None as long as candidates are
            missing. Surplus candidates become the first ones of the next population.
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
        # Otherwise integers would get the dtype of floats beside them, such as float16.
        if len({part.dtype for part in fitness}) > 1:
            fitness = tuple(part.double() for part in fitness)
        return torch.cat(candidates), torch.cat(fitness)

    def _needs_no_conversion(self, candidates: Any, fitness: Any) -> bool:
        """Return whether both are tensors of a population that ``tell`` can use as they are.

        This check is faster than the conversion of tensors that need none.
        """
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
        """Return a function that runs generations of this search as a CUDA graph.

        Each call of the function moves the search exactly as ``generations`` rounds of ``ask``
        and ``tell`` would, bit for bit. It returns the last evaluation, whose tensors the next
        call overwrites.

        Args:
            objective: Maps (candidates, generation) to fitness or an ``Evaluation``; the
                generation is a tensor of shape () on the device. It must launch the same work
                every time, and must never wait for the device.
            generations: The number of generations per call, ``>= 1``.

        Raises:
            ValueError: If the backend of the search is not ``"cuda"``.
        """
        replay = self._capture_replay(objective, generations)
        return lambda: replay().evaluations[-1]

    def capture_records(
        self,
        objective: Objective,
        generations: int,
        records: int,
    ) -> Callable[[], list[Snapshot]]:
        """Return a function that runs ``records * generations`` generations as one CUDA graph.

        A call of the function takes a snapshot after every ``generations`` generations. It
        returns these ``records`` snapshots, with the metrics of the last evaluation before each
        of them. The call starts copying the snapshots to the host, and does not wait.

        Args:
            objective: The objective, as for ``capture``.
            generations: The number of generations per snapshot, ``>= 1``.
            records: The number of snapshots per call.
        """
        # ``replay`` runs the graph and returns it.
        replay = self._capture_replay(objective, generations, rounds=records, stacks=True)

        def run() -> list[Snapshot]:
            """Replay the graph, and return a snapshot for every ``generations`` generations."""
            generation = self._generation
            graph = replay()
            snapshots = []
            for evaluation in graph.evaluations:
                generation += generations
                # Each snapshot gets the last state, but only its constants are valid here.
                # ``copy_to_host`` sets its mean, its record and so on below.
                snapshot = Snapshot(
                    generation, self._settings, self._state, evaluation, copies=False
                )
                snapshots.append(snapshot)
            # The graph has stacked the tensors of all snapshots, so a few copies are enough.
            copy_to_host(snapshots, stacked=graph.stacked_tensors)
            self._snapshot = snapshots[-1]
            return snapshots

        return run

    def _capture_replay(
        self,
        objective: Objective,
        generations: int,
        rounds: int = 1,
        *,
        stacks: bool = False,
    ) -> Callable[[], GenerationGraph]:
        """Return a function that runs generations of the search by one replay of a CUDA graph.

        A replay runs ``rounds`` rounds of ``generations`` generations each. After every round
        the graph keeps the state and the last evaluation.

        The first call captures the graph. A later call captures it again if a constant of the
        state has changed. For example, the table of the extra variance may have become longer.

        Args:
            objective: The objective, as for ``capture``.
            generations: The number of generations per round.
            rounds: The number of rounds per replay.
            stacks: Whether a replay also stacks the states after its rounds, for
                ``copy_to_host``.

        Returns:
            A function without arguments. It returns the graph, which contains the evaluations.
        """
        check_integer("generations", generations, 1)
        if self.backend != "cuda":
            got = f"{self.backend!r} on {str(self.device)!r}"
            raise ValueError(
                f"expected a search with backend 'cuda' for a CUDA graph, got {got}"
            )
        graph: GenerationGraph | None = None

        def replay() -> GenerationGraph:
            """Move the search by ``rounds`` rounds of ``generations`` generations.

            This is one replay of the graph, which is captured before if necessary.
            """
            nonlocal graph
            last_generation = self._generation + generations * rounds
            self._extend_variance_schedule(last_generation)
            if graph is None or not graph.fits(self._state):
                graph = GenerationGraph(
                    self._state, objective, generations, rounds, stacks=stacks
                )
            self._state = graph(self._state)
            self._generation = last_generation
            self._forget_candidates()
            return graph

        return replay

    @property
    def generation(self) -> int:
        """The number of generations so far: the ``t`` of the next ``ask()``."""
        return self._generation

    @property
    def state(self) -> State:
        """The state for ``cem.functional``. Its tensors must not be changed."""
        return self._state

    @property
    def seed(self) -> int:
        """The seed; for a batch, the seed of its first problem."""
        return self._seeds[0]

    @property
    def mean(self) -> Any:
        """A copy of ``mu_t``, shape (..., dim): the best estimate if the fitness is noisy."""
        return self._copy(self._state.mean)

    @property
    def std(self) -> Any:
        """A copy of ``sigma_t``, shape (..., dim).

        With bounds by transform it is measured in the unbounded space.
        """
        return self._copy(self._state.std)

    @property
    def averaged_mean(self) -> Any:
        """A copy of ``a_t``, shape (..., dim), the average of means; see ``mean_averaging``."""
        return self._copy(self._state.averaged_mean)

    @property
    def covariance(self) -> Any:
        """The covariance ``Sigma_t``, a new tensor of shape (..., dim, dim).

        A full one lacks discrete parameters; a diagonal one has the squares of their ``std``.
        """
        factor = self._state.factor
        if factor is None:
            return self._copy(torch.diag_embed(self._state.std.square()))
        return self._copy(multiply(factor, factor.mT))

    @property
    def best(self) -> Any:
        """A copy of the fittest candidate so far, shape (..., dim).

        It is NaN before the first ``tell()``. Of candidates with equal fitness it is the first
        one. If the fitness is noisy, prefer ``mean``: this candidate may only have been lucky.
        """
        return self._copy(self._state.best)

    @property
    def best_fitness(self) -> Any:
        """The fitness of ``best``: a float, or for a batch a float64 tensor of its shape.

        It is NaN before the first ``tell()``. Reading it waits for the device.
        """
        fitness = self._state.best_fitness
        return self._copy(fitness) if self.batch_shape else float(fitness)

    def statistics(self) -> dict[str, float]:
        """Return the statistics of the last generation; waits for the device.

        For a batch, ``best_fitness`` is the best of all problems, and the other values are
        means over the problems. NaN, of problems whose candidates all failed, does not count.

        Returns:
            A dict with these values; all but ``std_mean`` are NaN before the first generation:

            * ``best_fitness``: the best fitness of all generations.
            * ``generation_best``: the best fitness of the last generation.
            * ``elite_mean``, ``elite_threshold``: the mean and the worst fitness of its elites.
            * ``std_mean``: the mean of the standard deviations of all parameters.
        """
        self._warn_of_failure()
        record = self.snapshot().record()
        # The first slot is the generation, and the next five are these statistics.
        return {name: getattr(record, name) for name in record.__slots__[1:6]}

    def snapshot(
        self,
        evaluation: Evaluation | None = None,
        *,
        copied: bool = True,
    ) -> Snapshot:
        """Return a snapshot of the current state, and start to copy it to the host.

        On a CUDA device the copy is queued on the current stream. Reading it later waits only
        for work that was queued before.

        Args:
            evaluation: The last evaluation, whose metrics the snapshot includes. None: no
                metrics.
            copied: Whether the copy starts now. Otherwise ``copy_to_host`` or the first reading
                starts it.
        """
        # The cached snapshot may lack the metrics of this evaluation.
        if self._snapshot is None or (evaluation is not None and evaluation.metrics):
            self._snapshot = Snapshot(self._generation, self._settings, self._state, evaluation)
        if copied:
            copy_to_host([self._snapshot])
        return self._snapshot

    def rewind(self, snapshot: Snapshot) -> None:
        """Restore the state of a snapshot of this search; waits only for its copy."""
        device = snapshot.state.distribution.device
        if (snapshot.settings, device) != (self._settings, self.device):
            got = f"{snapshot.settings} on {device}"
            raise ValueError(f"expected a snapshot of this search, got {got}")
        table = self._state.variance_schedule  # It may be longer now than in the snapshot.
        self._adopt(snapshot.generation, snapshot.restored()._replace(variance_schedule=table))

    def stop(
        self,
        *,
        target: float | None = None,
        budget: int | None = None,
    ) -> tuple[Reason, ...]:
        """Return the reasons to stop a single search; an empty tuple if there are none.

        Call this method after every generation or every few generations: some reasons compare
        the current generation with those of earlier calls. A ``Reason`` is a string. The call
        waits for the device. It warns if every candidate of the last generation failed.

        Args:
            target: A fitness that is good enough. Once it is reached, the reasons include
                ``"target"``.
            budget: The maximum number of evaluations. The reasons include ``"budget"`` if
                another generation would exceed it.
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
        """Return the state from which a search can resume; waits for the device.

        A population is incomplete if ``tell`` has got only some of its candidates so far.

        Returns:
            A dict with these values:

            * ``settings``: the settings, which ``load_state_dict`` compares.
            * ``generation``: the number of generations so far.
            * copies on the CPU of all tensors of ``cem.core.state.State`` that a generation
                changes.
            * only if a population is incomplete, ``told_candidates`` and ``told_fitness``: the
                candidates that ``tell`` has got, and their fitness.
            * only if a population is incomplete, ``asked``: how many candidates of the
                generation the next ``ask(count)`` skips.
        """
        with self._lock:
            state = self.snapshot().state_dict()
            if self._parts:
                candidates, fitness = self._join_parts()
                state["told_candidates"] = candidates.cpu()
                state["told_fitness"] = fitness.cpu()
                state["asked"] = self._count_to_skip(candidates)
        return state

    def _count_to_skip(self, evaluated: Tensor) -> int:
        """Return how many candidates of this generation a resumed search does not draw again.

        A generation always draws the same candidates in the same order, and ``ask`` returns
        them one after another. Some of them may still be without a fitness.

        Args:
            evaluated: The candidates of this generation with a fitness, shape (count, dim).
        """
        count = len(evaluated)
        are_first = self._drawn is not None and torch.equal(evaluated, self._drawn[:count])
        # If the evaluated candidates are the first ones, all others are drawn again. Otherwise
        # it is unknown which ones are missing, and all that ``ask`` has returned are skipped.
        return count if are_first else self._asked

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume bit for bit from the state of an optimizer with the same settings.

        The first standard deviation must be the same, too, as floors are relative to it. On
        another device, later samples may differ in their last bits. Without evolution paths,
        this optimizer may have other numbers of candidates and elites than the saved one. The
        history that ``stop`` compares is not part of a state. If this optimizer was created
        without a seed, it takes the seed of the state.

        Raises:
            ValueError: If a part is missing, has another shape or dtype, or was saved under
                other settings. The optimizer is then unchanged.
        """
        settings = dict(self._settings)
        if self._takes_any_seed and "seed" in state.get("settings", {}):
            settings["seed"] = state["settings"]["seed"]
        generation, loaded = load_state(state, settings, self._state)
        if settings != self._settings:
            # The setting is one seed, or a list with one seed per problem.
            seeds = np.array(settings["seed"], dtype=object).reshape(self.batch_shape)
            loaded = loaded._replace(seed=problem_seeds(seeds, self.batch_shape, self.device))
        parts, asked = self._load_parts(state)
        # Everything that can raise an error comes before the first assignment.
        self._settings = settings
        self._seeds = _unsigned_seeds(loaded)
        self._adopt(generation, loaded)
        self._parts = parts
        self._num_told = sum(len(candidates) for candidates, _ in parts)
        self._asked = asked

    def _load_parts(self, saved: Mapping[str, Any]) -> tuple[list[tuple[Tensor, Tensor]], int]:
        """Return the incomplete population of a saved state, and where ``ask`` continues."""
        if "told_candidates" not in saved:
            return [], 0
        fitness = saved["told_fitness"]
        like = self._state.distribution.new_empty((len(fitness), self.dim))
        candidates = copy_checked("told_candidates", saved["told_candidates"], like)
        fitness = check_shape("told_fitness", fitness, (len(fitness),))
        asked = check_integer("asked", saved["asked"], 0)
        return [(candidates, fitness.to(self.device, copy=True))], asked

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

    def _check_told(self, candidates: Tensor, fitness: Tensor) -> Tensor:
        """Return the fitness, with NaN for every candidate that contains NaN or infinity.

        Raises:
            ValueError: If a column of a choice or a permutation contains NaN, or a number
                outside the range of the indices of its values.
        """
        # The first columns have a normal distribution. Those of the families follow.
        first = self._state.settings.normal
        for family in self.config.families:
            columns = candidates[..., first : first + family.columns]
            first += family.columns
            if not isinstance(family, OperatorFamily):
                continue  # The numbers of other families have no known range.
            _, num_values = family.rows  # The shape of its table of probabilities.
            low, high = columns.aminmax()
            is_in_range = low >= 0 and high < num_values  # False for NaN, too.
            if not is_in_range or (columns != columns.round()).any():
                raise ValueError(
                    f"expected integers from 0 to {num_values - 1} in the columns of {family}, "
                    f"got {low:g} to {high:g}"
                )
        # A finite sum implies that every number is finite. The sum is faster to check.
        if math.isfinite(float(candidates.sum())):
            return fitness
        # The fitness may consist of integers, which have no NaN.
        return torch.where(candidates.isfinite().all(-1), fitness.double(), math.nan)

    def _adopt(self, generation: int, state: State) -> None:
        """Continue from a state, and discard what belongs to earlier generations."""
        self._state = state
        self._generation = generation
        self._forget_candidates()
        self._parts = []
        self._num_told = 0
        self._termination = None

    def _forget_candidates(self) -> None:
        """Forget the candidates and the snapshot of the last generation."""
        self._asked = 0
        self._drawn = None
        self._snapshot = None

    def _extend_variance_schedule(self, generations: int) -> None:
        """Extend the table of the extra variance to at least ``generations`` generations."""
        if self._variances is not None and generations > len(self._variances):
            self._variances = extend_table(self._variances, self.config.schedule, generations)
            table = doubles(self._variances, self.device)
            self._state = self._state._replace(variance_schedule=table)

    def _warn_of_failure(self) -> None:
        """Warn if no candidate of the last generation of a single search succeeded."""
        # The record has the last generation, counted from 1, in which every candidate failed.
        if not self.batch_shape and self._state.record.tolist()[FAILED] == self._generation > 0:
            warn(
                f"all {self.population_size} candidates of generation {self._generation - 1} "
                "failed (NaN or infinite on the bad side): the distribution stays as it was"
            )

    def _copy(self, tensor: Tensor) -> Any:
        """Return a copy of a tensor, as an array if the first mean was an array."""
        copy = tensor.clone()
        return copy.numpy() if self._numpy else copy

    def _describe(self) -> dict[str, Any]:
        """Return the settings that must be equal when a search resumes.

        All values can be stored as JSON. The number of elites is left out, because a resumed
        search may have another one.
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


def _unsigned_seeds(state: State) -> tuple[int, ...]:
    """Return the seeds of all problems; a state stores their 64 bits as signed numbers."""
    return tuple(signed % 2**64 for signed in state.seed.reshape(-1).tolist())
