"""Public functions take an argument of any type, or say in a TypeError or ValueError what they want."""

from __future__ import annotations

import decimal
import fractions
import inspect
from collections.abc import Callable, Iterator
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
from tetris.replay import Replay

# What nobody should pass; no sizes that are allowed and take long.
VALUES: dict[str, Any] = {
    **{"None": None, "True": True, "-1": -1, "0": 0, "2**63": 1 << 63, "2**64": 1 << 64, "10**400": 10**400},
    **{
        "nan": float("nan"),
        "inf": float("inf"),
        "-1e308": -1e308,
        "1j": 1j,
        "longdouble": np.longdouble("1e4000"),
    },
    **{"int64": np.int64(3), "uint8": np.uint8(3), "float32": np.float32(0.5), "np bool": np.bool_(True)},
    **{"fraction": fractions.Fraction(1, 2), "decimal": decimal.Decimal("0.5")},
    **{"text": "10x10", "empty text": "", "surrogate": "\udc80", "NUL": "a\0b", "bytes": b"x"},
    **{
        "object": object(),
        "list": [],
        "dict": {},
        "set": {1},
        "tuple": (1, 2),
        "ragged": [[1.0], [2.0, 3.0]],
    },
    **{"deep list": [[[[[[1.0]]]]]], "list of 10**400": [10**400], "texts": ["1.0"] * 3, "class": int},
    **{"bfloat16": torch.ones(3, dtype=torch.bfloat16), "float16": torch.ones(3, dtype=torch.float16)},
    **{"float64": torch.ones(3, dtype=torch.float64), "ints": torch.ones(3, dtype=torch.int64)},
    **{"bools": torch.ones(3, dtype=torch.bool), "complex": torch.ones(3, dtype=torch.complex64)},
    **{"0-d int": torch.tensor(3), "0-d float": torch.tensor(0.5), "no elements": torch.ones(0)},
    **{"sparse": torch.ones(3).to_sparse(), "meta": torch.ones(3, device="meta")},
    **{"requires grad": torch.ones(3, requires_grad=True), "strides": torch.ones(6)[::2]},
    **{"objects": np.array([None, "x", 1j], dtype=object), "strings": np.array(["a"]), "array": np.ones(3)},
    **{
        "0-d array": np.array(2.0),
        "records": np.zeros(2, dtype=[("a", "i4")]),
        "date": np.array(["2020"], "M8[D]"),
    },
    **{"negative strides": np.ones(3)[::-1], "big endian": np.ones(3, dtype=">f8")},
}


def sphere(x: torch.Tensor) -> torch.Tensor:
    return (x**2).sum(-1)


def run_optimizer(**arguments: Any) -> None:
    optimizer = cem.CrossEntropyMethod(
        **{"mean": torch.zeros(3), "std": 1.0, "population_size": 8, "maximize": False, **arguments}
    )
    for _ in range(2):
        optimizer.tell(sphere(optimizer.ask()))


def run_minimize(**arguments: Any) -> None:
    cem.minimize(**{"objective": sphere, "mean": torch.zeros(3), "std": 1.0, "budget": 90, **arguments})


def tell(**arguments: Any) -> None:
    optimizer = cem.CrossEntropyMethod(torch.zeros(3), 1.0, 3, maximize=False)
    optimizer.tell(**{"fitness": optimizer.ask()[:, 0], **arguments})


def plan(**arguments: Any) -> None:
    defaults = {"cost": lambda state, plans: plans.square().sum((-1, -2)), "horizon": 2, "action_dim": 2}
    planner = cem.Planner(
        **{**defaults, "bounds": (-1.0, 1.0), "num_samples": 8, "iterations": 2, **arguments}
    )
    planner.plan(torch.zeros(()) if planner.num_envs is None else torch.zeros(planner.num_envs, 1))


def train(**arguments: Any) -> None:
    optimizer = cem.CrossEntropyMethod(torch.zeros(3), 1.0, 8, maximize=False)
    trainer = cem.Trainer(
        **{"optimizer": optimizer, "objective": lambda x, _: sphere(x), "generations": 2, **arguments}
    )
    trainer.run()


def rollout(**arguments: Any) -> None:
    rules = tetris.Rules(6, 6)
    tetris.rollout(**{"weights": [[-1.0] * 9], "rules": rules, "streams": 2, "decisions": 5, **arguments})


def python_rollout(**arguments: Any) -> None:
    rollout(device="python", **arguments)


def make_rollout(**arguments: Any) -> None:
    rules = tetris.Rules(6, 6)
    tetris.Rollout(**{"weights": [[-1.0] * 9], "rules": rules, "streams": 2, **arguments}).advance(3)


def split_rollout(**arguments: Any) -> None:
    rules = tetris.Rules(6, 6)
    tetris.split_rollout(
        **{"weights": [[-1.0] * 9], "rules": rules, "streams": 4, "decisions": 64, **arguments}
    )


def branch(source: Any) -> None:
    games = tetris.Rollout([[-1.0] * 9] * 3, tetris.Rules(6, 6), 3)
    games.branch(source)
    games.advance(3)


