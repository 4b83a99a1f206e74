"""tetris/record/explanation.py: why a placement is played."""

from __future__ import annotations

from itertools import islice

import numpy as np

from tetris import LinearController, Lookahead, Rules, published
from tetris.game.decisions import after_states, choose, pair_value, play
from tetris.game.features import feature_values
from tetris.game.piece_stream import PieceStream
from tetris.record.explanation import explain
from tetris.view.terminal import explanation_lines

RULES = Rules(6, 8)


def test_the_placement_that_is_played_has_the_highest_value() -> None:
    player = published("dt20").player(RULES)
    rows: tuple[int, ...] = ()
    for after in islice(play(PieceStream(RULES, 3, 0), player, RULES), 150):
        explained = explain(rows, after, player)
        assert list(explained.features) == feature_values(after, player.names)
        assert explained.value == np.dot(explained.features, player.weights)
        assert explained.margin is None or explained.margin >= 0
        rows = () if after.game_over else after.rows


def test_leads_say_which_feature_made_the_choice() -> None:
    controller = LinearController("holes, max_height, landing_height", (-4.0, 0.5, -2.0), RULES)
    player = controller.player(RULES)
    upright = next(after for after in after_states((), 0, RULES) if after.shape.height == 4)
    explained = explain((), upright, player)
    assert explained.leads == (
        0.0,
        1.5,
        -3.0,
    )  # as against a flat one: a taller stack, and 1.5 higher
    assert sum(explained.leads) == explained.margin == -1.5
    lines = explanation_lines(explained, 10)
    assert [line.split()[0] for line in lines] == [
        "margin",
        "value",
        "landing_height",
        "max_height",
        "holes",
    ]


def test_without_a_choice_there_is_no_margin() -> None:
    stack, player = tuple([0b111110] * 8), published("dt20").player(RULES)
    into_the_well, flat = (
        next(
            after
            for after in after_states(stack, 0, RULES)
            if after.shape.orientation == orientation
        )
        for orientation in (0, 1)
    )
    assert (into_the_well.lines, flat.game_over) == (4, True)
    assert explain(stack, into_the_well, player).margin is None
    assert explain(stack, flat, player).margin is None


def test_with_the_next_piece_known_the_features_are_those_of_the_best_pair() -> None:
    rules = Rules(5, 8)
    controller = LinearController("landing_height, max_height", (-1.0, -10.0), rules)
    player = controller.player(rules, Lookahead.PREVIEW)
    after = choose((), 0, player, rules, 1)
    explained = explain((), after, player, 1)
    # The bar lies at the bottom, and the square on it, at 1.5: three rows. Side by side they
    # would have four.
    assert explained.features == (1.5, 3.0)
    assert explained.value == pair_value(after, 1, player) == -31.5
    assert explained.margin == 0.0  # the bar one column further on
    assert explain((), after, player).features == (0.0, 1.0)
