"""Every step of a controller on one stream, played by the reference implementation."""

from __future__ import annotations

import time
from typing import Any

from tetris.evaluation.scores import Limit, Measurement
from tetris.game.decisions import Pieces, Step, steps
from tetris.game.rules import Rules
from tetris.play.controller import LinearController
from tetris.record.replay import FORMAT, STEPS_VERSION
from tetris.record.score import Score


def play_steps(
    controller: LinearController,
    rules: Rules,
    pieces: Pieces,
    limit: Limit,
    pieces_known: int,
    lookahead: bool,
    most: int,
) -> tuple[list[Step], Score, float]:
    """Play one stream with the reference implementation and keep every step, up to a number of them.

    Returns:
        The steps, the score, and the seconds it took.
    """
    names = controller.names_on(rules)
    began = time.perf_counter()
    played: list[Step] = []
    score, seconds = Score(0, 0, 0), 0.0
    weights, way = controller.played_weights, (pieces_known, lookahead)
    for step in steps((), pieces, weights, names, rules, 0, most, *way):
        played.append(step)
        score += Score(step.lines, int(step.game_over), 1)
        seconds = time.perf_counter() - began
        if limit.reached(score, seconds):
            break
    return played, score, seconds


def step_replay(measurement: Measurement, played: list[Step]) -> dict[str, Any]:
    """Return the steps as plain values, for JSON."""
    controller, rules = measurement.controller, measurement.rules
    return {
        "format": FORMAT,
        "version": STEPS_VERSION,
        "controller": controller.to_dict(),
        "feature_names": list(controller.names_on(rules)),
        "rules": rules.to_dict(),
        "pieces": measurement.pieces,
        "seed": measurement.seed,
        "stream": None if measurement.seed is None else 0,
        "steps": [step.to_dict() for step in played],
    }
