"""Replays: the rules, the seed, the controller, and every placement as a byte.

A placement's byte is its number among all placements on a board of that width, by piece,
orientation and column: 162 on ten columns. The bytes hold the pieces, too, so that a viewer
needs no random numbers. They are compressed by zlib and written in base64: a megabyte for a
million pieces. A digest detects damage. Reading is fast; `Replay.after_states` plays the game
and checks pieces, lines and games against seed and counts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.support.checks import check_integer
from kernels.support.files import read_bytes, write_text
from tetris.game import fumen
from tetris.game.decisions import Rows, landing_row, place, with_next
from tetris.game.features import AfterState, column_heights
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import placement_numbers, placements_on
from tetris.game.positions import read_board
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.play.controller import LinearController

FORMAT = "cem-tetris-replay"
VERSION = 2

MOST_PLACEMENTS = 1 << 30
"""The most placements of a replay: a small hostile file must not fill the memory."""


class DamagedReplayError(ValueError):
    """A replay whose placements contradict its seed, lines or games."""


@dataclass(frozen=True)
class Replay:
    """The placements of games, one after the other; a game begins on the empty board.

    Attributes:
        rules: The rules of the games.
        placements: The number of every placement, a byte each.
        lines: Lines removed, those of an unfinished game included.
        games: Games that ended.
        seed: Seed of the pieces; None for pieces of another source. The original rule needs a
            seed, for the piece after the last placement.
        stream: Number of their stream; None without a seed.
        controller: The controller that played; None for a person.
        boards: The stack before a placement, by the number of the placement from 0, where it is
            not the one that the placement before has left: a chosen board, a risen row.
        landings: The row in which the piece rests, by the number of its placement, where it did
            not fall straight down from above the stack.

    Raises:
        ValueError: If a placement does not exist under the rules, the controller cannot play by
            them, the seed or stream is no unsigned 64-bit integer, or the original rule comes
            without them.
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

    def __post_init__(self) -> None:
        """Check the fields of a replay, as far as that is possible without playing its games.

        A placement is a byte: its number among all placements of all pieces on a board of this
        width.

        Raises:
            ValueError: If a placement does not exist under the rules, the controller cannot
                play by them, or a number is missing or out of range.
        """
        possible = set()
        for number, (shape, _) in enumerate(placements_on(self.rules.width)):
            if shape.piece in self.rules.piece_set:
                possible.add(number)
        impossible = set(self.placements) - possible
        if impossible:
            rules = f"{self.rules.board} with pieces {self.rules.pieces}"
            raise ValueError(f"expected placements of {rules}, got number {min(impossible)}")
        if self.controller is not None:
            # This raises if the controller cannot play by the rules.
            self.controller.names_on(self.rules)
        if self.rules.original and self.seed is None:
            raise ValueError("expected a seed and a stream by the original rule, got neither")
        if self.seed is not None:
            check_integer("seed", self.seed, 0, (1 << 64) - 1)
            check_integer("stream", self.stream, 0, (1 << 64) - 1)
        for rows in self.boards.values():
            check_integer("the height of a board", len(rows), 0, self.rules.height)
            for row in rows:
                check_integer("a row of a board", row, 0, self.rules.full_row - 1)
        for row in self.landings.values():
            check_integer("a landing row", row, 0, self.rules.height)
        check_integer("lines", self.lines, 0)
        check_integer("games", self.games, 0)

    @classmethod
    def of(
        cls,
        played: Iterable[AfterState],
        rules: Rules,
        seed: int | None = None,
        stream: int | None = None,
        controller: LinearController | None = None,
        boards: Mapping[int, Rows] | None = None,
    ) -> Replay:
        """Return the replay of games that were played.

        Args:
            played: The board after every decision, in order.
            rules: The rules of the games.
            seed: The seed of the pieces, if they were random.
            stream: The number of the seed's stream of pieces.
            controller: The controller that played; None for a person.
            boards: The attribute of that name.
        """
        numbers = placement_numbers(rules.width)
        boards = boards or {}
        placements = bytearray()
        landings = {}
        lines = 0
        games = 0
        rows: Rows = ()
        for t, after in enumerate(played):
            rows = boards.get(t, rows)
            heights = column_heights(rows, rules.width)
            if after.landing_row != landing_row(heights, after.shape, after.column):
                landings[t] = after.landing_row
            placements.append(numbers[after.piece, after.orientation, after.column])
            lines += after.lines
            games += after.game_over
            rows = () if after.game_over else after.rows
        return cls(
            rules, bytes(placements), lines, games, seed, stream, controller, boards, landings
        )

    @property
    def pieces(self) -> PieceStream | None:
        """The pieces of seed and stream; None without a seed."""
        return (
            None if self.seed is None else PieceStream(self.rules, self.seed, self.stream or 0)
        )

    def after_states(self) -> Iterator[AfterState]:
        """Play the recorded placements again, and yield the board after each of them.

        Raises:
            DamagedReplayError: At a placement whose piece is not the one that the seed gives,
                or at the end, if the numbers of lines and games are not the recorded ones.
        """
        # The number of a placement is its index in this list of (shape, column).
        placements = placements_on(self.rules.width)
        pieces = self.pieces
        rows: Rows = ()  # Each game begins on an empty board.
        lines = 0
        games = 0
        for t, number in enumerate(self.placements):
            shape, column = placements[number]
            if pieces is not None and pieces[t] != shape.piece:
                raise DamagedReplayError(
                    f"expected {PIECE_LETTERS[pieces[t]]} as piece {t + 1} of seed "
                    f"{self.seed}, got {PIECE_LETTERS[shape.piece]}"
                )
            rows = self.boards.get(t, rows)
            row = self.landings.get(t)
            if row is None:
                row = landing_row(column_heights(rows, self.rules.width), shape, column)
            after = place(rows, shape, column, row, self.rules)
            if self.rules.original and pieces is not None:
                # By this rule the game also ends if the next piece has no room to appear.
                after = with_next(after, pieces[t + 1])
            lines += after.lines
            games += after.game_over
            yield after
            rows = () if after.game_over else after.rows
        if (lines, games) != (self.lines, self.games):
            raise DamagedReplayError(
                f"expected {self.lines} lines and {self.games} games from the placements, "
                f"got {lines} and {games}"
            )

    def to_fumen(self) -> str:
        """Return the games as a fumen with colors, a page for each placement.

        A piece that ends a game above the field, which has 23 rows, is left out.

        Raises:
            ValueError: If the board is not ten columns wide.
        """
        if self.rules.width != fumen.WIDTH:
            raise ValueError(f"expected a board ten columns wide, got {self.rules.board}")
        empty = np.zeros((fumen.HEIGHT, fumen.WIDTH), dtype=np.int64)
        cells = empty
        pages = []
        for t, after in enumerate(self.after_states()):
            if t in self.boards:
                stack = np.array(self.boards[t], dtype=np.int64)[:, np.newaxis]
                cells = empty.copy()
                cells[: len(stack)] = (stack >> np.arange(fumen.WIDTH) & 1) * fumen.GRAY
            page = fumen.FumenPage(cells)
            if after.landing_row + after.shape.height <= fumen.HEIGHT:
                page = fumen.FumenPage(cells, after.shape, after.column, after.landing_row)
            pages.append(page)
            cells = empty if after.game_over else fumen.after_page(page)
        return fumen.write_fumen(pages)

    @classmethod
    def from_fumen(cls, text: str, rules: Rules | None = None) -> Replay:
        """Return the placements of a fumen; fields that were edited between them are boards.

        Args:
            text: The fumen, or the address of an editor with it.
            rules: The rules, by which a game may end; None: the default ones.

        Raises:
            ValueError: If the text is no fumen, or a field does not fit the rules.
        """
        rules = rules or Rules()
        boards: dict[int, Rows] = {}
        played: list[AfterState] = []
        rows_left: Rows = ()  # The stack that the last placement has left.
        for page in fumen.read_fumen(text):
            if page.shape is None:
                continue
            rows = read_board(page.cells, rules)
            if rows != rows_left:
                boards[len(played)] = rows
            after = place(rows, page.shape, page.column, page.row, rules)
            played.append(after)
            rows_left = () if after.game_over else after.rows
        return cls.of(played, rules, boards=boards)

    def to_dict(self) -> dict[str, Any]:
        """Return the replay as plain values, for JSON."""
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
            "placements": base64.b64encode(zlib.compress(self.placements, 9)).decode("ascii"),
        }
        # In JSON the keys of an object are texts.
        if self.boards:
            values["boards"] = {str(t): list(rows) for t, rows in self.boards.items()}
        if self.landings:
            values["landings"] = {str(t): row for t, row in self.landings.items()}
        return {**values, "digest": _digest(values)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Replay:
        """Return the replay of a dictionary that ``to_dict`` returned.

        Raises:
            ValueError, TypeError, LookupError, zlib.error: If a value is missing or wrong, or
                the placements, which are compressed and written in base64, are damaged.
        """
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise ValueError(f'expected an object with "format": "{FORMAT}"')
        if values.get("version") != VERSION:
            raise ValueError(
                f"expected version {VERSION} of the format, got {values.get('version')!r}"
            )
        if values.get("digest") != _digest(values):
            raise ValueError("the digest does not match: the file is damaged or was edited")
        controller = values.get("controller")
        return cls(
            rules=Rules.from_dict(values["rules"]),
            placements=_unpack(values["placements"], values["count"]),
            lines=values["lines"],
            games=values["games"],
            seed=values.get("seed"),
            stream=values.get("stream"),
            controller=LinearController.from_dict(controller) if controller else None,
            boards={int(t): tuple(rows) for t, rows in values.get("boards", {}).items()},
            landings={int(t): row for t, row in values.get("landings", {}).items()},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the replay as JSON, atomically; OSError if the file cannot be written."""
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Replay:
        """Read a replay from a JSON file; `after_states` checks it against its seed.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it holds no valid replay; the message names the file and the reason.
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


def _digest(values: Mapping[str, Any]) -> str:
    content = {key: value for key, value in values.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _unpack(text: str, count: int) -> bytes:
    """Return the placements from the text of a file, which says that they are ``count``."""
    if not 0 <= count <= MOST_PLACEMENTS:
        raise ValueError(f"expected a count of 0 to {MOST_PLACEMENTS}, got {count!r}")
    # A small hostile file may unpack to gigabytes: stop after one placement too many.
    placements = zlib.decompressobj().decompress(base64.b64decode(text), count + 1)
    if len(placements) != count:
        difference = "more" if len(placements) > count else "fewer"
        raise ValueError(f"expected {count} placements, got {difference}")
    return placements
