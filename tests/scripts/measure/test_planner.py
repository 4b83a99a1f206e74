"""scripts/measure/planner.py: what is compared; control_tasks.py: the costs are the simulators'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from measure import planner
from measure.control_tasks import TASKS, Task, episode, pendulum
from measure.planner import Budget, methods, pendulum_figures, ranges

Script = Callable[..., Any]


@pytest.mark.parametrize("name", TASKS)
def test_the_cost_of_a_plan_is_what_the_simulator_takes(name: str) -> None:
    if name == "half_cheetah":
        pytest.importorskip("mujoco")
    task: Task = TASKS[name](3)
    plans = 0.5 * torch.randn(4, 5, task.planner["action_dim"], generator=torch.Generator().manual_seed(1))
    state = torch.as_tensor(task.state())
    costs = torch.as_tensor(task.cost(state, plans))
    actions = iter(plans[2].numpy())
    assert episode(task, lambda state: next(actions), 5) == pytest.approx(-float(costs[2]), rel=1e-4)


def test_a_batch_of_pendulums_costs_what_single_ones_cost() -> None:
    states, plans = torch.randn(3, 2), torch.randn(3, 4, 5, 1)
    cost = pendulum(1).cost
    assert torch.allclose(cost(states, plans), torch.stack(list(map(cost, states, plans))))


@pytest.mark.parametrize("name", methods())
def test_every_method_swings_the_pendulums_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "STEPS", 120)
    monkeypatch.setattr(planner, "SEEDS", 2)
    (returns,) = planner.pendulum_returns(methods()[name], Budget(60, 3, 15), 1)
    assert min(returns) > -600  # hanging costs 10 a step, swinging without end 5


def test_figures_are_medians_over_starts_and_means_over_repeats() -> None:
    returns = {
        "30x3.h30": {"plain": [[-5.0, -4.0, -3.0]] * 2, "ours": [[-9.0, -1.0, -2.0], [-5.0, -2.0, 0.0]]}
    }
    figures = pendulum_figures(returns)
    key = "planner.pendulum.30x3.h30.ours"
    assert figures[f"{key}.median_return"] == -2.0
    assert figures[f"{key}.ahead_of_plain"] == 2
    assert ranges(returns)[f"{key}.median_return"] == [-2.0, -2.0]


@pytest.mark.usefixtures("no_gpu")
def test_a_measurement_is_written(script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(planner, "BUDGETS", (Budget(10, 1, 3), Budget(12, 2, 3)))
    monkeypatch.setattr(planner, "STEPS", 2)
    monkeypatch.setattr(planner, "CHEETAH_STEPS", 1)
    ended = script("measure.planner", "--device", "cpu", "--repeats", 2, "--json", tmp_path / "planner.json")
    assert ended.status == 0, ended.err
    assert "planner.pendulum.12x2.h3.ours.ahead_of_plain" in ended.out
    assert (tmp_path / "planner.json").is_file()
