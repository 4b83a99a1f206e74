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

The defects are planted in temporary worktrees of git, which hold the tracked files as they are
now. The checkout itself is never changed. The tests have to pass there before anything is
planted. The exit status is 1 if a defect survives, or if its text is no longer in its file.
"""

from __future__ import annotations

import argparse
import os
import queue
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import tomllib  # Python 3.11

PROJECT = Path(__file__).parents[1]
SECONDS = 600.0  # A defect that makes the tests hang for as long is caught.
# The exit statuses of pytest. An error while tests are imported interrupts it.
PASSED = 0
FAILED = 1
INTERRUPTED = 2


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=PROJECT, check=True, capture_output=True, text=True
    ).stdout.strip()


def do_tests_pass(
    files: list[str], folder: Path, processes: int = 0, seconds: float | None = None
) -> bool:
    """Return whether tests in a folder pass, within a time in seconds; None: at any time.

    They run without bytecode: Python would use that of the old file if a file was changed
    within a second.
    """
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    options = f"-n{processes} -x -q -p no:cacheprovider".split()
    command = [sys.executable, "-m", "pytest", *options, *files]
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
        passed = do_tests_pass(defect["tests"].split(), folder, seconds=SECONDS)
        return "SURVIVED" if passed else "caught"
    finally:
        path.write_text(original, encoding="utf-8")


def plant_all(defects: list[dict[str, str]], folders: list[Path]) -> list[str]:
    """Return what becomes of the defects, each planted in a folder that is free."""
    free = queue.Queue()
    for folder in folders:
        free.put(folder)

    def plant_somewhere(defect: dict[str, str]) -> str:
        folder = free.get()
        result = plant(defect, folder)
        free.put(folder)
        print(f"{result:8} {defect['file']}: {defect['what']}", flush=True)
        return result

    with ThreadPoolExecutor(len(folders)) as executor:
        return list(executor.map(plant_somewhere, defects))


@contextmanager
def worktrees(count: int) -> Iterator[list[Path]]:
    """Yield as many temporary worktrees, with the tracked files as they are now."""
    state = git("stash", "create") or "HEAD"
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary, str(number)) for number in range(count)]
        try:
            for folder in folders:
                git("worktree", "add", "--detach", str(folder), state)
            yield folders
        finally:
            for folder in folders:
                git("worktree", "remove", "--force", str(folder))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("lists", nargs="+", type=Path, metavar="LIST.toml")
    parser.add_argument("--jobs", type=int, default=1, help="defects at a time (%(default)s)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="defects whose file or sentence has it"
    )
    arguments = parser.parse_args()
    defects = [
        each for path in arguments.lists for each in tomllib.loads(path.read_text())["defect"]
    ]
    defects = [each for each in defects if arguments.only in f"{each['file']} {each['what']}"]
    with worktrees(arguments.jobs) as folders:
        files = sorted({file for defect in defects for file in defect["tests"].split()})
        if not do_tests_pass(files, folders[0], arguments.jobs):
            raise SystemExit(
                f"expected tests that pass without a defect, got {' '.join(files)}"
            )
        results = plant_all(defects, folders)
    print(f"{results.count('caught')} of {len(results)} caught")
    return int(results.count("caught") < len(results))


if __name__ == "__main__":
    sys.exit(main())
