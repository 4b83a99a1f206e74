"""scripts/measure/bbob.py: runs, shares, and what is written."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measure import bbob, bbob_searches
from measure.bbob import Run, summary
from measure.bbob_searches import SEARCHES, Search
from measure.objective import Objective, Spent

Script = Callable[..., Any]
needs_bbob = pytest.mark.skipif(importlib.util.find_spec("cocoex") is None, reason="needs coco-experiment")


def sphere(x: Any) -> Any:
    return (x * x).sum(-1)


def a_run(gap: float, function: int = 1, instance: int = 1, collapsed: bool | None = False) -> Run:
    return Run(function, instance, gap, collapsed, 100, 0.5)


def test_an_objective_counts_and_remembers_the_best() -> None:
    objective = Objective(sphere, 2)
    assert objective(np.array([[3.0, 0.0], [1.0, 1.0]])).tolist() == [9.0, 2.0]
    objective(np.array([[2.0, 0.0]]))
    assert (objective.evaluations, objective.best) == (3, 2.0)


def test_an_objective_ends_within_a_population_that_the_budget_cuts() -> None:
    objective = Objective(sphere, 1, budget=3)
    objective(np.array([[5.0], [4.0]]))
    with pytest.raises(Spent):
        objective(np.array([[3.0], [0.0]]))
    assert (objective.evaluations, objective.best) == (3, 9.0)


def test_an_objective_ends_at_its_target() -> None:
    with pytest.raises(Spent):
        Objective(sphere, 1, target=1.0)(np.array([[2.0], [1.0]]))


def test_solved_is_the_share_of_the_targets() -> None:
    assert a_run(20.0).solved == 0
    assert a_run(0.1).solved == pytest.approx(3 / 6)
    assert a_run(1e-8).solved == a_run(-1e-9).solved == 1


def test_shares_are_means_over_all_runs() -> None:
    runs = [a_run(0.0), a_run(1.0, instance=2), a_run(20.0, 2, collapsed=True), a_run(20.0, 2, 2)]
    told = summary(runs)
    assert told["solved"] == pytest.approx((1 + 2 / 6) / 4)
    assert told["collapsed"] == 0.25
    assert told["by_function"] == {"1": pytest.approx(4 / 6), "2": 0.0}
    assert told["by_target"]["1"] == 0.5
    # Two values 2/3 apart on one function, none apart on the other.
    assert told["standard_error"] == pytest.approx(math.sqrt(2 * (2 / 3) ** 2 / 2) / 4)


def test_one_instance_has_no_standard_error_and_a_restarting_search_does_not_collapse() -> None:
    told = summary([a_run(1.0, collapsed=None)])
    assert told["standard_error"] is None
    assert told["collapsed"] is None


@needs_bbob
def test_a_search_that_stands_still_far_from_the_optimum_has_collapsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stand_still(objective: Objective, seed: int) -> None:
        objective.std = 1e-7
        objective(np.zeros((1, objective.dim)))

    monkeypatch.setitem(bbob.SEARCHES, "still", Search("still", stand_still))
    assert bbob.run("still", 3, 100, 1, 1, 1).collapsed


@needs_bbob
def test_a_run_is_a_function_of_its_seed() -> None:
    one, same, other = (bbob.run("cem", 2, 200, seed, 3, 1).gap for seed in (1, 1, 2))
    assert one == same != other


@needs_bbob
def test_the_sphere_is_solved() -> None:
    assert bbob.run("cem", 2, 4000, 1, 1, 1).solved == 1


@needs_bbob
def test_shares_are_written_down(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bbob, "FUNCTIONS", (1, 3))
    options = (
        "--dims",
        "2",
        "--instances",
        "1",
        "2",
        "--evaluations",
        "50",
        "--json",
        tmp_path / "bbob.json",
    )
    ended = script("measure.bbob", "cem", "cem_full_restarts", *options)
    assert ended.status == 0, ended.err
    written = json.loads((tmp_path / "bbob.json").read_text())
    assert set(written["figures"]) == {
        "bbob.cem.d2.solved",
        "bbob.cem.d2.collapsed",
        "bbob.cem_full_restarts.d2.solved",
    }
    told = written["data"]["searches"]["cem"]["d2"]
    assert written["figures"]["bbob.cem.d2.solved"] == told["solved"]
    assert {name: len(gaps) for name, gaps in told["gaps"].items()} == {"1": 2, "3": 2}


def test_a_package_that_is_not_installed_is_told(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bbob_searches.importlib.util, "find_spec", lambda name: None)
    ended = script("measure.bbob", "pycma")
    assert ended.status == 2
    assert "pip install coco-experiment cma" in ended.err


@needs_bbob
@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_spends_its_budget_or_stops(name: str) -> None:
    package = SEARCHES[name].module
    if package:
        pytest.importorskip(package)
    ended = bbob.run(name, 2, 300, 1, 3, 1)
    assert 200 <= ended.evaluations <= 300
    assert 0 <= ended.gap < 100
