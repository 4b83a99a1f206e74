import math

import numpy as np
import pytest
import torch

from cem import Bool, CEMConfig, Choice, Float, Int, Permutation, maximize, minimize
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
    log10, log2 = (torch.log10, torch.log2) if isinstance(p["rate"], torch.Tensor) else (np.log10, np.log2)
    order = sum(abs(p["order"][:, place] - place) for place in range(3))
    numbers = (log10(p["rate"]) + 3) ** 2 + (p["layers"] - 5) ** 2 + log2(p["width"] / 64) ** 2
    return numbers + (p["activation"] != 2) + ~p["bias"] + order


@pytest.mark.parametrize("options", [{}, {"vectorize": False}, {"vectorize": False, "backend": "torch"}])
def test_named_parameters_are_searched(options):
    result = minimize(batch_loss if options else loss, SPACE, budget=2500, seed=1, **options)
    assert result.x["rate"] == pytest.approx(1e-3, rel=1e-2)
    expected = {"layers": 5, "width": 64, "activation": None, "bias": True, "order": [0, 1, 2], "epochs": 10}
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
    assert seen[0] == {**{name: first[name] for name in seen[0] if name in first}, "width": 62, "epochs": 10}


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
    half = minimize(fails_without_bias, SPACE, checkpoint=tmp_path, **{**options, "budget": 100})
    whole = minimize(fails_without_bias, SPACE, checkpoint=tmp_path, **options)
    assert half.evaluations < whole.evaluations
    assert (whole.x, whole.history["best_fitness"]) == (alone.x, alone.history["best_fitness"])


def test_choices_alone_are_a_space():
    result = minimize(
        lambda p: sum(p.values()), {str(i): Choice(3, 1, 2) for i in range(6)}, seed=1, budget=600
    )
    assert set(result.x.values()) == {1}


WORTH, WEIGHT = np.array([60, 100, 120, 30, 70, 90, 40, 55]), np.array([10, 20, 30, 6, 15, 21, 9, 12])
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

    options = {"constraints": [constraint], "vectorize": vectorize, "population_size": 20, "seed": 1}
    options["checkpoint"] = tmp_path
    first = {"0": True, "7": True, "first": [2, 0, 1]}
    maximize(total(WORTH), SACK, x0=first, budget=200, **options)
    result = maximize(total(WORTH), SACK, x0=first, budget=2000, **options)
    best = max(
        WORTH[bits].sum() for bits in np.indices((2,) * 8).reshape(8, -1).T > 0 if WEIGHT[bits].sum() <= 60
    )
    assert (result.fun, result.violation) == (best, 0.0)
    assert total(WEIGHT)(result.x) <= 60
    row = seen[0] if vectorize is None else {name: column[0].tolist() for name, column in seen[0].items()}
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
    linear = pytest.importorskip("scipy.optimize").LinearConstraint(np.ones((1, 8)), 0, 3)
    with pytest.raises(TypeError, match="of which a matrix does not know the names, got"):
        minimize(loss, SPACE, constraints=[linear], seed=1)
    with pytest.raises(TypeError, match="expected neither std, bounds, integers nor families"):
        minimize(loss, SPACE, config=CEMConfig.cma(families=[Permutation(3)]), seed=1)


def test_families_stand_beside_a_numeric_mean():
    def distance(x):
        return (x[:, :2] - 1).square().sum(-1) + (x[:, 2:] - torch.arange(4)).abs().sum(-1)

    config = CEMConfig.cma(families=[Permutation(4)])
    result = minimize(distance, torch.zeros(2), 1.0, config=config, budget=2000, restarts=0, seed=1)
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
    values = {"rate": 1e-4, "layers": 8, "width": 100, "activation": None, "bias": False, "order": [1, 2, 0]}
    found = space.decode(space.encode(values))
    assert found.pop("rate") == pytest.approx(1e-4)
    assert found == {**{name: values[name] for name in found if name in values}, "epochs": 10}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(1.0, 1.0), "expected high finite and > 1"),
        (lambda: Float(0.0, 1.0, log=True), "expected low finite and > 0"),
        (lambda: Int(3, 2), "expected high from 4 to"),
        (lambda: minimize(loss, {"epochs": 10}), "expected Float, Int, Choice"),
        (lambda: minimize(loss, SPACE, x0={"layer": 2}), "layers"),
        (lambda: minimize(loss, SPACE, x0={"bias": 3}), "expected bias out of"),
        (lambda: minimize(loss, SPACE, x0={"order": [0, 0, 1]}), "expected order as an order of 0"),
        (lambda: minimize(loss, SPACE, vectorize=True), "'loop' or False"),
    ],
)
def test_a_wrong_space_is_told_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
