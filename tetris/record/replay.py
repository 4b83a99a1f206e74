"""Replays: the rules, the seed, the controller, and every placement as a byte.

The byte of a placement is its number in the list of all placements on a board of that width,
sorted by piece, orientation and column. On ten columns there are 162. The number also tells the
piece, so that a viewer needs no random numbers. The bytes are compressed by zlib and written in
base64: a megabyte for a million pieces. A digest detects damage. Loading a replay is fast,
because it does not play the games. `Replay.after_states` plays them, and checks the pieces
against the seed, and the numbers of lines and games against the recorded ones.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.support.checks import check_integer, check_uint64
from kernels.support.files import StrPath, read_bytes, write_text
from tetris.game import fumen
from tetris.game.decisions import Rows, landing_row, place, with_next
from tetris.game.features import AfterState, column_heights
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import Shape, placement_numbers, placements_on
from tetris.game.policy import Lookahead
from tetris.game.positions import cells_of, read_board
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.play.controller import LinearController, check_format

FORMAT = "cem-tetris-replay"
VERSION = 2

MOST_PLACEMENTS = 1 << 30
"""The maximum number of placements: a small hostile file must not fill the memory."""


class DamagedReplayError(ValueError):
    """A replay whose placements contradict its seed, lines or games."""


def record_steps(
    steps: Iterable[tuple[Rows, AfterState]],
) -> tuple[list[AfterState], dict[int, Rows]]:
    """Return placements, and the stacks that do not follow from the placement before.

    Args:
        steps: For each placement, the stack before it and the board after it.

    Returns:
        The board after every placement.
        The stacks before some of the placements, as in `Replay`.
    """
    played: list[AfterState] = []
    boards = {}
    for rows, after in steps:
        expected_rows = played[-1].next_rows if played else ()
        if rows != expected_rows:
            boards[len(played)] = rows
        played.append(after)
    return played, boards


@dataclass(frozen=True)
class Replay:
    """The placements of consecutive games; a game begins on the empty board.

    Attributes:
        rules: The rules of the games.
        placements: The number of every placement, one byte per placement.
        lines: The number of lines removed, including those of an unfinished game.
        games: The number of games that ended.
        seed: The seed of the pieces; None if they come from another source. The original rule
            needs a seed, because it also needs the piece after the last placement.
        stream: The number of the seed's stream of pieces; None without a seed.
        controller: The controller that played; None for a person.
        boards: The stacks that the placements do not determine, such as a chosen first board,
            or a stack below which a row has risen. A key is the index of the next placement,
            and its value is the stack before that placement.
        landings: The rows in which pieces came to rest without having fallen straight down from
            above the stack. A key is the index of the placement.
        lookahead: Which later pieces the controller considered.

    Raises:
        ValueError: If a placement does not exist under the rules, the controller cannot play by
            them, the seed or the stream is not an unsigned 64-bit integer, or the rule is the
            original one and there is no seed.
    """

    rules: Rules
    placements: bytes
    lines: int
    games: int
    seed: int | None = None
    stream: int | None = None
    controller: LinearController | None = None
    boards: Mapping[int, Rows] = field(default_factory=dict, hash=False)
    landings: Mapping[int, int] = field(default_factory=dict, hash=False)
    lookahead: Lookahead = Lookahead.NONE

    def __post_init__(self) -> None:
        """Validate the fields without playing the games.

        Raises:
            ValueError: If a placement does not exist under the rules, the controller cannot
                play by them, or a number is missing or out of range.
        """
        self._check_placements()
        if self.controller is not None:
            # This raises if the controller cannot play by the rules.
            self.controller.names_on(self.rules)
        # By the original rule a game also ends if the next piece has no room to appear. The
        # piece after the last placement is known only from the seed.
        if self.rules.original and self.seed is None:
            raise ValueError("expected a seed and a stream by the original rule, got neither")
        if self.seed is not None:
            check_uint64("seed", self.seed)
            check_uint64("stream", self.stream)
        for rows in self.boards.values():
            check_integer("the height of a board", len(rows), 0, self.rules.height)
            for row in rows:
                # A row is an integer, a bit per cell. No row of a stack is full.
                check_integer("a row of a board", row, 0, self.rules.full_row - 1)
        for row in self.landings.values():
            check_integer("a landing row", row, 0, self.rules.height)
        check_integer("lines", self.lines, 0)
        check_integer("games", self.games, 0)

    def _check_placements(self) -> None:
        """Raise ValueError if a placement does not exist under the rules.

        A placement is one byte: its index in the list of all placements of all pieces on a
        board of this width. Only some of these pieces may be in the rules' set of pieces.
        """
        valid_indices = set()
        for index, (shape, _) in enumerate(placements_on(self.rules.width)):
            if shape.piece in self.rules.piece_set:
                valid_indices.add(index)
        invalid_indices = set(self.placements) - valid_indices
        if invalid_indices:
            rules = f"{self.rules.board} with pieces {self.rules.pieces}"
            raise ValueError(
                f"expected placements of {rules}, got number {min(invalid_indices)}"
            )

    @classmethod
    def of(
        cls,
        played: Iterable[AfterState],
        rules: Rules,
        seed: int | None = None,
        stream: int | None = None,
        controller: LinearController | None = None,
        boards: Mapping[int, Rows] | None = None,
        lookahead: Lookahead = Lookahead.NONE,
    ) -> Replay:
        """Return the replay of games that were played.

        Args:
            played: The board after every placement, in order.
            rules: The rules of the games.
            seed: The seed of the pieces; None if they come from another source.
            stream: The number of the seed's stream of pieces; None without a seed.
            controller: The controller that played; None for a person.
            boards: The stacks that the placements do not determine, such as a chosen first
                board. The key is the index, in ``played``, of the first placement on the stack.
            lookahead: Which later pieces the controller considered.
        """
        # The byte that stands for a placement, by piece, orientation and column.
        placement_bytes = placement_numbers(rules.width)
        boards = boards or {}
        placements = bytearray()
        landings = {}
        lines = 0
        games = 0
        rows: Rows = ()  # The stack before the placement. A game begins on an empty board.
        for t, after in enumerate(played):
            # A recorded stack replaces the one that the last placement left.
            rows = boards.get(t, rows)
            # Record the landing row only if the piece did not fall straight down. It may have
            # slid below an overhang.
            if after.landing_row != _row_of_drop(rows, after.shape, after.column, rules):
                landings[t] = after.landing_row
            placements.append(placement_bytes[after.piece, after.orientation, after.column])
            lines += after.lines
            games += after.game_over
            rows = after.next_rows
        return cls(
            rules,
            bytes(placements),
            lines,
            games,
            seed,
            stream,
            controller,
            boards,
            landings,
            lookahead,
        )

    @property
    def pieces(self) -> PieceStream | None:
        """The pieces of the seed's stream; None without a seed."""
        if self.seed is None:
            return None
        return PieceStream(self.rules, self.seed, self.stream or 0)

    def after_states(self) -> Iterator[AfterState]:
        """Play the recorded placements again, and yield the board after each placement.

        Raises:
            DamagedReplayError: If the piece of a placement differs from the piece that the seed
                generates. The error is also raised after the last placement if the numbers of
                lines and games differ from the recorded numbers.
        """
        # A recorded placement is an index into this list of pairs (shape, column).
        placements = placements_on(self.rules.width)
        pieces = self.pieces  # An unlimited sequence; None without a seed.
        rows: Rows = ()  # The stack before the placement. A game begins on an empty board.
        lines = 0
        games = 0
        for t, number in enumerate(self.placements):
            shape, column = placements[number]
            # A stack is recorded only if it differs from the stack after the last placement,
            # for example if the user chose the first board.
            rows = self.boards.get(t, rows)
            # A landing row is recorded only if the piece did not fall straight down.
            row = self.landings.get(t)
            if row is None:
                row = _row_of_drop(rows, shape, column, self.rules)
            after = place(rows, shape, column, row, self.rules)
            if pieces is not None:
                after = _compare_with_seed(after, pieces, t)
            lines += after.lines
            games += after.game_over
            yield after
            rows = after.next_rows
        if (lines, games) != (self.lines, self.games):
            raise DamagedReplayError(
                f"expected {self.lines} lines and {self.games} games from the placements, "
                f"got {lines} and {games}"
            )

    def to_fumen(self) -> str:
        """Return the games as a fumen with colors, one page per placement.

        A fumen is a text in which Tetris editors store a sequence of boards. The board of a
        page, called its field, has 23 rows. On a board of at most 20 rows an upright I may come
        to rest above the field and so end the game; then the page shows no piece.

        Raises:
            ValueError: If the board is not ten columns wide, or a stack or a piece does not fit
                into the field.
        """
        if self.rules.width != fumen.WIDTH:
            raise ValueError(f"expected a board ten columns wide, got {self.rules.board}")
        empty = np.zeros((fumen.HEIGHT, fumen.WIDTH), dtype=np.int64)
        cells = empty  # The field before the placement.
        pages = []
        for t, after in enumerate(self.after_states()):
            if t in self.boards:
                # The board was changed before this placement. Its cells are gray, because it is
                # not known to which pieces they belong.
                stack = cells_of(self.boards[t], fumen.WIDTH, fumen.HEIGHT)
                cells = stack * fumen.GRAY
            page = fumen.FumenPage(cells, after.shape, after.column, after.landing_row)
            top = max(after.top, len(self.boards.get(t, ())))
            if top > fumen.HEIGHT:
                # The page of a game that ends on a standard board still shows its last stack.
                if not after.game_over or self.rules.height > Rules.height:
                    raise ValueError(
                        f"expected a game in the {fumen.HEIGHT} rows of a fumen, got a cell in "
                        f"row {top} at piece {t + 1}"
                    )
                page = fumen.FumenPage(cells)
            pages.append(page)
            cells = empty if after.game_over else fumen.after_page(page)
        return fumen.write_fumen(pages)

    @classmethod
    def from_fumen(cls, text: str, rules: Rules | None = None) -> Replay:
        """Return the placements of a fumen as a replay.

        Where a field was edited between two placements, the replay records its stack in
        ``boards``.

        Args:
            text: The fumen, or the address of an editor that contains it.
            rules: The rules, which decide whether a placement ends the game; None: the default
                rules.

        Raises:
            ValueError: If the text is not a fumen, or a field does not fit the rules.
        """
        rules = rules or Rules()
        steps = []
        for page in fumen.read_fumen(text):
            if page.shape is None:  # This page has no placement.
                continue
            rows = read_board(page.cells, rules)
            after = place(rows, page.shape, page.column, page.row, rules)
            steps.append((rows, after))
        played, boards = record_steps(steps)
        return cls.of(played, rules, boards=boards)

    def to_dict(self) -> dict[str, Any]:
        """Return the replay as a dictionary that can be written as JSON."""
        values: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "rules": self.rules.to_dict(),
            "seed": self.seed,
            "stream": self.stream,
            "controller": None if self.controller is None else self.controller.to_dict(),
            "lines": self.lines,
            "games": self.games,
            "count": len(self.placements),
            # A byte per placement, compressed at the highest level.
            "placements": base64.b64encode(zlib.compress(self.placements, 9)).decode("ascii"),
        }
        # The keys of a JSON object are strings.
        if self.boards:
            values["boards"] = {str(t): list(rows) for t, rows in self.boards.items()}
        if self.landings:
            values["landings"] = {str(t): row for t, row in self.landings.items()}
        if self.lookahead is not Lookahead.NONE:
            values["lookahead"] = self.lookahead.value
        return {**values, "digest": _digest(values)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Replay:
        """Return the replay that a dictionary from ``to_dict`` describes.

        Raises:
            ValueError, TypeError, LookupError, zlib.error: If a value is missing or wrong, or
                the compressed placements are damaged.
        """
        check_format(values, FORMAT, VERSION)
        if values.get("digest") != _digest(values):
            raise ValueError("the digest does not match: the file is damaged or was edited")
        controller = values.get("controller")
        return cls(
            rules=Rules.from_dict(values["rules"]),
            placements=_decompress(values["placements"], expected_count=values["count"]),
            lines=values["lines"],
            games=values["games"],
            seed=values.get("seed"),
            stream=values.get("stream"),
            controller=LinearController.from_dict(controller) if controller else None,
            # JSON has strings as keys and lists in place of tuples.
            boards={int(t): tuple(rows) for t, rows in values.get("boards", {}).items()},
            landings={int(t): row for t, row in values.get("landings", {}).items()},
            lookahead=Lookahead(values.get("lookahead", Lookahead.NONE)),
        )

    def save(self, path: StrPath) -> None:
        """Write the replay as JSON, atomically; OSError if the file cannot be written."""
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: StrPath) -> Replay:
        """Read a replay from a JSON file; `after_states` checks it against its seed.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file holds no valid replay; the message names the file and the
                reason.
        """
        try:
            return cls.from_dict(json.loads(read_bytes(path).decode()))
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            RecursionError,
            zlib.error,
        ) as error:
            raise ValueError(f"{path} holds no valid replay: {error}") from error


