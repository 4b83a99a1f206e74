"""Watch a controller or a replay in the terminal, or write a GIF, an MP4 or a web page.

python -m tetris watch dt20 --board 10x10
python -m tetris watch runs/mine --html mine.html --gif mine.gif
python -m tetris watch runs/mine --evolution evolution.gif
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from kernels.support.files import check_writable, read_bytes, write_text
from kernels.support.printable import counted, printable
from kernels.support.progress import progress
from tetris import LinearController, Lookahead, Rules
from tetris.commands.arguments import (
    GAME,
    add_controller,
    add_game,
    add_option,
    controller_for,
    read_game,
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
from tetris.game.fumen import is_fumen
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Player
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
"""The default number of pieces in a file or a pipe; in a terminal the games have no end."""

EXPORTS = {
    "replay": (".json", "a replay"),
    "fumen": (".txt", "a fumen, for editors of boards"),
    "html": (".html", "a page with a player"),
    "gif": (".gif", "an animation"),
    "mp4": (".mp4", "a video"),
}
"""The kinds of files that the command can write, by option: their suffix and their help."""


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command ``watch``; on an error, print one line and exit.

    `add_option` takes the name of an option, the placeholder of its value in the help, the help
    text, and a function that reads the value.
    """
    parser = Parser(
        description=__doc__, usage="%(prog)s [option ...] [CONTROLLER | replay.json]"
    )
    add_controller(parser, ", a replay or a fumen")
    add_game(parser)
    length = parser.add_argument_group("length (games or decisions) and speed")
    limit = length.add_mutually_exclusive_group()
    add_option(limit, "--games", "N", "play until N games have ended", read=positive_int)
    default = f"{DEFAULT_DECISIONS} in a file or a pipe, no end in a terminal"
    text = f"play N pieces (default: {default})"
    add_option(limit, "--decisions", "N", text, read=positive_int)
    speed = between(0.1, 1000, "a number of pieces per second from 0.1 to 1000")
    add_option(length, "--speed", "N", "pieces per second", read=speed, default=5.0)
    text = "start at piece N, in the terminal, a GIF or an MP4"
    add_option(length, "--from", "N", text, read=positive_int, default=1, dest="first")
    # An option for each kind of file, such as --gif OUT.gif.
    output = parser.add_argument_group("instead of watching in the terminal")
    for kind, (suffix, description) in EXPORTS.items():
        text = f"write {description}"
        add_option(output, f"--{kind}", f"OUT{suffix}", text, read=path_ending(suffix))
    text = "write how generations of a run folder play, side by side, as a GIF and an MP4"
    add_option(output, "--evolution", "OUT.gif", text, read=path_ending(".gif"))
    arguments = parser.parse_args()
    if arguments.evolution is not None:
        for name, value in vars(arguments).items():
            is_own = name in ("source", "evolution", "feature_header")
            if not is_own and value != parser.get_default(name):
                parser.error(
                    "--evolution shows a run in its own game: expected no other option"
                )
    return arguments


