"""Write the generated blocks of README and docs and draw their pictures; see pages/writing.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/, where the package `pages` is

from pages.writing import main
from tetris.commands.command_line import run

if __name__ == "__main__":
    run(main)
