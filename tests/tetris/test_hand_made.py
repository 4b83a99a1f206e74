"""The hand-made player of SZ-Tetris."""

import random

import pytest
import torch

from tetris.game.decisions import landing_row, place
from tetris.game.features import column_heights
from tetris.game.pieces import PIECES
from tetris.game.rules import PIECE_LETTERS
from tetris.play.hand_made import RULES, HandMadePlayer, S, Z, play_hand_made


def _columns(rows: tuple[int, ...]) -> list[int]:
    return [sum((row >> x & 1) << y for y, row in enumerate(rows)) for x in range(RULES.width)]


def test_its_games_are_those_of_the_reference() -> None:
    rng = random.Random(1)
    player = HandMadePlayer.begin(1)
    rows: tuple[int, ...] = ()
    lines = 0
    for _ in range(1000):
        kind = rng.choice((S, Z))
        column = 2 * int(player.choose_lanes(torch.tensor([kind])))
        shape = PIECES[PIECE_LETTERS.index("SZ"[kind])][0]
        row = landing_row(column_heights(rows, RULES.width), shape, column)
        after = place(rows, shape, column, row, RULES)
        rows = after.rows
        ended = player.play(torch.tensor([kind])).tolist()
        assert ended == ([lines] if after.game_over else [])
        if after.game_over:
            break
        lines += after.lines
        assert player.columns.tolist() == [_columns(rows)]
    assert lines > 20


def test_it_fills_lanes_by_kind() -> None:
    player = HandMadePlayer.begin(1)
    lanes = []
    # The first S makes S the kind of the middle. S takes lane 0 where it is not higher than
    # lane 1, and the middle where it is strictly lower; Z takes lanes 3 and 4 only.
    for kind in (S, S, S, Z, Z):
        kinds = torch.tensor([kind])
        lanes += player.choose_lanes(kinds).tolist()
        player.play(kinds)
    assert lanes == [0, 1, 2, 3, 4]


def test_the_middle_changes_its_kind_where_the_lanes_of_the_other_are_high() -> None:
    player = HandMadePlayer.begin(2)
    player.middle_kind[:] = S
    # Lanes 3 and 4 of the games are 16 and 17 rows high.
    for game, height in enumerate((16, 17)):
        player.columns[game, 6:] = (1 << height) - 1
    assert player.choose_lanes(torch.tensor([Z, Z])).tolist() == [3, 2]
    assert player.middle_kind.tolist() == [S, Z]


@pytest.mark.slow
def test_it_scores_as_published() -> None:
    # 183.0 lines; a game has a standard deviation of 74. A mean of 2,000 games lies within five
    # standard errors of it but for one seed in a million.
    lines = play_hand_made(2000, seed=1).double()
    assert abs(lines.mean() - 183.0) < 5 * 74 / 2000**0.5
