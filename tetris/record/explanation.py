"""The explanation of a decision: feature values, weighted sum, margin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tetris.game.decisions import Rows, after_states, pair_features, weighted_sums
from tetris.game.features import AfterState, feature_values
from tetris.game.policy import Lookahead, Player


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


def explain(rows: Rows, after: AfterState, player: Player, next_piece: int | None = None) -> Explanation:
    """Return the features, the value and the margin of one placement.

    With a preview they are those of the best pair that a placement begins, see
    `tetris.game.decisions.choose`; where no pair with this placement survives, those of the placement alone.
    ``rows`` is the stack before the placement.
    """
    names, weights = player.names, player.weights
    next_piece = next_piece if player.lookahead is Lookahead.PREVIEW else None
    others = [
        other
        for other in after_states(rows, after.shape.piece, after.rules)
        if not other.game_over and (other.shape, other.column) != (after.shape, after.column)
    ]
    features = [
        feature_values(each, names) if next_piece is None else pair_features(each, next_piece, player)
        for each in (after, *others)
    ]
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
