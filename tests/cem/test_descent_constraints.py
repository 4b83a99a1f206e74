"""The descent with constraints: its quadratic programs, textbook problems, searches."""

import math
import signal
from typing import Any, NamedTuple

import numpy as np
import pytest

from cem import minimize
from cem.search.descent import Descent
from cem.search.quadratic_program import solve_program


class TestProgram:
    def test_example_16_4_of_nocedal_and_wright(self):
        gradient = [-2.0, -5.0]
        rows = [[-1.0, 2.0], [1.0, 2.0], [1.0, -2.0], [-1.0, 0.0], [0.0, -1.0]]
        step, multipliers = solve_program(
            2 * np.eye(2),
            np.array([gradient, *rows]),
            np.array([-2.0, -6.0, -2.0, 0.0, 0.0]),
            np.zeros(5, dtype=bool),
        )
        np.testing.assert_allclose(step, [1.4, 1.7], rtol=1e-10)
        np.testing.assert_allclose(multipliers, [0.8, 0.0, 0.0, 0.0, 0.0], atol=1e-10)

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_an_equality_has_a_multiplier_of_either_sign(self, sign):
        # The point of x + y = 1 that is closest to the origin.
        derivatives = np.array([[0.0, 0.0], [sign, sign]])
        step, multipliers = solve_program(
            2 * np.eye(2), derivatives, np.array([-sign]), np.array([True])
        )
        np.testing.assert_allclose(step, [0.5, 0.5], rtol=1e-10)
        np.testing.assert_allclose(multipliers, [-sign], rtol=1e-10)

    def test_contradictory_constraints_are_violated_equally(self):
        # p <= -1 and p >= 1, and no gradient.
        derivatives = np.array([[0.0], [1.0], [-1.0]])
        step, _ = solve_program(np.eye(1), derivatives, np.ones(2), np.zeros(2, dtype=bool))
        np.testing.assert_allclose(step, [0.0], atol=1e-6)


class Problem(NamedTuple):
    """A problem of a textbook: constraints are at most 0, or 0 if ``is_equality``."""

    objective: Any
    constraints: Any
    start: Any
    width: Any
    best: float
    is_equality: bool = False

    def outcomes(self, points):
        return [[self.objective(x), *self.constraints(x)] for x in points]


def vessel(x):
    shell, head, radius, length = x
    return (
        0.6224 * shell * radius * length
        + 1.7781 * head * radius**2
        + shell**2 * (3.1661 * length + 19.84 * radius)
    )


def vessel_constraints(x):
    shell, head, radius, length = x
    volume = math.pi * radius**2 * (length + 4 / 3 * radius)
    limits = [length - 200, 10 - radius]
    return [0.0193 * radius - shell, 0.00954 * radius - head, 1_296_000 - volume, *limits]


