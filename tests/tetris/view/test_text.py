"""tetris/text.py: pictures as text."""

from __future__ import annotations

import re
from itertools import islice

import numpy as np

from tetris import Rules, published
from tetris.game.piece_stream import PieceStream
from tetris.record.explanation import decisions
from tetris.view.game_view import FALLING, STACK, Scene, scene_kinds, scenes
from tetris.view.images import PALETTE, piece_picture
from tetris.view.text import board_lines, half_blocks, scene_text

RULES = Rules(6, 5)
FOURTH = """\
piece 4 J, next Z, lines 1, games over 0
| . . . . . .|
| . . . . . .|
|###### . . .|
|[][]## . . .|
|[][][] . .[]|
+------------+"""


def seen(count: int) -> list[Scene]:
    pieces = PieceStream(RULES, 9, 0)
    return list(scenes(RULES, islice(decisions(published("dt20"), RULES, pieces), count), pieces))


def test_a_scene_in_plain_text() -> None:
    assert scene_text(seen(4)[3]) == FOURTH


def test_full_rows_and_the_end_of_a_game_are_told() -> None:
    shown = seen(60)
    clearing = next(scene for scene in shown if scene.full)
    assert scene_text(clearing).count("|============|") == len(clearing.full)
    ended = next(scene for scene in shown if scene.after.game_over)
    assert ", game over\n" in scene_text(ended)
    above = scene_text(ended).splitlines()[1]
    assert above.startswith(" ")
    assert "##" in above


def test_a_suggestion_is_marked() -> None:
    first, *others = seen(20)
    lines = board_lines(scene_kinds(first, 5, hint=others[0].after), 5)
    assert sum(line.count("##") for line in lines) == 4
    assert sum(line.count("<>") for line in lines) == 4


def test_half_blocks_hold_two_pixels_each() -> None:
    picture = np.array([[0, 3 * STACK, 3 * STACK], [3 * STACK, 0, 3 * FALLING]], dtype=np.uint8)
    (line,) = half_blocks(picture, true_color=True)
    stack, falling = (";".join(map(str, PALETTE[3 * kind])) for kind in (STACK, FALLING))
    assert line == (
        f"\x1b[0m\x1b[38;2;{stack}m▄\x1b[0m\x1b[38;2;{stack}m▀\x1b[38;2;{stack};48;2;{falling}m▀\x1b[0m"
    )


def test_with_256_colours_the_nearest_is_taken() -> None:
    text = "".join(half_blocks(piece_picture(3, 2), true_color=False))
    assert set(re.findall(r"5;(\d+)", text)) <= {str(number) for number in range(16, 256)}
    assert "2;" not in re.sub(r"5;\d+", "", text)
