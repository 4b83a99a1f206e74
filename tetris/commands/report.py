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
    """Return the arguments of the command ``report``; exit with an error in one line.

    `add_option` takes the name of an option, what stands for its value in the help, the help,
    and a function that reads the value.
    """
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
    """Write the report of one training run, or of several for comparison, as a web page.

    With ``--plot`` also draw the learning curves into a picture; with ``--serve`` show the page
    on this machine instead of writing it.

    Returns:
        The exit status.
    """
    arguments = parse_arguments(argv)
    if arguments.serve:
        return serve(arguments)
    with one_line_errors():
        runs = [load_run(path) for path in arguments.runs]
        page = arguments.out
        if page is None:
            page = RunFolder(arguments.runs[0]).report if len(runs) == 1 else COMPARISON
        picture = arguments.plot
        # Look for errors of paths before the work.
        check_writable(page)
        if picture is not None:
            check_writable(picture)
            draw_runs(runs, picture)
            print(f"{printable(picture)}: {file_size(picture.stat().st_size)}")
        write_report(page, runs)
        print(f"{printable(page)}: {file_size(page.stat().st_size)}")
    return 0


def serve(arguments: argparse.Namespace) -> int:
    """Show a page that follows training runs on this machine until Ctrl-C.

    The argument ``runs`` is a list of folders: those of runs, or one that holds the folders of
    runs.

    Returns:
        The exit status.
    """
    with one_line_errors():
        for path in arguments.runs:
            configs = list(path.glob("*/config.json"))  # Every run has such a file.
            is_folder_of_runs = len(arguments.runs) == 1 and configs
            if not is_folder_of_runs:
                # This raises an error if the folder is no run. A run need not have a
                # generation yet, so it cannot be loaded.
                RunFolder(path).recipe()
    try:
        port = arguments.port or 0  # 0 is a free port.
        server = ReportServer(arguments.runs, port)
    except OSError as error:
        fail(f"--port {arguments.port}: {error.strerror}: take another, or none for a free one")
    with server:
        folders = ", ".join(map(printable, arguments.runs))
        print(f"{server.url} follows {folders}; Ctrl-C ends it", flush=True)
        server.serve_forever()
    return 0
