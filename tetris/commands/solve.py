"""Solve Tetris on a small board: the lines of perfect play, by value iteration over all boards.

python -m tetris solve --board 5x5
python -m tetris solve --board 4x6 --pieces-known 2 --games 100000
python -m tetris solve --board 4x6 --out solution.npz

Boards have at most 32 cells. 5x5 takes a minute on four cores. The values are checked by games,
which the engines' rules play; their mean lies within two standard errors in 95 of 100 runs.
"""

import argparse
import sys
from collections.abc import Sequence

from kernels.support.files import check_writable
from kernels.support.printable import counted
from tetris.commands.arguments import (
    add_device,
    add_option,
    add_setting,
    game_rules,
    print_json,
)
from tetris.commands.command_line import Parser, fail, one_line_errors, path_ending, seed, up_to
from tetris.game.rules import PLACEMENT_RULES
from tetris.play.devices import NATIVE, choose_device
from tetris.solver import solve
from tetris.solver.value_iteration import MOST_GAMES


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of the command ``solve``; exit with an error in one line.

    `add_setting` adds an option whose help and default are those of a setting, and
    `add_option` one of its own, with a function that reads the value.
    """
    parser = Parser(description=__doc__)
    game = parser.add_argument_group("game")
    add_setting(game, "board", default="5x5")
    add_setting(game, "rule", text=", ".join(PLACEMENT_RULES))
    add_setting(
        game, "pieces", metavar="LETTERS", text="letters of IOTZSJL such as SZ, or all seven"
    )
    add_setting(game, "pieces_known", choices=(1, 2), metavar=None)
    add_device(game, ("auto", *NATIVE), what="processor")
    check = parser.add_argument_group("check")
    add_option(check, "--games", "N", "played", up_to(MOST_GAMES), default=100_000)
    add_setting(check, "seed", read=seed, text="of the pieces")
    output = parser.add_argument_group("output")
    add_option(output, "--out", "FILE.npz", "write the values: the policy", path_ending(".npz"))
    output.add_argument("--json", action="store_true", help="print one object to stdout")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Solve a small board by value iteration, and check the solution by games.

    The solution is the value of every board under perfect play. It can be saved to a file. Its
    lines per game, and the mean of the games that were played, are printed as text or as JSON.

    Returns:
        The exit status.
    """
    arguments = parse_arguments(argv)
    games = arguments.games
    with one_line_errors():
        rules = game_rules(arguments)
        device = choose_device(arguments.device)
        if device not in NATIVE:
            fail("expected a compiler for C++: in Python it takes days")
        if arguments.out is not None:
            check_writable(arguments.out)
        solution = solve(rules, arguments.pieces_known, device)
        lines = solution.play(games, arguments.seed).double()
        mean = float(lines.mean())
        standard_error = float(lines.std() / games**0.5) if games > 1 else None
        if arguments.out is not None:
            count = solution.save(arguments.out)
            text = f"wrote {arguments.out}: {count:,} boards, all others have value 0"
            print(text, file=sys.stderr)
    if arguments.json:
        print_json(
            {
                "board": rules.board,
                "rule": rules.rule,
                "pieces": rules.pieces,
                "device": device,
                **solution.figures,
                "games": games,
                "seed": arguments.seed,
                "mean_of_games": mean,
                "standard_error": standard_error,
            }
        )
        return 0
    known = "the next piece known" if solution.pieces_known == 2 else "one piece known"
    spread = "" if standard_error is None else f" +- {standard_error:.2g}"
    print(
        f"{rules.board}, {rules.rule} rule, pieces {rules.pieces}, {known}: perfect play "
        f"clears\n{solution.lines_per_game:,.6g} lines per game "
        f"(error about {solution.error:.1g})\n"
        f"{mean:,.6g}{spread} in {counted(games, 'game')} (seed {arguments.seed})\n"
        f"{solution.boards:,} boards can be reached, mirror images once; "
        f"{solution.sweeps:,} sweeps in {solution.seconds:.1f} s"
    )
    return 0
