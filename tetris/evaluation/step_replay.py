"""Every step of a controller on one stream, played by the reference implementation."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

from tetris.evaluation.scores import Limit, Measurement, Trial
from tetris.game.decisions import Pieces, Step, play
from tetris.record.replay import FORMAT, STEPS_VERSION
from tetris.record.score import Score


def play_steps(trial: Trial, pieces: Pieces, limit: Limit, most: int) -> tuple[list[Step], Measurement]:
    """Play one stream with the reference implementation and keep every step, up to a number of them."""
    began = time.perf_counter()
    played: list[Step] = []
    score, seconds = Score(0, 0, 0), 0.0
    player = trial.controller.player(trial.rules, trial.lookahead)
    for after in islice(play(pieces, player, trial.rules), most):
        step = Step.of(after, player)
        played.append(step)
        score += Score(step.lines, int(step.game_over), 1)
        seconds = time.perf_counter() - began
        if limit.reached(score, seconds):
            break
    return played, Measurement(trial, score, seconds)


def step_replay(trial: Trial, played: list[Step]) -> dict[str, Any]:
    """Return the steps as plain values, for JSON."""
    return {
        "format": FORMAT,
        "version": STEPS_VERSION,
        "controller": trial.controller.to_dict(),
        "feature_names": list(trial.controller.names_on(trial.rules)),
        "rules": trial.rules.to_dict(),
        "pieces": trial.file or trial.rules.pieces,
        "seed": trial.seed,
        "stream": None if trial.seed is None else 0,
        "steps": [step.to_dict() for step in played],
    }
