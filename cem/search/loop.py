"""The loop of ``minimize``: search, and again, until there is a reason to end."""

import math
import random
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from cem.core.backend import mix_seed
from cem.core.bounds import check_bounds
from cem.core.checks import as_real, check_real, outside
from cem.core.reasons import Reason
from cem.optimizer import CrossEntropyMethod
from cem.run import ranks
from cem.run.evaluator import Evaluator
from cem.run.stopping import StopRequest
from cem.search.history import History
from cem.search.plan import LEAST_GENERATIONS, Plan
from cem.search.restarts import Agreement, Attempt, Ended
from cem.search.result import Result, best_search, build_result
from cem.search.single import Search, Session

_STEEPER = 10.0  # Constraints are so many times as steep after a search that has diverged.
_FAILED = (
    "every candidate of several generations failed, by an exception, NaN or the infinity on "
    "the bad side: the search begins again elsewhere while there is budget"
)
_FINISHED = "the search in {} had ended: this is its result, without a new evaluation"


def run(plan: Plan) -> Result[Any]:
    """Search until there is a reason to end, and return what was found."""
    options = plan.options
    with ExitStack() as stack:
        if options["distributed"]:
            stack.enter_context(ranks.joined())
        stop = stack.enter_context(StopRequest())
        if ranks.count() > 1 and options["graph"]:
            raise ValueError("expected graph=False of a search that ranks share, got True")
        if options["time_limit_s"] is not None:
            seconds = check_real("time_limit_s", options["time_limit_s"], 0.0)
            stop.deadline = time.monotonic() + seconds
        evaluator = stack.enter_context(
            Evaluator(
                plan.objective,
                maximize=plan.maximize,
                vectorize=options["vectorize"],
                with_generation=options["with_generation"],
                workers=options["workers"],
                timeout_s=options["timeout_s"],
                catch=options["catch"],
                stop=stop,
            )
        )
        if options["asynchronous"] and options["population_size"] is None:
            # With more candidates per generation fewer of them are of an earlier one when they
            # are evaluated.
            most = max(plan.population_size, plan.budget // LEAST_GENERATIONS)
            size = min(plan.population_size + evaluator.workers // 2, most)
            plan = replace(plan, population_size=size)
        session = Session(evaluator, stop, History(plan.maximize))
        return _run_searches(plan, session)


def _run_searches(plan: Plan, session: Session) -> Result[Any]:  # noqa: C901, PLR0912 - temporary
    """Search, and again, until there is a reason to end."""
    history = session.history
    agreement = Agreement(plan.agreeing)
    ended: list[Ended] = []  # The first search with a success, and those after it.
    left = plan.budget
    attempt = Attempt(plan.population_size, left)
    for number in count():
        best = best_search(ended, plan.maximize)
        best_fitness = None if best is None else best.optimizer.best_fitness
        start = _draw_start(plan, attempt, number, has_success=best is not None)
        attempt = replace(attempt, budget=min(attempt.budget, left))
        last = Search(plan, attempt, number, start, session, best_fitness).run()
        reason = last.reason
        left -= last.evaluations
        history.evaluations += last.evaluations
        history.generations += last.optimizer.generation
        if number == 0:
            # The seed of a search that was resumed, or the one that was drawn.
            plan = replace(plan, seed=last.optimizer.seed)
        if reason is Reason.NOISE:
            if left >= plan.population_size:
                plan = plan.adapted_to_noise(left)
                attempt = Attempt(plan.population_size, left)
                continue
            reason = Reason.BUDGET
        if reason is Reason.FAILED:
            warnings.warn(_FAILED, RuntimeWarning, stacklevel=outside())
        if best is not None or last.has_success:
            ended.append(last)
        plan = _adapt_plan(plan, last, start, is_without_success=best is None)
        if _is_last(plan, ended, last) or reason.ends_all:
            break
        if agreement.holds_after(last, best_fitness, history.fitness_range):
            reason = Reason.RESTARTS_AGREE
            break
        if ended:
            assert plan.seed is not None
            attempt = plan.policy.next_attempt(ended, left, plan.seed)
        if left < attempt.population_size:
            if reason is Reason.FAILED and ended:
                reason = Reason.BUDGET
            break
    if not ended and not reason.cuts_short:
        reason = Reason.FAILED
    checkpoint = plan.options["checkpoint"]
    if checkpoint is not None and history.new_records == 0 and not reason.cuts_short:
        warnings.warn(_FINISHED.format(checkpoint), RuntimeWarning, stacklevel=outside())
    return build_result(plan, session, ended or [last], reason)


def _adapt_plan(
    plan: Plan, last: Ended, start: tuple[Any, Any], is_without_success: bool
) -> Plan:
    """Return the plan of the next search, by what the last one has shown."""
    if last.reason is Reason.DIVERGED:
        plan = replace(plan, steepness=plan.steepness * _STEEPER)
    if is_without_success and last.has_success:
        # Restarts begin where a search has succeeded.
        return replace(plan, mean=start[0], std=start[1])
    if is_without_success:
        return replace(plan, misses=plan.misses + 1)
    return plan


def _is_last(plan: Plan, ended: Sequence[Ended], last: Ended) -> bool:
    """Return whether a search that succeeded was the last one of the plan."""
    restarts = sum(search.has_success for search in ended) - 1
    return last.has_success and (plan.is_noisy or restarts == plan.most_restarts)


def _draw_start(
    plan: Plan, attempt: Attempt, number: int, has_success: bool
) -> tuple[Any, Any]:
    """Return the first mean and standard deviation of a search.

    The mean of one with a smaller standard deviation is drawn so that the first candidates are
    in all as wide as those of the start. After starts without a success it is drawn uniformly
    between two bounds, and from an ever wider distribution where a parameter has fewer.
    """
    is_elsewhere = plan.misses > 0 and not has_success
    if attempt.scale == 1.0 and not is_elsewhere:
        return plan.mean, plan.std
    std = as_real("std", plan.std).cpu()
    std_of_mean = std * math.sqrt(1.0 - attempt.scale**2)
    first_std = std * attempt.scale
    is_boxed = torch.tensor(False)
    if is_elsewhere:
        mean = as_real("mean", plan.mean).double().cpu()
        limits = check_bounds(plan.options["bounds"], mean)
        if limits is not None:
            low, high = limits
            is_boxed = (high - low).isfinite()
        std_of_mean = first_std = torch.where(is_boxed, std, std * (1 + plan.misses))
    assert plan.seed is not None, "the first search has drawn it"
    seed = mix_seed(mix_seed(plan.seed, number), 0)
    source = CrossEntropyMethod(
        plan.mean, std_of_mean, attempt.population_size, **plan.settings, seed=seed
    )
    mean = source.ask()[0][: source.state.settings.normal]
    uniform = random.Random(f"start {seed}").uniform
    for index in (is_boxed & (std > 0)).nonzero().flatten().tolist():
        mean[index] = uniform(low[index].item(), high[index].item())
    return mean, first_std
