"""scripts/measure/behaviour.py: awkward fitness, and what optimisers make of it."""

from __future__ import annotations

import numpy as np
import pytest
from measure import behaviour
from measure.behaviour import FITNESS, OPTIMISERS, Ours, TenLines, outcome, resumes, sphere


@pytest.mark.parametrize("case", ["nan", "inf", "integer"])
def test_ours_finds_the_optimum_whatever_the_fitness_is(case: str) -> None:
    told = outcome(Ours, case, 1)
    assert told["refused"] == []
    assert told["error"] < 2e-3  # a millionth of squared distance is 1e-3


def test_ours_refuses_a_generation_of_failures_and_goes_on() -> None:
    told = outcome(Ours, "failed", 1)
    assert len(told["refused"]) == 1
    assert "ValueError: expected at least one candidate" in told["refused"][0]
    assert told["error"] < 1e-3


def test_ours_stays_within_bounds() -> None:
    told = outcome(Ours, "bounds", 1)
    assert told["outside"] == 0
    assert told["error"] < 1e-3


def test_a_constant_fitness_tells_what_becomes_of_the_deviation() -> None:
    assert 0 < outcome(TenLines, "plateau", 1)["std_ratio"] < outcome(Ours, "plateau", 1)["std_ratio"]


def test_a_copy_that_draws_something_else_does_not_resume() -> None:
    class Forgetful(TenLines):
        def __setstate__(self, state: dict[str, object]) -> None:
            self.__dict__ = {**state, "_generator": np.random.default_rng(7)}

    globals()["Forgetful"] = Forgetful  # pickle looks for classes in their module
    Forgetful.__qualname__ = "Forgetful"
    assert resumes(TenLines(1, None))
    assert not resumes(Forgetful(1, None))


def test_an_optimiser_that_has_no_bounds_says_so() -> None:
    def without(seed: int, bounds: behaviour.Bounds) -> TenLines:
        if bounds is not None:
            raise NotImplementedError("no bounds")
        return TenLines(seed, bounds)

    assert outcome(without, "bounds", 1) == {"refused": ["no bounds"]}


def test_half_of_the_first_generation_fails() -> None:
    candidates = TenLines(1, None).ask()
    fitness = FITNESS["nan"](candidates, 0)
    assert 5 < np.isnan(fitness).sum() < 35
    assert (fitness[~np.isnan(fitness)] == sphere(candidates)[~np.isnan(fitness)]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_takes_every_case(name: str) -> None:
    module, make = OPTIMISERS[name]
    if module:
        pytest.importorskip(module)
    told = {case: outcome(make, case, 1) for case in (*FITNESS, "resume")}
    assert told["inf"]["error"] < 0.1
    assert all(np.isfinite(each["std_ratio"]) for each in told.values() if "std_ratio" in each)
