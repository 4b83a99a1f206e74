"""Solve Tetris on a small board: the lines of perfect play, by value iteration over all boards.

python -m tetris solve --board 5x5
python -m tetris solve --board 4x6 --pieces-known 2 --games 100000
python -m tetris solve --board 4x6 --out solution.npz

A board has at most 32 cells. 5x5 takes a minute on four cores. As a check, games are played
with the solution: in 95 of 100 runs their mean is within two standard errors of the value.
"""

import argparse
import sys

from torch import Tensor

from kernels.support.files import check_writable
from kernels.support.printable import counted
from tetris.commands.arguments import (
    add_device,
    add_flag,
    add_option,
    add_setting,
    game_rules,
    print_json,
)
from tetris.commands.command_line import Parser, fail, one_line_errors, path_ending, seed, up_to
from tetris.game.rules import PLACEMENT_RULES
from tetris.play.devices import NATIVE, choose_device
from tetris.solver import solve
from tetris.solver.value_iteration import MOST_GAMES, Solution


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command ``solve``; on an error, print one line and exit.

    `add_setting` adds an option with the help and the default of a training setting.
    `add_option` takes the name of an option, the placeholder of its value in the help, the help
    text, and a function that reads the value.
    """
    parser = Parser(description=__doc__)
    game = parser.add_argument_group("game")
    add_setting(game, "board", default="5x5")
    add_setting(game, "rule", text=", ".join(PLACEMENT_RULES))
    text = "the pieces, as letters of IOTZSJL such as SZ"
    add_setting(game, "pieces", metavar="LETTERS", text=text)
    add_setting(game, "pieces_known", choices=(1, 2), metavar=None)
    add_device(game, ("auto", *NATIVE), what="processor")
    check = parser.add_argument_group("check")
    text = "games to play as a check"
    add_option(check, "--games", "N", text, read=up_to(MOST_GAMES), default=100_000)
    add_setting(check, "seed", read=seed, text="seed of the pieces")
    output = parser.add_argument_group("output")
    text = "save the values of all boards, which define perfect play"
    add_option(output, "--out", "FILE.npz", text, read=path_ending(".npz"))
    add_flag(output, "--json", "print a JSON object")
    return parser.parse_args()


def main() -> int:
    """Solve a small board by value iteration, and check the solution by playing games.

    The value of a board is the expected number of lines that perfect play clears from there.
    The solution has the values of all boards, and can be saved to a file. The command prints
    the lines per game of perfect play, and the mean over the games played, as text or as JSON.

    Returns:
        The exit status.
    """
    arguments = parse_arguments()
    with one_line_errors():
        rules = game_rules(arguments)
        device = choose_device(arguments.device)
        if device not in NATIVE:
            fail("expected a C++ compiler: in Python a solution takes days")
        if arguments.out is not None:
            check_writable(arguments.out)
        solution = solve(rules, arguments.pieces_known, device)
        lines = solution.play(arguments.games, arguments.seed)
        if arguments.out is not None:
            saved_boards = solution.save(arguments.out)
            text = f"wrote {arguments.out}: {saved_boards:,} boards; all others have value 0"
            print(text, file=sys.stderr)
    print_solution(solution, lines.double(), device, arguments)
    return 0


def print_solution(
    solution: Solution, lines: Tensor, device: str, arguments: argparse.Namespace
) -> None:
    """Print a solution, and the mean of ``lines``, those of the games played with it."""
    rules = solution.rules
    games = arguments.games
    mean = float(lines.mean())
    # With one game there is no standard error.
    standard_error = float(lines.std() / games**0.5) if games > 1 else None
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
        return
    spread = "" if standard_error is None else f" +- {standard_error:.2g}"
    mean_text = f"{mean:,.6g}{spread} in {counted(games, 'game')} (seed {arguments.seed})"
    print(solution_text(solution, mean_text))


def solution_text(solution: Solution, mean_text: str) -> str:
    """Return a solution in words; ``mean_text`` is the line on the games that were played."""
    rules = solution.rules
    known = "the next piece known" if solution.pieces_known == 2 else "one piece known"
    return (
        f"{rules.board}, {rules.rule} rule, pieces {rules.pieces}, {known}: perfect play "
        f"clears\n{solution.lines_per_game:,.6g} lines per game "
        f"(error about {solution.error:.1g})\n"
        f"{mean_text}\n"
        f"{solution.boards:,} boards can be reached, mirror images counted once; "
        f"{solution.sweeps:,} sweeps in {solution.seconds:.1f} s"
    )
