"""minimize and maximize: results, reasons to end, restarts, budgets, resumption."""

import dataclasses
import inspect
import json
import math
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from searches import ON_A_GPU, sphere

from cem import (
    Callback,
    CEMConfig,
    CheckpointError,
    CrossEntropyMethod,
    Evaluation,
    Float,
    Int,
    Interrupted,
    maximize,
    minimize,
)
from cem.core.reasons import Reason
from cem.run.journal import Journal
from cem.search.loop import _adapt_plan, _draw_start
from cem.search.options import Options, complete_options
from cem.search.plan import choose_plan
from cem.search.restarts import Agreement, Attempt, Bipop, Ended, Ipop

COLUMNS = [
    "evaluations",
    "best_fitness",
    "generation_best",
    "elite_mean",
    "std_mean",
    "population_size",
]
START = torch.tensor([1.0, 2.0, 3.0])
HILLTOP = torch.full((4,), 2.5)  # a maximum of ``rastrigin``


def rastrigin(x):
    """A sphere covered with local minima; a large population sees the sphere."""
    return (x * x - 10 * torch.cos(2 * math.pi * x) + 10).sum(-1)


def same(one, other):
    """Whether two results are the same, bit for bit."""
    assert one.reason == other.reason
    assert (one.evaluations, one.restarts, one.fun) == (
        other.evaluations,
        other.restarts,
        other.fun,
    )
    for name in ("x", "mean", "std"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert one.history == other.history
    return True


class Interruption(Callback):
    """Ends a search after so many generations, by itself or as Ctrl-C does."""

    def __init__(self, last, ctrl_c=False):
        self.left, self.ctrl_c = last, ctrl_c

    def on_generation(self, record):
        self.left -= 1
        if self.left == 0:
            if not self.ctrl_c:
                raise Interrupted
            signal.raise_signal(signal.SIGINT)


class TestResult:
    @pytest.mark.parametrize("search", [minimize, maximize])
    def test_has_the_best_candidate_and_how_it_was_found(self, search):
        sign = 1.0 if search is minimize else -1.0
        result = search(lambda x: sign * sphere(x - 1.0), START, 1.0, budget=3000, seed=1)
        assert torch.allclose(result.x, torch.ones(3), atol=1e-2)
        assert result.fun == pytest.approx(sign * float(sphere(result.x - 1.0)), abs=1e-12)
        assert torch.allclose(result.mean, torch.ones(3), atol=1e-2)
        assert (result.std < 1.0).all()
        assert list(result.history) == COLUMNS
        assert result.history["best_fitness"][-1] == result.fun
        assert (result.nfev, result.nit) == (result.evaluations, result.generations)
        assert result.success
        assert "budget of evaluations is spent" in result.message
        assert result.message in repr(result)
        assert "history" not in repr(result)

    def test_prints_its_numbers_and_counts_in_the_singular_or_plural(self):
        result = minimize(sphere, START, 1.0, budget=70, restarts=1, seed=1)
        x = torch.tensor([1.0, 2.5, -1 / 3], dtype=torch.bfloat16)
        shown = repr(dataclasses.replace(result, x=x, restarts=1, failures=2)).splitlines()
        assert shown[0] == "x: [ 1.        2.5      -0.333984]"
        assert shown[3].endswith("generations, 1 restart, 2 failures")

    def test_the_history_has_an_entry_for_each_generation_or_every_third(self):
        options = {"budget": 1000, "population_size": 30, "seed": 1}
        result = minimize(sphere, START, 1.0, **options)
        assert (result.reason, result.evaluations) == ("budget", 990)
        assert result.history["evaluations"] == list(range(30, 1000, 30))
        best = result.history["best_fitness"]
        assert best[-1] == result.fun
        assert best == list(np.minimum.accumulate(result.history["generation_best"]))
        assert result.history["population_size"] == [30] * 33
        assert {len(column) for column in result.history.values()} == {33}
        third = minimize(sphere, START, 1.0, record_every=3, **options)
        assert third.history["evaluations"] == [90 * k for k in range(1, 12)]
        assert third.history["best_fitness"] == best[2::3]
        assert torch.equal(third.x, result.x)

    def test_rare_records_end_a_search_no_later_than_the_next_record(self):
        each, some = (
            minimize(rosenbrock, [0.0] * 5, 1.0, restarts=0, record_every=k, seed=1)
            for k in (1, 50)
        )
        assert each.generations <= some.generations < each.generations + 50


class TestReasons:
    @pytest.mark.parametrize("budget", [30, 59, 1000])
    def test_the_budget_is_never_exceeded(self, budget):
        calls = []

        def objective(x):
            calls.append(len(x))
            return sphere(x)

        result = minimize(
            objective, START, 1.0, budget=budget, population_size=30, restarts=3, seed=1
        )
        assert sum(calls) == result.evaluations <= budget
        assert result.evaluations > budget - 30

    @pytest.mark.parametrize("budget", [10, 44, 45, 160])
    @pytest.mark.parametrize("constraints", [None, lambda x: 0.5 - x[:, 0]])
    def test_a_check_of_the_objective_is_within_the_budget(self, budget, constraints):
        generator = np.random.default_rng(1)
        calls = []

        def noisy(x):
            calls.append(len(x))
            return (x * x).sum(-1) + generator.normal(size=len(x))

        options = {"constraints": constraints, "budget": budget, "seed": 1}
        for population_size in (None, 9):
            calls.clear()
            options["population_size"] = population_size
            result = minimize(noisy, np.ones(4), 1.0, **options)
            assert result.evaluations <= sum(calls) <= budget

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_acts_between_candidates_and_what_was_found_is_returned(self, number):
        values = []

        def fifth_ends(x):
            values.append(float(sphere(x)))
            if len(values) == 5:
                signal.raise_signal(number)
            return values[-1]

        result = minimize(fifth_ends, START, 1.0, population_size=8, vectorize="loop", seed=1)
        assert (result.reason, result.evaluations, len(values)) == ("signal", 5, 5)
        assert result.fun == min(values) == float(sphere(result.x))

    def test_the_time_limit_acts_between_candidates(self):
        began = time.monotonic()
        slow = lambda x: time.sleep(0.05) or x @ x  # noqa: E731
        result = minimize(slow, np.ones(3), 1.0, vectorize="loop", time_limit_s=0.2)
        assert (result.reason, 2 <= result.evaluations <= 5) == ("time_limit", True)
        assert 0.2 <= time.monotonic() - began < 1.0

    def test_a_function_of_a_record_ends_a_search_by_stop_iteration(self):
        def third_ends(record):
            if record.generation == 3:
                raise StopIteration

        result = minimize(sphere, START, 1.0, callbacks=[third_ends], seed=1)
        assert (result.reason, result.generations, result.success) == ("requested", 3, False)
        assert len(result.history["best_fitness"]) == 3  # a later callback gets the record

    @pytest.mark.parametrize(("good", "reason"), [(0, "failed"), (2, "budget")])
    def test_where_all_candidates_fail_the_search_begins_again_while_there_is_budget(
        self, good, reason
    ):
        calls = []

        def fails(x):
            calls.append(x)
            if len(calls) > good * 8 or len(calls) % 8 == 7:
                raise ZeroDivisionError
            return float(sphere(x))

        options = {
            "vectorize": "loop",
            "catch": ZeroDivisionError,
            "population_size": 8,
            "seed": 1,
        }
        with pytest.warns(RuntimeWarning) as warned:
            result = minimize(fails, START, 1.0, budget=200, **options)
        assert {"all 8", "every"} <= {str(each.message)[:5] for each in warned}
        assert (result.reason, result.success) == (reason, good > 0)
        assert result.evaluations > 180
        assert result.failures == result.evaluations - 7 * good
        assert result.fun == pytest.approx(float(sphere(result.x)), nan_ok=True)

    def test_target(self):
        result = minimize(sphere, START, 1.0, target=0.1, seed=1)
        assert result.reason == "target"
        assert result.fun <= 0.1
        assert all(best > 0.1 for best in result.history["best_fitness"][:-1])
        result = maximize(lambda x: -sphere(x), START, 1.0, target=-0.1, seed=1, restarts=3)
        assert (result.reason, result.restarts) == ("target", 0)
        assert result.fun >= -0.1


class TestRestarts:
    def test_a_function_with_many_minima_needs_them(self):
        options = {"budget": 60_000, "population_size": 20, "seed": 0, "target": 1e-4}
        assert minimize(rastrigin, HILLTOP, 2.0, restarts=0, **options).fun > 0.9
        assert minimize(rastrigin, HILLTOP, 2.0, **options).fun < 1e-4

    def test_the_population_doubles_or_is_small_and_both_share_the_budget(self):
        generations = []  # of each search
        count = lambda record: generations.append(record.generation)  # noqa: E731
        options = {"population_size": 10, "budget": 20_000, "callbacks": [count], "seed": 1}
        result = minimize(
            rastrigin, START, 1.0, **options
        )  # restarts of the sphere would soon agree
        ends = [k for k, number in enumerate(generations) if [*generations, 1][k + 1] == 1]
        sizes = [int(result.history["population_size"][end]) for end in ends]
        spent = [size * generations[end] for size, end in zip(sizes, ends, strict=True)]
        assert sizes[:2] == [10, 20]
        large = [k for k in range(1, len(sizes)) if sizes[k] > max(sizes[:k])]
        assert [sizes[k] for k in large] == [20 << k for k in range(len(large))]
        assert 0.3 < sum(spent[k] for k in large) / sum(spent[1:]) < 0.8
        assert result.restarts == len(sizes) - 1 > 4
        assert result.fun == min(result.history["generation_best"])
        assert result.history["best_fitness"] == sorted(
            result.history["best_fitness"], reverse=True
        )

    def test_a_narrow_search_begins_at_a_place_of_its_own(self):
        first = []  # records of the first generations
        keep = lambda record: first.append(record) if record.generation == 1 else None  # noqa: E731
        minimize(rastrigin, START, 1.0, budget=20_000, callbacks=[keep], seed=1)
        moves = [(x.mean - START).abs().max() for x in first if x.std_mean < 0.1]
        assert len(moves) > 4
        assert min(moves) > 0.2  # further than such a search moves in a generation

    def test_without_a_budget_two_searches_that_agree_end_it(self):
        result = minimize(sphere, START, 1.0, seed=1)
        assert (result.restarts, result.reason, result.success) == (1, "restarts_agree", True)
        assert result.evaluations < 3000
        assert minimize(sphere, START, 1.0, seed=1, restarts=3).restarts == 3
        assert minimize(sphere, START, 1.0, seed=1, restarts=0).evaluations < result.evaluations

    def test_within_a_budget_three_searches_that_agree_end_it(self):
        result = minimize(sphere, START, 1.0, budget=20_000, seed=1)
        assert (result.reason, result.message) == ("restarts_agree", "restarts found the same")
        assert result.evaluations < 8000
        assert minimize(rastrigin, HILLTOP, 2.0, budget=20_000, seed=1).reason == "budget"

    @pytest.mark.parametrize("name", ["xtol", "ftol"])
    def test_a_precision_that_is_asked_for_ends_the_search(self, name):
        coarse, fine = (
            minimize(sphere, START, 1.0, seed=1, **{name: tol}) for tol in (1e-2, 1e-6)
        )
        assert coarse.reason == fine.reason == name
        assert coarse.evaluations < fine.evaluations < 1000
        assert fine.fun < 1e-6
        assert coarse.fun < 1e-2

    def test_an_integer_has_no_precision(self):
        space = {"a": Int(0, 9), "b": Float(0.0, 1.0)}
        both = lambda p: abs(p["a"] - 3) + (p["b"] - 0.2) ** 2  # noqa: E731
        result = minimize(both, space, budget=3000, xtol=1e-4, seed=1)
        assert (result.reason, result.x["a"]) == ("xtol", 3)
        alone = minimize(
            lambda p: abs(p["a"] - 3), {"a": Int(0, 9)}, budget=100, xtol=1e-4, seed=1
        )
        assert alone.reason == "restarts_agree"
        assert alone.evaluations < 100  # A search evaluates none of the ten values twice.

    @pytest.mark.parametrize("std", [0.0, [0.0, 0.0, 0.0]])
    def test_where_nothing_can_move_nothing_is_searched(self, std):
        with pytest.raises(ValueError, match="expected std > 0"):
            minimize(sphere, START, std)


@pytest.mark.filterwarnings(
    "ignore:all .* candidates of generation", "ignore:every candidate of several"
)
class TestUndefined:
    """Where the function has no value: the search goes on elsewhere."""

    @pytest.mark.parametrize("bad", [math.inf, math.nan, None])
    def test_a_start_or_a_restart_without_a_value_does_not_end_the_search(self, bad):
        def positive(x):
            return (
                float(((x - 3) ** 2).sum()) if (x > 0).all() else 1 / 0 if bad is None else bad
            )

        options = {"vectorize": "loop", "catch": ZeroDivisionError, "seed": 0}
        for dim, budget in (
            (1, 800),
            (5, 2000),
        ):  # the seed of five parameters begins without a value
            result = minimize(positive, bounds=[(-10, 10)] * dim, budget=budget, **options)
            assert (result.success, result.fun < 1e-9, result.failures > 20) == (
                True,
                True,
                True,
            )

    @pytest.mark.parametrize("take", [np.array, torch.tensor])
    def test_without_bounds_it_looks_ever_further_away(self, take):
        where = np.where if take is np.array else torch.where
        far = lambda x: where((x > 40).all(-1), -((x - 50) ** 2).sum(-1), -math.inf)  # noqa: E731
        result = maximize(far, take([0.0, 0.0]), 1.0, budget=5000, seed=1)
        assert result.success
        assert abs(result.x - 50).max() < 1e-3
        assert math.isfinite(result.history["best_fitness"][-1])

    def test_a_start_at_a_bound_that_float32_rounds_does_not_end_the_search(self):
        """As a float32, 0.7 is less than 0.7."""
        where = lambda x: torch.where(x[:, 0] > 0.9, x.sum(-1), math.nan)  # noqa: E731
        result = minimize(where, torch.tensor([0.7]), 0.1, bounds=(0.7, 2), budget=100, seed=1)
        assert result.success

    def test_failures_end_a_search_one_after_another_alone(self):
        def fails_twice(x, generation):
            return sphere(x) if generation % 3 == 0 else x[:, 0] * math.nan

        options = {"with_generation": True, "restarts": 0, "budget": 400, "population_size": 8}
        assert minimize(fails_twice, START, 1.0, **options).reason == "budget"

    def test_a_resumed_search_is_the_one_that_was_not_stopped(self, tmp_path):
        options = {"bounds": [(-10, 10)] * 5, "budget": 1000, "seed": 0}
        positive = lambda x: np.where((x > 0).all(1), ((x - 3) ** 2).sum(1), np.nan)  # noqa: E731
        whole = minimize(positive, **options)
        minimize(positive, checkpoint=tmp_path, **options | {"budget": 500})
        resumed = minimize(positive, checkpoint=tmp_path, **options)
        assert (resumed.fun, resumed.restarts) == (whole.fun, whole.restarts)
        np.testing.assert_equal(resumed.history, whole.history)


def rosenbrock(x):
    """A long, oblique valley."""
    return (100 * (x[..., 1:] - x[..., :-1] ** 2) ** 2 + (1 - x[..., :-1]) ** 2).sum(-1)


class TestDefaults:
    @pytest.mark.parametrize(("dim", "evaluations"), [(2, 1200), (5, 4000)])
    def test_nothing_else_is_needed_in_a_valley(self, dim, evaluations):
        result = minimize(rosenbrock, np.zeros(dim), 1.0, target=1e-9, seed=1)
        assert (result.reason, result.restarts) == ("target", 0)
        assert result.evaluations < evaluations

    @pytest.mark.parametrize(
        ("dim", "options", "expected"),
        [
            (5, {}, (CEMConfig.cma(), 8, None)),
            (201, {"budget": 3000}, (CEMConfig.cma("diagonal"), 19, None)),
            (5, {"budget": 1e2}, (CEMConfig.cma(), 6, None)),
            (
                5,
                {"config": CEMConfig.cma("diagonal"), "budget": 1000},
                (CEMConfig.cma("diagonal"), 8, None),
            ),
            (5, {"config": CEMConfig(), "budget": 1000}, (CEMConfig(), 50, 0)),
            pytest.param(5, {"device": "cuda"}, (CEMConfig.cma(), 128, None), marks=ON_A_GPU),
            pytest.param(
                5,
                {"device": "cuda", "budget": 3000},
                (CEMConfig.cma(), 20, None),
                marks=ON_A_GPU,
            ),
        ],
    )
    def test_what_is_chosen_stands_in_the_result(self, dim, options, expected):
        result = minimize(sphere, torch.zeros(dim), 1.0, seed=1, target=1e9, **options)
        names = ("config", "population_size", "restarts")
        assert tuple(result.settings[name] for name in names) == expected

    @pytest.mark.parametrize("device", [pytest.param("cuda", marks=ON_A_GPU)])
    def test_a_gpu_evaluates_no_candidate_in_vain_that_is_evaluated_alone(self, device):
        calls = []

        def count(x):
            calls.append(1)
            return float(x.square().sum())

        # The target ends a search in the middle of its budget.
        options = {"device": device, "budget": 2000, "target": 1e-6, "seed": 1}
        alone = minimize(count, torch.ones(2), 1.0, vectorize="loop", **options)
        assert len(calls) == alone.evaluations
        together = minimize(sphere, torch.ones(2), 1.0, **options)
        size = together.settings["population_size"]
        assert together.evaluations == together.generations * size

    def test_noise_is_seen_and_the_mean_of_a_larger_population_is_the_answer(self):
        # Standard deviation 1 on a sphere in ten dimensions. A small population ends at a gap
        # of 0.4 and more (five seeds of five), this one at 0.04 (0.02 to 0.07).
        noise = torch.Generator().manual_seed(1)
        noisy = lambda x: sphere(x - 1.0) + torch.randn(len(x), generator=noise)  # noqa: E731
        result = minimize(noisy, torch.zeros(10), 2.0, budget=10_000, seed=1)
        assert result.settings["noise"]
        assert (result.settings["population_size"], result.restarts) == (66, 0)
        assert sphere(result.x - 1.0) < 0.2
        assert torch.equal(result.x, result.mean)

    def test_a_failure_of_the_first_mean_is_no_noise(self):
        calls = []

        def fails_once(x):
            calls.append(len(x))
            values = sphere(x - 1.0)
            # In the second generation the first candidate is the first mean again.
            return (
                values.index_fill(0, torch.tensor([0]), math.inf) if len(calls) == 2 else values
            )

        result = minimize(fails_once, torch.zeros(4), 1.0, budget=400, seed=1)
        assert not result.settings["noise"]
        assert result.fun < 1e-2

    @pytest.mark.parametrize(("options", "size"), [({"budget": 8}, 4), ({"restarts": 0}, 5)])
    def test_noise_costs_no_restart_and_is_nothing_to_a_budget_that_is_spent(
        self, options, size
    ):
        noise = torch.Generator().manual_seed(1)
        noisy = lambda x: sphere(x) + torch.randn(len(x), generator=noise)  # noqa: E731
        result = minimize(noisy, START, 1.0, seed=1, **{"budget": 100, **options})
        assert (result.settings["noise"], result.reason, result.restarts) == (True, "budget", 0)
        assert result.settings["population_size"] == size

    def test_bounds_give_a_start_and_a_smooth_map(self):
        # With clamped candidates the step size shrinks on the faces: a gap above 1e-4.
        shifted = lambda x: ((x - [0.0, 2.0]) ** 2).sum(-1)  # noqa: E731
        inside = minimize(shifted, bounds=[(-1, 3), (-4, 1)], budget=1000, seed=1)
        assert isinstance(inside.x, np.ndarray)
        assert inside.fun == pytest.approx(1.0, abs=1e-8)
        with pytest.raises(TypeError, match="expected mean and std, or bounds"):
            minimize(sphere)
        with pytest.raises(TypeError, match=r"unexpected option 'sigma0'; did you mean 'std'"):
            minimize(sphere, sigma0=1.0)

    def test_a_million_parameters_need_little_memory(self):
        resource = pytest.importorskip("resource", reason="Windows has no such count")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = minimize(sphere, torch.ones(1_000_000), 0.1, target=1e7, seed=1)
        assert result.evaluations == 45
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 3_000_000  # KiB

    @pytest.mark.parametrize(
        ("options", "kind", "dtype"),
        [
            ({}, np.ndarray, np.float64),
            ({"vectorize": "loop"}, np.ndarray, np.float64),
            ({"vectorize": True}, torch.Tensor, torch.float32),
            ({"dtype": torch.float64}, torch.Tensor, torch.float64),
            ({"device": "cpu"}, torch.Tensor, torch.float32),
        ],
    )
    def test_a_sequence_is_an_array_unless_tensors_are_wanted(self, options, kind, dtype):
        seen = []

        def objective(x):
            seen.append(x)
            return (x * x).sum(-1)

        result = minimize(objective, range(1, 3), 1.0, budget=20, seed=1, **options)
        assert all(isinstance(x, kind) for x in [*seen, result.x])
        assert (seen[-1].dtype, result.x.dtype) == (dtype, dtype)

    def test_an_array_of_integers_is_one_of_float64(self):
        result = minimize(lambda x: (x * x).sum(-1), np.array([1, 2]), 1.0, budget=20, seed=1)
        assert result.x.dtype == np.float64

    def test_the_mean_is_evaluated_first(self):
        seen = []
        minimize(lambda x: seen.append(x.clone()) or sphere(x), START, 1.0, budget=21, seed=1)
        assert torch.equal(seen[0][0], START)
        assert (
            len(torch.cat(seen).unique(dim=0)) == 19
        )  # of five generations of four: once more in the second
        result = minimize(
            lambda x: Evaluation(sphere(x - 3.0)), torch.full((2,), 3.0), 9.0, budget=40, seed=1
        )
        assert (result.x.tolist(), result.fun) == ([3.0, 3.0], 0.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mean": 1.0}, ValueError, r"expected mean of shape \(dim,\), dim >= 1, got \(\)"),
        ({"budget": 3}, ValueError, "expected budget >= 4, got 3"),
        (
            {"budgett": 3},
            TypeError,
            r"minimize\(\) got an unexpected option 'budgett'; did you mean 'budget'",
        ),
        (
            {"paths": True},
            TypeError,
            r"unexpected option 'paths': give it as config=CEMConfig\(paths=",
        ),
        ({"graph": True}, ValueError, "expected a search with backend 'cuda' for a CUDA graph"),
    ],
)
def test_wrong_arguments_are_refused(options, error, message):
    options = {"objective": sphere, "mean": [0.0, 0.0], "std": 1.0, **options}
    with pytest.raises(error, match=message):
        minimize(**options)


