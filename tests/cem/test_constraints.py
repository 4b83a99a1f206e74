"""Constraints of minimize: what is found, in every form they are given, and what a resumed
search repeats."""

import math
import multiprocessing
import signal
from functools import lru_cache
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from cem import Bool, CEMConfig, Int, maximize, minimize
from cem.run.constraints import Constrained, Constraints, _widths

START = np.full(3, 3.0)


def sphere(x):
    return (x * x).sum(-1)


def outside(x):
    """The first two parameters of a population are at least 1."""
    return 1 - x[:, :2]


@lru_cache(1)
def simulate(*x):
    return math.dist(x, START), 1 - x[0]


def distance(x):
    return simulate(*x.tolist())[0]


def limit(x, *failing):
    """A constraint whose simulation the objective has just run, in the same process."""
    hits = simulate.cache_info().hits
    value = float(simulate(*x.tolist())[1])
    assert simulate.cache_info().hits == hits + 1
    assert multiprocessing.parent_process() or not failing
    return value / float(x[0] not in failing)


def rosenbrock(x):
    return (1 - x[:, 0]) ** 2 + 100 * (x[:, 1] - x[:, 0] ** 2) ** 2


class TestOptimum:
    @pytest.mark.parametrize("config", [None, CEMConfig.cma("diagonal"), CEMConfig()])
    def test_of_a_sphere_in_a_corner(self, config):
        start = torch.full((5,), 3.0, dtype=torch.float64)
        result = minimize(
            sphere, start, 1.0, constraints=outside, budget=4000, config=config, seed=1
        )
        assert (result.success, result.violation) == (True, 0.0)
        assert bool((result.x[:2] >= 1).all())
        assert result.fun == float(sphere(result.x)) == pytest.approx(2, abs=1e-5)

    @pytest.mark.parametrize("bounds", [None, (-2, 2)])
    def test_of_rosenbrock_in_a_disk(self, bounds):
        disk = SimpleNamespace(fun=lambda x: x @ x, lb=-np.inf, ub=1.0)
        result = minimize(
            rosenbrock, np.zeros(2), 0.5, bounds=bounds, constraints=disk, budget=3000, seed=1
        )
        assert result.x @ result.x <= 1.0
        assert result.fun == pytest.approx(
            0.045674808, abs=1e-6
        )  # that of SciPy's trust-constr

    @pytest.mark.parametrize("sign", [1, -1])
    def test_of_a_bowl_on_a_plane(self, sign):
        plane = SimpleNamespace(A=np.ones((1, 3)), lb=1.0, ub=1.0)
        scales = np.array([1.0, 2.0, 3.0])
        search = minimize if sign > 0 else maximize
        f = lambda x: sign * (x * x * scales).sum(-1)  # noqa: E731
        result = search(f, np.zeros(3), 1.0, constraints=plane, budget=6000, seed=1)
        assert result.violation == 0.0
        assert result.x.sum() == pytest.approx(1.0, abs=1.001e-6)
        assert result.x == pytest.approx(1 / scales / (1 / scales).sum(), abs=1e-3)

    @pytest.mark.parametrize("kind", [Bool(), Int(0, 1)])
    def test_of_choices_or_integers_alone(self, kind):
        result = maximize(
            lambda p: sum(int(number) for number in p if p[number]),
            {str(number): kind for number in range(1, 21)},
            constraints=lambda p: sum(p.values()) - 5,
            budget=1000,
            seed=1,
        )
        assert result.fun == 16 + 17 + 18 + 19 + 20

    def test_of_a_constant_is_any_feasible_candidate(self):
        result = minimize(
            lambda x: np.zeros(len(x)),
            np.zeros(3),
            1.0,
            constraints=lambda x: 30 - x.sum(1),
            budget=1000,
            seed=1,
        )
        assert result.violation == 0

    def test_where_the_objective_has_a_value_inside_alone(self):
        f = lambda x: np.where((x[:, :2] > 0).all(-1), sphere(x), np.nan)  # noqa: E731
        result = minimize(f, -START, 1.0, constraints=outside, budget=3000, seed=1)
        assert result.fun == pytest.approx(2, abs=1e-3)

    def test_of_no_feasible_candidate_is_that_of_the_least_violation(self):
        contradictory = [lambda x: 1 - x[:, 0], lambda x: x[:, 0] + 1]
        with pytest.warns(RuntimeWarning, match="no candidate is feasible.* by 1$"):
            result = minimize(
                sphere, START, 1.0, constraints=contradictory, budget=1000, seed=1
            )
        assert not result.success
        assert result.message.endswith("by 1")
        assert result.violation == pytest.approx(1)
        assert result.fun == sphere(result.x)
        assert set(result.history["best_fitness"]) == {math.inf}

    def test_is_not_where_a_constraint_is_undefined(self):
        undefined = lambda x: np.where(x[:, 0] < 0, np.nan, x[:, 0] - 9)  # noqa: E731
        options = {"constraints": undefined, "budget": 200, "seed": 1}
        result = minimize(lambda x: x.sum(1), np.ones(2), 1.0, **options)
        assert result.success
        assert result.x[0] >= 0

    @pytest.mark.filterwarnings("ignore:(all|every) .*:RuntimeWarning")
    def test_is_unknown_if_a_constraint_is_undefined_everywhere(self):
        undefined = lambda x: x[:, 0] * math.nan  # noqa: E731
        result = minimize(sphere, START, 1.0, constraints=undefined, budget=40, seed=1)
        assert np.isnan(result.x).all()
        assert (result.fun, result.violation, result.reason) == (math.inf, math.inf, "failed")
        assert "feasible" not in result.message

    def test_is_the_first_mean_if_no_candidate_is_better(self):
        """The first candidate is the mean also at a bound, which the others approach."""
        options = {"bounds": (0, 1), "constraints": lambda x: x[:, 0] - 0.5, "budget": 40}
        result = minimize(lambda x: x.sum(1), np.zeros(2), 0.25, seed=1, **options)
        assert result.fun == 0.0
        assert not result.x.any()

    def test_ends_a_search_at_the_target_by_feasible_candidates_alone(self):
        result = minimize(sphere, START, 1.0, constraints=outside, target=2.1, seed=1)
        assert result.reason == "target"
        assert 2 <= result.fun <= 2.1
        best = result.history["best_fitness"]
        assert best == sorted(best, reverse=True)
        assert best[-2] > 2.1

    @pytest.mark.parametrize("scale", [1.0, 1e9])
    def test_an_equality_may_be_two_inequalities(self, scale):
        def on_plane(x):
            missed = scale * (x.sum(1) - 1)
            return np.stack([missed, -missed], axis=1)

        options = {"constraints": on_plane, "tolerance": scale * 1e-6, "budget": 3000}
        result = minimize(sphere, np.zeros(3), 1.0, **options, seed=1)
        assert result.success
        assert result.violation == 0.0
        assert abs(on_plane(result.x[None])).max() <= scale * 1e-6
        assert result.fun == pytest.approx(1 / 3, abs=1e-5)

    def test_a_tolerance_does_not_loosen_an_inequality_that_can_be_met(self):
        result = minimize(
            sphere, START, 1.0, constraints=outside, tolerance=0.1, budget=2000, seed=1
        )
        assert bool((result.x[:2] >= 1).all())


