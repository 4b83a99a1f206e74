"""Write the report of a training run, or a page that compares several runs.

python -m tetris report runs/mine       # writes runs/mine/report.html
python -m tetris report runs/a runs/b --out both.html
python -m tetris report runs/a runs/b --plot both.svg
python -m tetris report runs/mine --serve  # follows the run
python -m tetris report runs --serve  # lists and compares all
"""

import argparse
from pathlib import Path

from kernels.support.files import check_writable
from kernels.support.printable import printable
from tetris.commands.arguments import add_feature_header, add_flag, add_option
from tetris.commands.command_line import Parser, fail, one_line_errors, path_ending, up_to
from tetris.record.numbers import file_size
from tetris.report import PICTURE_SUFFIXES
from tetris.report.learning_curve import draw_runs
from tetris.report.page import write_report
from tetris.report.server import ReportServer
from tetris.training.run_folder import RunFolder, load_run

COMPARISON = Path("comparison.html")


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command ``report``; on an error, print one line and exit.

    `add_option` takes the name of an option, the placeholder of its value in the help, the help
    text, and a function that reads the value.
    """
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] RUN [RUN ...]")
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="the folder of a run, finished or not"
    )
    text = (
        "the page (default: report.html in the folder of the run; "
        f"for several runs {COMPARISON})"
    )
    add_option(parser, "--out", "FILE.html", text, read=path_ending(".html"))
    suffixes = ", ".join(PICTURE_SUFFIXES)
    text = f"also draw the learning curves into FILE: {suffixes} (needs matplotlib)"
    add_option(parser, "--plot", "FILE", text, read=path_ending(*PICTURE_SUFFIXES))
    text = "write no file; serve the page to this machine only, and update it as the runs go on"
    add_flag(parser, "--serve", text)
    text = "the port of --serve (default: a free one)"
    add_option(parser, "--port", "N", text, read=up_to(65535))
    add_feature_header(parser)
    arguments = parser.parse_args()
    if arguments.serve and (arguments.out or arguments.plot):
        parser.error("expected --serve without --out and --plot")
    return arguments


def main() -> int:
    """Write a web page with the report of one training run, or a comparison of several runs.

    With ``--plot``, also draw the learning curves into a picture. With ``--serve``, serve the
    page to this machine instead of writing it.

    Returns:
        The exit status.
    """
    arguments = parse_arguments()
    if arguments.serve:
        return serve(arguments)
    with one_line_errors():
        runs = [load_run(path) for path in arguments.runs]
        if arguments.out is not None:
            page_path = arguments.out
        elif len(runs) == 1:
            page_path = RunFolder(arguments.runs[0]).report
        else:
            page_path = COMPARISON
        picture_path = arguments.plot
        # Check the paths before the slow work.
        check_writable(page_path)
        if picture_path is not None:
            check_writable(picture_path)
            draw_runs(runs, picture_path)
            print(f"{printable(picture_path)}: {file_size(picture_path)}")
        write_report(page_path, runs)
        print(f"{printable(page_path)}: {file_size(page_path)}")
    return 0


def serve(arguments: argparse.Namespace) -> int:
    """Serve a page that follows training runs, to this machine only, until Ctrl-C.

    ``arguments.runs`` is a list of run folders, or of one folder that contains run folders.

    Returns:
        The exit status.
    """
    with one_line_errors():
        for path in arguments.runs:
            # Every run folder has a file config.json.
            contains_runs = len(arguments.runs) == 1 and any(path.glob("*/config.json"))
            if not contains_runs:
                # This raises an error if the path is not a run folder. A run that has no
                # generation yet raises no error.
                RunFolder(path).recipe()
    try:
        port = arguments.port or 0  # With 0 the system chooses a free port.
        server = ReportServer(arguments.runs, port)
    except OSError as error:
        if arguments.port is None:
            fail(f"--serve: {error.strerror}")
        fail(
            f"--port {arguments.port}: {error.strerror}: "
            "choose another port, or leave --port out to use a free one"
        )
    with server:
        folders = ", ".join(map(printable, arguments.runs))
        print(f"{server.url} follows {folders}; Ctrl-C ends it", flush=True)
        server.serve_forever()
    return 0
