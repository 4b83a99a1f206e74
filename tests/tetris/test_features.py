"""Every feature against a cell-by-cell reading of its definition, and the feature sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tetris.game.decisions import landing_row, place
from tetris.game.feature_sets import feature_label, feature_names
from tetris.game.features import AfterState, column_heights, feature_values
from tetris.game.pieces import PIECES
from tetris.game.rules import Rules

Stack = Callable[..., tuple[int, ...]]


def _by_definition(after: AfterState) -> dict[str, float]:
    """The features of a stack read off cell by cell, with no bit operation in common with the
    engine."""
    width, height = after.rules.width, after.rules.height
    top = max(height, len(after.rows))
    full = {(x, y) for y, row in enumerate(after.rows) for x in range(width) if row >> x & 1}
    empty = {(x, y) for y in range(top) for x in range(width)} - full
    tall = [max((y + 1 for x, y in full if x == column), default=0) for column in range(width)]

    def solid(x: int, y: int) -> bool:
        return not 0 <= x < width or y < 0 or (x, y) in full

    def run_down(x: int, y: int, cells: set[tuple[int, int]]) -> list[tuple[int, int]]:
        run = []
        while (x, y) in cells:
            run.append((x, y))
            y -= 1
        return run

    covered = {(x, y) for x, y in empty if y < tall[x]}
    well_cells = {(x, y) for x, y in empty if solid(x - 1, y) and solid(x + 1, y)}
    below_a_well = {cell for x, y in well_cells for cell in run_down(x, y, empty)}
    differences = [right - left for left, right in pairwise(tall)]
    pairs = [sum(solid(x - 1, y) != solid(x, y) for x in range(width + 1)) for y in range(top)]
    rows_with_holes = {y for _, y in covered}

    def triples(*pattern: int) -> int:
        return sum(
            (tall[x] - tall[x - 1], tall[x + 1] - tall[x]) == pattern
            for x in range(1, width - 1)
        )

    def sunk(x: int, depth: int) -> bool:
        return all(
            tall[side] >= tall[x] + depth for side in (x - 1, x + 1) if 0 <= side < width
        )

    def places(letter: str) -> int:
        """Columns where a piece can have a cell of the stack or the floor under each of its
        own.

        Only those that hold no fewer columns where it can.
        """
        found = set()
        for shape in PIECES["IOTZSJL".index(letter)]:
            for left in range(width - shape.width + 1):
                for bottom in range(top + 1):
                    feet = [(left + i, bottom + row) for i, row in enumerate(shape.bottoms)]
                    if all(y == tall[x] for x, y in feet):
                        found.add(frozenset(x for x, _ in feet))
        return sum(not any(other < columns for other in found) for columns in found)

    def gaps(y: int) -> int:
        return sum((x, y) in empty for x in range(width))

    highest = max(rows_with_holes, default=-1)

    return {
        "row_transitions": sum(pairs) - 2 * (top - height),
        "column_transitions": sum(
            solid(x, y - 1) != ((x, y) in full) for x in range(width) for y in range(top + 1)
        ),
        "holes": len(covered),
        "wells": sum(len(run_down(x, y, empty)) for x, y in well_cells),
        "hole_depth": sum((x, y - len(run_down(x, y, full))) in empty for x, y in full),
        "rows_with_holes": len(rows_with_holes),
        "diversity": len({d for d in differences if abs(d) <= 2}),
        "wells_fast": sum(len(run_down(x, y, empty)) for x, y in below_a_well),
        "max_height": max(tall),
        "total_height": sum(tall),
        **{
            f"deep_wells_{depth}": sum(sunk(x, depth) for x in range(width)) for depth in (2, 3)
        },
        "squared_deep_wells_3": sum(sunk(x, 3) for x in range(width)) ** 2,
        "bumpiness": sum(abs(d) for d in differences),
        "flat_steps": differences.count(0),
        "single_steps": differences.count(1) + differences.count(-1),
        "double_steps": differences.count(2) + differences.count(-2),
        "flat_pairs": triples(0, 0),
        "rising_pairs": triples(0, 1),
        "falling_pairs": triples(-1, 0),
        "peaks": sum(tall[x - 1] < tall[x] > tall[x + 1] for x in range(1, width - 1)),
        "fitting_pieces": sum(places(letter) > 0 for letter in "IOTZSJL"),
        "spare_pieces": sum(places(letter) > 1 for letter in "IOTZSJL"),
        "fits_s": int(places("S") > 0),
        "fits_z": int(places("Z") > 0),
        "highest_hole": highest + 1,
        "upper_hole_rows": sum(y in rows_with_holes for y in range(highest - 3, highest + 1)),
        "columns_with_holes": len({x for x, _ in covered}),
        "gaps_over_holes": sum(
            gaps(y + 1) for y in rows_with_holes - {y - 1 for y in rows_with_holes}
        ),
        "gaps_over_highest_hole": gaps(highest + 1) if rows_with_holes else 0,
        "adjacent_rows_with_holes": sum({y, y + 1} <= rows_with_holes for y in range(top)),
        "nearly_full_rows": sum(gaps(y) == 1 for y in range(top)),
        "thin_covers": sum((x, tall[x] - 2) in empty for x in range(width)),
        **{f"column_height_{x}": tall[x] for x in range(width)},
        **{f"height_difference_{x}": abs(d) for x, d in enumerate(differences)},
    }


def _random_stack(rng: random.Random, rules: Rules) -> tuple[int, ...]:
    density = rng.choice([0.3, 0.6, 0.85])
    rows = []
    for _ in range(rng.randint(0, rules.height)):
        row = sum(1 << x for x in range(rules.width) if rng.random() < density)
        rows.append(rules.full_row & ~1 if row in (0, rules.full_row) else row)
    return tuple(rows)


@pytest.mark.parametrize("width", [4, 7, 10])
def test_board_features_follow_their_definitions(width: int) -> None:
    rng = random.Random(width)
    overflowed = 0
    for _ in range(60):
        rules = Rules(width, rng.randint(4, 24), clear_on_overflow=rng.random() < 0.5)
        rows = _random_stack(rng, rules)
        shape = rng.choice(PIECES[rng.randrange(7)])
        column = rng.randint(0, width - shape.width)
        after = place(
            rows, shape, column, landing_row(column_heights(rows, width), shape, column), rules
        )
        overflowed += len(after.rows) > rules.height
        expected = _by_definition(after)
        names = tuple(expected)
        assert dict(zip(names, feature_values(after, names), strict=True)) == expected, after
    assert overflowed > 0


HAND_WORKED = [  # a drawing, top row first, the height of the board, and features of it
    (
        ("....",),
        10,
        {
            "row_transitions": 20,
            "column_transitions": 4,
            "holes": 0,
            "wells": 0,
            "diversity": 1,
        },
    ),
    (
        (".XX.", "X.X.", "X.XX"),
        4,
        {"wells": 1 + 3 + 3, "holes": 2},
    ),  # columns 0, 1, covered, and 3
    (("X.XX", "..XX", "X.XX"), 4, {"wells": 3 + 1, "wells_fast": 3 + 2 + 1}),  # no wall below
    (("X...", "....", "X...", "X...", ".X..", "XX.."), 8, {"hole_depth": 3}),
    # Columns 0, 2 and 7; 0 and 2. Side walls are higher than anything.
    (
        ("...X....", ".X.X....", ".X.X..X.", ".X.X..X."),
        8,
        {"deep_wells_2": 3, "deep_wells_3": 2},
    ),
    (  # heights 1 1 2 0 2 1 3 0 1 1: steps 0 1 -2 2 -1 2 -3 1 0
        ("......X...", "..X.X.X...", "XXX.XXX.XX"),
        8,
        {
            **{"total_height": 12, "bumpiness": 12},
            **{"flat_steps": 2, "single_steps": 3, "double_steps": 3},
            **{"flat_pairs": 0, "rising_pairs": 1, "falling_pairs": 0},
        },
    ),
    (("X....", "XXXXX"), 8, {"flat_pairs": 2, "rising_pairs": 0, "falling_pairs": 1}),
    (("X...", "X.X.", "X.X."), 8, {"fitting_pieces": len("IJL"), "fits_s": 0, "fits_z": 0}),
    (("X..X", "XX.X", "XXXX"), 8, {"fitting_pieces": len("ITSJ"), "fits_s": 1, "fits_z": 0}),
    (
        ("X..X", "X..X", "X.XX", "XXXX"),
        8,
        {"fitting_pieces": len("ITZJ"), "fits_s": 0, "fits_z": 1},
    ),
    (("......",), 8, {"spare_pieces": len("IOTJL")}),  # steps 0 0 0 0 0
    (("X.....", "XX...."), 8, {"spare_pieces": len("IOTSJL")}),  # -1 -1 0 0 0
    (("X.X.X.",), 8, {"spare_pieces": len("ITZS")}),  # -1 1 -1 1 -1
    (
        ("X...X.",) * 4,
        8,
        {"spare_pieces": len("IOJL")},
    ),  # -4 0 0 4 -4: two flat steps, one pair of them
    (
        (
            "X.....",
            "..XX.X",
            "X..X.X",
            "XX..XX",
            "XXX.XX",
        ),  # columns 0 and 2; holes in rows 0 to 3
        8,
        {
            **{
                "thin_covers": 2,
                "highest_hole": 4,
                "adjacent_rows_with_holes": 3,
                "nearly_full_rows": 1,
            },
            **{"upper_hole_rows": 4, "columns_with_holes": 3},
            **{"gaps_over_holes": 5, "gaps_over_highest_hole": 5},
        },
    ),
    (  # holes in columns 2, 3 and 5 at the bottom, and in column 4 under a lid, in rows 3 and 4
        ("....X.", "X...XX", "X.X..X", "XXX..X", "XX.XXX", "XXX.XX", "XX.XX."),
        10,
        {
            "rows_with_holes": 5,
            "upper_hole_rows": 4,
            "gaps_over_holes": 3,
            "gaps_over_highest_hole": 3,
        },
    ),
]


@pytest.mark.parametrize(("drawing", "height", "expected"), HAND_WORKED)
def test_boards_worked_out_by_hand(
    stack: Stack, drawing: tuple[str, ...], height: int, expected: dict[str, float]
) -> None:
    rows, rules = stack(*drawing), Rules(len(drawing[0]), height)
    rows = () if not any(rows) else rows
    after = AfterState(rules, PIECES[1][0], 0, 0, rows, 0, 0, game_over=False)
    assert dict(zip(expected, feature_values(after, tuple(expected)), strict=True)) == expected


def test_what_the_placement_did(stack: Stack) -> None:
    rows = stack("XXX.", "XX..")
    rules = Rules(4, 8)
    after = place(
        rows, PIECES[0][0], 3, 0, rules
    )  # I upright: the upper row goes with one of its cells
    assert feature_values(after, ("landing_height", "eroded_cells", "lines")) == [1.5, 1, 1]
    after = place(
        stack("XX..", "XX.."), PIECES[1][0], 2, 0, rules
    )  # O: two lines with two cells each
    assert feature_values(after, ("landing_height", "eroded_cells", "lines")) == [0.5, 8, 2]


def test_sets_are_in_the_order_of_their_weights() -> None:
    placement = ("landing_height", "eroded_cells", "row_transitions", "column_transitions")
    assert feature_names("dellacherie") == (*placement, "holes", "wells")
    assert (
        feature_names("bcts")[6:]
        == feature_names("DU")[6:]
        == ("hole_depth", "rows_with_holes")
    )
    assert feature_names("dt")[:5] == (*placement, "holes")
    assert feature_names("dt")[5:] == (
        "wells_fast",
        "hole_depth",
        "rows_with_holes",
        "diversity",
    )
    heights = tuple(f"column_height_{i}" for i in range(10))
    bertsekas = (*heights, *(f"height_difference_{i}" for i in range(9)), "max_height", "holes")
    assert feature_names("bertsekas") == bertsekas
    assert feature_names("bdu") == (
        *bertsekas,
        *placement,
        "wells",
        "hole_depth",
        "rows_with_holes",
    )
    larger = [
        feature_names(name)
        for name in ("dt", "dt_surface", "dt_full", "dt_columns", "dt_steps")
    ]
    assert [len(names) for names in larger] == [9, 19, 33, 52, 106]
    assert all(more[: len(names)] == names for names, more in pairwise(larger))


def test_sets_with_heights_follow_the_width() -> None:
    assert len(feature_names("bertsekas", 6)) == 6 + 5 + 2
    assert len(feature_names("dt_columns", 6)) == 33 + 6 + 5
    assert len(feature_names("dt_steps", 6)) == 33 + 6 + 5 + 5 * 6
    assert len(feature_names("dt_step_pairs", 6)) == 33 + 6 + 5 + 5 * 6 + 4 * 48
    assert len(feature_names("dt_step_pairs")) == 490
    assert feature_names("bertsekas", 4)[3:5] == ("column_height_3", "height_difference_0")


def test_a_long_list_has_its_length_as_a_label() -> None:
    assert feature_label(", ".join(feature_names("dt"))) == "9 features"


def test_features_can_be_listed() -> None:
    assert feature_names("holes, Max_Height,column_height_9") == (
        "holes",
        "max_height",
        "column_height_9",
    )


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            "dellachery",
            r"got 'dellachery'; did you mean 'dellacherie'\?; one of your own needs",
        ),
        ("dt,holes", "or a set that stands alone, got 'dt' in 'dt,holes'"),
        ("holes,wels", r"expected a feature set or feature, got 'wels'; did you mean 'wells'"),
        ("holes,wells,holes", "every feature once, got 'holes' twice"),
        ("height_difference_6", "board of width 7, got 'height_difference_6'"),
        ("step_6_1", "board of width 7, got 'step_6_1'"),
        ("step_pair_5_1_2", "board of width 7, got 'step_pair_5_1_2'"),
    ],
)
def test_what_is_no_list_of_features_is_refused(features: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        feature_names(features, 7)


def test_steps_are_told_apart_by_three_cells_up_and_down() -> None:
    heights = (0, 5, 2, 2, 4, 3)
    rows = tuple(
        sum((height > y) << x for x, height in enumerate(heights)) for y in range(max(heights))
    )
    after = AfterState(Rules(6, 8), PIECES[0][0], 0, 0, rows, 0, 0, game_over=False)
    steps = [6, 0, 3, 5, 2]
    for name in feature_names("dt_step_pairs", 6):
        if name.startswith("step_"):
            column, *classes = map(
                int, name.removeprefix("step_").removeprefix("pair_").split("_")
            )
            expected = steps[column : column + len(classes)] == classes
            assert feature_values(after, (name,)) == [expected], name
