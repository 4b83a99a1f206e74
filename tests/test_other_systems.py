"""Without a compiler, and without what Windows or macOS lacks, all but the engines works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.parametrize(
    ("system", "which"),
    [
        ("win32", "not slow"),
        pytest.param("win32", "slow", marks=pytest.mark.slow),
        pytest.param("darwin", "", marks=pytest.mark.slow),
    ],
)
def test_as_on_another_system(system: str, which: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, TESTS / "other_system.py", system, TESTS / "portable.py", "-m", which],
        env={**os.environ, "CEM_TETRIS_CACHE": str(tmp_path / "cache")},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " skipped" not in ended.stdout
    assert not (tmp_path / "cache").exists()  # Nothing was compiled.
