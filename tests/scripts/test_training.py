"""What candidates play in training, and what it is worth."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from _recipe import Recipe, make_recipe
from _run_folder import RunFolder
from _training import LinesPerGame, Training, lines_per_game, piece_seed, unit_length

from cem import Interrupted, StopRequest
from tetris import Rollout, RolloutResult


def _recipe(**settings: str | int) -> Recipe:
    tiny: dict[str, str | int] = {
        "population": 3,
        "streams": 2,
        "board": "5x6",
        "features": "holes,max_height",
    }
    return make_recipe("python", {**tiny, "curriculum": "5x6:2:20,5x7:1:30", **settings})


def _training(folder: Path, recipe: Recipe) -> Training:
    return Training(recipe, RunFolder(folder), StopRequest())


def test_fitness_is_lines_per_game_and_half_a_game_where_none_ended() -> None:
    lines, games, decisions = torch.tensor([[12, 7, 0, 0], [3, 0, 5, 0], [9, 9, 9, 9]])
    fitness = lines_per_game(RolloutResult(lines, games, decisions))
    assert fitness.tolist() == [4.0, 14.0, 0.0, 0.0]
    assert fitness.dtype == torch.float64


def test_weights_are_scaled_to_length_1_and_zero_stays() -> None:
    weights = torch.tensor([[3.0, -4.0], [1e-3, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(unit_length(weights), torch.tensor([[0.6, -0.8], [1.0, 0.0], [0.0, 0.0]]))


def test_piece_seeds_differ_from_run_to_run_and_from_those_people_type() -> None:
    seeds = {piece_seed(seed) for seed in range(1000)}
    assert len(seeds) == 1000
    assert min(seeds) > 1 << 32


def test_candidates_are_evaluated_at_length_1_on_streams_of_their_generation(tmp_path: Path) -> None:
    recipe = _recipe()
    optimizer = _training(tmp_path, recipe).optimizer
    candidates = torch.tensor([[-3.0, -4.0], [1.0, 0.0], [0.0, -2.0]])
    for generation, (height, decisions) in enumerate([(6, 20), (6, 20), (7, 30)]):
        evaluation = LinesPerGame(recipe, optimizer, StopRequest())(candidates, generation)
        players = unit_length(candidates)
        assert evaluation.candidates is not None
        torch.testing.assert_close(evaluation.candidates, players)
        games = Rollout(
            players,
            recipe.rules_on(5, height),
            2,
            piece_seed(recipe.seed),
            "python",
            features=recipe.features,
            first_stream=2 * generation,
        )
        assert evaluation.fitness.tolist() == lines_per_game(games.advance(decisions)).tolist()
        assert evaluation.metrics["board_height"] == height
        assert evaluation.metrics["decisions"] == 4 * 2 * decisions


def test_objective_stops_when_asked(tmp_path: Path) -> None:
    recipe, stop = _recipe(), StopRequest()
    stop.request()
    with pytest.raises(Interrupted):
        LinesPerGame(recipe, _training(tmp_path, recipe).optimizer, stop)(torch.ones(3, 2), 0)


def test_learned_controller_is_the_mean_at_length_1(tmp_path: Path) -> None:
    training = _training(tmp_path, _recipe())
    training.optimizer.ask()
    training.optimizer.tell([3.0, 2.0, 1.0], [[0.0, -1.0], [-1.0, 0.0], [0.0, 0.0]])
    controller = training.controller()
    assert controller.weights == pytest.approx((-(0.5**0.5), -(0.5**0.5)))
    assert (controller.features, controller.rules.board) == ("holes,max_height", "5x6")
    assert controller.provenance["generation"] == 1


def test_decisions_are_counted_over_the_stages(tmp_path: Path) -> None:
    training = _training(tmp_path, _recipe())
    counted = []
    for _ in range(3):
        training.optimizer.ask()
        training.optimizer.tell([3.0, 2.0, 1.0])
        counted.append(training.decisions)
    each = 4 * 2  # players x streams
    assert counted == [each * 20, each * 40, each * 70]


def test_backend_cuda_without_a_gpu_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ValueError, match=r"expected a GPU for backend cuda.*or take --backend torch in a new run"
    ):
        _training(tmp_path, _recipe(backend="cuda"))
