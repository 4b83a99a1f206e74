import math
import warnings

import pytest
import torch
from searches import sphere, step

from cem import CEMConfig, CrossEntropyMethod, GenerationRecord, minimize
from cem.core.termination import STD, Termination


def reasons(
    values,
    *,
    dim=3,
    population_size=30,
    maximize=False,
    threshold=None,
    std=1.0,
    target=None,
    every=1,
    earlier=None,
    constrained=False,
    xtol=0.0,
    **changes,
):
    """The reasons after each generation of the best values of a search, or after every few."""
    config = CEMConfig.cma("diagonal", **changes)
    search = CrossEntropyMethod(
        [0.0] * dim, 1.0, population_size, maximize=maximize, config=config
    )
    termination = Termination(
        search.state.settings,
        search.state.std,
        target,
        earlier=earlier,
        xtol=xtol,
        constrained=constrained,
    )
    sign = -1.0 if maximize else 1.0
    best, found = math.inf, []
    for generation, value in enumerate(values, 1):
        best = min(best, sign * value)
        worst = value + sign if threshold is None else threshold
        if generation % every == 0:
            width = torch.tensor(std).expand(dim)
            numbers = (
                generation,
                sign * best,
                value,
                value,
                worst,
                width.mean().item(),
                0.0,
                0.0,
            )
            found.append(termination.reasons(GenerationRecord(*numbers, width, width)))
    return found


def first(found):
    """The first generation with a reason, and its reasons."""
    return next((generation, each) for generation, each in enumerate(found, 1) if each)


@pytest.mark.parametrize(
    ("maximize", "reached"), [(False, [False, True, True]), (True, [True, True, True])]
)
def test_a_target_is_reached_when_the_best_is_as_good(maximize, reached):
    found = reasons([5.0, 3.0, 4.0], maximize=maximize, target=3.0)
    assert [("target" in each) for each in found] == reached


def test_a_search_of_no_width_ends():
    assert reasons([1.0], std=2 * STD) == [()]
    assert reasons([1.0], std=0.5 * STD) == [("std",)]
    assert reasons([1.0], std=0.51, relative_std_floor=0.5) == [()]
    assert reasons([1.0], std=0.5, relative_std_floor=0.5) == [("std",)]


def test_a_precision_is_asked_of_every_parameter():
    assert reasons([1.0], std=[0.1, 0.1, 0.3], xtol=0.2) == [()]
    assert reasons([1.0], std=[0.1, 0.1, 0.1], xtol=0.2) == [("xtol",)]


@pytest.mark.parametrize(
    ("maximize", "dim", "population_size", "window"),
    [(False, 3, 30, 13), (True, 30, 30, 40), (False, 1, 1000, 11)],
)
def test_a_fitness_that_spans_nothing_ends_the_search_after_a_window(
    maximize, dim, population_size, window
):
    search = {"maximize": maximize, "dim": dim, "population_size": population_size}
    found = reasons([1.0] * (window + 1), threshold=1.0, **search)
    assert found == [()] * (window - 1) + [("fitness_range",)] * 2
    assert not any(reasons([1.0] * 50, threshold=1.0 + 1e-6, **search))
    assert not any(reasons([-math.inf] * 50, threshold=-math.inf))  # it spans no number


@pytest.mark.parametrize(("sign", "maximize"), [(1.0, False), (-1.0, True)])
def test_a_search_ends_where_it_no_longer_comes_near_an_earlier_one(sign, maximize):
    flat = [
        sign * (5.0 - 0.001 * t) for t in range(20)
    ]  # 0.012 within a window of 13 generations
    options = {"maximize": maximize, "threshold": flat[-1]}
    assert first(reasons(flat, earlier=sign * 3.0, **options)) == (13, ("fitness_range",))
    assert not any(reasons(flat, earlier=sign * 4.5, **options))
    assert not any(reasons(flat, earlier=sign * 6.0, **options))


