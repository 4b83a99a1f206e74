"""``minimize`` and ``maximize``: a whole search in one call, with restarts, reasons to stop and a result."""

from __future__ import annotations

import inspect
import math
import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, cast, overload

import numpy as np
import torch
from torch import Tensor

from cem.core.backend import mix_seed
from cem.core.bounds import check_bounds, ends_of
from cem.core.checks import Seed, as_real, check_real, draw_seed, outside
from cem.core.config import CEMConfig
from cem.core.evaluation import Evaluation, Objective, as_evaluation, call_with_copies
from cem.core.snapshot import GenerationRecord
from cem.core.state import with_integers
from cem.core.termination import Termination
from cem.core.variance_schedule import describe_callable
from cem.evaluate import Evaluator, WithArguments
from cem.optimizer import CrossEntropyMethod
from cem.run import ranks
from cem.run.callbacks import Callback, MetricsWriter, ProgressBar, as_callbacks
from cem.run.checkpoint import Checkpointer
from cem.run.code_digest import digest_code
from cem.run.constraints import Constrained, Constraints
from cem.run.stopping import Interrupted, StopRequest
from cem.run.trainer import MOST_FAILURES, Trainer
from cem.space import Named, Space
from kernels.support.checks import check_flags, check_integer
from kernels.support.names import did_you_mean
from kernels.support.printable import counted

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray
    from typing_extensions import Unpack

CHECKPOINT_SECONDS = 1.0
_LEAST_GENERATIONS, _GENERATIONS = 20, 150  # within a budget, of a small and of a large population
_ON_A_GPU = 16  # times the population: a generation takes about as long
_SYNONYMS = {
    **{"sigma0": "Std", "rng": "Seed", "random_state": "Seed", "n_jobs": "Workers"},
    **dict.fromkeys(("maxfun", "maxfev", "maxfevals", "maxiter", "n_trials"), "Budget"),
}
_CONVERGED = ("std", "fitness_range")
_AS_ASKED = ("target", "xtol", "ftol")
_CUT_SHORT = ("time_limit", "signal", "requested")
_NOISE, _SEEN = "noise", "noise_seen"  # reason and metric of a search whose first mean had two values
_STEEPER = 10.0  # times as steep are constraints after a search that has diverged
_FIRST = ("first_mean_fitness", "first_fitness_range")  # metrics of its first generation
_NOISY = 1e-6  # of the range of the first generation: two values that differ by more are noise
_SAME = 1e-8  # of the range of fitness seen: two searches found the same
_AGREEING = 3  # searches with large populations that find the same end one with a budget
_COLUMNS = ("evaluations", "best_fitness", "generation_best", "elite_mean", "std_mean", "population_size")
_MESSAGES = {
    "target": "the best value is as good as the target",
    "xtol": "every standard deviation is below xtol",
    "ftol": "the values of recent generations differ by less than ftol",
    "std": "the standard deviations have shrunk to next to nothing",
    "fitness_range": "the values of recent generations differ by next to nothing",
    "stagnation": "the best value has not improved for many generations",
    "diverged": "the standard deviations have grown without an end: the constraints do not hold the search",
    "restarts_agree": "restarts found the same",
    "budget": "the budget of evaluations is spent",
    "time_limit": "the time limit has passed",
    "signal": "a signal, such as Ctrl-C, asked to stop",
    "requested": "a callback asked to stop",
    "noise": "the objective is noisy",
    "failed": "every candidate of the last generations failed",
}
_FAILED = (
    "every candidate of several generations failed, by an exception, NaN or the infinity on the bad side: "
    "the search begins again elsewhere while there is budget"
)
_FINISHED = "the search in {} had ended: this is its result, without a new evaluation"
_INFEASIBLE = "no candidate is feasible: the one of the least violation violates a constraint by {:.3g}"
_Vector = TypeVar("_Vector")


