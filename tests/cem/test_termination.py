import math
import warnings

import pytest
import torch
from searches import CLASSIC, sphere

from cem import CrossEntropyMethod, minimize
from cem.core.termination import STD, Termination


def reasons(values, *, dim=3, population_size=30, maximize=False, threshold=None, std_share=1.0, **options):
    """The reasons after each generation of the best values of a search."""
    termination = Termination(dim, population_size, maximize, **options)
    sign = -1.0 if maximize else 1.0
    best, found = math.inf, []
    for generation, value in enumerate(values, 1):
        best = min(best, sign * value)
        worst = value + sign if threshold is None else threshold
        found.append(termination.reasons(generation, sign * best, value, worst, std_share))
    return found


def first(found):
    """The first generation with a reason, and its reasons."""
    return next((generation, each) for generation, each in enumerate(found, 1) if each)


@pytest.mark.parametrize(("maximize", "reached"), [(False, [False, True, True]), (True, [True, True, True])])
def test_a_target_is_reached_when_the_best_is_as_good(maximize, reached):
    found = reasons([5.0, 3.0, 4.0], maximize=maximize, target=3.0)
    assert [("target" in each) for each in found] == reached


@pytest.mark.parametrize(("least", "goes_on_at", "ends_at"), [(0.0, 2 * STD, 0.5 * STD), (1e-6, 2e-6, 1e-6)])
def test_a_search_at_its_floor_or_of_no_width_ends(least, goes_on_at, ends_at):
    assert reasons([1.0], least_std=least, std_share=goes_on_at) == [()]
    assert reasons([1.0], least_std=least, std_share=ends_at) == [("std",)]


@pytest.mark.parametrize(
    ("maximize", "dim", "population_size", "window"),
    [(False, 3, 30, 13), (True, 30, 30, 40), (False, 1, 1000, 11)],
)
def test_a_fitness_that_spans_nothing_ends_the_search_after_a_window(maximize, dim, population_size, window):
    search = {"maximize": maximize, "dim": dim, "population_size": population_size}
    found = reasons([1.0] * (window + 1), threshold=1.0, **search)
    assert found == [()] * (window - 1) + [("fitness_range",)] * 2
    assert not any(reasons([1.0] * 50, threshold=1.0 + 1e-6, **search))
    assert not any(reasons([-math.inf] * 50, threshold=-math.inf))  # it spans no number


def test_a_best_fitness_that_does_not_improve_ends_the_search():
    # 100 + 50 * 3 / 30 generations without a better one.
    assert first(reasons([0.0] + [1.0 + t % 7 for t in range(200)])) == (1 + 105 + 1, ("stagnation",))
    assert not any(reasons([1.0 + t % 7 - t / 100 for t in range(300)]))
    # Late in a search patience grows: a fifth of all generations.
    late, _ = first(reasons([-float(t) for t in range(2000)] + [0.0 + t % 7 for t in range(600)]))
    assert late - 2000 == pytest.approx(2000 / 4, abs=2)


CLASSIC_TENTH = {**CLASSIC, "elite_fraction": 0.1}


def slope(x):
    return x.sum(dim=1)


def ended(seed, objective, generations=400, dim=10, **options):
    """The reasons of a search that is asked after every generation, and what it warned of."""
    search = CrossEntropyMethod([1.0] * dim, 1.0, 100, maximize=False, seed=seed, **options)
    found = ()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        while search.generation < generations and not found:
            search.tell(objective(search.ask()))
            found = search.stop()
    return found, [str(each.message) for each in warned]


def test_a_search_that_arrives_does_not_warn_of_a_collapse():
    for seed in range(5):
        found, warned = ended(seed, sphere)
        assert found
        assert not warned


def test_a_collapse_on_a_slope_is_warned_of_once():
    found, warned = ended(1, slope, dim=3, **CLASSIC_TENTH)
    assert found == ("std",)
    assert len(warned) == 1
    assert "the search has collapsed" in warned[0]
    assert ended(1, slope, generations=100, dim=3) == ((), [])


@pytest.mark.parametrize("record_every", [4, 30])
def test_a_collapse_is_warned_of_where_few_generations_are_looked_at(record_every):
    options = {"population_size": 100, "seed": 1, "record_every": record_every, **CLASSIC_TENTH}
    with pytest.warns(RuntimeWarning, match="the search has collapsed") as warned:
        minimize(slope, torch.ones(3), 1.0, **options)
    assert warned[0].filename == __file__


def test_stop_says_the_same_when_asked_again_and_knows_target_and_budget():
    search = CrossEntropyMethod([1.0], 1.0, 10, maximize=False, seed=1)
    assert search.stop() == ()
    search.tell(sphere(search.ask()))
    assert search.stop() == search.stop() == ()
    assert search.stop(budget=19) == ("budget",)
    assert search.stop(budget=20) == ()
    search.tell(sphere(search.ask()))
    assert search.stop(target=1e9) == ("target",)
    assert search.stop() == search.stop(target=-1.0) == ()