@dataclass(frozen=True)
class Show:
    """The games to show: games of a controller, or a replay.

    For a replay the seed and the controller may be None: unknown.
    """

    rules: Rules
    controller: LinearController | None
    seed: int | None
    label: str
    replay: Replay | None = None
    lookahead: Lookahead = Lookahead.NONE

    @property
    def title(self) -> list[str]:
        """The lines of the title."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return [
            f"{self.label} on {self.rules.board}, {self.rules.rule} rule",
            f"pieces {self.rules.pieces}{seed}{self.lookahead.phrase}",
        ]

    def player(self) -> Player | None:
        """Return the controller as a player on this board; None if it is unknown."""
        if self.controller is None:
            return None
        return self.controller.player(self.rules, self.lookahead)

    def after_states(self) -> Iterator[AfterState]:
        """Play the games from the beginning, and yield the state after each placement."""
        if self.replay is not None:
            return self.replay.after_states()
        player = self.player()
        assert player is not None
        assert self.seed is not None
        return play(PieceStream(self.rules, self.seed, 0), player, self.rules)


def read_show(arguments: argparse.Namespace) -> Show:
    """Return the games to show: a replay, or games that a controller will play.

    ``arguments.source`` is the file of a replay, or a controller: its name, its file or the
    folder of its training run.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a file or an argument is not valid.
    """
    source = arguments.source
    rules, lookahead = read_game(arguments)
    replay = None if source is None else read_replay(source, rules)
    if replay is not None:
        # A replay has its own rules and pieces. So the options of the game must keep their
        # defaults, which are in GAME. Those of the rules may also agree with the replay. With a
        # fumen they do, because it was read by them.
        for name, default in GAME.items():
            if hasattr(rules, name) and replay.rules == rules:
                continue
            if getattr(arguments, name) != default:
                flag = name.replace("_", "-")
                raise ValueError(f"a replay has its own rules and pieces: expected no --{flag}")
        if not replay.placements:
            raise ValueError(f"{source}: expected a replay of at least one placement, got none")
        label = "a person"  # A replay without a controller was played by a person.
        if replay.controller:
            label = replay.controller.name or Path(source).stem
        return Show(
            replay.rules, replay.controller, replay.seed, label, replay, replay.lookahead
        )
    label, controller = controller_for(source, rules)
    return Show(rules, controller, arguments.seed, label, lookahead=lookahead)


def read_replay(source: str, rules: Rules) -> Replay | None:
    """Return the replay of a file or of a fumen; None if the text names a controller.

    The text is the path of a replay, the path of a text file with a fumen, or a fumen. A fumen
    does not say the rules, which are given; the rules of another replay are its own.
    """
    path = Path(source)
    suffix = path.suffix.lower() if path.is_file() else ""
    text = source
    if suffix == ".txt":
        text = read_bytes(path).decode(errors="replace")
    if is_fumen(text):
        return Replay.from_fumen(text, rules)
    if suffix == ".json" and f'"{FORMAT}"'.encode() in read_bytes(path):
        return Replay.load(path)
    return None


def limit(
    after_states: Iterator[AfterState], pieces: int | None, games: int | None
) -> Iterator[AfterState]:
    """Yield after-states until ``pieces`` are placed, or until ``games`` have ended.

    None means no limit.
    """
    games_ended = 0
    for after in islice(after_states, pieces):
        yield after
        games_ended += after.game_over
        if games_ended == games:
            return


def skip_to(first: int, all_scenes: Iterator[Scene]) -> Iterator[Scene]:
    """Return the scenes from piece ``first`` on; exit with an error if there are none."""
    rest = islice(all_scenes, first - 1, None)
    scene = next(rest, None)
    if scene is None:
        fail(f"expected --from up to the last piece, got {first:,}")
    return chain([scene], rest)


def record(show: Show, after_states: Iterator[AfterState], pieces: int | None) -> Replay:
    """Play games, and return their replay.

    Args:
        show: The rules, seed, controller and label of the games, or their replay.
        after_states: An iterator that plays the games, and yields the state after each
            placement. It ends when the number of pieces or games on the command line is
            reached.
        pieces: The greatest number of pieces, for the progress bar; None: unknown.
    """
    stream: int | None = 0  # A seed has many streams of pieces. This command plays stream 0.
    boards = None
    if show.replay is not None:
        stream = show.replay.stream
        # The boards that do not follow from the placements, such as a chosen first board.
        boards = show.replay.boards
        # The replay may have fewer pieces.
        pieces = min(pieces or sys.maxsize, len(show.replay.placements))
    with progress(after_states, desc="playing", total=pieces, unit=" pieces") as bar:
        # `Replay.of` iterates over the after-states, so the games are played here.
        return Replay.of(
            bar, show.rules, show.seed, stream, show.controller, boards, show.lookahead
        )


def export_files(replay: Replay, show: Show, arguments: argparse.Namespace) -> None:
    """Write a replay to the files that the user asked for, and print the file names."""
    pieces_played = counted(len(replay.placements), "piece")
    for kind, path in export_paths(arguments).items():
        with one_line_errors():
            if kind == "replay":
                replay.save(path)
            elif kind == "fumen":
                write_text(path, replay.to_fumen() + "\n")
            elif kind == "html":
                write_text(path, player_page(replay, show.label, arguments.speed))
            else:
                write_movie(path, replay, show.label, arguments)
        print(f"{printable(path)}: {pieces_played}, {file_size(path)}")


def write_movie(path: Path, replay: Replay, label: str, arguments: argparse.Namespace) -> None:
    """Write a replay, from the piece of ``--from`` on, as a GIF or an MP4 by the suffix."""
    all_scenes = scenes(replay.rules, replay.after_states(), replay.boards)
    scenes_to_draw = skip_to(arguments.first, all_scenes)
    total = len(replay.placements) - arguments.first + 1
    desc = f"drawing {path.name}"
    bar = progress(scenes_to_draw, desc=desc, total=total, unit=" pictures")
    write = write_mp4
    cell = 24  # In pixels.
    if path.suffix.lower() == ".gif":
        write = write_gif
        cell = 12
    with closing(bar):  # The bar disappears before anything else is printed.
        write(path, (frame(scene, label, cell) for scene in bar), arguments.speed)


def export_paths(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the path of each file to write, by its kind, such as ``gif``."""
    return {name: path for name in EXPORTS if (path := getattr(arguments, name)) is not None}


