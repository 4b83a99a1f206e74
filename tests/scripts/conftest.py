"""Fixtures for the tests of the scripts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))  # as Python does for `python scripts/x.py`


@dataclass(frozen=True)
class Outcome:
    """How a script ended and what it said."""

    status: int
    out: str
    err: str


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a script, in this process to save the seconds of importing torch: ``script("name", "--flag")``."""

    def run(name: str, *arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            importlib.import_module("_common").run(importlib.import_module(name).main)
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, captured.out, captured.err)

    return run
