"""The variants of the single environment: how many are made of them, and what is drawn of them."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from tetris.envs import IDS, REFERENCE_IDS, PlacementFeatures, TetrisEnv
from tetris.envs.placements import action_count
from tetris.game.piece_stream import PieceStream
from tetris.view.game_view import TEXT
from tetris.view.glyphs import text_pixels
from tetris.view.images import PALETTE


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
    env.step(action_count(10))
    assert str(env.render()).splitlines()[0] == f"piece {second}, next {third} {letters[4]}, hold {current}"
    env.render_mode = "rgb_array"
    assert env.render().shape == (16 * 24, 16 * 15, 3)


def test_every_following_piece_stands_under_its_number() -> None:
    env = TetrisEnv(pieces_known=7, hold=True, render_mode="rgb_array")
    env.reset(seed=1)
    frame = env.render()
    labels = ["HOLD", "NEXT", "NEXT 2", "NEXT 3", "NEXT 4", "NEXT 5", "NEXT 6"]  # four in a column
    for slot, label in enumerate(labels):
        top, left = 80 * (slot % 4), 160 + 80 * (slot // 4)
        head = frame[top + 3 : top + 16, left + 8 : left + 80]
        expected = np.zeros(head.shape[:2], dtype=bool)
        pixels = text_pixels(label, 2)
        expected[: pixels.shape[0], : pixels.shape[1]] = pixels
        assert np.array_equal((head == PALETTE[3 * TEXT]).all(axis=2), expected)


@pytest.mark.parametrize("identifier", [IDS[0], REFERENCE_IDS[-1]])
def test_a_window_shows_every_step(identifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = pytest.importorskip("pygame")
    env = gymnasium.make(identifier, render_mode="human")
    monkeypatch.setitem(env.unwrapped.metadata, "render_fps", 1000)
    drawn = gymnasium.make(identifier, render_mode="rgb_array")
    for one in (env, drawn):
        one.reset(seed=1)
        for _ in range(3):
            one.step(1)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    assert np.array_equal(shown, drawn.render())
    assert env.render() is None
    env.close()
    env.close()
    assert not pygame.display.get_init()


def test_a_window_without_pygame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    env = TetrisEnv(render_mode="human")
    with pytest.raises(gymnasium.error.DependencyNotInstalled, match=r"cem-tetris\[play\]"):
        env.reset()
    env.close()
