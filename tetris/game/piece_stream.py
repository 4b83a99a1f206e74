"""Where the pieces come from: piece t of a stream is a pure function of (rules, seed, stream, t).

All engines draw from Philox4x32-10 with key = seed and counter = (block, stream), each as low and high 32
bits; a block gives four words. Nothing is remembered between pieces, so a stream can be entered at any t, on
any device.
"""

from __future__ import annotations

from kernels.ops.philox import philox4x32, split64
from tetris.game.rules import Rules

_BAG_SIZE = 7


def words(seed: int, stream: int, block: int) -> tuple[int, int, int, int]:
    """Return the four random 32-bit words of one block of a stream; all three are unsigned, of 64 bits."""
    return philox4x32((*split64(block), *split64(stream)), split64(seed))


def bag(seed: int, stream: int, index: int) -> tuple[int, ...]:
    """Return the seven pieces of one bag in the order they come.

    A Fisher-Yates shuffle of 0..6 from the back, with the first six words of blocks 2 * index and
    2 * index + 1.
    """
    random_words = words(seed, stream, 2 * index) + words(seed, stream, 2 * index + 1)
    pieces = list(range(_BAG_SIZE))
    for word, last in zip(random_words, range(_BAG_SIZE - 1, 0, -1), strict=False):
        chosen = ((last + 1) * word) >> 32
        pieces[last], pieces[chosen] = pieces[chosen], pieces[last]
    return tuple(pieces)


def packed_source(rules: Rules) -> tuple[int, int, bool]:
    """Return the piece source of the rules as the C++ engine takes it.

    Returns:
        The pieces to draw from, four bits each, the first lowest; their number; whether they come in bags.
    """
    pieces = rules.piece_set
    return sum(piece << 4 * i for i, piece in enumerate(pieces)), len(pieces), rules.pieces == "bag"


class PieceStream:
    """The endless sequence of pieces of one stream: ``PieceStream(rules, seed, stream)[t]``.

    Remembers the block (or bag) it last computed: reading in order costs one Philox call for four pieces.

    Attributes:
        rules: Says uniform, bag or a subset.
        seed: Unsigned 64-bit integer.
        stream: Unsigned 64-bit integer.
    """

    def __init__(self, rules: Rules, seed: int, stream: int) -> None:
        """Open a stream.

        Raises:
            ValueError: If the seed or the stream is no unsigned 64-bit integer.
        """
        split64(seed), split64(stream)
        self.rules = rules
        self.seed = seed
        self.stream = stream
        self._group_size = _BAG_SIZE if rules.pieces == "bag" else 4
        self._group_index: int | None = None
        self._group: tuple[int, ...] = ()

    def __getitem__(self, t: int) -> int:
        """Return piece t (0 to 6), counted from 0 over all games of the stream.

        Raises:
            ValueError: If t is negative.
        """
        index, position = divmod(t, self._group_size)
        if index != self._group_index:
            self._group = self._draw(index)
            self._group_index = index
        return self._group[position]

    def _draw(self, index: int) -> tuple[int, ...]:
        if self.rules.pieces == "bag":
            return bag(self.seed, self.stream, index)
        piece_set = self.rules.piece_set
        return tuple(
            piece_set[(len(piece_set) * word) >> 32] for word in words(self.seed, self.stream, index)
        )
