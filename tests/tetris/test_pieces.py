"""The pieces and their orientations."""

from __future__ import annotations

from pathlib import Path

from tetris.game.pieces import PIECES, Shape


def _drawing(shape: Shape) -> str:
    return "/".join("".join(".X"[row >> x & 1] for x in range(shape.width)) for row in shape.rows)


def test_every_orientation_is_that_of_the_reference_simulator(golden: Path) -> None:
    lines = (golden / "pieces_table.txt").read_text().splitlines()
    expected = [tuple(line.split()) for line in lines if not line.startswith("#")]
    ours = [
        (str(shape.piece), str(shape.orientation), str(shape.width), str(shape.height), _drawing(shape))
        for shapes in PIECES
        for shape in shapes
    ]
    assert ours == expected


def test_turning_the_last_orientation_gives_the_first() -> None:
    for first, *_, last in [(*shapes, shapes[-1]) for shapes in PIECES]:
        turned = last.turned()
        assert (turned.width, turned.height, turned.rows) == (first.width, first.height, first.rows)


def test_column_profile() -> None:
    shape = PIECES[5][1]  # J turned once: XX/.X/.X from the bottom
    assert (shape.bottoms, shape.tops) == ((0, 0), (1, 3))
    shape = PIECES[2][2]  # T turned twice: .X/XX/.X
    assert (shape.bottoms, shape.tops) == ((1, 0), (2, 3))
