"""Environments are copied and pickled, and the copy plays on as the original does."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tetris import Policy, Rollout, Streams
from tetris.envs import PlacementFeatures, TetrisEnv, TetrisVectorEnv

DUPLICATES = [copy.deepcopy, lambda games: pickle.loads(pickle.dumps(games))]
_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU and a CUDA build of torch"
)
CUDA_PICKLED = pytest.param("cuda", DUPLICATES[1], marks=[pytest.mark.cuda, _gpu])


@pytest.mark.parametrize(
    ("device", "duplicate"), [("cpu", DUPLICATES[0]), ("cpu", DUPLICATES[1]), CUDA_PICKLED]
)
def test_a_vector_environment(device: str, duplicate: Callable[[Any], Any]) -> None:
    envs = TetrisVectorEnv(3, 6, 6, device=device, output="torch")
    envs.reset(seed=1)
    envs.step([0, 1, 2])
    other = duplicate(envs)
    for _ in range(9):
        first, second = (each.step([3, 4, 5]) for each in (envs, other))
        for one, two in zip(
            (*first[0].values(), *first[1:4]), (*second[0].values(), *second[1:4]), strict=True
        ):
            assert torch.equal(one, two)


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_games_in_progress_say_that_they_cannot_be_copied(
    duplicate: Callable[[Any], Any],
) -> None:
    games = Rollout(Policy([[-1.0]], "holes"), Streams(), "python")
    with pytest.raises(TypeError, match=r"a Rollout .* can be neither copied nor pickled"):
        duplicate(games)


@pytest.mark.parametrize(
    ("wrap", "duplicate"),
    [
        (lambda env: env, DUPLICATES[1]),
        (lambda env: PlacementFeatures(env, "dt"), DUPLICATES[0]),
    ],
)
def test_an_environment(
    wrap: Callable[[TetrisEnv], Any], duplicate: Callable[[Any], Any]
) -> None:
    env = wrap(TetrisEnv())
    env.reset(seed=1)
    env.step(0)
    other = duplicate(env)
    for _ in range(3):
        one, two = env.step(5), other.step(5)
        assert one[1:4] == two[1:4]
        assert all(np.array_equal(one[0][name], two[0][name]) for name in one[0])
