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
from tetris.view.images import PALETTE, board_picture, frame, text_pixels

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
    assert len({tuple(PALETTE[3 * kind]) for kind in range(EMPTY, FALLING + 7)}) == FALLING + 7 - EMPTY


def test_text_is_drawn_by_the_pixel() -> None:
    drawn = "\n".join("".join("#" if pixel else "." for pixel in row) for row in text_pixels("T1", 1))
    assert drawn == "###..#..\n.#..##..\n.#...#..\n.#...#..\n.#..###."
    assert text_pixels("abc", 3).shape == (15, 36)


def test_text_beyond_the_font_is_drawn_as_near_as_can_be() -> None:
    # The second name has the dots as a character of their own.
    for text, drawn in (("Müller", "MULLER"), ("Mu\u0308ller", "MULLER"), ("a\n中", "A??")):
        assert np.array_equal(text_pixels(text, 2), text_pixels(drawn, 2))


@pytest.mark.parametrize(
    ("title", "lines"),
    [
        ("runs/long with features of my own", ["RUNS/LONG WITH", "FEATURES OF MY", "OWN"]),
        ("0123456789" * 8, ["01234567890123", "23456789012345", "67890123456789", "0123456789"]),
    ],
)
def test_a_title_takes_as_many_lines_as_it_needs_and_is_whole(
    shown: list[Scene], title: str, lines: list[str]
) -> None:
    picture, without = frame(shown[0], title), frame(shown[0])
    assert picture.shape[1] == without.shape[1]
    assert picture.shape[0] >= without.shape[0]
    lit = picture == 3 * TEXT
    for line in lines:
        pixels = text_pixels(line, 2)
        windows = np.lib.stride_tricks.sliding_window_view(lit, pixels.shape)
        assert (windows == pixels).all(axis=(2, 3)).any()
