import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cem import Bool, CEMConfig, Choice, Float, Int, Permutation, maximize, minimize
from cem.families import Categorical
from cem.space import Space

SPACE = {
    "rate": Float(1e-5, 1e-1, log=True),
    "layers": Int(1, 8),
    "width": Int(8, 512, log=True),
    "activation": Choice("relu", "gelu", None),
    "bias": Bool(),
    "order": Permutation(3),
    "epochs": 10,
}


def loss(p):
    assert p["epochs"] == 10
    assert 1e-5 <= p["rate"] <= 1e-1
    assert isinstance(p["layers"], int)
    order = sum(abs(item - place) for place, item in enumerate(p["order"]))
    return (
        (math.log10(p["rate"]) + 3) ** 2
        + (p["layers"] - 5) ** 2
        + math.log2(p["width"] / 64) ** 2
        + (p["activation"] is not None)
        + (p["bias"] is False)
        + order
    )


def batch_loss(p):
    assert p["epochs"] == 10
    assert p["bias"].dtype in (torch.bool, np.bool_)
    log10, log2 = (
        (torch.log10, torch.log2)
        if isinstance(p["rate"], torch.Tensor)
        else (np.log10, np.log2)
    )
    order = sum(abs(p["order"][:, place] - place) for place in range(3))
    numbers = (log10(p["rate"]) + 3) ** 2 + (p["layers"] - 5) ** 2 + log2(p["width"] / 64) ** 2
    return numbers + (p["activation"] != 2) + ~p["bias"] + order


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": False}, {"vectorize": False, "backend": "torch"}]
)
def test_named_parameters_are_searched(options):
    result = minimize(batch_loss if options else loss, SPACE, budget=2500, seed=1, **options)
    assert result.x["rate"] == pytest.approx(1e-3, rel=1e-2)
    expected = {
        "layers": 5,
        "width": 64,
        "activation": None,
        "bias": True,
        "order": [0, 1, 2],
        "epochs": 10,
    }
    assert {name: result.x[name] for name in expected} == expected
    assert list(result.x) == list(SPACE)
    assert result.fun == pytest.approx(loss(result.x))
    assert "'activation': None" in repr(result)
    assert set(result.std) == set(SPACE) - {"epochs"}


def test_the_first_candidate_is_the_given_one_and_maximize_is_the_other_way():
    seen = []
    first = {"rate": 0.02, "layers": 2, "activation": "gelu", "bias": True, "order": [2, 0, 1]}

    def gain(p):
        seen.append(p)
        return -loss(p)

    minimum = minimize(loss, SPACE, budget=300, x0=first, seed=3)
    maximum = maximize(gain, SPACE, budget=300, x0=first, seed=3)
    assert (minimum.x, minimum.fun) == (maximum.x, -maximum.fun)
    assert seen[0].pop("rate") == pytest.approx(0.02)
    assert seen[0] == {
        **{name: first[name] for name in seen[0] if name in first},
        "width": 62,
        "epochs": 10,
    }


def fails_without_bias(p):
    if not p["bias"]:
        raise RuntimeError("no bias")
    return loss(p)


def test_processes_and_failures_change_nothing(tmp_path):
    options = {"budget": 300, "population_size": 12, "catch": RuntimeError, "seed": 1}
    alone = minimize(fails_without_bias, SPACE, **options)
    assert alone.failures > 10
    assert alone.x["bias"] is True
    with_workers = minimize(fails_without_bias, SPACE, workers=2, **options)
    assert (with_workers.x, with_workers.failures) == (alone.x, alone.failures)
    half = minimize(
        fails_without_bias, SPACE, checkpoint=tmp_path, **{**options, "budget": 100}
    )
    whole = minimize(fails_without_bias, SPACE, checkpoint=tmp_path, **options)
    assert half.evaluations < whole.evaluations
    assert (whole.x, whole.history["best_fitness"]) == (alone.x, alone.history["best_fitness"])


def test_without_a_success_each_value_is_nan():
    result = minimize(loss, SPACE, time_limit_s=0, seed=1)
    unknown = dict.fromkeys(SPACE, math.nan)
    assert repr(result.x) == repr({**unknown, "epochs": 10})
    assert (result.reason, result.evaluations) == ("time_limit", 0)


def test_choices_alone_are_a_space():
    result = minimize(
        lambda p: sum(p.values()),
        {str(i): Choice(3, 1, 2) for i in range(6)},
        seed=1,
        budget=600,
    )
    assert set(result.x.values()) == {1}


WORTH, WEIGHT = (
    np.array([60, 100, 120, 30, 70, 90, 40, 55]),
    np.array([10, 20, 30, 6, 15, 21, 9, 12]),
)
SACK = {**{str(i): Bool() for i in range(8)}, "first": Permutation(3)}


def of_one(numbers):
    return lambda p: sum(int(n) for n, i in zip(numbers, p, strict=False) if p[i] is True)


def by_column(numbers):
    return lambda p: sum(n * p[str(i)] for i, n in enumerate(numbers))


