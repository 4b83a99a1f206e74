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
    """Explain how a linear controller values a placement, compared with the best other one.

    The value of a placement is the weighted sum of its features. The margin is this value minus
    that of the best other placement. The leads are the terms of the margin, one per feature.

    For a player with a preview, the features are those of the best pair of placements that
    this placement begins with the next piece. If every such pair ends the game, the features of
    this placement alone are used.

    Args:
        rows: The stack before the placement.
        after: The board after the placement.
        player: The controller, which may have chosen another placement.
        next_piece: The next piece, if it is known.
    """
    if player.lookahead is not Lookahead.PREVIEW:
        next_piece = None
    features = _features(after, player, next_piece)
    if features is None:  # Every pair ends the game.
        return explain(rows, after, player)
    # Row 0 has the features of this placement. The rows below it have those of the other
    # placements that do not end the game.
    all_features = [features]
    for other in after_states(rows, after.shape.piece, after.rules):
        is_same = (other.shape, other.column) == (after.shape, after.column)
        if not is_same and not other.game_over:
            other_features = _features(other, player, next_piece)
            if other_features is not None:
                all_features.append(other_features)
    values = np.array(all_features, dtype=np.float64)
    weighted = values * player.weights
    value, *other_values = weighted_sums(values, player.weights).tolist()
    leads = weighted[0]
    margin = None
    if other_values and not after.game_over:
        best_other = max(other_values)
        margin = value - best_other
        leads = weighted[0] - weighted[1 + other_values.index(best_other)]
    return Explanation(
        player.names, tuple(values[0].tolist()), tuple(leads.tolist()), value, margin
    )


def _features(after: AfterState, player: Player, next_piece: int | None) -> list[float] | None:
    """Return the features of a placement, or of the best pair that it begins.

    The result is None if every pair ends the game.
    """
    if next_piece is None:
        return feature_values(after, player.names)
    return pair_features(after, next_piece, player)