def test_every_option_is_seen_with_its_type_and_the_constructor_has_ten():
    for function in (minimize, maximize):
        parameters = inspect.signature(function).parameters
        assert {*parameters} == {"objective", "mean", "std", *Options.__annotations__}
        assert all(each.annotation is not each.empty for each in parameters.values())
    assert all(f"``{name}``" in minimize.__doc__ for name in Options.__annotations__)
    assert len(inspect.signature(CrossEntropyMethod).parameters) == 10


TYPED = """
import numpy as np, torch
from cem import minimize
reveal_type(minimize(len, np.zeros(2), 1.0, budget=1e4).x)
reveal_type(minimize(len, torch.zeros(2), 1.0).x)
minimize(len, [0.0], 1.0, budgett=3)
"""


@pytest.mark.slow
def test_mypy_sees_a_typo_and_what_comes_out(tmp_path):
    (tmp_path / "typed.py").write_text(TYPED)
    mypy = pytest.importorskip("mypy.api")
    out, _, _ = mypy.run(["--cache-dir", str(tmp_path / "cache"), str(tmp_path / "typed.py")])
    array, tensor, typo = (
        line for line in out.splitlines() if re.search("Revealed|Unexpected", line)
    )
    assert "numpy.ndarray" in array
    assert "torch._tensor.Tensor" in tensor
    assert "budgett" in typo


