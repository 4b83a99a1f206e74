"""Tetris and its controllers: rules, features, rollouts, scores.

The names below are imported when they are first used, because an import of torch takes seconds,
and the help of a command does not need torch. Only `tetris.training` uses `cem`. To read the
code, begin with `game/rules.py`, or with `commands/train.py` for the way down to the kernels.
"""

import os
from typing import TYPE_CHECKING

from cem_tetris import explain_clash

# With this setting the threads of torch sleep while they wait for work. On a busy machine this
# halves the time of a search.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if clash := explain_clash():
    raise ImportError(clash)

from kernels.support.lazy import lazy_names
from kernels.version import __version__ as __version__

if TYPE_CHECKING:
    from tetris.game.feature_sets import feature_names, weight_names
    from tetris.game.piece_stream import Streams
    from tetris.game.policy import Lookahead, Policy
    from tetris.game.rules import Rules
    from tetris.play.controller import LinearController, published, resolve
    from tetris.play.own_features import feature, feature_header
    from tetris.play.rollouts import Rollout, RolloutResult, rollout
    from tetris.play.splitting import SplitResult, split_rollout
    from tetris.record.placements import PlacementTable, best_placement
    from tetris.record.score import Score
    from tetris.view.played_game import PlayedGame, play_game

__all__ = [
    "LinearController",
    "Lookahead",
    "PlacementTable",
    "PlayedGame",
    "Policy",
    "Rollout",
    "RolloutResult",
    "Rules",
    "Score",
    "SplitResult",
    "Streams",
    "best_placement",
    "feature",
    "feature_header",
    "feature_names",
    "play_game",
    "published",
    "resolve",
    "rollout",
    "split_rollout",
    "weight_names",
]

__getattr__ = lazy_names(__name__)
