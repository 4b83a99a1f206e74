"""Explain what a controller plays on a board: the board with the piece, the best placements.

The file holds the board as text, top row first, with . for empty and X for full cells; or it
holds a fumen, which can also be the argument itself. In the output # is the piece.

python -m tetris explain --board board.txt --piece T
python -m tetris explain dt20 --board board.txt --piece T --next S
python -m tetris explain --board board.txt --piece T --place 2 3  # yours beside the best
"""

import argparse
import sys
from pathlib import Path

from kernels.support.files import read_bytes
from tetris import Lookahead, Rules
from tetris.commands.arguments import (
    add_controller,
    add_feature_header,
    add_flag,
    add_option,
    add_setting,
    controller_for,
)
from tetris.commands.command_line import Parser, one_line_errors, positive_int, up_to
from tetris.game.fumen import is_fumen
from tetris.game.positions import read_cells
from tetris.game.rules import MAX_HEIGHT, MIN_HEIGHT, RULES
from tetris.record.placements import PlacementTable, best_placement


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command ``explain``; on an error, print one line and exit.

    `add_option` takes the name of an option, the placeholder of its value in the help, and the
    help text.
    """
    usage = "%(prog)s [option ...] [CONTROLLER] --board FILE --piece LETTER"
    parser = Parser(description=__doc__, usage=usage)
    add_controller(parser)
    position = parser.add_argument_group("position")
    text = "the board: a file, or a fumen; - reads stdin"
    add_option(position, "--board", "FILE", text, required=True)
    add_option(position, "--piece", "LETTER", "the piece to place", required=True)
    # The next piece is either known, or all pieces that may come next are considered.
    lookahead = position.add_mutually_exclusive_group()
    add_option(lookahead, "--next", "LETTER", "the next piece, if it is known")
    text = "compare the two best placements over every piece that may come next"
    add_flag(lookahead, "--lookahead", text)
    height = up_to(MAX_HEIGHT, low=MIN_HEIGHT)  # Reads a number in this range.
    text = "rows of the board (default: the controller's)"
    add_option(position, "--height", "ROWS", text, read=height, default=argparse.SUPPRESS)
    text = f"{', '.join(RULES)} (default: the controller's)"
    add_setting(position, "rule", text=text, default=argparse.SUPPRESS)
    add_feature_header(position)
    text = "a placement of your own, as in the first two columns of the table"
    names = ("ORIENTATION", "COLUMN")
    parser.add_argument("--place", nargs=2, type=int, metavar=names, help=text)
    text = "how many placements to print"
    add_option(parser, "--top", "N", text, read=positive_int, default=5)
    return parser.parse_args()


def read_table(arguments: argparse.Namespace) -> PlacementTable:
    """Return the table of placements for the board, piece and controller of the arguments.

    The board is the name of a file, ``-`` for stdin, or a fumen. A fumen is a text in which
    Tetris editors store a board.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If the board, a piece or the controller is not valid.
    """
    if is_fumen(arguments.board):
        board = arguments.board
    elif arguments.board == "-":
        board = sys.stdin.read()
    else:
        # "utf-8-sig" skips the mark with which some editors begin a file.
        board = read_bytes(Path(arguments.board)).decode("utf-8-sig", errors="replace")
    _, width = read_cells(board).shape
    _, controller = controller_for(arguments.source, Rules(width))
    # As in `best_placement`, what the user does not choose is as the controller was made for.
    own = controller.rules
    height = getattr(arguments, "height", own.height)
    rule = getattr(arguments, "rule", own.rule)
    rules = Rules.of(width, height, rule, own.pieces)
    # With None, the controller considers the next piece if it is known.
    lookahead = Lookahead.EXPECTIMAX if arguments.lookahead else None
    return best_placement(
        controller, board, arguments.piece, arguments.next, rules=rules, lookahead=lookahead
    )


def main() -> int:
    """Print the board with the chosen placement, and the table of the best placements.

    With ``--place``, also show a placement of the user's own.

    Returns:
        The exit status.
    """
    arguments = parse_arguments()
    with one_line_errors():
        table = read_table(arguments)
        own = None if arguments.place is None else table.index_at(*arguments.place)
    print("\n".join(table.text_lines(arguments.top, own)))
    return 0
