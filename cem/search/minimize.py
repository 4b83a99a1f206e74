"""``minimize`` and ``maximize``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

from cem.run.evaluator import PopulationError
from cem.search.loop import run
from cem.search.options import Options, complete_options, show_options
from cem.search.plan import choose_plan
from cem.search.result import Result

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack


@overload
def minimize(
    objective: Callable[..., Any],
    mean: NDArray[Any] | None = None,
    std: Any = None,
    **options: Unpack[Options],
) -> Result[NDArray[Any]]: ...
@overload
def minimize(
    objective: Callable[..., Any],
    mean: Tensor | Sequence[float],
    std: Any = None,
    **options: Unpack[Options],
) -> Result[Tensor]: ...
@overload
def minimize(
    objective: Callable[..., Any], mean: Mapping[str, Any], **options: Unpack[Options]
) -> Result[dict[str, Any]]: ...
def minimize(
    objective: Callable[..., Any], mean: Any = None, std: Any = None, **options: Any
) -> Result[Any]:
    """Search for the minimum of a function.

    Examples:
        >>> import torch
        >>> from cem import minimize
        >>> f = lambda x: (x - 3.0).square().sum(-1)
        >>> result = minimize(f, torch.zeros(5), 1.0, budget=20_000, seed=1)
        >>> bool((result.x - 3.0).abs().max() < 1e-3)
        True

    The default method is CMA-ES (``CEMConfig.cma``) with restarts. Its covariance is full up to
    200 parameters, and diagonal above. Its population is 4 + 3 ln(dim), or smaller, so that the
    budget allows twenty generations. On a GPU it is up to sixteen times as large, if 150
    generations remain. ``Result.settings`` contains all choices. The first candidate is the
    mean.

    A search ends for a reason of ``cem.core.termination``. Restarts follow until the budget,
    the time limit or Ctrl-C ends the call, which returns the best candidate so far. Restarts
    are of two kinds. A large restart doubles the population of the last large one and begins at
    the first mean. A small restart has a small population, a smaller standard deviation, and a
    random mean near the first one. The kind that has used fewer evaluations is next: N. Hansen,
    Benchmarking a BI-population CMA-ES on the BBOB-2009 function testbed, GECCO 2009.

    Args:
        objective: Maps candidates, shape (N, dim), to their fitness, shape (N,), or to an
            ``Evaluation``. Candidates are tensors if ``mean`` is one, and otherwise arrays.
            With ``vectorize`` it maps one candidate, shape (dim,), to a number.
        mean: The first mean, shape (dim,): a tensor, an array or a sequence such as a list,
            which is an array, but a tensor if ``vectorize`` is True, or ``device`` or ``dtype``
            is set.
            None: the middle of the bounds, as an array. Or a dict of named parameters:
            ``Float``, ``Int``, ``Choice``, ``Bool``, ``Permutation``, or fixed values. The
            objective then gets a dict with the values of one candidate, and ``Result.x`` is
            such a dict.
        std: The first standard deviation, a number or shape (dim,). None: a quarter of the
            width of the bounds.
        options: Any of these.

            The parameters:

            * ``bounds``: a pair (low, high) per parameter, or one for all, where None is no
              bound; ``scipy.optimize.Bounds``; or ``cem.Bounds(low, high)``.
            * ``integers``: the parameters that are integers: a flag, 0 or 1, per parameter, or
              their indices; see ``CEMConfig``.
            * ``x0``: with named parameters, a dict of values of the first candidate; numbers
              not in it start in the middle. With a vector, another name of ``mean``.
            * ``evaluated``: known points and their values: a pair (X, y), a ``Result``, an
              Optuna study, the path of a journal or a ``checkpoint``, or a list of these. X
              has shape (n, dim), or is a table or list of dicts; NaN in y means failed. Unless
              ``mean`` or ``x0`` is set, the search starts at the better half of the points. A
              ``model`` uses all of them. ``constraints`` are evaluated at the points, as
              functions of an array; points that violate one do not count. See
              ``cem.search.evaluated``.
            * ``constraints``: one or several functions, called like ``objective``. A candidate
              is feasible if no returned number is above 0. They return shape (N, m) or (N,),
              or for a single candidate (m,) or (). Or the constraints of ``scipy.optimize``:
              ``NonlinearConstraint`` and dicts, which are functions of one candidate, and
              ``LinearConstraint``, not for named parameters. Equal lower and upper ends make an
              equality. Constraints of one candidate are evaluated directly after an objective
              of one candidate, by the same worker.
            * ``tolerance``: the largest violation, in units of the constraint, of an equality,
              or of an inequality as long as no candidate satisfies it. None: 1e-6.

            The end of the call:

            * ``budget``: the maximum number of evaluations, a whole number such as 1e4. None:
              10,000 dim. Unless ``restarts`` is set, the call ends earlier if consecutive
              searches with a large population agree: three with a budget, two without.
            * ``time_limit_s``: the time limit in seconds.
            * ``target``: a fitness that is good enough.
            * ``xtol``, ``ftol``: precisions that are good enough, above 0. The call ends,
              without a restart, if all standard deviations, except those of integers, are below
              ``xtol``, in the units of ``Result.std``, or if the fitness of the elites and the
              best values of recent generations differ by at most ``ftol``. With bounds by
              transform ``xtol`` does not end a search whose optimum is on a bound.

            The method:

            * ``config``: a ``CEMConfig``.
            * ``population_size``: the number of candidates per generation.
            * ``model``: "quadratic", for slow functions: the search begins with a descent, and
              a surrogate model then chooses the candidates to evaluate. "auto": such a model,
              if the objective evaluates one candidate per call, and has numbers as parameters
              and no noise; with constraints or more than 40 parameters, the descent alone;
              with more than 1,000, by default neither. None: neither.
            * ``restarts``: the maximum number of restarts, or a policy such as
              ``cem.search.Ipop()``. None: the budget alone limits them, or 0 without evolution
              paths.
            * ``backend``, ``device``, ``dtype``: as for ``CrossEntropyMethod``.
            * ``seed``: the seed of all restarts: a number, or a generator of NumPy or torch
              that draws it. None: the seed of the resumed search, or one from torch's global
              generator.

            The calls of the objective:

            * ``vectorize``: True: ``objective`` maps one candidate, and ``torch.func.vmap``
              vectorises it; ``.item()`` and branches on values do not work (arrays use a loop).
              "loop": one call per candidate; the default with named parameters. None: "loop" if
              the first call, with a population, raises an error or returns no row for each
              candidate; populations otherwise, and always with ``asynchronous``,
              ``checkpoint``, ``distributed`` or ``graph``. False with named parameters: the
              objective gets a dict of columns, shape (N,), or (N, n) for permutations; choices
              are indices.
            * ``args``: further arguments of the objective, a tuple or a single value.
            * ``with_generation``: whether ``objective`` takes the generation as a second
              argument. None: whether its attribute ``with_generation`` is True.
            * ``workers``: evaluates candidates in parallel, one per call: a number of
              processes, -1 for one per core; "dask", "ray", "mpi", "parsl", "loky" or "joblib",
              or an object of that library; a ``concurrent.futures.Executor``; or a function
              like ``map``. Any number gives the same result; without workers, a ``model`` gets
              one value at a time.
            * ``asynchronous``: the distribution moves as soon as enough candidates are
              finished, in any order, so that no worker waits; the result depends on the order.
              There is no ``model``.
            * ``running``: the number of candidates evaluated in parallel. None: the number of
              workers.
            * ``drain_s``: how many seconds to wait for running candidates at the end, also
              after a time limit or a Ctrl-C; a second Ctrl-C ends at once. With
              ``asynchronous``, unfinished ones count as evaluated.
            * ``timeout_s``: the time limit of a candidate in seconds; needs processes. On Unix,
              the programs that it runs end, too.
            * ``catch``: the exceptions of the objective, and of constraints of one candidate,
              that mean that the candidate failed. Others end the call.
            * ``retries``: how often a candidate is evaluated again after its worker died.
            * ``graph``: whether generations run as a CUDA graph; needs ``device="cuda"`` and an
              objective of PyTorch operations.
            * ``distributed``: whether the processes of ``torchrun``, ``mpirun`` or ``srun``
              share the evaluation of a population, see ``cem.run.ranks``. All of them make this
              call and get the same result as a single process.

            Records:

            * ``callbacks``: a sequence of ``Callback``, or of functions of a
              ``GenerationRecord``, whose generation counts from the last restart. A descent
              has no records. A callback that raises StopIteration ends the search.
            * ``progress``: whether to show a progress bar on stderr.
            * ``record_every``: the number of generations from one entry of the history, and
              one test of the reasons to end, to the next.
            * ``checkpoint``: the folder to save to, and to resume from if it contains this
              search. Candidates that were evaluated one by one are not evaluated again. Seed
              and population are those of the folder; budget and workers may differ.

    Raises:
        CheckpointError: If ``checkpoint`` contains another search.
        RanksError: If another rank has ended.
    """
    return _search("minimize", objective, mean, std, options)


def _search(
    name: str, objective: Callable[..., Any], mean: Any, std: Any, options: Mapping[str, Any]
) -> Result[Any]:
    """Run a call of ``minimize`` or ``maximize``, and return its result.

    An objective that does not take a population is called with one candidate at a time.
    """
    completed = complete_options(name, options)
    is_maximum = name == "maximize"
    plan = choose_plan(objective, mean, std, is_maximum, completed)
    try:
        return run(plan)
    except PopulationError:
        completed["vectorize"] = "loop"
        # If the seed is a generator, it must not draw another one.
        completed["seed"] = plan.seed
        # An error of this call shows both calls, because it is raised in this block.
        return run(choose_plan(objective, mean, std, is_maximum, completed))


if TYPE_CHECKING:
    maximize = minimize  # It has the same types.
else:

    def maximize(objective, mean=None, std=None, **options):
        """Search for the maximum of a function; see ``minimize``."""
        return _search("maximize", objective, mean, std, options)


minimize.__signature__ = maximize.__signature__ = show_options(minimize)  # type: ignore[attr-defined]
