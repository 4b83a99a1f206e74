"""Piece sources: pure functions of (rules, seed, stream, t)."""

from __future__ import annotations

import pytest

from tetris.game.piece_stream import PieceStream, bag, hole_column, words
from tetris.game.rules import Rules

# The third known answer of Random123 as seed, stream and block: its words are d16cfe09 94fdcceb
# 5001e420 24126ea1.
SEED, STREAM, BLOCK = 0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88


def test_words_come_from_key_seed_and_counter_block_stream() -> None:
    assert words(SEED, STREAM, BLOCK) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_uniform_piece_scales_word_t_mod_4_of_block_t_div_4() -> None:
    # 0.818, 0.582, 0.3126 and 0.1409 of 2^32, times 7: 5.7, 4.07, 2.2, 0.99
    assert [PieceStream(Rules(), SEED, STREAM)[4 * BLOCK + i] for i in range(4)] == [5, 4, 2, 0]


def test_subset_scales_the_same_words_to_its_own_size() -> None:
    rules = Rules(pieces="ZSL")  # times 3: 2.5, 1.7, 0.94, 0.42
    assert [PieceStream(rules, SEED, STREAM)[4 * BLOCK + i] for i in range(4)] == [6, 4, 3, 3]


def test_the_hole_of_a_garbage_row_scales_a_word_of_a_key_of_its_own() -> None:
    seed = SEED ^ int.from_bytes(
        b"GARBAGE!", "big"
    )  # so that the words are the same again, times 10
    assert [hole_column(Rules(), seed, STREAM, 4 * BLOCK + i) for i in range(4)] == [8, 5, 3, 1]


def test_bag_is_the_written_shuffle() -> None:
    # The six words of seed 0, stream 0 over 2^32: 0.399 0.8805 0.7357 0.6055 | 0.9722 0.3621.
    # Times 7, 6, 5, 4, 3, 2: 2.8 5.3 3.7 2.4 2.9 0.7, so that 0123456 has the positions (6, 2)
    # (5, 5) (4, 3) (3, 2) (2, 2) (1, 0) swapped.
    assert bag(0, 0, 0) == (1, 0, 4, 6, 3, 5, 2)


def test_bag_source_plays_bag_after_bag() -> None:
    rules = Rules(pieces="bag")
    assert [PieceStream(rules, 5, 9)[t] for t in range(14, 28)] == [
        *bag(5, 9, 2),
        *bag(5, 9, 3),
    ]


def test_every_order_of_the_bag_is_equally_likely_position_by_position() -> None:
    bags = [bag(3, 4, index) for index in range(7000)]
    assert all(sorted(pieces) == list(range(7)) for pieces in bags)
    for position in range(7):
        counts = [sum(pieces[position] == piece for pieces in bags) for piece in range(7)]
        # Each is Binomial(7000, 1/7), sigma 29.3; 49 counts beyond 5 sigma: error probability
        # 3e-5.
        assert all(abs(count - 1000) < 147 for count in counts), (position, counts)


@pytest.mark.parametrize("pieces", ["uniform", "SZ"])
def test_pieces_of_a_source_are_equally_likely(pieces: str) -> None:
    rules = Rules(pieces=pieces)
    stream = PieceStream(rules, 11, 0)
    drawn = [stream[t] for t in range(12_600)]
    assert set(drawn) == set(rules.piece_set)
    share = 1 / len(rules.piece_set)
    sigma = (12_600 * share * (1 - share)) ** 0.5
    for piece in rules.piece_set:
        assert (
            abs(drawn.count(piece) - 12_600 * share) < 5 * sigma
        )  # error probability 6e-7 a count


@pytest.mark.parametrize(
    ("seed", "stream", "number"), [(-1, 0, 0), (0, 1 << 64, 0), (0, 0, -1)]
)
def test_seed_stream_and_number_must_fit_64_bits(seed: int, stream: int, number: int) -> None:
    with pytest.raises(ValueError, match="unsigned 64-bit"):
        PieceStream(Rules(), seed, stream)[number]
