"""The explanation of a decision: feature values, weighted sum, margin."""

from dataclasses import dataclass

import numpy as np

from tetris.game.decisions import Rows, weighted_sums
from tetris.game.features import AfterState
from tetris.game.policy import Player
from tetris.record.placements import placement_table


@dataclass(frozen=True)
class Explanation:
    """The features, the value and the margin of a placement under a controller.

    Attributes:
        names: The names of the features, in the order of the weights.
        features: The value of each feature.
        leads: What each feature adds to the margin: its weighted value minus its weighted value
            for the best other placement. Without a margin it is the weighted value alone.
        value: The weighted sum of the features.
        margin: The value minus the value of the best other placement. It is negative if the
            controller prefers the other placement. It is None if this placement, or every other
            one, ends the game.
    """

    names: tuple[str, ...]
    features: tuple[float, ...]
    leads: tuple[float, ...]
    value: float
    margin: float | None


def explain(
    rows: Rows, after: AfterState, player: Player, next_piece: int | None = None
) -> Explanation:
    """Explain how a controller values a placement, compared with the best other one.

    The value of a placement is the weighted sum of its features. The margin is this value minus
    the value of the best other placement. The lead of a feature is what it adds to the margin.

    A player with a preview considers pairs of placements: this one, and one of the next piece.
    Then the features are those of the board after the best pair. If every pair ends the game,
    they are the features of the board after this placement.

    Args:
        rows: The stack before the placement, from the bottom; bit c of a row is column c.
        after: The board after the placement.
        player: The controller. It need not have chosen this placement.
        next_piece: The index of the next piece in `PIECE_LETTERS`; None if it is not known.
    """
    table = placement_table(rows, after.piece, player, after.rules, next_piece)
    index = table.index_of(after)
    ends_game = table.ends_game[index]
    if ends_game and table.next_piece is not None:
        # The game ends here, or with every placement of the next piece. Explain this placement
        # without the next piece.
        return explain(rows, after, player, next_piece=None)
    features = table.features[index]
    leads = table.leads(index)
    if ends_game:  # The table has no features for this placement.
        features = np.array(player.features_of(after), dtype=np.float64)
        leads = features * player.weights
    return Explanation(
        names=player.names,
        features=tuple(features.tolist()),
        leads=tuple(leads.tolist()),
        value=weighted_sums(features, player.weights).item(),
        margin=table.margin(index),
    )
