"""Gymnasium environments: importing this package makes their ids known, `TetrisEnv` describes them.

Begin with `tetris_env.py`.
"""

from tetris.envs.key_press_env import KeyPressTetrisEnv
from tetris.envs.placement_features import PlacementFeatures
from tetris.envs.registration import IDS, REFERENCE_IDS, register_environments
from tetris.envs.tetris_env import TetrisEnv
from tetris.envs.vector_env import TetrisVectorEnv
from tetris.envs.vector_wrappers import EpisodeStatistics, NormalizedReward

__all__ = [
    "IDS",
    "REFERENCE_IDS",
    "EpisodeStatistics",
    "KeyPressTetrisEnv",
    "NormalizedReward",
    "PlacementFeatures",
    "TetrisEnv",
    "TetrisVectorEnv",
]

register_environments()
