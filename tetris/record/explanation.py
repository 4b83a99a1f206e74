"""The explanation of a decision: feature values, weighted sum, margin."""

from dataclasses import dataclass

import numpy as np

from tetris.game.decisions import Rows, weighted_sums
from tetris.game.features import AfterState, feature_values
from tetris.game.policy import Player
from tetris.record.placements import placement_table


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
    table = placement_table(rows, after.piece, player, after.rules, next_piece)
    index = table.index_of(after)
    if table.ends_game[index] and table.next_piece is not None:  # Every pair ends the game.
        return explain(rows, after, player)
    if after.game_over or table.ends_game[index]:
        features = np.array(feature_values(after, player.names), dtype=np.float64)
        leads = features * player.weights
        value = weighted_sums(features, player.weights).item()
        margin = None
    else:
        features = table.features[index]
        leads = table.leads(index)
        value = table.values[index].item()
        margin = table.margin(index)
    return Explanation(
        player.names, tuple(features.tolist()), tuple(leads.tolist()), value, margin
    )
