"""Score players of SZ-Tetris on 10x20: the hand-made one, and controllers.

python scripts/measure sz sz runs/bertsekas --json sz.json
"""

import argparse
from pathlib import Path

from measure.provenance import Measured
from tetris import Rollout, Streams, resolve
from tetris.evaluation.measurement import Limit, Trial
from tetris.evaluation.measurement import measure as measure_score
from tetris.play.hand_made import RULES, play_hand_made

HAND_MADE_GAMES = 1_000_000
CONTROLLER_GAMES = 100_000
SEED = 777  # No training plays its pieces.
LANE_GAMES = 1024  # Boards of which the lanes are counted.
_LANE_DECISIONS = 2000
_NORMAL_95 = 1.96


def lane_shares(trial: Trial) -> list[list[float]]:
    """Return for each lane the shares of boards on which it is ready for an S, and for a Z.

    A lane is two columns, as of the hand-made player. A piece stands in it upright without a
    hole if the right column is one lower (S) or one higher (Z).
    """
    rollout = Rollout(trial.policy, Streams(RULES, LANE_GAMES, SEED), trial.device)
    rollout.advance(_LANE_DECISIONS)
    heights = rollout.column_heights[0]
    steps = heights[:, 1::2] - heights[:, 0::2]
    shares = [(steps == step).double().mean(0).tolist() for step in (-1, 1)]
    return [list(lane) for lane in zip(*shares, strict=True)]


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return lines per game of the players, with the intervals of 95 % as ranges."""
    games = HAND_MADE_GAMES if device == "cuda" else HAND_MADE_GAMES // 50
    lines = play_hand_made(games, SEED, device).double()
    mean = float(lines.mean())
    error = float(lines.std()) / games**0.5
    name = "sz.hand_made.lines_per_game"
    figures = {name: mean}
    ranges = {name: [mean - _NORMAL_95 * error, mean + _NORMAL_95 * error]}
    scores = [{"player": "hand-made", "games": games, "lines_per_game": mean, "error": error}]
    for source in arguments.controllers:
        label = Path(source).stem
        trial = Trial(label, resolve(source), RULES, device, SEED)
        result = measure_score(trial, Limit(games=CONTROLLER_GAMES))
        score = result.to_dict()
        name = f"sz.{label}.lines_per_game"
        figures[name] = score["lines_per_game"]
        ranges[name] = score["ci95"]
        # The controllers themselves have thousands of weights.
        score = {key: value for key, value in score.items() if key != "weights"}
        scores.append(score | {"lanes": lane_shares(trial)})
    return Measured(figures, {"ranges": ranges, "scores": scores})
