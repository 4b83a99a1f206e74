"""Points that are known before a search, and what a result says about all that it evaluated."""

import math
import pickle

import numpy as np
import pytest
import torch

from cem import CEMConfig, Choice, Float, Int, maximize, minimize
from cem.families import Bernoulli, Permutation
from cem.run.evaluator import Evaluator

SPACE = {"rate": Float(1e-4, 1.0, log=True), "layers": Int(1, 8), "kind": Choice("a", "b")}


def bowl(x):
    return float(((x - 0.7) ** 2).sum())


def loss(p):
    return (math.log10(p["rate"]) + 2) ** 2 + 0.1 * abs(p["layers"] - 3) + (p["kind"] == "a")


def first_point(function, *arguments, **options):
    """The first candidate of a search for a function called candidate by candidate."""
    options = {"vectorize": "loop", "budget": 40, "seed": 1, **options}
    points, _ = minimize(function, *arguments, **options).evaluated
    return points[0]


class TestEvaluated:
    points = np.array([[0.0, 1.0], [1.0, 0.0], [5.0, 5.0]])

    def test_a_search_begins_at_the_weighted_mean_of_the_better_half(self):
        points = np.concatenate([self.points, np.full((1, 2), 4.0)])
        values = np.array([2.0, 1.0, 11.0, 12.0])
        # Two points, with the weights log 2.5 and log 2.5 - log 2.
        first, second = math.log(2.5), math.log(1.25)
        expected = (first * self.points[1] + second * self.points[0]) / (first + second)
        for model in ("auto", None):
            point = first_point(bowl, evaluated=(points, values), model=model)
            np.testing.assert_allclose(point, expected)
        greatest = maximize(
            bowl, evaluated=(points, -values), vectorize="loop", budget=30, seed=1
        )
        np.testing.assert_allclose(greatest.evaluated[0][0], expected)

    def test_a_mean_that_is_given_is_the_start(self):
        point = first_point(bowl, np.array([3.0, 4.0]), 1.0, evaluated=(self.points, [2, 1, 9]))
        assert point.tolist() == [3.0, 4.0]

    def test_what_failed_or_is_outside_does_not_count(self):
        points, values = [[0.2, 0.2], [0.4, 0.4], [3.0, 0.0]], [1.0, math.nan, 0.0]
        with pytest.warns(RuntimeWarning, match="1 of 3 evaluated points are outside"):
            point = first_point(bowl, bounds=[(0, 1)] * 2, evaluated=(points, values))
        np.testing.assert_allclose(point, [0.2, 0.2])

    def test_points_at_a_bound_count_in_the_dtype_of_the_search(self):
        """In float32, 0.7 is less than 0.7. A warning would say that points do not count."""
        options = {"bounds": (0.7, 1), "vectorize": "loop", "budget": 20, "seed": 1}
        found = minimize(torch.sum, torch.full((2,), 0.8), 0.1, **options)
        assert (found.x.double() < 0.7).all()
        options["evaluated"] = found
        assert minimize(torch.sum, torch.full((2,), 0.8), 0.1, **options).fun == found.fun
        with pytest.warns(RuntimeWarning, match="outside the bounds"):
            first_point(np.sum, **options)  # of float64

    def test_points_that_the_space_does_not_contain_do_not_count(self):
        space = {"rate": SPACE["rate"], "layers": 3, "kind": Choice("b", "c")}
        point = {"rate": 0.01, "layers": 3, "kind": "b"}
        others = [{**point, "layers": 2}, {**point, "kind": "a"}, {**point, "rate": 2.0}]
        values = [0.0, -1.0, -1.0, -1.0]
        with pytest.warns(RuntimeWarning, match="3 of 4 evaluated points are outside"):
            result = minimize(loss, space, evaluated=([point, *others], values), budget=20)
        assert result.x == pytest.approx(point)
        assert result.fun == 0.0

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    @pytest.mark.parametrize(
        "mean", [np.float32([3.0, -9.0]), torch.tensor([3.0, -9.0])], ids=["array", "tensor"]
    )
    def test_the_best_point_within_the_constraints_counts(self, mean, sign):
        search = minimize if sign > 0 else maximize

        def outside(x):
            assert type(x) is type(mean)
            return x[0] - 0.71

        options = {"constraints": outside, "vectorize": "loop", "budget": 20}
        points = np.array([[0.7, 0.7], [0.72, 0.7]])
        known = points, sign * np.array([bowl(x) for x in points])
        result = search(lambda x: sign * bowl(x), mean, 0.1, evaluated=known, **options)
        assert result.x.tolist() == pytest.approx([0.7, 0.7])

    def test_points_that_violate_a_constraint_do_not_count(self):
        def outside(x):
            return x[0] - 0.5

        known = ([[0.4, 0.2], [0.9, 0.9]], [1.0, 0.0])
        options = {"bounds": [(0, 1)] * 2, "constraints": outside, "evaluated": known}
        np.testing.assert_allclose(first_point(bowl, **options), [0.4, 0.2])
        with pytest.raises(ValueError, match="satisfy the constraints, got none"):
            first_point(bowl, **{**options, "constraints": lambda x: x[0] + 1})

    def test_a_point_that_needs_the_tolerance_does_not_hide_another(self):
        options = {"constraints": lambda x: x[0] - 0.5, "vectorize": "loop", "seed": 1}
        points = np.array([[0.5, 0.7], [0.5 + 1e-8, 0.7]])
        known = points, [bowl(x) for x in points]
        result = minimize(bowl, np.zeros(2), 0.1, evaluated=known, budget=20, **options)
        assert result.fun == bowl(points[0])

    def test_a_search_of_a_population_begins_there_and_keeps_the_best(self):
        known = (np.full((4, 2), 0.7), [0.0, 1.0, 2.0, 3.0])
        result = minimize(
            lambda x: (x**2).sum(-1) + 1.0, evaluated=known, std=0.1, budget=60, seed=1
        )
        assert result.fun == 0.0
        with pytest.raises(AttributeError, match="called candidate by candidate"):
            _ = result.evaluated

    def test_a_model_begins_with_the_points(self):
        points = np.random.default_rng(0).uniform(-5, 5, (60, 4))
        known = (points, [bowl(x) for x in points])
        mean = np.full(4, 4.0)
        f = lambda x: math.nan if (x == mean).all() else bowl(x)  # noqa: E731 - no descent
        options = {"vectorize": "loop", "target": 1e-8, "seed": 1}
        known_count = minimize(f, mean, 2.0, evaluated=known, **options).evaluations
        # Twice the mean, the minimum of the model and what confirms it.
        assert known_count <= 10 < minimize(f, mean, 2.0, **options).evaluations

    def test_results_journals_and_studies_are_read(self, tmp_path):
        optuna = pytest.importorskip("optuna")
        first = minimize(loss, SPACE, budget=60, seed=1, checkpoint=tmp_path / "search")
        study = optuna.create_study()
        kinds = {
            "rate": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
            "layers": optuna.distributions.IntDistribution(1, 8),
            "kind": optuna.distributions.CategoricalDistribution(["a", "b"]),
        }
        points, values = first.evaluated
        assert values.tolist() == [loss(point) for point in points]
        for point, value in zip(points, values, strict=True):
            study.add_trial(
                optuna.trial.create_trial(params=point, distributions=kinds, value=value)
            )
        study.ask()  # runs
        table = {name: [point[name] for point in points] for name in SPACE}
        sources = (first, tmp_path / "search", study, (points, values), (table, values))
        starts = [first_point(loss, SPACE, evaluated=source) for source in sources]
        assert starts == [starts[0]] * len(sources)
        assert loss(starts[0]) < 0.5
        both = first_point(loss, SPACE, evaluated=[first, study])
        assert both["kind"] == "b"

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (3, "expected a pair"),
            (([[1.0, 2.0]], [1.0, 2.0]), "a value for each of 1"),
            (([1.0, 2.0], [1.0, 2.0]), r"shape \(n, dim\)"),
            (([[1.0]], [1.0]), "points of 2 parameters, got points of 1"),
            (([[1.0, 2.0]], [math.nan]), "with a value, got 1 that failed"),
            (([[1.0, 2.0]], np.ma.masked_equal([1.0], 1)), "with a value, got 1 that failed"),
            ((np.zeros((0, 2)), []), "expected evaluated points, got none"),
        ],
    )
    def test_wrong_points_are_refused(self, source, message):
        with pytest.raises((TypeError, ValueError), match=message):
            minimize(bowl, np.zeros(2), 1.0, evaluated=source)

    def test_points_need_all_parameters_of_a_space(self):
        with pytest.raises(ValueError, match="a value for rate, layers, kind"):
            minimize(loss, SPACE, evaluated=([{"rate": 0.1}], [1.0]))