class Problem(NamedTuple):
    """A problem of the engineering literature, with its best known value."""

    objective: Any
    constraints: Any
    bounds: Any
    best: float
    integers: Any = None


def vessel(x):
    shell, head, radius, length = x.T
    return (
        0.6224 * shell * radius * length
        + 1.7781 * head * radius**2
        + shell**2 * (3.1661 * length + 19.84 * radius)
    )


def vessel_constraints(x):
    shell, head, radius, length = x.T
    volume = np.pi * radius**2 * (length + 4 / 3 * radius)
    return np.stack(
        [0.0193 * radius - shell, 0.00954 * radius - head, 1_296_000 - volume], axis=1
    )


def truss_constraints(x):
    outer, inner = x.T
    root = math.sqrt(2)
    both = root * outer**2 + 2 * outer * inner
    return (
        np.stack(
            [(root * outer + inner) / both, inner / both, 1 / (outer + root * inner)], axis=1
        )
        - 1
    )


def spring_constraints(x):
    wire, coil, turns = x.T
    shear = (4 * coil**2 - wire * coil) / (12566 * wire**3 * (coil - wire)) + 1 / (
        5108 * wire**2
    )
    deflection = 1 - coil**3 * turns / (71785 * wire**4)
    surge = 1 - 140.45 * wire / (coil**2 * turns)
    return np.stack([deflection, shear - 1, surge, (wire + coil) / 1.5 - 1], axis=1)


