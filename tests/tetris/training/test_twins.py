"""Features of a header and their twins in Python: what differs is named before a run trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernels.loader import CompilerMissingError
from tetris import Rules
from tetris.own_features import run_header
from tetris.training.twins import check_twins, libraries

pytestmark = pytest.mark.usefixtures("own_features_forgotten")


def check(names: tuple[str, ...], rules: Rules) -> None:
    try:
        check_twins(names, rules, "cpu")
    except CompilerMissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("rules", [Rules(10, 10), Rules(6, 8, clear_on_overflow=True), Rules(4, 24)])
def test_a_header_plays_as_its_twins(header: Path, rules: Rules) -> None:
    own = run_header(header)
    assert own == ("empty_columns", "right_edge", "corners")
    check(("holes", *own), rules)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("rules", [Rules(10, 10), Rules(6, 8, clear_on_overflow=True)])
def test_a_header_plays_as_its_twins_on_a_gpu(header: Path, rules: Rules) -> None:
    check_twins(("holes", *run_header(header)), rules, "cuda")


@pytest.mark.parametrize(
    ("names", "right", "wrong"),
    [
        (("holes", "right_edge"), "return 2 * board.column_height", "return 3 * board.column_height"),
        # What chooses the same placements: a constant, and any greater multiple of the only feature.
        (("holes", "right_edge"), "return 2 * board.column_height", "return 1 + 2 * board.column_height"),
        (("right_edge",), "return 2 * board.column_height", "return 5 * board.column_height"),
    ],
    ids=["another weight", "a constant", "a multiple"],
)
def test_a_header_that_is_not_its_twin_is_named(
    header: Path, names: tuple[str, ...], right: str, wrong: str
) -> None:
    text = header.read_text()
    assert text.count(right) == 1
    header.write_text(text.replace(right, wrong))
    run_header(header)
    check(("empty_columns", "corners"), Rules(6, 8))
    pattern = r"mine.h: right_edge is not its twin in Python: on 6x8 it gives \d+ where the twin gives \d+"
    with pytest.raises(ValueError, match=pattern):
        check(names, Rules(6, 8))


def test_the_engine_that_will_play_is_compared_as_well(header: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetris.training.twins._difference_in_values", lambda *_: "")
    text = header.read_text()
    header.write_text(text.replace("2 * board.column_height", "-2 * board.column_height"))
    run_header(header)
    pattern = r"right_edge is not its twin .* they differ by decision \d+ of games that weigh it most"
    with pytest.raises(ValueError, match=pattern):
        check(("holes", "right_edge"), Rules(6, 8))


def test_without_a_header_there_is_nothing_to_build() -> None:
    assert libraries(("holes", "wells")) == []