class TestWhatAResultSays:
    def test_all_evaluations_are_kept_in_order(self):
        points = []

        def function(x):
            points.append(x.tolist())
            return bowl(x) if x[0] > 0 else math.nan

        for mean in (np.ones(2), torch.ones(2)):
            points.clear()
            result = minimize(function, mean, 1.0, vectorize="loop", budget=50, seed=1)
            evaluated, values = result.evaluated
            assert evaluated.tolist() == points
            assert isinstance(evaluated, type(mean))
            assert np.isnan(np.asarray(values)).sum() == result.failures

    def test_the_model_is_the_function_if_that_is_quadratic(self):
        f = lambda x: -float(2 * x[0] ** 2 + x[0] * x[1] + 5)  # noqa: E731
        result = maximize(f, np.ones(3), 1.0, vectorize="loop", budget=60, seed=1, model=None)
        point = np.array([0.5, -0.3, 1.0])
        assert math.isclose(result.model(point), f(point), abs_tol=1e-9)
        assert np.isclose(result.model([point, 0 * point]), [f(point), -5.0]).all()
        assert math.isclose(result.model.r2, 1.0)

    def test_the_importance_is_the_share_of_the_variance(self):
        # The variances of 3 x0 and 4 x1 are 9 and 16 of 25 if x0 and x1 have the same.
        f = lambda x: float(3 * x[0] + 4 * x[1])  # noqa: E731
        options = {"vectorize": "loop", "population_size": 400, "budget": 400, "seed": 1}
        result = minimize(f, np.zeros(3), 1.0, model=None, **options)
        np.testing.assert_allclose(result.importance, [0.36, 0.64, 0.0], atol=0.06)
        assert "importance: x[1] 6" in repr(result)
        power = lambda x: float(x[0] ** 4)  # noqa: E731
        options["seed"] = 4  # The estimate is 1.05.
        assert minimize(power, np.ones(2), 1.0, model=None, **options).importance[0] == 1.0

    def test_choices_count_and_few_points_have_no_model(self):
        result = minimize(loss, SPACE, budget=200, seed=1)
        assert set(result.importance) == set(SPACE)
        assert result.importance["kind"] > 0.02
        assert result.model({"rate": 0.01, "layers": 3, "kind": "b"}) < 0.5
        order = {"a": Float(-1, 1), "order": Permutation(6)}
        rest = minimize(lambda p: p["order"][0] - p["a"], order, budget=200, seed=1)
        assert math.isnan(rest.importance["order"])  # The model ignores it.
        assert "importance: a" in repr(rest) or rest.model.r2 <= 0
        few = minimize(loss, SPACE, budget=4, population_size=4, seed=1)
        assert few.model is few.importance is None
        assert "importance" not in repr(few)

    def test_a_result_can_be_pickled_and_plotted(self):
        result = minimize(loss, SPACE, budget=100, seed=1)
        figure = pickle.loads(pickle.dumps(result)).plot()
        assert [axes.get_xlabel() for axes in figure.axes[2:]] == [
            *sorted(SPACE, key=lambda name: -result.importance[name])
        ]
        plain = minimize(lambda x: (x**2).sum(-1), np.ones(2), 1.0, budget=60, seed=1)
        assert len(plain.plot().axes) == 1