# The numbers of W. Hock and K. Schittkowski, Test Examples for Nonlinear Programming Codes.
PROBLEMS = {
    "7": Problem(
        lambda x: math.log(1 + x[0] ** 2) - x[1],
        lambda x: [(1 + x[0] ** 2) ** 2 + x[1] ** 2 - 4],
        [2.0, 2.0],
        1.0,
        -math.sqrt(3),
        is_equality=True,
    ),
    "35": Problem(
        lambda x: 9 + x @ [-8, -6, -4] + x**2 @ [2, 2, 1] + 2 * x[0] * (x[1] + x[2]),
        lambda x: [x[0] + x[1] + 2 * x[2] - 3, *-x],
        [0.5, 0.5, 0.5],
        0.3,
        1 / 9,
    ),
    "43": Problem(
        lambda x: x**2 @ [1, 1, 2, 1] + x @ [-5, -5, -21, 7],
        lambda x: [
            x @ x + x @ [1, -1, 1, -1] - 8,
            x**2 @ [1, 2, 1, 2] - x[0] - x[3] - 10,
            x**2 @ [2, 1, 1, 0] + x @ [2, -1, 0, -1] - 5,
        ],
        [0.0, 0.0, 0.0, 0.0],
        1.0,
        -44.0,
    ),
    # A vessel under pressure of Sandgren (1990). This start is not feasible.
    "vessel": Problem(
        vessel, vessel_constraints, [1.0, 1.0, 30.0, 100.0], [1.5, 1.5, 47.0, 47.0], 5885.332774
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_descent_solves_textbook_problems(name):
    problem = PROBLEMS[name]
    start = np.array(problem.start)
    [outcome] = problem.outcomes([start])
    descent = Descent(
        problem.outcomes,
        start,
        outcome,
        np.broadcast_to(problem.width, start.shape),
        is_equality=[problem.is_equality] * (len(outcome) - 1),
    )
    descent.run(150)
    outcomes = np.array([outcome for _, outcome in descent.path])
    g = outcomes[:, 1:]
    violations = (abs(g) if problem.is_equality else g).max(axis=1)
    is_feasible = violations <= (1e-8 if problem.is_equality else 0.0)
    assert outcomes[is_feasible, 0].min() == pytest.approx(problem.best, rel=1e-6)
    assert not descent.is_unfinished


def sine(x):
    """Problem 5 of Hock and Schittkowski."""
    return math.sin(x[0] + x[1]) + (x[0] - x[1]) ** 2 - 1.5 * x[0] + 2.5 * x[1] + 1


@pytest.mark.parametrize(
    ("function", "low", "high", "start", "best"),
    [
        (sine, [-1.5, -3.0], [4.0, 3.0], [0.0, 0.0], -math.sqrt(3) / 2 - math.pi / 3),
        # Problem 45: the minimum is a corner.
        (lambda x: 2 - np.prod(x) / 120, [0.0] * 5, [1.0, 2, 3, 4, 5], [0.5] * 5, 1.0),
        # Problem 4: a single bound of each parameter.
        (lambda x: (x[0] + 1) ** 3 / 3 + x[1], [1.0, 0.0], [math.inf] * 2, [1.125] * 2, 8 / 3),
    ],
)
def test_a_descent_stays_within_bounds_and_solves_textbook_problems(
    function, low, high, start, best
):
    points = []

    def evaluate(candidates):
        points.extend(candidates)
        return [[function(x)] for x in candidates]

    start = np.array(start)
    bounds = np.array(low), np.array(high)
    descent = Descent(evaluate, start, [function(start)], np.ones(len(start)), bounds=bounds)
    descent.run(150)
    assert min(outcome[0] for _, outcome in descent.path) == pytest.approx(best, rel=1e-7)
    assert not descent.is_unfinished
    assert (np.array(points) >= low).all()
    assert (np.array(points) <= high).all()


class Sphere:
    """The squared distance from the origin; a call of the number ``last`` stops the search."""

    def __init__(self, last=None):
        self.points = []
        self.last = last

    def __call__(self, x):
        self.points.append(np.array(x))
        if len(self.points) == self.last:
            signal.raise_signal(signal.SIGINT)
        return float((x**2).sum())


def outside(x):
    return 1 - x[:2]


OPTIONS: dict[str, Any] = {"constraints": outside, "vectorize": "loop", "seed": 1}


class TestMinimize:
    def test_a_corner_takes_a_tenth_of_the_evaluations(self):
        start = np.full(3, 3.0)
        options = {**OPTIONS, "target": 2 + 1e-6}
        results = [minimize(Sphere(), start, 1.0, **options, model=m) for m in ("auto", None)]
        assert all(result.reason == "target" for result in results)
        assert all((result.x[:2] >= 1).all() for result in results)
        assert 10 * results[0].evaluations < results[1].evaluations

    @pytest.mark.parametrize("constraints", [None, lambda x: x[0] - 5.0])
    def test_a_minimum_at_a_bound_is_found_exactly(self, constraints):
        options = {**OPTIONS, "constraints": constraints, "budget": 60}
        result = minimize(Sphere(), np.full(3, 3.0), 1.0, **options, bounds=[(1, 4)] * 3)
        assert (result.x == 1.0).all()
        assert result.fun == 3.0

    def test_a_search_goes_on_from_a_bound(self):
        # The descent ends at x = 0, a local minimum. The other one is lower.
        def function(x):
            return float(np.square(x[1:]).sum() - abs(x[0] - 0.3) - 0.5 * x[0])

        result = minimize(
            function,
            np.array([0.2, 0.5, 0.5]),
            0.2,
            bounds=[(0, 1)] * 3,
            vectorize="loop",
            budget=300,
            seed=1,
        )
        assert result.x[0] > 0.999

    def test_a_descent_that_creeps_to_a_vertex_ends_at_a_feasible_point(self):
        # Problem G06 of Michalewicz and Schoenauer (1996): a crescent, 0.02 wide at its tip.
        radii = lambda x: [(x[0] - a) ** 2 + (x[1] - 5) ** 2 for a in (5, 6)]  # noqa: E731
        result = minimize(
            lambda x: float((x[0] - 10) ** 3 + (x[1] - 20) ** 3),
            bounds=[(13, 100), (0, 100)],
            constraints=lambda x: np.array([100 - radii(x)[0], radii(x)[1] - 82.81]),
            vectorize="loop",
            budget=400,
            seed=1,
        )
        assert result.violation == 0
        assert result.fun == pytest.approx(-6961.8, abs=0.5)

    def test_two_inequalities_may_be_an_equality(self):
        circle = lambda x: np.array([x @ x - 1, 1 - x @ x])  # noqa: E731
        options = {"vectorize": "loop", "budget": 200, "seed": 1, "constraints": circle}
        result = minimize(lambda x: float(x.sum()), np.array([0.5, 0.6]), 0.5, **options)
        assert result.fun == pytest.approx(-math.sqrt(2), abs=1e-5)

    def test_a_search_that_is_interrupted_in_the_descent_returns_its_best_point(self):
        objective = Sphere(last=12)
        result = minimize(objective, np.full(3, 3.0), 1.0, **OPTIONS)
        assert result.reason == "signal"
        assert len(objective.points) < 20
        feasible = [x for x in objective.points if (outside(x) <= 0).all()]
        assert result.violation == 0
        assert result.fun <= min(objective(x) for x in feasible) * 1.001

    def test_a_search_that_is_resumed_in_the_descent_ends_like_another(self, tmp_path):
        options = {**OPTIONS, "budget": 120}
        start = np.full(3, 3.0)
        whole = minimize(Sphere(), start, 1.0, **options, checkpoint=tmp_path / "whole")
        options["checkpoint"] = tmp_path / "parts"
        first = Sphere(last=12)
        minimize(first, start, 1.0, **options)
        second = Sphere()
        result = minimize(second, start, 1.0, **options)
        assert (result.x == whole.x).all()
        assert len(first.points) + len(second.points) <= whole.evaluations + 1

    def test_a_start_without_a_value_has_no_descent(self):
        inside = lambda x: float((x**2).sum()) if (outside(x) <= 0).all() else math.nan  # noqa: E731
        result = minimize(inside, np.full(3, -3.0), 1.0, **OPTIONS, budget=3000)
        assert result.fun == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("has_constraint", [False, True])
@pytest.mark.parametrize(("dim", "budget"), [(2, 12), (4, 30), (11, 20)])
def test_a_small_budget_is_not_exceeded(dim: int, budget: int, has_constraint: bool) -> None:
    calls = []

    def function(x: Any) -> float:
        calls.append(x)
        return float(np.square(x - 1.0) @ np.arange(1.0, dim + 1.0))

    def constraint(x: Any) -> float:
        return float(x[0] + x[1] - 1.0)

    options: dict[str, Any] = {"constraints": constraint} if has_constraint else {}
    result = minimize(
        function, np.zeros(dim), 1.0, budget=budget, vectorize="loop", seed=1, **options
    )
    assert len(calls) == result.evaluations <= budget
