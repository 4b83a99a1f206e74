"""A wrapper that adds what a controller looks at: the features of the board that every placement leads to."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from tetris.envs.key_press_env import KeyPressTetrisEnv
from tetris.envs.placements import action_count
from tetris.envs.tetris_env import Observation, TetrisEnv
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
    many. The space of ``features`` is a Box without bounds, of which Gymnasium's ``check_env`` warns. A hold
    slot doubles the rows, as it doubles the actions; the features are those before a garbage row rises.

    Examples:
        >>> import gymnasium, tetris.envs
        >>> env = PlacementFeatures(gymnasium.make("CemTetris/Tetris-v0"), features="dellacherie")
        >>> observation, info = env.reset(seed=1)
        >>> observation["features"].shape
        (40, 6)

    Args:
        env: The environment, made from one of the ids of `TetrisEnv`.
        features: Name of a feature set, or feature names separated by commas.

    Raises:
        TypeError: If the environment is another one.
        ValueError: If there is no such feature.
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
        actions = action_count(inner.rules.width) * (2 if inner.has_hold else 1)
        space = features_space(actions, len(self.names))
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
        inner, count = self._env, action_count(self._env.rules.width)
        pieces = [inner.piece, inner.swapped_piece] if inner.has_hold else [inner.piece]
        values = np.zeros((len(pieces) * count, len(self.names)), dtype=np.float32)
        ends = np.zeros(len(pieces) * count, dtype=np.int8)
        # Where a game is over, its stack is no board to place a piece on.
        for swap, piece in enumerate([] if inner.is_over else pieces):
            for after in after_states(inner.rows, piece, inner.rules):
                action = swap * count + after.shape.orientation * inner.rules.width + after.column
                ends[action] = after.game_over
                if not after.game_over:
                    values[action] = feature_values(after, self.names)
        return {**observation, "features": values}, {**info, "ends_game": ends}


def features_space(actions: int, features: int) -> spaces.Box:
    """Return the space of the features of all placements."""
    return spaces.Box(-np.inf, np.inf, (actions, features), np.float32)
