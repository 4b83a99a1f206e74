"""Commands of this project, run in processes of their own as a person in the checkout would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def python(*arguments: object, timeout_s: float) -> str:
    """Run Python as a person would in the checkout; what it prints on stdout.

    Raises:
        RuntimeError: If it fails or is not done in time.
    """
    command = [sys.executable, *map(str, arguments)]
    try:
        finished = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"expected {' '.join(command[1:])} to be done in {timeout_s:.0f} s") from error
    if finished.returncode:
        tail = "\n".join(finished.stdout.splitlines()[-30:])
        raise RuntimeError(f"{' '.join(command[1:])} ended with {finished.returncode}:\n{tail}")
    return finished.stdout
