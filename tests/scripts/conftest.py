"""Fixtures for the tests of the scripts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))  # as Python does for `python scripts/x.py`
sys.path.insert(0, str(Path(__file__).parent))  # for `import runs`


@dataclass(frozen=True)
class Outcome:
    """How a script ended and what it said."""

    status: int
    out: str
    err: str


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def gpu_and_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU and nvcc, as far as the choice of a device looks at it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("_common.find_nvcc", lambda cuda: None)
    large = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: large)


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
