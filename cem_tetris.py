"""The command ``cem-tetris``, and what to do where another distribution hides a package.

Three packages of this project have names that others have, too. Whichever is installed last
overwrites the other's files, and in a checkout the installed one is found first. The name of
this module is its own, so it can say so.
"""

import functools
import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

OTHERS = {
    "kernels": "kernels of Hugging Face",
    "cem": "cross-entropy-method",
    "tetris": "tetris of PyPI",
}
"""The distributions that have packages of these names, too."""

_MARK = "from kernels.version import __version__"  # All of ours have this line.


@functools.cache  # `cem` and `tetris` both ask when they are imported
def explain_clash() -> str:
    """Return which package is not this project's, and the way out; empty where all are."""
    for package, distribution in OTHERS.items():
        spec = find_spec(package)
        path = spec.origin if spec else None
        # A folder without __init__.py, which uninstalling leaves, has no origin.
        if path is None or _MARK not in Path(path).read_text("utf-8", errors="replace"):
            return (
                f"expected this project's package {package}, got {path} ({distribution} has "
                "one of this name): use a virtual environment for each, or uninstall that one "
                "and run python -m pip install --force-reinstall --no-deps cem-tetris (or -e .)"
            )
    return ""


def main() -> None:
    """Run the command ``cem-tetris``."""
    clash = explain_clash()
    if clash:
        sys.exit(f"cem-tetris: error: {clash}")
    # The packages import this module, so it must not import them when it is imported.
    importlib.import_module("tetris.__main__").main()
