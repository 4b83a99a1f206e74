"""A wrapper that adds the features of every placement to the observations of a game."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from tetris import feature_names
from tetris.envs.key_press_env import KeyPressTetrisEnv
from tetris.envs.tetris_env import MAX_ORIENTATIONS, Observation, TetrisEnv
from tetris.game.decisions import after_states
from tetris.game.features import feature_values


class PlacementFeatures(
    gymnasium.Wrapper[Observation, np.int64, Observation, np.int64], RecordConstructorArgs
):
    """Adds the features of every placement's after-state to the observation.

    The observation gets the key ``features``: shape (actions, features), float32, a row for
    each action. A row is 0 if `info["action_mask"]` excludes the action. It is also 0 if the
    action ends the game; then `info["ends_game"]` (int8) is 1. A linear controller plays the
    action with the greatest ``features @ weights`` among the others.

    This class wraps a single environment. For many environments
    ``gymnasium.make_vec(..., features="dt")`` does the same, in the engine. The features
    describe the board before a garbage row rises.

    Args:
        env: A `TetrisEnv`, or a wrapper of one; TypeError for any other.
        features: Name of a feature set, or feature names separated by commas.
    """

    def __init__(self, env: gymnasium.Env[Observation, np.int64], features: str = "dt") -> None:
        """Wrap an environment, and add the features to its observation space.

        Args:
            env: A `TetrisEnv`, or a wrapper of one.
            features: Name of a feature set, or feature names separated by commas.

        Raises:
            TypeError: If the environment is not a `TetrisEnv`, or if its actions are key
                presses.
        """
        RecordConstructorArgs.__init__(self, features=features)
        gymnasium.Wrapper.__init__(self, env)
        inner = env.unwrapped
        if not isinstance(inner, TetrisEnv) or isinstance(inner, KeyPressTetrisEnv):
            raise TypeError(f"expected a TetrisEnv, got {inner!r}")
        self._env = inner
        self.names = feature_names(features, inner.rules.width)
        """Names of the features, in the order of their columns."""
        assert isinstance(env.observation_space, spaces.Dict)
        shape = int(inner.action_space.n), len(self.names)
        space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.observation_space = spaces.Dict(
            {**env.observation_space.spaces, "features": space}
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a game; see `TetrisEnv.reset`."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._add_features(observation, info)

    def step(self, action: np.int64) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Place the piece; see `TetrisEnv.step`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        observation, info = self._add_features(observation, info)
        return observation, reward, terminated, truncated, info

    def _add_features(
        self, observation: Observation, info: dict[str, Any]
    ) -> tuple[Observation, dict[str, Any]]:
        """Return the observation with ``features``, and the info with ``ends_game``.

        ``features`` has a row for each action: the features of the board after the action. The
        row is zeros if the action ends the game, or if an earlier action makes the same
        placement. An action that ends the game has a 1 in ``ends_game``.

        The number of an action is ``(swap * MAX_ORIENTATIONS + orientation) * width + column``.
        With swap 1 the piece is first swapped with the hold slot.
        """
        game = self._env
        # The pieces that can be placed: first without a swap, then with a swap.
        pieces = []
        if not game.is_over:
            pieces.append(game.piece)
            if game.has_hold:
                pieces.append(game.swapped_piece)
        ends_game = np.zeros_like(info["action_mask"])
        features = np.zeros((len(ends_game), len(self.names)), dtype=np.float32)
        for swap, piece in enumerate(pieces):
            # `after_states` yields each placement once. Actions that repeat it keep zeros.
            for after in after_states(game.rows, piece, game.rules):
                swap_and_orientation = swap * MAX_ORIENTATIONS + after.shape.orientation
                action = swap_and_orientation * game.rules.width + after.column
                ends_game[action] = after.game_over
                if not after.game_over:
                    features[action] = feature_values(after, self.names)
        return {**observation, "features": features}, {**info, "ends_game": ends_game}
