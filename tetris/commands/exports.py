"""The files of `watch_tetris.py`: a replay, GIF, MP4 and web page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

from kernels.support.files import check_writable, write_text
from kernels.support.printable import printable
from kernels.support.progress import progress
from tetris.commands.command_line import one_line_errors, path_ending
from tetris.record.numbers import counted, file_size
from tetris.record.replay import MOST_PLACEMENTS, Replay
from tetris.view.game_view import Scene, scenes
from tetris.view.images import check_gif, check_mp4, write_gif, write_mp4
from tetris.view.replay_page import player_page

# The quickest first: an interrupted export has written them.
_KINDS = {
    "replay": (".json", "a replay"),
    "html": (".html", "a page with a player"),
    "gif": (".gif", "an animation"),
    "mp4": (".mp4", "a video"),
}
MOST_PICTURES = 10_000  # of a GIF, which is in memory as a whole: a gigabyte


def add_exports(group: argparse._ArgumentGroup) -> None:
    """Add ``--gif``, ``--mp4``, ``--html`` and ``--replay``: files, None by default."""
    for name, (suffix, what) in _KINDS.items():
        group.add_argument(
            f"--{name}", type=path_ending(suffix), metavar=f"OUT{suffix}", help=f"write {what}"
        )


def asked_for(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the files to write by kind, in writing order."""
    return {name: path for name in _KINDS if (path := getattr(arguments, name)) is not None}


def check_exports(arguments: argparse.Namespace) -> None:
    """Check that all files can be written, with as many pieces as are asked for."""
    paths, count = asked_for(arguments), arguments.decisions or 0
    for path in paths.values():
        check_writable(path)
    if "gif" in paths:
        check_gif(arguments.speed)
        check_pictures(count)
    if "mp4" in paths:
        check_mp4()
    if paths and count > MOST_PLACEMENTS:
        raise ValueError(f"expected --decisions to be at most {MOST_PLACEMENTS:,}, got {count:,}")


def check_pictures(count: int) -> None:
    """Check that a GIF has room for as many pictures."""
    if count > MOST_PICTURES:
        raise ValueError(f"expected a GIF of at most {MOST_PICTURES:,} pieces, got {count:,}: see --mp4")


def export(replay: Replay, label: str, arguments: argparse.Namespace) -> None:
    """Write the files and print their names."""
    if not replay.placements:
        print("nothing was played, nothing is written", file=sys.stderr)
        return
    for name, path in asked_for(arguments).items():
        with one_line_errors():
            if name == "replay":
                replay.save(path)
            elif name == "html":
                write_text(path, player_page(replay, label, arguments.speed))
            else:
                if name == "gif":
                    check_pictures(len(replay.placements))
                write = write_gif if name == "gif" else write_mp4
                with closing(_drawn(replay, path)) as shown:  # its bar goes before anything else is said
                    write(path, shown, label, arguments.speed)
        print(
            f"{printable(path)}: {counted(len(replay.placements), 'piece')}, {file_size(path.stat().st_size)}"
        )


def _drawn(replay: Replay, path: Path) -> Generator[Scene, None, None]:
    """The scenes of a replay, with a progress bar."""
    shown = scenes(replay.rules, replay.after_states())
    total = len(replay.placements)
    yield from progress(shown, desc=f"drawing {path.name}", total=total, unit=" pictures", leave=False)
