"""tetris/record/placements.py and the command explain: what a controller plays on a board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris import Rules, best_placement, published
from tetris.game.decisions import choose
from tetris.game.policy import Lookahead
from tetris.game.positions import read_board

EXPLAIN = "tetris.commands.explain"
BOARD = """
    X.........
    XX..XX....
    XX.XXXX.XX
"""


@pytest.mark.parametrize("lookahead", Lookahead)
def test_the_best_placement_is_what_the_controller_plays(lookahead: Lookahead) -> None:
    controller, rules = published("dt20"), Rules(10, 8)
    rows, player = read_board(BOARD, rules), controller.player(rules, lookahead)
    for piece in range(7):
        table = best_placement("dt20", BOARD, piece, "S", rules=rules, lookahead=lookahead)
        assert table.best == choose(rows, piece, player, rules, 4)
        if lookahead is not Lookahead.EXPECTIMAX:
            assert table.margins[table.best_index] == table.margins[table.ranking].max() >= 0


def test_values_are_weighted_features_and_leads_add_up_to_margins() -> None:
    table = best_placement("lee", BOARD, "T")
    assert table.features.shape == (len(table.placements), 4) == (34, 4)
    assert np.array_equal(table.values, (table.features * table.player.weights).sum(1))
    for index in range(34):
        assert table.leads(index).sum() == pytest.approx(table.margins[index])
    last = table.ranking[-1]
    assert (table.columns[last], table.orientations[last]) != (table.best.column, 0)


def test_a_placement_that_ends_the_game_has_no_margin() -> None:
    table = best_placement("lee", "\n".join(["X.........", *["XX........"] * 19]), "O")
    ends = table.ends_game
    assert ends[:2].all()
    assert not ends[2:].any()
    assert np.isnan(table.margins[ends]).all()
    assert "the game ends" in table.text_lines(9)[-1]


def test_the_width_of_the_board_is_that_of_the_rules() -> None:
    assert best_placement("anywidth", "XX.X", "I").rules == Rules(4, 20)
    with pytest.raises(ValueError, match="expected a board of width 10 for the features"):
        best_placement("best", "XX.X", "I")
    with pytest.raises(ValueError, match="expected a piece, a letter of IOTZSJL, got 'Q'"):
        best_placement("lee", BOARD, "Q")


def test_the_command_takes_the_rules_of_the_controller(tmp_path: Path, script: Any) -> None:
    file, board = tmp_path / "controller.json", tmp_path / "board.txt"
    rules = Rules(10, 8, clear_on_overflow=True, pieces="ZS")
    replace(published("sz"), rules=rules).save(file)
    board.write_text("X.........\n" + 6 * "XX.....XXX\n")
    arguments = [EXPLAIN, file, "--board", board, "--piece", "S", "--lookahead"]
    for options, given in (
        ([], None),
        (["--height", "20", "--rule", "published"], Rules(pieces="ZS")),
    ):
        text = board.read_text()
        table = best_placement(file, text, "S", rules=given, lookahead="expectimax")
        assert script(*arguments, *options).out == f"{table}\n"


def test_the_command_draws_the_board_and_the_best_placements(
    tmp_path: Path, script: Any
) -> None:
    file = tmp_path / "board.txt"
    file.write_text(BOARD)
    arguments = [EXPLAIN, "lee", "--board", file, "--piece", "I", "--height", 5, "--top", 2]
    lines = script(*arguments).out.splitlines()
    assert lines[:4] == [
        "X.........",
        "XX..XX####",
        "XX.XXXX.XX",
        "I on 10x5: orientation 1, column 6",
    ]
    assert len(lines) == 3 + 2 + 2
    lines = script(*arguments, "--place", 0, 9).out.splitlines()
    assert lines[0] == ".........." + "   " + ".........#"
    assert lines[5:7] == [
        "I on 10x5: orientation 1, column 6",
        "yours, on the right: orientation 0, column 9, number 4 of 17",
    ]
    assert [line.split()[:2] for line in lines[8:]][-1] == ["0", "9"]
    refused = script(*arguments, "--place", 1, 9)
    assert refused.status == 2
    assert "placement of I on 10x5, got orientation 1, column 9" in refused.err
    assert script(EXPLAIN, "--board", tmp_path / "none.txt", "--piece", "I").status == 2