@dataclass(frozen=True, repr=False)
class Result(Generic[_Vector]):
    """How a search ended. Beside our names it has SciPy's: ``nfev``, ``nit``, ``success``, ``message``.

    Attributes:
        x: The fittest candidate of all restarts, shape (dim,); an array where the mean was one. NaN where
            not one candidate was evaluated in time.
        fun: Its fitness.
        violation: The most by which it violates one of the constraints; 0.0 within ``tolerance``. With
            constraints ``x`` is the fittest feasible candidate, or if there is none that of least violation.
        mean: The last mean of the restart that found it, averaged over generations as ``mean_averaging``
            says: the answer where the fitness is noisy.
        std: The last standard deviation of that restart, shape (dim,).
        reason: Why the last restart ended: a reason of ``cem.core.termination``, ``"budget"``,
            ``"restarts_agree"``, ``"time_limit"``, ``"signal"``, ``"requested"`` or ``"failed"``.
        evaluations: The candidates evaluated.
        generations: The generations of all restarts.
        restarts: The restarts made, 0 for a single search.
        failures: The candidates that failed: by an exception, a time out, a worker that died, NaN, or the
            infinity on the bad side; of a search that was resumed those that were called one by one, and
            those since then.
        settings: What was chosen, or given: ``config``, ``population_size`` (the first one), ``restarts``
            (the most; None: those within the budget), ``budget`` and ``noise``: whether it was seen.
        history: Lists of one entry per recorded generation: ``evaluations``, ``best_fitness`` of all
            restarts, ``generation_best``, ``elite_mean``, ``std_mean``, ``population_size``.
    """

    x: _Vector
    fun: float
    violation: float
    mean: _Vector
    std: _Vector
    reason: str
    evaluations: int
    generations: int
    restarts: int
    failures: int
    settings: dict[str, Any]
    history: dict[str, list[float]]

    @property
    def nfev(self) -> int:
        """``evaluations``."""
        return self.evaluations

    @property
    def nit(self) -> int:
        """``generations``."""
        return self.generations

    @property
    def success(self) -> bool:
        """Whether a finite, feasible value is known and the search was not cut short."""
        return math.isfinite(self.fun) and not self.violation and self.reason not in _CUT_SHORT

    @property
    def message(self) -> str:
        """``reason`` in a sentence, and whether no candidate is feasible."""
        infeasible = f"; {_INFEASIBLE.format(self.violation)}" if self.violation else ""
        return f"{_MESSAGES[self.reason]}{infeasible}"

    def __repr__(self) -> str:
        config, x = self.settings["config"], str(self.x)
        if isinstance(self.x, (Tensor, np.ndarray)):
            x = np.array2string(np.array(self.x.tolist()), precision=6, threshold=12)
        method = f"{config.covariance} covariance{', evolution paths' if config.paths else ''}"
        return "\n".join(
            [
                f"x: {x}",
                f"fun: {self.fun:.6g}",
                f"message: {self.message} ({self.reason!r})",
                f"evaluations: {self.evaluations:,} in {counted(self.generations, 'generation')}, "
                f"{counted(self.restarts, 'restart')}, {counted(self.failures, 'failure')}",
                f"settings: {method}, {self.settings['population_size']} candidates per generation"
                f"{', a noisy objective: x is the averaged mean' if self.settings['noise'] else ''}",
            ]
        )


class Options(TypedDict, total=False):
    """The options of ``minimize`` and ``maximize``, which describes them."""

    bounds: Any
    integers: Any
    x0: Any
    args: Any
    constraints: Any
    tolerance: float | None
    budget: float | None
    target: float | None
    xtol: float
    ftol: float
    time_limit_s: float | None
    config: CEMConfig | None
    population_size: float | None
    restarts: float | None
    vectorize: bool | str | None
    with_generation: bool | None
    workers: int | Executor | Callable[..., Any] | None
    asynchronous: bool
    timeout_s: float | None
    catch: type[BaseException] | tuple[type[BaseException], ...]
    callbacks: Sequence[Callback | Callable[[GenerationRecord], Any]]
    progress: bool
    checkpoint: str | Path | None
    record_every: int
    graph: bool
    distributed: bool
    backend: str
    device: str | torch.device | None
    dtype: torch.dtype | None
    seed: Seed


_DEFAULTS: Options = {
    "xtol": 0.0,
    "ftol": 0.0,
    "asynchronous": False,
    "catch": (),
    "callbacks": (),
    "progress": False,
    "record_every": 1,
    "graph": False,
    "distributed": False,
    "backend": "auto",
}
"""The options whose default is not None."""


