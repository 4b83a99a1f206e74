"""Measure lines a game of controllers on boards: played, or estimated by importance splitting.

python scripts/measure scores runs/mine dt20 --boards 10x10 10x12 --ways known1 known2
python scripts/measure scores best --boards 10x20 --estimated
python scripts/measure heights --json heights.json

A grid is controllers on boards in ways. In the way known1 a player knows the piece that falls, with ahead it
also thinks of all that may come next, with known2 it knows the next one. Controllers play the same pieces.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from measure.provenance import Measured
from measure.work import Way, build_engines, least_lines
from tetris import LinearController, Rules, Score
from tetris.commands.arguments import DEFAULT_BOARD, read_controllers
from tetris.commands.command_line import one_line_errors
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.estimates import ESTIMATES, estimate
from tetris.evaluation.scores import Limit, Measurement, progress_bar
from tetris.evaluation.scores import measure as play

WAYS: Mapping[str, Way] = {"known1": (1, False), "ahead": (1, True), "known2": (2, False)}
MILLION, REFERENCE = 10**6, "dt20"
ESTIMATED = 2 * ESTIMATES  # estimates of a score


class Grid(NamedTuple):
    """Controllers on boards in ways; each makes a number of decisions, or is estimated where that is 0."""

    controllers: Sequence[str]
    boards: Sequence[str]
    decisions: int = 0
    ways: Sequence[str] = ("known1",)
    pieces: str = "uniform"
    rule: str = "published"
    seed: int = DEFAULT_SEED


def _high(*rows: int) -> tuple[str, ...]:
    return tuple(f"10x{each}" for each in rows)


_BOTH, _THREE, _SHIPPED = ("dt20", "best"), ("dellacherie", "bcts", "dt20"), ("best", "anywidth", "dt20")
_LOW = {"10x5": 4 * MILLION, "10x6": 10 * MILLION, "10x7": 20 * MILLION, "10x8": 40 * MILLION}
GRIDS: Mapping[str, Sequence[Grid]] = {
    "heights": (
        Grid(_BOTH, _high(*range(4, 10)), 20 * MILLION),
        Grid(_BOTH, _high(10, 11, 12), 100 * MILLION),
        Grid(_BOTH, _high(4), 4 * MILLION, ("known2",)),
        Grid(("dt20",), ("4x4", "4x5", "4x6", "5x4", "6x4"), 20 * MILLION),
        Grid(_BOTH, _high(*range(10, 21))),
    ),
    "next_piece": (
        Grid(_BOTH, tuple(_LOW), 20 * MILLION),
        *(Grid(_BOTH, (board,), count, ("ahead", "known2")) for board, count in _LOW.items()),
        Grid(_BOTH, _high(5, 6, 8, 10, 12, 16, 20), 0, ("ahead",)),
        Grid(("dt20",), _high(5, 6, 8, 10, 12, 16, 20), 0, ("known2",)),
    ),
    "lookahead": (  # on pieces that neither training nor whoever chose the recipe has met
        Grid(("best",), _high(20), 48_000 * MILLION, ("ahead",), seed=2013),
        Grid(("dt20",), _high(20), 16_000 * MILLION, ("ahead",), seed=2013),
        Grid(("dt20",), _high(20), 80_000 * MILLION, seed=2013),
    ),
    # The survey of Thiery and Scherrer (2009) scores the game in which a piece appears inside the board of
    # 10x20. Its uppermost rows are then little room for the stack: the simplified game on 10x16 is near it.
    "other_rules": (
        Grid((*_THREE, "best"), _high(16), 800 * MILLION),
        Grid((*_THREE, "best"), _high(10), 20 * MILLION),
        Grid((*_THREE, "best"), _high(10), 200 * MILLION, pieces="bag"),
        Grid(_THREE, _high(12), 400 * MILLION, pieces="bag"),
    ),
    "original_rule": (Grid(_THREE, _high(20), 1000 * MILLION, rule="original"),),
    "best_scores": (Grid(_SHIPPED, _high(10), 2_000 * MILLION), Grid(_SHIPPED, _high(12), 10_000 * MILLION)),
    "record_score": (Grid(_BOTH, _high(20), 200_000 * MILLION, seed=2013),),
}


def ratio(score: Score, other: Score) -> dict[str, Any]:
    """Return how many times as many lines a game one score says as another, with its 95 % interval.

    It is exact: games ended are Poisson, those of one controller binomial given those of both (Przyborowski
    and Wilenski, Biometrika 31, 1940), with the interval of Clopper and Pearson (Biometrika 26, 1934). The
    upper end is None where the first ended no game.
    """
    from scipy.stats import binomtest

    games = score.games + other.games
    low, high = binomtest(score.games, games).proportion_ci(0.95, "exact") if games else (0.0, 1.0)
    exposure = score.lines / other.lines
    # A share p of the games: as many times the games a line as p / (1 - p) / exposure.
    ends = [exposure * (1 - high) / high, exposure * (1 - low) / low if low else None]
    value = exposure * other.games / score.games if score.games and other.games else None
    return {"value": value, "ci95": ends}


def _score(found: Mapping[str, Any]) -> Score:
    return Score(found["lines"], found["games"], found["decisions"])


def _grids(arguments: argparse.Namespace) -> Sequence[Grid]:
    if arguments.grid:
        return GRIDS[arguments.grid]
    names, boards = arguments.controllers or _BOTH, arguments.boards or (DEFAULT_BOARD,)
    decisions = 0 if arguments.estimated else arguments.decisions
    how = (arguments.ways, arguments.pieces, arguments.rule)
    return (Grid(names, boards, decisions, *how, DEFAULT_SEED if arguments.seed is None else arguments.seed),)


Cell = tuple[Grid, Rules, str, LinearController, str]
"""A grid, and of it the rules, a controller and its label, and a way."""


def _measured(cell: Cell, device: str) -> dict[str, Any]:
    grid, rules, label, controller, way = cell
    known, ahead = WAYS[way]
    if not grid.decisions:
        return estimate(
            *(label, controller, rules, device, lambda found: len(found.rates) >= ESTIMATED, grid.seed),
            pieces_known=known,
            lookahead=ahead,
        ).to_dict()
    limit = Limit(decisions=grid.decisions)
    with progress_bar(f"{label} on {rules.board}, {rules.pieces}, {way}", limit) as show:
        score, seconds = play(
            *(controller, rules, limit, grid.seed, device, show), pieces_known=known, lookahead=ahead
        )
    who = (label, controller, rules, rules.pieces, grid.seed, device)
    return Measurement(*who, score, seconds, known, ahead).to_dict()


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines a game by board, rule, pieces, way and controller; played ones beside DT-20's."""
    cells: list[Cell] = []
    with one_line_errors():
        for grid in _grids(arguments):
            for board in grid.boards:
                rules = Rules.of(*Rules.parse_board(board), grid.rule, grid.pieces)
                if not arguments.boards or board in arguments.boards:
                    pairs = read_controllers(grid.controllers, rules)
                    cells += [(grid, rules, *pair, way) for way in grid.ways for pair in pairs]
    if device == "cuda":
        for name, how in WAYS.items():
            build_engines({(each[3].features, each[1].width) for each in cells if each[4] == name}, [how])
    measurements: list[dict[str, Any]] = []
    estimates: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    references: dict[tuple[Rules, str], Score] = {}
    for cell in cells:
        grid, rules, label, _, way = cell
        found = _measured(cell, device)
        kind = "played" if grid.decisions else "estimated"
        figures[f"scores.{rules.board}.{rules.rule}.{rules.pieces}.{way}.{label}.{kind}"] = least_lines(found)
        (measurements if grid.decisions else estimates).append(found)
        if grid.decisions and label == REFERENCE:
            references[rules, way] = _score(found)
    for (_, rules, _, _, way), found in zip([x for x in cells if x[0].decisions], measurements, strict=True):
        if (rules, way) in references and found["lines"] and references[rules, way].lines:
            found["ratio"] = ratio(_score(found), references[rules, way])
    return Measured(figures, {"measurements": measurements, "estimates": estimates})
