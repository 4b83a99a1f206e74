"""docs/features.md: its tables of pieces, bottoms and values are what the code says."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tetris.game.feature_sets import feature_sets
from tetris.game.features import FEATURES, _bottoms
from tetris.game.pieces import PIECES, Shape
from tetris.game.rules import PIECE_LETTERS

TEXT = (Path(__file__).parents[2] / "docs" / "features.md").read_text(encoding="utf-8")


def drawing(rows: tuple[int, ...], width: int) -> list[str]:
    """Rows from the top."""
    return ["".join(".X"[row >> x & 1] for x in range(width)) for row in reversed(rows)]


def pieces_block() -> str:
    lines = []
    for letter, shapes in zip(PIECE_LETTERS, PIECES, strict=True):
        for row in range(max(shape.height for shape in shapes)):
            line = letter if row == 0 else " "
            for shape in shapes:
                cells = drawing(shape.rows, shape.width)
                shown = cells[row].replace(".", " ") if row < shape.height else ""
                line += f"    {shape.orientation if row == 0 else ' '}  {shown:4}"
            lines.append(line.rstrip())
        lines.append("")
    return "\n".join(["```", *lines[:-1], "```"])


def bottom_of(shape: Shape) -> tuple[int, ...]:
    return tuple(right - left for left, right in pairwise(shape.bottoms))


def bottoms_block() -> str:
    lines = ["| piece | bottoms | of orientation |", "| --- | --- | --- |"]
    for letter, piece, shapes in zip(PIECE_LETTERS, range(7), PIECES, strict=True):
        bottoms = _bottoms(piece)
        shown = "; ".join(", ".join(map(str, bottom)) or "none" for bottom in bottoms)
        owners = "; ".join(
            " and ".join(
                str(shape.orientation) for shape in shapes if bottom_of(shape) == bottom
            )
            for bottom in bottoms
        )
        lines.append(f"| {letter} | {shown} | {owners} |")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "block"), [("pieces", pieces_block), ("bottoms", bottoms_block)]
)
def test_its_tables_are_what_the_code_says(name: str, block: Callable[[], str]) -> None:
    assert f"<!-- begin: {name} -->\n{block()}\n<!-- end: {name} -->" in TEXT


def test_it_lists_every_feature_and_set() -> None:
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    numbered = {
        re.sub(r"(column_height|height_difference)_\d+", r"\1_N", name) for name in FEATURES
    }
    numbered = {re.sub(r"(step_pair|step)_\d+_\d+", r"\1_N_K", name) for name in numbered}
    numbered = {re.sub(r"(step_pair_N_K)_\d+", r"\1_M", name) for name in numbered}
    assert listed == numbered | set(feature_sets())
