"""tetris/view/played_game.py: a game from Python, with its boards."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tetris import LinearController, Rules, Streams, play_game, published, rollout

SHORT = LinearController("holes, max_height", (1.0, 1.0), Rules(6, 6), "lost")


def test_a_game_is_that_of_the_rollout() -> None:
    game = play_game(SHORT, seed=3, stream=5)
    result = rollout(
        SHORT.policy(), Streams(SHORT.rules, seed=3, first=5), len(game.steps), "python"
    )
    assert game.over
    assert (game.lines, 1, len(game.steps)) == (
        result.lines.item(),
        result.games.item(),
        result.decisions.item(),
    )


def test_boards_hold_the_cells_from_the_bottom() -> None:
    game = play_game("dellacherie", seed=1, most_pieces=40)
    assert game.boards.shape == (40, 20, 10)
    assert game.boards.dtype == np.int8
    cells = 4 * np.arange(1, 41) - 10 * np.cumsum([step.lines for step in game.steps])
    assert game.boards.sum((1, 2)).tolist() == cells.tolist()
    assert game.boards[0, 0].any()  # the first piece lies on the bottom row


def test_a_game_over_cuts_what_is_above_the_board() -> None:
    game = play_game(SHORT)
    assert len(game.steps[-1].rows) > 6
    assert game.boards.shape == (len(game.steps), 6, 6)


def test_a_game_becomes_a_replay() -> None:
    game = play_game(published("best"), seed=7, rules=Rules(10, 10), most_pieces=60)
    after = list(game.replay().after_states())
    assert [state.rows for state in after] == [step.rows for step in game.steps]
    assert (
        repr(game)
        == f"<PlayedGame of best on 10x10: {game.lines} lines, 60 pieces, unfinished>"
    )


def test_a_controller_may_be_the_folder_of_a_run(tmp_path: Path) -> None:
    SHORT.save(tmp_path / "controller.json")
    game = play_game(SHORT)
    assert all(play_game(each).steps == game.steps for each in (str(tmp_path), tmp_path))
