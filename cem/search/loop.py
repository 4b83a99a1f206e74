"""The loop of ``minimize``: one search after another until there is a reason to end."""

import math
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cem.core.backend import mix_seed
from cem.core.bounds import ends_of
from cem.core.checks import as_real, check_real, warn
from cem.core.reasons import Reason
from cem.optimizer import CrossEntropyMethod
from cem.run import folder, ranks
from cem.run.evaluator import CHECK, Evaluator
from cem.run.stopping import StopRequest
from cem.search.assisted import begin_with_descent, first_problem
from cem.search.history import History
from cem.search.plan import Plan, Start
from cem.search.restarts import Agreement, Attempt, Ended
from cem.search.result import Result, best_search, build_result
from cem.search.single import Search, Session
from kernels.support.checks import check_integer

_STEEPER = 10.0  # the factor for the penalty of constraints after a search that diverged
_FAILED = (
    "every candidate of several generations failed, by an exception, NaN or the infinity on "
    "the bad side: the search begins again elsewhere while there is budget"
)
_IDLE = (
    "{0} workers evaluate populations of {1}: the others are idle, unless "
    "asynchronous=True or population_size={0}"
)
_IDLE_WITH_MODEL = (
    "{0} workers evaluate half of populations of {1} at a time, because a model chooses the "
    "candidates: the others are idle, unless model=None or population_size={2}"
)
_FINISHED = "the search in {} had ended: this is its result, without a new evaluation"


def run(plan: Plan) -> Result[Any]:
    """Run all searches of a call of ``minimize``, and return the result.

    The first search may be followed by restarts. All searches share two resources, which are
    closed at the end: an evaluator, which may own worker processes, and a stop request, which
    Ctrl-C or the time limit triggers.
    """
    options = plan.options
    with ExitStack() as stack:
        if options["distributed"]:
            stack.enter_context(ranks.joined())
        stop = stack.enter_context(StopRequest())
        # Ranks share populations. In an asynchronous search none of them waits for the others.
        for name in ("graph", "asynchronous"):
            if ranks.count() > 1 and options[name]:
                message = f"expected {name}=False of a search that ranks share, got True"
                raise ValueError(message)
        if options["time_limit_s"] is not None:
            seconds = check_real("time_limit_s", options["time_limit_s"], 0.0)
            stop.deadline = time.monotonic() + seconds
        # Without constraints, the detector of noise checks the objective. After a descent it is
        # called by one candidate, and needs no check.
        needs_check = plan.constraints is not None and not plan.descends
        evaluator = stack.enter_context(
            Evaluator(
                plan.objective,
                maximize=plan.maximize,
                vectorize=options["vectorize"],
                with_generation=options["with_generation"],
                workers=options["workers"],
                running=options["running"],
                budget=plan.budget,
                retries=check_integer("retries", options["retries"], 0),
                drain_s=check_real("drain_s", options["drain_s"], 0.0),
                timeout_s=options["timeout_s"],
                catch=options["catch"],
                stop=stop,
                checks_first=needs_check and plan.budget >= plan.population_size + CHECK,
                constraints=plan.constraints,
            )
        )
        _warn_of_idle_workers(plan, evaluator.workers)
        if options["checkpoint"] is not None:
            path = Path(options["checkpoint"])
            # The first rank locks the folder for all ranks.
            ranks.broadcast(lambda: stack.enter_context(folder.locked(path)))
            plan = _adapt_to_folder(plan, path)
        session = Session(evaluator, stop, History(plan.maximize))
        return _run_searches(plan, session)


def _warn_of_idle_workers(plan: Plan, workers: int) -> None:
    """Warn if there are more workers than candidates in a population, and they wait for it."""
    size = plan.population_size
    if workers > size and not plan.options["asynchronous"]:
        message = _IDLE_WITH_MODEL if plan.uses_model else _IDLE
        text = message.format(workers, size, 2 * workers)
        warn(text)


def _adapt_to_folder(plan: Plan, path: Path) -> Plan:
    """Return the plan with the seed, population and model of the search that a folder contains.

    A resumed search thus depends neither on the budget nor on the workers of this call. For a
    new folder, this function writes these values of the plan to it.
    """
    size = plan.population_size
    choices = {
        "population_size": size,
        "uses_model": plan.descends,
        "in_batches": plan.in_batches,
        "descent_budget": plan.descent_budget,
    }
    saved = ranks.broadcast(lambda: folder.load_first_arguments(path, plan.seed, choices))
    if plan.options["population_size"] is None:
        size = min(saved["population_size"], plan.budget)
    return replace(
        plan,
        seed=saved["seed"],
        population_size=size,
        descends=saved["uses_model"],
        in_batches=saved["in_batches"],
        descent_budget=saved["descent_budget"],
    )


