"""Write the report of a training run again, or a page that compares several.

python -m tetris report runs/mine       # writes runs/mine/report.html
python -m tetris report runs/a runs/b --out both.html
python -m tetris report runs/a runs/b --plot both.svg
python -m tetris report runs/mine --serve  # follows the run
python -m tetris report runs --serve  # lists and compares all
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kernels.support.files import check_writable
from kernels.support.printable import printable
from tetris.commands.arguments import add_feature_header, add_option
from tetris.commands.command_line import Parser, fail, one_line_errors, path_ending, up_to
from tetris.record.numbers import file_size
from tetris.report import PICTURE_SUFFIXES
from tetris.report.learning_curve import draw_runs
from tetris.report.page import write_report
from tetris.report.server import ReportServer
from tetris.training.run_folder import RunFolder, load_run

COMPARISON = Path("comparison.html")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of the command line; exit with an error in one line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] RUN [RUN ...]")
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="the folder of a run, finished or not"
    )
    text = f"the page (default: report.html in the folder of one run, {COMPARISON} of several)"
    add_option(parser, "--out", "FILE.html", text, path_ending(".html"))
    text = f"a picture, too: {', '.join(PICTURE_SUFFIXES)} (needs matplotlib)"
    add_option(parser, "--plot", "FILE", text, path_ending(*PICTURE_SUFFIXES))
    text = (
        "write nothing, but show the page on this machine alone, again whenever a run changes"
    )
    parser.add_argument("--serve", action="store_true", help=text)
    add_option(parser, "--port", "N", "the port of --serve (default: a free one)", up_to(65535))
    add_feature_header(parser)
    arguments = parser.parse_args(argv)
    if arguments.serve and (arguments.out or arguments.plot):
        parser.error("expected --serve without --out and --plot")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report of one run, or the comparison of several, and return the exit status.

    With ``--plot`` also write a picture; with ``--serve`` show the page on this machine.
    """
    arguments = parse_arguments(argv)
    if arguments.serve:
        return serve(arguments)
    paths = arguments.runs
    with one_line_errors():
        runs = [load_run(path) for path in paths]
        default_page = RunFolder(paths[0]).report if len(paths) == 1 else COMPARISON
        page = arguments.out or default_page
        picture = arguments.plot
        check_writable(page)  # An error is better before the work than after it.
        if picture is not None:
            check_writable(picture)
            draw_runs(runs, picture)
            print(f"{printable(picture)}: {file_size(picture.stat().st_size)}")
        write_report(page, runs)
        print(f"{printable(page)}: {file_size(page.stat().st_size)}")
    return 0


def serve(arguments: argparse.Namespace) -> int:
    """Show the page of runs, or of a folder of runs, until Ctrl-C; return the exit status."""
    with one_line_errors():
        for path in arguments.runs:
            is_folder_of_runs = next(path.glob("*/config.json"), None) is not None
            if not is_folder_of_runs or len(arguments.runs) > 1:
                # It raises if there is no run. The run need not have a generation yet.
                RunFolder(path).recipe()
    try:
        server = ReportServer(arguments.runs, arguments.port or 0)  # 0 is a free port.
    except OSError as error:
        fail(f"--port {arguments.port}: {error.strerror}: take another, or none for a free one")
    with server:
        folders = ", ".join(map(printable, arguments.runs))
        print(f"{server.url} follows {folders}; Ctrl-C ends it", flush=True)
        server.serve_forever()
    return 0
