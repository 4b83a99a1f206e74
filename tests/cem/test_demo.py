"""cem/__main__.py: a search in the terminal."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys

import pytest
import torch

from cem import __main__ as demo


def test_a_pipe_gets_a_line_a_generation(capsys: pytest.CaptureFixture[str]) -> None:
    demo.main()
    *lines, last = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert [int(line.split()[1].rstrip(":")) for line in lines] == [*range(1, 31)]
    assert "mean ( 1.00,  1.00)" in lines[-1]
    assert last.endswith("cem.minimize(f, mean, std)")


def test_a_pipe_may_close() -> None:
    command = f"'{sys.executable}' -m cem | head -1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("generation  1: best")
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("size", "encoding"), [((80, 4), "utf-8"), ((1, 24), "utf-8"), ((80, 24), "ascii")]
)
def test_a_terminal_without_room_or_marks_gets_lines(
    size: tuple[int, int], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: size)
    monkeypatch.setenv("TERM", "xterm")
    demo.main()
    terminal.seek(0)
    assert len(terminal.read().splitlines()) == 31


def test_help_is_help() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "cem", "--help"], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("usage: python -m cem")
    assert "generation" not in ended.stdout


def test_a_picture_is_as_large_as_asked_with_the_optimum_where_it_is() -> None:
    drawn = demo.picture(
        {demo.OPTIMUM: torch.ones(2), demo.MEAN: torch.tensor([9.0, 9.0])}, 78, 21
    )
    rows = re.sub(r"\x1b\[[0-9;]*m", "", drawn).splitlines()
    assert {len(row) for row in rows} == {78}
    ((row, column),) = [(y, row.index("★")) for y, row in enumerate(rows) if "★" in row]
    assert (row, column) == (round(2.2 / 4.2 * 20), round(3.1 / 4.2 * 77))
