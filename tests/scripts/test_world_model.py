"""docs/world_model.py: what it plays, learns and draws."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import pytest
import torch
import world_model
from measure.learned_control import DYNAMICS
from PIL import Image


@pytest.mark.usefixtures("short_world_model")
def test_the_clip_shows_what_was_real_and_what_was_imagined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["world_model.py", "CartPole-v1"])
    world_model.main()
    with Image.open("CartPole-v1.gif") as clip:
        assert clip.size == (640, 320)


@pytest.mark.parametrize("name", ["Pendulum-v1", "Acrobot-v1"])
def test_the_true_equations_imagine_what_is_real(name: str) -> None:
    envs = gymnasium.make_vec(name, 1)
    envs.action_space.seed(1)
    episodes = world_model.play(envs, lambda _: envs.action_space.sample(), 1)
    observations = episodes.observations[:, 0]
    imagined = world_model.imagine(DYNAMICS[name], observations, episodes.actions[:, 0])
    torch.testing.assert_close(torch.stack(imagined), observations[1:], rtol=0, atol=1e-4)
