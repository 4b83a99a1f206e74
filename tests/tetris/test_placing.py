"""Placements on many boards at once, and the players made of them."""

import random

import pytest
import torch

from tetris import Rules, resolve, rollout
from tetris.game.decisions import landing_row, place
from tetris.game.features import column_heights
from tetris.game.piece_stream import Streams
from tetris.game.pieces import PIECES
from tetris.play.hand_made import HandMadePlayer, S, Z, play_hand_made
from tetris.play.placing import place_everywhere
from tetris.training.policy_gradient import GradientSettings, PolicyGradient


def _random_rows(rules: Rules, rng: random.Random) -> tuple[int, ...]:
    rows = [rng.randrange(1, rules.full_row) for _ in range(rng.randrange(rules.height - 1))]
    # Nearly full rows on top are completed by many placements.
    rows += [rules.full_row ^ 3 << rng.randrange(rules.width - 1) for _ in range(2)]
    return tuple(rows)


@pytest.mark.parametrize("piece", range(len(PIECES)))
def test_a_placement_on_many_boards_is_that_of_the_game(piece: int) -> None:
    rules = Rules(6, 9)
    rng = random.Random(piece)
    boards = [_random_rows(rules, rng) for _ in range(8)]
    columns = [
        [sum((row >> x & 1) << y for y, row in enumerate(rows)) for x in range(rules.width)]
        for rows in boards
    ]
    placements = place_everywhere(torch.tensor(columns, dtype=torch.int32), piece, rules)
    for board, rows in enumerate(boards):
        for number, action in enumerate(placements.actions):
            orientation, column = divmod(action, rules.width)
            shape = PIECES[piece][orientation]
            row = landing_row(column_heights(rows, rules.width), shape, column)
            after = place(rows, shape, column, row, rules)
            assert placements.ends_game[board, number] == after.game_over
            if not after.game_over:
                cells = placements.columns[board, number].tolist()
                after_columns = [
                    sum((row >> x & 1) << y for y, row in enumerate(after.rows))
                    for x in range(rules.width)
                ]
                assert cells == after_columns
                assert placements.lines[board, number] == after.lines


def test_the_hand_made_player_fills_lanes_by_kind() -> None:
    player = HandMadePlayer.begin(1)
    lanes = []
    # The first S makes S the kind of the middle. S takes lane 0 while it is not higher than
    # lane 1, then lane 1, then the middle, which is strictly lower; Z never takes the middle.
    for kind in (S, S, S, Z, Z, Z):
        kinds = torch.tensor([kind])
        lanes += player.choose_lanes(kinds).tolist()
        player.play(kinds)
    assert lanes == [0, 1, 2, 3, 4, 3]


@pytest.mark.slow
def test_the_hand_made_player_scores_as_published() -> None:
    # 183.0 lines; a game has a standard deviation of 74, so that 600 games are within five
    # standard errors of it but for one seed in a million.
    lines = play_hand_made(600, seed=1).double()
    assert abs(lines.mean() - 183.0) < 5 * 74 / 600**0.5


def test_the_policy_gradient_improves_a_controller() -> None:
    # From 17 to about 25 lines a game; the score has a standard error of 5 %.
    rules = Rules(10, 10, pieces="SZ")
    settings = GradientSettings(steps=4, states=128, horizon=40, gap=20, divergence=0.02)
    training = PolicyGradient(resolve("dt20"), "dt", rules, settings)
    training.run(lambda: None)
    assert len(training.lines_per_game) == 4
    learned = training.controller("learned")
    scores = []
    for controller in (resolve("dt20"), learned):
        result = rollout(controller.policy(), Streams(rules, 64, seed=5), 200)
        scores.append(float(result.lines / result.games))
    assert scores[1] > 1.2 * scores[0]


def test_the_policy_gradient_needs_the_features_of_its_start() -> None:
    rules = Rules(10, 10, pieces="SZ")
    with pytest.raises(ValueError, match="which lacks column_transitions"):
        PolicyGradient(resolve("dt20"), "holes", rules, GradientSettings())