class TestPointsThatMeanSomethingElse:
    def test_values_of_the_other_direction_raise(self, tmp_path):
        options = {"vectorize": "loop", "budget": 40, "checkpoint": tmp_path}
        highest = maximize(lambda x: -bowl(x), np.zeros(3), 1.0, **options)
        for source, name in ((highest, "result"), (tmp_path, "journal")):
            message = f"a {name} that is minimised, got one that is max"
            with pytest.raises(ValueError, match=message):
                minimize(bowl, vectorize="loop", evaluated=source)

    def test_a_folder_of_other_parameters_raises(self, tmp_path):
        space = {"a": Float(0.0, 1.0), "b": Float(0.0, 1.0)}
        reverse = dict(reversed(space.items()))
        minimize(lambda p: p["a"], space, budget=20, checkpoint=tmp_path)
        with pytest.raises(ValueError, match="expected evaluations of"):
            minimize(lambda p: p["a"], reverse, evaluated=tmp_path)

    def test_points_between_integers_or_steps_are_left_out(self):
        with pytest.warns(RuntimeWarning, match="1 of 2 evaluated points"):
            result = minimize(
                bowl,
                np.zeros(2),
                1.0,
                integers=[0],
                vectorize="loop",
                budget=20,
                evaluated=([[2.5, 3.0], [1.0, 1.0]], [-1.0, 12.0]),
            )
        assert result.x[0] == round(result.x[0])
        with pytest.warns(RuntimeWarning, match="1 of 2 evaluated points"):
            minimize(
                lambda p: p["n"],
                {"n": Int(1, 9)},
                budget=20,
                evaluated=([{"n": 3.5}, {"n": 4, "more": 1.0}], [0.0, 4.0]),
            )

    def test_points_of_a_family_need_no_mean(self):
        config = CEMConfig(families=[Bernoulli(1)])
        points = np.array([[0.7, 0.0], [0.9, 1.0]])
        first = first_point(bowl, config=config, evaluated=(points, [0.5, 0.1]))
        assert first.tolist() == [0.9, 0.0]

    def test_parameters_that_do_not_differ_need_a_std(self):
        with pytest.raises(ValueError, match=r"do not differ in the parameters \[1\]"):
            minimize(bowl, vectorize="loop", evaluated=([[1.0, 0.5], [2.0, 0.5]], [1.0, 2.0]))


def test_the_best_of_the_generations_of_a_checkpoint_is_known_again(tmp_path):
    search = {"objective": "bowl", "mean": [0.0, 0.0]}
    with Evaluator(bowl, maximize=False, vectorize="loop") as first:
        first.open_journal(tmp_path / "evaluations.journal", search)
        first(np.array([[1.0, 1.0], [0.5, 0.7]]), 0)
    with Evaluator(bowl, maximize=False, vectorize="loop") as second:
        journal = second.open_journal(tmp_path / "evaluations.journal", search, generation=1)
        second.restore(journal.read_earlier(), np.zeros(2))
        candidate, value = second.best
    assert (candidate.tolist(), value) == ([0.5, 0.7], bowl(np.array([0.5, 0.7])))
    assert second.evaluations == len(second.remembered) == 2