def check_exports(arguments: argparse.Namespace) -> None:
    """Raise OSError or ValueError if a file of the options cannot be written."""
    paths = export_paths(arguments)
    for path in paths.values():
        check_writable(path)
    if "gif" in paths:
        check_gif(arguments.speed)
    if "mp4" in paths and not has_mp4():
        raise ValueError('an MP4 needs imageio-ffmpeg: pip install -e ".[watch]"')


def show_evolution(source: str | None, path: Path) -> None:
    """Write a clip of how generations of a run play, and print the name of its file."""
    from tetris.report.evolution import write_evolution
    from tetris.training.run_folder import load_run

    check_writable(path)
    run = load_run(source or "")
    device = run.recipe.device
    if device == "cuda":  # The run may come from another machine.
        device = choose_device("auto")
    write_evolution(path, run, device)
    size = file_size(path)
    print(f"{printable(path)}: {counted(run.generations, 'generation')}, {size}")


def main() -> int:
    """Show games of a controller or a replay, or write them to files.

    In a terminal the games are an animation. If stdout is not a terminal, they are printed as
    text.

    Returns:
        The exit status.
    """
    arguments = parse_arguments()
    writes_files = bool(export_paths(arguments))
    with one_line_errors():
        if arguments.evolution is not None:
            show_evolution(arguments.source, arguments.evolution)
            return 0
        show = read_show(arguments)
        check_exports(arguments)
    # A person who watches in a terminal can stop the games with a key. Otherwise the games need
    # a limit. A decision places one piece, so --decisions is a number of pieces.
    pieces = arguments.decisions
    has_limit = pieces is not None or arguments.games or show.replay is not None
    is_watched = is_interactive(sys.stdout) and not writes_files
    if not has_limit and not is_watched:
        pieces = DEFAULT_DECISIONS
    if pieces is not None:
        pieces += arguments.first - 1  # The pieces before --from are played but not shown.
    after_states = limit(show.after_states(), pieces, arguments.games)
    # `after_states` is lazy. The games are only played below, and an error in a replay is only
    # raised there.
    try:
        if writes_files:
            export_files(record(show, after_states, pieces), show, arguments)
        else:
            show_games(show, after_states, arguments)
    except DamagedReplayError as error:
        fail(f"{arguments.source} holds no valid replay: {error}")
    return 0


def show_games(
    show: Show, after_states: Iterator[AfterState], arguments: argparse.Namespace
) -> None:
    """Play games, and show them as an animation in the terminal, or print them as text."""
    boards = show.replay.boards if show.replay else None
    scenes_to_show = skip_to(arguments.first, scenes(show.rules, after_states, boards))
    if is_interactive(sys.stdout):
        with Terminal(sys.stdout, sys.stdin.fileno()) as terminal:
            speed = arguments.speed
            Watcher(terminal, scenes_to_show, show.player(), show.title, speed).run()
    else:
        for scene in scenes_to_show:
            print(f"{scene_text(scene)}\n")