def test_a_best_fitness_that_does_not_improve_ends_the_search():
    # 100 + 50 * 3 / 30 generations without a better one.
    assert first(reasons([0.0] + [1.0 + t % 7 for t in range(200)])) == (
        1 + 105 + 1,
        ("stagnation",),
    )
    assert not any(reasons([1.0 + t % 7 - t / 100 for t in range(300)]))
    # Late in a search patience grows: a fifth of all generations.
    late, _ = first(
        reasons([-float(t) for t in range(2000)] + [0.0 + t % 7 for t in range(600)])
    )
    assert late - 2000 == pytest.approx(2000 / 4, abs=2)


def test_a_search_with_constraints_has_more_patience_and_can_diverge():
    values = [0.0] + [1.0 + t % 7 for t in range(400)]
    assert first(reasons(values, constrained=True)) == (1 + 3 * 105 + 1, ("stagnation",))
    assert reasons([1.0], std=1.1e4, constrained=True) == [("diverged",)]
    assert reasons([1.0], std=1.1e4) == [()]


def test_windows_count_generations_however_many_are_looked_at():
    each, some = (first(reasons([1.0] * 200, threshold=1.0, every=every)) for every in (1, 5))
    assert (each, some) == (
        (13, ("fitness_range",)),
        (4, ("fitness_range",)),
    )  # after 13 and 20
    late = first(reasons([0.0] + [1.0 + t % 7 for t in range(200)], every=10))
    assert late == (12, ("stagnation",))


CLASSIC_TENTH = CEMConfig.classic(elite_fraction=0.1)


def slope(x):
    return x.sum(dim=1)


TEXTBOOK = CEMConfig()


def ended(seed, objective, generations=400, dim=10, config=TEXTBOOK):
    """The reasons of a search that is asked after every generation, and what it warned of."""
    search = CrossEntropyMethod([1.0] * dim, 1.0, 100, maximize=False, seed=seed, config=config)
    found = ()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        while search.generation < generations and not found:
            step(search, objective)
            found = search.stop()
    return found, [str(each.message) for each in warned]


def test_a_search_that_arrives_does_not_warn_of_a_collapse():
    for seed in range(5):
        found, warned = ended(seed, sphere)
        assert found
        assert not warned


def test_a_collapse_on_a_slope_is_warned_of_once():
    found, warned = ended(1, slope, dim=3, config=CLASSIC_TENTH)
    assert found == ("std",)
    assert len(warned) == 1
    assert "the search has collapsed" in warned[0]
    assert ended(1, slope, generations=100, dim=3) == ((), [])


def test_a_collapse_next_to_a_bound_is_warned_of():
    config = CEMConfig.classic(elite_fraction=0.1, bound_handling="transform")
    options = {"bounds": (0, 1), "config": config, "population_size": 100, "budget": 6000}
    with pytest.warns(RuntimeWarning, match="the search has collapsed"):
        minimize(slope, torch.full((3,), 0.02), 0.0004, **options, seed=1, restarts=0)


def test_the_move_of_a_collapse_is_that_of_one_generation_however_few_are_looked_at():
    search = CrossEntropyMethod([0.0], 1.0, 100, maximize=False, config=CLASSIC_TENTH)
    termination = Termination(search.state.settings, search.state.std)
    records = []
    for generation in range(8, 120, 8):  # 0.9 times as wide as the last, and a move of 1.5
        width = torch.tensor([0.9**generation])
        figures = (*[0.0] * 4, width.item(), 0.0, 0.0)
        records.append(GenerationRecord(generation, *figures, 15 * (1 - width), width))
    with pytest.warns(RuntimeWarning, match="still moves by 1.5 of it") as warned:
        list(map(termination.reasons, records))
    assert warned[0].filename == __file__


def test_stop_says_the_same_when_asked_again_and_knows_target_and_budget():
    search = CrossEntropyMethod([1.0], 1.0, 10, maximize=False, seed=1)
    assert search.stop() == ()
    step(search, sphere)
    assert search.stop() == search.stop() == ()
    assert search.stop(budget=19) == ("budget",)
    assert search.stop(budget=20) == ()
    step(search, sphere)
    assert search.stop(target=1e9) == ("target",)
    assert search.stop() == search.stop(target=-1.0) == ()
