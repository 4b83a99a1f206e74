"""The command ``python -m kernels``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from kernels import doctor


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        argv: the words after ``python -m kernels``; those of the process by default.

    Returns:
        The exit status: 1 where what was asked for cannot work.
    """
    parser = argparse.ArgumentParser(
        prog="python -m kernels", description="Looks after the native libraries."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    examine = commands.add_parser("doctor", help="say what works here, and what to do about the rest")
    examine.add_argument(
        "--device", choices=doctor.DEVICES, default="cpu", help="what has to work (default: cpu)"
    )
    examine.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)

    report = doctor.examine(arguments.device)
    print(json.dumps(report.to_dict(), indent=2) if arguments.json else report)
    return 0 if report.works else 1


if __name__ == "__main__":
    sys.exit(main())