@overload
def minimize(
    objective: Callable[..., Any],
    mean: NDArray[Any] | None = None,
    std: Any = None,
    **options: Unpack[Options],
) -> Result[NDArray[Any]]: ...
@overload
def minimize(
    objective: Callable[..., Any], mean: Tensor | Sequence[float], std: Any = None, **options: Unpack[Options]
) -> Result[Tensor]: ...
@overload
def minimize(
    objective: Callable[..., Any], mean: Mapping[str, Any], **options: Unpack[Options]
) -> Result[dict[str, Any]]: ...
def minimize(objective: Callable[..., Any], mean: Any = None, std: Any = None, **options: Any) -> Result[Any]:
    """Search for the least value of a function.

    Examples:
        >>> import torch
        >>> from cem import minimize
        >>> f = lambda x: (x - 3.0).square().sum(-1)
        >>> result = minimize(f, torch.zeros(5), 1.0, budget=20_000, seed=1)
        >>> bool((result.x - 3.0).abs().max() < 1e-3)
        True

    With nothing else given it chooses what ``Result.settings`` says: a full covariance up to 200 parameters,
    a diagonal one above; evolution paths; 4 + 3 ln(dim) candidates, or fewer for twenty generations within a
    budget; restarts of two regimes. That is CMA-ES, see ``CEMConfig.cma``. On a GPU, where a generation of
    more takes as long, sixteen times as many, or as many as have 150 generations. The first candidate is the
    mean.

    A search ends for a reason of ``cem.core.termination``, at the budget, at the time limit or on Ctrl-C;
    what is found by then is returned. A restart is of one of two regimes, whichever has used fewer
    evaluations: with twice the population of the last such one, from the start again, or with a small
    population and a smaller standard deviation, from a mean that is drawn about the start; see N. Hansen,
    Benchmarking a BI-population CMA-ES on the BBOB-2009 function testbed, GECCO 2009.

    Args:
        objective: Maps candidates, shape (N, dim), to fitness, shape (N,): tensors, or arrays where ``mean``
            is one; or to an ``Evaluation``. With ``vectorize`` it maps one candidate, shape (dim,), to a
            number. One that is called candidate by candidate may raise an exception of ``catch``.
        mean: The first mean, shape (dim,). None: the middle of the bounds, an array. Or a dict of named
            parameters, ``Float``, ``Int``, ``Choice``, ``Bool`` and ``Permutation``, and of fixed values;
            the function then gets the dict of one candidate, and ``x`` is one.
        std: The first standard deviation, a number or shape (dim,). None: a quarter of the bounds' width.
        options: Any of these.

            * ``bounds``: a pair (low, high) for each parameter with None for no bound,
              ``scipy.optimize.Bounds``, two numbers for all, or ``cem.Bounds(low, high)``.
            * ``integers``: those that are integers: a flag, 0 or 1, for each, or indices; see ``CEMConfig``.
            * ``x0``: the first candidate of a dict of parameters; those not in it are in the middle. Of a
              vector another name of ``mean``.
            * ``args``: what the objective gets after its other arguments, a tuple or one value.
            * ``constraints``: one or a list of functions, called as ``objective`` is, of numbers of which
              none is above 0 where a candidate is feasible, shape (N, m) or (N,), of one (m,) or ();
              also ``scipy.optimize.NonlinearConstraint`` and dicts, of one candidate, and but for a dict of
              parameters ``LinearConstraint``. Equal ends are an equality.
            * ``tolerance``: the most by which an equality may be missed, and an inequality while no candidate
              meets it, in the constraints' own units. None: 1e-6.
            * ``budget``: the most evaluations; a number without a fraction, such as 1e4. None: 10,000 dim.
              Without ``restarts`` a search ends earlier where those with large populations found the same:
              without a budget two, within one three, between which none converged to another value.
            * ``target``: a fitness that is good enough. ``time_limit_s``: of the whole call, in seconds.
            * ``xtol``, ``ftol``: the precision that is asked for, above 0: the call ends, without restarts,
              where the standard deviations of all parameters but integers are below ``xtol``, in units of
              ``x``, or where elites and the best of recent generations differ by at most ``ftol``.
            * ``config``: a ``CEMConfig``. ``population_size``: candidates per generation.
            * ``restarts``: the most restarts. None: those within the budget, or 0 without evolution paths.
            * ``vectorize``: True: ``objective`` takes one candidate and is vectorised by
              ``torch.func.vmap``, in which ``.item()`` and branches on values do not work (arrays: a loop);
              ``"loop"``: it is called candidate by candidate, as by default for a dict of parameters. There
              False gives a dict of columns, shape (N,), or (N, n) of permutations; of choices the indices.
            * ``with_generation``: whether it takes the generation as a second argument. None: whether it has
              an attribute ``with_generation`` that is True.
            * ``workers``: candidates evaluated side by side, one a call: a number of processes, -1 for one
              per core, a ``concurrent.futures.Executor``, or a function like ``map``. The result does not
              depend on it. ``asynchronous``: the distribution moves as soon as a population of candidates is
              done, in any order, so that no worker waits; the result depends on the order. To a population
              that is not given half as many candidates as workers are added: fewer are then outdated.
            * ``timeout_s``: of one candidate, with workers. ``catch``: the exceptions by which a candidate
              fails; others end the search.
            * ``callbacks``: of ``Callback``, or functions of a ``GenerationRecord``; the generations are
              those of the current restart. StopIteration ends the search.
            * ``progress``: whether to show a progress bar on stderr.
            * ``checkpoint``: a folder to save to and, where it holds this search, to resume from. Candidates
              that were evaluated one by one are not evaluated again.
            * ``record_every``: the generations from one test of the reasons, and entry of the history, to
              the next. ``graph``: whether they run as a CUDA graph; needs ``device="cuda"`` and an objective
              of PyTorch operations.
            * ``distributed``: whether the processes that ``torchrun`` started share the evaluation of each
              population, see ``cem.run.ranks``; every one of them makes this call, and gets the result of
              one process.
            * ``backend``, ``device``, ``dtype``: as of ``CrossEntropyMethod``.
            * ``seed``: of all restarts, a number or a generator of NumPy or torch, of which one is drawn.
              None: that of the search that is resumed, or one drawn from torch's global generator.

    Raises:
        CheckpointError: If ``checkpoint`` holds another search.
        RanksError: If another rank has gone.
    """
    return _Search(objective, mean, std, False, _complete("minimize", options)).run()


