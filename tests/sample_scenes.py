"""Scenes of a game by dt20 for the tests of the view."""

from __future__ import annotations

from itertools import islice

from tetris import Rules, published
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.view.game_view import Scene, scenes


def sample_scenes(rules: Rules, count: int, seed: int = 3) -> list[Scene]:
    """Return the scenes of the first placements."""
    pieces = PieceStream(rules, seed, 0)
    played = play(pieces, published("dt20").player(rules), rules)
    return list(islice(scenes(rules, played), count))
