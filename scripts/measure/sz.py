"""Score players of SZ-Tetris on 10x20: the hand-made player, and controllers.

python scripts/measure sz sz runs/bertsekas --json sz.json
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from measure.provenance import Measured, measured_scores
from tetris import Rollout, Streams, resolve
from tetris.evaluation.measurement import Limit, Trial
from tetris.evaluation.measurement import measure as measure_score
from tetris.play.hand_made import RULES, play_hand_made

HAND_MADE_GAMES = 1_000_000
CONTROLLER_GAMES = 100_000
SEED = 777  # No training plays its pieces.
LANE_GAMES = 1024  # The number of boards whose lanes are counted.
_LANE_DECISIONS = 2000
_NORMAL_95 = 1.96


def lane_shares(trial: Trial) -> list[list[float]]:
    """Return for each lane the share of boards where it is ready for an S, and for a Z.

    A lane is a pair of columns, as the hand-made player uses it. A lane is ready for a piece if
    an upright piece leaves no hole in it: the right column is one lower (S) or one higher (Z)
    than the left one.
    """
    rollout = Rollout(trial.policy, Streams(RULES, LANE_GAMES, SEED), trial.device)
    rollout.advance(_LANE_DECISIONS)
    heights = rollout.column_heights[0]  # Of the only candidate, shape (boards, columns).
    # The height of a lane's right column minus that of its left column.
    steps = heights[:, 1::2] - heights[:, 0::2]
    shares_for_s = (steps == -1).double().mean(0)
    shares_for_z = (steps == 1).double().mean(0)
    return torch.stack([shares_for_s, shares_for_z], dim=1).tolist()


def score_hand_made(device: str) -> dict[str, Any]:
    """Return the score of the hand-made player, with a 95 % interval."""
    games = HAND_MADE_GAMES if device == "cuda" else HAND_MADE_GAMES // 50
    lines = play_hand_made(games, SEED, device).double()
    mean = float(lines.mean())
    margin = _NORMAL_95 * float(lines.std()) / games**0.5
    return {"games": games, "lines_per_game": mean, "ci95": [mean - margin, mean + margin]}


def score_controller(source: str, device: str) -> dict[str, Any]:
    """Return the score of a controller, and the shares of its lanes that are ready."""
    trial = Trial(Path(source).stem, resolve(source), RULES, device, SEED)
    score = measure_score(trial, Limit(games=CONTROLLER_GAMES)).to_dict()
    return score | {"lanes": lane_shares(trial)}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Score the players. The figures are lines per game, and the ranges are 95 % intervals."""
    scores = {"hand_made": score_hand_made(device)}
    for source in arguments.controllers:
        scores[Path(source).stem] = score_controller(source, device)
    return measured_scores("sz", scores)