if TYPE_CHECKING:
    maximize = minimize  # has the same types
else:

    def maximize(objective, mean=None, std=None, **options):
        """Search for the greatest value of a function; see ``minimize``."""
        return _Search(objective, mean, std, True, _complete("maximize", options)).run()


def _complete(function: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the defaults of those that are not given."""
    for name in options:
        if name not in Options.__annotations__:
            hint = did_you_mean(_SYNONYMS.get(name, name), [*Options.__annotations__, "mean", "std"])
            if name in CEMConfig.__dataclass_fields__:
                hint = f": give it as config=CEMConfig({name}=...) or CEMConfig.cma({name}=...)"
            raise TypeError(f"{function}() got an unexpected option {name!r}{hint}")
    return {**dict.fromkeys(Options.__annotations__), **_DEFAULTS, **options}


def _shown() -> inspect.Signature:
    """Return what help() and completion show: every option with its type and default."""
    *first, _ = inspect.signature(minimize).parameters.values()
    options = (
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in Options.__annotations__.items()
    )
    return inspect.signature(minimize).replace(parameters=[*first, *options])


minimize.__signature__ = maximize.__signature__ = _shown()  # type: ignore[attr-defined]


class _Search(Callback):
    """A search with its restarts; it ends one that has a reason, after all other callbacks."""

    on_every_rank = True

    def __init__(self, objective: Any, mean: Any, std: Any, maximize: bool, options: dict[str, Any]) -> None:
        """Check the options, and choose what is not given."""
        flags = ("progress", "graph", "distributed", "asynchronous")
        check_flags(**{name: options[name] for name in flags})
        self._objective, self._maximize = objective, maximize
        self._name = describe_callable(objective)
        if options["args"] is not None:
            arguments = options["args"] if isinstance(options["args"], tuple) else (options["args"],)
            self._objective = objective = WithArguments(objective, arguments)
            self._name += f" with {arguments!r}"
        self._adapts_to_noise = options["config"] is None and options["population_size"] is None
        self._space = Space(mean) if isinstance(mean, Mapping) else None
        if self._space is not None:
            self._name += f" of {self._space!r}"
            self._objective, mean, std, options = self._space.search(objective, std, options)
        elif options["x0"] is not None:
            if mean is not None:
                raise TypeError("expected mean or x0, which are the same of a vector, got both")
            mean = options["x0"]
        self._options = {**options, "vectorize": options["vectorize"] or False}
        self._kind: Any = CrossEntropyMethod
        self._constraints: Constraints | None = None
        if options["constraints"] is not None:
            if clash := [name for name in flags[1:] if options[name]]:
                raise ValueError(f"expected no constraints with {' and '.join(clash)}=True, got some")
            by_one = options["vectorize"] == "loop" or options["workers"] is not None
            vmap, named = options["vectorize"] is True, None
            if self._space is not None:
                named = partial(Named, space=self._space, by_column=not by_one)
            self._constraints = Constraints(
                options["constraints"],
                by_one=by_one,
                vmap=vmap,
                named=named,
                tolerance=options["tolerance"],
            )
        if options["checkpoint"] is not None:
            constraints = () if self._constraints is None else self._constraints.functions
            self._code = digest_code(self._objective, *constraints)
        self._callbacks = as_callbacks(options["callbacks"])
        target = options["target"]
        self._target = None if target is None else check_real("target", target)
        self._precision = {name: check_real(name, options[name], 0.0) for name in ("xtol", "ftol")}
        if mean is None or std is None:
            mean, std = _within(options["bounds"], mean, std)
        self._mean, self._std = mean, std
        config, size = options["config"], options["population_size"]
        first = as_real("mean", mean if self._space is None else self._space.encode(options["x0"] or {}))
        if self._space is None and config is not None:
            first = torch.cat([first, *(each.mode(each.start()).to(first) for each in config.families)], -1)
        if first.dim() != 1 or len(first) == 0:
            raise ValueError(f"expected mean of shape (dim,), dim >= 1, got {tuple(first.shape)}")
        self._first_mean = first
        if self._constraints is not None:
            self._kind = partial(Constrained, constraints=self._constraints, first=first)
        dim, budget, restarts = len(first), options["budget"], options["restarts"]
        integers: dict[str, Any] = {} if options["integers"] is None else {"integers": options["integers"]}
        self._noisy = False
        self._steepness = 1.0  # of constraints
        self._seed = None if options["seed"] is None else draw_seed(options["seed"])
        if config is None:
            config = CEMConfig.chosen(dim, options["bounds"] is not None, **integers)
        self._config = config = replace(config, **integers)
        if size is None:
            size = config.population_of(dim)
            if config.paths and budget is not None:
                size = max(4, min(size, budget // _LEAST_GENERATIONS))
            if torch.device(options["device"] or "cpu").type == "cuda":
                most = (10_000 * dim if budget is None else int(budget)) // _GENERATIONS
                size = max(size, min(_ON_A_GPU * size, most))
        self._size = check_integer("population_size", size, 2)
        restarts = 0 if restarts is None and not config.paths else restarts
        self._restarts = None if restarts is None else check_integer("restarts", restarts, 0)
        self._enough = math.inf if self._restarts is not None else 1 if budget is None else _AGREEING
        budget = max(self._size, 10_000 * dim) if budget is None else budget
        self._budget = check_integer("budget", budget, self._size)
        self._found: list[CrossEntropyMethod] = []
        self._evaluations = self._generations = 0  # of the searches before
        self._columns: dict[str, list[float]] = {name: [] for name in _COLUMNS}
        self._reason: str | None = None
        self._noise_seen = False
        self._is_resumed = options["checkpoint"] is not None  # and nothing else: no generation was made
        self._misses = 0  # starts without a success, before the first one with a success

    def run(self) -> Result[Any]:
        """Search until there is a reason to end, and return what was found."""
        options = self._options
        with ExitStack() as stack:
            if options["distributed"]:
                stack.enter_context(ranks.joined())
            self._stop = stack.enter_context(StopRequest())
            if ranks.count() > 1 and options["graph"]:
                raise ValueError("expected graph=False of a search that ranks share, got True")
            if options["time_limit_s"] is not None:
                seconds = check_real("time_limit_s", options["time_limit_s"], 0.0)
                self._stop.deadline = time.monotonic() + seconds
            with_generation = options["with_generation"]
            if with_generation is None:
                with_generation = getattr(self._objective, "with_generation", False) is True
            self._evaluator = stack.enter_context(
                Evaluator(
                    self._objective,
                    maximize=self._maximize,
                    with_generation=with_generation,
                    **{name: options[name] for name in ("vectorize", "workers", "timeout_s", "catch")},
                    stop=self._stop,
                )
            )
            if options["asynchronous"] and options["population_size"] is None:
                most = max(self._size, self._budget // _LEAST_GENERATIONS)
                self._size = min(self._size + self._evaluator.workers // 2, most)
            reason = self._searched()
            if self._is_resumed and reason not in _CUT_SHORT:
                warnings.warn(_FINISHED.format(options["checkpoint"]), RuntimeWarning, stacklevel=outside())
            return self._result(reason)

    def _searched(self) -> str:
        """Search, and again from the start; return why the last search ended."""
        left, regimes, columns = self._budget, _Regimes(self._size), self._columns
        population, scale, most, agreeing = self._size, 1.0, left, 0
        for restart in count():
            start = self._draw_start(restart, population, scale)
            trainer = self._begun(restart, population, start, max(1, min(most, left) // population))
            ended = trainer.run().reason if self._reason is None else "requested"
            optimizer = trainer.optimizer
            if restart == 0:
                self._seed = optimizer.seed  # of the search that is resumed, if none was given
            spent = optimizer.generation * optimizer.population_size
            left -= spent
            self._evaluations += spent
            self._generations += optimizer.generation
            reason = self._reason or ("budget" if ended == "finished" else ended)
            if reason == _NOISE:
                if left >= self._size:
                    textbook = CEMConfig().population_of(optimizer.dim)
                    self._size = population = max(self._size, min(textbook, left // _GENERATIONS))
                    self._noisy, self._config = True, replace(self._config, mean_averaging=0.2)
                    continue
                reason = "budget"
            if reason == "diverged":
                self._steepness *= _STEEPER
            if reason == "failed":
                warnings.warn(_FAILED, RuntimeWarning, stacklevel=outside())
            is_large = regimes.spent(spent)
            found_before = self._best() if self._found else None
            if _has_success(optimizer):
                self._found.append(optimizer)
                if found_before is None:  # later searches begin where one has succeeded
                    self._mean, self._std = start
                if self._noisy or len(self._found) - 1 == self._restarts:
                    break
            elif found_before is None:
                self._misses += 1
            if reason in (*_AS_ASKED, *_CUT_SHORT):
                break
            if reason in _CONVERGED:
                gap = abs(optimizer.best_fitness - (found_before or optimizer).best_fitness)
                first = next(filter(math.isfinite, columns["elite_mean"]), math.nan)
                is_same = gap <= _SAME * abs(first - columns["best_fitness"][-1])
                agreeing = agreeing + is_large if is_same else 0
                if found_before and is_same and is_large and agreeing >= self._enough:
                    return "restarts_agree"
            if self._found:
                population, scale, most = regimes.next(self._seed, left)
            if left < population:
                if reason == "failed" and self._found:
                    reason = "budget"
                break
        return reason if self._found or reason in _CUT_SHORT else "failed"

    def _draw_start(self, restart: int, population: int, scale: float) -> tuple[Any, Any]:
        """Return the first mean and standard deviation of a search.

        A mean with a smaller standard deviation is drawn so that the first candidates are in all as wide as
        those of the start. After starts without a success it is drawn uniformly between two bounds, and from
        an ever wider distribution where a parameter has fewer.
        """
        mean, std = self._mean, self._std
        is_elsewhere = self._misses > 0 and not self._found
        if scale == 1.0 and not is_elsewhere:
            return mean, std
        whole = as_real("std", std).cpu()
        wide, narrow = whole * math.sqrt(1.0 - scale**2), whole * scale
        is_boxed = torch.tensor(False)
        if is_elsewhere:
            limits = check_bounds(self._options["bounds"], as_real("mean", mean).double().cpu())
            if limits is not None:
                low, high = limits
                is_boxed = (high - low).isfinite()
            wide = narrow = torch.where(is_boxed, whole, whole * (1 + self._misses))
        seed = mix_seed(mix_seed(cast(int, self._seed), restart), 0)
        drawn = CrossEntropyMethod(mean, wide, **self._settings(population), seed=seed)
        place = drawn.ask()[0][: drawn.state.settings.normal]
        uniform = random.Random(f"start {seed}").uniform
        for index in (is_boxed & (whole > 0)).nonzero().flatten().tolist():
            place[index] = uniform(low[index].item(), high[index].item())
        return place, narrow

    def _settings(self, population: int) -> dict[str, Any]:
        options = self._options
        return {
            "population_size": population,
            "maximize": self._maximize,
            "config": self._config,
            **{name: options[name] for name in ("bounds", "backend", "device", "dtype")},
        }

    def _begun(self, restart: int, population: int, start: tuple[Any, Any], generations: int) -> Trainer:
        """Return the loop of a search, resumed where a checkpoint of it was left."""
        options, seed = self._options, self._seed
        if seed is not None and restart:
            seed = mix_seed(seed, restart)
        settings = self._settings(population)
        if self._constraints is not None:
            settings["steepness"] = self._steepness
        optimizer: CrossEntropyMethod = self._kind(*start, **settings, seed=seed)
        self._reason, self._optimizer = None, optimizer
        self._is_first = not (self._found or self._noisy)
        self._failed = 0  # generations, one after another
        state = optimizer.state
        may_move = (state.std_floor, state.variance_schedule, state.discrete)
        if may_move == (None, None, None) and not state.std.any():
            raise ValueError(f"expected std > 0 of a parameter at least, got {self._std}: nothing can move")
        constrained = self._constraints is not None
        earlier = self._best().best_fitness if self._found and not constrained else None
        self._termination = Termination(
            state.settings,
            state.std,
            self._target,
            self._noisy,
            earlier,
            constrained=constrained,
            **self._precision,
        )
        callbacks = [*([ProgressBar()] if options["progress"] else []), *self._callbacks, self]
        objective: Objective = self._evaluator
        first_mean: _FirstMean | None = None
        if ranks.count() > 1:
            objective = ranks.shared(objective, self._stop)
        if options["asynchronous"]:
            objective = self._evaluator.in_any_order(optimizer)
        is_in_order = not options["asynchronous"] or objective is self._evaluator  # one worker
        if is_in_order and self._is_first and not (options["graph"] or self._constraints):
            drawn = as_real("mean", start[0]).to(self._first_mean)
            first = torch.cat([drawn, self._first_mean[len(drawn) :]])
            objective = first_mean = _FirstMean(objective, with_integers(state, first.to(state.distribution)))
        checkpointer = None
        if options["checkpoint"] is not None:
            folder = Path(options["checkpoint"]) / f"restart-{restart:03d}"
            fingerprint = {
                "objective": self._name,
                "code": self._code,
                "restart": restart,
                "population_size": population,
                "mean": self._first_mean.to(optimizer.dtype).tolist(),
                "std": optimizer.std.tolist(),
            }
            if self._constraints is not None:
                fingerprint["constraints"] = self._constraints.described
            checkpointer = Checkpointer(folder, fingerprint=fingerprint, interval_s=CHECKPOINT_SECONDS)
            metrics = MetricsWriter(folder / "metrics.jsonl", distribution=True)
            callbacks.insert(0, metrics)
        trainer = Trainer(
            optimizer,
            objective,
            generations=generations,
            callbacks=callbacks,
            checkpointer=checkpointer,
            stop=self._stop,
            record_every=options["record_every"],
            graph=options["graph"],
        )
        if checkpointer is not None:
            lines, of_first = ranks.broadcast(partial(_resumed, trainer, checkpointer, metrics))
            if ranks.rank() > 0:  # a search that has ended is not run, which would give them the state
                optimizer.load_state_dict(of_first)
            self._replay(lines)
            if first_mean is not None and lines:
                first_mean.resume(lines[0])
            if ranks.rank() == 0:
                folder.mkdir(parents=True, exist_ok=True)
                self._evaluator.open_journal(folder / "evaluations.jsonl", fingerprint, optimizer.generation)
        return trainer

    def _best(self) -> CrossEntropyMethod:
        """Return the search that found the best candidate so far, the first of equal ones."""
        sign = 1.0 if self._maximize else -1.0
        searches = self._found or [self._optimizer]
        return max(searches, key=lambda search: (*_feasibility(search), sign * search.best_fitness))

    def _result(self, reason: str) -> Result[Any]:
        best, evaluator = self._best(), self._evaluator
        x, fun, evaluations = best.best, best.best_fitness, self._evaluations
        if ranks.count() == 1 and not self._options["graph"]:  # those of an interrupted generation, too
            evaluations = max(evaluations, evaluator.evaluations)
            newest = None if self._constraints else evaluator.best
            if newest is not None and self._better(newest[1], fun) == newest[1]:
                x, fun = newest
        violation = _violation(best)
        if violation:
            warnings.warn(_INFEASIBLE.format(violation), RuntimeWarning, stacklevel=outside())
        if self._noise_seen:
            x, fun = with_integers(best.state, best.state.averaged_mean), self._columns["elite_mean"][-1]
            x = x.numpy() if isinstance(best.best, np.ndarray) else x
        named = (lambda vector: vector) if self._space is None else self._space.decode
        return Result(
            x=named(x),
            fun=fun,
            violation=violation,
            mean=named(best.averaged_mean),
            std=best.std if self._space is None else self._space.spread(best.std),
            reason=reason,
            evaluations=evaluations,
            generations=self._generations,
            restarts=max(0, len(self._found) - 1),
            failures=evaluator.failures,
            settings={
                "config": self._config,
                "population_size": self._size,
                "restarts": self._restarts,
                "budget": self._budget,
                "noise": self._noise_seen,
            },
            history=self._columns,
        )

    def _better(self, a: float, b: float) -> float:
        """Return the better of two values, the first of equal ones; NaN is none."""
        if math.isnan(a):
            return b
        return max(a, b) if self._maximize else min(a, b)

    def _replay(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Record the generations that a resumed run had recorded by its checkpoint."""
        good = math.inf if self._maximize else -math.inf
        missing = good if self._optimizer.best_fitness == good else math.nan
        names = [n for n in GenerationRecord.__dataclass_fields__ if n not in ("metrics", "mean", "std")]
        for values in lines:
            # What is not finite is null there: of a generation that failed, or infinity on the good side.
            numbers: Any = {name: missing if values[name] is None else values[name] for name in names}
            if self._constraints and values["best_fitness"] is None:  # no candidate was feasible
                numbers["best_fitness"] = -good
            mean, std = (torch.tensor(values[name], dtype=torch.float64) for name in ("mean", "std"))
            metrics = {_SEEN: 1.0} if _SEEN in values else {}
            self._add(GenerationRecord(**numbers, metrics=metrics, mean=mean, std=std))

    def on_generation(self, record: GenerationRecord) -> None:
        """Record the generation; raise Interrupted if there is a reason to end."""
        self._is_resumed = False
        self._add(record)
        if self._reason is not None:
            raise Interrupted(self._reason)

    def _add(self, record: GenerationRecord) -> None:
        before, size = self._columns["best_fitness"], self._optimizer.population_size
        best = self._better(before[-1], record.best_fitness) if before else record.best_fitness
        evaluations = self._evaluations + record.generation * size
        row = (evaluations, best, record.generation_best, record.elite_mean, record.std_mean, size)
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        reasons = self._termination.reasons(record)
        if _SEEN in record.metrics:
            self._noise_seen = True
            reasons = (_NOISE,) if self._adapts_to_noise and self._is_first else reasons
        self._failed = self._failed + 1 if math.isnan(record.generation_best) else 0
        if self._failed >= MOST_FAILURES:
            reasons = ("failed",)
        self._reason = reasons[0] if reasons else None


def _within(bounds: Any, mean: Any, std: Any) -> tuple[Any, Any]:
    """Return the start that is given, or else the middle and a quarter of the width of bounds."""
    if bounds is None:
        raise TypeError(
            "expected mean and std, or bounds, whose middle and a quarter of whose width they are"
        )
    low, high = (np.asarray(end, dtype=np.float64) for end in ends_of(bounds))
    if mean is None and (low.ndim != 1 or not np.isfinite(low + high).all()):
        raise ValueError(f"expected mean, or a pair of finite numbers for each parameter, got {bounds!r}")
    if std is None and not np.isfinite(high - low).all():
        raise ValueError(f"expected std, or finite bounds, got {bounds!r}")
    return (low + high) / 2 if mean is None else mean, (high - low) / 4 if std is None else std


def _has_success(search: CrossEntropyMethod) -> bool:
    """Return whether a candidate of a search has a value, or may be compared by its violation."""
    return _violation(search) < math.inf and not math.isnan(search.best_fitness)


def _violation(search: CrossEntropyMethod) -> float:
    return getattr(search, "violation", 0.0)  # of a search with constraints


def _feasibility(search: CrossEntropyMethod) -> tuple[float, bool]:
    """Return what is greater where the best candidate of a search violates less."""
    return -_violation(search), not getattr(search, "within_tolerance", False)


class _Regimes:
    """The restarts of BIPOP-CMA-ES: their populations, standard deviations and budgets."""

    def __init__(self, population_size: int) -> None:
        self._first = self._size = population_size
        self._used = [0, 0]  # evaluations of the regime of small populations, and of large ones
        self._last = 0  # of the last search with a large population
        self._large = True
        self._random: random.Random | None = None

    def next(self, seed: int | None, left: int) -> tuple[int, float, int]:
        """Return population, share of the standard deviation and budget of the next search.

        They depend on the searches before alone, so that a search goes on with a larger budget.
        """
        self._random = self._random or random.Random(f"restarts {seed}")
        self._large = self._used[1] <= self._used[0]
        if self._large:
            self._size *= 2
            return self._size, 1.0, left
        ratio = self._size / self._first / 2
        size = int(self._first * max(1.0, ratio) ** (self._random.random() ** 2))
        return size, 10 ** (-2 * self._random.random()), max(self._last // 2, size)

    def spent(self, evaluations: int) -> bool:
        """Count the evaluations of a search; return whether its population was a large one."""
        if self._random is not None:  # the first search belongs to neither
            self._used[self._large] += evaluations
        if self._large:
            self._last = evaluations
        return self._large


def _resumed(
    trainer: Trainer, checkpointer: Checkpointer, metrics: MetricsWriter
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Resume a search that has a checkpoint; return the lines of its generations, and its state."""
    lines = []
    if checkpointer.paths():
        trainer.resume()
        lines = metrics.restore(trainer.optimizer.generation)
    return lines, trainer.optimizer.state_dict()


class _FirstMean:
    """Evaluates the first mean in the first two generations, and says whether its fitness was the same."""

    def __init__(self, evaluate: Objective, mean: Tensor) -> None:
        self._evaluate, self._mean = evaluate, mean
        self._first: tuple[float, float] | None = None  # its fitness, and the range of the first generation
        self._noisy = False

    def __call__(self, candidates: Any, generation: Any) -> Any:
        if generation > 1:
            found = self._evaluate(candidates, generation)
            return self._said(as_evaluation(found)) if self._noisy else found
        candidates[0] = self._mean  # they are copies: see ``Trainer``
        found = as_evaluation(call_with_copies(self._evaluate, candidates, generation))
        if found.candidates is not None:
            return found
        values = torch.as_tensor(found.fitness).double()
        value, usable = values[0].item(), values[values.isfinite()]
        if generation == 0 and math.isfinite(value):
            self._first = value, max(float(usable.max() - usable.min()), abs(value))
            found = replace(found, metrics={**found.metrics, **dict(zip(_FIRST, self._first, strict=True))})
        elif generation == 1 and self._first is not None:
            self._noisy = abs(value - self._first[0]) > _NOISY * self._first[1]
        return self._said(replace(found, candidates=candidates))

    def resume(self, first: Mapping[str, Any]) -> None:
        """Take what the record of the first generation says."""
        value, scale = (first.get(name) for name in _FIRST)
        self._first = None if value is None or scale is None else (value, scale)

    def _said(self, found: Evaluation) -> Evaluation:
        return replace(found, metrics={**found.metrics, _SEEN: 1.0}) if self._noisy else found
