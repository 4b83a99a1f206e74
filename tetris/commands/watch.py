"""Watch a controller play, or a replay, in the terminal; or write it as GIF, MP4 or a web page.

python -m tetris watch dt20 --board 10x10
python -m tetris watch runs/mine --html mine.html --gif mine.gif
python -m tetris watch runs/mine --evolution evolution.gif
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from kernels.support.files import check_writable, read_bytes, write_text
from kernels.support.printable import counted, printable
from kernels.support.progress import progress
from tetris.commands.arguments import (
    GAME,
    add_controller,
    add_game,
    add_option,
    controller_for,
    game_rules,
)
from tetris.commands.command_line import (
    Parser,
    between,
    fail,
    one_line_errors,
    path_ending,
    positive_int,
)
from tetris.game.decisions import play
from tetris.game.features import AfterState
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Lookahead, Player
from tetris.game.rules import Rules
from tetris.play.controller import LinearController
from tetris.play.devices import choose_device
from tetris.record.numbers import file_size
from tetris.record.replay import FORMAT, DamagedReplayError, Replay
from tetris.view.game_view import Scene, scenes
from tetris.view.images import check_gif, frame, has_mp4, write_gif, write_mp4
from tetris.view.replay_page import player_page
from tetris.view.terminal import Terminal, is_interactive
from tetris.view.text import scene_text
from tetris.view.watcher import Watcher

DEFAULT_DECISIONS = 500
"""Default pieces of a file or a pipe; a terminal has no end."""

EXPORTS = {
    "replay": (".json", "a replay"),
    "html": (".html", "a page with a player"),
    "gif": (".gif", "an animation"),
    "mp4": (".mp4", "a video"),
}
"""What it writes by option: suffix and help."""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] [CONTROLLER | replay.json]")
    add_controller(parser, ", or a replay")
    add_game(parser)
    length = parser.add_argument_group("length, one of the first two, and speed")
    limit = length.add_mutually_exclusive_group()
    add_option(limit, "--games", "N", "play until N games have ended", positive_int)
    text = f"play N pieces (default: {DEFAULT_DECISIONS} into a file or a pipe, no end in a terminal)"
    add_option(limit, "--decisions", "N", text, positive_int)
    read = between(0.1, 1000, "a number of pieces per second from 0.1 to 1000")
    add_option(length, "--speed", "N", "pieces per second", read, default=5.0)
    text = "begin with piece N: the terminal, GIF and MP4"
    add_option(length, "--from", "N", text, positive_int, default=1, dest="first")
    output = parser.add_argument_group("instead of watching in the terminal")
    for name, (suffix, what) in EXPORTS.items():
        add_option(output, f"--{name}", f"OUT{suffix}", f"write {what}", path_ending(suffix))
    text = "write what generations of a run folder play, side by side, and an MP4 beside it"
    add_option(output, "--evolution", "OUT.gif", text, path_ending(".gif"))
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Show:
    """The games to show: of a controller, or a replay, whose seed and controller may be unknown."""

    rules: Rules
    controller: LinearController | None
    seed: int | None
    label: str
    replay: Replay | None = None
    lookahead: Lookahead = Lookahead.NONE

    @property
    def title(self) -> list[str]:
        """The title, in lines for the screen."""
        source = self.rules.pieces if self.seed is None else f"{self.rules.pieces}, seed {self.seed}"
        board = f"{self.label} on {self.rules.board}, {self.rules.rule} rule"
        return [board, f"pieces {source}{self.lookahead.phrase}"]

    def player(self) -> Player | None:
        """Return the controller on the board; None without one."""
        return None if self.controller is None else self.controller.player(self.rules, self.lookahead)

    def played(self) -> Iterator[AfterState]:
        """Return the after-states from the beginning."""
        if self.replay is not None:
            return self.replay.after_states()
        player, seed = self.player(), self.seed
        assert player is not None
        assert seed is not None
        return play(PieceStream(self.rules, seed, 0), player, self.rules)


def read_show(arguments: argparse.Namespace) -> Show:
    """Return the games of the arguments."""
    source = arguments.source
    if source is not None and _is_replay(Path(source)):
        for name, usual in GAME.items():
            if getattr(arguments, name) != usual:
                flag = name.replace("_", "-")
                raise ValueError(f"a replay has its own rules and pieces: expected no --{flag}")
        replay = Replay.load(source)
        if not replay.placements:
            raise ValueError(f"{source}: expected a replay of at least one placement, got none")
        label = (replay.controller.name if replay.controller else "a person") or Path(source).stem
        return Show(replay.rules, replay.controller, replay.seed, label, replay)
    rules = game_rules(arguments)
    label, controller = controller_for(source, rules)
    lookahead = Lookahead.of(arguments.pieces_known, arguments.lookahead)
    return Show(rules, controller, arguments.seed, label, lookahead=lookahead)


def _is_replay(path: Path) -> bool:
    return path.suffix == ".json" and path.is_file() and f'"{FORMAT}"'.encode() in read_bytes(path)


def limited(played: Iterator[AfterState], most: int | None, most_games: int | None) -> Iterator[AfterState]:
    """Yield placements up to a number of pieces or games; None: no limit."""
    games = 0
    for after in islice(played, most):
        yield after
        games += after.game_over
        if games == most_games:
            return


def begun(shown: Iterator[Scene], first: int) -> Iterator[Scene]:
    """Return the scenes from a piece on; the program ends where there is none."""
    rest = islice(shown, first - 1, None)
    if (scene := next(rest, None)) is None:
        fail(f"expected --from up to the last piece, got {first:,}")
    return chain([scene], rest)


def export(show: Show, played: Iterator[AfterState], most: int | None, arguments: argparse.Namespace) -> None:
    """Play, write the files and print their names."""
    most = min(most or sys.maxsize, len(show.replay.placements)) if show.replay else most
    with progress(played, desc="playing", total=most, unit=" pieces", leave=False) as bar:
        stream = show.replay.stream if show.replay else 0
        replay = Replay.of(bar, show.rules, show.seed, stream, show.controller)
    total = len(replay.placements) - arguments.first + 1
    for name, path in asked_for(arguments).items():
        with one_line_errors():
            if name == "replay":
                replay.save(path)
            elif name == "html":
                write_text(path, player_page(replay, show.label, arguments.speed, show.lookahead))
            else:
                write, cell = (write_gif, 12) if name == "gif" else (write_mp4, 24)
                shown = begun(scenes(replay.rules, replay.after_states()), arguments.first)
                bar = progress(shown, desc=f"drawing {path.name}", total=total, unit=" pictures", leave=False)
                with closing(bar):  # it goes before anything else is said
                    write(path, (frame(scene, show.label, cell) for scene in bar), arguments.speed)
        size = file_size(path.stat().st_size)
        print(f"{printable(path)}: {counted(len(replay.placements), 'piece')}, {size}")


def asked_for(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the files to write by kind, in writing order."""
    return {name: path for name in EXPORTS if (path := getattr(arguments, name)) is not None}


