"""The cells of docs/tetris.ipynb run, one after the other."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "tetris.ipynb"


def _cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _run(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: return the value of an expression at its end, which is displayed."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    shown = [_run(cell, names) for cell in _cells()]
    assert len(shown[0]) == len(names["controller"].weights)
    assert "PlayedGame of notebook on 8x8" in repr(shown[2])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "notebook",
        "dellacherie",
        "dt20",
    ]
    assert names["result"].fun > 0


def test_the_notebook_is_committed_without_outputs() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
