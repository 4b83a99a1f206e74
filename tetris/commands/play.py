"""Play Tetris against a controller in a browser: write an offline page, and open it.

python -m tetris play
python -m tetris play dt20 --board 10x10 --seed 7 --no-open
"""

import argparse
import webbrowser
from dataclasses import replace
from pathlib import Path

from kernels.support.files import write_text
from kernels.support.printable import printable
from tetris.commands.arguments import (
    add_controller,
    add_flag,
    add_game,
    add_option,
    controller_for,
    read_game,
)
from tetris.commands.command_line import Parser, one_line_errors, path_ending
from tetris.record.numbers import file_size
from tetris.view.play_page import play_page


def main() -> int:
    """Write a web page for playing against a controller, and open it in a browser.

    Returns:
        The exit status.
    """
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] [CONTROLLER]")
    add_controller(parser)
    seed_help = "seed of the pieces (default: a new one each time the page is opened)"
    # `add_game` adds --seed with this default: without the option, the parsed arguments have no
    # attribute ``seed``.
    add_game(parser, default=argparse.SUPPRESS, text=seed_help)
    output = parser.add_argument_group("output")
    html_path = path_ending(".html")
    default_path = Path("play.html")
    add_option(output, "--out", "FILE.html", "the page", read=html_path, default=default_path)
    add_flag(output, "--no-open", "write the page without opening it")
    arguments = parser.parse_args()
    with one_line_errors():
        rules, lookahead = read_game(arguments)
        label, controller = controller_for(arguments.source, rules)
        labelled_controller = replace(controller, name=label)
        seed = getattr(arguments, "seed", None)
        write_text(arguments.out, play_page(labelled_controller, rules, seed, lookahead))
    print(f"{printable(arguments.out)}: {file_size(arguments.out)}")
    address = arguments.out.resolve().as_uri()
    # `webbrowser.open` returns whether it found a browser.
    is_open = not arguments.no_open and webbrowser.open(address)
    if not is_open:
        print(f"to play, open {address} in a browser")
    return 0
