"""The decisions of a controller, and the explanation of one: feature values, weighted sum, margin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from tetris.game.decisions import Pieces, Rows, after_states, best_next, decide, weighted_sums
from tetris.game.features import PLACEMENT_FEATURES, AfterState, feature_values
from tetris.game.policy import Lookahead, Player
from tetris.game.rules import Rules
from tetris.play.controller import LinearController


@dataclass(frozen=True)
class Explanation:
    """The features, the value and the margin of a placement under a controller.

    Attributes:
        names: Names of the features, in their order.
        features: Their values.
        leads: What each feature adds to the margin: its weighted value minus the best other placement's;
            without a margin the weighted value alone.
        value: The weighted sum.
        margin: The value minus that of the best other placement; negative where the controller
            prefers another. None where the placement, or every other one, ends the game.
    """

    names: tuple[str, ...]
    features: tuple[float, ...]
    leads: tuple[float, ...]
    value: float
    margin: float | None


def decisions(
    controller: LinearController, rules: Rules, pieces: Pieces, lookahead: Lookahead = Lookahead.NONE
) -> Iterator[AfterState]:
    """Yield the after-state of every decision, without end; a game over is followed by an empty board.

    Raises:
        ValueError: If the controller cannot play on that board.
    """
    player = controller.player(rules, lookahead)
    rows: Rows = ()
    for t in count():
        after = decide(rows, pieces, t, player, rules)
        yield after
        rows = () if after.game_over else after.rows


def explain(rows: Rows, after: AfterState, player: Player, next_piece: int | None = None) -> Explanation:
    """Return the features, the value and the margin of one placement.

    With a preview they are those of the best pair that a placement begins, see
    `tetris.game.decisions.choose`; where no pair with this placement survives, those of the placement alone.

    Args:
        rows: The stack before the placement.
        after: The after-state of the placement.
        player: Features, weights and lookahead.
        next_piece: Number of the piece that falls after it; None: not known.
    """
    names, weights = player.names, player.weights
    others = [
        other
        for other in after_states(rows, after.shape.piece, after.rules)
        if not other.game_over and (other.shape, other.column) != (after.shape, after.column)
    ]
    features = [_features(each, player, next_piece) for each in (after, *others)]
    if features[0] is None:
        return explain(rows, after, player)
    values = np.array([each for each in features if each is not None], dtype=np.float64)
    sums = weighted_sums(values, weights).tolist()
    weighted = values * weights
    leads, margin = weighted[0], None
    if len(values) > 1 and not after.game_over:
        margin = sums[0] - max(sums[1:])
        leads = weighted[0] - weighted[1 + sums[1:].index(max(sums[1:]))]
    return Explanation(names, tuple(values[0].tolist()), tuple(leads.tolist()), sums[0], margin)


def _features(after: AfterState, player: Player, next_piece: int | None) -> list[float] | None:
    """Return the features of a placement, or of the best pair that it begins; None where no pair survives."""
    own = feature_values(after, player.names)
    if player.lookahead is not Lookahead.PREVIEW or next_piece is None:
        return own
    second = best_next(after, next_piece, player)
    if second is None:
        return None
    both = zip(player.names, feature_values(second, player.names), own, strict=True)
    return [value + (first if name in PLACEMENT_FEATURES else 0.0) for name, value, first in both]
