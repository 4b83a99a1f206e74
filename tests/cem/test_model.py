"""A search by a model of the function: fewer evaluations, the same rules."""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cem import (
    CEMConfig,
    CheckpointError,
    CrossEntropyMethod,
    Evaluation,
    Float,
    Int,
    maximize,
    minimize,
)
from cem.run.evaluator import Evaluator
from cem.search import loop
from cem.search.assisted import Problem
from cem.search.descent import Descent
from cem.search.quadratic import QuadraticModel


def rosenbrock(x):
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


class Counted:
    def __init__(self, function):
        self.function = function
        self.points = []

    def __call__(self, x):
        self.points.append(np.array(x.tolist()))
        return self.function(x)


class TestQuadraticModel:
    def fitted(self, count):
        """A model of (x - 2)^2 + 3 x y + 4 (y + 1)^2 at random points."""
        model = QuadraticModel(2)
        for x, y in np.random.default_rng(0).normal(size=(count, 2)):
            model.add(np.array([x, y]), (x - 2) ** 2 + 3 * x * y + 4 * (y + 1) ** 2)
        model.fit(np.array([0.5, 0.0]), np.array([[2.0, 0.0], [1.0, 1.0]]))
        return model

    def test_a_quadratic_function_is_found_exactly(self):
        model = self.fitted(8)
        # Both derivatives are 0: 2 (x - 2) + 3 y = 0 and 3 x + 8 (y + 1) = 0.
        np.testing.assert_allclose(model.minimum(100.0), [8.0, -4.0], atol=1e-9)
        assert math.isclose(model.predict([[1.0, 1.0]])[0], 1 + 3 + 16, abs_tol=1e-9)
        assert model.agreement(8) == 1.0

    def test_the_minimum_is_within_the_radius_and_no_point_there_is_better(self):
        model = self.fitted(8)
        to_unit = np.linalg.inv([[2.0, 0.0], [1.0, 1.0]])
        center = np.array([0.5, 0.0])
        minimum = model.minimum(1.0)
        assert math.isclose(np.linalg.norm(to_unit @ (minimum - center)), 1.0, rel_tol=1e-9)
        angles = np.linspace(0, 2 * math.pi, 200)
        circle = (
            center + np.stack([np.cos(angles), np.sin(angles)], 1) @ np.linalg.inv(to_unit).T
        )
        assert model.predict(minimum[None])[0] <= model.predict(circle).min() + 1e-9

    def test_a_saddle_has_a_minimum_on_the_sphere(self):
        model = QuadraticModel(2)
        for x, y in np.random.default_rng(0).normal(size=(10, 2)):
            model.add(np.array([x, y]), x * x - y * y + 0.1 * y)
        model.fit(np.zeros(2), np.eye(2))
        np.testing.assert_allclose(model.minimum(2.0), [0.0, -2.0], atol=1e-6)

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_changes_of_integers_find_the_best_of_a_quadratic_function(self, seed):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(3, 3))
        curvature = root @ root.T + 0.1 * np.eye(3)
        minimum = rng.uniform(-2, 2, 3)

        def function(x):
            return (x - minimum) @ curvature @ (x - minimum)

        model = QuadraticModel(3)
        for x in rng.normal(size=(30, 3)):
            model.add(x, function(x))
        model.fit(np.zeros(3), 3 * np.eye(3))  # Integers may change by 3.
        is_integer = np.array([True, True, False])
        found = model.descend_integers(np.zeros(3), is_integer, -4.0, 4.0)
        grid = np.stack(np.meshgrid(*2 * [np.arange(-3, 4)], np.linspace(-3, 3, 601)), -1)
        best = min(function(x) for x in grid.reshape(-1, 3))
        assert (found[:2] == found[:2].round()).all()
        assert function(found) <= best + 1e-9

    def test_a_curvature_of_zero_that_rounding_makes_positive_moves_no_other_parameter(self):
        # 23/7 (x + y + z)^2 / 2: the least eigenvalue is computed as 1e-16, not 0.
        model = QuadraticModel(4)
        for x in np.random.default_rng(0).normal(size=(30, 4)):
            model.add(x, 23 / 14 * x[1:].sum() ** 2)
        model.fit(np.zeros(4), np.eye(4))
        model._coefficients = np.zeros(15)
        model._coefficients[6:9] = 23 / 14
        model._coefficients[[12, 13, 14]] = 23 / 7
        is_integer = np.array([True, False, False, False])
        point = np.array([1.0, 0.5, 0.5, 0.5])
        np.testing.assert_array_equal(
            model.descend_integers(point, is_integer, -4.0, 4.0), point
        )

    @pytest.mark.parametrize(("count", "terms"), [(3, None), (4, 3), (6, 5), (7, 6)])
    def test_few_points_give_a_simpler_model(self, count, terms):
        model = self.fitted(count)
        assert model.is_fitted == (terms is not None)
        assert terms is None or len(model._coefficients) == terms

    def test_a_failure_is_as_bad_as_the_worst_value(self):
        models = []
        for bad in (math.nan, 9.0):
            model = QuadraticModel(1)
            for x in (0.0, 1.0, 2.0, 3.0):
                model.add(np.array([x]), x * x)
            model.add(np.array([-1.0]), bad)
            model.fit(np.zeros(1), np.eye(1))
            models.append(model.predict([[-1.0]])[0])
        assert models[0] == models[1]


