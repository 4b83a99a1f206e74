"""Features of one's own: the reference in Python, and a header for the other engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernels.loader import CompilerMissingError
from tetris import (
    Policy,
    Rollout,
    Rules,
    Streams,
    feature,
    feature_header,
    feature_names,
    play_game,
)
from tetris.game.features import AfterState, feature_values
from tetris.play.controller import LinearController
from tetris.play.own_features import run_header
from tetris.training import train

pytestmark = pytest.mark.usefixtures("own_features_forgotten")


def test_a_function_becomes_a_feature_of_the_reference_engine() -> None:
    @feature
    def full_cells(after: AfterState) -> int:
        return sum(row.bit_count() for row in after.rows)

    assert feature_names("holes, full_cells") == ("holes", "full_cells")
    game = play_game(LinearController("full_cells", (1.0,)), most_pieces=8)
    assert [feature_values(step, ["full_cells"]) for step in game.steps] == [
        [board.sum()] for board in game.boards
    ]


def test_a_feature_cannot_sort_the_heights_that_the_others_read() -> None:
    @feature
    def lowest(after: AfterState) -> int:
        after.heights.sort()  # type: ignore[attr-defined]
        return after.heights[0]

    with pytest.raises(AttributeError, match="tuple"):
        play_game(LinearController("lowest, bumpiness", (1.0, 1.0)), most_pieces=1)


@pytest.mark.parametrize(("value", "shown"), [(None, "None"), (float("nan"), "nan")])
def test_a_feature_that_gives_no_finite_number_is_named(value: Any, shown: str) -> None:
    feature(function_of("forgot", value))
    pattern = rf"^feature forgot: expected a finite number \(float32\), got {shown}$"
    with pytest.raises(ValueError, match=pattern):
        play_game(LinearController("holes, forgot", (1.0, 1.0)), most_pieces=1)


def test_a_run_with_own_features_is_trained_and_the_same_in_python(
    header: Path, tmp_path: Path
) -> None:
    run_header(header)
    settings: dict[str, Any] = {
        "features": "holes, empty_columns, right_edge, corners, removed, volume",
        "curriculum": "6x8:2:40",
        "board": "6x8",
        "population": 6,
        **{"elites": 3, "noise": "constant:0.01", "averaging": 0.0},
        "streams": 2,
        "halvings": 1,
        "backend": "torch",
    }
    try:
        found = [
            train("quick", seed=1, out=tmp_path / device, device=device, **settings)
            for device in ("cpu", "python")
        ]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    assert found[0].weights == found[1].weights
    assert (
        json.loads((tmp_path / "cpu" / "config.json").read_text())["features"].count(
            "empty_columns"
        )
        == 1
    )
    checkpoints = [
        json.loads(path.read_text()) for path in tmp_path.glob("*/checkpoints/*2.json")
    ]
    one, other = (each["fingerprint"]["own_features"] for each in checkpoints)
    assert one == other  # either engine resumes the run of the other


def test_a_feature_without_its_reference_says_so_in_a_line(header: Path) -> None:
    header.with_suffix(".py").unlink()
    with pytest.raises(
        ValueError, match=r"mine.h: expected a reference of EmptyColumns in Python"
    ):
        run_header(header)
    feature(function_of("empty_columns", 0))
    with pytest.raises(
        ValueError, match=r"expected features that the C\+\+ engine has, got 'empty_columns'"
    ):
        Rollout(Policy([0.0, 1.0], "holes, empty_columns"), Streams())


def function_of(name: str, value: Any) -> Any:
    def function(after: AfterState) -> Any:
        return value

    function.__name__ = name
    return function


@pytest.mark.parametrize("name", ["holes", "dt", "with_2"])
def test_a_name_that_is_taken_or_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        feature(function_of(name, 0))


@pytest.mark.parametrize("value", [0.5, 4_096])
def test_a_reference_gives_what_the_engines_can_multiply(header: Path, value: float) -> None:
    run_header(header)
    feature(function_of("empty_columns", value))
    with pytest.raises(
        ValueError, match="feature empty_columns: expected a whole number of at most 4095"
    ):
        Rollout(Policy([1.0], "empty_columns"), Streams(Rules(4, 4)), "python").advance(1)


def test_a_reference_that_does_not_run_is_named_in_a_line(header: Path, script: Any) -> None:
    header.with_suffix(".py").write_text("1 / 0\n")
    refused = script("evaluate_tetris", "dt20", "--feature-header", header)
    assert refused.status == 2
    assert refused.err.splitlines()[-1].count(f"{header.with_suffix('.py')}: ") == 1
    assert "Error: " in refused.err
    assert "Traceback" not in refused.err


def test_features_of_two_headers_do_not_go_together(header: Path, tmp_path: Path) -> None:
    run_header(header)
    other = tmp_path / "other.h"
    other.write_text("TETRIS_FEATURE(Zero) { return 0; }\n/*\nTETRIS_FEATURE(Old)\n*/")
    feature(function_of("zero", 0))
    assert feature_header(other) == ("zero",)
    with pytest.raises(
        ValueError, match=r"expected features of one header, got .*mine.h, .*other.h"
    ):
        Rollout(Policy([0.0, 0.0], "corners, zero"), Streams())


def test_the_command_line_reads_a_header(header: Path, tmp_path: Path, script: Any) -> None:
    controller = tmp_path / "own.json"
    LinearController("holes, wells", (-1.0, -1.0), Rules(6, 8)).save(controller)
    controller.write_text(controller.read_text().replace("wells", "right_edge"))
    given = (
        "evaluate_tetris",
        controller,
        "--board",
        "6x8",
        "--decisions",
        50,
        "--device",
        "python",
    )
    refused = script(*given)
    assert refused.status == 2
    assert "one of your own needs @tetris.feature or --feature-header" in refused.err
    assert script(*given, "--feature-header", header).status == 0
    missing = script(*given, "--feature-header", tmp_path / "none.h")
    assert missing.status == 2
    assert "none.h" in missing.err


def test_the_commands_that_follow_a_run_name_its_header(
    header: Path, tmp_path: Path, script: Any
) -> None:
    given = (
        "--board",
        "5x6",
        "--generations",
        1,
        "--population",
        6,
        "--streams",
        1,
        "--decisions",
        10,
    )
    out = tmp_path / "a"
    ended = script(
        *(
            "train_tetris",
            "--device",
            "python",
            "--features",
            "holes,right_edge",
            "--feature-header",
            header,
        ),
        *(*given, "--score-decisions", 50, "--out", out),
    )
    assert ended.status == 0, ended.err
    hint = ended.out.splitlines()[-1]
    watch = f"python -m tetris watch --board 5x6 {out} --feature-header {header}"
    assert hint == f"to watch it play: {watch}"
