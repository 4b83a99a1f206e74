"""The data of a report: the values of its charts and its game."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from tetris.evaluation import DEFAULT_SEED
from tetris.game.decisions import play
from tetris.game.features import AfterState
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Lookahead
from tetris.game.rules import Rules
from tetris.play.controller import LinearController
from tetris.record.replay import Replay
from tetris.training.run_folder import RunRecord, board, stages_of

GAME_DECISIONS = 300
"""Placements of the game of a report: with `dt` a third of a second in Python."""

MOST_POINTS = 500
"""The most generations in charts and tables; of longer runs every second, third, ... is shown."""

_DIGITS = 5


def shown_places(run: RunRecord) -> list[int]:
    """Return the indices of the generations to show: at most `MOST_POINTS`, equally spaced, and the last."""
    last = run.generations - 1
    step = math.ceil(run.generations / MOST_POINTS)
    return [*range(0, last, step), last]


def chart_values(run: RunRecord, name: str) -> dict[str, Any]:
    """Return the series of the charts of a run: a value per generation, null where there is none."""
    places = shown_places(run)
    metrics = [run.metrics[place] for place in places]
    generations = [record["generation"] for record in metrics]
    made = list(itertools.accumulate(record["decisions"] for record in run.metrics))
    values: dict[str, Any] = {
        "name": name,
        "group": seedless(run),
        "stages": [
            {"board": on, "place": bisect_left(generations, first)} for on, first, _ in stages_of(run.metrics)
        ],
        "board": [board(record) for record in metrics],
        "generation": generations,
        "decisions": [made[place] for place in places],
        "seconds": [_short(record["elapsed_s"]) for record in metrics],
        "speed": [_short(record["decisions"] / max(record["seconds"], 1e-9)) for record in metrics],
        "features": list(run.feature_names),
    }
    for key in ("generation_best", "elite_mean", "elite_threshold", "learned_mean_fitness", "std_mean"):
        values[key] = [_short(record[key]) for record in metrics]
    for key in ("mean", "std"):
        values[key] = [
            [_short(record[key][feature]) for record in metrics] for feature in range(len(run.feature_names))
        ]
    return values


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def recorded_game(run: RunRecord) -> Replay:
    """Play the game of a report: `GAME_DECISIONS` placements on the board of the controller."""
    rules = run.recipe.rules
    played = _after_states(run.controller.features, run.controller.weights, rules, run.recipe.lookahead)
    return Replay.of(played, rules, DEFAULT_SEED, 0, run.controller)


@lru_cache(maxsize=1)  # a run writes its report twice, before and after the scores
def _after_states(
    features: str, weights: tuple[float, ...], rules: Rules, lookahead: Lookahead
) -> tuple[AfterState, ...]:
    controller, pieces = LinearController(features, weights, rules), PieceStream(rules, DEFAULT_SEED, 0)
    return tuple(islice(play(pieces, controller.player(rules, lookahead), rules), GAME_DECISIONS))


def seedless(run: RunRecord) -> str:
    """Return the settings of a run but for its seed, equal for runs that differ in the seed alone."""
    return " ".join(f"{name}={value}" for name, value in run.recipe.to_dict().items() if name != "seed")


def distinct_names(runs: Sequence[RunRecord]) -> list[str]:
    """Return the names of runs; equal names are numbered."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]
