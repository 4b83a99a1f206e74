"""The programs of README run, and what the pages import exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
import torch

from kernels import CompilerMissingError

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def programs(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run(program: str) -> dict[str, object]:
    """Run a program; returns its variables."""
    names: dict[str, object] = {"__name__": "program"}
    exec(compile(program, "README.md", "exec"), names)
    return names


def test_the_optimiser_finds_the_minimum() -> None:
    result = run(programs(ROOT / "README.md")[0])["result"]
    assert torch.allclose(result.x, torch.full((5,), 3.0), atol=1e-2)  # type: ignore[attr-defined]


def test_the_published_controller_plays() -> None:
    try:
        result = run(programs(ROOT / "README.md")[1])["result"]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    assert 3000 < float(result.lines / result.games) < 6000  # type: ignore[attr-defined]


def test_what_a_page_imports_of_this_project_exists() -> None:
    for program in (program for page in PAGES for program in programs(page)):
        for statement in ast.walk(ast.parse(program)):
            if isinstance(statement, ast.ImportFrom) and str(statement.module).split(".")[0] in (
                "cem",
                "kernels",
                "tetris",
            ):
                module = importlib.import_module(str(statement.module))
                assert all(hasattr(module, alias.name) for alias in statement.names), statement.module
