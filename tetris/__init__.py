"""Tetris for linear controllers: rules, features, rollouts, scores. Knows nothing of training."""

from tetris.controller import LinearController, published, resolve
from tetris.feature_sets import feature_names
from tetris.rollout import Rollout, RolloutResult, rollout
from tetris.rules import Rules
from tetris.score import Score
from tetris.splitting import SplitResult, split_rollout

__all__ = [
    "LinearController",
    "Rollout",
    "RolloutResult",
    "Rules",
    "Score",
    "SplitResult",
    "feature_names",
    "published",
    "resolve",
    "rollout",
    "split_rollout",
]