PROBLEMS = {
    **{
        f"product of {n}": Problem(lambda x: x.prod(1), lambda x: 1 - x, [(0, 100)] * n, 1.0)
        for n in (2, 3, 5)
    },
    "vessel in steps": Problem(
        lambda x: vessel(x / [16, 16, 1, 1]),
        lambda x: vessel_constraints(x / [16, 16, 1, 1]),
        [(1, 99), (1, 99), (10, 200), (10, 200)],
        6059.714,
        [0, 1],
    ),
    "vessel": Problem(
        vessel, vessel_constraints, [(0.0625, 6.1875)] * 2 + [(10, 200)] * 2, 5885.333
    ),
    "truss": Problem(
        lambda x: 100 * (x @ [math.sqrt(8), 1]), truss_constraints, [(0, 1)] * 2, 263.8958
    ),
    "spring": Problem(
        lambda x: (x[:, 2] + 2) * x[:, 1] * x[:, 0] ** 2,
        spring_constraints,
        [(0.05, 2), (0.25, 1.3), (2, 15)],
        0.0126652,
    ),
}


def solve(name, *, seed, budget):
    problem = PROBLEMS[name]
    result = minimize(
        problem.objective,
        bounds=problem.bounds,
        integers=problem.integers,
        constraints=problem.constraints,
        budget=budget,
        seed=seed,
    )
    assert result.success
    assert (problem.constraints(result.x[None]) <= 0).all()
    assert result.fun > problem.best * (1 - 1e-5)
    return result.fun


class TestEngineering:
    """Volumes and ratios are better by orders of magnitude where they are not feasible."""

    @pytest.mark.parametrize("name", ["product of 2", "product of 3", "truss"])
    def test_a_search_returns_from_outside(self, name):
        assert solve(name, seed=1, budget=1500) == pytest.approx(PROBLEMS[name].best, rel=1e-3)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PROBLEMS)
    def test_nine_of_ten_searches_find_the_best_known(self, name):
        values = [solve(name, seed=seed, budget=7500) for seed in range(1, 11)]
        near = [value <= PROBLEMS[name].best * 1.001 for value in values]
        assert sum(near) >= 9


