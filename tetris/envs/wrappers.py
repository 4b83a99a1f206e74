"""The features of every placement, as a wrapper of a single game."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from tetris.envs.key_press_env import KeyPressTetrisEnv
from tetris.envs.tetris_env import MAX_ORIENTATIONS, Observation, TetrisEnv
from tetris.game.decisions import after_states
from tetris.game.feature_sets import feature_names
from tetris.game.features import feature_values


class PlacementFeatures(
    gymnasium.Wrapper[Observation, np.int64, Observation, np.int64], RecordConstructorArgs
):
    """Adds the features of every placement's after-state to the observation.

    The observation gets the key ``features``: shape (actions, features), float32, a row for each action, 0
    for those that `info["action_mask"]` excludes and for those that end the game, which have 1 in
    `info["ends_game"]` (int8). A linear controller plays the action with the greatest ``features @ weights``
    of the others.

    It wraps one single environment; ``gymnasium.make_vec(..., features="dt")`` has the engine do the same for
    many. The features are those before a garbage row rises.

    Args:
        env: A `TetrisEnv`, or a wrapper of one; TypeError for any other.
        features: Name of a feature set, or feature names separated by commas.
    """

    def __init__(self, env: gymnasium.Env[Observation, np.int64], features: str = "dt") -> None:
        """Wrap an environment; see the class."""
        RecordConstructorArgs.__init__(self, features=features)
        gymnasium.Wrapper.__init__(self, env)
        inner = env.unwrapped
        if not isinstance(inner, TetrisEnv) or isinstance(inner, KeyPressTetrisEnv):
            raise TypeError(f"expected a TetrisEnv, got {inner!r}")
        self._env = inner
        self.names = feature_names(features, inner.rules.width)
        """Names of the features, in the order of their columns."""
        assert isinstance(env.observation_space, spaces.Dict)
        space = spaces.Box(-np.inf, np.inf, (int(inner.action_space.n), len(self.names)), np.float32)
        self.observation_space = spaces.Dict({**env.observation_space.spaces, "features": space})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a game; see `TetrisEnv.reset`."""
        return self._extended(*self.env.reset(seed=seed, options=options))

    def step(self, action: np.int64) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Place the piece; see `TetrisEnv.step`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        extended, info = self._extended(observation, info)
        return extended, reward, terminated, truncated, info

    def _extended(self, observation: Observation, info: dict[str, Any]) -> tuple[Observation, dict[str, Any]]:
        inner, width = self._env, self._env.rules.width
        pieces = [inner.piece, inner.swapped_piece] if inner.has_hold else [inner.piece]
        ends = np.zeros_like(info["action_mask"])
        values = np.zeros((len(ends), len(self.names)), dtype=np.float32)
        # Where a game is over, its stack is no board to place a piece on.
        for swap, piece in enumerate([] if inner.is_over else pieces):
            for after in after_states(inner.rows, piece, inner.rules):
                action = (swap * MAX_ORIENTATIONS + after.shape.orientation) * width + after.column
                ends[action] = after.game_over
                if not after.game_over:
                    values[action] = feature_values(after, self.names)
        return {**observation, "features": values}, {**info, "ends_game": ends}