@pytest.mark.parametrize(("vectorize", "total"), [(None, of_one), (False, by_column)])
def test_a_knapsack_is_filled_by_a_function_as_constraint(vectorize, total, tmp_path):
    """By all 256 subsets the most within 60 is 300; seeds 0 to 19 find it."""
    seen = []

    def constraint(p):
        seen.append(p)
        return total(WEIGHT)(p) - 60

    options = {
        "constraints": [constraint],
        "vectorize": vectorize,
        "population_size": 20,
        "seed": 1,
    }
    options["checkpoint"] = tmp_path
    first = {"0": True, "7": True, "first": [2, 0, 1]}
    maximize(total(WORTH), SACK, x0=first, budget=200, **options)
    result = maximize(total(WORTH), SACK, x0=first, budget=2000, **options)
    best = max(
        WORTH[bits].sum()
        for bits in np.indices((2,) * 8).reshape(8, -1).T > 0
        if WEIGHT[bits].sum() <= 60
    )
    assert (result.fun, result.violation) == (best, 0.0)
    assert total(WEIGHT)(result.x) <= 60
    row = (
        seen[0]
        if vectorize is None
        else {name: column[0].tolist() for name, column in seen[0].items()}
    )
    assert row == {**{str(i): i in (0, 7) for i in range(8)}, "first": [2, 0, 1]}


@pytest.mark.parametrize("vectorize", [None, False])
def test_constraints_of_scipy_get_named_parameters(vectorize):
    optimize = pytest.importorskip("scipy.optimize")
    space = {"a": Float(0, 10), "b": Int(1, 9)}
    total = lambda p, least=0: p["a"] + p["b"] - least  # noqa: E731
    forms = [
        optimize.NonlinearConstraint(total, 5, np.inf),
        {"type": "ineq", "fun": total, "args": (5,)},
    ]
    for form in forms:
        result = minimize(
            lambda p: p["a"] ** 2 + 2 * p["b"],
            space,
            constraints=form,
            budget=1000,
            vectorize=vectorize,
            seed=1,
        )
        assert result.x == {"a": pytest.approx(1), "b": 4}


def test_a_matrix_does_not_constrain_a_dict():
    linear = SimpleNamespace(
        A=np.ones((1, 8)), lb=0, ub=3
    )  # as scipy.optimize.LinearConstraint has them
    with pytest.raises(TypeError, match="a matrix does not know the parameters' names"):
        minimize(loss, SPACE, constraints=[linear], seed=1)
    with pytest.raises(TypeError, match="expected neither std, bounds, integers nor families"):
        minimize(loss, SPACE, config=CEMConfig.cma(families=[Permutation(3)]), seed=1)


def test_families_stand_beside_a_numeric_mean():
    def distance(x):
        return (x[:, :2] - 1).square().sum(-1) + (x[:, 2:] - torch.arange(4)).abs().sum(-1)

    config = CEMConfig.cma(families=[Permutation(4)])
    result = minimize(
        distance, torch.zeros(2), 1.0, config=config, budget=2000, restarts=0, seed=1
    )
    assert result.x.tolist() == pytest.approx([1, 1, 0, 1, 2, 3], abs=1e-3)
    alone = minimize(
        lambda x: distance(torch.nn.functional.pad(x, (2, 0), value=1.0)),
        torch.zeros(0),
        1.0,
        config=config,
        budget=500,
        seed=1,
    )
    assert alone.fun == 0.0


def test_values_become_columns_and_back():
    space = Space(SPACE)
    values = {
        "rate": 1e-4,
        "layers": 8,
        "width": 100,
        "activation": None,
        "bias": False,
        "order": [1, 2, 0],
    }
    found = space.decode(space.encode(values))
    assert found.pop("rate") == pytest.approx(1e-4)
    assert found == {**{name: values[name] for name in found if name in values}, "epochs": 10}
    highest = Space({"x": Float(np.int64(1), 3)}).decode(np.array([9.0]))["x"]
    assert (type(highest), highest) == (float, 3)
    assert Choice(torch.zeros(2), torch.ones(2)).index(torch.ones(2)) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(1.0, 0.5), "expected high finite and >= 1"),
        (lambda: Float(1.0, 2.0, log=True, step=0.5), "expected log or step, got both"),
        (lambda: Float(1.0, 2.0, step=0.0), "expected step finite and > 0"),
        (lambda: Choice(), "expected one choice or more"),
        (lambda: Choice("a", "a"), "expected choices that differ"),
        (lambda: Choice(["a", [1], [1]]), "expected choices that differ"),
        (
            lambda: minimize(loss, SPACE, x0={"epochs": 20}),
            "expected epochs=10, which is fixed, got 20",
        ),
        (lambda: Float(0.0, 1.0, log=True), "expected low finite and > 0"),
        (lambda: Int(3, 2), "expected high from 3 to"),
        (lambda: minimize(loss, {"epochs": 10}), "expected Float, Int, Choice"),
        (lambda: minimize(loss, SPACE, x0={"layer": 2}), "layers"),
        (lambda: minimize(loss, SPACE, x0={"bias": 3}), "expected bias out of"),
        (
            lambda: minimize(loss, SPACE, x0={"order": [0, 0, 1]}),
            "expected order as an order of 0",
        ),
        (lambda: minimize(loss, SPACE, vectorize=True), "'loop' or False"),
        (lambda: Space({"k": Int(0, 5)}).encode({"k": 2.5}), "expected k of Int"),
        (lambda: Space({"k": Float(0, 1, step=0.5)}).encode({"k": 0.3}), "expected k of Float"),
    ],
)
def test_a_wrong_space_is_told_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("choice", "values"),
    [
        (Choice(["a", "b"]), ("a", "b")),
        (Choice(range(3)), (0, 1, 2)),
        (Choice(np.array(["a", "b"])), ("a", "b")),
        (Choice("ab"), ("ab",)),
        (Choice(["a"], ["b", "c"]), (["a"], ["b", "c"])),
        (Choice(1, True, 1.0), (1, True, 1.0)),
    ],
)
def test_a_list_alone_holds_the_choices(choice, values):
    assert choice.values == values
    space = Space({"x": choice, "y": Float(0, 1)})
    for value in values:
        found = space.decode(space.encode({"x": value}))["x"]
        assert found is value or (found == value and type(found) is type(value))