class TestForms:
    def test_are_the_same(self):
        forms = [
            outside,
            lambda x: 2.0**20 * outside(x),
            [lambda x: 1 - x[:, 0], lambda x: 1 - x[:, 1:2]],
            SimpleNamespace(A=np.eye(2, 3), lb=(1, 1), ub=np.inf),
            SimpleNamespace(fun=lambda x: -x[:2], lb=-np.inf, ub=-1),
            {"type": "ineq", "fun": lambda x, low: x[:2] - low, "args": (1.0,)},
        ]
        forms.append({**forms[-1], "type": "INEQ"})  # as in SciPy
        options = {"budget": 300, "seed": 1}
        first, *others = (
            minimize(sphere, START, 1.0, constraints=form, **options) for form in forms
        )
        for other in others:
            assert (first.x == other.x).all()
            assert first.history == other.history

    def test_of_one_candidate_are_not_taken_for_those_of_a_population(self):
        for population_size in (3, 6):
            with pytest.raises(ValueError, match="functions of one candidate need"):
                minimize(
                    sphere,
                    START,
                    1.0,
                    constraints=lambda x: 1 - x[0],
                    population_size=population_size,
                )
        with pytest.raises(ValueError, match="a type of 'eq' or 'ineq'"):
            minimize(sphere, START, 1.0, constraints={"fun": sphere, "type": "equality"})

    @pytest.mark.parametrize("start", [START, torch.from_numpy(START)])
    @pytest.mark.parametrize(
        "options", [{"vectorize": True}, {"vectorize": "loop"}, {"workers": map}]
    )
    def test_of_one_candidate(self, start, options):
        def one(x):
            assert (type(x), x.shape) == (type(start), (3,))
            return 1 - x[:2]

        shared = {"budget": 200, "seed": 1, "model": None}
        known = minimize(sphere, start, 1.0, constraints=outside, **shared)
        result = minimize(sphere, start, 1.0, constraints=one, **shared, **options)
        assert (result.x == known.x).all()

    def test_of_a_simulation_need_no_other_run_also_of_a_search_that_was_stopped(
        self, tmp_path
    ):
        def value(x):
            values.append(simulate(*x.tolist())[0])
            if len(values) in (7, 80):  # in the descent, and after it
                signal.raise_signal(signal.SIGTERM)
            return values[-1]

        values = []
        simulate.cache_clear()
        options = {"constraints": [limit, lambda x: x[1:] - 9], "vectorize": "loop"}
        options.update(budget=90, seed=1)
        start = torch.from_numpy(2 * START)
        known = minimize(distance, start, 1.0, **options)
        for count in (7, 80, known.evaluations):
            result = minimize(value, start, 1.0, **options, checkpoint=tmp_path)
            assert len(values) == result.evaluations == count
        assert (result.x == known.x).all()

    def test_are_evaluated_by_the_worker_of_the_objective(self):
        options = {"budget": 60, "seed": 1, "catch": ZeroDivisionError}
        named = {"type": "ineq", "fun": limit, "args": (3.0,)}
        result = minimize(distance, START, 1.0, constraints=named, workers=2, **options)
        # The first candidate has failed, also in the population after the descent.
        assert [failure[:3] for failure in result.failed] == [(0, 0, "failed")] * 2
        assert result.x[0] <= 1.0
        with pytest.raises(TypeError, match="define the function in a module"):
            minimize(distance, START, 1.0, constraints=lambda x: x[0], workers=2, **options)

    @pytest.mark.parametrize("first", [3.0, 4.5])
    def test_that_raise_cost_their_candidate(self, first):
        def one(x):
            return 1 - x[:2] if x[0] < 4 else 1 / 0

        start = np.array([first, 3.0, 3.0])
        options = {"catch": ZeroDivisionError, "vectorize": "loop", "model": None, "seed": 1}
        for form in (one, SimpleNamespace(fun=one, ub=0.0)):
            result = minimize(sphere, start, 1.0, constraints=form, budget=300, **options)
            assert (result.fun < 2.1, result.violation) == (True, 0.0)
            assert "division by zero" in result.failed[0].message

    def test_of_a_candidate_remain_if_an_equal_one_fails(self):
        constraints = Constraints(lambda x: x, vectorize="loop")
        for values in ([[3.0, 4.0]], []):
            constraints.remember(START, values)
        assert constraints(START[None])[0].tolist() == [[3.0, 4.0]]

    def test_whose_number_changes_are_an_error(self):
        with pytest.raises(ValueError, match="must have the same shape"):
            Constraints(lambda x: x[: int(x[0])], vectorize="loop")(np.array([[1, 2], [2, 2]]))

    def test_that_mix_candidates_are_an_error(self):
        with pytest.raises(ValueError, match="depend on the others: functions of one"):
            minimize(sphere, START, 1.0, constraints=lambda x: x @ START - x.sum(), seed=1)

    def test_of_one_candidate_for_a_population_is_an_error(self):
        with pytest.raises(
            ValueError, match=r"shape \(7, m\) or \(7,\), got \(2,\): .*vectorize='loop'"
        ):
            minimize(sphere, START, 1.0, constraints=lambda x: 1 - x[:2, 0], seed=1)
        with pytest.raises(ValueError, match="expected no constraints with graph=True"):
            minimize(sphere, START, 1.0, constraints=outside, graph=True)

    def test_an_empty_list_is_no_constraint_and_bounds_are_none(self):
        known = minimize(sphere, START, 1.0, budget=200, seed=1)
        result = minimize(sphere, START, 1.0, constraints=[], budget=200, seed=1)
        assert (result.x == known.x).all()
        bounds = SimpleNamespace(lb=0, ub=1)  # as SciPy's Bounds
        with pytest.raises(TypeError, match="expected constraints that are functions, "):
            minimize(sphere, START, 1.0, constraints=bounds, seed=1)