@pytest.mark.slow  # it measures time
def test_a_generation_costs_little_more_than_one_of_ask_and_tell():
    def by_hand():
        search = CrossEntropyMethod(torch.zeros(20), 1.0, 200, maximize=False, seed=1)
        for _ in range(100):
            candidates = search.ask()
            search.tell(candidates, sphere(candidates))

    def whole():
        minimize(
            sphere, torch.zeros(20), 1.0, population_size=200, budget=20_000, restarts=0, seed=1
        )

    times = {by_hand: [], whole: []}
    for _ in range(20):
        for search, taken in times.items():
            began = time.process_time()
            search()
            taken.append(time.process_time() - began)
    assert min(times[whole]) < 2 * min(times[by_hand])  # 1.3 to 1.45 on a machine of its own


class TestResume:
    SEARCHES: ClassVar = {
        "no seed": {},
        "double": {"seed": 3, "dtype": torch.float64},
        "recorded every third": {"seed": 3, "record_every": 3},
        "plain PyTorch": {"seed": 3, "dtype": torch.float64, "backend": "torch"},
    }

    def minimized(self, folder=None, callbacks=(), **options):
        torch.manual_seed(1)
        options = {"budget": 6000, "population_size": 10, "restarts": 3, **options}
        return minimize(sphere, START, 1.0, checkpoint=folder, callbacks=callbacks, **options)

    def test_a_search_goes_on_with_a_larger_budget(self, tmp_path):
        options = {"restarts": None, "seed": 3}
        self.minimized(tmp_path, budget=3000, **options)
        assert same(self.minimized(tmp_path, **options), self.minimized(**options))

    @pytest.mark.parametrize(
        ("options", "last", "ctrl_c"),
        [
            ("no seed", 2, True),
            ("double", 45, False),
            ("recorded every third", 200, False),
            ("plain PyTorch", 45, False),
        ],
    )
    def test_an_interrupted_search_is_resumed_bit_for_bit(
        self, tmp_path, options, last, ctrl_c
    ):
        options = self.SEARCHES[options]
        whole = self.minimized(**options)
        interrupted = self.minimized(tmp_path, [Interruption(last, ctrl_c)], **options)
        if interrupted.reason == ("signal" if ctrl_c else "requested"):
            assert interrupted.evaluations < whole.evaluations
            assert interrupted.restarts < whole.restarts
            assert same(self.minimized(tmp_path, **options), whole)
        else:  # it ended before
            assert same(interrupted, whole)
        torch.rand(5)  # torch's generator is elsewhere by then
        with pytest.warns(
            RuntimeWarning, match="had ended: this is its result, without a new evaluation"
        ):
            assert same(self.minimized(tmp_path, **options), whole)

    def test_lines_after_the_checkpoint_are_not_counted(self, tmp_path):
        whole = self.minimized(seed=3, restarts=0)
        self.minimized(tmp_path, [Interruption(20)], seed=3, restarts=0)
        metrics = tmp_path / "restart-000" / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True)
        # As after a crash: the lines of generations of which there is no checkpoint, and a torn
        # one.
        later = lines[-1].replace('"generation": 20', '"generation": 21')
        metrics.write_text("".join([*lines, later, later[:40]]))
        assert same(self.minimized(tmp_path, seed=3, restarts=0), whole)

    def test_a_folder_of_another_search_is_refused(self, tmp_path):
        self.minimized(tmp_path, seed=3)
        with pytest.raises(CheckpointError, match="another run: expected seed = 4, got 3"):
            self.minimized(tmp_path, seed=4)
        with pytest.raises(
            CheckpointError, match="another run: expected population_size = 20, got 10"
        ):
            self.minimized(tmp_path, seed=3, population_size=20)
        with pytest.raises(CheckpointError, match="belongs to another run: expected bound_h"):
            self.minimized(tmp_path, seed=3, bounds=(-9, 9))
        for objective, std, name in ((sphere, 2.0, "std"), (rosenbrock, 1.0, "objective")):
            with pytest.raises(
                CheckpointError, match=f"belongs to another run: expected {name} ="
            ):
                minimize(objective, START, std, population_size=10, seed=3, checkpoint=tmp_path)

    def interrupted(self, folder, *stops):
        """Searches in a folder, one after the other; a signal ends each at a number of all
        evaluations."""
        calls = []

        def objective(x):
            calls.append(x.numpy().tobytes())
            if len(calls) in stops:
                signal.raise_signal(signal.SIGTERM)
            return float(sphere(x)) if calls[-1][0] % 4 else 1 / 0

        options = {
            "vectorize": "loop",
            "catch": ZeroDivisionError,
            "restarts": 0,
            "budget": 200,
            "seed": 3,
        }
        searches = range(len(stops) + 1)
        return [
            minimize(objective, START, 1.0, checkpoint=folder, **options) for _ in searches
        ], calls

    def test_no_candidate_is_evaluated_twice_however_often_a_search_is_interrupted(
        self, tmp_path
    ):
        (whole,), expected = self.interrupted(None)
        results, calls = self.interrupted(tmp_path, 3, 47, 49, 158)
        assert [each.reason for each in results] == ["signal"] * 4 + ["budget"]
        assert calls == expected
        assert same(results[-1], whole)

    def test_a_resumed_search_counts_failures_and_evaluations_of_before(self, tmp_path):
        (whole,), _ = self.interrupted(None)
        results, _ = self.interrupted(tmp_path, 21, 43)
        assert [each.evaluations for each in results] == [21, 43, whole.evaluations]
        assert results[-1].failures == whole.failures > 0

    def test_an_asynchronous_search_goes_on_from_its_journal_and_is_what_it_has_told(
        self, tmp_path, monkeypatch
    ):
        calls = []
        told = []
        tell = CrossEntropyMethod.tell

        def recorded_tell(optimizer, candidates, fitness, **options):
            told.extend(zip(candidates.tolist(), fitness.tolist(), strict=True))
            tell(optimizer, candidates, fitness, **options)

        monkeypatch.setattr(CrossEntropyMethod, "tell", recorded_tell)

        def objective(x):
            calls.append(x.tolist())
            if len(calls) in (30, 31, 77):
                signal.raise_signal(signal.SIGTERM)
            return float(sphere(torch.from_numpy(x)))

        def journalled():
            path = tmp_path / "restart-000" / "evaluations.journal"
            header = json.loads(path.read_bytes().split(b"\n")[0])
            journal = Journal(path, header, 0)
            journal.close()
            known = journal.known
            return [(k, x.tolist(), fitness) for k in known for x, fitness in known[k]]

        options = {"population_size": 8, "budget": 160, "restarts": 0, "checkpoint": tmp_path}
        result, reasons, lines = None, [], []
        with ThreadPoolExecutor(1) as one:
            one._max_workers = 5  # five candidates are asked ahead
            while not reasons or reasons[-1] == "signal":
                before, evaluated = len(calls), [x for _, x, _ in lines]
                result = minimize(
                    objective, np.ones(3), 1.0, workers=one, asynchronous=True, **options
                )
                reasons.append(result.reason)
                lines = journalled()
                assert not any(x in evaluated for x in calls[before:])
                assert [x for _, x, _ in lines[: len(evaluated)]] == evaluated
        assert len(reasons) > 1
        assert [generation for generation, *_ in lines] == [k // 8 for k in range(160)]
        assert told == [(x, fitness) for _, x, fitness in lines]
        best = min(fitness for *_, fitness in lines)
        assert (result.fun, result.generations) == (best, 20)

    @pytest.mark.parametrize("last", [1, 2])
    def test_noise_is_seen_though_the_search_was_stopped_before_the_second_generation(
        self, tmp_path, last
    ):
        def noisy(x, generation):
            return sphere(x) + torch.cos(1e3 * (torch.arange(len(x)) + generation))

        options = {"with_generation": True, "budget": 2000, "seed": 1}
        whole = minimize(noisy, START, 1.0, **options)
        minimize(
            noisy, START, 1.0, checkpoint=tmp_path, callbacks=[Interruption(last)], **options
        )
        resumed = minimize(noisy, START, 1.0, checkpoint=tmp_path, **options)
        assert resumed.settings["noise"]
        assert same(resumed, whole)

    def test_evaluations_of_another_objective_are_no_values_of_this_one(self, tmp_path):
        options = {
            "population_size": 8,
            "restarts": 0,
            "vectorize": "loop",
            "seed": 3,
            "checkpoint": tmp_path,
        }
        minimize(lambda x: float(sphere(x)), START, 1.0, budget=8, **options)
        for path in (tmp_path / "restart-000").glob(
            "checkpoint-*"
        ):  # as if killed in the first generation
            path.unlink()
        with pytest.raises(CheckpointError):
            minimize(lambda x: 9 + float(rosenbrock(x)), START, 1.0, budget=80, **options)


@pytest.mark.parametrize("search", [minimize, maximize])
def test_the_value_of_a_noisy_objective_is_the_mean_of_the_last_elites(search):
    noise = torch.Generator().manual_seed(1)
    sign = 1.0 if search is minimize else -1.0
    noisy = lambda x: sign * sphere(x) + torch.randn(len(x), generator=noise)  # noqa: E731
    records = []
    result = search(noisy, torch.ones(3), 1.0, budget=300, callbacks=[records.append], seed=1)
    assert result.settings["noise"]
    assert result.fun == records[-1].elite_mean
    assert sign * result.fun > sign * result.history["best_fitness"][-1]  # the best by chance
    assert torch.equal(result.x, result.mean)


@pytest.mark.filterwarnings("ignore:(all|every) .*:RuntimeWarning")
def test_the_value_of_a_noisy_objective_is_known_if_the_last_generation_failed():
    noise = torch.Generator().manual_seed(1)
    calls = []

    def breaks_down(x):
        calls.append(x)
        value = sphere(x) + torch.randn(len(x), generator=noise)
        return value if len(calls) < 20 else value * math.nan

    result = minimize(breaks_down, torch.ones(3), 1.0, budget=300, seed=1, vectorize=False)
    means = [mean for mean in result.history["elite_mean"] if math.isfinite(mean)]
    assert (result.settings["noise"], result.reason, result.fun) == (True, "failed", means[-1])


def test_the_history_counts_the_evaluations_of_all_restarts():
    result = minimize(lambda x: sphere(x) * 0.0, START[:2], 1.0, budget=600, seed=1)
    counts, sizes = result.history["evaluations"], result.history["population_size"]
    assert result.restarts >= 2
    assert np.diff([0, *counts]).tolist() == sizes  # a generation each
    assert counts[-1] == result.evaluations


def test_the_first_standard_deviation_is_a_quarter_of_the_width_of_the_bounds():
    seen = []

    def constant(x):
        seen.append(x)
        return x[:, 0] * 0.0

    config = CEMConfig(bound_handling="clamp")
    minimize(
        constant,
        bounds=[(0, 4), (-40, 40)],
        population_size=4000,
        budget=4000,
        config=config,
        seed=1,
    )
    assert seen[0][0].tolist() == [2.0, 0.0]  # the middle
    # Clamped at two standard deviations a normal has one of 0.9594; its estimate has an error
    # of 0.01.
    assert (seen[0].std(axis=0) / 0.9594).tolist() == pytest.approx([1.0, 20.0], rel=0.05)


def ended(population_size, evaluations, *, is_large=True):
    """A search that has ended, as a policy of restarts sees it."""
    attempt = Attempt(population_size, 5000, is_large=is_large)
    return Ended(attempt, None, Reason.STD, evaluations)


def test_a_small_search_may_use_half_as_much_as_the_last_large_one():
    policy, searches = Bipop(), [ended(8, 800)]
    assert policy.next_attempt(searches, 5000, 1) == Attempt(16, 5000)
    searches.append(ended(16, 1000))
    small = policy.next_attempt(searches, 4000, 1)
    assert (small.population_size, small.budget, small.is_large) == (8, 500, False)
    assert 0.01 < small.scale < 1.0
    searches.append(ended(8, 400, is_large=False))
    again = policy.next_attempt(searches, 3600, 1)  # 400 are fewer than 1,000
    assert (again.population_size, again.budget, again.is_large) == (8, 500, False)
    assert again.scale != small.scale
    searches.append(ended(8, 700, is_large=False))
    assert policy.next_attempt(searches, 2900, 1) == Attempt(32, 2900)
    searches.append(ended(32, 2000))
    sizes = {policy.next_attempt(searches, 900, seed).population_size for seed in range(99)}
    assert (min(sizes), max(sizes)) == (8, 15)  # below half of 32
    assert policy.next_attempt(searches, 900, 1).budget == 1000


def test_searches_agree_with_those_since_the_last_other_value():
    agreement = Agreement(3.0)
    best = None
    holds = []
    for fun in (1.0, 1.0, 0.5, 0.5, 0.5, 0.5):
        found = SimpleNamespace(best_fitness=fun)
        search = dataclasses.replace(ended(8, 80), optimizer=found)
        holds.append(agreement.holds_after(search, best, 1.0))
        best = fun
    assert holds == [False] * 5 + [True]


def test_a_later_search_is_steeper_after_each_divergence_and_as_wide_in_all():
    start = np.zeros(400)
    plan = choose_plan(sphere, start, 1.0, False, complete_options("minimize", {"seed": 1}))
    diverged = Ended(Attempt(8, 80), None, Reason.DIVERGED, 80)
    for steepness in (10.0, 100.0):
        plan = _adapt_plan(plan, diverged, plan.start, False)
        assert plan.steepness == steepness
    drawn = _draw_start(plan, Attempt(8, 80, scale=0.6), 1)
    assert float(drawn.std) == pytest.approx(0.6)
    assert drawn.mean.std() == pytest.approx(0.8, rel=0.1)  # 0.6^2 + 0.8^2 = 1


def test_the_policy_of_restarts_can_be_exchanged():
    options = {"budget": 3000, "population_size": 8, "seed": 1, "record_every": 1}
    result = minimize(lambda x: sphere(x) * 0.0, START[:2], 1.0, restarts=Ipop(), **options)
    sizes = sorted({*result.history["population_size"]})
    assert sizes == [8, 16, 32, 64, 128][: len(sizes)]
    assert result.restarts == len(sizes) - 1 >= 2


def test_the_print_says_what_the_result_says():
    result = minimize(
        sphere, torch.ones(3), 1.0, population_size=8, restarts=0, budget=1600, seed=1
    )
    lines = dict(line.split(": ", 1) for line in repr(result).splitlines())
    counts = f"{result.evaluations:,} in {result.generations:,} generations"
    assert lines["evaluations"].startswith(f"{counts}, ")
    assert result.evaluations == 8 * result.generations
    assert lines["message"] == f"{result.message} ({result.reason!r})"
    assert lines["fun"] == f"{result.fun:.6g}"
    assert lines["settings"].startswith(
        "full covariance, evolution paths, 8 candidates per generation"
    )
