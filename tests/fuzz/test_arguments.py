"""What stands on the native engine takes any argument or refuses it: no value ends the process.

The operators: tests/kernels/test_contract.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tetris
from tetris.envs import TetrisVectorEnv

VALUES = (float("nan"), -1, torch.ones(3, dtype=torch.complex64))
RULES = tetris.Rules(6, 6)
PLAY: dict[str, Any] = {
    "policy": tetris.Policy([[-1.0] * 9]),
    "streams": tetris.Streams(RULES, 4),
}


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
    "TetrisVectorEnv": (
        step,
        {"num_envs": 2, "action": torch.zeros(2).long()}
        | {
            "width": 6,
            "height": 6,
            "clear_on_overflow": False,
            "pieces": "bag",
            "render_mode": None,
        }
        | {"pieces_known": 2, "reward": "lines"},
    ),
}
ENTRIES = {
    "Rollout": tetris.Rollout,
    "TetrisVectorEnv": TetrisVectorEnv,
}  # the rest are called as they are


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
def test_numbers_of_every_real_type_are_taken(dtype: torch.dtype) -> None:
    weights = torch.tensor([[-1.0, 1, -1, -3, 2, -4, -1, -9, 1]], dtype=dtype)
    ours, plain = (
        tetris.rollout(tetris.Policy(x), PLAY["streams"], 200)
        for x in (weights, weights.float())
    )
    assert counts(ours) == counts(plain)
