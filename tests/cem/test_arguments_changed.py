"""A function that changes its argument in place: the search goes on as with one that does
not."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cem import (
    CEMConfig,
    CrossEntropyMethod,
    Float,
    Permutation,
    Planner,
    minimize,
    rare_event_probability,
)
from cem.families import Categorical
from cem.rare import Exponential

OPTIONS = {"budget": 200, "seed": 1}


def pure(x):
    return ((2 * x - 1) ** 2).sum(-1)


def changing(x):
    x *= 2
    return ((x - 1) ** 2).sum(-1)


def through_numpy(x):
    """Change a tensor by an array of the same memory, which its version does not show."""
    array = x.numpy()
    array *= 2
    return ((x - 1) ** 2).sum(-1)


@pytest.mark.parametrize(
    ("function", "options", "mean"),
    [
        (changing, {}, torch.zeros(3)),
        (through_numpy, {}, torch.zeros(3)),
        (changing, {"bounds": [(-1, 4)] * 3}, np.ones(3)),
        (changing, {"integers": [0, 2]}, torch.zeros(3)),
        (changing, {"vectorize": True}, torch.zeros(3)),
        (changing, {"workers": map, "constraints": lambda x: 1 - x.sum(-1)}, np.zeros(3)),
    ],
)
def test_a_search_does_not_depend_on_what_its_objective_does_with_its_argument(
    function, options, mean
):
    expected, found = (minimize(f, mean, 2.0, **options, **OPTIONS) for f in (pure, function))
    np.testing.assert_array_equal(found.x, expected.x)
    assert found.fun == expected.fun == float(pure(found.x))


@pytest.mark.parametrize("vectorize", [False, True, "loop"])
def test_constraints_may_change_their_argument(vectorize):
    def constraint(x):
        x += 1
        return 2 - x.sum(-1)  # of three parameters 1 more each

    options = {"vectorize": vectorize, **OPTIONS}
    expected, found = (
        minimize(pure, torch.ones(3), 1.0, constraints=g, **options)
        for g in (lambda x: -1 - x.sum(-1), constraint)
    )
    assert found.x.equal(expected.x)


def test_columns_of_named_parameters_are_copies():
    def cost(p, change):
        order, x = p["order"], p["x"]
        total = (order[:, 0] - 2) ** 2 + x**2
        if change:
            order += 1
            x += 1
        return total

    space = {"x": Float(-1, 2), "order": Permutation(4)}
    expected, found = (
        minimize(lambda p, c=change: cost(p, c), space, vectorize=False, **OPTIONS).x
        for change in (False, True)
    )
    assert found == expected


def test_a_journal_has_the_candidates_as_they_were_asked(tmp_path):
    calls = []

    def counted(x):
        calls.append(1)
        return float(changing(x))

    with ThreadPoolExecutor(2) as pool:
        options = {"workers": pool, "checkpoint": tmp_path, "seed": 1}
        minimize(counted, np.zeros(3), 2.0, budget=140, **options)
        minimize(counted, np.zeros(3), 2.0, budget=280, **options)
    assert len(calls) == 280


def test_a_rare_event_has_the_same_estimate():
    def score(x):
        x += 1
        return x.sum(-1) - 5

    options = {"final_samples": 1000, "population_size": 200, "seed": 1}
    expected, found = (
        rare_event_probability(Exponential([1.0] * 5), f, 15.0, **options).estimate
        for f in (lambda x: x.sum(-1), score)
    )
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_planner_copies_plans_and_state():
    def cost(state, plans):
        state += plans.mul_(2).sum(-2).mean(0)
        return plans.sub_(state).square().sum((-2, -1))

    def pure_cost(state, plans):
        return cost(state.clone(), plans.clone())

    state = torch.zeros(2)
    planners = [
        Planner(f, 3, 2, (-1.0, 1.0), num_samples=20, seed=1) for f in (pure_cost, cost)
    ]
    actions = [planner.plan(state) for planner in planners]
    assert actions[0].equal(actions[1])
    assert state.equal(torch.zeros(2))


@pytest.mark.parametrize(
    "config", [CEMConfig(), CEMConfig.cma(), CEMConfig.cma(families=[Categorical((3, 4))])]
)
@pytest.mark.parametrize("parts", [1, 4])
def test_a_search_shares_no_memory_with_what_it_gave_and_got(config, parts):
    def run(change):
        search = CrossEntropyMethod(
            torch.zeros(3), 1.0, 20, maximize=False, config=config, seed=1
        )
        for _ in range(3):
            x = search.ask()
            fitness = pure(x)
            for some, values in zip(x.chunk(parts), fitness.chunk(parts), strict=True):
                search.tell(some, values)
                if change:
                    some += 1
                    values += 5
            if change:
                search.snapshot().record().mean.add_(1)
                search.best.add_(1)
        return search

    expected, found = run(False).state_dict(), run(True).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in ("distribution", "record"))
