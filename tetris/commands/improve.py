"""Improve a controller by a natural policy gradient, for games that end soon: SZ-Tetris.

python -m tetris improve dt20 --pieces SZ --out sz.json
python -m tetris improve sz.json --pieces SZ --features dt_tables --steps 300 --out better.json

The controller is learned with the features of --features, which must include those of the one
that it begins with. docs/sz_tetris.md says what this reaches.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from kernels.support.progress import progress
from tetris import Rules, resolve
from tetris.commands.arguments import add_device, add_option, add_setting
from tetris.commands.command_line import Parser, one_line_errors, positive_int, positive_seconds
from tetris.play.devices import NATIVE, choose_device
from tetris.training.policy_gradient import GradientSettings, PolicyGradient

_SAVE_EVERY = 10  # Steps.
_HELP = {
    "steps": "steps of the weights",
    "states": "boards of a step; every placement on each is played on",
    "horizon": "decisions after a placement",
    "gap": "decisions from the boards of a step to those of the next",
}
_DEFAULTS = {setting.name: setting.default for setting in fields(GradientSettings)}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of the command line; exit with an error in one line."""
    parser = Parser(description=__doc__, usage="%(prog)s CONTROLLER --out FILE [option ...]")
    parser.add_argument("start", metavar="CONTROLLER", help="the one to begin with")
    add_option(parser, "--out", "FILE", "the learned controller", Path, required=True)
    for name in ("board", "pieces", "seed"):
        add_setting(parser, name)
    add_setting(parser, "features", default="dt_step_pairs")
    for name, text in _HELP.items():
        add_option(parser, f"--{name}", "N", text, positive_int, default=_DEFAULTS[name])
    text = "nats per board, the length of a step"
    add_option(parser, "--divergence", "D", text, float, default=_DEFAULTS["divergence"])
    text = "train S seconds, if the steps take longer"
    read = positive_seconds
    add_option(parser, "--time-limit", "S", text, read, dest="time_limit_s", default=math.inf)
    add_device(parser, ("auto", *NATIVE))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Improve a controller, write it to a file, and return the exit status."""
    arguments = parse_arguments(argv)
    with one_line_errors():
        rules = Rules.of(*Rules.parse_board(arguments.board), "published", arguments.pieces)
        options = {
            name: getattr(arguments, name)
            for name in (*_HELP, "divergence", "seed", "time_limit_s")
        }
        settings = GradientSettings(**options, device=choose_device(arguments.device))
        start = resolve(arguments.start)
        training = PolicyGradient(start, arguments.features, rules, settings)
    with progress(total=settings.steps, unit=" step", leave=True) as bar:

        def report() -> None:
            """Show a step, and write the controller now and then."""
            lines_per_game = training.lines_per_game[-1]
            bar.set_postfix_str(f"{lines_per_game:,.1f} lines/game", refresh=False)
            bar.update()
            if len(training.lines_per_game) % _SAVE_EVERY == 0:
                training.controller(arguments.out.stem).save(arguments.out)

        training.run(report)
    training.controller(arguments.out.stem).save(arguments.out)
    return 0
