"""tetris/view/images.py: pictures as arrays."""

from __future__ import annotations

import numpy as np
import pytest
from sample_scenes import sample_scenes

from tetris import Rules
from tetris.view.game_view import (
    EMPTY,
    FALLING,
    STACK,
    TEXT,
    UNKNOWN,
    Scene,
    board_kinds,
    scene_kinds,
)
from tetris.view.images import PALETTE, board_picture, frame, text_picture

RULES = Rules(6, 8)


@pytest.fixture(scope="module")
def shown() -> list[Scene]:
    return sample_scenes(RULES, 60)


@pytest.mark.parametrize("cell", [1, 5, 12])
def test_a_cell_keeps_its_kind_at_every_size(shown: list[Scene], cell: int) -> None:
    kinds = scene_kinds(shown[-1])
    picture = board_picture(kinds, cell)
    assert picture.shape == (kinds.shape[0] * cell, kinds.shape[1] * cell)
    for corner in (0, cell - 1):
        assert (picture[corner::cell, corner::cell][::-1] // 3 == kinds).all()


@pytest.mark.parametrize(("board", "cell"), [((4, 4), 6), ((10, 20), 12), ((10, 24), 13)])
def test_frames_of_a_game_are_of_one_even_size(board: tuple[int, int], cell: int) -> None:
    rules = Rules(*board)
    title = "a name that is much too long for the panel"
    frames = [frame(scene, title, cell) for scene in sample_scenes(rules, 15)]
    (shape,) = {each.shape for each in frames}
    assert (shape[0] % 2, shape[1] % 2) == (0, 0)
    assert frames[0].dtype == np.uint8
    assert max(each.max() for each in frames) < len(PALETTE)
    assert PALETTE[frames[0]].shape == (*shape, 3)


def test_a_cell_of_an_unknown_piece_looks_like_no_piece() -> None:
    cells = np.array([[UNKNOWN, 1, 7, 0]], dtype=np.uint8)
    assert board_kinds(cells, 1)[0].tolist() == [FALLING - 1, STACK, STACK + 6, EMPTY]
    assert (
        len({tuple(PALETTE[3 * kind]) for kind in range(EMPTY, FALLING + 7)})
        == FALLING + 7 - EMPTY
    )


def test_text_keeps_its_line_and_a_title_is_whole(shown: list[Scene]) -> None:
    assert text_picture("T1", 14).shape[0] == text_picture("Müller, gp", 14).shape[0] == 21
    assert set(PALETTE[text_picture("T1", 14)].min(axis=-1).flat) >= {
        PALETTE[0].min(),
        PALETTE[3 * TEXT].min(),
    }
    picture, without = frame(shown[0], "runs/long with features of my own"), frame(shown[0])
    assert picture.shape[1] == without.shape[1]
    assert picture.shape[0] > without.shape[0]
    last = text_picture("my own", 14)
    windows = np.lib.stride_tricks.sliding_window_view(picture, last.shape)
    assert (windows == last).all(axis=(2, 3)).any()