def make_controller(**arguments: Any) -> None:
    tetris.LinearController(**{"features": "holes,max_height", "weights": (1.0, 2.0), **arguments})


def score(**arguments: Any) -> None:
    made = tetris.Score(**{"lines": 3, "games": 2, "decisions": 10, **arguments})
    assert made.lines_per_game is None or made.lines_per_game >= 0


def make_replay(**arguments: Any) -> None:
    list(
        Replay(
            **{"rules": tetris.Rules(), "placements": b"\0", "lines": 0, "games": 0, **arguments}
        ).after_states()
    )


def make_env(**arguments: Any) -> None:
    TetrisEnv(**{"width": 6, "height": 6, **arguments}).reset(seed=1)


def make_vector_env(**arguments: Any) -> None:
    TetrisVectorEnv(**{"num_envs": 2, "width": 6, "height": 6, **arguments}).reset(seed=1)


def step_env(action: Any) -> None:
    env = TetrisEnv(6, 6)
    env.reset(seed=1)
    env.step(action)


def step_vector_env(actions: Any) -> None:
    env = TetrisVectorEnv(2, 6, 6)
    env.reset(seed=1)
    env.step(actions)


def reset_some(reset_mask: Any) -> None:
    env = TetrisVectorEnv(2, 6, 6)
    env.reset(seed=1)
    env.reset(options={"reset_mask": reset_mask})


def update(**arguments: Any) -> None:
    defaults: dict[str, Any] = {
        "fitness": torch.arange(3.0),
        "candidates": torch.ones(3, 2),
        "distribution": torch.ones(4, 2),
        "record": torch.zeros(5, dtype=torch.float64),
        "generation": torch.tensor(1),
        "num_elites": 2,
        "maximize": False,
    }
    cem_update(**{**defaults, **arguments})


def draw(**arguments: Any) -> None:
    sample_normal(**{"mean": torch.zeros(3), "std": torch.ones(3), "num_samples": 3, **arguments})


def draw_rows(**arguments: Any) -> None:
    defaults = {
        "rows": torch.ones(2, 3),
        "num_samples": 3,
        "seed": torch.tensor(1),
        "generation": torch.tensor(1),
    }
    sample_normal_rows(**{**defaults, **arguments})


def cell(**arguments: Any) -> None:
    shapes = {"input": (2, 3), "weights": (12, 7), "bias": (12,), "old_h": (2, 4), "old_cell": (2, 4)}
    lltm(**{**{name: torch.ones(shape) for name, shape in shapes.items()}, **arguments})


def parameters(function: Callable[..., Any], *left_out: str) -> list[str]:
    found = inspect.signature(function).parameters.values()
    return [
        p.name for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in left_out
    ]


# The functions of the caller are called as they are.
CASES: list[tuple[str, Callable[..., Any], list[str]]] = [
    (
        "CrossEntropyMethod",
        run_optimizer,
        parameters(cem.CrossEntropyMethod, "sampler", "extra_variance", "noise"),
    ),
    (
        "minimize",
        run_minimize,
        ["mean", "std", "budget", "population_size", "restarts", "target", "time_limit_s"],
    ),
    ("minimize", run_minimize, ["record_every", "seed", "bounds"]),
    ("tell", tell, ["fitness", "candidates"]),
    ("Planner", plan, parameters(cem.Planner, "cost")),
    ("Trainer", train, ["time_limit_s", "record_every"]),
    (
        "Checkpointer",
        lambda **k: cem.Checkpointer(**{"folder": ".", **k}),
        ["fingerprint", "keep", "interval_s"],
    ),
    ("parse_noise", cem.parse_noise, ["text"]),
    ("rollout", rollout, parameters(tetris.rollout, "check")),
    ("rollout in Python", python_rollout, ["weights", "streams", "seed", "games_per_stream", "first_stream"]),
    ("Rollout", make_rollout, parameters(tetris.Rollout)),
    ("Rollout.branch", branch, ["source"]),
    ("split_rollout", split_rollout, parameters(tetris.split_rollout, "check")),
    ("Rules", tetris.Rules, parameters(tetris.Rules)),
    ("Rules.parse_board", tetris.Rules.parse_board, ["text"]),
    ("Rules.from_dict", tetris.Rules.from_dict, ["values"]),
    ("LinearController", make_controller, parameters(tetris.LinearController)),
    ("LinearController.from_dict", tetris.LinearController.from_dict, ["values"]),
    ("LinearController.names_on", tetris.published("dt20").names_on, ["rules"]),
    ("published", tetris.published, ["name"]),
    ("resolve", tetris.resolve, ["text"]),
    ("feature_names", lambda **k: tetris.feature_names(**{"features": "dt", **k}), ["features", "width"]),
    ("Score", score, ["lines", "games", "decisions"]),
    ("Replay", make_replay, parameters(Replay)),
    ("Replay.from_dict", Replay.from_dict, ["values"]),
    ("TetrisEnv", make_env, parameters(TetrisEnv)),
    ("TetrisEnv.step", step_env, ["action"]),
    ("TetrisEnv.reset", TetrisEnv(6, 6).reset, ["seed", "options"]),
    ("PlacementFeatures", lambda features: PlacementFeatures(TetrisEnv(6, 6), features), ["features"]),
    ("TetrisVectorEnv", make_vector_env, parameters(TetrisVectorEnv)),
    ("TetrisVectorEnv.step", step_vector_env, ["actions"]),
    ("TetrisVectorEnv.reset", lambda **k: TetrisVectorEnv(2, 6, 6).reset(**k), ["seed", "options"]),
    ("TetrisVectorEnv.reset", reset_some, ["reset_mask"]),
    ("sample_normal", draw, parameters(sample_normal)),
    ("sample_normal_rows", draw_rows, parameters(sample_normal_rows)),
    ("cem_update", update, parameters(cem_update)),
    ("sigmoid", sigmoid, ["x"]),
    ("vector_add", lambda **k: vector_add(**{"a": torch.ones(3), "b": torch.ones(3), **k}), ["a", "b"]),
    (
        "elementwise_mult",
        lambda **k: elementwise_mult(**{"a": torch.ones(3), "b": torch.ones(3), **k}),
        ["a", "b"],
    ),
    ("lltm", cell, parameters(lltm)),
]


