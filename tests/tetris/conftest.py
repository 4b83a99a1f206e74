"""Fixtures for the tests of the game."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pseudo_terminal import Pty

from kernels import CompilerMissingError
from tetris.envs import native as envs_native
from tetris.game import features
from tetris.play import own_features

_REFERENCES = """
from tetris import feature

WEIGHT = 2


@feature
def empty_columns(after):
    return after.heights.count(0)


@feature
def right_edge(after):
    return WEIGHT * after.heights[-1]


@feature
def removed(after):
    return after.lines


@feature
def volume(after):
    return sum(after.heights)


@feature
def corners(after):
    rows, last = after.rows, after.rules.width - 1
    return sum(row & 1 and row >> last & 1 and number % 2 for number, row in enumerate(rows))
"""
_HEADER = """
TETRIS_FEATURE(EmptyColumns) {
    int count = 0;
    for (int c = 0; c < board.width; ++c) count += board.column(c) == 0;
    return count;
}
TETRIS_FEATURE(RightEdge) { return 2 * board.column_height(board.width - 1); }
TETRIS_FEATURE(Removed) { return board.lines; }
TETRIS_FEATURE(Volume) { return board.total_height(); }
TETRIS_FEATURE(Corners) {
    int count = 0;
    for (int row = 1; row < board.height; row += 2) {
        count += board.cell(row, 0) && board.cell(row, board.width - 1);
    }
    return count;
}
"""


@pytest.fixture
def stack() -> Callable[..., tuple[int, ...]]:
    """Read a drawing, top row first and ``X`` for a full cell, as the rows of a stack."""

    def read(*drawing: str) -> tuple[int, ...]:
        return tuple(
            sum(1 << x for x, cell in enumerate(line) if cell == "X")
            for line in reversed(drawing)
        )

    return read


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pty]:
    """A person at a terminal."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    ends = Pty()
    yield ends
    ends.close()


@pytest.fixture
def own_features_forgotten() -> Iterator[None]:
    """Forget the features that a test defines, and the operators with those of its headers."""
    before, headers = dict(features.FEATURES), dict(own_features._headers)
    yield
    features.FEATURES.clear()
    features.FEATURES.update(before)
    own_features._headers.clear()
    own_features._headers.update(headers)
    envs_native.operators.cache_clear()


@pytest.fixture
def step_engine() -> None:
    """The vector environment's operators; without a compiler the test is skipped."""
    try:
        envs_native.operators()
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def header(tmp_path: Path) -> Path:
    """A header with features of one's own, and the file of their references beside it."""
    (tmp_path / "mine.py").write_text(_REFERENCES)
    path = tmp_path / "mine.h"
    path.write_text(_HEADER)
    return path
