"""``minimize`` and ``maximize``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

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
    """Search for the least value of a function.

    Examples:
        >>> import torch
        >>> from cem import minimize
        >>> f = lambda x: (x - 3.0).square().sum(-1)
        >>> result = minimize(f, torch.zeros(5), 1.0, budget=20_000, seed=1)
        >>> bool((result.x - 3.0).abs().max() < 1e-3)
        True

    By default it is CMA-ES, see ``CEMConfig.cma``: a full covariance up to 200 parameters and a
    diagonal one above; evolution paths; 4 + 3 ln(dim) candidates per generation, or fewer, so
    that a budget has room for twenty generations; restarts in two regimes. On a GPU, where a
    larger generation takes as long, there are sixteen times as many candidates, or as many as
    leave 150 generations. ``Result.settings`` says what was chosen. The first candidate is the
    mean.

    A search ends for a reason of ``cem.core.termination``, at the budget, at the time limit or
    on Ctrl-C; the best so far is returned. The next restart belongs to the regime that has used
    fewer evaluations. One doubles its population every time and begins at the first mean. The
    other has a small population and a smaller standard deviation, and begins at a mean that is
    drawn about the first one; see N. Hansen, Benchmarking a BI-population CMA-ES on the
    BBOB-2009 function testbed, GECCO 2009.

    Args:
        objective: Maps candidates, shape (N, dim), to fitness, shape (N,): tensors, or arrays
            where ``mean`` is one; or to an ``Evaluation``. With ``vectorize`` it maps one
            candidate, shape (dim,), to a number. One that is called candidate by candidate may
            raise an exception of ``catch``.
        mean: The first mean, shape (dim,). None: the middle of the bounds, an array. Or a dict
            of named parameters, ``Float``, ``Int``, ``Choice``, ``Bool`` and ``Permutation``,
            and of fixed values; the function then gets the dict of one candidate, and ``x`` is
            one.
        std: The first standard deviation, a number or shape (dim,). None: a quarter of the
            bounds' width.
        options: Any of these.

            * ``bounds``: a pair (low, high) for each parameter with None for no bound,
              ``scipy.optimize.Bounds``, two numbers for all, or ``cem.Bounds(low, high)``.
            * ``integers``: which parameters are integers: a flag, 0 or 1, for every parameter,
              or the indices of the integers; see ``CEMConfig``.
            * ``x0``: with a dict of parameters the values of the first candidate by name; other
              parameters are in the middle. With a vector another name of ``mean``.
            * ``evaluated``: points that are known, with their values: a pair (X, y), a
              ``Result``, a study of Optuna, the path of a journal or of a ``checkpoint``, or a
              list of these. X has shape (n, dim), or with a dict of parameters it is a list of
              dicts or a table; NaN in y is a failure. The first mean and standard deviation are
              those of the better half, unless ``mean`` or ``x0`` is given, and a ``model`` has
              all of them. ``constraints`` are evaluated there, as functions of an array; a
              point that violates one does not count. See ``cem.search.evaluated``.
            * ``args``: what the objective gets after its other arguments, a tuple or one value.
            * ``constraints``: a function or a list of functions, called like ``objective``. A
              candidate is feasible if none of its numbers, shape (N, m) or (N,), for a single
              candidate (m,) or (), is above 0. Or ``scipy.optimize.NonlinearConstraint`` and
              dicts as in SciPy, of one candidate, and ``LinearConstraint``, but not with a dict
              of parameters. Equal ends are an equality.
            * ``tolerance``: the most by which an equality may be missed, and an inequality
              while no candidate meets it, in the constraints' own units. None: 1e-6.
            * ``budget``: the most evaluations; a number without a fraction, such as 1e4. None:
              10,000 dim. Without ``restarts`` the call ends earlier if searches with a large
              population agree, one after another: two without a budget, three with one.
            * ``target``: a fitness that is good enough. ``time_limit_s``: the time limit of the
              call in seconds.
            * ``xtol``, ``ftol``: a precision that is good enough, above 0. The call ends,
              without restarts, if the standard deviations of all parameters but integers are
              below ``xtol``, in units of ``x``, or if the elites and the best values of recent
              generations differ by at most ``ftol``.
            * ``config``: a ``CEMConfig``. ``population_size``: candidates per generation.
            * ``model``: "quadratic": the first evaluations follow slopes, and a model of the
              function then says which candidates are worth one: for functions that take long.
              "auto": where the function is called candidate by candidate, without workers,
              and has at most 40 parameters, all of them numbers, and neither constraints nor
              noise. None: never.
            * ``restarts``: the most restarts. None: as many as the budget has room for, or 0
              without evolution paths.
            * ``vectorize``: True: ``objective`` takes one candidate and is vectorised by
              ``torch.func.vmap``, in which ``.item()`` and branches on values do not work
              (arrays: a loop). ``"loop"``: it is called candidate by candidate, the default for
              a dict of parameters. With such a dict False means that it gets the values of a
              population by name, shape (N,), or (N, n) for permutations; a choice is its index.
            * ``with_generation``: whether it takes the generation as a second argument. None:
              whether it has an attribute ``with_generation`` that is True.
            * ``workers``: who evaluates candidates side by side, one per call: a number of
              processes, -1 for one per core; "dask", "ray", "mpi", "parsl", "loky" or "joblib",
              or an object of such a library; a ``concurrent.futures.Executor``; or a function
              like ``map``. The result does not depend on their number, unless a ``model`` is
              asked for: it then gets as many values at once.
            * ``asynchronous``: the distribution moves as soon as a population of candidates is
              done, in any order, so that no worker waits; the result depends on the order.
              Without ``population_size`` there is one candidate more for every two workers, so
              that fewer are outdated. ``running``: how many candidates run side by side. None:
              as many as there are workers. ``drain_s``: the seconds to wait at the end for
              candidates that still run; those that do not come count as evaluated.
            * ``timeout_s``: the most seconds for one candidate, with processes. ``catch``: the
              exceptions by which a candidate fails; others end the search. ``retries``: how
              many times a candidate is evaluated again whose worker died.
            * ``callbacks``: a sequence of ``Callback``, or of functions of a
              ``GenerationRecord``, which counts the generations of the current restart.
              StopIteration ends the search.
            * ``progress``: whether to show a progress bar on stderr.
            * ``checkpoint``: a folder to save to and, if it holds this search, to resume from.
              Candidates that were evaluated one by one are not evaluated again. Seed and
              population are those of the folder; budget and workers may be others.
            * ``record_every``: the number of generations from one entry of the history, and one
              test of the reasons to end, to the next. ``graph``: whether they run as a CUDA
              graph; needs ``device="cuda"`` and an objective of PyTorch operations.
            * ``distributed``: whether the processes that ``torchrun``, ``mpirun`` or ``srun``
              started share the evaluation of a population, see ``cem.run.ranks``. All of them
              make this call, and get the result of a single process.
            * ``backend``, ``device``, ``dtype``: as for ``CrossEntropyMethod``.
            * ``seed``: the seed of all restarts: a number, or a generator of NumPy or torch
              that draws it. None: the seed of the search that is resumed, or one drawn from
              torch's global generator.

    Raises:
        CheckpointError: If ``checkpoint`` holds another search.
        RanksError: If another rank has gone.
    """
    completed = complete_options("minimize", options)
    return run(choose_plan(objective, mean, std, False, completed))


if TYPE_CHECKING:
    maximize = minimize  # has the same types
else:

    def maximize(objective, mean=None, std=None, **options):
        """Search for the greatest value of a function; see ``minimize``."""
        completed = complete_options("maximize", options)
        return run(choose_plan(objective, mean, std, True, completed))


minimize.__signature__ = maximize.__signature__ = show_options(minimize)  # type: ignore[attr-defined]
