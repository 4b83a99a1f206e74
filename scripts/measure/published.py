"""How long to play for a published controller's score to be as certain as asked for, and the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tetris import Rules
from tetris.controller import PUBLISHED
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.papers import PUBLISHED_SCORES
from tetris.evaluation.scores import Limit, Measurement, measure, progress_bar

CPU_PRECISION: Mapping[str, float] = {"10x10": 0.03}
GPU_PRECISION: Mapping[str, float] = {"10x10": 0.005, "10x20": 0.05}
"""How far from the score its interval may reach at most, by board, as a share of the score."""

BOARDS = ("10x10", "10x20")

_LINES_PER_DECISION = 0.4  # four cells a piece, ten a line
_UNKNOWN = 4000.0  # lines a game on 10x10, where no paper says anything
_SPARE = 1.25  # for a controller that is better than its paper says, and for luck
_ROUND = 10**6


def decisions_for(controller: str, board: str, precision: float) -> int:
    """Return so many decisions that the 95 % interval reaches no further than ``precision`` from the score.

    That is so, but for one time in a thousand, for a controller that is as good as its paper says, or a
    seventh better: the interval of n games reaches some 1.96 / sqrt(n) down and somewhat further up. The
    number does not depend on how the games go, so that a score is the same on every machine, and no stopping
    rule bends it.

    Args:
        controller: Name of a published one.
        board: ``"10x10"`` or ``"10x20"``.
        precision: As a share of the score, above 0.
    """
    paper = PUBLISHED_SCORES[controller].get(board)
    lines = _UNKNOWN if paper is None else paper.middle
    games = (1.96 * (1 + precision) / precision) ** 2
    return math.ceil(games * lines / _LINES_PER_DECISION * _SPARE / _ROUND) * _ROUND


def measure_published(device: str, precision: Mapping[str, float], seconds: float) -> list[dict[str, Any]]:
    """Measure every published controller on both boards under the published rule.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        precision: By board, how far the interval may reach from the score; see `decisions_for`.
        seconds: How long to play each controller on a board that has no precision.

    Returns:
        The measurements as plain values.
    """
    measured = []
    for board in BOARDS:
        rules = Rules(*Rules.parse_board(board))
        for name, controller in PUBLISHED.items():
            limit = Limit(seconds=seconds)
            if board in precision:
                limit = Limit(decisions=decisions_for(name, board, precision[board]))
            with progress_bar(f"{name} on {board}", limit) as show:
                score, took = measure(controller, rules, limit, DEFAULT_SEED, device, show)
            found = Measurement(name, controller, rules, rules.pieces, DEFAULT_SEED, device, score, took)
            measured.append(found.to_dict())
    return measured
