"""Train a Tetris controller with the cross-entropy method and compare it with published ones.

python scripts/train_tetris.py        # minutes, on any machine
python scripts/train_tetris.py --preset standard --out runs/mine
python scripts/train_tetris.py --resume runs/mine
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tetris.commands.arguments import add_board, add_feature_header, add_pieces, add_pieces_known, add_rule
from tetris.commands.command_line import Parser, positive_int, positive_seconds, seed, share, up_to
from tetris.game.feature_sets import feature_sets
from tetris.play.devices import DEVICES
from tetris.training.presets import DEFAULT_PRESET, PRESETS

_WITH_RESUME = ("resume", "time_limit", "tensorboard", "feature_header")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; arguments that are not given are absent from the result."""
    parser = Parser(
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [--preset NAME] [option ...]",
        epilog="What is not given comes from --config, then from --preset.",
    )
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument("--preset", metavar="NAME", help=f"{', '.join(PRESETS)} (default: {DEFAULT_PRESET})")
    recipe.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as JSON, such as the config.json of a run"
    )
    recipe.add_argument("--seed", type=seed, metavar="N", help="same seed, same result")

    game = parser.add_argument_group("game")
    add_board(game, default=None)
    add_rule(game, default=None)
    add_pieces(game, default=None)
    add_pieces_known(game, default=None)
    game.add_argument(
        "--features",
        metavar="SET",
        help=f"{', '.join(feature_sets())}, or names with commas (docs/features.md)",
    )
    add_feature_header(game)

    search = parser.add_argument_group("search")
    search.add_argument(
        "--curriculum",
        metavar="STAGES",
        help="BOARD:GENERATIONS[:DECISIONS][:split],... such as 10x10:22,10x12:14:4000; where it is given, "
        "--board is played only with --generations",
    )
    search.add_argument(
        "--generations",
        type=positive_int,
        metavar="N",
        help="on --board, after --curriculum; without one there is no other stage",
    )
    search.add_argument("--population", type=positive_int, metavar="N", help="candidates per generation")
    search.add_argument(
        "--elites", type=positive_int, metavar="N", help="candidates that make the next generation"
    )
    search.add_argument(
        "--noise", metavar="SCHEDULE", help="none, constant:A, linear:A,B or hyperbolic:A, a variance"
    )
    search.add_argument(
        "--averaging",
        type=share,
        metavar="SHARE",
        help="learn an average of means, mostly over this share of the generations; 0: the last mean",
    )
    search.add_argument("--streams", type=positive_int, metavar="N", help="streams of games per candidate")
    search.add_argument("--decisions", type=positive_int, metavar="N", help="decisions on each stream")

    machine = parser.add_argument_group("machine")
    machine.add_argument("--device", metavar="NAME", help=f"engine: {', '.join(DEVICES)} (default: auto)")
    machine.add_argument(
        "--backend", metavar="NAME", help="what draws and updates: auto, cpu, cuda, torch (default: auto)"
    )

    output = parser.add_argument_group("run")
    where = output.add_mutually_exclusive_group()
    where.add_argument(
        "--out", type=Path, metavar="FOLDER", help="a new folder (default: runs/DATE-TIME-seedN)"
    )
    where.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="instead: go on with a stopped run, whose settings stay"
    )
    output.add_argument(
        "--time-limit", type=positive_seconds, metavar="S", help="train at most S seconds, then measure"
    )
    output.add_argument(
        "--score-decisions",
        type=up_to(1 << 62, least=0),
        metavar="N",
        help="decisions per controller and board in the final comparison (0: none; estimates need 2.5 M)",
    )
    output.add_argument(
        "--tensorboard",
        action="store_true",
        help="write curves for TensorBoard into the run's folder (extra tensorboard)",
    )
    given = parser.parse_args(argv)
    fixed = [f"--{name.replace('_', '-')}" for name in vars(given) if name not in _WITH_RESUME]
    if "resume" in given and fixed:
        parser.error(f"a resumed run keeps its settings: expected no {', '.join(fixed)}")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Train a controller, or resume a run."""
    given = parse_arguments(argv)
    from tetris.commands.training_run import run_training  # torch and the engines: not for --help

    return run_training(given)
