"""Wrappers: features of every placement for single games, and two of Gymnasium's on torch tensors.

Those on tensors neither wait for the device nor copy from it: what depends on ended games is masked.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from tetris.envs.key_press_env import KeyPressTetrisEnv
from tetris.envs.tetris_env import MAX_ORIENTATIONS, Observation, TetrisEnv
from tetris.envs.vector_env import TetrisVectorEnv
from tetris.game.decisions import after_states
from tetris.game.feature_sets import feature_names
from tetris.game.features import feature_values

Step = tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]


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


class _PerGameWrapper(VectorWrapper):
    """Sums over every game's steps, a tensor for each dtype, which a reset clears."""

    _dtypes: tuple[torch.dtype, ...] = (torch.float64,)

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        """Wrap an environment; see the class."""
        super().__init__(env)
        inner = env.unwrapped
        if not isinstance(inner, TetrisVectorEnv) or inner.output != "torch":
            raise TypeError(f'expected a TetrisVectorEnv with output="torch", got {env!r}')
        self._same_step = inner.autoreset_mode is AutoresetMode.SAME_STEP
        self._ended = torch.zeros(self.num_envs, dtype=torch.bool, device=inner.device)
        self._sums = tuple(torch.zeros_like(self._ended, dtype=dtype) for dtype in self._dtypes)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin games; clear what is known of those that begin. See `TetrisVectorEnv.reset`."""
        result = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        begun = torch.as_tensor(True if mask is None else mask, device=self._ended.device)
        for each in (self._ended, *self._sums):
            each.masked_fill_(begun, 0)
        return result

    def _played(self) -> torch.Tensor:
        """Whether each game plays in the next step; one that has ended only where it begins again at once."""
        return torch.ones_like(self._ended) if self._same_step else ~self._ended


class EpisodeStatistics(_PerGameWrapper):
    """Adds the return and the length of every game that ends, as Gymnasium's `RecordEpisodeStatistics` does.

    A step's infos get ``"_episode"``, bool of shape (num_envs,): the games that ended in it; and
    ``"episode"``: ``{"r": returns, "l": lengths}``, float64 and int64 of shape (num_envs,), 0 for the others.
    They are tensors on the environment's device.

    Other than Gymnasium's, it has them in every step, for to leave them out would mean to wait for the
    device, and in the mode ``DISABLED`` it reports a game's end once. It has neither times nor queues.

    Args:
        env: A `TetrisVectorEnv` with ``output="torch"``, or a wrapper of one; TypeError for any other.
    """

    _dtypes = (torch.float64, torch.int64)

    def step(self, actions: Any) -> Step:
        """Place a piece in every game; see the class and `TetrisVectorEnv.step`."""
        observation, rewards, terminations, truncations, infos = self.env.step(actions)
        played = self._played()
        for sums, added in zip(self._sums, (rewards * played, played), strict=True):
            sums.masked_fill_(self._ended, 0).add_(added)
        self._ended = terminations | truncations
        ends = self._ended & played
        returns, lengths = (sums * ends for sums in self._sums)
        infos = {**infos, "episode": {"r": returns, "l": lengths}, "_episode": ends}
        return observation, rewards, terminations, truncations, infos


class NormalizedReward(_PerGameWrapper):
    """Divides rewards by the running standard deviation of discounted returns.

    The numbers are those of `NormalizeReward` of Gymnasium 1.4. Other than there, a reset with a mask clears
    the returns of the games that begin, not those of all. The rewards stay float32.

    Args:
        env: As of `EpisodeStatistics`.
        gamma: Discount factor, 0 to 1.
        epsilon: What is added to the variance, greater than 0.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        """Wrap an environment; see the class."""
        super().__init__(env)
        if not 0 <= gamma <= 1:
            raise ValueError(f"expected gamma from 0 to 1, got {gamma!r}")
        if not epsilon > 0:
            raise ValueError(f"expected epsilon greater than 0, got {epsilon!r}")
        self.gamma, self.epsilon = gamma, epsilon
        self.update_running_mean = True
        """Whether steps go on to change the variance; set it to False to evaluate."""
        # Of all returns so far, begun as Gymnasium does.
        self._mean, self._variance, self._count = self._sums[0].new_tensor([0.0, 1.0, 1e-4]).unbind()

    def step(self, actions: Any) -> Step:
        """Place a piece in every game; see the class and `TetrisVectorEnv.step`."""
        observation, rewards, terminations, truncations, infos = self.env.step(actions)
        played = self._played()
        (returns,) = self._sums
        returns.copy_(torch.where(played, returns * self.gamma * ~terminations + rewards, returns))
        if self.update_running_mean:
            self._update(returns, played)
        self._ended = terminations | truncations
        if self._same_step:
            returns.masked_fill_(self._ended, 0)
        scaled = rewards / torch.sqrt(self._variance + self.epsilon)
        return observation, scaled, terminations, truncations, infos

    def _update(self, values: torch.Tensor, chosen: torch.Tensor) -> None:
        """Add the chosen values to mean and variance (Chan et al., the parallel algorithm)."""
        count = chosen.sum()
        mean = (values * chosen).sum() / count.clamp(min=1)
        squares = ((values - mean).square() * chosen).sum()
        total, delta = self._count + count, mean - self._mean
        squares += self._variance * self._count + delta.square() * self._count * count / total
        self._mean = self._mean + delta * count / total
        self._variance, self._count = squares / total, total