@pytest.mark.parametrize("alone", [{"a", "b"}, {"a": 1}, (x for x in "ab")])
def test_choices_without_an_order_are_refused(alone):
    with pytest.raises(TypeError, match="expected choices one by one, or in a list or tuple"):
        Choice(alone)


def test_a_number_of_equal_ends_is_fixed_and_a_result_is_a_start():
    data = np.arange(3.0)
    space = {
        "x": Float(-1, 2),
        "one": Int(3, 3),
        "half": Float(0.5, 0.5),
        "two": Float(2, 2.4, step=0.5),
    }

    def f(p):
        assert (p["one"], p["half"], p["two"]) == (3, 0.5, 2)
        return (p["x"] - p["half"]) ** 2 + p["data"].sum()

    first = minimize(f, {**space, "data": data}, budget=60, seed=1)
    again = minimize(f, {**space, "data": data}, x0=first.x, budget=60, seed=2)
    assert again.fun <= first.fun


@pytest.mark.parametrize("vectorize", ["loop", False])
def test_a_float_with_steps_lies_on_a_grid(vectorize):
    seen = set()
    space = {"thickness": Float(0.0625, 6.2, step=0.0625), "x": Float(-1, 2)}

    def f(p):
        seen.update(np.atleast_1d(p["thickness"]).tolist())
        return abs(p["thickness"] - 0.7) + p["x"] ** 2

    result = minimize(
        f, space, x0={"thickness": 6.1875}, vectorize=vectorize, budget=600, seed=1
    )
    assert result.x["thickness"] == 0.6875
    assert (result.mean["thickness"] / 0.0625).is_integer()
    assert max(seen) == 6.1875
    assert all((value / 0.0625).is_integer() for value in seen)
    assert Space(space).spread(np.array([2.0, 1.0])) == {"thickness": 0.125, "x": 1.0}


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_values_by_column_are_within_their_ends_and_those_of_the_candidates(kind):
    space = Space(
        {"share": Float(0.1, 0.7, log=True), "width": Int(1, 7, log=True), "layers": Int(2, 5)}
    )
    (low, high), (narrow, wide), _ = space.bounds
    rows = [
        [low - 1e-9, narrow, 1.0],
        [high + 1e-9, wide, 6.0],
        [math.log(0.2), math.log(3), 4.0],
    ]
    x = kind(rows, dtype=torch.float64 if kind is torch.tensor else float)
    values = {name: column.tolist() for name, column in space.by_column(x).items()}
    assert values["share"][:2] == [0.1, 0.7]
    assert (values["width"], values["layers"]) == ([1, 7, 3], [2, 5, 4])
    for number, row in enumerate(x):
        assert space.decode(row) == pytest.approx(
            {name: each[number] for name, each in values.items()}
        )


def test_ends_of_integers_leave_each_value_the_same_room():
    space = Space(
        {"layers": Int(2, 5), "width": Int(1, 8, log=True), "rate": Float(0.1, 10.0, log=True)}
    )
    ends = [math.log(end) for end in (0.5, 8.5, 0.1, 10.0)]
    assert [x for pair in space.bounds[1:] for x in pair] == pytest.approx(ends)
    assert (space.mean[0], space.std[0]) == (3.5, 0.75)
    assert (space.bounds[0], space.discrete["integers"]) == ((2.0, 5.0), [True, False, False])


def test_another_family_is_no_constant() -> None:
    with pytest.raises(TypeError, match="expected a parameter for 'kind', got the family"):
        Space({"x": Float(0.0, 1.0), "kind": Categorical((3, 3))})
    with pytest.raises(TypeError, match=r"expected Bool\(\) for 'bias'"):
        Space({"x": Float(0.0, 1.0), "bias": Bool})
