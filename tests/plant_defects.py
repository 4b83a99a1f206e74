"""Plant defects one at a time and report which ones the tests catch.

python tests/plant_defects.py tests/defects/tetris.toml
python tests/plant_defects.py tests/defects/*.toml --only splitting

A list has one table per defect:

    [[defect]]
    file = "tetris/record/score.py"
    old = "2.42 / (streams - 2.7)"            # occurs in the file exactly once
    new = "2.42 / (streams + 2.7)"
    tests = "tests/tetris/test_score.py"      # files or folders, separated by spaces
    what = "the sign in Student's correction"

The defects are planted in a temporary worktree of git, which holds the tracked files as they
are now. The checkout itself is never changed. The tests have to pass there before anything is
planted. The exit status is 1 if a defect survives, or if its text is no longer in its file.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib  # Python 3.11

PROJECT = Path(__file__).parents[1]
SECONDS = 600.0  # A defect that makes the tests hang for as long is caught.
PASSED, FAILED, INTERRUPTED = (
    0,
    1,
    2,
)  # The exit statuses of pytest; an error of an import interrupts it.


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=PROJECT, check=True, capture_output=True, text=True
    ).stdout.strip()


def tests_pass(files: list[str], folder: Path, seconds: float | None) -> bool:
    """Return whether tests in a folder pass, within a time in seconds; None: at any time.

    They run without bytecode: Python would use that of the old file if a file was changed
    within a second.
    """
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *files,
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (PASSED, FAILED, INTERRUPTED):
        raise SystemExit(
            f"expected tests that can run, got {shlex.join(command)}: {done.stdout.decode()}"
        )
    return done.returncode == PASSED


def plant(defect: dict[str, str], folder: Path) -> str:
    """Return what becomes of a defect: caught, SURVIVED, or STALE where its text is not in the
    file once."""
    path = folder / defect["file"]
    original = path.read_text(encoding="utf-8") if path.exists() else ""
    if original.count(defect["old"]) != 1:
        return "STALE"
    path.write_text(original.replace(defect["old"], defect["new"]), encoding="utf-8")
    try:
        passed = tests_pass(defect["tests"].split(), folder, SECONDS)
        return "SURVIVED" if passed else "caught"
    finally:
        path.write_text(original, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("lists", nargs="+", type=Path, metavar="LIST.toml")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="defects whose file or sentence has it"
    )
    arguments = parser.parse_args()
    defects = [
        each for path in arguments.lists for each in tomllib.loads(path.read_text())["defect"]
    ]
    defects = [each for each in defects if arguments.only in f"{each['file']} {each['what']}"]
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "worktree"
        git("worktree", "add", "--detach", str(folder), git("stash", "create") or "HEAD")
        try:
            files = sorted({file for defect in defects for file in defect["tests"].split()})
            if not tests_pass(files, folder, None):
                raise SystemExit(
                    f"expected tests that pass without a defect, got {' '.join(files)}"
                )
            for defect in defects:
                results.append(plant(defect, folder))
                print(f"{results[-1]:8} {defect['file']}: {defect['what']}", flush=True)
        finally:
            git("worktree", "remove", "--force", str(folder))
    print(f"{results.count('caught')} of {len(results)} caught")
    return int(results.count("caught") < len(results))


if __name__ == "__main__":
    sys.exit(main())
