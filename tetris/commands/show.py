"""The games of `watch_tetris.py`: of a controller, or a replay."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernels.support.files import read_bytes
from tetris.commands.arguments import chosen_lookahead, controller_label, game_rules
from tetris.evaluation import DEFAULT_SEED
from tetris.game.decisions import Pieces, play
from tetris.game.features import AfterState
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Lookahead
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, resolve
from tetris.record.replay import FORMAT, MOST_BYTES, Replay

DEFAULT_CONTROLLER, DEFAULT_ELSEWHERE = "best", "anywidth"
"""The default controllers: the best one of the package, and the best one for boards of any width."""

_OF_A_GAME = ("board", "rule", "pieces", "pieces_known", "lookahead", "seed")

STREAM = 0
"""The stream of pieces that is played."""


@dataclass(frozen=True)
class Show:
    """The games to show.

    Attributes:
        rules: The rules of the games.
        controller: The controller; None for a person's replay.
        seed: Seed of the pieces; None if a replay has none.
        stream: Number of their stream; None if a replay has none.
        label: Label of the controller or replay.
        replay: The replay; None for a controller.
        lookahead: What decisions consider.
    """

    rules: Rules
    controller: LinearController | None
    seed: int | None
    stream: int | None
    label: str
    replay: Replay | None = None
    lookahead: Lookahead = Lookahead.NONE

    @property
    def pieces(self) -> Pieces | None:
        """The pieces of seed and stream; None for a replay."""
        if self.replay is not None:
            return None
        assert self.seed is not None
        return PieceStream(self.rules, self.seed, STREAM)

    @property
    def title(self) -> list[str]:
        """The title, in lines for the screen."""
        source = self.rules.pieces if self.seed is None else f"{self.rules.pieces}, seed {self.seed}"
        board = f"{self.label} on {self.rules.board}, {self.rules.rule} rule"
        return [board, f"pieces {source}{self.lookahead.phrase}"]

    def played(self) -> Iterator[AfterState]:
        """Yield the after-states from the beginning."""
        if self.replay is not None:
            yield from self.replay.after_states()
        else:
            assert self.controller is not None
            pieces = self.pieces
            assert pieces is not None
            yield from play(pieces, self.controller.player(self.rules, self.lookahead), self.rules)


def read_show(arguments: argparse.Namespace) -> Show:
    """Return the games of the arguments; see ``watch_tetris.py --help``."""
    source = arguments.source
    if source is not None and _is_replay(source):
        given = [
            name
            for name in _OF_A_GAME
            if getattr(arguments, name) is not (False if name == "lookahead" else None)
        ]
        if given or arguments.play:
            flag = (*given, "play")[0].replace("_", "-")
            raise ValueError(f"a replay has its own rules and pieces: expected no --{flag}")
        replay = Replay.load(source)
        if not replay.placements:
            raise ValueError(f"{source}: expected a replay of at least one placement, got none")
        name = replay.controller.name if replay.controller else "a person"
        label = name or Path(source).stem
        return Show(replay.rules, replay.controller, replay.seed, replay.stream, label, replay)
    rules = game_rules(arguments)
    source = default_name(rules) if source is None else source
    controller = resolve(source)
    controller.names_on(rules)
    label = controller_label(controller, _file_name(Path(source)))
    seed = DEFAULT_SEED if arguments.seed is None else arguments.seed
    return Show(rules, controller, seed, STREAM, label, lookahead=chosen_lookahead(arguments))


def default_name(rules: Rules) -> str:
    """Return the name of the default controller."""
    known = resolve(DEFAULT_CONTROLLER).rules.width
    return DEFAULT_CONTROLLER if rules.width == known else DEFAULT_ELSEWHERE


def _file_name(path: Path) -> str:
    """The name of a file or folder; ``.`` is resolved."""
    return path.resolve().name if path.name in ("", "..") else path.name


def _is_replay(source: str) -> bool:
    """Return whether a file has the format of a replay."""
    path = Path(source)
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        return f'"{FORMAT}"' in read_bytes(path, MOST_BYTES).decode(errors="replace")
    except ValueError:  # too long: what reads it says so
        return True
