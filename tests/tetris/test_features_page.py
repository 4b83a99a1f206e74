"""docs/features.md: its tables of pieces, bottoms and values are what the code says."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tetris.game.decisions import landing_row, place
from tetris.game.feature_sets import feature_sets
from tetris.game.features import FEATURES, AfterState, _bottoms, column_heights, feature_values
from tetris.game.pieces import PIECES, Shape
from tetris.game.rules import PIECE_LETTERS, Rules

TEXT = (Path(__file__).parents[2] / "docs" / "features.md").read_text(encoding="utf-8")
EXAMPLE = TEXT[TEXT.index("## An example") : TEXT.index("## Features of your own")]
RULES = Rules(10, 20)
ROWS = (511, 1015, 893, 1016, 952, 168, 160, 384)
SHAPE, COLUMN = PIECES[PIECE_LETTERS.index("T")][3], 0


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
            " and ".join(str(shape.orientation) for shape in shapes if bottom_of(shape) == bottom)
            for bottom in bottoms
        )
        lines.append(f"| {letter} | {shown} | {owners} |")
    return "\n".join(lines)


def example() -> AfterState:
    return place(ROWS, SHAPE, COLUMN, landing_row(column_heights(ROWS, RULES.width), SHAPE, COLUMN), RULES)


def example_block() -> str:
    after = example()
    before = drawing(ROWS, RULES.width)
    for y, cells in enumerate(SHAPE.rows, start=after.landing_row):
        line = before[len(ROWS) - 1 - y]
        shown = "".join("T" if cells >> x & 1 else cell for x, cell in enumerate(line[COLUMN:]))
        before[len(ROWS) - 1 - y] = line[:COLUMN] + shown
    removed = ["", *drawing(after.rows, RULES.width)]
    boards = [
        f"{len(ROWS) - 1 - i:6}  {old}    {new}"
        for i, (old, new) in enumerate(zip(before, removed, strict=True))
    ]
    return "\n".join(["```", "   row  before        after", *(line.rstrip() for line in boards), "```"])


@pytest.mark.parametrize(
    ("name", "block"), [("pieces", pieces_block), ("bottoms", bottoms_block), ("example", example_block)]
)
def test_its_tables_are_what_the_code_says(name: str, block: Callable[[], str]) -> None:
    assert f"<!-- begin: {name} -->\n{block()}\n<!-- end: {name} -->" in TEXT


def test_it_lists_every_feature_and_set() -> None:
    definitions = TEXT.replace(EXAMPLE, "")
    rows = [line.split("|")[1] for line in definitions.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    numbered = {re.sub(r"(column_height|height_difference)_\d+", r"\1_N", name) for name in FEATURES}
    numbered = {re.sub(r"(step_pair|step)_\d+_\d+", r"\1_N_K", name) for name in numbered}
    numbered = {re.sub(r"(step_pair_N_K)_\d+", r"\1_M", name) for name in numbered}
    assert listed == numbered | set(feature_sets())


def test_the_values_of_the_example_are_right() -> None:
    rows = re.findall(r"^\| (`\w+`.*) \| ([-\d., ]+) \|$", EXAMPLE, re.MULTILINE)
    assert rows
    for features, values in rows:
        names, shown = re.findall(r"`(\w+)`", features), values.split(", ")
        names += [names[-1].replace("_0", f"_{i}") for i in range(1, len(shown) - len(names) + 1)]
        assert shown == [f"{value:g}" for value in feature_values(example(), tuple(names))], features


def test_the_example_tells_features_apart() -> None:
    values = dict(zip(FEATURES, feature_values(example(), tuple(FEATURES)), strict=True))
    for one, other in (
        ("wells", "wells_fast"),
        ("holes", "hole_depth"),
        ("rows_with_holes", "upper_hole_rows"),
        ("gaps_over_holes", "gaps_over_highest_hole"),
        ("fitting_pieces", "spare_pieces"),
        ("fits_s", "fits_z"),
    ):
        assert values[one] != values[other]
    assert values["landing_height"] % 1 == 0.5
