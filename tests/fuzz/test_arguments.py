"""Public functions take any argument, or refuse it with a TypeError or a ValueError: nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cem
import tetris
from kernels.ops.cem_update import cem_update
from kernels.ops.elementwise import elementwise_mult, sigmoid, vector_add
from kernels.ops.lltm import lltm
from kernels.ops.normal import sample_normal, sample_normal_rows
from tetris.envs import PlacementFeatures, TetrisEnv, TetrisVectorEnv
from tetris.record.replay import Replay

VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "-1": -1,
    "complex": torch.ones(3, dtype=torch.complex64),
}
RULES = tetris.Rules(6, 6)
ZEROS, ONES = torch.zeros(3), torch.ones(3)
PLAY: dict[str, Any] = {"policy": tetris.Policy([-1.0] * 9), "streams": tetris.Streams(RULES, 4)}


def sphere(x: torch.Tensor) -> torch.Tensor:
    return (x**2).sum(-1)


def run_optimizer(**arguments: Any) -> None:
    optimizer = cem.CrossEntropyMethod(**arguments)
    for _ in range(2):
        optimizer.tell(sphere(optimizer.ask()))


def tell(**arguments: Any) -> None:
    optimizer = cem.CrossEntropyMethod(ZEROS, 1.0, 3, maximize=False)
    optimizer.tell(**{"fitness": optimizer.ask()[:, 0], **arguments})


def plan(**arguments: Any) -> None:
    planner = cem.Planner(**arguments)
    planner.plan(torch.zeros(()) if planner.num_envs is None else torch.zeros(planner.num_envs, 1))


def train(**arguments: Any) -> None:
    optimizer = cem.CrossEntropyMethod(ZEROS, 1.0, 8, maximize=False)
    cem.Trainer(optimizer, lambda x, _: sphere(x), generations=2, **arguments).run()


def branch(source: Any) -> None:
    games = tetris.Rollout(tetris.Policy([[-1.0] * 9] * 3), tetris.Streams(RULES, 3))
    games.branch(source)
    games.advance(3)


def env(kind: Callable[..., Any], *sizes: int, step: Any = None, **reset: Any) -> None:
    made = kind(*sizes)
    made.reset(**{"seed": 1, **reset})
    if step is not None:
        made.step(step)


def parameters(function: Callable[..., Any], *left_out: str) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [
        p.name for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in left_out
    ]


# A function, arguments that fit, and those to replace. Functions of the caller are called as they are.
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], list[str]]] = {
    "CrossEntropyMethod": (
        run_optimizer,
        {"mean": ZEROS, "std": 1.0, "population_size": 8, "maximize": False},
        parameters(cem.CrossEntropyMethod, "sampler", "extra_variance", "noise"),
    ),
    "minimize": (
        cem.minimize,
        {"objective": sphere, "mean": ZEROS, "std": 1.0, "budget": 90},
        [
            *("mean", "std", "budget", "population_size", "restarts", "target", "time_limit_s"),
            *("record_every", "seed", "bounds"),
        ],
    ),
    "tell": (tell, {}, ["fitness", "candidates"]),
    "Planner": (
        plan,
        {
            **{"cost": lambda state, plans: plans.square().sum((-1, -2)), "horizon": 2, "action_dim": 2},
            **{"bounds": (-1.0, 1.0), "num_samples": 8, "iterations": 2},
        },
        parameters(cem.Planner, "cost"),
    ),
    "Trainer": (train, {}, ["time_limit_s", "record_every"]),
    "Checkpointer": (cem.Checkpointer, {"folder": "."}, ["fingerprint", "keep", "interval_s"]),
    "parse_noise": (cem.parse_noise, {}, ["text"]),
    "rollout": (tetris.rollout, {**PLAY, "decisions": 5}, parameters(tetris.rollout, "check")),
    "Policy": (
        lambda **k: tetris.rollout(tetris.Policy(**k), PLAY["streams"], 3, "python"),
        {"weights": [-1.0] * 9},
        parameters(tetris.Policy),
    ),
    "Streams": (tetris.Streams, {}, parameters(tetris.Streams)),
    "Rollout": (lambda **k: tetris.Rollout(**k).advance(3), PLAY, parameters(tetris.Rollout)),
    "Rollout.branch": (branch, {}, ["source"]),
    "split_rollout": (
        tetris.split_rollout,
        {**PLAY, "decisions": 213},
        parameters(tetris.split_rollout, "check"),
    ),
    "Rules": (tetris.Rules, {}, parameters(tetris.Rules)),
    "Rules.parse_board": (tetris.Rules.parse_board, {}, ["text"]),
    "Rules.from_dict": (tetris.Rules.from_dict, {}, ["values"]),
    "LinearController": (
        tetris.LinearController,
        {"features": "holes,max_height", "weights": (1.0, 2.0)},
        parameters(tetris.LinearController),
    ),
    "LinearController.from_dict": (tetris.LinearController.from_dict, {}, ["values"]),
    "published": (tetris.published, {}, ["name"]),
    "resolve": (tetris.resolve, {}, ["text"]),
    "feature_names": (tetris.feature_names, {"features": "dt"}, ["features", "width"]),
    "Score": (tetris.Score, {"lines": 3, "games": 2, "decisions": 10}, ["lines", "games", "decisions"]),
    "Replay": (
        lambda **k: list(Replay(**k).after_states()),
        {"rules": tetris.Rules(), "placements": b"\0", "lines": 0, "games": 0},
        parameters(Replay),
    ),
    "Replay.from_dict": (Replay.from_dict, {}, ["values"]),
    "TetrisEnv": (lambda **k: TetrisEnv(**k).reset(seed=1), {}, parameters(TetrisEnv)),
    "TetrisEnv.reset": (lambda **k: env(TetrisEnv, 6, 6, **k), {}, ["step", "seed", "options"]),
    "PlacementFeatures": (
        lambda features: PlacementFeatures(TetrisEnv(6, 6), features),
        {},
        ["features"],
    ),
    "TetrisVectorEnv": (
        lambda **k: TetrisVectorEnv(**k).reset(seed=1),
        {"num_envs": 2, "width": 6, "height": 6},
        parameters(TetrisVectorEnv),
    ),
    "TetrisVectorEnv.reset": (
        lambda **k: env(TetrisVectorEnv, 2, 6, 6, **k),
        {},
        ["step", "seed", "options"],
    ),
    "sample_normal": (
        sample_normal,
        {"mean": ZEROS, "std": ONES, "num_samples": 3},
        parameters(sample_normal),
    ),
    "sample_normal_rows": (
        sample_normal_rows,
        {
            **{"rows": torch.ones(2, 3), "num_samples": 3},
            **{"seed": torch.tensor(1), "generation": torch.tensor(1)},
        },
        parameters(sample_normal_rows),
    ),
    "cem_update": (
        cem_update,
        {
            **{"fitness": torch.arange(3.0), "candidates": torch.ones(3, 2)},
            **{"distribution": torch.ones(4, 2), "record": torch.zeros(5, dtype=torch.float64)},
            **{"generation": torch.tensor(1), "num_elites": 2, "maximize": False},
        },
        parameters(cem_update),
    ),
    "sigmoid": (sigmoid, {}, ["x"]),
    "vector_add": (vector_add, {"a": ONES, "b": ONES}, ["a", "b"]),
    "elementwise_mult": (elementwise_mult, {"a": ONES, "b": ONES}, ["a", "b"]),
    "lltm": (
        lltm,
        {
            **{"input": torch.ones(2, 3), "weights": torch.ones(12, 7), "bias": torch.ones(12)},
            **{"old_h": torch.ones(2, 4), "old_cell": torch.ones(2, 4)},
        },
        parameters(lltm),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_an_argument_of_any_type_works_or_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, fitting, arguments = CASES[name]
    wrong = []
    for argument in arguments:
        for value in VALUES:
            try:
                function(**{**fitting, argument: VALUES[value]})
            except (TypeError, ValueError):
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
def test_weights_of_every_real_type_are_played_in_float32(dtype: torch.dtype) -> None:
    weights = torch.tensor([[-1.0, 1, -1, -3, 2, -4, -1, -9, 1]], dtype=dtype)
    ours, plain = (tetris.rollout(tetris.Policy(x), PLAY["streams"], 200) for x in (weights, weights.float()))
    assert counts(ours) == counts(plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32])
def test_a_first_mean_of_every_real_type_is_taken(dtype: torch.dtype) -> None:
    mean = torch.tensor([1, 2, -3], dtype=dtype)
    optimizer = cem.CrossEntropyMethod(mean, np.float32(1.0), np.int64(8), maximize=False, seed=np.uint8(1))
    plain = cem.CrossEntropyMethod([1.0, 2.0, -3.0], 1.0, 8, maximize=False, seed=1)
    assert torch.equal(optimizer.ask(), plain.ask())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tetris.Policy([1.0] * 9, features=None), "expected features as text .* got None"),
        (lambda: tetris.Policy(torch.ones(1, 9) * 1j), "expected real numbers as weights, got"),
        (lambda: [[1.0] * 9], "expected a Policy, got list"),
    ],
)
def test_errors_of_a_rollout_say_what_was_expected(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        tetris.rollout(make(), PLAY["streams"], 5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rules": "10x10"}, "expected rules to be Rules .* got '10x10'"),
        ({"shared": "no"}, "expected shared to be a bool, got 'no'"),
    ],
)
def test_errors_of_streams_say_what_was_expected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        tetris.Streams(**changed)