def _row_of_drop(rows: Rows, shape: Shape, column: int, rules: Rules) -> int:
    """Return the row in which a piece that falls straight down comes to rest on a stack."""
    return landing_row(column_heights(rows, rules.width), shape, column)


def _compare_with_seed(after: AfterState, pieces: PieceStream, t: int) -> AfterState:
    """Check that piece t was placed, and return the board after it by the original rule.

    By that rule the game also ends if the next piece has no room to appear.
    """
    if pieces[t] != after.piece:
        raise DamagedReplayError(
            f"expected {PIECE_LETTERS[pieces[t]]} as piece {t + 1} of seed "
            f"{pieces.seed}, got {PIECE_LETTERS[after.piece]}"
        )
    return with_next(after, pieces[t + 1]) if after.rules.original else after


def _digest(values: Mapping[str, Any]) -> str:
    """Return a digest of all values except the digest itself."""
    content = {key: value for key, value in values.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _decompress(text: str, expected_count: int) -> bytes:
    """Return the placements that a replay file holds as base64 text, compressed by zlib.

    ``expected_count`` is the number of placements that the file states.
    """
    if not 0 <= expected_count <= MOST_PLACEMENTS:
        raise ValueError(f"expected a count of 0 to {MOST_PLACEMENTS}, got {expected_count!r}")
    # A small hostile file may decompress to gigabytes: stop after one placement too many.
    compressed = base64.b64decode(text)
    placements = zlib.decompressobj().decompress(compressed, expected_count + 1)
    if len(placements) != expected_count:
        difference = "more" if len(placements) > expected_count else "fewer"
        raise ValueError(f"expected {expected_count} placements, got {difference}")
    return placements
