"""The C++ engine, step by step, against the reference simulator's traces and the project's own record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import kernels.ops
import tetris
from kernels.loader import Extension
from tetris.controller import published
from tetris.feature_sets import feature_names
from tetris.game import place
from tetris.native import feature_list
from tetris.piece_stream import PieceStream
from tetris.pieces import PIECES
from tetris.rules import Rules
from tetris.whole_weights import whole_weights

FOLDER = Path(__file__).parent
TEN = (*feature_names("bcts"), "diversity", "wells_fast")
FEATURES = (*TEN, *(name for name in feature_names("dt_full") if name not in TEN))
BUILDS = ("native", "avx2")
LANES = ("fastest", "tall", "scalar")


@dataclass(frozen=True)
class Played:
    """Step by step: place in the search order, rows, (lines, landing row, game over), feature values."""

    places: list[int]
    rows: list[tuple[int, ...]]
    results: list[list[int]]
    values: list[list[float]]


@pytest.fixture(scope="module", params=BUILDS)
def operators(request: pytest.FixtureRequest) -> Any:
    package = Path(tetris.__file__).parent
    name = f"tetris_engine_steps_{request.param}"
    if request.param == "avx2" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("without AVX-512 the lanes of AVX2 are tested as the fastest, where there are any")
    library = Extension(
        name=name,
        sources=(FOLDER / "engine_steps.cpp",),
        include_dirs=(package / "engine", Path(kernels.ops.__file__).parent),
        defines=(
            ("TETRIS_FEATURES", feature_list(FEATURES)),
            ("TETRIS_LIBRARY", name),
        ),
        native=request.param == "native",
        flags=() if request.param == "native" else ("-mavx2",),
        reason="for tests",
    )
    library.load()
    return getattr(torch.ops, name)


def columns(rows: tuple[int, ...], width: int) -> list[int]:
    return [sum((row >> c & 1) << y for y, row in enumerate(rows)) for c in range(width)]


def trimmed_rows(board: list[int]) -> tuple[int, ...]:
    height = max(board).bit_length()
    return tuple(sum((column >> y & 1) << c for c, column in enumerate(board)) for y in range(height))


def play(
    operators: Any,
    rules: Rules,
    pieces: list[int],
    weights: dict[str, float] | None = None,
    *,
    lanes: str,
    boards: list[tuple[int, ...]] | None = None,
    places: list[int] | None = None,
) -> Played:
    """Play on from an empty board by the weights; or each step from its own board, at the place given."""
    count = len(pieces)
    placed = torch.tensor(places if places is not None else [-1] * count, dtype=torch.int32)
    stacks = torch.zeros((count, rules.width), dtype=torch.int32)
    if boards is not None:
        stacks = torch.tensor([columns(rows, rules.width) for rows in boards], dtype=torch.int32)
    results = torch.zeros((count, 3), dtype=torch.int32)
    values = torch.zeros((count, len(FEATURES)))
    vector = torch.tensor([(weights or {}).get(name, 0.0) for name in FEATURES])
    operators.steps(
        whole_weights(vector, FEATURES)[0],
        torch.tensor(pieces, dtype=torch.int32),
        placed,
        stacks,
        results,
        values,
        rules.height,
        rules.clear_on_overflow,
        boards is None,
        LANES.index(lanes),
    )
    return Played(
        placed.tolist(), [trimmed_rows(board) for board in stacks.tolist()], results.tolist(), values.tolist()
    )


@pytest.fixture(params=LANES)
def lanes(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _records(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]


def _rows(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(int(row) for row in text.split(","))


@pytest.mark.parametrize(
    ("trace", "pieces", "clear_on_overflow"),
    [
        ("trace_10x10.txt", "pieces_10x10.txt", False),
        ("trace_10x10_gameover_overflow0.txt", "pieces_10x10_gameover.txt", False),
        ("trace_10x10_gameover_overflow1.txt", "pieces_10x10_gameover.txt", True),
    ],
)
def test_bcts_plays_the_reference_trace(
    golden: Path, operators: Any, lanes: str, trace: str, pieces: str, clear_on_overflow: bool
) -> None:
    controller = published("bcts")
    weights = dict(zip(feature_names("bcts"), controller.weights, strict=True))
    records = _records(golden / trace)
    sequence = [int(piece) for piece in (golden / pieces).read_text().split()][: len(records)]
    played = play(operators, Rules(10, 10, clear_on_overflow), sequence, weights, lanes=lanes)
    for i, record in enumerate(records):
        lines, row, over = played.results[i]
        ours = [played.places[i] // 16, played.places[i] % 16 + 1, lines, row, over]
        assert ours == [int(record[field]) for field in (2, 3, 5, 6, 8)], record
        if not over:
            assert played.rows[i] == _rows(record[9]), record
            assert played.values[i][:8] == [float(field) for field in record[10:18]], record


def test_all_ten_features_are_the_reference_ones(golden: Path, operators: Any, lanes: str) -> None:
    compared, rules, rows = 0, Rules(), ()
    cases: dict[Rules, list[tuple[tuple[int, ...], list[str]]]] = {}
    for record in _records(golden / "features.txt"):
        if record[0] == "B":
            rules, rows = Rules(int(record[2]), int(record[3])), _rows(record[4])
        else:
            cases.setdefault(rules, []).append((rows, record))
    for rules, placements in cases.items():
        boards, records = zip(*placements, strict=True)
        pieces = [int(record[1]) for record in records]
        places = [int(record[2]) * 16 + int(record[3]) - 1 for record in records]
        played = play(operators, rules, pieces, lanes=lanes, boards=list(boards), places=places)
        for result, after, values, record in zip(
            played.results, played.rows, played.values, records, strict=True
        ):
            assert result == [int(record[4]), int(record[5]), int(record[8])], record
            if not result[2]:
                assert after == _rows(record[9]), record
                assert values[:10] == [float(field) for field in record[10:20]], record
                compared += 1
    assert compared > 2000


def test_pieces_have_the_shapes_of_the_python_engine(operators: Any, lanes: str) -> None:
    rules = Rules()
    cases = [
        (shape, column)
        for orientations in PIECES
        for shape in orientations
        for column in range(rules.width - shape.width + 1)
    ]
    played = play(
        operators,
        rules,
        [shape.piece for shape, _ in cases],
        lanes=lanes,
        boards=[()] * len(cases),
        places=[shape.orientation * 16 + column for shape, column in cases],
    )
    assert played.rows == [place((), shape, column, 0, rules).rows for shape, column in cases]


def test_recorded_games_are_played_again(operators: Any, lanes: str) -> None:
    compared = 0
    for case in json.loads((FOLDER / "fixtures" / "games.json").read_text()):
        rules = Rules.from_dict(case["rules"])
        names = feature_names(case["features"], rules.width)
        if not set(names) <= set(FEATURES) or [n for n in FEATURES if n in names] != list(names):
            continue
        stream = PieceStream(rules, case["seed"], case["stream"])
        pieces = [stream[case["start"] + i] for i in range(len(case["steps"]))]
        played = play(operators, rules, pieces, dict(zip(names, case["weights"], strict=True)), lanes=lanes)
        for i, (piece, orientation, column, lines, row, rows, _, _, over) in enumerate(case["steps"]):
            ours = [pieces[i], played.places[i], *played.results[i]]
            assert ours == [piece, orientation * 16 + column, lines, row, over], (rules, i)
            assert over or played.rows[i] == tuple(rows), (rules, i)
            compared += 1
    assert compared > 100


def test_recorded_placements_have_the_same_features(operators: Any, lanes: str) -> None:
    for case in json.loads((FOLDER / "fixtures" / "placements.json").read_text()):
        rules, placements = Rules.from_dict(case["rules"]), case["placements"]
        indices = [case["names"].index(name) for name in FEATURES]
        played = play(
            operators,
            rules,
            [placement[0] for placement in placements],
            lanes=lanes,
            boards=[tuple(case["rows"])] * len(placements),
            places=[placement[1] * 16 + placement[2] for placement in placements],
        )
        for i, (_, _, _, row, rows, lines, over, features) in enumerate(placements):
            assert played.results[i] == [lines, row, over]
            if not over:
                assert played.rows[i] == tuple(rows)
                assert played.values[i] == [features[index] for index in indices]
