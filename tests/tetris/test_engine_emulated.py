"""The CUDA engine where there is no GPU: on emulated threads its kernels play what the C++ engine plays."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.loader import CompilerMissingError, Extension
from tetris import Rules, feature, feature_header, published
from tetris.feature_sets import feature_names
from tetris.features import AfterState
from tetris.native import extension, feature_list
from tetris.rollouts import Rollout

HERE = Path(__file__).parent


def emulated(names: tuple[str, ...], pieces_known: int, lookahead: bool) -> Any:
    """The operator of emulated_rollout.cpp for a list of features and a way to decide."""
    structs, engine = feature_list(names), extension(names, pieces_known=pieces_known, lookahead=lookahead)
    way = f"{structs} {pieces_known}{' ahead' if lookahead else ''}"
    name = f"tetris_emulated_{hashlib.sha256(way.encode()).hexdigest()[:8]}"
    library = Extension(
        name=name,
        sources=(HERE / "emulated_rollout.cpp",),
        include_dirs=(*engine.include_dirs, HERE),
        defines=(
            *(each for each in engine.defines if each[0] != "TETRIS_LIBRARY"),
            ("TETRIS_LIBRARY", name),
        ),
        flags=("-O1",),
        reason="CUDA engine on emulated threads",
    )
    try:
        library.load()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    return getattr(torch.ops, name)


def play_both(
    weights: torch.Tensor,
    rules: Rules,
    streams: int,
    features: str,
    warps: int,
    blocks: int = 1,
    splits: tuple[int, ...] = (1, 40),
    **options: Any,
) -> None:
    """Play on the CPU and on emulated threads, and compare; 0 warps a block: a warp a game.

    Before each part streams change boards.
    """
    expected, actual = (Rollout(weights, rules, streams, 5, features=features, **options) for _ in range(2))
    actual._operators = emulated(expected.names, expected.pieces_known, expected.lookahead)
    actual._operators.launch_as(blocks, warps)
    source = torch.arange(streams).flip(0).expand(len(weights), -1)
    for decisions in splits:
        expected.branch(source)
        actual.branch(source)
        expected.play_on(decisions)
        actual.play_on(decisions)
        assert torch.equal(actual._columns, expected._columns)
        assert torch.equal(actual._lines, expected._lines)
        assert torch.equal(actual._games, expected._games)
        assert torch.equal(actual._made, expected._made)
    assert int(expected._games.sum()) > 0


BOTH_WAYS = pytest.mark.parametrize("warps", [0, 2], ids=["a warp a game", "a thread a game"])


@BOTH_WAYS
@pytest.mark.parametrize(
    ("rules", "streams", "blocks", "options"),
    [
        (Rules(10, 10), 40, 2, {}),
        (Rules(10, 20, clear_on_overflow=True), 7, 1, {}),
        (Rules(5, 8, pieces="bag"), 9, 3, {"share_streams": False}),
        (Rules(4, 4), 33, 1, {"first_stream": 1 << 40}),
        (Rules(10, 6, original=True), 40, 2, {}),
        (Rules(5, 8, pieces="bag", original=True), 9, 3, {"games_per_stream": 2}),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e33, 1e-33])
def test_it_plays_what_the_cpu_plays(
    warps: int, rules: Rules, streams: int, blocks: int, options: dict[str, Any], scale: float
) -> None:
    good = torch.tensor(published("dt10").weights)
    noise = torch.randn(2, 9, generator=torch.Generator().manual_seed(0))
    equals = noise[1].round()  # placements of the same score: the first counts
    weights = torch.stack([good + noise[0], equals, 0 * equals]) * scale
    play_both(weights, rules, streams if warps else 2, "dt", warps, blocks, **options)


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        (Rules(10, 10), {}),
        (Rules(5, 8, clear_on_overflow=True, pieces="bag"), {"share_streams": False}),
        (Rules(4, 4), {"first_stream": 1 << 40, "games_per_stream": 2}),
        (Rules(6, 5, original=True), {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [1.0, 1e33])
def test_it_knows_the_next_piece_as_the_cpu_does(rules: Rules, options: dict[str, Any], scale: float) -> None:
    noise = torch.randn(2, 9, generator=torch.Generator().manual_seed(3))
    weights = torch.stack([torch.tensor(published("dt10").weights), noise[0], noise[1].round()]) * scale
    play_both(weights, rules, 2, "dt", 0, splits=(1, 33), pieces_known=2, **options)


def test_it_knows_the_next_piece_with_features_of_columns_and_an_odd_number_of_games() -> None:
    weights = torch.randn(1, len(feature_names("bertsekas")), generator=torch.Generator().manual_seed(4))
    play_both(weights, Rules(10, 8), 3, "bertsekas", 0, splits=(1, 25), pieces_known=2)


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        (Rules(10, 10), {}),
        (Rules(5, 8, clear_on_overflow=True, pieces="bag"), {"share_streams": False}),
        (Rules(4, 4, pieces="SZ"), {"first_stream": 1 << 40, "games_per_stream": 2}),
        (Rules(6, 5, original=True), {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("scale", [1.0, 1e33])
def test_it_looks_ahead_as_the_cpu_does(rules: Rules, options: dict[str, Any], scale: float) -> None:
    noise = torch.randn(2, 9, generator=torch.Generator().manual_seed(3))
    weights = torch.stack([torch.tensor(published("dt10").weights), noise[0], noise[1].round()]) * scale
    play_both(weights, rules, 5, "dt", 2, splits=(1, 33), lookahead=True, **options)


def test_it_plays_more_games_than_a_block_has_in_hand() -> None:
    weights = torch.tensor([published("dt10").weights])
    play_both(weights, Rules(4, 4), 2100, "dt", warps=2)


@pytest.mark.parametrize(
    ("features", "warps", "games"),
    [
        ("dt", 8, 300),
        ("dt", 7, 300),
        ("dt", 12, 300),
        ("dt", 20, 1600),
        ("dt_full", 3, 300),
        ("dt_full", 3, 1600),
    ],
)
def test_warps_that_go_together_share_out_games(features: str, warps: int, games: int) -> None:
    weights = torch.tensor([[-1.0] * len(feature_names(features, 4))])
    play_both(weights, Rules(4, 4), games, features, warps)


@BOTH_WAYS
@pytest.mark.parametrize("games_per_stream", [1, 2])
def test_a_stream_that_has_stopped_stays_as_it_is(warps: int, games_per_stream: int) -> None:
    noise = torch.randn(2, 9, generator=torch.Generator().manual_seed(2))
    weights = torch.stack([torch.tensor(published("dt10").weights) + noise[0], noise[1]])
    streams = 40 if warps else 3
    play_both(
        *(weights, Rules(4, 4), streams, "dt", warps, 2, (1, 7, 30, 300, 5)),
        games_per_stream=games_per_stream,
    )


@BOTH_WAYS
def test_a_feature_a_column_is_played_until_the_first_game_ends(warps: int) -> None:
    weights = torch.randn(2, len(feature_names("bertsekas")), generator=torch.Generator().manual_seed(1))
    play_both(weights, Rules(10, 12), 20 if warps else 3, "bertsekas", warps, games_per_stream=1)


@BOTH_WAYS
def test_it_does_with_a_feature_a_column(warps: int) -> None:
    weights = torch.randn(2, len(feature_names("bertsekas")), generator=torch.Generator().manual_seed(1))
    play_both(weights, Rules(10, 12), 20 if warps else 3, "bertsekas", warps)


@BOTH_WAYS
def test_it_decides_by_each_feature_alone_as_the_cpu_does(warps: int) -> None:
    # Any two features differ on some of these boards, so that a wrong one is found.
    alone = torch.eye(len(feature_names("dt_full")))
    weights = torch.cat([alone, -alone])
    for rules in (Rules(10, 12), Rules(6, 8)) if warps else (Rules(7, 10),):
        play_both(weights, rules, 3 if warps else 1, "dt_full", warps)


@BOTH_WAYS
@pytest.mark.parametrize("way", [{}, {"pieces_known": 2}, {"lookahead": True}], ids=str)
def test_it_looks_classes_of_steps_up_as_the_cpu_does(warps: int, way: dict[str, Any]) -> None:
    features = "holes, step_0_1, step_3_5, step_pair_2_4_4, max_height, step_pair_0_2_0, step_4_2"
    if warps == 0 and way.get("lookahead"):
        pytest.skip("a thread a game")
    weights = torch.randn(4, 7, generator=torch.Generator().manual_seed(7))
    play_both(weights, Rules(6, 8), 20 if warps else 3, features, warps, splits=(1, 20), **way)


@pytest.mark.slow
@BOTH_WAYS
def test_it_does_with_a_feature_of_ones_own(warps: int, tmp_path: Path, own_features_forgotten: None) -> None:
    header = tmp_path / "own.h"
    header.write_text(
        "TETRIS_FEATURE(LastColumn) { return board.column_height(board.width - 1) + board.cell(0, 0); }"
    )

    def last_column(after: AfterState) -> int:
        return after.heights[-1] + (after.rows[0] & 1 if after.rows else 0)

    feature(last_column)
    feature_header(header)
    weights = torch.tensor([[-1.0, -1.0], [-1.0, 1.0]])
    play_both(weights, Rules(6, 8), 20 if warps else 3, "holes, last_column", warps)


@pytest.mark.slow
@BOTH_WAYS
@pytest.mark.parametrize("features", ["dellacherie", "bcts", "bdu", "dt_columns"])
def test_it_does_with_every_feature_set(warps: int, features: str) -> None:
    weights = torch.randn(2, len(feature_names(features)), generator=torch.Generator().manual_seed(1))
    play_both(weights, Rules(10, 12), 20 if warps else 3, features, warps)
