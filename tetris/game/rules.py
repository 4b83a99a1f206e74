"""The rules of a game: board size, the end of a game, and where the pieces come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from kernels.support.checks import check_flags, check_integer

PIECE_LETTERS = "IOTZSJL"
"""The seven pieces in the order of their numbers, 0 to 6."""

RULES = ("published", "clear-on-overflow", "original")
"""The names of the game-over rules; see ``clear_on_overflow`` and ``original`` of `Rules`."""

PLACEMENT_RULES = RULES[:2]
"""The rules by which a placement alone can end a game; the exact solver knows only these."""

SOURCES = ("uniform", "bag")
"""The named piece sources; others are letters of `PIECE_LETTERS`."""

GUIDELINE_POINTS = (0, 100, 300, 500, 800)
"""Points of the Tetris guideline for 0 to 4 lines at once, on level 1, without bonuses."""

MIN_WIDTH = 4
MAX_WIDTH = 10
MIN_HEIGHT = 4
MAX_HEIGHT = 24


@dataclass(frozen=True)
class Rules:
    """The rules of simplified Tetris, on which the published controllers are scored.

    Examples:
        >>> Rules(10, 20).board
        '10x20'
        >>> Rules(pieces="sz").pieces
        'ZS'

    Attributes:
        width: Columns of the board, 4 to 10.
        height: Rows of the board, 4 to 24.
        clear_on_overflow: The game-over rule for a piece that comes to rest with a cell above
            the top row. False, the published rule: the game is over, and lines that the piece
            completes neither clear nor count. True: lines clear and count first; the game is
            over if the stack is still higher than the board.
        pieces: ``"uniform"``: the seven pieces, drawn independently and uniformly. ``"bag"``:
            seven at a time, each piece once in a random order. Letters of ``IOTZSJL`` such as
            ``"SZ"``: these pieces, drawn uniformly; the letters are put in the order of the
            piece numbers, and all seven become ``"uniform"``.
        original: The rule of the original game, in addition to the published one: after a
            landing the next piece has to appear inside the board, or the game is over; see
            `tetris.game.decisions.appears`.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If the board is out of range, the piece source is unknown, or two rules are
            true.
    """

    width: int = 10
    height: int = 20
    clear_on_overflow: bool = False
    pieces: str = "uniform"
    original: bool = False

    def __post_init__(self) -> None:
        """Validate the rules, and put the piece source into its canonical form."""
        width = check_integer("the board's width", self.width, MIN_WIDTH, MAX_WIDTH)
        height = check_integer("the board's height", self.height, MIN_HEIGHT, MAX_HEIGHT)
        check_flags(clear_on_overflow=self.clear_on_overflow, original=self.original)
        if self.clear_on_overflow and self.original:
            raise ValueError("expected clear_on_overflow or original, got both")
        # The class is frozen, so attributes must be set by `object.__setattr__`.
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "height", height)
        object.__setattr__(self, "pieces", _canonical_pieces(self.pieces))

    @property
    def board(self) -> str:
        """Width and height as text, such as ``"10x20"``."""
        return f"{self.width}x{self.height}"

    @property
    def rule(self) -> str:
        """Name of the game-over rule: one of `RULES`."""
        if self.original:
            return "original"
        return "clear-on-overflow" if self.clear_on_overflow else "published"

    @cached_property
    def full_row(self) -> int:
        """A row with every cell full: one bit per column."""
        return (1 << self.width) - 1

    @cached_property
    def piece_set(self) -> tuple[int, ...]:
        """Numbers of the pieces of the source, ascending."""
        if self.pieces in SOURCES:
            return tuple(range(len(PIECE_LETTERS)))
        return tuple(PIECE_LETTERS.index(letter) for letter in self.pieces)

    @classmethod
    def of(cls, width: int, height: int, rule: str, pieces: str = "uniform") -> Rules:
        """Return the rules with a game-over rule by its name, one of `RULES`."""
        if rule not in RULES:
            raise ValueError(f"expected rule to be {' or '.join(RULES)}, got {rule!r}")
        return cls(
            width, height, rule == "clear-on-overflow", pieces, original=rule == "original"
        )

    @staticmethod
    def parse_board(text: str) -> tuple[int, int]:
        """Read ``"10x20"`` as width 10 and height 20; raise ValueError if it is not valid."""
        width, _, height = text.strip().lower().partition("x")
        if not (width.isdecimal() and height.isdecimal()):
            raise ValueError(f"expected a board as WIDTHxHEIGHT such as 10x20, got {text!r}")
        size = Rules(int(width), int(height))
        return size.width, size.height

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as plain values, for JSON; ``original`` only if it is true."""
        values = asdict(self)
        return values if self.original else {name: values[name] for name in _WRITTEN}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Rules:
        """Return the rules that ``to_dict`` wrote; ValueError for missing or unknown keys."""
        if set(values) - {"original"} != set(_WRITTEN):
            raise ValueError(
                f"expected the rules to hold {', '.join(_WRITTEN)}; "
                f"got {', '.join(map(str, values))}"
            )
        return cls(**values)


_WRITTEN = tuple(field.name for field in fields(Rules) if field.name != "original")


def _canonical_pieces(pieces: str) -> str:
    """Return a piece source in canonical form: a name, or letters in the order of pieces."""
    if pieces.lower() in SOURCES:
        return pieces.lower()
    letters = set(pieces.upper())
    if not letters or not letters <= set(PIECE_LETTERS) or len(letters) < len(pieces):
        raise ValueError(
            f"expected pieces to be uniform, bag or letters of {PIECE_LETTERS}, each once; "
            f"got {pieces!r}"
        )
    in_order = "".join(letter for letter in PIECE_LETTERS if letter in letters)
    return "uniform" if in_order == PIECE_LETTERS else in_order
