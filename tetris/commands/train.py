"""Train a Tetris controller with the cross-entropy method and compare it with published ones.

python scripts/train_tetris.py        # minutes, on any machine
python scripts/train_tetris.py --preset standard --out runs/mine
python scripts/train_tetris.py --resume runs/mine
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tetris.commands.arguments import add_feature_header, add_setting
from tetris.commands.command_line import Parser, positive_seconds
from tetris.commands.training_run import run_training
from tetris.training.settings import SETTINGS

_WITH_RESUME = ("resume", "time_limit", "tensorboard", "feature_header")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; arguments that are not given are absent from the result."""
    parser = Parser(
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [--preset NAME] [option ...]",
        epilog="What is not given comes from --config, then from --preset.",
    )
    groups = {
        name: parser.add_argument_group(name) for name in ("recipe", "game", "search", "machine", "run")
    }
    for name, setting in SETTINGS.items():
        add_setting(groups[setting.metadata["group"]], name, default=argparse.SUPPRESS)
    groups["recipe"].add_argument(
        "--config", type=Path, metavar="FILE", help="settings as JSON, such as the config.json of a run"
    )
    add_feature_header(groups["game"])
    where = groups["run"].add_mutually_exclusive_group()
    where.add_argument(
        "--out", type=Path, metavar="FOLDER", help="a new folder (default: runs/DATE-TIME-seedN)"
    )
    where.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="instead: go on with a stopped run, whose settings stay"
    )
    groups["run"].add_argument(
        "--time-limit", type=positive_seconds, metavar="S", help="train at most S seconds, then measure"
    )
    groups["run"].add_argument(
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
    return run_training(parse_arguments(argv))