def _run_searches(plan: Plan, session: Session) -> Result[Any]:
    """Run one search after another until there is a reason to end, and return the result.

    A search changes the plan of the next one if the objective is noisy, if the search diverged,
    or if every candidate failed. An attempt is the choice of population size and budget for
    one search. The restart policy chooses the attempt of each restart.
    """
    history = session.history
    agreement = Agreement(plan.agreeing)
    ended: list[Ended] = []  # the first search with a success, and all later ones
    # The first search after a descent may have other bounds handling: see
    # ``begin_with_descent``.
    config_of_restarts = plan.config
    plan = _begin(plan, session)
    reserved = CHECK if session.evaluator.checks_first else 0
    left = plan.budget - history.evaluations - reserved
    attempt = Attempt(plan.population_size, left)
    for index in count():
        best = best_search(ended, plan.maximize)
        best_fitness = None if best is None else best.optimizer.best_fitness
        start = _draw_start(plan, attempt, index)
        attempt = replace(attempt, budget=min(attempt.budget, left))
        last = Search(plan, attempt, index, start, session, best_fitness).run()
        is_spent = session.evaluator.is_spent
        reason = Reason.BUDGET if is_spent else last.reason
        left -= last.evaluations
        history.evaluations += last.evaluations
        history.generations += last.optimizer.generation
        if index == 0:
            # The first search has drawn the seed, or restored it from its checkpoint.
            seed = last.optimizer.seed
            plan = replace(
                plan,
                seed=seed,
                start=plan.start_of_restarts,
                path=(),
                config=config_of_restarts,
            )
        if reason is Reason.NOISE:
            left -= CHECK  # The detector of noise may have used them.
            if left >= plan.population_size:
                # Start again with a method for noisy objectives.
                plan = plan.adapted_to_noise(left)
                attempt = Attempt(plan.population_size, left)
                continue
            reason = Reason.BUDGET
        if reason is Reason.FAILED:
            warn(_FAILED)
        if best is not None or last.has_success:
            ended.append(last)
        plan = _adapt_plan(plan, last, start, is_without_success=best is None)
        if _is_last(plan, ended, last) or reason.ends_all or is_spent:
            break
        if agreement.holds_after(last, best_fitness, history.fitness_range):
            reason = Reason.RESTARTS_AGREE
            break
        if ended:
            assert plan.seed is not None
            attempt = plan.policy.next_attempt(ended, left, plan.seed)
        if left < attempt.population_size:
            # An earlier search has succeeded: the budget ends the call, not the last failure.
            if reason is Reason.FAILED and ended:
                reason = Reason.BUDGET
            break
    return _build_last_result(plan, session, ended, last, reason)


def _begin(plan: Plan, session: Session) -> Plan:
    """Run the descent before the searches, if there is one, and return the plan of the first.

    The history gets the number of its evaluations, and without constraints the best of them.
    """
    evaluator = session.evaluator
    history = session.history
    evaluator.best = _best_known(plan, evaluator)
    plan, history.evaluations = begin_with_descent(plan, evaluator, session.stop)
    if history.evaluations > 0 and plan.constraints is None and evaluator.best is not None:
        history.best = evaluator.best[1]
    return plan


def _best_known(plan: Plan, evaluator: Evaluator) -> tuple[Any, float] | None:
    """Return the fittest candidate of the option ``evaluated``, and its fitness, or None."""
    if plan.known is None or plan.constraints is not None:
        return None
    index = plan.known.best(plan.maximize)
    population = first_problem(plan, evaluator).as_population(plan.known.candidates)
    return population[index], float(plan.known.fitness[index])


def _build_last_result(
    plan: Plan, session: Session, ended: Sequence[Ended], last: Ended, reason: Reason
) -> Result[Any]:
    """Wait for candidates that are still running, and return the result of the call.

    Args:
        plan: The plan of the call.
        session: The resources and records of the call.
        ended: The first search with a success, and all later ones.
        last: The last search. It gives the result if no search had a success.
        reason: The reason to end the call.
    """
    session.evaluator.drain()
    if not ended and not reason.cuts_short:
        reason = Reason.FAILED
    checkpoint = plan.options["checkpoint"]
    has_searched = session.history.new_records > 0
    if checkpoint is not None and not has_searched and not reason.cuts_short:
        warn(_FINISHED.format(checkpoint))
    return build_result(plan, session, ended or [last], reason)


