"""The variants of the single environment: how many are made of them, and what is drawn of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from tetris.envs import IDS, REFERENCE_IDS, PlacementFeatures, TetrisEnv
from tetris.game.piece_stream import PieceStream


def test_many_are_stepped_one_after_another() -> None:
    for identifier in REFERENCE_IDS:
        envs = gymnasium.make_vec(identifier, num_envs=2)
        _, infos = envs.reset(seed=1)
        assert infos["action_mask"].shape[0] == 2
        envs.step(infos["action_mask"].argmax(axis=1))


def test_many_with_a_hold_slot_have_features() -> None:
    wrappers: list[Any] = [lambda env: PlacementFeatures(env, "holes,wells")]
    envs = gymnasium.make_vec("CemTetris/Tetris-Hold-v0", 2, vectorization_mode="sync", wrappers=wrappers)
    assert envs.reset(seed=1)[0]["features"].shape == (2, 80, 2)


def test_text_and_frame_show_the_held_and_the_next_pieces() -> None:
    env = TetrisEnv(pieces="bag", pieces_known=3, hold=True, render_mode="ansi")
    env.reset(seed=1)
    letters = ["IOTZSJL"[PieceStream(env.rules, 1, 0)[t]] for t in range(5)]
    current, first, second, third, _ = letters
    assert str(env.render()).splitlines()[0] == f"piece {current}, next {first} {second}, hold -"
    env.step(40)
    assert str(env.render()).splitlines()[0] == f"piece {second}, next {third} {letters[4]}, hold {current}"
    env.render_mode = "rgb_array"
    assert env.render().shape == (16 * 24, 16 * 15, 3)
    most = TetrisEnv(pieces_known=7, hold=True, render_mode="rgb_array")  # two columns of pieces
    most.reset(seed=1)
    assert most.render().shape == (16 * 24, 16 * 20, 3)


def test_a_window_shows_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    drawn = gymnasium.make(IDS[0], render_mode="rgb_array")
    with pytest.warns(UserWarning, match="HumanRendering wrapper is being applied"):
        env = gymnasium.make(IDS[0], render_mode="human")
    for one in (env, drawn):
        one.reset(seed=1)
        one.step(1)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    assert np.array_equal(shown, drawn.render())
    env.close()
