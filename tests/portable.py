"""What runs on any system without a compiler, in plain PyTorch and Python.

CONTRIBUTING.md has the command for macOS and Windows. On Linux test_other_systems.py runs it as
there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from sample_runs import TINY

import tetris.envs
from cem import Choice, Float, Permutation, Planner, minimize, rare_event_probability
from cem.rare import Exponential
from kernels import CompilerMissingError
from kernels.support import system
from tetris.training.run_folder import RunFolder

pytestmark = pytest.mark.skipif(system.IS_LINUX, reason="Linux compiles")


def sphere(x: Any) -> float:
    return float((x**2).sum())


def error_of_choice(point: Any) -> float:
    return (point["x"] - 1) ** 2 + (point["kind"] != "good") + abs(point["order"][0] - 2)


def test_a_search_says_that_it_is_slower_and_finds_the_minimum() -> None:
    with pytest.warns(RuntimeWarning, match="taking backend 'torch', which is slower: C"):
        result = minimize(sphere, np.ones(3), 1.0, vectorize="loop", seed=1)
    assert result.fun < 1e-8


@pytest.mark.slow
def test_processes_share_the_candidates() -> None:
    one, two = (
        minimize(sphere, np.ones(3), 1.0, budget=200, workers=workers, seed=1)
        for workers in (1, 2)
    )
    assert two.fun == one.fun


def test_choices_orders_plans_and_rare_events_need_no_operator() -> None:
    space = {"x": Float(-3, 3), "kind": Choice(["bad", "good"]), "order": Permutation(3)}
    assert minimize(error_of_choice, space, seed=1).fun < 1e-3
    planner = Planner(lambda start, plans: (start + plans).square().sum((1, 2)), 1, 1, (-1, 1))
    assert -1 <= float(planner.plan(torch.ones(1))) < 0
    event = rare_event_probability(
        Exponential([1.0] * 5), lambda x: x.sum(-1), 30.0, vectorize=True, seed=1
    )
    assert abs(event.estimate / 3.624e-9 - 1) < 0.05


def test_environments_step_in_python() -> None:
    name = tetris.envs.IDS[0]
    env = gymnasium.make_vec(name, 2, vectorization_mode="sync")
    env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(5):
        env.step(env.action_space.sample())
    with pytest.raises(CompilerMissingError, match='vectorization_mode="sync"'):
        gymnasium.make_vec(name, 2)


@pytest.mark.slow
def test_a_run_is_trained_evaluated_reported_watched_and_played(
    tmp_path: Path, script: Any
) -> None:
    folder = tmp_path / "run"
    options = (*TINY[2:], "--generations", 2, "--out", folder)
    assert "note: playing in Python" in script("tetris.commands.train", *options).err
    assert len((folder / "metrics.jsonl").read_bytes().splitlines()) == 2
    assert script("tetris.commands.report", folder).status == 0
    game = (folder, "--board", "5x6")
    for command, *arguments in (
        ("evaluate", "--decisions", 64),
        ("watch", "--decisions", 3),
        ("play", "--no-open", "--out", tmp_path / "play.html"),
    ):
        assert script(f"tetris.commands.{command}", *game, *arguments).status == 0


def test_one_process_trains_in_a_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.claimed(None):
        assert folder.in_use()
        with pytest.raises(ValueError, match="another process"), folder.claimed(None):
            pass
    assert not folder.in_use()