def check_exports(arguments: argparse.Namespace) -> None:
    """Check that all files can be written."""
    paths = asked_for(arguments)
    for path in paths.values():
        check_writable(path)
    if "gif" in paths:
        check_gif(arguments.speed)
    if "mp4" in paths and not has_mp4():
        raise ValueError('an MP4 needs imageio-ffmpeg: pip install -e ".[watch]"')


def show_evolution(source: str | None, path: Path) -> None:
    """Write the clip of a run, the engine of which plays, and print its name."""
    from tetris.report.evolution import write_evolution
    from tetris.training.run_folder import load_run

    check_writable(path)
    run = load_run(source or "")
    device = run.recipe.device
    write_evolution(path, run, choose_device("auto") if device == "cuda" else device)
    print(f"{printable(path)}: {counted(run.generations, 'generation')}, {file_size(path.stat().st_size)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Watch or write."""
    arguments = parse_arguments(argv)
    exports = bool(asked_for(arguments))
    interactive = is_interactive(sys.stdout)
    with one_line_errors():
        if arguments.evolution is not None:
            show_evolution(arguments.source, arguments.evolution)
            return 0
        show = read_show(arguments)
        check_exports(arguments)
    endless = arguments.games or show.replay or (interactive and not exports)
    most = arguments.decisions or (None if endless else DEFAULT_DECISIONS)
    most = most and most + arguments.first - 1
    played = limited(show.played(), most, arguments.games)
    try:
        if exports:
            export(show, played, most, arguments)
            return 0
        shown = begun(scenes(show.rules, played), arguments.first)
        if interactive:
            with Terminal(sys.stdout, sys.stdin.fileno()) as terminal:
                Watcher(terminal, shown, show.player(), show.title, arguments.speed).run()
        else:
            for scene in shown:
                print(f"{scene_text(scene)}\n")
    except DamagedReplayError as error:
        fail(f"{arguments.source} holds no valid replay: {error}")
    return 0