@pytest.mark.filterwarnings("ignore:no candidate is feasible")
@pytest.mark.parametrize("last", [1, 9, 130])
def test_a_resumed_search_ends_as_one_that_was_not_interrupted(tmp_path, last):
    def search(**options):
        constraints = lambda x: 4 - x[:, :2]  # noqa: E731
        options = {
            "constraints": constraints,
            "budget": 2000,
            "restarts": 1,
            "seed": 1,
            **options,
        }
        found = minimize(sphere, torch.zeros(3), 0.1, **options)
        return found.x.tolist(), found.violation, found.reason, found.history

    def interrupted(record):
        if record.generation == last:
            raise StopIteration

    whole = search()
    assert search(checkpoint=tmp_path, callbacks=[interrupted]) != whole
    assert search(checkpoint=tmp_path) == whole
    assert (whole[-1]["best_fitness"][0], whole[1]) == (math.inf, 0.0)


def test_the_objects_of_scipy_have_the_names_that_are_read():
    optimize = pytest.importorskip("scipy.optimize")
    linear, nonlinear = (
        optimize.LinearConstraint([[1.0]], 0, 1),
        optimize.NonlinearConstraint(abs, 0, 1),
    )
    assert {"A", "lb", "ub"} <= vars(linear).keys()
    assert {"fun", "lb", "ub"} <= vars(nonlinear).keys()
    assert {"lb", "ub"} <= vars(optimize.Bounds(0, 1)).keys()
    linear.keep_feasible = np.array([True])
    with pytest.warns(RuntimeWarning, match="keep_feasible of constraints is ignored"):
        Constraints(linear, vectorize="loop")


def test_after_a_search_that_diverged_constraints_are_steeper():
    options = {"constraints": lambda x: 1 - x, "budget": 6000, "seed": 4}
    result = minimize(lambda x: x.prod(1), np.full(3, 50.0), 25.0, **options)
    assert result.fun == pytest.approx(1.0, abs=1e-3)
    assert result.violation == 0.0


def test_the_worst_constraint_is_the_violation_and_the_margin_grows_where_few_are_feasible():
    both = Constraints(lambda x: x.new_tensor([0.3, 0.5]).expand(len(x), 2), vectorize=False)
    search = Constrained([0.0], 1.0, 8, maximize=False, constraints=both, first=torch.zeros(1))
    search.tell(search.ask(), torch.arange(8.0))
    assert search.violation == 0.5
    assert search.state_dict()["constraints"][3] == pytest.approx(0.2 + 0.1 * 0.15)


def test_the_width_of_a_constraint_is_that_of_violations_where_feasible_candidates_are_far():
    normal = np.array([[NormalDist(-1.0, 2.0).inv_cdf((i + 0.5) / 1000)] for i in range(1000)])
    assert _widths(np.where(normal > 0, normal, 1000 * normal)) == pytest.approx(2.0, rel=0.01)
