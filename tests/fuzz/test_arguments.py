"""What stands on native code takes any argument or refuses it: no value ends the process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import cem
import tetris
from kernels import cem_update, elementwise_mult, lltm, sample_normal, sample_normal_rows, sigmoid, vector_add
from tetris.envs import TetrisVectorEnv

VALUES = (float("nan"), -1, torch.ones(3, dtype=torch.complex64))
RULES = tetris.Rules(6, 6)
ONES = torch.ones(3)
PLAY: dict[str, Any] = {"policy": tetris.Policy([[-1.0] * 9]), "streams": tetris.Streams(RULES, 4)}


def step(action: Any, **arguments: Any) -> None:
    env = TetrisVectorEnv(**arguments)
    env.reset(seed=1)
    env.step(action)


# A function, and arguments that fit.
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Policy": (
        lambda **k: tetris.rollout(tetris.Policy(**k), PLAY["streams"], 3, "python"),
        {"weights": [-1.0] * 9},
    ),
    "Streams": (tetris.Streams, {"count": 2, "seed": 1, "first": 3}),
    "rollout": (tetris.rollout, {**PLAY, "decisions": 5}),
    "Rollout": (lambda **k: tetris.Rollout(**k).advance(3), PLAY),
    "split_rollout": (tetris.split_rollout, {**PLAY, "decisions": 300}),
    "TetrisVectorEnv": (step, {"num_envs": 2, "width": 6, "height": 6, "action": torch.zeros(2).long()}),
    "sample_normal": (sample_normal, {"mean": torch.zeros(3), "std": ONES, "num_samples": 3}),
    "sample_normal_rows": (
        sample_normal_rows,
        {"rows": torch.ones(2, 3), "num_samples": 3, "seed": torch.tensor(1), "generation": torch.tensor(1)},
    ),
    "cem_update": (
        cem_update,
        {
            **{"fitness": torch.arange(3.0), "candidates": torch.ones(3, 2)},
            **{"distribution": torch.ones(4, 2), "record": torch.zeros(5, dtype=torch.float64)},
            **{"generation": torch.tensor(1), "num_elites": 2, "maximize": False},
        },
    ),
    "sigmoid": (sigmoid, {"x": ONES}),
    "vector_add": (vector_add, {"a": ONES, "b": ONES}),
    "elementwise_mult": (elementwise_mult, {"a": ONES, "b": ONES}),
    "lltm": (
        lltm,
        {
            **{"input": torch.ones(2, 3), "weights": torch.ones(12, 7), "bias": torch.ones(12)},
            **{"old_h": torch.ones(2, 4), "old_cell": torch.ones(2, 4)},
        },
    ),
}
ENTRIES = {"Rollout": tetris.Rollout, "TetrisVectorEnv": TetrisVectorEnv}  # the rest are called as they are


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_an_argument_of_any_type_works_or_is_refused(name: str) -> None:
    function, fitting = CASES[name]
    function(**fitting)
    declared = inspect.signature(ENTRIES.get(name, function)).parameters.values()
    names = {p.name for p in declared if p.kind is not p.VAR_KEYWORD} | fitting.keys()
    wrong = []
    for argument in sorted(names - {"check"}):
        for value in VALUES:
            try:
                function(**{**fitting, argument: value})
            except (AttributeError, TypeError, ValueError, RuntimeError):
                pass
            except Exception as error:
                wrong.append(f"{argument}={value}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def counts(result: tetris.RolloutResult) -> list[list[int]]:
    return [each.tolist() for each in (result.lines, result.games, result.decisions)]


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_counts_of_numpy_are_counts(device: str) -> None:
    policy, rules = PLAY["policy"], tetris.Rules(np.uint8(6), np.uint8(7))
    plain = {"count": 2, "seed": 3, "games": 4, "first": 5}
    streams = tetris.Streams(rules, **{name: np.uint8(value) for name, value in plain.items()})
    expected = tetris.rollout(policy, tetris.Streams(tetris.Rules(6, 7), **plain), 40, device)
    assert counts(tetris.rollout(policy, streams, np.uint8(40), device)) == counts(expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
def test_numbers_of_every_real_type_are_taken(dtype: torch.dtype) -> None:
    weights = torch.tensor([[-1.0, 1, -1, -3, 2, -4, -1, -9, 1]], dtype=dtype)
    ours, plain = (tetris.rollout(tetris.Policy(x), PLAY["streams"], 200) for x in (weights, weights.float()))
    assert counts(ours) == counts(plain)

    mean = torch.tensor([1, 2, -3], dtype=dtype)
    optimizer = cem.CrossEntropyMethod(mean, np.float32(1.0), np.int64(8), maximize=False, seed=np.uint8(1))
    plain = cem.CrossEntropyMethod([1.0, 2.0, -3.0], 1.0, 8, maximize=False, seed=1)
    assert torch.equal(optimizer.ask(), plain.ask())
