"""tetris/view/text.py: pictures as text; and counts and sizes of tetris/record/numbers.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sample_scenes import sample_scenes

from tetris import Rules
from tetris.record.numbers import counted, file_size
from tetris.view.game_view import FALLING, FULL, STACK, scene_kinds
from tetris.view.images import PALETTE
from tetris.view.text import half_blocks, scene_text

RULES = Rules(6, 5)
FOURTH = """\
piece 4 J, next Z, lines 1, games over 0
| . . . . . .|
| . . . . . .|
|###### . . .|
|[][]## . . .|
|[][][] . .[]|
+------------+"""


def test_a_scene_in_plain_text() -> None:
    assert scene_text(sample_scenes(RULES, 4, 9)[3]) == FOURTH


def test_full_rows_and_the_end_of_a_game_are_marked() -> None:
    shown = sample_scenes(RULES, 60, 9)
    clearing = next(scene for scene in shown if scene.full)
    assert scene_text(clearing).count("|============|") == len(clearing.full)
    assert FULL not in scene_kinds(clearing, clearing.rules.height)  # it still falls
    ended = next(scene for scene in shown if scene.after.game_over)
    assert ", game over\n" in scene_text(ended)
    above = scene_text(ended).splitlines()[1]
    assert above.startswith(" ")
    assert "##" in above


def test_half_blocks_hold_two_pixels_each() -> None:
    picture = np.array([[0, 3 * STACK, 3 * STACK], [3 * STACK, 0, 3 * FALLING]], dtype=np.uint8)
    (line,) = half_blocks(picture)
    stack, falling = (";".join(map(str, PALETTE[3 * kind])) for kind in (STACK, FALLING))
    assert line == (
        f"\x1b[38;2;{stack};49m▄\x1b[38;2;{stack};49m▀\x1b[38;2;{stack};48;2;{falling}m▀\x1b[0m"
    )


def test_a_count_of_one_is_singular_and_a_small_file_is_in_bytes(tmp_path: Path) -> None:
    assert [counted(count, "line") for count in (0, 1, 1200)] == [
        "0 lines",
        "1 line",
        "1,200 lines",
    ]
    file = tmp_path / "file"
    for size, text in ((999, "999 bytes"), (1000, "1 kB"), (123_456, "123 kB")):
        file.write_bytes(bytes(size))
        assert file_size(file) == text
