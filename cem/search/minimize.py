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
            * ``integers``: those that are integers: a flag, 0 or 1, for each, or indices; see
              ``CEMConfig``.
            * ``x0``: the first candidate of a dict of parameters; those not in it are in the
              middle. Of a vector another name of ``mean``.
            * ``args``: what the objective gets after its other arguments, a tuple or one value.
            * ``constraints``: one or a list of functions, called as ``objective`` is, of
              numbers of which none is above 0 where a candidate is feasible, shape (N, m) or
              (N,), of one (m,) or (); also ``scipy.optimize.NonlinearConstraint`` and dicts, of
              one candidate, and but for a dict of parameters ``LinearConstraint``. Equal ends
              are an equality.
            * ``tolerance``: the most by which an equality may be missed, and an inequality
              while no candidate meets it, in the constraints' own units. None: 1e-6.
            * ``budget``: the most evaluations; a number without a fraction, such as 1e4. None:
              10,000 dim. Without ``restarts`` a search ends earlier where those with large
              populations found the same: without a budget two, within one three, between which
              none converged to another value.
            * ``target``: a fitness that is good enough. ``time_limit_s``: of the whole call, in
              seconds.
            * ``xtol``, ``ftol``: the precision that is asked for, above 0: the call ends,
              without restarts, where the standard deviations of all parameters but integers are
              below ``xtol``, in units of ``x``, or where elites and the best of recent
              generations differ by at most ``ftol``.
            * ``config``: a ``CEMConfig``. ``population_size``: candidates per generation.
            * ``restarts``: the most restarts. None: those within the budget, or 0 without
              evolution paths.
            * ``vectorize``: True: ``objective`` takes one candidate and is vectorised by
              ``torch.func.vmap``, in which ``.item()`` and branches on values do not work
              (arrays: a loop); ``"loop"``: it is called candidate by candidate, as by default
              for a dict of parameters. There False gives a dict of columns, shape (N,), or (N,
              n) of permutations; of choices the indices.
            * ``with_generation``: whether it takes the generation as a second argument. None:
              whether it has an attribute ``with_generation`` that is True.
            * ``workers``: candidates evaluated side by side, one a call: a number of processes,
              -1 for one per core, a ``concurrent.futures.Executor``, or a function like
              ``map``. The result does not depend on it. ``asynchronous``: the distribution
              moves as soon as a population of candidates is done, in any order, so that no
              worker waits; the result depends on the order. Without ``population_size`` there
              is one candidate more for every two workers, so that fewer are outdated.
            * ``timeout_s``: of one candidate, with workers. ``catch``: the exceptions by which
              a candidate fails; others end the search.
            * ``callbacks``: of ``Callback``, or functions of a ``GenerationRecord``; the
              generations are those of the current restart. StopIteration ends the search.
            * ``progress``: whether to show a progress bar on stderr.
            * ``checkpoint``: a folder to save to and, where it holds this search, to resume
              from. Candidates that were evaluated one by one are not evaluated again.
            * ``record_every``: the generations from one test of the reasons, and entry of the
              history, to the next. ``graph``: whether they run as a CUDA graph; needs
              ``device="cuda"`` and an objective of PyTorch operations.
            * ``distributed``: whether the processes that ``torchrun`` started share the
              evaluation of each population, see ``cem.run.ranks``; every one of them makes this
              call, and gets the result of one process.
            * ``backend``, ``device``, ``dtype``: as of ``CrossEntropyMethod``.
            * ``seed``: of all restarts, a number or a generator of NumPy or torch, of which one
              is drawn. None: that of the search that is resumed, or one drawn from torch's
              global generator.

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