def _adapt_plan(plan: Plan, last: Ended, start: Start, is_without_success: bool) -> Plan:
    """Return the plan of the next search, adapted to the result of the last one.

    Args:
        plan: The plan of the last search.
        last: The last search.
        start: The start of the last search.
        is_without_success: Whether no earlier search had a success.
    """
    if last.reason is Reason.DIVERGED:
        plan = replace(plan, steepness=plan.steepness * _STEEPER)
    if is_without_success and not last.has_success:
        return replace(plan, misses=plan.misses + 1)
    if plan.misses > 0:
        # All restarts begin at the first start that led to a success.
        return replace(plan, start=start, misses=0)
    return plan


def _is_last(plan: Plan, ended: Sequence[Ended], last: Ended) -> bool:
    """Return whether the last search had a success and the plan allows no further restart.

    A search for a noisy objective is never restarted.
    """
    restarts = sum(search.has_success for search in ended) - 1
    return last.has_success and (plan.is_noisy or restarts == plan.most_restarts)


def _draw_start(plan: Plan, attempt: Attempt, index: int) -> Start:
    """Return the start of a search: the plan's start, or a random one.

    The start is random in two cases:

    * Every candidate of all earlier searches failed. The next search then starts elsewhere.
    * The search has a smaller standard deviation than the plan. Its mean is then drawn around
      the plan's mean, so that the first candidates of many such searches together have the
      plan's variance.

    Args:
        plan: The settings of the call; ``misses`` counts the searches without a success.
        attempt: The settings of the search; ``scale`` is its standard deviation relative to
            that of the plan.
        index: The index of the search in the call, from which its random seed is derived.
    """
    is_random = plan.misses > 0 or attempt.scale != 1.0
    if not is_random:
        return plan.start
    assert plan.seed is not None, "the first search has drawn it"
    seed = mix_seed(mix_seed(plan.seed, index), 0)
    std = as_real("std", plan.start.std).cpu()
    if plan.misses > 0:
        return _draw_distant_start(plan, std, attempt, seed)
    # The variances of the mean and of the candidates add up to the variance of the plan.
    std_of_mean = std * math.sqrt(1.0 - attempt.scale**2)
    mean = _draw_mean(plan, std_of_mean, attempt, seed)
    return Start(mean, std * attempt.scale)


def _draw_distant_start(plan: Plan, std: Tensor, attempt: Attempt, seed: int) -> Start:
    """Return a random start for the case that every candidate of all earlier searches failed.

    The mean of a parameter with two finite bounds is drawn uniformly between them. Any other
    mean is drawn from a normal distribution around the first mean. This distribution is wider
    the more searches have failed.

    Args:
        plan: The settings of the call. Its ``misses`` is the number of searches that failed.
        std: The standard deviation of its start.
        attempt: The settings of the next search.
        seed: The seed of the random start.
    """
    wider_std = std * (1 + plan.misses)
    center = as_real("mean", plan.start.mean).double().cpu()
    bounds = plan.options["bounds"]
    if bounds is None:
        return Start(_draw_mean(plan, wider_std, attempt, seed), wider_std)
    # A mean of float32 may be beyond a bound of float64, so this does not check it.
    ends = ends_of(bounds, len(center))
    low, high = (as_real("bounds", end).double().cpu().expand_as(center) for end in ends)
    has_two_bounds = (high - low).isfinite()
    start_std = torch.where(has_two_bounds, std, wider_std)
    # Draw all means from normal distributions, then replace some of them by uniform numbers. A
    # parameter whose standard deviation is 0 is constant, and keeps its first mean.
    mean = _draw_mean(plan, start_std, attempt, seed)
    is_uniform = has_two_bounds & (std > 0)
    # The text makes the uniform numbers independent of the normal ones with the same seed.
    generator = random.Random(f"start {seed}")
    for index in is_uniform.nonzero().flatten().tolist():
        mean[index] = generator.uniform(low[index].item(), high[index].item())
    return Start(mean, start_std)


def _draw_mean(plan: Plan, std: Tensor, attempt: Attempt, seed: int) -> Any:
    """Return a mean from a normal distribution around the plan's mean, within the bounds."""
    source = CrossEntropyMethod(
        plan.start.mean, std, attempt.population_size, **plan.settings, seed=seed
    )
    candidate = source.ask()[0]
    num_numbers = source.state.settings.normal  # The other columns are not part of a mean.
    return candidate[:num_numbers]
