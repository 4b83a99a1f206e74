"""The classical experiment: who plays what, what counts, and that searches do not depend on each other."""

from __future__ import annotations

import pytest
import torch
from measure.noisy_ce import (
    ELITES,
    MEAN_GAMES,
    PIECE_SEED,
    POPULATION,
    Plan,
    make_searches,
    medians,
    run_experiment,
)

from tetris import Rollout, feature_names
from tetris.game import play

PLAN = Plan("dellacherie", "6x6", seeds=1, generations=2, limit=300, score_decisions=6400)


def test_searches_begin_as_the_papers_do() -> None:
    searches = make_searches(PLAN._replace(features="bertsekas", board="10x20", seeds=2))
    assert [(search.seed, search.noise) for search in searches] == [
        (seed, noise) for seed in (1, 2) for noise in ("none", "constant:4.0", "linear:5.0,10.0")
    ]
    for search in searches:
        optimizer = search.optimizer
        assert optimizer.mean.tolist() == [0.0] * 21
        assert optimizer.std.square().tolist() == pytest.approx([100.0] * 21)
        assert (optimizer.population_size, optimizer.num_elites, optimizer.maximize) == (100, 10, True)


def test_the_mean_plays_thirty_games_with_pieces_of_their_own() -> None:
    experiment = run_experiment(PLAN, "cpu")
    names = feature_names(PLAN.features, 6)
    for number, search in enumerate(experiment["searches"]):
        weights = torch.tensor(search["weights"]).numpy()
        first = (PLAN.generations << 32) + (1 << 31) + MEAN_GAMES * number
        games = [
            play((), weights, names, PLAN.rules, PIECE_SEED, first + index, 0, PLAN.limit, 1)
            for index in range(MEAN_GAMES)
        ]
        assert search["mean_lines"][-1] == round(sum(game[1] for game in games) / MEAN_GAMES, 2)
        assert search["mean_games_cut"][-1] == sum(game[2] == 0 for game in games)


def test_the_elites_are_those_with_the_most_lines_in_one_game() -> None:
    plan = PLAN._replace(generations=1)
    experiment = run_experiment(plan, "cpu")
    for number, search in enumerate(make_searches(plan)):
        candidates = search.optimizer.ask()
        games = Rollout(
            candidates,
            plan.rules,
            seed=PIECE_SEED,
            features=plan.features,
            share_streams=False,
            games_per_stream=1,
            first_stream=number * (MEAN_GAMES + POPULATION) + MEAN_GAMES,
        )
        lines = games.advance(plan.limit).lines
        elites = candidates[torch.sort(lines, descending=True, stable=True).indices[:ELITES]]
        mean = elites.double().mean(dim=0).float()
        assert torch.equal(torch.tensor(experiment["searches"][number]["weights"]), mean)


def test_a_search_does_not_depend_on_the_others() -> None:
    one, two = (run_experiment(PLAN._replace(seeds=seeds), "cpu")["searches"] for seeds in (1, 2))
    assert two[: len(one)] == one
    assert two[len(one)]["mean_lines"] != one[0]["mean_lines"]


def test_games_that_are_cut_off_are_counted() -> None:
    experiment = run_experiment(PLAN._replace(limit=1), "cpu")
    for search in experiment["searches"]:
        assert search["mean_games_cut"] == [MEAN_GAMES] * 3
        assert search["candidate_games_cut"] == [POPULATION] * 2
        assert search["score"]["games"] > 0  # scores are not cut off
    played = 3 * ((MEAN_GAMES + POPULATION) * 2 + MEAN_GAMES)
    assert experiment["decisions"] == played


def test_a_search_learns() -> None:
    plan = Plan("dellacherie", "10x10", seeds=1, generations=4, limit=2000, score_decisions=64_000)
    experiment = run_experiment(plan, "cpu")
    # Zero weights pile everything up in a corner. The seed is fixed: this does not vary.
    for search in experiment["searches"]:
        assert search["mean_lines"][0] < 1.0
        assert search["mean_lines"][-1] > 100.0
    assert min(medians(experiment).values()) > 100.0


def test_a_score_without_a_game_ended_is_its_bound() -> None:
    score = {"lines_per_game": None, "ci95": [12.5, None]}
    assert medians({"searches": [{"noise": "none", "score": score}]}) == {"none": 12.5}
