"""Write the report of a training run again, or a page that compares several.

python scripts/report_tetris.py runs/mine                       runs/mine/report.html
python scripts/report_tetris.py runs/a runs/b --out both.html   curves, scores and settings side by side
python scripts/report_tetris.py runs/a runs/b --plot both.svg   the learning curves as a picture as well
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from _common import Parser, check_writable, one_line_errors, run
from _report import write_report
from _run_folder import RunFolder
from _run_record import read_run

COMPARISON = Path("comparison.html")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="the folder of a run, finished or not"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html",
        help=f"(default: report.html in the folder of one run, {COMPARISON} for several)",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Write what was asked for."""
    arguments = parse_arguments(argv)
    one = len(arguments.runs) == 1
    with one_line_errors():
        out = arguments.out or (RunFolder(arguments.runs[0]).report if one else COMPARISON)
        check_writable(out)
        runs = [read_run(path) for path in arguments.runs]
        write_report(out, runs)
    print(f"{out}: {out.stat().st_size / 1e3:,.0f} kB")
    return 0


if __name__ == "__main__":
    run(main)
