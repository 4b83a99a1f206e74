"""The result of a call of ``minimize``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import warn
from cem.core.reasons import Reason
from cem.core.state import with_integers
from cem.run import ranks
from cem.run.candidate import Failure
from cem.run.evaluator import Evaluator
from cem.search.evaluated import Evaluations
from cem.search.plan import Plan
from cem.search.response import ResponseSurface, fit_response
from cem.search.restarts import Ended
from cem.search.single import Session
from cem.space import Space
from kernels.support.printable import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INFEASIBLE = (
    "no candidate is feasible: the one of the least violation violates a constraint by {:.3g}"
)
_NOT_KEPT = (
    "expected a function called candidate by candidate, without distributed=True, and at most "
    "ten million numbers: other evaluations are not kept"
)
_MOST_IMPORTANT = 3  # parameters that are printed
_Vector = TypeVar("_Vector")


@dataclass(frozen=True, repr=False)
class Result(Generic[_Vector]):
    """The result of ``minimize`` and ``maximize``.

    The names of SciPy work, too: ``nfev``, ``nit``, ``success`` and ``message``.

    Attributes:
        x: The fittest candidate of all restarts, shape (dim,). It is an array if the first mean
            was one, otherwise a tensor, or a dict of named parameters. It, or each value of the
            dict, is NaN if no candidate was evaluated in time, or none succeeded. With
            constraints it is the fittest feasible candidate, or if there is none, the candidate
            with the smallest violation.
        fun: The fitness of ``x``.
        violation: The largest violation of a constraint by ``x``; 0.0 within ``tolerance``.
        mean: The last mean of the restart that found ``x``, averaged over generations by
            ``mean_averaging``. Prefer it to ``x`` if the fitness is noisy.
        std: The last standard deviation of this restart, shape (dim,). It tells how far the
            search looked, not how certain ``x`` is: a fit's standard errors are others. With
            bounds by transform it is that of the unbounded space, which may be large for an
            ``x`` at a bound; with ``log`` it is that of the logarithm.
        reason: Why the call ended: a ``cem.core.reasons.Reason``, which is a string such as
            ``"target"``.
        evaluations: The number of evaluations. On a GPU the populations that were queued when
            a search ended are evaluated, too, but neither used nor counted.
        generations: The number of generations of all restarts.
        restarts: The number of restarts, 0 for a single search.
        failures: The number of candidates that failed: by an exception, a timeout, a worker
            that died, NaN, or the infinity on the bad side. A resumed search includes earlier
            failures only if candidates were evaluated one by one. If ranks share the
            candidates, these and ``failed`` are those of this rank.
        failed: The last 1,000 candidates of this call that were evaluated one by one and
            failed, except those whose fitness is not finite: a list of tuples (generation,
            number, fate, message), see ``cem.run.candidate.Failure``.
        settings: The arguments of the call, with the values chosen for those that were None:
            ``config``, ``population_size`` of the first search, ``restarts`` (the maximum;
            None: the budget alone limits them), ``budget``, ``model``, and ``noise``, which
            tells whether noise was detected.
        history: Lists with one entry per recorded generation: ``evaluations``,
            ``best_fitness`` of all restarts so far, ``generation_best``, ``elite_mean``,
            ``std_mean`` and ``population_size``.
    """

    x: _Vector
    fun: float
    violation: float
    mean: _Vector
    std: _Vector
    reason: Reason
    evaluations: int
    generations: int
    restarts: int
    failures: int
    failed: list[Failure]
    settings: dict[str, Any]
    history: dict[str, list[float]]
    _evaluations: Evaluations | None = None
    _space: Space | None = None
    _maximize: bool = False

    @property
    def evaluated(self) -> tuple[Any, Any]:
        """All points and their values, (X, y), in the order in which evaluations finished.

        Those of earlier generations of a resumed search have the order of candidates.
        ``minimize(..., evaluated=result)`` starts from them. X has shape (n, dim), or is a list
        of dicts of named parameters. y has shape (n,); it is not finite where the evaluation
        failed.

        Raises:
            AttributeError: If the result does not contain them: the objective mapped whole
                populations, or ranks shared it.
        """
        known = self._evaluations
        if known is None:
            raise AttributeError(_NOT_KEPT)
        if self._space is not None:
            return [self._space.decode(row) for row in known.candidates], known.fitness
        if isinstance(self.x, Tensor):
            points = torch.from_numpy(known.candidates).to(self.x)
            return points, torch.from_numpy(known.fitness)
        return known.candidates, known.fitness

    @cached_property
    def model(self) -> ResponseSurface | None:
        """A quadratic model of the objective, fitted to ``evaluated``.

        It is None without ``evaluated``, with too few points, or with more than 40 parameters.
        """
        if self._evaluations is None:
            return None
        dim = self._evaluations.candidates.shape[1]
        # The other columns of a candidate belong to the families of discrete parameters.
        num_numbers = dim - self.settings["config"].num_discrete
        return fit_response(self._evaluations, self._space, num_numbers, self._maximize)

    @cached_property
    def importance(self) -> Any:
        """The share of the model's variance that each parameter causes, alone or with others.

        It is a dict by name, or an array of shape (dim,); None without a model. See
        ``cem.search.response``.
        """
        return None if self.model is None else self.model.importance()

    def plot(self) -> "Figure":
        """Return a figure: the progress, the importance and a slice along each parameter.

        It needs matplotlib, which the extra ``plot`` installs.
        """
        from cem.search.plot import draw_result

        return draw_result(self)

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
        """Whether ``x`` is feasible, ``fun`` is finite and the search was not cut short."""
        is_known = math.isfinite(self.fun) and not self.violation
        return is_known and not self.reason.cuts_short

    @property
    def message(self) -> str:
        """A sentence for ``reason``, and a note if no candidate is feasible."""
        if self.violation in (0.0, math.inf):
            return self.reason.message
        return f"{self.reason.message}; {_INFEASIBLE.format(self.violation)}"

    def __repr__(self) -> str:
        """Return a summary of five lines.

        If a quadratic model explains a part of the evaluations, a sixth line names the
        parameters that are the most important in this model.
        """
        config = self.settings["config"]
        x = str(self.x)
        if isinstance(self.x, (Tensor, np.ndarray)):
            # Print only the first and last numbers of a long vector.
            x = np.array2string(np.array(self.x.tolist()), precision=6, threshold=12)
        # The line "settings" names evolution paths, a model and noise only if the search had
        # them. Its model is the one that guided it; ``self.model`` is fitted afterwards.
        paths = ", evolution paths" if config.paths else ""
        model = ", a quadratic model" if self.settings["model"] else ""
        noise = ", a noisy objective: x is the averaged mean" if self.settings["noise"] else ""
        # Why the last one failed; the others may differ.
        why = f", the last by {self.failed[-1].message}" if self.failed else ""
        lines = [
            f"x: {x}",
            f"fun: {self.fun:.6g}",
            f"message: {self.message} ({self.reason!r})",
            f"evaluations: {self.evaluations:,} in {counted(self.generations, 'generation')}, "
            f"{counted(self.restarts, 'restart')}, {counted(self.failures, 'failure')}{why}",
            f"settings: {config.covariance} covariance{paths}{model}, "
            f"{self.settings['population_size']} candidates per generation{noise}",
        ]
        # R2 is NaN if the points are too few to tell what the model explains.
        if self.model is not None and not self.model.r2 <= 0:
            lines.append(f"importance: {self._list_most_important()}")
        return "\n".join(lines)

    def _list_most_important(self) -> str:
        """Return the names and shares of the most important parameters, separated by commas."""
        shares = self._ranked_importance()
        largest = [f"{name} {shares[name]:.0%}" for name in [*shares][:_MOST_IMPORTANT]]
        more = ", ..." if len(shares) > len(largest) else ""
        return f"{', '.join(largest)}{more}"

    def _ranked_importance(self) -> dict[str, float]:
        """Return the importance of parameters by name, the most important one first.

        Those whose importance is unknown are left out.
        """
        shares = self.importance
        if self._space is None:
            shares = {f"x[{index}]": float(share) for index, share in enumerate(shares)}
        known = [item for item in shares.items() if not math.isnan(item[1])]
        return dict(sorted(known, key=lambda item: -item[1]))


def best_search(ended: Sequence[Ended], maximize: bool) -> Ended | None:
    """Return the search with the best candidate, the first of equal ones, or None.

    The smallest violation is best. Next, a candidate that is strictly feasible is better than
    one that is only feasible within the tolerance. Last, fitness decides.
    """
    sign = 1.0 if maximize else -1.0

    def quality(search: Ended) -> tuple[float, bool, float]:
        """Return the three criteria in this order. A greater tuple is better."""
        optimizer = search.optimizer
        # An optimizer without constraints does not have this attribute.
        is_strictly_feasible = not getattr(optimizer, "within_tolerance", False)
        return -search.violation, is_strictly_feasible, sign * optimizer.best_fitness

    successes = [search for search in ended if search.has_success]
    return max(successes, key=quality, default=None)


def build_result(
    plan: Plan, session: Session, ended: Sequence[Ended], reason: Reason
) -> Result[Any]:
    """Return the result of a call of ``minimize``.

    Args:
        plan: The plan of the call.
        session: The resources and records that all its searches share.
        ended: The first search with a success, and all later ones. If there is none, the last
            search alone.
        reason: The reason to end the call.
    """
    evaluator = session.evaluator
    history = session.history
    search = best_search(ended, plan.maximize) or ended[0]
    optimizer = search.optimizer
    x = optimizer.best
    fun = optimizer.best_fitness
    evaluations = history.evaluations
    # On a GPU the last populations of a search may be evaluated in vain, but no single
    # candidates, of which the evaluator remembers the best.
    wastes_nothing = optimizer.device.type != "cuda" or evaluator.best is not None
    if ranks.count() == 1 and wastes_nothing:
        # The evaluator also counts the candidates of an interrupted generation.
        evaluations = max(evaluations, evaluator.evaluations)
    # Each rank remembers the best of its own share, but all have to return the same.
    best = ranks.broadcast(lambda: evaluator.best)
    if plan.constraints is None and best is not None:
        candidate, fitness = best
        if history.better(fitness, fun) == fitness:
            x = candidate
            fun = fitness
    if 0.0 < search.violation < math.inf:
        message = _INFEASIBLE.format(search.violation)
        warn(message)
    if history.has_seen_noise:
        # The best candidate may be the best by chance. The averaged mean is nearer to the
        # optimum.
        x = with_integers(optimizer.state, optimizer.state.averaged_mean)
        # In the last generations every candidate may have failed.
        means = filter(math.isfinite, reversed(history.columns["elite_mean"]))
        fun = next(means, math.nan)
        if isinstance(optimizer.best, np.ndarray):
            x = x.numpy()
    mean = optimizer.averaged_mean
    std = optimizer.std
    if plan.space is not None:
        x = plan.space.decode(x)
        mean = plan.space.decode(mean)
        std = plan.space.spread(std)
    num_successes = sum(search.has_success for search in ended)
    return Result(
        x=x,
        fun=fun,
        violation=search.violation,
        mean=mean,
        std=std,
        reason=reason,
        evaluations=evaluations,
        generations=history.generations,
        restarts=max(0, num_successes - 1),
        failures=evaluator.failures,
        failed=list(evaluator.failed),
        settings={
            "config": plan.config,
            "population_size": plan.population_size,
            "restarts": plan.most_restarts,
            "budget": plan.budget,
            "model": "quadratic" if plan.uses_model else None,
            "noise": history.has_seen_noise,
        },
        history=history.columns,
        _evaluations=_collect_evaluations(evaluator),
        _space=plan.space,
        _maximize=plan.maximize,
    )


def _collect_evaluations(evaluator: Evaluator) -> Evaluations | None:
    """Return all evaluations of a call, or None if the evaluator did not keep them."""
    if ranks.count() > 1 or not evaluator.remembered:
        return None
    candidates, fitness = zip(*evaluator.remembered, strict=True)
    return Evaluations(np.array(candidates, dtype=np.float64), np.array(fitness))
