"""The explanation of a decision: feature values, weighted sum, margin."""

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
        leads: What each feature adds to the margin: its weighted value minus that of the best
            other placement; without a margin, its weighted value.
        value: The weighted sum.
        margin: The value minus that of the best other placement; negative if the controller
            prefers that one. None if the placement, or every other one, ends the game.
    """

    names: tuple[str, ...]
    features: tuple[float, ...]
    leads: tuple[float, ...]
    value: float
    margin: float | None


def explain(
    rows: Rows, after: AfterState, player: Player, next_piece: int | None = None
) -> Explanation:
    """Return the features, the value and the margin of one placement.

    With a preview they are those of the best pair that a placement begins, see
    `tetris.game.decisions.choose`; if no pair with this placement survives, those of the
    placement alone. ``rows`` is the stack before the placement.
    """
    if player.lookahead is not Lookahead.PREVIEW:
        next_piece = None

    def features_of(placement: AfterState) -> list[float] | None:
        if next_piece is None:
            return feature_values(placement, player.names)
        return pair_features(placement, next_piece, player)

    features = [features_of(after)]
    if features[0] is None:
        return explain(rows, after, player)
    for other in after_states(rows, after.shape.piece, after.rules):
        is_same = (other.shape, other.column) == (after.shape, after.column)
        if not is_same and not other.game_over:
            features.append(features_of(other))
    values = np.array([row for row in features if row is not None], dtype=np.float64)
    value, *other_values = weighted_sums(values, player.weights).tolist()
    weighted = values * player.weights
    leads = weighted[0]
    margin = None
    if other_values and not after.game_over:
        best = max(other_values)
        margin = value - best
        leads = weighted[0] - weighted[1 + other_values.index(best)]
    return Explanation(
        player.names, tuple(values[0].tolist()), tuple(leads.tolist()), value, margin
    )
