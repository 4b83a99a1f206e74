import math
import warnings

import pytest
import torch
from searches import CLASSIC

from cem import CrossEntropyMethod, minimize
from cem.termination import STD, Termination


def make(dim=3, population_size=30, maximize=False, **options):
    return Termination(dim, population_size, maximize, **options)


def feed(termination, values, *, threshold=None, std_share=1.0):
    """The reasons after each generation of the best values of a search."""
    sign = -1.0 if termination.maximize else 1.0
    best, found = math.inf, []
    for generation, value in enumerate(values, 1):
        best = min(best, sign * value)
        worst = value + sign if threshold is None else threshold
        found.append(termination.reasons(generation, sign * best, value, worst, std_share))
    return found


def test_there_is_no_reason_while_a_search_moves():
    assert not any(feed(make(), [100.0 - t for t in range(90)]))


@pytest.mark.parametrize(("maximize", "reached"), [(False, [False, True, True]), (True, [True, True, True])])
def test_a_target_is_reached_when_the_best_is_as_good(maximize, reached):
    values = [5.0, 3.0, 4.0]
    found = feed(make(maximize=maximize, target=3.0), values)
    assert [("target" in reasons) for reasons in found] == reached


@pytest.mark.parametrize(
    ("share", "least", "ends"),
    [
        (2 * STD, 0.0, False),
        (0.5 * STD, 0.0, True),
        (2e-6, 1e-6, False),
        (1e-6, 1e-6, True),
    ],
)
def test_a_search_at_its_floor_or_of_no_width_ends(share, least, ends):
    (reasons,) = feed(make(least_std=least), [1.0], std_share=share)
    assert reasons == (("std",) if ends else ())


@pytest.mark.parametrize(
    ("maximize", "dim", "population_size", "window"),
    [(False, 3, 30, 13), (True, 30, 30, 40), (False, 1, 1000, 11)],
)
def test_a_fitness_that_spans_nothing_ends_the_search_after_a_window(maximize, dim, population_size, window):
    found = feed(make(dim, population_size, maximize), [1.0] * (window + 1), threshold=1.0)
    assert found == [()] * (window - 1) + [("fitness_range",)] * 2
    assert not any(feed(make(dim, population_size, maximize), [1.0] * 50, threshold=1.0 + 1e-6))


def test_a_fitness_of_infinity_spans_no_number():
    found = feed(make(), [-math.inf] * 50, threshold=-math.inf)
    assert not any(found)


def test_a_best_fitness_that_does_not_improve_ends_the_search():
    # 100 + 50 * 3 / 30 generations without a better one.
    values = [0.0] + [1.0 + t % 7 for t in range(200)]
    found = feed(make(), values)
    first = next(t for t, reasons in enumerate(found, 1) if reasons)
    assert found[first - 1] == ("stagnation",)
    assert first == 1 + 105 + 1
    improving = [1.0 + t % 7 - t / 100 for t in range(300)]
    assert not any(feed(make(), improving))


def test_late_in_a_search_patience_grows():
    values = [-float(t) for t in range(2000)] + [0.0 + t % 7 for t in range(600)]
    found = feed(make(), values)
    first = next(t for t, reasons in enumerate(found, 1) if reasons)
    assert first - 2000 == pytest.approx(2000 / 4, abs=2)  # a fifth of all generations


CLASSIC_TENTH = {**CLASSIC, "elite_fraction": 0.1}


def ended(seed, objective, generations=400, dim=10, **options):
    """The reasons of a search that is asked after every generation, and what it warned of."""
    search = CrossEntropyMethod([1.0] * dim, 1.0, 100, maximize=False, seed=seed, **options)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(generations):
            search.tell(objective(search.ask()))
            if reasons := search.stop():
                return reasons, [str(each.message) for each in told]
    return (), [str(each.message) for each in told]


def sphere(x):
    return x.square().sum(dim=1)


def test_a_search_that_arrives_does_not_warn_of_a_collapse():
    for seed in range(5):
        reasons, told = ended(seed, sphere)
        assert reasons
        assert not told


def test_a_collapse_on_a_slope_is_told_once():
    reasons, told = ended(1, lambda x: x.sum(dim=1), dim=3, **CLASSIC_TENTH)
    assert reasons == ("std",)
    assert len(told) == 1
    assert "the search has collapsed" in told[0]
    assert ended(1, lambda x: x.sum(dim=1), generations=100, dim=3) == ((), [])


@pytest.mark.parametrize("record_every", [4, 30])
def test_a_collapse_is_told_where_few_generations_are_looked_at(record_every):
    with pytest.warns(RuntimeWarning, match="the search has collapsed") as told:
        minimize(
            *(lambda x: x.sum(dim=1), torch.ones(3), 1.0),
            **{"population_size": 100, "seed": 1, "record_every": record_every, **CLASSIC_TENTH},
        )
    assert told[0].filename == __file__


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
    with pytest.raises(TypeError, match="expected a number for target, got 'good'"):
        search.stop(target="good")
    with pytest.raises(TypeError, match="budget"):
        search.stop(budget=1.5)
