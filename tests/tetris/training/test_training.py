"""What candidates play in training, and what it is worth."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_games import few_features, weights_for
from torch.utils._python_dispatch import TorchDispatchMode

from cem import StopRequest, maximize
from tetris import (
    LinearController,
    Policy,
    Rollout,
    RolloutResult,
    Rules,
    SplitResult,
    Streams,
    rollout,
    split_rollout,
)
from tetris.play.splitting import SplitRollout
from tetris.training import training as _training
from tetris.training.objective import (
    LinesPerGame,
    lines_per_game,
    piece_seed,
    run_objective,
    unit_length,
)
from tetris.training.recipe import Recipe, make_recipe
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training, prepare_engine


def _recipe(device: str = "python", **settings: str | int) -> Recipe:
    tiny: dict[str, str | int] = {
        "population": 3,
        "streams": 2,
        "board": "5x6",
        "features": "holes,max_height",
    }
    return make_recipe(device, {**tiny, "curriculum": "5x6:2:20,5x7:1:30", **settings})


def _training_run(folder: Path, recipe: Recipe) -> Training:
    folder.mkdir(exist_ok=True)
    return Training(recipe, RunFolder(folder))


def test_fitness_is_lines_per_game_and_half_a_game_where_none_ended() -> None:
    lines, games, decisions = torch.tensor([[12, 7, 0, 0], [3, 0, 5, 0], [9, 9, 9, 9]])
    fitness = lines_per_game(RolloutResult(lines, games, decisions))
    assert fitness.tolist() == [4.0, 14.0, 0.0, 0.0]
    assert fitness.dtype == torch.float64
    endless = SplitResult(lines, games, decisions, fitness, fitness + math.inf, games > 0)
    assert lines_per_game(endless).tolist() == [1e12] * 4


def test_weights_are_scaled_to_length_1_and_zero_stays() -> None:
    weights = torch.tensor([[3.0, -4.0], [1e-3, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(
        unit_length(weights), torch.tensor([[0.6, -0.8], [1.0, 0.0], [0.0, 0.0]])
    )


def test_piece_seeds_differ_from_run_to_run_and_from_those_people_type() -> None:
    seeds = {piece_seed(seed) for seed in range(1000)}
    assert len(seeds) == 1000
    assert min(seeds) > 1 << 32


@pytest.mark.filterwarnings("ignore:expected at most:RuntimeWarning")
def test_candidates_are_evaluated_at_length_1_on_streams_of_their_generation(
    tmp_path: Path,
) -> None:
    recipe = _recipe(curriculum="5x6:2:20,5x7:1:30,5x7:1:215:split", burn_in=203)
    optimizer = _training_run(tmp_path, recipe).optimizer
    candidates = torch.tensor([[-3.0, -4.0], [1.0, 0.0], [0.0, -2.0]])
    for generation, (height, decisions) in enumerate([(6, 20), (6, 20), (7, 30), (7, 215)]):
        evaluation = run_objective(
            recipe, lambda: optimizer.averaged_mean, StopRequest().check
        )(candidates, generation)
        players = unit_length(candidates)
        assert evaluation.candidates is not None
        torch.testing.assert_close(evaluation.candidates, players)
        policy = Policy(players, recipe.features)
        streams = Streams(Rules(5, height), 2, piece_seed(recipe.seed), 2 * generation)
        played = (split_rollout if decisions == 215 else rollout)(
            policy, streams, decisions, "python"
        )
        assert evaluation.fitness.tolist() == lines_per_game(played).tolist()
        assert evaluation.metrics["board_height"] == height
        assert evaluation.metrics["decisions"] == 4 * 2 * decisions


@pytest.mark.parametrize("curriculum", ["5x6:1:120", "5x7:1:200:split"])
def test_the_better_half_of_each_round_plays_on_to_the_fitness_of_all_decisions(
    tmp_path: Path, curriculum: str
) -> None:
    given: dict[str, str | int] = {
        "curriculum": curriculum,
        "features": few_features(5),
        "burn_in": 100,
    }
    recipe = _recipe("cpu", **given, population=11, elites=2, streams=4, halvings=2)
    optimizer = _training_run(tmp_path, recipe).optimizer
    candidates, (stage,) = optimizer.ask(), recipe.stages
    found = run_objective(recipe, lambda: optimizer.averaged_mean, StopRequest().check)(
        candidates, 0
    )
    best, rounds = list(range(11)), recipe.rounds(stage)
    assert [count for _, count in rounds] == [11, 6, 3]
    for number in range(3):
        until = sum(decisions for decisions, _ in rounds[: number + 1])
        options: dict[str, Any] = {
            "streams": 4,
            "decisions": until,
            "split": stage.split,
            "burn_in": 100,
        }
        fitness = LinesPerGame(recipe.features, stage.rules, device="cpu", **options)(
            candidates
        ).tolist()
        for _, count in rounds[number + 1 : number + 2]:
            best = sorted(sorted(best), key=lambda each: -fitness[each])[:count]
    assert found.fitness.tolist() == [
        fitness[each] if each in best else -math.inf for each in range(11)
    ]
    assert found.metrics["decisions"] == recipe.decisions_until(1)


def test_a_generation_is_recorded_under_these_names(tmp_path: Path) -> None:
    training = _training_run(tmp_path, _recipe())
    training.trainer.run()
    first, *_ = (json.loads(line) for line in training.folder.metrics.read_text().splitlines())
    assert list(first) == [
        *(
            "generation",
            "best_fitness",
            "generation_best",
            "elite_mean",
            "elite_threshold",
            "std_mean",
        ),
        *("seconds", "elapsed_s"),
        *(
            "stage",
            "board_width",
            "board_height",
            "learned_mean_fitness",
            "lines",
            "games",
            "decisions",
        ),
        *("lines/s", "decisions/s"),
        *("mean", "std"),
    ]
    assert (len(first["mean"]), len(first["std"])) == (2, 2)
    assert [
        type(first[name]) for name in ("learned_mean_fitness", "lines", "games", "decisions")
    ] == [*(float, int, int, int)]
    assert [first[name] for name in ("stage", "board_width", "board_height")] == [1, 5, 6]
    assert first["decisions"] == 4 * 2 * 20
    assert first["decisions/s"] == first["decisions"] / first["seconds"]
    assert first["lines/s"] == first["lines"] / first["seconds"]


class _NothingRead(TorchDispatchMode):
    """Fails where a tensor is turned into a number, which on a GPU waits for the device."""

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        assert "_local_scalar_dense" not in str(function), "a tensor was read"
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.cuda,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
            ],
        ),
    ],
)
def test_objective_reads_nothing_of_what_was_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    counts = torch.tensor([[12, 7, 0, 0], [3, 0, 5, 0], [9, 9, 9, 9]], device=device)
    games = SimpleNamespace(advance=lambda *_: RolloutResult(*counts))
    monkeypatch.setattr(LinesPerGame, "games", lambda *_: games)
    recipe = _recipe("cuda" if device == "cuda" else "python", backend="torch", halvings=0)
    optimizer = _training_run(tmp_path, recipe).optimizer
    objective = run_objective(recipe, lambda: optimizer.averaged_mean, StopRequest().check)
    candidates = torch.ones(3, 2, device=device)
    with _NothingRead():
        evaluation = objective(candidates, 0)
    assert evaluation.fitness.device.type == device
    assert evaluation.fitness.tolist() == [4.0, 14.0, 0.0]
    metrics = [
        evaluation.metrics[name]
        for name in ("learned_mean_fitness", "lines", "games", "decisions")
    ]
    assert [float(each) for each in metrics] == [0.0, 19, 8, 36]


@pytest.mark.parametrize("deferred", [False, True])
def test_controller_of_a_checkpoint_is_that_of_its_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deferred: bool
) -> None:
    monkeypatch.setattr("cem.run.trainer.defers_sync", lambda device: deferred)
    monkeypatch.setattr(_training, "CHECKPOINT_SECONDS", 0.0)
    saved: list[LinearController] = []
    ahead: list[int] = []
    save: Callable[..., None] = LinearController.save

    def saving(controller: LinearController, path: Path) -> None:
        save(controller, path)
        saved.append(controller)
        ahead.append(training.optimizer.generation)

    monkeypatch.setattr(LinearController, "save", saving)
    training = _training_run(tmp_path / "run", _recipe())
    training.trainer.run()
    assert ahead == ([2, 3, 3] if deferred else [1, 2, 3])

    records = [json.loads(line) for line in training.folder.metrics.read_text().splitlines()]
    elapsed = [record["elapsed_s"] for record in records]
    for record, controller in zip(records, saved, strict=True):
        mean = torch.tensor(record["mean"], dtype=torch.float64)
        assert controller.weights == pytest.approx(unit_length(mean.unsqueeze(0))[0].tolist())
    by_hand = _training_run(tmp_path / "by_hand", _recipe())
    objective = run_objective(
        _recipe(), lambda: by_hand.optimizer.averaged_mean, StopRequest().check
    )
    for generation, (controller, seconds) in enumerate([*zip(saved, elapsed, strict=True)]):
        evaluation = objective(by_hand.optimizer.ask(), generation)
        by_hand.optimizer.tell(evaluation.candidates, evaluation.fitness)
        again = by_hand.save_controller()
        assert again is not None
        assert controller.weights == again.weights
        assert controller.provenance["generation"] == generation + 1
        assert controller.provenance["decisions"] == _recipe().decisions_until(generation + 1)
        assert controller.provenance["seconds"] == seconds


def test_games_and_training_have_their_dtype_whatever_torchs_default_is(tmp_path: Path) -> None:
    def weights_and_dtype() -> tuple[list[list[float]], torch.dtype]:
        training = _training_run(tmp_path, _recipe())
        policy = Policy([-0.7, 0.3001], "holes,max_height")
        games = Rollout(policy, Streams(Rules(5, 6)), "python")
        return games.weights.tolist(), training.trainer.optimizer.dtype

    usual = weights_and_dtype()
    for dtype in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            assert weights_and_dtype() == usual
        finally:
            torch.set_default_dtype(torch.float32)


def test_decisions_are_counted_over_the_stages() -> None:
    players, streams = 4, 2
    counted = [_recipe().decisions_until(generation) for generation in range(4)]
    assert counted == [players * streams * decisions for decisions in (0, 20, 40, 70)]


def test_backend_cuda_without_a_gpu_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ValueError,
        match=r"expected a GPU for backend cuda.*or take --backend torch in a new run",
    ):
        prepare_engine(_recipe(backend="cuda"))


@pytest.mark.filterwarnings("ignore:expected at most:RuntimeWarning")
@pytest.mark.parametrize(("split", "decisions"), [(False, 20), (True, 213)])
def test_lines_per_game_may_know_the_next_piece(split: bool, decisions: int) -> None:
    rules, features = Rules(5, 6), few_features(5)
    weights = weights_for(features, 5, 1)
    f = LinesPerGame(
        features, rules, streams=4, decisions=decisions, split=split, lookahead="preview"
    )
    policy, streams = (
        Policy(unit_length(weights), features, "preview"),
        Streams(rules, 4, piece_seed(1)),
    )
    played = (split_rollout if split else rollout)(policy, streams, decisions)
    assert f(weights).tolist() == lines_per_game(played).tolist()


def test_lines_per_game_is_maximized_on_other_pieces_in_every_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective = LinesPerGame(
        "holes,max_height", Rules(5, 6), streams=4, decisions=40, device="python"
    )
    seen: list[int] = []
    games = objective.games

    def begun(players: torch.Tensor, generation: int) -> Rollout | SplitRollout:
        seen.append(generation)
        return games(players, generation)

    monkeypatch.setattr(objective, "games", begun)
    options = {"budget": 60, "population_size": 20, "seed": 2}
    found = [maximize(objective, torch.zeros(2), 1.0, **options) for _ in range(2)]
    assert found[0].fun > 0
    assert found[0].mean.tolist() == found[1].mean.tolist()
    assert seen == [0, 1, 2] * 2


def test_lines_per_game_refuses_candidates_of_another_shape() -> None:
    objective = LinesPerGame("holes,max_height", Rules(5, 6), device="python")
    with pytest.raises(ValueError, match=r"candidates of shape \(N, 2\), got \(3, 3\)"):
        objective(torch.zeros(3, 3))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"streams": 0}, "count"),
        ({"decisions": 0}, "decisions"),
        ({"decisions": 9, "split": True}, "decisions"),
    ],
)
def test_lines_per_game_refuses_wrong_arguments(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^expected {name}"):
        LinesPerGame("holes", device="python", **options)(torch.ones(1, 1))


# A seed gives the same controller on every processor: on the CPU training is IEEE operations
# alone.
PROGRAM = """
import hashlib, sys
import numpy as np
from tetris.training import train
controller = train(
    "quick", seed=1, out=sys.argv[1], device="cpu", features="dt",
    population=24, elites=5, streams=8, curriculum="10x6:4:60,10x8:3:250:split", decisions=60,
)
print(hashlib.sha256(np.array(controller.weights).tobytes()).hexdigest()[:16])
"""
DIGEST = "131cf88f128eba16"
PLAIN = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}


def test_a_controller_has_the_same_bits_on_a_plain_processor(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    ended = subprocess.run(
        command, env={**os.environ, **PLAIN}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split()[-1] == DIGEST


def test_a_controller_has_the_same_bits_on_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", str(tmp_path / "run")])
    exec(PROGRAM, {})
    assert capsys.readouterr().out.split()[-1] == DIGEST
