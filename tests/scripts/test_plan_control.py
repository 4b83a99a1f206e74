"""scripts/plan_control.py: what it says, draws and refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

Script = Callable[..., Any]


@pytest.mark.parametrize("name", ["pendulum", "reacher"])
def test_the_return_is_told(
    script: Script, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "pendulum":
        pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    words = ("--steps", 26, "--num-samples", 10, "--horizon", 5, "--iterations", 2)
    ended = script("plan_control", name, *words)
    assert ended.status == 0, ended.err
    first, last = ended.out.splitlines()
    assert first.startswith("step 25: return -")
    assert last.startswith(f"{name}: return -")
    assert last.endswith(" in 26 steps")
    assert not list(tmp_path.iterdir())  # MuJoCo's file of warnings, for example.


def test_a_movie_is_a_gif_of_all_frames(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    import plan_control

    ramp = np.broadcast_to(
        np.linspace(0, 255, 480).astype(np.uint8)[:, None, None], (480, 480, 3)
    )
    frames = [np.roll(ramp, shift, axis=0) for shift in (0, 100, 200)]
    plan_control.write_movie(frames, tmp_path / "a.gif")
    with image.open(tmp_path / "a.gif") as gif:
        assert (gif.n_frames, gif.size) == (3, (320, 320))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("cartpole",),
            "expected a task among pendulum, half_cheetah, swimmer, reacher; got 'cartpole'",
        ),
        (("pendulum", "--num-samples", "3"), "num_samples"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    script: Script, arguments: tuple[str, ...], message: str
) -> None:
    ended = script("plan_control", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["pendulum", "half_cheetah", "swimmer", "reacher"])
def test_the_cost_of_a_plan_is_what_the_environment_charges_for_it(name: str) -> None:
    import plan_control

    if name != "pendulum":
        pytest.importorskip("mujoco")
    task = plan_control.TASKS[name](seed=2)
    low, high = task.planner["bounds"]
    generator = torch.Generator().manual_seed(1)
    actions = torch.empty(8, task.planner["action_dim"]).uniform_(
        low, high, generator=generator
    )
    cost = task.cost(torch.as_tensor(task.state()), actions.unsqueeze(0))
    rewards = [float(task.env.step(action.double().numpy())[1]) for action in actions]
    assert cost.tolist() == pytest.approx([-sum(rewards)], rel=1e-5)
