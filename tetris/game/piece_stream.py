"""The source of pieces: piece t of a stream is a pure function of rules, seed, stream and t.

All engines draw from Philox4x32-10. The key is the seed, and the counter is (block, stream),
each as low and high 32 bits. A block gives four words. No state is kept between pieces, so a
device can start at any piece t of a stream.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from kernels.ops.philox import philox4x32, split64
from kernels.support.checks import check_integer
from tetris.game.rules import Rules

_BAG_SIZE = 7
_GARBAGE = 0x4741524241474521  # "GARBAGE!" in ASCII


@lru_cache(maxsize=256)
def words(seed: int, stream: int, block: int) -> tuple[int, int, int, int]:
    """Return the four random 32-bit words of a block of a stream. Arguments have 64 bits."""
    return philox4x32((*split64(block), *split64(stream)), split64(seed))


@lru_cache(maxsize=256)
def bag(seed: int, stream: int, index: int) -> tuple[int, ...]:
    """Return the seven pieces of a bag, in the order in which they come.

    The pieces are the numbers 0 to 6 after a Fisher-Yates shuffle from the back. The shuffle
    uses the first six random words of the blocks 2 * index and 2 * index + 1.
    """
    random_words = words(seed, stream, 2 * index) + words(seed, stream, 2 * index + 1)
    pieces = list(range(_BAG_SIZE))
    for word, last in zip(random_words, range(_BAG_SIZE - 1, 0, -1), strict=False):
        chosen = ((last + 1) * word) >> 32  # A random number from 0 to last.
        pieces[last], pieces[chosen] = pieces[chosen], pieces[last]
    return tuple(pieces)


def hole_column(rules: Rules, seed: int, stream: int, n: int) -> int:
    """Return the column of the hole in garbage row n, counted over all games of a stream.

    Garbage rises under the stack, as in games for two players. Its random words have another
    key than the pieces, so that a hole says nothing about the pieces to come.
    """
    # A block has four random words. The word is scaled from 32 bits to 0 .. width - 1.
    return (rules.width * words(seed ^ _GARBAGE, stream, n // 4)[n % 4]) >> 32


def packed_source(rules: Rules) -> tuple[int, int, bool]:
    """Return the piece source of the rules in the form that the C++ engine takes.

    Returns:
        The pieces to draw from, packed into an integer: four bits each, the first one lowest.
        The number of these pieces.
        Whether the pieces come in bags.
    """
    pieces = rules.piece_set
    packed = sum(piece << 4 * i for i, piece in enumerate(pieces))
    return packed, len(pieces), rules.pieces == "bag"


@dataclass(frozen=True)
class PieceStream:
    """The endless sequence of pieces of one stream of a seed, both unsigned 64-bit integers."""

    rules: Rules
    seed: int
    stream: int

    def __getitem__(self, t: int) -> int:
        """Return piece t (0 to 6), counted from 0 over all games."""
        if self.rules.pieces == "bag":
            return bag(self.seed, self.stream, t // _BAG_SIZE)[t % _BAG_SIZE]
        piece_set = self.rules.piece_set
        # A block has four random words. The word is scaled from 32 bits to an index.
        word = words(self.seed, self.stream, t // 4)[t % 4]
        return piece_set[(len(piece_set) * word) >> 32]


@dataclass(frozen=True)
class Streams:
    """Streams of pieces, the same number for every candidate; on each, game follows game.

    Attributes:
        rules: The rules of the games.
        count: Streams of a candidate, at least 1.
        seed: Chooses the pieces, 0 to 2^64 - 1.
        first: Number of the first stream, 0 to 2^62.
        shared: Whether all candidates play on the streams ``first`` onwards (common random
            numbers); otherwise candidate i has its own, from ``first + i * count`` onwards.
        games: A stream stops at the end of this many games, at least 1, and costs almost
            nothing afterwards. None: streams never stop.

    Raises:
        ValueError: If a number is out of range.
    """

    rules: Rules = field(default_factory=Rules)
    count: int = 1
    seed: int = 0
    first: int = 0
    shared: bool = True
    games: int | None = None

    def __post_init__(self) -> None:
        """Check that every number is in its range, and make it an int."""
        ranges = {"count": (1, 1 << 31), "seed": (0, (1 << 64) - 1), "first": (0, 1 << 62)}
        if self.games is not None:
            ranges["games"] = (1, 1 << 62)
        for name, (low, high) in ranges.items():
            number = check_integer(name, getattr(self, name), low, high)
            object.__setattr__(self, name, number)  # The class is frozen.

    def pieces(self, candidate: int, index: int) -> PieceStream:
        """Return the pieces of a candidate's stream, by its number from 0."""
        number = self.first + index
        if not self.shared:
            number += candidate * self.count
        return PieceStream(self.rules, self.seed, number)
