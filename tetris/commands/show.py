"""The games of `watch_tetris.py`: of a controller, or a replay."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernels.support.files import read_bytes
from tetris.commands.arguments import chosen_lookahead, chosen_seed, controller_label, game_rules
from tetris.game.decisions import Pieces, play
from tetris.game.features import AfterState
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Lookahead, Player
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, resolve
from tetris.record.replay import FORMAT, MOST_BYTES, Replay

DEFAULT_CONTROLLER, DEFAULT_ELSEWHERE = "best", "anywidth"
"""The default controllers: the best one of the package, for ten columns, and that for boards of any width."""

_OF_A_GAME = ("board", "rule", "pieces", "pieces_known", "lookahead", "seed")

STREAM = 0
"""The stream of pieces that is played."""


@dataclass(frozen=True)
class Show:
    """The games to show: of a controller, or a replay, whose seed, stream and controller may be unknown."""

    rules: Rules
    controller: LinearController | None
    seed: int | None
    stream: int | None
    label: str
    replay: Replay | None = None
    lookahead: Lookahead = Lookahead.NONE

    @cached_property
    def player(self) -> Player | None:
        """The controller on the board; None without one."""
        return None if self.controller is None else self.controller.player(self.rules, self.lookahead)

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
            assert self.pieces is not None
            yield from play(self.pieces, self.controller.player(self.rules, self.lookahead), self.rules)


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
    if source is None:
        source = DEFAULT_CONTROLLER if rules.width == 10 else DEFAULT_ELSEWHERE
    controller = resolve(source)
    controller.names_on(rules)
    label = controller_label(controller, Path(source).resolve().name)
    lookahead = chosen_lookahead(arguments)
    return Show(rules, controller, chosen_seed(arguments), STREAM, label, lookahead=lookahead)


def _is_replay(source: str) -> bool:
    """Return whether a file has the format of a replay."""
    path = Path(source)
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        return f'"{FORMAT}"' in read_bytes(path, MOST_BYTES).decode(errors="replace")
    except ValueError:  # too long: what reads it says so
        return True
