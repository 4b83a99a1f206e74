"""The rules: what is accepted, and how it is spelt."""

from __future__ import annotations

from typing import Any

import pytest

from tetris.game.rules import GUIDELINE_POINTS, RULES, Rules


def test_defaults_are_the_published_game() -> None:
    rules = Rules()
    assert (rules.board, rules.rule, rules.pieces) == ("10x20", "published", "uniform")


def test_points_are_those_of_the_guideline() -> None:
    assert GUIDELINE_POINTS == (0, 100, 300, 500, 800)


@pytest.mark.parametrize(("width", "height", "got"), [(3, 20, 3), (11, 20, 11), (10, 25, 25)])
def test_boards_out_of_range_are_refused(width: int, height: int, got: int) -> None:
    with pytest.raises(
        ValueError, match=f"expected the board's (width|height) from .*, got {got}"
    ):
        Rules(width, height)


@pytest.mark.parametrize(
    ("given", "canonical", "piece_set"),
    [
        ("Bag", "bag", (0, 1, 2, 3, 4, 5, 6)),
        ("sz", "ZS", (3, 4)),
        ("LJSZTOI", "uniform", (0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_pieces_have_one_canonical_spelling(
    given: str, canonical: str, piece_set: tuple[int, ...]
) -> None:
    rules = Rules(pieces=given)
    assert (rules.pieces, rules.piece_set) == (canonical, piece_set)


@pytest.mark.parametrize("pieces", ["", "SX", "SzS"])
def test_unknown_pieces_are_refused(pieces: str) -> None:
    with pytest.raises(ValueError, match="uniform, bag or letters of IOTZSJL, each once; got"):
        Rules(pieces=pieces)


def test_board_is_read_from_text() -> None:
    assert Rules.parse_board(" 8X12 ") == (8, 12)


@pytest.mark.parametrize("text", ["", "10", "9.5x20"])
def test_text_that_is_no_board_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="WIDTHxHEIGHT such as 10x20, got"):
        Rules.parse_board(text)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_by_its_name(rule: str) -> None:
    rules = Rules.of(8, 12, rule, "SZ")
    assert (rules.rule, rules.board, rules.pieces) == (rule, "8x12", "ZS")
    assert Rules.from_dict(rules.to_dict()) == rules


def test_an_unknown_rule_and_two_rules_are_refused() -> None:
    with pytest.raises(
        ValueError, match="published or clear-on-overflow or original, got 'modern'"
    ):
        Rules.of(10, 20, "modern")
    with pytest.raises(ValueError, match="expected clear_on_overflow or original, got both"):
        Rules(clear_on_overflow=True, original=True)


def test_the_original_rule_is_written_where_it_holds_only() -> None:
    old = {"width": 10, "height": 20, "clear_on_overflow": False, "pieces": "uniform"}
    assert Rules().to_dict() == old
    assert Rules.from_dict(old) == Rules()
    assert Rules(original=True).to_dict() == {**old, "original": True}


@pytest.mark.parametrize("change", [{"gravity": 1}, {"width": None}])
def test_dict_must_hold_exactly_the_fields(change: dict[str, Any]) -> None:
    values = {**Rules().to_dict(), **change}
    values = {key: value for key, value in values.items() if value is not None}
    with pytest.raises(ValueError, match="expected the rules to hold width, height"):
        Rules.from_dict(values)