class TestDescent:
    @staticmethod
    def descent(function, start, width):
        evaluations = []

        def evaluate(points):
            evaluations.extend(points)
            return [[function(x)] for x in points]

        start = np.array(start)
        return Descent(evaluate, start, [function(start)], np.array(width)), evaluations

    def test_it_follows_a_valley_and_leaves_constants(self):
        descent, evaluations = self.descent(
            lambda x: rosenbrock(x[:3]) + x[3], np.zeros(4), [1.0, 1.0, 1.0, 0.0]
        )
        descent.run(250)
        value = min(outcome for _, outcome in descent.path)
        assert value < 1e-8
        assert {x[3] for x in evaluations} == {0.0}
        assert len(evaluations) <= 250
        assert np.abs(descent.path[1][0]).max() <= 1.0  # the longest first trial
        assert not descent.is_unfinished

    def test_a_good_trial_is_followed_by_the_minimum_of_its_parabola(self):
        descent, _ = self.descent(lambda x: float((x[0] - 1.5) ** 2), [0.0], [1.0])
        descent.run(3)  # one difference, the trial, and the minimum at 1.5 times its step
        (first, _), (second, _), (third, _) = descent.path
        assert (first[0], second[0]) == (0.0, 1.0)
        assert math.isclose(third[0], 1.5, rel_tol=1e-6)
        assert descent.is_unfinished
        assert math.isclose(descent.last_length, 1.5, rel_tol=1e-6)

    @pytest.mark.parametrize("bounds", [(-math.inf, math.inf), (-0.5, 0.8)])
    def test_the_path_does_not_depend_on_the_units(self, bounds):
        paths = []
        # With powers of 2 as units, every number of the path is the same.
        for unit, value in ((1.0, 1.0), (2.0**20, 1.0), (2.0**-30, 1.0), (1.0, 2.0**-40)):
            descent = Descent(
                lambda points: [[value * rosenbrock(x / unit)] for x in points],  # noqa: B023
                np.zeros(3),
                [value * rosenbrock(np.zeros(3))],
                np.full(3, unit),
                bounds=tuple(unit * end for end in bounds),
            )
            descent.run(60)
            paths.append([(x / unit).tolist() for x, _ in descent.path])
        assert paths == [paths[0]] * 4

    def test_differences_are_short_where_the_curvature_is_large(self):
        curvatures = np.logspace(0, 6, 5)
        axes = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
        descent, _ = self.descent(
            lambda x: 1.0 + curvatures @ (axes @ x) ** 2, np.arange(5.0), np.ones(5)
        )
        descent.run(150)
        assert min(outcome[0] for _, outcome in descent.path) < 1.0 + 1e-12

    def test_few_gradients_use_the_curvature_that_is_known(self):
        # The curvature of fourth powers falls, so the approximation is always wrong somewhere.
        axes = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))[0]
        descent, _ = self.descent(
            lambda x: float(np.sum((axes @ x) ** 4)), np.full(20, 2.0), np.ones(20)
        )
        descent.run(200)
        assert min(outcome[0] for _, outcome in descent.path) < 0.01 * descent.path[0][1][0]

    def test_a_function_without_slope_takes_no_step(self):
        descent, evaluations = self.descent(lambda x: 1.0, [0.0, 0.0], [1.0, 1.0])
        descent.run(100)
        assert len(evaluations) == 2
        assert descent.last_length == 0.0
        assert not descent.is_unfinished

    def test_a_repeated_point_that_fails_is_no_noise(self):
        outcomes = iter([0.0, -1e-8, 1.0, 1.0, 1.0, math.inf, *[1.0] * 9])
        descent, evaluations = self.descent(lambda x: next(outcomes), [0.0], [1.0])
        descent.run(100)
        assert evaluations[4] == [0.0]
        assert not descent.has_seen_noise

    def test_a_descent_tells_the_covariance_of_the_search_that_continues_it(self):
        curvatures = np.array([1.0, 100.0, 1e4])
        descent, _ = self.descent(
            lambda x: float(curvatures @ (x - 3.0) ** 2), [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]
        )
        descent.run(60)
        factor = descent.covariance_factor()
        covariance = factor @ factor.T
        ratios = np.diag(covariance) * curvatures
        assert (np.triu(factor, 1) == 0).all()
        np.testing.assert_allclose(ratios / ratios[0], 1.0, rtol=0.5)

    def test_a_short_descent_tells_no_covariance(self):
        descent, _ = self.descent(lambda x: float((x**2).sum()), [1.0, 2.0, 3.0], [1.0] * 3)
        descent.run(5)
        assert descent.covariance_factor() is None


