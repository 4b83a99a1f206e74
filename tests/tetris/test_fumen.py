"""tetris/game/fumen.py: the same pages as those of the public packages."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from tetris import Rules, play_game
from tetris.game.fumen import FumenPage, after_page, is_fumen, read_fumen, write_fumen
from tetris.game.pieces import placements_on
from tetris.record.replay import Replay

# Written by tetris-fumen 1.1.3 (npm): a piece with a comment and a rising row of garbage, a
# piece that does not come to rest, a piece before the field is mirrored, and an empty page.
PAGES = "v115@RhD8BeJ8AeE8AeG8T+ZTAooMDEvow2BFbMmEP8MoDF?rmAAvhC9VuBACBAAAP6EAAA"


def drawing(page: FumenPage) -> list[str]:
    top = int(np.flatnonzero(page.cells.any(axis=1))[-1])
    return ["".join("_ILOZTJSX"[cell] for cell in row) for row in page.cells[top::-1]]


def test_pages_of_another_program_are_read() -> None:
    first, second, third, last = read_fumen(f"https://fumen.zui.jp/?{PAGES}")
    assert drawing(first) == ["XXXX__XXXX", "XXXXXX_XXX"]
    assert first.shape is not None
    assert (first.shape.piece, first.column, first.row) == (1, 4, 1)
    assert drawing(second) == drawing(third) == ["____OO____", "XXXXXX_XXX", "XX_XXXXXXX"]
    assert second.shape is None
    assert drawing(last)[-1] == "XXXXXXX_XX"


def test_a_game_comes_back_from_its_fumen() -> None:
    game = play_game("dt20", seed=3, most_pieces=200, board="XXXX__XXXX\nXXXXXX_XXX")
    replay = game.replay()
    again = Replay.from_fumen(replay.to_fumen())
    assert (again.placements, again.boards, again.lines) == (
        replay.placements,
        replay.boards,
        replay.lines,
    )


def test_a_game_that_ends_above_the_field_has_a_last_page_without_the_piece() -> None:
    game = play_game("lee", pieces="I", board="XXXXX.XXXX\n" + 19 * "XXXXXXXXX.\n")
    (page,) = read_fumen(game.replay().to_fumen())
    assert (game.over, page.shape, len(drawing(page))) == (True, None, 20)
    with pytest.raises(ValueError, match="a board ten columns wide, got 6x20"):
        play_game("lee", pieces="I", rules=Rules(6, 20)).replay().to_fumen()


@pytest.mark.parametrize(
    ("rows", "row", "top"),
    [
        (23, "X.........", None),
        (24, "X.........", 24),
        (21, "XXXXXXXXX.", None),
        (22, "XXXXXXXXX.", 24),
        (23, "XXXXXXXXX.", 25),  # The game ends.
    ],
)
def test_a_high_game_comes_back_from_its_fumen_or_does_not_fit(
    rows: int, row: str, top: int | None
) -> None:
    board = f"{row}\n" * rows
    replay = play_game("lee", rules=Rules(10, 24), pieces="O", board=board).replay()
    if top is None:
        again = Replay.from_fumen(replay.to_fumen(), replay.rules)
        assert replace(again, controller=replay.controller) == replay
        return
    with pytest.raises(ValueError, match=f"23 rows of a fumen, got a cell in row {top} at"):
        replay.to_fumen()


@pytest.mark.parametrize("text", ["v110@vhAAgH", "v115@vhA!", "v115@vh", "v115@vhAxDJ", ""])
def test_another_or_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        read_fumen(text)


def test_an_older_version_is_named() -> None:
    assert is_fumen("http://fumen.zui.jp/?v110@7eEEEYFA")
    assert not is_fumen("runs/exp110@host")  # a folder
    with pytest.raises(ValueError, match="expected a fumen of version v115, got v110"):
        read_fumen("http://fumen.zui.jp/?v110@7eEEEYFA")


def test_a_game_is_written_as_other_programs_write_it() -> None:
    # py-fumen 0.1.11 and tetris-fumen 1.1.3 write this text, too, from the pages they read.
    text = play_game("dt20", seed=3, most_pieces=300).replay().to_fumen()
    assert text.startswith("v115@vh/2OJxxBvkB+oBTrBUnBziBvqBGqB2kB+jB1rBJmB?TsBPoBGqBKkB")
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "c14f8598e8a94ba33557107a86f0f30a61e466455f8fb738c0e11676f1a994ad"


def test_every_piece_in_every_place_comes_back() -> None:
    empty = np.zeros((23, 10), dtype=np.int64)
    pages = [FumenPage(empty, shape, column, 3) for shape, column in placements_on(10)]
    for page in pages:
        (read,) = read_fumen(write_fumen([page]))
        assert (read.shape, read.column, read.row) == (page.shape, page.column, 3)
        assert after_page(read).sum() > 0