def single() -> Iterator[Any]:
    for name, function, arguments in CASES:
        for argument in arguments:
            yield pytest.param(function, argument, id=f"{name}-{argument}")


@pytest.mark.parametrize(("function", "argument"), list(single()))
@pytest.mark.filterwarnings("ignore")
def test_an_argument_of_any_type_works_or_is_refused_with_what_was_expected(
    function: Callable[..., Any], argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name, value in VALUES.items():
        try:
            function(**{argument: value})
        except (TypeError, ValueError) as error:
            if "expected" not in str(error).lower():
                wrong.append(f"{name}: {type(error).__name__}: {error}")
        except NotImplementedError as error:  # of torch, which has no such operator
            if "SparseCPU" not in str(error):
                wrong.append(f"{name}: {type(error).__name__}: {error}")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


def counts(result: tetris.RolloutResult) -> list[list[int]]:
    return [each.tolist() for each in (result.lines, result.games, result.decisions)]


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int16])
@pytest.mark.parametrize("device", ["cpu", "python"])
def test_counts_of_numpy_are_counts(kind: Callable[[int], Any], device: str) -> None:
    weights, rules = [[-1.0] * 9], tetris.Rules(kind(6), kind(7))
    plain = {"streams": 2, "decisions": 40, "seed": 3, "games_per_stream": 4, "first_stream": 5}
    ours = tetris.rollout(
        weights, rules, device=device, **{name: kind(value) for name, value in plain.items()}
    )
    assert counts(ours) == counts(tetris.rollout(weights, tetris.Rules(6, 7), device=device, **plain))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8])
def test_weights_of_every_real_type_are_played_in_float32(dtype: torch.dtype) -> None:
    weights = torch.tensor([[-1.0, 1, -1, -3, 2, -4, -1, -9, 1]], dtype=dtype)
    ours = tetris.rollout(weights, tetris.Rules(6, 6), 2, 200)
    assert counts(ours) == counts(tetris.rollout(weights.float(), tetris.Rules(6, 6), 2, 200))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int32])
def test_a_first_mean_of_every_real_type_is_taken(dtype: torch.dtype) -> None:
    mean = torch.tensor([1, 2, -3], dtype=dtype)
    optimizer = cem.CrossEntropyMethod(mean, np.float32(1.0), np.int64(8), maximize=False, seed=np.uint8(1))
    plain = cem.CrossEntropyMethod([1.0, 2.0, -3.0], 1.0, 8, maximize=False, seed=1)
    assert torch.equal(optimizer.ask(), plain.ask())
    fitness = torch.arange(8.0)
    optimizer.tell(fitness.bfloat16())
    plain.tell(fitness)
    assert torch.equal(optimizer.mean, plain.mean)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda: rollout(features=None), TypeError, "expected features as text .* got None"),
        (lambda: rollout(rules="10x10"), TypeError, "expected rules to be Rules .* got '10x10'"),
        (lambda: run_optimizer(std=10**400), TypeError, "expected numbers for std, got int: int too large"),
        (lambda: run_optimizer(std_floor=10**400), ValueError, "expected std_floor finite and >= 0"),
        (lambda: rollout(weights=[[10**400] * 9]), TypeError, "expected real numbers as weights, got list"),
        (lambda: make_controller(weights=(1.0, 10**400)), ValueError, "finite in float32, got 1000"),
        (lambda: rollout(weights=torch.ones(1, 9) * 1j), TypeError, "expected real numbers as weights, got"),
        (
            lambda: rollout(weights=np.ones((1, 9)) > 0),
            TypeError,
            "expected real numbers as weights, got ndarray",
        ),
        (lambda: rollout(share_streams="no"), TypeError, "expected share_streams to be a bool, got 'no'"),
        (lambda: branch(torch.full((3, 3), 3)), ValueError, "expected streams from 0 to 2 in source"),
        (lambda: tetris.feature_names("dt", 1 << 40), ValueError, "board's width from 4 to 10"),
    ],
)
def test_errors_say_what_was_expected(
    function: Callable[[], None], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        function()