class TestMinimize:
    def test_restarts_after_a_descent_are_wide(self, monkeypatch):
        starts = []
        make = loop.Search

        def record(plan, attempt, index, start, *others):
            starts.append(start)
            return make(plan, attempt, index, start, *others)

        monkeypatch.setattr(loop, "Search", record)
        # Along a kink the steps of a descent become very short. It ends by its budget.
        minimize(
            lambda x: float(abs(x[0] - x[1]) + 0.1 * abs(x[0] + x[1])),
            np.array([2.0, 1.0]),
            1.0,
            vectorize="loop",
            budget=1500,
            seed=1,
        )
        first, restart, *_ = starts
        np.testing.assert_allclose(restart.std, 1 / math.sqrt(2))
        assert np.all(np.asarray(first.std) < 0.5)

    def test_points_at_the_bounds_are_used(self):
        """A two-level design: all of its points are corners."""
        corners = np.array(
            [[a, b, c] for a in (0.0, 1.0) for b in (0.0, 1.0) for c in (0.0, 1.0)]
        )
        function = lambda x: float(((x - [0.3, 0.6, 0.5]) ** 2).sum())  # noqa: E731
        values = [function(x) for x in corners]
        result = minimize(
            function,
            bounds=[(0, 1)] * 3,
            evaluated=(corners, values),
            vectorize="loop",
            budget=40,
            seed=1,
        )
        assert result.fun < 1e-3

    def test_a_valley_takes_a_fifth_of_the_evaluations(self):
        with_model = minimize(
            rosenbrock, np.zeros(5), 1.0, vectorize="loop", target=1e-6, seed=1
        )
        without = minimize(
            rosenbrock, np.zeros(5), 1.0, vectorize="loop", target=1e-6, seed=1, model=None
        )
        assert with_model.reason == without.reason == "target"
        assert with_model.settings["model"] == "quadratic"
        assert without.settings["model"] is None
        assert 5 * with_model.evaluations < without.evaluations

    @pytest.mark.parametrize("budget", [20, 57, 300])
    def test_calls_are_counted_and_within_the_budget(self, budget):
        function = Counted(lambda x: float((x**2 - 3 * np.cos(4 * x)).sum()))
        result = minimize(
            function, np.full(3, 2.0), 1.0, vectorize="loop", budget=budget, seed=2
        )
        assert len(function.points) == result.evaluations <= budget
        assert result.fun == min(map(function.function, function.points))
        assert result.history["evaluations"][-1] <= budget

    def test_the_greatest_value_is_that_of_the_negative_function(self):
        options = {"vectorize": "loop", "budget": 150, "seed": 3}
        least = minimize(rosenbrock, np.zeros(3), 1.0, **options)
        greatest = maximize(lambda x: -rosenbrock(x), np.zeros(3), 1.0, **options)
        assert (greatest.x == least.x).all()
        assert greatest.fun == -least.fun

    def test_candidates_stay_within_bounds(self):
        function = Counted(lambda x: float(((x - 2.5) ** 2).sum()))
        bounds = [(-1, 2), (0, None), (None, 1)]
        options = {"bounds": bounds, "vectorize": "loop", "budget": 200, "seed": 1}
        result = minimize(function, torch.full((3,), 0.5), 0.5, **options)
        points = np.stack(function.points)
        assert (points >= [-1, 0, -np.inf]).all()
        assert (points <= [2, np.inf, 1]).all()
        np.testing.assert_allclose(result.x, [2.0, 2.5, 1.0], atol=0.05)

    def test_functions_of_populations_get_a_model_if_they_ask(self):
        def sphere(x):
            return (x**2).sum(-1)

        options = {"budget": 120, "seed": 1}
        plain = minimize(sphere, np.ones(4), 1.0, **options)
        asked = minimize(sphere, np.ones(4), 1.0, model="quadratic", **options)
        assert plain.settings["model"] is None
        assert asked.fun < 1e-10 < plain.fun

    def test_the_number_of_workers_does_not_matter_to_a_model(self):
        options = {"budget": 150, "seed": 1}
        results = []
        for workers in (1, 3, 16):
            with ThreadPoolExecutor(workers) as pool, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Most of sixteen workers are idle.
                results.append(minimize(rosenbrock, np.zeros(3), 1.0, workers=pool, **options))
        assert results[0].settings["model"] == "quadratic"
        assert len({(tuple(result.x), result.evaluations) for result in results}) == 1

    def test_a_point_does_not_depend_on_the_candidates_beside_it(self):
        """A restart within bounds then resumes with the bits of its model's points."""
        config = CEMConfig.cma(bound_handling="transform")
        options = {"maximize": False, "bounds": (-1, 1), "config": config, "seed": 1}
        search = CrossEntropyMethod(np.zeros(3), 1.0, 20, **options)
        problem = Problem(search, Evaluator(sum, maximize=False))
        candidates = search.ask()
        alone = [problem.points_of(candidate[None]) for candidate in candidates]
        np.testing.assert_array_equal(problem.points_of(candidates), np.vstack(alone))

    @pytest.mark.parametrize("changes", [(2, None), (None, 2)])
    def test_a_folder_keeps_how_many_values_a_model_gets_at_a_time(self, tmp_path, changes):
        def fail_late(x):
            calls.append(x)
            if len(calls) == 90:
                raise ArithmeticError
            return float((x**2 - 10 * np.cos(6.28 * x) + 10).sum())

        calls = []
        options = {"budget": 120, "seed": 1, "vectorize": "loop"}
        start = np.full(3, 2.3)
        with ThreadPoolExecutor(2) as pool:
            first, later = (workers and pool for workers in changes)
            with pytest.raises(ArithmeticError):
                minimize(fail_late, start, 1.0, workers=first, checkpoint=tmp_path, **options)
            found = minimize(
                fail_late, start, 1.0, workers=later, checkpoint=tmp_path, **options
            )
            expected = minimize(fail_late, start, 1.0, workers=first, **options)
        assert found.evaluations == expected.evaluations == 120
        assert found.fun == expected.fun

    def test_without_noise_no_point_is_evaluated_twice(self):
        points = []

        def follow(x):
            points.append(tuple(x))
            return rosenbrock(x)

        minimize(follow, np.zeros(3), 1.0, vectorize="loop", budget=30, seed=1)
        assert len(set(points)) == 30

    @pytest.mark.parametrize(("noise", "reached"), [(1e-7, 1e-2), (1e-4, 1.0)])
    def test_a_little_noise_makes_differences_longer(self, noise: float, reached: float):
        """Of 200 seeds 98 and 96 % reach it; with short differences the medians are 2 and 5."""
        generator = np.random.default_rng(1)

        def ellipsoid(x):
            return float(x @ (x * [1, 30, 1000]) + noise * 1000 * generator.normal())

        result = minimize(ellipsoid, np.ones(3), 1.0, vectorize="loop", budget=90, seed=1)
        x = np.asarray(result.x)
        assert x @ (x * [1, 30, 1000]) < reached
        assert result.settings["model"] is not None

    def test_noise_is_not_modelled(self):
        generator = np.random.default_rng(0)
        noisy = lambda x: float((x**2).sum() + generator.normal())  # noqa: E731
        result = minimize(noisy, np.ones(2), 1.0, vectorize="loop", budget=400, seed=1)
        assert result.settings["noise"]
        assert result.settings["model"] is None

    @pytest.mark.parametrize(
        "function",
        [
            lambda x: float(x.sum()),  # has no minimum
            lambda x: 1.0,
            lambda x: float(np.exp(300 * x).sum()),  # overflows
            lambda x: float(abs(x).sum() ** 0.1),
        ],
    )
    def test_a_strange_function_ends_by_its_budget_or_at_rest(self, function):
        options = {"vectorize": "loop", "budget": 300, "seed": 1}
        result = minimize(function, np.full(2, 0.5), [1.0, 0.5], **options)
        assert result.evaluations <= 300
        assert result.fun <= function(np.full(2, 0.5))

    def test_the_history_knows_what_the_descent_found(self):
        c = np.linspace(-1, 1, 5)

        def waves(x):
            return float(-3 * np.cos(3 * (x - c)).sum() + ((x - c) ** 2).sum())

        start = np.zeros(5, np.float32)
        result = minimize(waves, start, 1.0, budget=206, seed=10, vectorize="loop")
        assert result.history["best_fitness"][-1] == result.fun

    def test_a_metric_of_the_same_name_is_the_objectives_own(self):
        def objective(x):
            return Evaluation((x**2).sum(-1), {"evaluations": 7})

        result = minimize(objective, torch.ones(2), 1.0, budget=60, population_size=6, seed=1)
        assert result.history["evaluations"] == list(range(6, 61, 6))

    def test_repaired_candidates_do_not_go_with_a_model(self):
        def objective(x):
            return Evaluation((x**2).sum(-1), candidates=x.round())

        with pytest.raises(ValueError, match="expected fitness alone"):
            minimize(objective, torch.ones(2), 1.0, model="quadratic", budget=60)

    def test_a_parameter_that_is_not_searched_stays(self):
        options = {"vectorize": "loop", "budget": 120, "seed": 1}
        result = minimize(
            lambda x: float(((x - 1) ** 2).sum()), np.zeros(2), [1.0, 0.0], **options
        )
        assert result.x[1] == 0.0
        assert result.fun < 1.001

    def test_integers_and_steps_need_half_of_the_evaluations(self):
        space = {
            "rate": Float(1e-5, 1, log=True),
            "layers": Int(1, 8),
            "units": Int(1, 512, log=True),
            "drop": Float(0, 0.5),
            "share": Float(0, 1, step=1 / 16),
        }

        def loss(p):
            assert isinstance(p["layers"], int)
            error = math.log10(p["rate"] / 1e-3) ** 2 + 0.2 * math.log2(p["units"] / 32) ** 2
            error += 3 * (p["drop"] - 0.1) ** 2
            return error + 0.3 * abs(p["layers"] - 4) + abs(p["share"] - 0.25)

        def evaluations(model):
            options = {"budget": 2_000, "target": 1e-6, "model": model}
            results = [minimize(loss, space, seed=seed, **options) for seed in range(3)]
            assert all(result.reason == "target" for result in results)
            return sum(result.evaluations for result in results)

        assert 2 * evaluations("auto") < evaluations(None)

    def test_a_hidden_constraint_is_followed_by_the_search(self):
        def function(x):
            weights = np.arange(1, 4)
            is_defined = x[0] <= 0.5
            return float(weights @ (x - [1, 1.3, 1.6]) ** 2) if is_defined else math.nan

        result = minimize(function, np.zeros(3), 1.0, vectorize="loop", budget=180, seed=1)
        assert 0.25 <= result.fun < 0.26

    def test_a_kink_beside_a_constraint_does_not_narrow_the_search(self):
        def function(x):
            return float(max(x[0] ** 2 + x[1], x[1] ** 2 - x[0], x[2] ** 2))

        above = {"type": "ineq", "fun": lambda x: x.sum() - 1}
        options = {"constraints": above, "vectorize": "loop", "budget": 400, "seed": 1}
        assert 0.25 <= minimize(function, np.zeros(3), 1.0, **options).fun < 0.27

    def test_many_parameters_have_a_descent_but_no_model(self):
        weights = np.logspace(0, 1, 41)
        result = minimize(
            lambda x: float(weights @ (x - 1) ** 2),
            np.zeros(41),
            0.5,
            vectorize="loop",
            budget=2_050,
            seed=1,
        )
        assert result.fun < 1e-12
        assert result.settings["model"] is None

    @pytest.mark.parametrize(("dim", "descends"), [(300, True), (1_001, False)])
    def test_a_diagonal_covariance_needs_no_descent_but_takes_one(self, dim, descends):
        result = minimize(
            lambda x: float((x - 1) @ (x - 1)),
            np.zeros(dim),
            0.5,
            vectorize="loop",
            budget=1_300,
        )
        assert (result.fun < 1e-9 * dim) == descends

    def test_what_does_not_go_with_a_model_is_named(self):
        with pytest.raises(ValueError, match="'auto', 'quadratic' or None for model, got 'gp'"):
            minimize(rosenbrock, np.zeros(2), 1.0, model="gp")
        options = {"vectorize": "loop", "constraints": lambda x: x[0]}
        with pytest.raises(ValueError, match="expected no constraints for model='quadratic'"):
            minimize(rosenbrock, np.zeros(2), 1.0, model="quadratic", **options)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_within_bounds_a_quadratic_function_stays_quadratic(seed):
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    minimum = rng.uniform(-3, 3, 3)

    def ellipsoid(x):
        return float((10.0 ** np.array([0, 3, 6]) * (rotation @ (x - minimum)) ** 2).sum())

    # In an unbounded space, in which it is not quadratic, a search ends at 1e-7 to 1e-4.
    result = minimize(
        ellipsoid, np.zeros(3), 2.5, bounds=(-5, 5), budget=600, seed=seed, vectorize="loop"
    )
    assert result.fun < 1e-20


def test_a_descent_that_a_budget_ended_goes_on_as_a_search(tmp_path):
    function = Counted(rosenbrock)
    options = {"vectorize": "loop", "checkpoint": tmp_path / "run", "seed": 1}
    for budget in (100, 200):
        result = minimize(function, np.zeros(5), 1.0, budget=budget, **options)
    assert result.evaluations == len(function.points) == 200


def test_a_folder_keeps_its_choice_between_a_model_and_none(tmp_path):
    options = {"vectorize": "loop", "budget": 60, "seed": 1}
    without = {**options, "checkpoint": tmp_path / "without"}
    first = minimize(Counted(rosenbrock), np.zeros(4), 0.5, model=None, **without)
    again = Counted(rosenbrock)
    with pytest.warns(RuntimeWarning, match="had ended"):
        assert minimize(again, np.zeros(4), 0.5, **without).fun == first.fun
    assert again.points == []
    with_model = {**options, "checkpoint": tmp_path / "with"}
    minimize(rosenbrock, np.zeros(4), 0.5, **with_model)
    with pytest.raises(CheckpointError, match="expected a search without a model"):
        minimize(rosenbrock, np.zeros(4), 0.5, model=None, **with_model)
